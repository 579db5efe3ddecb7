/* drydock.c - `plimsoll drydock`: runs a program over stand-in cards and tells what it used of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/drydock_report.h"
#include "cli/drydock_stubs.h"
#include "cli/out.h"
#include "cli/verbs.h"

enum { CANNOT_RUN = 126, NOT_FOUND = 127 };
#define TABLES "plimsoll-drydock-"

static pid_t child_pid;

/* One run: what was asked for, and what is made for it. */
struct dock {
    struct pl_cli *cli;
    struct dd_plan plan;
    struct pl_torch torch;
    struct dd_table *table;
    char table_name[64];
    char program[PL_PATH_BYTES]; /* of the command, absolute */
    char folder[PL_PATH_BYTES];  /* of the written libraries */
    struct pl_buf preload;
};

static const char *flag(const struct dock *d, const char *name) { return pl_args_value(&d->cli->args, name); }

/* --- what was asked for */

static bool bytes_flag(const struct dock *d, const char *name, uint64_t *out, struct pl_err *err) {
    char why[DD_ERROR];
    const char *text = flag(d, name);
    return text == NULL || dd_bytes_parse(text, out, why) || PL_FAIL(err, PL_E_USAGE, "--%s: %s", name, why);
}

/* A duration, into microseconds as the stand-ins take it. */
static bool lag_flag(const struct dock *d, char out[24], struct pl_err *err) {
    static const struct {
        const char *unit;
        double us;
    } units[] = { { "us", 1 }, { "ms", 1e3 }, { "s", 1e6 }, { "m", 6e7 }, { "h", 3.6e9 } };
    const char *text = flag(d, "lag");
    char *end;
    out[0] = '\0';
    if (text == NULL) return true;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && value >= 0 && i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) != 0 || value * units[i].us > 6.048e11) continue;
        snprintf(out, 24, "%.0f", value * units[i].us);
        return true;
    }
    return PL_FAIL(err, PL_E_USAGE, "--lag: '%.40s' is not a duration up to 7 days: 50ms, 2s", text);
}

static bool read_plan(struct dock *d, struct pl_err *err) {
    char why[DD_ERROR];
    uint64_t count = 0;
    struct dd_gpu gpu;
    d->plan =
        (struct dd_plan){ .gpu = flag(d, "gpu"), .context = (uint64_t)400 << 20, .faults = flag(d, "fault") };
    if (d->plan.gpu == NULL) d->plan.gpu = "a100-40";
    if (!dd_gpu_parse(d->plan.gpu, &gpu, why)) return PL_FAIL(err, PL_E_USAGE, "--gpu: %s", why);
    if (!pl_args_count(&d->cli->args, "count", 1, DD_CARDS, &count, err) ||
        !bytes_flag(d, "context", &d->plan.context, err) || !bytes_flag(d, "cap", &d->plan.cap, err) ||
        !pl_args_count(&d->cli->args, "fail", 1, UINT64_MAX, &d->plan.fail_at, err))
        return false;
    d->plan.count = (int)count;
    return true;
}

/* The faults name cards that there will be: tried on a table of our own, before anything is made. */
static bool check_faults(const struct dock *d, struct pl_err *err) {
    char why[DD_ERROR] = "no memory";
    struct dd_table *trial = calloc(1, sizeof *trial);
    bool sound = trial != NULL && dd_table_fill(trial, &d->plan, why);
    free(trial);
    return sound || PL_FAIL(err, PL_E_USAGE, "--fault: %s", why);
}

static int list_gpus(const struct pl_cli *cli) {
    size_t count;
    const struct dd_gpu *g = dd_gpu_known(&count);
    if (cli->args.json) printf("{\"v\":1,\"kind\":\"gpus\",\"gpus\":[");
    for (size_t i = 0; i < count; i++) {
        if (cli->args.json) {
            printf("%s{\"name\":\"%s\",\"product\":\"%s\",\"total_bytes\":%llu}", i > 0 ? "," : "", g[i].key,
                   g[i].product, (unsigned long long)g[i].total);
        } else {
            printf("%-15s  %-34s  %s\n", g[i].key, g[i].product, pl_size(g[i].total).text);
        }
    }
    if (cli->args.json) printf("]}\n");
    return 0;
}

/* --- what may stand in the way */

/* Under strict overcommit the kernel counts every card's addresses as if they were used. */
static bool check_host(const struct dock *d, struct pl_err *err) {
    struct rlimit limit;
    struct dd_gpu gpu;
    char mode = '0', why[DD_ERROR];
    PL_AUTO_FD int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd != -1 && read(fd, &mode, 1) == 1 && mode == '2') {
        PL_FAIL(err, PL_E_SYS,
                "this host counts every address as used (vm.overcommit_memory=2): a stand-in card would need "
                "real memory");
        return pl_err_hint(err, "sysctl vm.overcommit_memory=0, or run in a container or VM where it is so");
    }
    if (!dd_gpu_parse(d->plan.gpu, &gpu, why) || getrlimit(RLIMIT_AS, &limit) == -1 ||
        limit.rlim_cur == RLIM_INFINITY)
        return true;
    if (limit.rlim_cur / 3 >= gpu.total) return true;
    PL_FAIL(err, PL_E_SYS, "ulimit -v allows %s of addresses: too few for a card of %s",
            pl_size(limit.rlim_cur).text, pl_size(gpu.total).text);
    return pl_err_hint(err, "ulimit -v unlimited, or a smaller card: --gpu NAME:BYTES");
}

/* Tables of runs that were killed before they could remove them. */
static void sweep(void) {
    DIR *dir = opendir("/dev/shm");
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[300];
        struct stat st;
        if (strncmp(e->d_name, TABLES, strlen(TABLES)) != 0 ||
            strncmp(e->d_name, TABLES "uid-", strlen(TABLES "uid-")) == 0)
            continue;
        long owner = strtol(e->d_name + strlen(TABLES), NULL, 10);
        snprintf(path, sizeof path, "/dev/shm/%s", e->d_name);
        if (owner > 0 && lstat(path, &st) == 0 && st.st_uid == geteuid() && kill((pid_t)owner, 0) == -1 &&
            errno == ESRCH)
            unlink(path);
    }
    if (dir != NULL) closedir(dir);
}

/* --- the command */

/* 0, or the status that `env` gives: 127 not found, 126 not to be run. */
static int find_program(struct dock *d, struct pl_err *err) {
    struct stat st;
    const char *name = d->cli->args.rest.at[0];
    if (strchr(name, '/') == NULL) {
        if (pl_path_search(name, d->program)) return 0;
        PL_FAIL(err, PL_E_SYS, "%.100s: there is no such program on PATH", name);
        return NOT_FOUND;
    }
    snprintf(d->program, sizeof d->program, "%s", name);
    if (stat(name, &st) == -1) {
        PL_FAIL_SYS(err, errno, "%.100s", name);
        return errno == ENOENT || errno == ENOTDIR ? NOT_FOUND : CANNOT_RUN;
    }
    if (S_ISREG(st.st_mode) && access(name, X_OK) == 0) return 0;
    PL_FAIL(err, PL_E_SYS, "%.100s is not a program", name);
    return CANNOT_RUN;
}

static void set_if(const char *name, const char *value) {
    if (value != NULL && value[0] != '\0') setenv(name, value, 1);
}

static void prepend(const char *name, const char *value) {
    const char *old = getenv(name);
    struct pl_buf both;
    pl_buf_init(&both, 0);
    pl_buf_addf(&both, "%s%s%s", value, old != NULL && old[0] != '\0' ? ":" : "", old != NULL ? old : "");
    setenv(name, pl_buf_text(&both), 1);
    pl_buf_free(&both);
}

/* LD_PRELOAD, because the wheels of NVIDIA beside PyTorch win over LD_LIBRARY_PATH; that one too, for
 * programs that look for a library by name. */
static void set_environment(struct dock *d, const char *lag) {
    uint64_t workspace = 0;
    struct pl_err ignored;
    char number[24], folder[PL_PATH_BYTES];
    setenv("PLIMSOLL_DRYDOCK_SHM", d->table_name, 1);
    setenv("PLIMSOLL_DRYDOCK_GPU", d->plan.gpu, 1);
    set_if("PLIMSOLL_DRYDOCK_LAG_US", lag);
    if (bytes_flag(d, "workspace", &workspace, &ignored) && workspace > 0) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)workspace);
        setenv("PLIMSOLL_DRYDOCK_WORKSPACE", number, 1);
    }
    if (pl_args_has(&d->cli->args, "values")) setenv("PLIMSOLL_DRYDOCK_VALUES", "1", 1);
    if (pl_args_has(&d->cli->args, "trace")) setenv("PLIMSOLL_DRYDOCK_TRACE", "1", 1);
    if (flag(d, "record") != NULL && realpath(flag(d, "record"), folder) != NULL)
        setenv("PLIMSOLL_DRYDOCK_RECORD", folder, 1);
    prepend("LD_PRELOAD", pl_buf_text(&d->preload));
    prepend("LD_LIBRARY_PATH", d->folder);
}

static void pass_on(int sig) {
    if (child_pid > 0) kill(child_pid, sig);
}

/* The terminal sends its signals to both of us: the command decides, and we report. Others are passed on. */
static void watch_signals(void) {
    static const int passed[] = { SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };
    struct sigaction pass = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaction(passed[i], &pass, NULL);
}

static bool start(struct dock *d, const char *lag, struct pl_err *err) {
    const struct pl_strings *words = &d->cli->args.rest;
    char **argv = calloc(words->count + 1, sizeof *argv);
    if (argv == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for the command");
    for (size_t i = 0; i < words->count; i++)
        argv[i] = pl_arena_strndup(d->cli->arena, words->at[i], strlen(words->at[i]));
    fflush(NULL);
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old); /* no signal between the fork and the handlers */
    child_pid = fork();
    if (child_pid == 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        set_environment(d, lag);
        execv(d->program, argv);
        int error = errno;
        fprintf(stderr, "plimsoll: run %s: %s\n", d->program, strerror(error));
        _exit(error == ENOENT ? NOT_FOUND : CANNOT_RUN);
    }
    if (child_pid > 0) watch_signals();
    sigprocmask(SIG_SETMASK, &old, NULL);
    free(argv);
    return child_pid > 0 || PL_FAIL_SYS(err, errno, "fork");
}

/* --- the end */

static bool write_report(const struct dock *d, const struct pl_buf *json, struct pl_err *err) {
    const char *path = flag(d, "report");
    if (path == NULL) return true;
    return pl_out_file(path, json, err) || pl_err_wrap(err, "the report");
}

static void report(const struct dock *d, int status, double seconds) {
    struct pl_buf command, json, text;
    struct pl_err err = { 0 };
    const struct pl_strings *words = &d->cli->args.rest;
    pl_buf_init(&command, 4096);
    pl_buf_init(&json, 0);
    pl_buf_init(&text, 0);
    for (size_t i = 0; i < words->count; i++) pl_buf_addf(&command, "%s%s", i > 0 ? " " : "", words->at[i]);
    dd_table_reap(d->table);
    struct pl_drydock_run run = { d->table, pl_buf_text(&command), d->torch.version, d->plan.gpu, status,
                                  seconds };
    pl_drydock_json(&run, &json);
    pl_drydock_text(&run, &text);
    if (!write_report(d, &json, &err)) pl_cli_fail(d->cli, &err);
    if (d->cli->args.json)
        fputs(pl_buf_text(&json), stdout);
    else if (!d->cli->args.quiet)
        fputs(pl_buf_text(&text), stderr);
    fflush(stdout);
    pl_buf_free(&command);
    pl_buf_free(&json);
    pl_buf_free(&text);
}

static void remove_table(const struct dock *d) {
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s", d->table_name);
    unlink(path);
}

/* Waits for the command, reports, and ends as it ended. */
static int finish(struct dock *d, uint64_t began_ms) {
    int how = 0;
    while (waitpid(child_pid, &how, 0) == -1 && errno == EINTR) continue;
    child_pid = 0;
    int status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    report(d, status, (double)(pl_now_ms(&pl_clock_system) - began_ms) / 1000);
    remove_table(d);
    if (WIFSIGNALED(how)) {
        struct rlimit none = { 0, 0 }; /* its core is the command's, not ours */
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(how), SIG_DFL);
        raise(WTERMSIG(how));
    }
    return status;
}

static bool check_folders(const struct dock *d, struct pl_err *err) {
    const char *record = flag(d, "record");
    if (record == NULL || mkdir(record, 0755) == 0 || (errno == EEXIST && access(record, W_OK | X_OK) == 0))
        return true;
    return PL_FAIL_SYS(err, errno, "--record: make %s", record);
}

static bool prepare(struct dock *d, struct pl_err *err) {
    char share[PL_PATH_BYTES], why[DD_ERROR];
    const char *name = getenv("PLIMSOLL_DRYDOCK_SHM");
    if (!check_host(d, err) || !check_folders(d, err) || !pl_path_drydock(share, err)) return false;
    if (!pl_torch_find(&d->cli->args.rest, &d->torch, err)) return false;
    if (!pl_drydock_stubs(share, &d->torch, d->cli->arena, d->folder, &d->preload, err)) return false;
    sweep();
    if (name != NULL && name[0] != '\0')
        snprintf(d->table_name, sizeof d->table_name, "%s", name);
    else
        snprintf(d->table_name, sizeof d->table_name, TABLES "%d", (int)getpid());
    d->table = dd_table_make(d->table_name, &d->plan, why);
    return d->table != NULL || PL_FAIL(err, PL_E_SYS, "%s", why);
}

/* Without a command, inside a running dry dock: changes its faults. */
static int change_faults(struct dock *d) {
    struct pl_err err = { 0 };
    char why[DD_ERROR];
    if (flag(d, "fault") == NULL || getenv("PLIMSOLL_DRYDOCK_SHM") == NULL) {
        PL_FAIL(&err, PL_E_USAGE, "drydock wants a command behind --");
        pl_err_hint(&err, "plimsoll drydock --gpu a100-40 -- python serve.py");
    } else {
        struct dd_table *t = dd_table_open(why);
        if (t != NULL && dd_faults_parse(t, flag(d, "fault"), why)) return 0;
        PL_FAIL(&err, t != NULL ? PL_E_USAGE : PL_E_SYS, "%s%s", t != NULL ? "--fault: " : "", why);
    }
    return pl_cli_fail(d->cli, &err);
}

/* Everything between the command line and the command's end. */
static int run(struct dock *d) {
    struct pl_err err = { 0 };
    struct pl_cli *cli = d->cli;
    char lag[24];
    uint64_t workspace;
    if (!read_plan(d, &err) || !check_faults(d, &err) || !bytes_flag(d, "workspace", &workspace, &err) ||
        !lag_flag(d, lag, &err))
        return pl_cli_fail(cli, &err);
    int missing = find_program(d, &err);
    if (missing != 0) {
        pl_cli_fail(cli, &err);
        return missing;
    }
    if (!prepare(d, &err)) return pl_cli_fail(cli, &err);
    if (d->torch.named && d->torch.folder[0] == '\0' && !cli->args.quiet)
        fprintf(stderr,
                "plimsoll drydock: %s has no torch; programs that use CUDA or NVML directly see the stand-in "
                "cards\n",
                d->torch.python);
    uint64_t began_ms = pl_now_ms(&pl_clock_system);
    if (start(d, lag, &err)) return finish(d, began_ms);
    remove_table(d);
    return pl_cli_fail(cli, &err);
}

int pl_verb_drydock(struct pl_cli *cli) {
    struct dock d = { .cli = cli };
    if (pl_args_has(&cli->args, "list")) return list_gpus(cli);
    if (cli->args.rest.count == 0) return change_faults(&d);
    pl_buf_init(&d.preload, 0);
    int status = run(&d);
    pl_buf_free(&d.preload);
    return status;
}
