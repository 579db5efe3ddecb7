/* drydock_stubs.c - collects what PyTorch wants and writes the libraries into the cache folder. */
#include "cli/drydock_stubs.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/drydock_elf.h"

#define CORE "libplimsoll-drydock.so"
#define NVML "libnvidia-ml.so.1"

/* Library name without suffix, and what its functions begin with. The first that fits owns a name. */
static const struct {
    const char *base, *prefix;
} owners[] = {
    { "libcublasLt", "cublasLt" },
    { "libcublas", "cublas" },
    { "libcudnn", "cudnn" },
    { "libcufft", "cufft" },
    { "libcurand", "curand" },
    { "libcusolver", "cusolver" },
    { "libcusparseLt", "cusparseLt" },
    { "libcusparse", "cusparse" },
    { "libnccl", "nccl" },
    { "libnccl", "pnccl" },
    { "libnvrtc", "nvrtc" },
    { "libnvshmem_host", "nvshmem" },
    { "libcufile", "cuFile" },
    { "libcupti", "cupti" },
    { "libnvJitLink", "nvJitLink" },
    { "libcudart", "__cuda" },
    { "libcudart", "cuda" },
    { "libcuda", "cu" },
};
enum { OWNERS = sizeof owners / sizeof *owners };

struct wanted {
    const char *name, *version;
    int owner;
};
struct list {
    struct wanted *at;
    size_t count, room;
};
/* What is known while the libraries of PyTorch are read. */
struct survey {
    struct pl_arena *arena;
    struct list wants, core;    /* names PyTorch wants; names the core has */
    struct list rows;           /* outparams.tsv: version holds the rest of the line */
    const char *soname[OWNERS]; /* as PyTorch asks for it */
    const char *node[OWNERS];   /* version node, NULL = none */
    uint64_t hash;
    bool failed;
};

/* --- small things */

static void mix(struct survey *s, const void *bytes, size_t len) { /* FNV-1a */
    const unsigned char *b = bytes;
    for (size_t i = 0; i < len; i++) s->hash = (s->hash ^ b[i]) * UINT64_C(0x100000001b3);
}

static int owner_of(const char *name) {
    for (int i = 0; i < OWNERS; i++) {
        size_t n = strlen(owners[i].prefix);
        if (strncmp(name, owners[i].prefix, n) != 0) continue;
        if (strcmp(owners[i].prefix, "cu") == 0 && (name[2] < 'A' || name[2] > 'Z')) continue;
        for (int first = 0; first < i; first++) /* two prefixes, one library */
            if (strcmp(owners[first].base, owners[i].base) == 0) return first;
        return i;
    }
    return -1;
}

static void append(struct survey *s, struct list *l, const char *name, const char *version, int owner) {
    if (l->count == l->room) {
        size_t room = l->room != 0 ? 2 * l->room : 1024;
        struct wanted *bigger = realloc(l->at, room * sizeof *bigger);
        if (bigger == NULL) {
            s->failed = true;
            return;
        }
        l->at = bigger;
        l->room = room;
    }
    struct wanted w = { pl_arena_strndup(s->arena, name, strlen(name)),
                        pl_arena_strndup(s->arena, version, strlen(version)), owner };
    if (w.name == NULL || w.version == NULL)
        s->failed = true;
    else
        l->at[l->count++] = w;
}

/* By name; one that has a version comes first. */
static int compare(const void *a, const void *b) {
    const struct wanted *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c != 0 ? c : strcmp(y->version, x->version);
}

static int compare_name(const void *a, const void *b) {
    return strcmp(((const struct wanted *)a)->name, ((const struct wanted *)b)->name);
}

static void sort(struct list *l) {
    size_t kept = 0;
    if (l->count == 0) return;
    qsort(l->at, l->count, sizeof *l->at, compare);
    for (size_t i = 1; i < l->count; i++)
        if (strcmp(l->at[kept].name, l->at[i].name) != 0) l->at[++kept] = l->at[i];
    l->count = kept + 1;
}

static const struct wanted *find(const struct list *l, const char *name) {
    struct wanted key = { name, "", 0 };
    return l->count > 0 ? bsearch(&key, l->at, l->count, sizeof key, compare_name) : NULL;
}

/* --- reading libraries */

static void on_library(void *ctx, const char *soname) {
    struct survey *s = ctx;
    size_t base = strcspn(soname, ".");
    for (int i = 0; i < OWNERS; i++) {
        if (strlen(owners[i].base) != base || strncmp(owners[i].base, soname, base) != 0) continue;
        if (s->soname[i] == NULL) s->soname[i] = pl_arena_strndup(s->arena, soname, strlen(soname));
        return;
    }
}

static void on_want(void *ctx, const char *name, const char *version) {
    struct survey *s = ctx;
    int owner = owner_of(name);
    if (owner == -1) return;
    append(s, &s->wants, name, version, owner);
    if (version[0] != '\0' && s->node[owner] == NULL)
        s->node[owner] = pl_arena_strndup(s->arena, version, strlen(version));
}

static void on_core(void *ctx, const char *name) {
    struct survey *s = ctx;
    append(s, &s->core, name, "", 0);
}

static void on_build_id(void *ctx, const unsigned char *bytes, size_t len) { mix(ctx, bytes, len); }

/* Maps it: libtorch_cuda.so is large, and only the pages that are looked at are read. */
static bool read_library(const char *path, const struct pl_elf_sink *sink, struct pl_err *err) {
    struct stat st;
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || fstat(fd, &st) == -1) return PL_FAIL_SYS(err, errno, "read %s", path);
    if (st.st_size == 0) return true;
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return PL_FAIL_SYS(err, errno, "map %s", path);
    bool ok = pl_elf_read(data, (size_t)st.st_size, sink, err) || pl_err_wrap(err, "%s", path);
    munmap(data, (size_t)st.st_size);
    return ok;
}

static bool is_library(const char *name) {
    size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

/* Every library of PyTorch, in the order of names. `sink` NULL: only their identity goes into the hash. */
static bool each_library(struct survey *s, const char *torch, const struct pl_elf_sink *sink,
                         struct pl_err *err) {
    char folder[PL_PATH_BYTES], path[2 * PL_PATH_BYTES];
    struct dirent **found;
    bool ok = true;
    snprintf(folder, sizeof folder, "%s/lib", torch);
    int count = scandir(folder, &found, NULL, alphasort);
    if (count == -1) return PL_FAIL_SYS(err, errno, "read %s", folder);
    for (int i = 0; i < count; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        if (is_library(found[i]->d_name) && stat(path, &st) == 0 && ok) {
            if (sink != NULL) {
                ok = read_library(path, sink, err);
            } else {
                struct pl_elf_sink id = { .build_id = on_build_id, .ctx = s };
                long long facts[] = { st.st_size, st.st_mtim.tv_sec };
                mix(s, path, strlen(path));
                mix(s, facts, sizeof facts);
                ok = read_library(path, &id, err);
            }
        }
        free(found[i]);
    }
    free(found);
    return ok;
}

/* --- the tables */

static bool read_table(struct survey *s, const char *share, const char *name,
                       void (*row)(struct survey *, char *), struct pl_err *err) {
    char path[PL_PATH_BYTES + 32], line[512];
    snprintf(path, sizeof path, "%s/%s", share, name);
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL) return PL_FAIL_SYS(err, errno, "read %s", path);
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        mix(s, line, strlen(line));
        if (line[0] != '\0' && line[0] != '#') row(s, line);
    }
    return true;
}

/* name <TAB> kinds <TAB> index:what,... */
static void on_row(struct survey *s, char *line) {
    char *tab = strchr(line, '\t');
    if (tab == NULL) return;
    *tab = '\0';
    append(s, &s->rows, line, tab + 1, 0);
}

static void on_name(struct survey *s, char *line) { append(s, &s->wants, line, "", owner_of(line)); }

static void read_row(struct survey *s, const char *rest, struct pl_stub *out) {
    const char *tab = strchr(rest, '\t');
    if (tab == NULL) return;
    out->kinds = pl_arena_strndup(s->arena, rest, (size_t)(tab - rest));
    for (const char *at = tab + 1; *at >= '0' && *at <= '9' && out->out_count < PL_STUB_OUTS;) {
        char *end;
        struct pl_stub_out *o = &out->outs[out->out_count++];
        o->argument = (int)strtol(at, &end, 10);
        o->what = strncmp(end, ":i32", 4) == 0   ? PL_STUB_I32
                  : strncmp(end, ":i64", 4) == 0 ? PL_STUB_I64
                                                 : PL_STUB_HANDLE;
        at = end + strcspn(end, ",");
        at += *at == ',';
    }
    if (out->kinds == NULL) s->failed = true;
}

/* Names whose results a caller reads: without a row, success is a lie. */
static bool gives_results(const char *name) {
    static const char *const parts[] = { "ufferSize", "WorkspaceSize", "Create", "Get", "Query" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]) != NULL) return true;
    return false;
}

/* --- writing */

static bool save(const char *folder, const char *name, const struct pl_buf *b, struct pl_err *err) {
    char path[2 * PL_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    PL_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    if (fd == -1 || write(fd, b->data, b->len) != (ssize_t)b->len)
        return PL_FAIL_SYS(err, errno, "write %s", path);
    return true;
}

static bool write_one(struct survey *s, int owner, const char *soname, const char *node, const char *folder,
                      struct pl_err *err) {
    size_t count = 0;
    struct pl_buf out;
    struct pl_stub *stubs = calloc(s->wants.count + 1, sizeof *stubs);
    if (stubs == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for %s", soname);
    for (size_t i = 0; i < s->wants.count; i++) {
        const struct wanted *w = &s->wants.at[i];
        if (w->owner != owner || find(&s->core, w->name) != NULL) continue;
        struct pl_stub *stub = &stubs[count++];
        const struct wanted *row = find(&s->rows, w->name);
        *stub = (struct pl_stub){ .name = w->name, .kinds = "", .versioned = w->version[0] != '\0' };
        if (row != NULL)
            read_row(s, row->version, stub);
        else
            stub->lacking = gives_results(w->name);
    }
    pl_buf_init(&out, (size_t)16 << 20);
    bool ok = pl_elf_write(&out, soname, CORE, stubs, count, node != NULL ? node : "", err) &&
              save(folder, soname, &out, err);
    pl_buf_free(&out);
    free(stubs);
    return ok;
}

static bool write_all(struct survey *s, const char *folder, struct pl_err *err) {
    for (int i = 0; i < OWNERS; i++)
        if (s->soname[i] != NULL && !write_one(s, i, s->soname[i], s->node[i], folder, err)) return false;
    return true;
}

/* Without PyTorch: what C programs name. Both runtimes hold no function of their own, the core has them. */
static bool write_bare(struct survey *s, const char *folder, struct pl_err *err) {
    int driver = owner_of("cuInit"), runtime = owner_of("cudaMalloc");
    return write_one(s, driver, "libcuda.so.1", NULL, folder, err) &&
           write_one(s, runtime, "libcudart.so.12", "libcudart.so.12", folder, err) &&
           write_one(s, runtime, "libcudart.so.13", "libcudart.so.13", folder, err);
}

/* --- the folder */

static bool link_to(const char *share, const char *folder, const char *name, struct pl_err *err) {
    char from[PL_PATH_BYTES + 32], to[PL_PATH_BYTES + 32];
    snprintf(from, sizeof from, "%s/%s", share, name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    return symlink(from, to) == 0 || PL_FAIL_SYS(err, errno, "link %s", to);
}

static void remove_folder(const char *folder) {
    char path[2 * PL_PATH_BYTES];
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d != NULL) closedir(d);
    rmdir(folder);
}

static bool survey_torch(struct survey *s, const struct pl_torch *t, struct pl_err *err) {
    struct pl_elf_sink sink = { .library = on_library, .wants = on_want, .ctx = s };
    int runtime = owner_of("cudaMalloc"), driver = owner_of("cuInit");
    if (!each_library(s, t->folder, &sink, err)) return false;
    const char *name = s->soname[runtime];
    if (name == NULL || (strcmp(name, "libcudart.so.12") != 0 && strcmp(name, "libcudart.so.13") != 0)) {
        PL_FAIL(err, PL_E_CONFIG,
                "torch %s wants %s: the dry dock serves CUDA 12 and 13 (libcudart.so.12, libcudart.so.13)",
                t->version, name != NULL ? name : "no CUDA runtime (it has its own inside)");
        return pl_err_hint(err, "use an environment with PyTorch's plain wheel from PyPI, 2.8 or newer");
    }
    s->soname[driver] = "libcuda.so.1";
    return true;
}

/* In a folder of its own first: what appears under the final name is whole. */
static bool make_folder(struct survey *s, const char *share, const struct pl_torch *t, const char *folder,
                        struct pl_err *err) {
    char making[PL_PATH_BYTES + 32], core[PL_PATH_BYTES + 32];
    struct pl_elf_sink sink = { .has = on_core, .ctx = s };
    snprintf(making, sizeof making, "%s.%d", folder, (int)getpid());
    snprintf(core, sizeof core, "%s/" CORE, share);
    bool torch = t->folder[0] != '\0';
    if (!read_library(core, &sink, err) || (torch && !survey_torch(s, t, err))) return false;
    sort(&s->core);
    sort(&s->rows);
    sort(&s->wants);
    if (s->failed) return PL_FAIL(err, PL_E_NOMEM, "no memory for the names of torch");
    if (mkdir(making, 0755) == -1) {
        PL_FAIL_SYS(err, errno, "make %s", making);
        return pl_err_hint(
            err, "the written libraries are kept there; set PLIMSOLL_CACHE to a folder of your own");
    }
    bool ok = (torch ? write_all(s, making, err) : write_bare(s, making, err)) &&
              link_to(share, making, CORE, err) && link_to(share, making, NVML, err);
    if (ok && rename(making, folder) == -1 && errno != EEXIST && errno != ENOTEMPTY)
        ok = PL_FAIL_SYS(err, errno, "make %s", folder);
    remove_folder(making);
    return ok;
}

static bool list_preload(const char *folder, struct pl_buf *out, struct pl_err *err) {
    struct dirent **found;
    int count = scandir(folder, &found, NULL, alphasort);
    if (count == -1) return PL_FAIL_SYS(err, errno, "read %s", folder);
    for (int i = 0; i < count; i++) {
        if (found[i]->d_name[0] != '.')
            pl_buf_addf(out, "%s%s/%s", out->len > 0 ? ":" : "", folder, found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return true;
}

static bool cache_folder(uint64_t hash, char out[PL_PATH_BYTES], struct pl_err *err) {
    char cache[PL_PATH_BYTES];
    if (!pl_path_cache_dir(cache, err)) return false;
    if ((size_t)snprintf(out, PL_PATH_BYTES, "%s/drydock", cache) >= PL_PATH_BYTES - 32)
        return PL_FAIL(err, PL_E_SYS, "the cache folder's path is too long: %s", cache);
    if (mkdir(out, 0755) == -1 && errno != EEXIST) return PL_FAIL_SYS(err, errno, "make %s", out);
    size_t len = strlen(out);
    snprintf(out + len, PL_PATH_BYTES - len, "/%016llx", (unsigned long long)hash);
    return true;
}

bool pl_drydock_stubs(const char *share, const struct pl_torch *torch, struct pl_arena *a,
                      char folder[PL_PATH_BYTES], struct pl_buf *preload, struct pl_err *err) {
    struct survey s = { .arena = a, .hash = UINT64_C(0xcbf29ce484222325) };
    struct pl_elf_sink id = { .build_id = on_build_id, .ctx = &s };
    char core[PL_PATH_BYTES + 32];
    snprintf(core, sizeof core, "%s/" CORE, share);
    mix(&s, core, strlen(core));
    bool ok = read_library(core, &id, err) && read_table(&s, share, "outparams.tsv", on_row, err) &&
              read_table(&s, share, "names.txt", on_name, err) &&
              (torch->folder[0] == '\0' || each_library(&s, torch->folder, NULL, err)) &&
              cache_folder(s.hash, folder, err);
    if (ok && access(folder, F_OK) != 0) ok = make_folder(&s, share, torch, folder, err);
    free(s.wants.at);
    free(s.core.at);
    free(s.rows.at);
    return ok && list_preload(folder, preload, err);
}
