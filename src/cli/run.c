/* run.c - main: the gateway process. One way to start: HELLO, what is held, the accepted configuration, LIST,
 * adopt, act on the difference. One way to stop: unready, drain, workers in order, BYE. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/cleanup.h"
#include "cli/bound.h"
#include "cli/door.h"
#include "cli/dry_run.h"
#include "cli/fence.h"
#include "cli/helm.h"
#include "cli/keeps.h"
#include "cli/listening.h"
#include "cli/log_form.h"
#include "cli/manager.h"
#include "cli/paths.h"
#include "cli/renew.h"
#include "cli/verbs.h"
#include "cli/watchers.h"
#include "crew/hello.h"
#include "crew/last_life.h"
#include "crew/look.h"
#include "gateway/gateway.h"
#include "net/reserve.h"
#include "net/stalls.h"

enum { SPARE_FDS = 256, FDS_PER_WORKER = 2, MAX_ARGUMENTS = 1024, HEART_MS = 200, STREAM_LOOK_MS = 1000 };

struct run {
    struct pl_app app;
    struct pl_link link;
    struct pl_wire_welcome welcome;
    struct pl_wire_beat *beat;
    struct pl_held_list held;
    struct pl_timers *timers;
    struct pl_crew *crew;
    struct pl_gateway *gateway;
    struct pl_admin *admin;
    const char *run_dir, *state_dir;
    char python_side[PL_PATH_BYTES], cache_dir[PL_PATH_BYTES];
    char watch[PL_PATH_BYTES];
    char program[PL_PATH_BYTES]; /* "": not known */
    struct pl_user worker_user;
    char wanted[PL_LISTENING_TEXT]; /* the first address as the configuration names it */
    struct pl_crew_hooks gateway_hooks;
    uv_timer_t heart;
    uv_signal_t hangup;
    struct pl_timer stop_timer; /* drain_delay, then drain_timeout */
    bool candidate, taken;      /* started by an upgrade; and it has the helm */
    uint64_t other_main;        /* the main before us, which finishes its requests; 0: there is none */
    bool ready_told, draining, crew_stopping, empty;
    uint64_t failed_since_ms, drain_from_ms;
    int exit_status;
};
static struct run run;

static void beat(void) { atomic_fetch_add_explicit(&run.beat->beats, 1, memory_order_relaxed); }

/* --- the end */

/* In a container the last word is read from there: one sentence and the death's id. */
static void leave_termination_message(void) {
    PL_AUTO_FD int fd = open("/dev/termination-log", O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    struct pl_look_death d;
    for (size_t i = 0; fd != -1 && i < pl_crew_service_count(run.crew); i++) {
        const struct pl_service *s = pl_crew_service(run.crew, i);
        if (pl_look_last_death(s, &d))
            dprintf(fd, "%s: %s (%s, %s)\n", s->config->id, d.sentence, d.cause, d.id);
    }
}

static _Noreturn void end(int status) {
    struct pl_wire_message m;
    pl_admin_close(run.admin);
    pl_crew_close(run.crew);
    pl_keeps_close(&run.app, status);
    pl_log_destroy(run.app.log);
    pl_wire_init(&m, PL_WIRE_BYE, sizeof m.bye, 1);
    m.bye.status = (uint32_t)status;
    fcntl(run.link.fd, F_SETFL, 0);
    pl_wire_send(run.link.fd, &m);
    _exit(status);
}

static void bye(int status) {
    if (status != 0) leave_termination_message();
    pl_last_life_goodbye(run.crew, status);
    pl_log(run.app.log, PL_INFO, "main.stopped", F_INT("status", status));
    end(status);
}

/* Another main is at the helm, and the last of what was open here is over: no goodbye for the instance. */
static void on_left(size_t cut) {
    pl_log(run.app.log, PL_INFO, "main.left", F_INT("pid", getpid()), F_INT("cut", cut));
    end(0);
}

static void on_crew_stopped(void *ctx) {
    (void)ctx;
    bye(run.exit_status);
}

static void stop_crew(void) {
    if (run.crew_stopping) return;
    run.crew_stopping = true;
    pl_timer_stop(&run.stop_timer);
    pl_crew_stop(run.crew);
}

/* The workers may still answer requests of the main before us. */
static void on_empty(void *ctx) {
    (void)ctx;
    run.empty = true;
    if (run.other_main == 0) stop_crew();
}

static void on_other_left(void) {
    run.other_main = 0;
    pl_crew_other_main(run.crew, false);
    if (run.empty) stop_crew();
}

static void on_drain_timeout(struct pl_timer *t) {
    uint64_t drained = pl_now_ms(run.app.clock) - run.drain_from_ms;
    bool streams = pl_crew_streams(run.crew) > 0 || run.other_main != 0;
    if (run.app.config->drain_timeout_ms == PL_CFG_AUTO && streams && drained < PL_CREW_STREAM_DRAIN_MS) {
        pl_timer_start(run.timers, t, STREAM_LOOK_MS, on_drain_timeout);
        return;
    }
    pl_gateway_cut(run.gateway);
    stop_crew();
}

static int64_t drain_limit_ms(void) {
    const struct pl_config *c = run.app.config;
    int64_t longest = 0;
    if (c->drain_timeout_ms >= 0) return c->drain_timeout_ms;
    for (size_t i = 0; i < c->service_count; i++) {
        int64_t mine = c->services[i].traffic_timeout_ms + c->services[i].traffic_queue_max_wait_ms;
        if (mine > longest) longest = mine;
    }
    return longest;
}

static void begin_drain(struct pl_timer *t) {
    (void)t;
    run.app.stopping = true;
    run.drain_from_ms = pl_now_ms(run.app.clock);
    pl_log(run.app.log, PL_INFO, "drain.changed", F_BOOL("draining", true));
    pl_manager_draining();
    pl_timer_start(run.timers, &run.stop_timer, (uint64_t)drain_limit_ms(), on_drain_timeout);
    pl_gateway_drain(run.gateway, on_empty, NULL);
}

static void stop(const char *why, uint32_t deadline_ms, int status) {
    if (run.draining) return;
    run.draining = true;
    run.exit_status = status;
    pl_log(run.app.log, PL_INFO, "main.stopping", F_STR("signal", why), F_INT("deadline_ms", deadline_ms));
    if (run.app.config->drain_delay_ms > 0)
        pl_timer_start(run.timers, &run.stop_timer, (uint64_t)run.app.config->drain_delay_ms, begin_drain);
    else
        begin_drain(&run.stop_timer);
}

static void on_keeper_news(void *ctx, struct pl_wire_message *m) {
    (void)ctx;
    if (m->head.kind == PL_WIRE_MAIN_EXITED) on_other_left();
    pl_helm_news(m);
    if (m->head.kind != PL_WIRE_STOP) return;
    if (pl_helm_ours())
        stop("SIGTERM", m->stop.deadline_ms, 0);
    else
        pl_helm_hurry();
}

/* --- the heart: proof of life for the keeper, and the slow questions */

static void look_for_failure(uint64_t now) {
    const struct pl_config *c = run.app.config;
    size_t failed = 0, count = pl_crew_service_count(run.crew);
    for (size_t i = 0; i < count; i++) failed += pl_service_failed(pl_crew_service(run.crew, i));
    if (failed < count || run.draining) {
        run.failed_since_ms = 0;
        return;
    }
    if (run.failed_since_ms == 0) run.failed_since_ms = now;
    if (c->failed_exit_ms >= 0 && now - run.failed_since_ms >= (uint64_t)c->failed_exit_ms)
        stop("failed", 0, 6);
}

static void look_for_ready(uint64_t now) {
    struct pl_buf text;
    bool ready = pl_admin_ready(run.admin);
    if (!run.draining) pl_manager_ready(ready, pl_listening_data());
    if (run.ready_told || !ready) return;
    run.ready_told = true;
    pl_log(run.app.log, PL_INFO, "main.ready", F_INT("after_ms", now - run.app.started_ms));
    if (run.welcome.main_id > 1) return; /* a banner is for the first start */
    pl_buf_init(&text, 16384);
    pl_admin_banner(run.admin, &text);
    pl_log_text(run.app.log, pl_buf_text(&text));
    pl_buf_free(&text);
}

static void on_heart(uv_timer_t *t) {
    (void)t;
    uint64_t now = pl_now_ms(run.app.clock);
    beat();
    if (pl_helm_ours()) {
        look_for_ready(now);
        look_for_failure(now);
    }
    pl_gateway_record_open(run.gateway, HEART_MS);
    pl_keeps_beat(&run.app, now);
}

static void on_hangup(uv_signal_t *s, int number) {
    struct pl_err err;
    (void)s;
    (void)number;
    if (!pl_renew_order(false, "", &err))
        pl_log(run.app.log, PL_WARN, "config.rejected", F_STR("message", err.msg));
}

/* --- the start */

static void on_action(void *ctx, const char *action, bool ok, const char *message) {
    (void)ctx;
    if (strcmp(action, PL_RENEW_ACTION) == 0)
        pl_renew_replaced(ok, message);
    else
        pl_admin_action_done(run.admin, action, ok ? 0 : 1, message);
}

static void on_report(void *ctx, const char *action, int exit_status, const char *message, const char *json) {
    (void)ctx;
    pl_admin_action_report(run.admin, action, exit_status, message, json);
}

static void on_renew_done(const char *action, int exit_status, const char *message) {
    pl_admin_action_done(run.admin, action, exit_status, message);
}

static bool read_config(struct pl_err *err) {
    struct pl_buf text;
    int fd = pl_held_take(&run.held, "config");
    pl_buf_init(&text, (size_t)8 << 20);
    if (fd == -1 || !pl_held_read(fd, &text))
        return PL_FAIL(err, PL_E_SYS, "the keeper holds no configuration");
    /* Another version's: one that would lose a setting does not take over. A main that follows a crash takes
     * what it can. */
    run.app.config = run.candidate ? pl_config_from_json_whole(text.data, text.len, err)
                                   : pl_config_from_json(text.data, text.len, err);
    pl_buf_free(&text);
    return run.app.config != NULL;
}

static const char *start_reason(void) {
    if (run.candidate) return "upgrade";
    if (run.welcome.main_id == 1) return "first";
    return run.welcome.after_hang != 0 ? "hang" : "crash";
}

static void on_event(void *ctx, enum pl_level level, const char *event, const char *line, size_t len) {
    (void)ctx;
    pl_admin_tap(run.admin, level, event, line, len);
    pl_keeps_event(&run.app, level, event, line, len);
}

static void open_record(void) {
    pl_keeps_open(&run.app, &(struct pl_keeps_start){ .state_dir = run.state_dir,
                                                      .reason = start_reason(),
                                                      .life = run.welcome.boot,
                                                      .keeper_pid = run.welcome.keeper_pid });
}

static bool make_log(struct pl_err *err) {
    const struct pl_config *c = run.app.config;
    bool terminal = isatty(2) == 1;
    enum pl_log_format format = pl_log_form(c, terminal);
    run.app.log = pl_log_create(&(struct pl_log_options){ .out_fd = 2,
                                                          .raw_fd = 1,
                                                          .format = format,
                                                          .min = (enum pl_level)c->logs_level,
                                                          .color = terminal && getenv("NO_COLOR") == NULL,
                                                          .clock = run.app.clock,
                                                          .tap = on_event,
                                                          .tap_min = PL_INFO });
    return run.app.log != NULL || PL_FAIL(err, PL_E_SYS, "start the log thread");
}

/* A terminal wants to know who speaks; `auto` becomes one of the two. */
static void settle_worker_lines(void) {
    struct pl_config *c = run.app.config;
    if (c->logs_workers == PL_CFG_LOGS_WORKERS_AUTO)
        c->logs_workers = isatty(1) == 1 ? PL_CFG_LOGS_WORKERS_PREFIX : PL_CFG_LOGS_WORKERS_RAW;
}

static uint64_t connection_limit(void) {
    struct rlimit r;
    const struct pl_config *c = run.app.config;
    if (c->limits_connections > 0) return (uint64_t)c->limits_connections;
    uint64_t fds = getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? r.rlim_cur : 65536;
    uint64_t kept = SPARE_FDS + FDS_PER_WORKER * c->service_count * 8;
    return fds > 2 * kept ? (fds - kept) / 2 : fds / 4;
}

/* An eighth of the memory there is, at most 2 GiB. */
static uint64_t buffer_limit(void) {
    struct sysinfo s;
    const struct pl_config *c = run.app.config;
    if (c->limits_buffered_bytes > 0) return (uint64_t)c->limits_buffered_bytes;
    uint64_t total = sysinfo(&s) == 0 ? (uint64_t)s.totalram * s.mem_unit : (uint64_t)4 << 30;
    uint64_t most = (uint64_t)2 << 30;
    return total / 8 < most ? total / 8 : most;
}

static void hold(const char *name, int fd) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_HOLD, sizeof m.hold, 0);
    snprintf(m.hold.name, sizeof m.hold.name, "%s", name);
    m.fds[0] = fd;
    m.fd_count = 1;
    pl_link_order(&run.link, &m, NULL, NULL);
}

/* The configuration is another one: what was worked out from it is worked out again. */
static void settle(void) {
    settle_worker_lines();
    pl_log_set_level(run.app.log, (enum pl_level)run.app.config->logs_level);
    pl_keeps_reconfigured(&run.app);
    pl_gateway_reconfigured(run.gateway, connection_limit(), buffer_limit());
}

/* The arguments of the `plimsoll serve` that started it all. */
static bool read_arguments(struct pl_err *err) {
    static struct pl_buf text; /* for good: argv points into it */
    static char *words[MAX_ARGUMENTS + 1];
    int count = 0, fd = pl_held_take(&run.held, "args");
    pl_buf_init(&text, (size_t)1 << 20);
    if (fd == -1 || !pl_held_read(fd, &text)) return PL_FAIL(err, PL_E_SYS, "the keeper holds no arguments");
    for (size_t at = 0; at < text.len && count < MAX_ARGUMENTS; at += strlen(text.data + at) + 1)
        words[count++] = text.data + at;
    pl_renew_init(&(struct pl_renew_options){ .app = &run.app,
                                              .crew = run.crew,
                                              .gateway = run.gateway,
                                              .argc = count,
                                              .argv = words,
                                              .settle = settle,
                                              .hold = hold,
                                              .action_done = on_renew_done });
    return true;
}

/* http.port in a service's decorator says where to listen when nothing nearer does, and it is known only now.
 */
static void on_described(void *ctx, struct pl_service *s) {
    struct pl_err err = { 0 };
    const struct pl_addresses *listen = &run.app.config->listen;
    (void)ctx;
    run.gateway_hooks.described(run.gateway_hooks.ctx, s);
    enum pl_origin origin = pl_config_origin(run.app.config, PL_CFG_INSTANCE, "listen", NULL);
    bool inherited = origin == PL_FROM_DECORATOR || origin == PL_FROM_BENTOML_CONFIG;
    if (!inherited || listen->count != 1 || strcmp(listen->at[0].text, run.wanted) == 0) return;
    if (!pl_listening_move(&listen->at[0], &err)) {
        pl_log(run.app.log, PL_ERROR, "config.rejected", F_STR("message", err.msg));
        stop("listen", 0, 5);
        return;
    }
    snprintf(run.wanted, sizeof run.wanted, "%s", listen->at[0].text);
    pl_log(run.app.log, PL_INFO, "listen.moved", F_STR("listen", pl_listening_data()),
           F_STR("origin", pl_origin_name(origin)));
}

static void first_figures(void) {
    struct pl_metrics *m = run.app.metrics;
    pl_series_set(pl_series(m, PL_M_BUILD_INFO, PL_VERSION, "", PL_LLHTTP_VERSION, "", ""), 1);
    static const char *const reasons[] = { "first", "crash", "hang", "upgrade" };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        pl_series_add(pl_series(m, PL_M_MAIN_STARTS_TOTAL, reasons[i]),
                      strcmp(reasons[i], start_reason()) == 0);
    pl_series_set(pl_series0(m, PL_M_PROCESS_START_TIME_SECONDS), (double)time(NULL));
}

/* NULL: this build is without it; `serve` has said so to whoever needs it. */
static const char *llama_path(void) {
    static char path[PL_PATH_BYTES];
    struct pl_err ignored;
    return pl_path_llama(path, &ignored) ? path : NULL;
}

static bool make_parts(struct pl_err *err) {
    struct pl_app *app = &run.app;
    if (!pl_path_watch(run.watch, err)) return false;
    app->metrics = pl_metrics_create((size_t)app->config->metrics_max_series);
    run.timers = pl_timers_create(app->loop, app->clock);
    if (app->metrics == NULL || run.timers == NULL) return PL_FAIL(err, PL_E_NOMEM, "out of memory");
    first_figures();
    bool caches = pl_path_caches(app->config, run.cache_dir);
    const char *worker_user = app->config->workers_user;
    if (worker_user != NULL && !pl_user_find(worker_user, NULL, &run.worker_user, err)) return false;
    run.crew = pl_crew_create(
        &(struct pl_crew_options){ .app = app,
                                   .link = &run.link,
                                   .welcome = run.welcome,
                                   .run_dir = run.run_dir,
                                   .state_dir = run.state_dir[0] != '\0' ? run.state_dir : NULL,
                                   .cache_dir = caches ? run.cache_dir : NULL,
                                   .python_path = run.python_side,
                                   .worker_user = worker_user != NULL ? &run.worker_user : NULL,
                                   .watch_path = run.watch,
                                   .llama_path = llama_path(),
                                   .on_stopped = on_crew_stopped,
                                   .on_action = on_action,
                                   .on_report = on_report,
                                   .on_keeper_news = on_keeper_news },
        err);
    if (run.crew == NULL) return false;
    run.gateway = pl_gateway_create(
        &(struct pl_gateway_options){ .app = app,
                                      .crew = run.crew,
                                      .timers = run.timers,
                                      .own = { .answer = pl_admin_own, .ctx = run.admin },
                                      .max_connections = connection_limit(),
                                      .max_buffered = buffer_limit(),
                                      .state_dir = run.state_dir[0] != '\0' ? run.state_dir : NULL },
        err);
    if (run.gateway == NULL) return false;
    return pl_admin_start(
        run.admin,
        &(struct pl_admin_options){ .app = app,
                                    .crew = run.crew,
                                    .gateway = run.gateway,
                                    .timers = run.timers,
                                    .reload = pl_renew_order,
                                    .rejected = pl_renew_rejected,
                                    .upgrade = pl_helm_order,
                                    .version = PL_VERSION,
                                    .start_reason = start_reason(),
                                    .listen = pl_listening_data(),
                                    .admin = pl_listening_admin(),
                                    .state_dir = run.state_dir[0] != '\0' ? run.state_dir : NULL,
                                    .program = run.program[0] != '\0' ? run.program : NULL,
                                    .keeper_pid = run.welcome.keeper_pid,
                                    .dry_run = pl_dry_run() },
        err);
}

/* Kubernetes puts a variable for every service into our environment; some look like keys of ours. */
static void tell_links(void) {
    const struct pl_strings *links = &run.app.config->links;
    struct pl_buf names;
    if (links->count == 0) return;
    pl_buf_init(&names, 1024);
    for (size_t i = 0; i < links->count; i++) pl_buf_addf(&names, "%s%s", i > 0 ? " " : "", links->at[i]);
    pl_log(run.app.log, PL_INFO, "config.service_links", F_STR("names", pl_buf_text(&names)));
    pl_buf_free(&names);
}

static void tell_start(void) {
    char hash[17];
    const struct pl_config *c = run.app.config;
    pl_config_hash(c, hash);
    pl_log(run.app.log, PL_INFO, "main.started", F_STR("version", PL_VERSION), F_INT("pid", getpid()),
           F_STR("reason", start_reason()), F_STR("listen", pl_listening_data()),
           F_STR("admin", pl_listening_admin()), F_STR("run_dir", run.run_dir),
           F_BOOL("dry_run", pl_dry_run()));
    pl_log(run.app.log, PL_INFO, "config.loaded", F_STR("file", c->file), F_STR("hash", hash));
    tell_links();
    if (run.welcome.crashes >= 2) pl_log(run.app.log, PL_ERROR, "main.plain_mode");
}

/* After what needs rights, before what strangers can reach. A main that has died twice may have died of this:
 * it goes on without refusals, and what it is not supposed to do is logged. */
static void put_up_fence(void) {
    struct pl_err err;
    bool plain = run.welcome.crashes >= 2;
    enum pl_cfg_main_fence asked = run.app.config->main_fence;
    if (asked == PL_CFG_MAIN_FENCE_OFF) return;
    bool logs = plain || asked == PL_CFG_MAIN_FENCE_LOG;
    bool up = pl_fence_up(logs ? PL_FENCE_LOG : PL_FENCE_ON, &err);
    if (!up || logs)
        pl_log(run.app.log, PL_WARN, "main.fence", F_STR("state", up ? "log" : "off"),
               F_STR("reason", !up     ? err.msg
                               : plain ? "main has crashed twice"
                                       : "main.fence: log"));
}

static void start_heart(void) {
    uint64_t every =
        run.welcome.hang_ms >= 2000 || run.welcome.hang_ms == 0 ? HEART_MS : run.welcome.hang_ms / 10;
    uv_timer_init(run.app.loop, &run.heart);
    uv_timer_start(&run.heart, on_heart, every, every);
    uv_signal_init(run.app.loop, &run.hangup);
    uv_signal_start(&run.hangup, on_hangup, SIGHUP);
    pl_stalls_watch(run.app.loop, run.app.metrics, run.app.log);
}

/* What the first listener is bound to, so that only another wish moves it. */
static void note_listener(void) {
    int fd = pl_held_peek(&run.held, "listen:0");
    if (fd != -1) pl_bound_text(fd, run.wanted, sizeof run.wanted);
}

/* All that could fail has been made: now the helm. What is held was listed before, and the old main has gone
 * on since. */
static bool take_helm(struct pl_err *err) {
    static const char *const read_already[] = { "config", "args", "door" };
    if (!pl_helm_take(&run.link, beat, err)) return false;
    for (size_t i = 0; i < run.held.count; i++)
        if (run.held.at[i].fd != -1) close(run.held.at[i].fd);
    if (!pl_held_list(&run.link, &run.held, err)) return false;
    for (size_t i = 0; i < sizeof read_already / sizeof *read_already; i++) {
        int fd = pl_held_take(&run.held, read_already[i]);
        if (fd != -1) close(fd);
    }
    run.other_main = run.welcome.other_main_id;
    run.taken = true;
    open_record();
    return true;
}

static void make_helm(void) {
    pl_helm_init(&(struct pl_helm_options){ .app = &run.app,
                                            .link = &run.link,
                                            .crew = run.crew,
                                            .gateway = run.gateway,
                                            .admin = run.admin,
                                            .timers = run.timers,
                                            .program = run.program,
                                            .action_done = on_renew_done,
                                            .left = on_left });
}

/* Without one a crash of main costs what it had charged. */
static void open_board(void) {
    int fd = pl_gateway_board(run.gateway, pl_held_take(&run.held, "board"));
    if (fd == -1) return;
    hold("board", fd);
    close(fd);
}

static bool start(struct pl_err *err) {
    struct pl_crew_hooks hooks;
    pl_reserve_start(realloc);
    run.app.loop = uv_default_loop();
    run.app.clock = &pl_clock_system;
    run.app.started_ms = pl_now_ms(run.app.clock);
    pl_link_init(&run.link, PL_WIRE_FD);
    if (getrandom(&run.app.boot, sizeof run.app.boot, 0) != sizeof run.app.boot) run.app.boot = pl_now_us();
    if (!pl_hello(&run.link, PL_VERSION, &run.welcome, &run.beat, err)) return false;
    run.app.keeper_boot = run.welcome.boot;
    run.candidate = run.welcome.role == PL_ROLE_CANDIDATE;
    run.other_main = run.welcome.other_main_id;
    beat();
    run.admin = pl_admin_create(err);
    if (run.admin == NULL || !pl_held_list(&run.link, &run.held, err) || !read_config(err)) return false;
    if (!run.candidate) open_record();
    if (!make_log(err)) return false;
    settle_worker_lines();
    if (!make_parts(err) || !read_arguments(err)) return false;
    const struct pl_door_options door = {
        .app = &run.app, .gateway = run.gateway, .admin = run.admin, .hold = hold
    };
    if (!pl_door_start(&door, pl_held_take(&run.held, "door"), err)) return false;
    make_helm();
    if (run.candidate && !take_helm(err)) return false;
    pl_manager_init(&run.link);
    note_listener();
    pl_gateway_hooks(run.gateway, &run.gateway_hooks);
    hooks = run.gateway_hooks;
    hooks.described = on_described;
    if (!pl_crew_start(run.crew, &hooks, &run.held, err)) return false;
    open_board();
    put_up_fence();
    pl_crew_other_main(run.crew, run.other_main != 0);
    const struct pl_listening_options listening = {
        .gateway = run.gateway, .admin = run.admin, .crew = run.crew, .run_dir = run.run_dir, .hold = hold
    };
    if (!pl_listening_start(&listening, &run.held, err)) return false;
    tell_start();
    start_heart();
    pl_watchers_start(&run.app, run.crew);
    pl_door_watch();
    return true;
}

int pl_run_main(int argc, char **argv) {
    struct pl_err err = { 0 };
    if (argc != 5) {
        fprintf(stderr, "plimsoll: `main` is what the keeper starts; people use `plimsoll serve`\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* until the loop listens: the keeper passes it on from the first moment */
    prctl(PR_SET_DUMPABLE, 0);
    run.run_dir = argv[2];
    run.state_dir = argv[3];
    /* Ours: the keeper's arguments are those of the main that it was started with. */
    if (!pl_path_python_side(run.python_side, &err))
        snprintf(run.python_side, sizeof run.python_side, "%s", argv[4]);
    if (!pl_path_program(run.program, &err)) run.program[0] = '\0';
    if (!start(&err)) {
        fprintf(stderr, "plimsoll: main: %s\n", err.msg);
        if (run.candidate && !run.taken) pl_helm_decline(&run.link, pl_err_exit_status(err.code), err.msg);
        return pl_err_exit_status(err.code);
    }
    uv_run(run.app.loop, UV_RUN_DEFAULT);
    return 5;
}
