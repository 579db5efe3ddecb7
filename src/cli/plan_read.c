/* plan_read.c - files of a model: configuration, headers, sizes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/plan_find.h"

enum { FIRST_READ = 1 << 20, MOST_GGUF_HEAD = 1 << 29, MOST_FILES = 4096 };

static int open_file(const char *path, uint64_t *size, struct pl_err *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "open %s", path), -1;
    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        close(fd);
        return PL_FAIL(err, PL_E_CONFIG, "%s is no file", path), -1;
    }
    *size = (uint64_t)st.st_size;
    return fd;
}

/* Up to `want` bytes from the start; shorter only at the end of the file. */
static bool read_start(int fd, const char *path, uint64_t want, struct pl_buf *out, struct pl_err *err) {
    if (!pl_buf_reserve(out, (size_t)want))
        return PL_FAIL(err, PL_E_NOMEM, "%s: no memory for %llu bytes", path, (unsigned long long)want);
    while (out->len < want) {
        ssize_t n = pread(fd, out->data + out->len, (size_t)want - out->len, (off_t)out->len);
        if (n == -1 && errno == EINTR) continue;
        if (n == -1) return PL_FAIL_SYS(err, errno, "read %s", path);
        if (n == 0) break;
        out->len += (size_t)n;
    }
    return true;
}

/* A small file whole. Not there: true, and nothing in `out`. */
static bool read_small(const char *path, struct pl_buf *out, struct pl_err *err) {
    uint64_t size;
    if (access(path, F_OK) == -1 && errno == ENOENT) return true;
    PL_AUTO_FD int fd = open_file(path, &size, err);
    if (fd == -1) return false;
    if (size > PL_HEADER_BYTES)
        return PL_FAIL(err, PL_E_TOO_LARGE, "%s has %llu bytes", path, (unsigned long long)size);
    return size == 0 || read_start(fd, path, size, out, err);
}

static bool add_safetensors(struct pl_plan_files *f, const char *path, struct pl_err *err) {
    uint64_t size, header;
    struct pl_buf b;
    PL_AUTO_FD int fd = open_file(path, &size, err);
    if (fd == -1) return false;
    pl_buf_init(&b, PL_HEADER_BYTES + 16);
    bool ok = read_start(fd, path, 8, &b, err);
    if (ok && b.len < 8) ok = PL_FAIL(err, PL_E_CONFIG, "byte 0: %zu bytes are no safetensors file", b.len);
    ok = ok && (header = pl_safetensors_header(b.data, size, err)) != 0 &&
         read_start(fd, path, 8 + header, &b, err) &&
         pl_safetensors_add(&f->weights, b.data, b.len, size, err);
    if (!ok && err->code == PL_E_CONFIG) pl_err_wrap(err, "%s", path);
    pl_buf_free(&b);
    return ok;
}

/* Reads ever more of the start until the head is whole: a head may be some MiB of vocabulary, the file a
 * hundred GiB. */
static bool add_gguf(struct pl_plan_files *f, const char *path, bool first, struct pl_arena *arena,
                     struct pl_err *err) {
    uint64_t size;
    struct pl_buf b;
    enum pl_gguf_result result = PL_GGUF_MORE;
    PL_AUTO_FD int fd = open_file(path, &size, err);
    if (fd == -1) return false;
    pl_buf_init(&b, MOST_GGUF_HEAD);
    for (uint64_t want = FIRST_READ; result == PL_GGUF_MORE; want *= 4) {
        if (want > MOST_GGUF_HEAD) {
            PL_FAIL(err, PL_E_CONFIG, "the head is longer than %d MiB", MOST_GGUF_HEAD >> 20);
            break;
        }
        if (!read_start(fd, path, want < size ? want : size, &b, err)) break;
        result = pl_gguf_read(b.data, b.len, size, arena, first ? &f->model : NULL, &f->weights, err);
        if (result == PL_GGUF_MORE && b.len >= size) {
            PL_FAIL(err, PL_E_CONFIG, "the file ends inside its head");
            break;
        }
    }
    pl_buf_free(&b);
    if (result == PL_GGUF_OK) return true;
    return err->code == PL_E_CONFIG ? pl_err_wrap(err, "%s", path) : false;
}

/* --- folders */

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static bool ends(const char *name, const char *tail) {
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && strcmp(name + n - t, tail) == 0;
}

/* Names in a folder that end in `tail`, sorted. */
static bool list(const char *folder, const char *tail, struct pl_arena *arena, struct pl_shards *out,
                 struct pl_err *err) {
    DIR *d = opendir(folder);
    *out = (struct pl_shards){ .names = pl_arena_alloc(arena, MOST_FILES * sizeof *out->names) };
    if (d == NULL) return PL_FAIL_SYS(err, errno, "open %s", folder);
    for (struct dirent *e; out->names != NULL && (e = readdir(d)) != NULL && out->count < MOST_FILES;)
        if (ends(e->d_name, tail) && e->d_name[0] != '.' &&
            (out->names[out->count] = pl_arena_strndup(arena, e->d_name, strlen(e->d_name))) != NULL)
            out->count++;
    closedir(d);
    if (out->names == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for %s", folder);
    qsort(out->names, out->count, sizeof *out->names, by_name);
    return true;
}

static bool read_index(struct pl_plan_files *f, const char *folder, struct pl_arena *arena, bool *found,
                       struct pl_err *err) {
    struct pl_buf text;
    struct pl_shards shards;
    char path[PL_PLAN_PATH];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    pl_buf_init(&text, 0);
    bool ok = read_small(path, &text, err);
    *found = text.len != 0;
    if (ok && *found) {
        ok = pl_safetensors_index(text.data, text.len, arena, &shards, err);
        if (!ok) pl_err_wrap(err, "%s", path);
        for (size_t i = 0; ok && i < shards.count; i++) {
            snprintf(path, sizeof path, "%s/%s", folder, shards.names[i]);
            if (access(path, F_OK) == -1) {
                PL_FAIL(err, PL_E_CONFIG, "%s is named in the index and is not there", path);
                ok = pl_err_hint(err, "%zu files belong to this model; fetch the missing ones", shards.count);
            } else {
                ok = add_safetensors(f, path, err);
            }
        }
        if (ok && shards.total_bytes != 0 && shards.total_bytes != f->weights.total)
            pl_model_note(&f->model,
                          "the index says %llu bytes of weights, the headers %llu: the headers count",
                          (unsigned long long)shards.total_bytes, (unsigned long long)f->weights.total);
    }
    pl_buf_free(&text);
    return ok;
}

static bool read_weights(struct pl_plan_files *f, const char *folder, struct pl_arena *arena,
                         struct pl_err *err) {
    static const char *const unread[] = { ".bin", ".pt", ".pth", ".ckpt", ".pkl" };
    struct pl_shards files;
    char path[PL_PLAN_PATH];
    bool found;
    bool indexed = read_index(f, folder, arena, &found, err);
    if (!indexed || found) return indexed;
    if (!list(folder, ".safetensors", arena, &files, err)) return false;
    bool usual = false; /* "consolidated" repeats what the other files hold */
    for (size_t i = 0; i < files.count; i++) usual |= strncmp(files.names[i], "consolidated", 12) != 0;
    for (size_t i = 0; i < files.count; i++) {
        if (usual && strncmp(files.names[i], "consolidated", 12) == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, files.names[i]);
        if (!add_safetensors(f, path, err)) return false;
    }
    for (size_t t = 0; f->weights.files == 0 && t < sizeof unread / sizeof *unread; t++) {
        if (!list(folder, unread[t], arena, &files, err)) return false;
        for (size_t i = 0; i < files.count; i++) {
            struct stat st;
            snprintf(path, sizeof path, "%s/%s", folder, files.names[i]);
            if (ends(files.names[i], "training_args.bin") || stat(path, &st) == -1 || !S_ISREG(st.st_mode))
                continue;
            pl_weights_add_file(&f->weights, (uint64_t)st.st_size);
        }
    }
    return f->weights.files != 0 || pl_weights_from_model(&f->weights, &f->model, err);
}

static bool read_config(struct pl_plan_files *f, const char *folder, const char *path, struct pl_arena *arena,
                        struct pl_err *err) {
    struct pl_buf text;
    char more[PL_PLAN_PATH];
    struct pl_err ignored = { 0 };
    pl_buf_init(&text, 0);
    bool ok = read_small(path, &text, err);
    if (ok && text.len == 0) {
        PL_FAIL(err, PL_E_CONFIG, "%s is not there or empty", path);
        ok = pl_err_hint(
            err, "a plan needs the model's config.json; its weights alone do not say how many heads keep KV");
    }
    if (ok && !(ok = pl_model_read_config(text.data, text.len, arena, &f->model, err)))
        pl_err_wrap(err, "%s", path);
    static const char *const others[] = { "generation_config.json", "hf_quant_config.json",
                                          "quantize_config.json" };
    for (size_t i = 0; ok && folder != NULL && i < sizeof others / sizeof *others; i++) {
        text.len = 0;
        snprintf(more, sizeof more, "%s/%s", folder, others[i]);
        if (!read_small(more, &text, &ignored) || text.len == 0) continue;
        if (i == 0)
            pl_model_read_generation(&f->model, text.data, text.len);
        else
            pl_model_read_quant(&f->model, text.data, text.len);
    }
    pl_buf_free(&text);
    return ok;
}

static bool read_gguf(struct pl_plan_files *f, const char *path, struct pl_arena *arena, struct pl_err *err) {
    char part[PL_PLAN_PATH];
    unsigned at, of;
    const char *dash = strstr(path, "-00001-of-");
    f->gguf = true;
    if (!add_gguf(f, path, true, arena, err)) return false;
    if (dash == NULL || sscanf(dash, "-%5u-of-%5u.gguf", &at, &of) != 2) return true;
    for (at = 2; at <= of; at++) {
        snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", (int)(dash - path), path, at, of);
        if (!add_gguf(f, part, false, arena, err)) return false;
    }
    return true;
}

static bool read_folder(struct pl_plan_files *f, const char *folder, struct pl_arena *arena,
                        struct pl_err *err) {
    char path[PL_PLAN_PATH];
    struct pl_shards gguf;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (access(path, F_OK) == 0)
        return read_config(f, folder, path, arena, err) && read_weights(f, folder, arena, err);
    if (!list(folder, ".gguf", arena, &gguf, err)) return false;
    size_t wholes = 0, pick = 0;
    for (size_t i = 0; i < gguf.count; i++) {
        bool later = strstr(gguf.names[i], "-of-") != NULL && strstr(gguf.names[i], "-00001-of-") == NULL;
        if (later || strncmp(gguf.names[i], "mmproj", 6) == 0) continue;
        pick = i;
        wholes++;
    }
    if (wholes > 1) {
        PL_FAIL(err, PL_E_USAGE, "%s holds %zu GGUF models", folder, wholes);
        return pl_err_hint(err, "name one: %s/%.80s", folder, gguf.names[pick]);
    }
    if (wholes == 0) {
        PL_FAIL(err, PL_E_CONFIG, "%s has neither config.json nor a GGUF file", folder);
        return pl_err_hint(err, "give the folder that holds the model's config.json");
    }
    snprintf(path, sizeof path, "%s/%s", folder, gguf.names[pick]);
    f->target = pl_arena_strndup(arena, path, strlen(path));
    return f->target != NULL ? read_gguf(f, path, arena, err)
                             : PL_FAIL(err, PL_E_NOMEM, "no memory for %s", path);
}

static bool read_one_safetensors(struct pl_plan_files *f, const char *path, const char *folder,
                                 struct pl_arena *arena, struct pl_err *err) {
    char config[PL_PLAN_PATH];
    snprintf(config, sizeof config, "%s/config.json", folder);
    if (!add_safetensors(f, path, err)) return false;
    struct pl_weights mine = f->weights;
    if (!read_config(f, folder, config, arena, err)) return false;
    f->weights = mine;
    return true;
}

bool pl_plan_read_path(struct pl_plan_files *f, const char *path, struct pl_arena *arena,
                       struct pl_err *err) {
    struct stat st;
    if (stat(path, &st) == -1) return PL_FAIL_SYS(err, errno, "open %s", path);
    f->target = path;
    if (S_ISDIR(st.st_mode)) return read_folder(f, path, arena, err);
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? pl_arena_strndup(arena, path, slash > path ? (size_t)(slash - path) : 1)
                                 : pl_arena_strndup(arena, ".", 1);
    const char *name = slash != NULL ? slash + 1 : path;
    if (folder == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for %s", path);
    if (ends(name, ".gguf")) return read_gguf(f, path, arena, err);
    if (ends(name, ".safetensors"))
        return f->target = folder, read_one_safetensors(f, path, folder, arena, err);
    if (strcmp(name, "config.json") == 0) return f->target = folder, read_folder(f, folder, arena, err);
    if (ends(name, ".json"))
        return read_config(f, NULL, path, arena, err) && pl_weights_from_model(&f->weights, &f->model, err);
    PL_FAIL(err, PL_E_USAGE, "%s: its name says nothing that is understood", path);
    return pl_err_hint(err, "a folder, config.json, .gguf or .safetensors is read");
}
