#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/tree.h"
#include "cli/paths.h"
#include "cli/soak.h"

enum {
    LOOK_MS = 50,
    START_MS = 15 * 60 * 1000,
    STOP_MS = 60000,
    WORDS = 128,
    TAIL_BYTES = 2000,
    NO_NAMESPACE = 119
};

volatile sig_atomic_t pl_soak_signal;

static void nap(long ms) {
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

json_t *pl_soak_ask(struct pl_soak_place *p, const char *target, struct pl_err *err) {
    return pl_client_document(&p->admin, target, err);
}

/* --- a server of our own */

struct words {
    const char *at[WORDS];
    size_t count;
};

static void add(struct words *w, const char *word) {
    if (w->count < WORDS - 1) w->at[w->count++] = word;
    w->at[w->count] = NULL;
}

static void add_pair(struct words *w, const char *flag, const char *value) {
    add(w, flag);
    add(w, value);
}

/* KEY=VALUE: a setting of the configuration, or, where KEY is in capitals, a variable of the environment. */
static bool is_variable(const char *with) {
    size_t n = strcspn(with, "=");
    return n > 0 && strspn(with, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

/* What was given for `serve` goes to it as it was typed. */
static void add_keys(struct words *w, const struct pl_soak_wish *wish) {
    const struct pl_args *a = &wish->cli->args;
    for (size_t i = 0; i < a->key_count; i++) {
        add(w, a->keys[i].place);
        if (strcmp(a->keys[i].place, "--reload") != 0) add(w, a->keys[i].text);
    }
    if (a->config != NULL) add_pair(w, "--config", a->config);
    if (a->name != NULL) add_pair(w, "--name", a->name);
}

/* --- no network: a namespace of its own, in which only loopback is up */

static bool write_text(const char *path, const char *text) {
    PL_AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd != -1 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool leave_network(void) {
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWNET) == -1) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == -1) return false;
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        if (!write_text("/proc/self/uid_map", map)) return false;
        write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        write_text("/proc/self/gid_map", map);
    }
    struct ifreq lo = { .ifr_name = "lo" };
    PL_AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd == -1 || ioctl(fd, SIOCGIFFLAGS, &lo) == -1) return false;
    lo.ifr_flags |= IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
}

static _Noreturn void become(const struct words *w, const struct pl_soak_wish *wish, const char *hosts,
                             int log) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setpgid(0, 0); /* the terminal's Ctrl-C is ours: we stop it in order */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0), dup2(log, 1), dup2(log, 2);
    if (wish->offline) {
        setenv("PLIMSOLL_HOSTS_FILE", hosts, 1);
        if (!leave_network()) _exit(NO_NAMESPACE);
    }
    if (wish->trace_host) setenv("PYTHONTRACEMALLOC", "1", 1);
    for (const char *const *v = wish->with; v != NULL && *v != NULL; v++) {
        char name[128];
        if (!is_variable(*v)) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*v, "="), *v);
        setenv(name, *v + strcspn(*v, "=") + 1, 1);
    }
    execv(w->at[0], (char *const *)(uintptr_t)w->at);
    _exit(127);
}

static bool spawn(const struct pl_soak_wish *wish, struct pl_soak_place *p, struct pl_err *err) {
    static char self[PL_PATH_BYTES], run[128], state[128], log[128], data[128], hosts[128];
    struct words w = { .count = 0 };
    struct pl_arena *arena = wish->cli->arena;
    if (!pl_path_program(self, err)) return false;
    snprintf(run, sizeof run, "%s/run", p->folder);
    snprintf(state, sizeof state, "%s/state", p->folder);
    snprintf(log, sizeof log, "%s/log", p->folder);
    snprintf(data, sizeof data, "unix:%s/data", p->folder);
    snprintf(hosts, sizeof hosts, "%s/hosts", p->folder);
    PL_AUTO_FD int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    if (fd == -1) return PL_FAIL_SYS(err, errno, "make %s", log);
    add(&w, self);
    if (wish->gpu != NULL) {
        add_pair(&w, "drydock", "-q");
        add_pair(&w, "--gpu", wish->gpu);
        add(&w, "--");
        add(&w, self);
    }
    add_pair(&w, "serve", wish->target);
    add_pair(&w, "--run_dir", run);
    add_pair(&w, "--state_dir", state);
    add_pair(&w, "--record.path", "memory");
    add_pair(&w, "--admin", "none");
    add_pair(&w, "--listen", data);
    add_pair(&w, "--logs.access", "off");
    add_pair(&w, "--memory.sync", "always");
    add_pair(&w, "--mode", "observe"); /* nothing is replaced or refused while it is judged */
    add_keys(&w, wish);
    for (const char *const *v = wish->with; v != NULL && *v != NULL; v++) {
        if (is_variable(*v)) continue;
        struct pl_buf flag;
        pl_buf_init(&flag, 0);
        pl_buf_addf(&flag, "--%s", *v);
        add(&w, pl_arena_strndup(arena, flag.data, flag.len));
        pl_buf_free(&flag);
    }
    fflush(NULL);
    p->child = fork();
    if (p->child == 0) become(&w, wish, hosts, fd);
    return p->child > 0 || PL_FAIL_SYS(err, errno, "fork");
}

/* The last thing that it said, for the message. */
static void last_words(const struct pl_soak_place *p, struct pl_err *err) {
    char path[128], text[TAIL_BYTES + 1], *line = text;
    snprintf(path, sizeof path, "%s/log", p->folder);
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd != -1 ? lseek(fd, 0, SEEK_END) : 0;
    ssize_t n = fd != -1 ? pread(fd, text, TAIL_BYTES, size > TAIL_BYTES ? size - TAIL_BYTES : 0) : 0;
    if (n <= 0) return;
    text[n] = '\0';
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = '\0';
    for (char *s = text; (s = strchr(s, '\n')) != NULL;)
        if (*++s != ' ') line = s; /* what is indented belongs to the line above */
    if (strncmp(line, "plimsoll: ", 10) == 0) line += 10;
    /* why a start failed is said in an earlier line than the last one */
    char *cause = strstr(text, "last_line=");
    if (cause != NULL) {
        cause[strcspn(cause, "\n")] = '\0';
        line = cause;
    }
    for (char *s = line; *s != '\0'; s++)
        if ((unsigned char)*s < ' ') *s = ' ';
    pl_err_hint(err, "%.150s", line);
}

static bool ended(struct pl_soak_place *p, int *how) {
    if (p->child <= 0 || waitpid(p->child, how, WNOHANG) != p->child) return false;
    p->child = 0;
    return true;
}

/* A document of a server that may not be there yet. */
static json_t *try_ask(struct pl_soak_place *p, const char *target) {
    struct pl_err ignored = { 0 };
    return pl_soak_ask(p, target, &ignored);
}

/* Every worker is READY, or some service has given up: then *failed. */
static bool all_ready(const json_t *status, bool *failed) {
    const json_t *s, *w;
    size_t i, k;
    bool any = false;
    json_array_foreach(json_object_get(status, "services"), i, s) {
        const char *why = json_string_value(json_object_get(s, "why"));
        if (why != NULL && (strcmp(why, "failed") == 0 || strcmp(why, "backoff") == 0)) *failed = true;
        json_array_foreach(json_object_get(s, "workers"), k, w) {
            const char *state = json_string_value(json_object_get(w, "state"));
            if (state == NULL || strcmp(state, "ready") != 0) return false;
            any = true;
        }
        if (!json_is_true(json_object_get(s, "ready"))) return false;
    }
    return any;
}

static void death_of(const json_t *status, struct pl_err *err) {
    const json_t *s = json_array_get(json_object_get(status, "services"), 0);
    const char *sentence = json_string_value(json_object_get(json_object_get(s, "last_death"), "sentence"));
    if (sentence != NULL) pl_err_hint(err, "%.150s", sentence);
}

static bool wait_ready(struct pl_soak_place *p, struct pl_err *err) {
    uint64_t until = pl_now_us() / 1000 + START_MS;
    int how = 0;
    while (pl_now_us() / 1000 < until && pl_soak_signal == 0) {
        bool failed = false;
        json_t *status = try_ask(p, "/status");
        bool ready = status != NULL && all_ready(status, &failed);
        if (failed && !ready) {
            PL_FAIL(err, PL_E_WORKER, "the service does not start");
            last_words(p, err);
            death_of(status, err);
        }
        json_decref(status);
        if (ready) return true;
        if (failed) return false;
        if (ended(p, &how)) {
            if (WIFEXITED(how) && WEXITSTATUS(how) == NO_NAMESPACE) {
                PL_FAIL(err, PL_E_LIMIT, "no network namespace can be made here");
                return pl_err_hint(err, "run check where unshare -rn works: not every container allows it");
            }
            enum pl_code code = WIFEXITED(how) && WEXITSTATUS(how) == 3   ? PL_E_CONFIG
                                : WIFEXITED(how) && WEXITSTATUS(how) == 2 ? PL_E_USAGE
                                                                          : PL_E_SYS;
            PL_FAIL(err, code, "the server ended before it was ready");
            last_words(p, err);
            return false;
        }
        nap(LOOK_MS);
    }
    return PL_FAIL(err, PL_E_SYS, pl_soak_signal != 0 ? "interrupted" : "the service was not ready in time");
}

/* "127.0.0.1:3000" or "unix:/path". */
static bool dial_listener(struct pl_soak_place *p, const char *text) {
    char ip[64];
    const char *colon = strrchr(text, ':');
    if (strncmp(text, "unix:", 5) == 0) return pl_dial_to_path(&p->to, text + 5);
    if (colon == NULL || (size_t)(colon - text) >= sizeof ip) return false;
    snprintf(ip, sizeof ip, "%.*s", (int)(colon - text), text);
    if (ip[0] == '[') {
        memmove(ip, ip + 1, strlen(ip));
        ip[strcspn(ip, "]")] = '\0';
    }
    if (strcmp(ip, "0.0.0.0") == 0) snprintf(ip, sizeof ip, "127.0.0.1");
    if (strcmp(ip, "::") == 0) snprintf(ip, sizeof ip, "::1");
    return pl_dial_to_ip(&p->to, ip, (uint16_t)atoi(colon + 1));
}

/* Which service, which cards; `listen`: where it listens is taken from it, too. */
static bool learn(struct pl_soak_place *p, bool listen, struct pl_err *err) {
    json_t *status = pl_soak_ask(p, "/status", err);
    if (status == NULL) return false;
    const json_t *services = json_object_get(status, "services"), *s = json_array_get(services, 0);
    const json_t *gpu = json_array_get(json_object_get(status, "gpus"), 0);
    const char *name = json_string_value(json_object_get(s, "name"));
    const char *at = json_string_value(json_array_get(json_object_get(status, "listen"), 0));
    const char *card = json_string_value(json_object_get(gpu, "name"));
    bool ok = name != NULL || PL_FAIL(err, PL_E_SYS, "the server has no service");
    snprintf(p->service, sizeof p->service, "%s", name != NULL ? name : "");
    snprintf(p->gpu_name, sizeof p->gpu_name, "%s", card != NULL ? card : "");
    p->gpu_bytes = (uint64_t)json_integer_value(json_object_get(gpu, "total_bytes"));
    p->dry_run = json_is_true(json_object_get(status, "dry_run"));
    if (ok && listen) {
        snprintf(p->host, sizeof p->host, "%s",
                 at != NULL && strncmp(at, "unix:", 5) != 0 ? at : "localhost");
        ok = (at != NULL && dial_listener(p, at)) ||
             PL_FAIL(err, PL_E_SYS, "the server does not tell where it listens");
    }
    json_decref(status);
    return ok;
}

static bool open_own(const struct pl_soak_wish *w, struct pl_soak_place *p, struct pl_err *err) {
    const char *parent = getenv("TMPDIR");
    /* a socket's path has 107 bytes */
    snprintf(p->folder, sizeof p->folder, "%s/plimsoll-soak-XXXXXX",
             parent != NULL && parent[0] == '/' && strlen(parent) < 36 ? parent : "/tmp");
    if (mkdtemp(p->folder) == NULL) {
        int error = errno;
        p->folder[0] = '\0';
        return PL_FAIL_SYS(err, error, "make a folder in /tmp");
    }
    snprintf(p->admin.where, sizeof p->admin.where, "%s/run/admin.sock", p->folder);
    p->has_admin = true;
    return spawn(w, p, err) && wait_ready(p, err) && learn(p, true, err);
}

/* --- a server of somebody else */

/* http://HOST:PORT/BASE */
static bool read_url(const char *url, struct pl_soak_place *p, char port[16], struct pl_err *err) {
    if (strncmp(url, "https://", 8) == 0) {
        PL_FAIL(err, PL_E_USAGE, "soak speaks plain HTTP");
        return pl_err_hint(err, "name the server behind the TLS: http://127.0.0.1:3000");
    }
    const char *at = url + 7, *end = at + strcspn(at, "/");
    const char *colon = memrchr(at, ':', (size_t)(end - at));
    if ((size_t)(end - at) >= sizeof p->host || end == at || strlen(end) >= sizeof p->base)
        return PL_FAIL(err, PL_E_USAGE, "%.100s: no such URL", url);
    snprintf(p->host, sizeof p->host, "%.*s", (int)(end - at), at);
    snprintf(p->base, sizeof p->base, "%s", strcmp(end, "/") == 0 ? "" : end);
    snprintf(port, 16, "%.*s", colon != NULL ? (int)(end - colon - 1) : 2, colon != NULL ? colon + 1 : "80");
    return true;
}

static bool resolve(struct pl_soak_place *p, const char *port, struct pl_err *err) {
    char name[200];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    const char *colon = strrchr(p->host, ':');
    snprintf(name, sizeof name, "%.*s", colon != NULL ? (int)(colon - p->host) : (int)strlen(p->host),
             p->host);
    if (name[0] == '[') {
        memmove(name, name + 1, strlen(name));
        name[strcspn(name, "]")] = '\0';
    }
    int why = getaddrinfo(name, port, &hints, &found);
    if (why != 0) return PL_FAIL(err, PL_E_SYS, "%s: %s", p->host, gai_strerror(why));
    bool ok = found->ai_addrlen <= sizeof p->to.at;
    if (ok) {
        memcpy(&p->to.at, found->ai_addr, found->ai_addrlen);
        p->to.len = found->ai_addrlen;
    }
    freeaddrinfo(found);
    return ok || PL_FAIL(err, PL_E_SYS, "%s: no address", p->host);
}

bool pl_soak_dial_url(const char *url, struct pl_soak_place *p, char port[16], struct pl_err *err) {
    return read_url(url, p, port, err) && resolve(p, port, err);
}

static bool open_url(const struct pl_soak_wish *w, struct pl_soak_place *p, struct pl_err *err) {
    char port[16];
    struct pl_err none = { 0 };
    if (!pl_soak_dial_url(w->target, p, port, err)) return false;
    if (w->pid > 0 || w->metrics != NULL) {
        snprintf(p->service, sizeof p->service, "%.60s", p->host);
        return true;
    }
    bool named = w->cli->args.admin != NULL || getenv("PLIMSOLL_ADMIN") != NULL;
    if (pl_client_find(w->cli, &p->admin, &none)) {
        p->has_admin = true;
        json_t *status = pl_soak_ask(p, "/status", &none);
        const char *at = json_string_value(json_array_get(json_object_get(status, "listen"), 0));
        const char *colon = at != NULL ? strrchr(at, ':') : NULL;
        bool same = named || (colon != NULL && strcmp(colon + 1, port) == 0);
        json_decref(status);
        if (same) return learn(p, false, err);
    }
    p->has_admin = false;
    PL_FAIL(err, PL_E_USAGE, "nobody tells the memory of %s", p->host);
    return pl_err_hint(err, "--pid of the server, --metrics URL, or --admin of the Plimsoll in front of it");
}

bool pl_soak_open(const struct pl_soak_wish *w, struct pl_soak_place *p, struct pl_err *err) {
    memset(p, 0, sizeof *p);
    bool url = strncmp(w->target, "http://", 7) == 0 || strncmp(w->target, "https://", 8) == 0;
    if (url ? open_url(w, p, err) : open_own(w, p, err)) return true;
    pl_soak_close(p);
    return false;
}

void pl_soak_hosts(const struct pl_soak_place *p, char *out, size_t room) {
    char path[128], line[256];
    size_t at = 0;
    snprintf(path, sizeof path, "%s/hosts", p->folder);
    out[0] = '\0';
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && at + 1 < room) {
        line[strcspn(line, "\n")] = '\0';
        for (char *s = line; *s != '\0'; s++)
            if ((unsigned char)*s <= ' ' || *s == 0x7f) *s = '?';
        at += (size_t)snprintf(out + at, room - at, "%s%s", at > 0 ? ", " : "", line);
    }
}

void pl_soak_close(struct pl_soak_place *p) {
    int how;
    if (p->folder[0] != '\0') pl_soak_hosts(p, p->hosts, sizeof p->hosts);
    if (p->child > 0) {
        uint64_t until = pl_now_us() / 1000 + STOP_MS;
        kill(p->child, SIGTERM);
        while (!ended(p, &how) && pl_now_us() / 1000 < until) nap(LOOK_MS / 5);
        if (p->child > 0) {
            kill(-p->child, SIGKILL);
            waitpid(p->child, &how, 0);
            p->child = 0;
        }
    }
    char *name = strrchr(p->folder, '/');
    if (name == NULL) return;
    *name++ = '\0';
    PL_AUTO_FD int parent = open(p->folder[0] != '\0' ? p->folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent != -1) pl_tree_remove(parent, name);
    p->folder[0] = '\0';
}
