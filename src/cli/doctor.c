/* doctor.c - `plimsoll doctor`: what serving here would meet, one line each, with the remedy. Nothing is
 * started but the interpreter, and nothing is left. */
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/accept.h"
#include "cli/bound.h"
#include "cli/child.h"
#include "cli/door.h"
#include "cli/drop.h"
#include "cli/paths.h"
#include "cli/verbs.h"
#include "watch/host.h"
#include "watch/nvml.h"

enum {
    PYTHON_LIMIT_MS = 60000,
    DRIVER_LIMIT_MS = 10000,
    ANSWER_BYTES = 8192,
    FEW_DESCRIPTORS = 4096,
    EXPIRES_SOON_S = 14 * 24 * 3600
};
enum state { OK, WARN, FAIL };

struct checkup {
    struct pl_cli *cli;
    json_t *checks; /* with --json */
    bool failed;
};

static void tell(struct checkup *u, enum state state, const char *name, const char *remedy, const char *fmt,
                 ...) __attribute__((format(printf, 5, 6)));
static void tell(struct checkup *u, enum state state, const char *name, const char *remedy, const char *fmt,
                 ...) {
    static const char *const words[] = { "ok", "warn", "fail" };
    char text[512];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    if (state == FAIL) u->failed = true;
    if (u->checks != NULL) {
        json_t *c = json_pack("{s:s,s:s,s:s}", "name", name, "state", words[state], "text", text);
        if (remedy != NULL && state != OK) json_object_set_new(c, "remedy", json_string(remedy));
        json_array_append_new(u->checks, c);
        return;
    }
    printf("%-4s %-12s %s\n", words[state], name, text);
    if (remedy != NULL && state != OK) printf("     %-12s -> %s\n", "", remedy);
}

/* --- the service's interpreter, asked in a process of its own; torch is imported there, and no CUDA context
 * is made */

static const char questions[] =
    "import importlib.metadata as m, importlib.util as u, json, sys, ctypes\n"
    "def version(name):\n"
    "    try: return m.version(name)\n"
    "    except m.PackageNotFoundError: return None\n"
    "out = {'python': sys.version.split()[0], 'bentoml': version('bentoml'), 'torch': version('torch'),\n"
    "       'vllm': version('vllm')}\n"
    "if out['torch']:\n"
    "    try:\n"
    "        import torch\n"
    "        out['cuda'] = torch.version.cuda\n"
    "        out['devices'] = torch.cuda.device_count()\n"
    "    except Exception as exc: out['torch_error'] = f'{type(exc).__name__}: {exc}'[:200]\n"
    "print(json.dumps(out))\n";

static json_t *ask_python(const char *python) {
    const char *words[] = { python, "-c", questions, NULL };
    const struct pl_child ask = { .argv = words, .limit_ms = PYTHON_LIMIT_MS };
    struct pl_buf text;
    pl_buf_init(&text, ANSWER_BYTES);
    json_t *doc = pl_child_ask(&ask, &text) == 0 ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    pl_buf_free(&text);
    return doc;
}

static void check_python(struct checkup *u, const struct pl_service_config *s) {
    struct pl_err err;
    char python[PL_PATH_BYTES];
    if (!pl_path_python(s != NULL ? s->python : NULL, python, &err)) {
        tell(u, FAIL, "python", err.hint, "%s", err.msg);
        return;
    }
    json_t *doc = ask_python(python);
    if (doc == NULL) {
        tell(u, FAIL, "python", "give --python PATH", "%s does not run as a Python interpreter", python);
        return;
    }
    const char *bentoml = json_string_value(json_object_get(doc, "bentoml"));
    const char *torch = json_string_value(json_object_get(doc, "torch"));
    const char *cuda = json_string_value(json_object_get(doc, "cuda"));
    const char *broken = json_string_value(json_object_get(doc, "torch_error"));
    tell(u, OK, "python", NULL, "%s (%s)", json_string_value(json_object_get(doc, "python")), python);
    if (bentoml == NULL)
        tell(u, FAIL, "bentoml", "pip install bentoml, or --python of the environment that has it",
             "not installed there");
    else if (strncmp(bentoml, "1.4.", 4) == 0)
        tell(u, OK, "bentoml", NULL, "%s", bentoml);
    else
        tell(u, WARN, "bentoml", "1.4 is what Plimsoll is tested with", "%s", bentoml);
    if (broken != NULL)
        tell(u, FAIL, "torch", "the service will fail in the same way", "%s does not import: %s", torch,
             broken);
    else if (torch == NULL)
        tell(u, OK, "torch", NULL, "not installed (needed by services that use it only)");
    else if (cuda == NULL)
        tell(u, OK, "torch", NULL, "%s, a build for the CPU", torch);
    else if (json_integer_value(json_object_get(doc, "devices")) == 0)
        tell(u, WARN, "torch", "look at the driver and at CUDA_VISIBLE_DEVICES",
             "%s for CUDA %s sees no device", torch, cuda);
    else
        tell(u, OK, "torch", NULL, "%s for CUDA %s, devices: %lld", torch, cuda,
             (long long)json_integer_value(json_object_get(doc, "devices")));
    json_decref(doc);
}

/* The driver, asked as watch asks it. In a child: a call that never returns must not take us with it, and one
 * that cannot even be killed is left behind. */
static uint32_t no_leader(void *ctx, uint32_t pid) {
    (void)ctx;
    (void)pid;
    return 0;
}

static _Noreturn void ask_driver(int fd) {
    static struct pl_watch_gpu gpus[PL_WATCH_GPUS];
    struct pl_watch_beat beat = { 0 };
    struct pl_watch_driver driver = { 0 };
    struct pl_nvml *n = pl_nvml_create(&beat, no_leader, NULL);
    if (n != NULL) pl_nvml_look(n, 1, &driver, gpus);
    bool ok = write(fd, &driver, sizeof driver) == sizeof driver;
    for (uint32_t i = 0; ok && i < driver.gpus; i++)
        ok = write(fd, &gpus[i], sizeof gpus[i]) == sizeof gpus[i];
    _exit(0);
}

static bool read_whole(int fd, void *out, size_t size) {
    for (size_t got = 0; got < size;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        ssize_t n = poll(&p, 1, DRIVER_LIMIT_MS) == 1 ? read(fd, (char *)out + got, size - got) : -1;
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

static void tell_gpu(struct checkup *u, const struct pl_watch_gpu *g) {
    if (g->total == PL_WATCH_UNKNOWN)
        tell(u, FAIL, "gpu", "look at dmesg for its Xid, reset it or restart the node",
             "GPU %u %s does not answer (NVML error %d)", g->index, g->name, g->error);
    else
        tell(u, OK, "gpu", NULL, "GPU %u: %s, %.2f GiB, %.2f GiB free, %s", g->index, g->name,
             (double)g->total / (1 << 30), (double)g->free / (1 << 30), g->uuid);
}

static void tell_driver(struct checkup *u, const struct pl_watch_driver *d, int fd) {
    struct pl_watch_gpu g;
    switch (d->state) {
    case PL_WATCH_DRIVER_NONE:
        tell(u, OK, "gpu", NULL, "no NVIDIA driver here: services run on the CPU");
        return;
    case PL_WATCH_DRIVER_RUNS:
        tell(u, OK, "nvml", NULL, "driver %s, %u devices", d->version, d->gpus);
        for (uint32_t i = 0; i < d->gpus && read_whole(fd, &g, sizeof g); i++) tell_gpu(u, &g);
        return;
    default:
        tell(u, FAIL, "nvml", "nvidia-smi says more", "NVML is there and does not start: %s", d->text);
    }
}

static void check_gpu(struct checkup *u) {
    struct pl_watch_driver driver;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1) return;
    pid_t pid = fork();
    if (pid == 0) ask_driver(ends[1]);
    close(ends[1]);
    if (pid != -1 && read_whole(ends[0], &driver, sizeof driver))
        tell_driver(u, &driver, ends[0]);
    else if (pid != -1)
        tell(u, FAIL, "nvml", "the driver is stuck: look at dmesg, restart the node", "NVML does not answer");
    if (pid != -1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
    }
    close(ends[0]);
}

/* --- the machine */

static bool read_line(const char *path, char *out, size_t room) {
    PL_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL || fgets(out, (int)room, f) == NULL) return false;
    out[strcspn(out, "\n")] = '\0';
    return true;
}

static void check_cgroup(struct checkup *u) {
    static const struct pl_host_roots machine = { .proc = "/proc", .cgroup = "/sys/fs/cgroup" };
    struct pl_watch_host h = { .cgroup = 0 };
    char limit[48] = "no memory limit";
    pl_host_group(&machine, "self", &h);
    if (h.limit != PL_WATCH_UNKNOWN)
        snprintf(limit, sizeof limit, "limit %.2f GiB", (double)h.limit / (1 << 30));
    if (h.cgroup == 0)
        tell(u, WARN, "cgroup",
             "mount /sys/fs/cgroup; until then a death by the kernel's OOM killer looks like any other",
             "no memory group is visible");
    else if (h.events_oom_kill == PL_WATCH_UNKNOWN)
        tell(u, WARN, "cgroup",
             "a newer kernel or cgroup v2 does; until then a death by it looks like any other",
             "v%u, %s; the kernel does not count what its OOM killer ends", h.cgroup, limit);
    else
        tell(u, OK, "cgroup", NULL, "v%u, %s", h.cgroup, limit);
}

static void check_limits(struct checkup *u) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    if (r.rlim_max < FEW_DESCRIPTORS)
        tell(u, WARN, "limits", "raise it: ulimit -n, LimitNOFILE=, or the container runtime's setting",
             "%llu descriptors at most: about %llu connections", (unsigned long long)r.rlim_max,
             (unsigned long long)r.rlim_max / 3);
    else
        tell(u, OK, "limits", NULL, "%llu descriptors", (unsigned long long)r.rlim_max);
}

static void check_folders(struct checkup *u, const struct pl_config *c) {
    struct pl_err err;
    char run[PL_PATH_BYTES], state[PL_PATH_BYTES], lock[PL_PATH_BYTES + 8], pid[32];
    if (!pl_path_run_dir(c, true, run, &err)) {
        tell(u, FAIL, "run_dir", err.hint, "%s", err.msg);
    } else {
        snprintf(lock, sizeof lock, "%s/lock", run);
        if (read_line(lock, pid, sizeof pid))
            tell(u, OK, "run_dir", NULL, "%s (a server runs there, pid %s)", run, pid);
        else
            tell(u, OK, "run_dir", NULL, "%s", run);
    }
    pl_path_state_dir(c, state);
    if (state[0] == '\0')
        tell(u, WARN, "state_dir", "set state_dir to a folder that can be written",
             "none: samples cannot be kept");
    else
        tell(u, OK, "state_dir", NULL, "%s", state);
}

static void check_ports(struct checkup *u, const struct pl_config *c) {
    struct pl_err err;
    for (size_t i = 0; i <= c->listen.count; i++) {
        const struct pl_address *a = i < c->listen.count ? &c->listen.at[i] : &c->admin;
        if (a->kind != PL_ADDRESS_TCP) continue;
        int fd = pl_bound_open(a, &err);
        if (fd == -1)
            tell(u, FAIL, i < c->listen.count ? "listen" : "admin", err.hint, "%s", err.msg);
        else
            tell(u, OK, i < c->listen.count ? "listen" : "admin", NULL, "%s is free", a->text);
        if (fd != -1) close(fd);
    }
}

/* What `serve` would read for the door; only said where there is something. */
static void check_door(struct checkup *u, struct pl_config *c) {
    struct pl_err err = { 0 };
    struct pl_door d = { 0 };
    char until[PL_TIME_TEXT];
    if (!pl_drop_check(c, &err) || !pl_door_collect(c, &d, &err)) {
        tell(u, FAIL, "door", err.hint[0] != '\0' ? err.hint : NULL, "%s", err.msg);
        return;
    }
    if (d.keys != NULL) tell(u, OK, "api_keys", NULL, "%zu", d.keys->row_count);
    if (d.tls != NULL) {
        int64_t until_s = pl_tls_not_after_s(d.tls);
        bool soon = until_s - (int64_t)time(NULL) < EXPIRES_SOON_S;
        tell(u, soon ? WARN : OK, "tls", "put a new certificate there: it is taken without a restart",
             "certificates hold until %s", pl_time_rfc3339((uint64_t)until_s * 1000, until));
    }
    pl_door_free(&d);
}

/* Counts the libraries that were loaded from below our own prefix. */
struct brought {
    const char *prefix;
    unsigned count;
};
static int count_brought(struct dl_phdr_info *info, size_t size, void *ctx) {
    struct brought *b = ctx;
    char path[PATH_MAX];
    (void)size;
    if (info->dlpi_name[0] == '/' && realpath(info->dlpi_name, path) != NULL)
        b->count += strncmp(path, b->prefix, strlen(b->prefix)) == 0;
    return 0;
}

/* Which files this is made of: a wheel's, a package's or a build's. */
static void check_parts(struct checkup *u) {
    struct pl_err err;
    char path[PL_PATH_BYTES], prefix[PL_PATH_BYTES], own[PL_PATH_BYTES + 16];
    tell(u, OK, "plimsoll", NULL, "%s, llhttp %s", PL_VERSION, PL_LLHTTP_VERSION);
    if (!pl_path_program(prefix, &err) || !pl_path_keeper(path, &err) || !pl_path_watch(path, &err) ||
        !pl_path_python_side(path, &err) || !pl_path_drydock(path, &err)) {
        tell(u, FAIL, "parts", err.hint, "%s", err.msg);
        return;
    }
    for (int i = 0; i < 2; i++) *strrchr(prefix, '/') = '\0'; /* PREFIX/bin/plimsoll: looked at just now */
    snprintf(own, sizeof own, "%s/lib/plimsoll/", prefix);
    struct brought b = { .prefix = own };
    dl_iterate_phdr(count_brought, &b);
    tell(u, OK, "parts", NULL, "%s: keeper, watch, python, drydock%s; libraries %s",
         prefix[0] != '\0' ? prefix : "/", pl_path_llama(path, &err) ? ", llama" : "",
         b.count > 0 ? "of its own" : "of the system");
}

int pl_verb_doctor(struct pl_cli *cli) {
    struct checkup u = { .cli = cli };
    struct pl_err err = { 0 };
    const char *target = cli->args.words.count > 0 ? cli->args.words.at[0] : NULL;
    if (cli->args.json) u.checks = json_array();
    check_parts(&u);
    struct pl_config *c = pl_accept_for_doctor(&cli->args, target, &err);
    if (c == NULL) {
        tell(&u, FAIL, "config", err.hint, "%s", err.msg);
    } else {
        tell(&u, OK, "config", NULL, "%s", c->file != NULL ? c->file : "no file, all defaults");
        for (size_t i = 0; i < c->warnings.count; i++)
            tell(&u, WARN, "config", NULL, "%s", c->warnings.at[i]);
        check_python(&u, c->service_count > 0 ? &c->services[0] : NULL);
    }
    check_gpu(&u);
    check_cgroup(&u);
    check_limits(&u);
    if (c != NULL) {
        check_door(&u, c);
        check_folders(&u, c);
        check_ports(&u, c);
    }
    if (u.checks != NULL) {
        json_t *doc =
            json_pack("{s:i,s:s,s:b,s:o}", "v", 1, "kind", "doctor", "ok", !u.failed, "checks", u.checks);
        char *text = json_dumps(doc, JSON_COMPACT);
        printf("%s\n", text != NULL ? text : "{}");
        free(text);
        json_decref(doc);
    }
    pl_config_destroy(c);
    return u.failed ? 1 : 0;
}
