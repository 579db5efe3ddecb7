/* tests/unit/gateway/world.h - the gateway in one loop with the test itself as client, worker, crew and
 * clock.
 *
 * The crew's functions that the gateway calls are defined here, so that the linker never takes the real ones.
 * A worker is a listening Unix socket and a page; the test accepts, reads, answers, dies.
 */
#ifndef PL_TESTS_GATEWAY_WORLD_H
#define PL_TESTS_GATEWAY_WORLD_H
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "crew/look.h"
#include "crew/room.h"
#include "gateway/gateway.h"
#include "page_writer.h"
#include "unit.h"

enum { WORKERS = 3, MORE_SERVICES = 2, TEXT_BYTES = 1 << 22 };

static size_t world_more; /* services beside the first: 0, or MORE_SERVICES, set before world_begins() */

static uint64_t world_ms;
static uint64_t world_now(void *ctx) {
    (void)ctx;
    return world_ms;
}
static const struct pl_clock world_clock = { .now_ms = world_now, .wall_ms = world_now };

static struct {
    uv_loop_t loop;
    struct pl_app app;
    struct pl_timers *timers;
    struct pl_gateway *gateway;
    struct pl_crew_hooks hooks;
    struct pl_service service, more[MORE_SERVICES];
    struct pl_worker workers[WORKERS];
    int listeners[WORKERS]; /* of the workers */
    union page_memory pages[WORKERS];
    int zombies[WORKERS];
    uint32_t ended_ok[WORKERS];
    uint64_t boot_left_ms;
    bool failed, drained;
    bool handover;
    struct pl_service_gap gap;
    char would[64];    /* the last that was told */
    const char *cause; /* of a death; NULL: crashed */
    unsigned refused;
    uint16_t port;
    char folder[64];
    int log_fd;
} W;
static char seen[TEXT_BYTES]; /* what read_until left */
static size_t seen_len;

/* --- the crew */
size_t pl_crew_service_count(const struct pl_crew *c) {
    (void)c;
    return 1 + world_more;
}
struct pl_service *pl_crew_service(struct pl_crew *c, size_t i) {
    (void)c;
    return i == 0 ? &W.service : &W.more[i - 1];
}
struct pl_worker *pl_service_pick(struct pl_service *s) {
    struct pl_worker *best = NULL;
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && (best == NULL || w->in_flight < best->in_flight)) best = w;
    return best;
}
uint32_t pl_service_ready_count(const struct pl_service *s) {
    uint32_t n = 0;
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) n += w->routable;
    return n;
}

bool pl_service_lasts(const struct pl_service *s) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->routable && !w->withdrawn) return true;
    return false;
}
uint64_t pl_service_boot_left_ms(const struct pl_service *s, uint64_t now_ms) {
    (void)s;
    (void)now_ms;
    return W.boot_left_ms;
}
bool pl_service_failed(const struct pl_service *s) {
    (void)s;
    return W.failed;
}
bool pl_service_gap(const struct pl_service *s, uint64_t now_ms, struct pl_service_gap *out) {
    (void)s;
    (void)now_ms;
    *out = W.gap;
    return W.handover;
}
void pl_service_would(struct pl_service *s, const char *action, const char *reason) {
    (void)s;
    snprintf(W.would, sizeof W.would, "%s %s", action, reason);
}
void pl_worker_begin(struct pl_worker *w) { w->in_flight++; }
void pl_worker_end(struct pl_worker *w, bool ok) {
    assert_true(w->in_flight > 0);
    w->in_flight--;
    W.ended_ok[w->slot - 1] += ok;
}
void pl_worker_refused(struct pl_worker *w) {
    w->routable = false;
    W.refused++;
}
void pl_worker_zombies(struct pl_worker *w, int change) { W.zombies[w->slot - 1] += change; }
const char *pl_look_cause(const struct pl_worker *w, const char **sentence) {
    (void)w;
    *sentence = "killed by SIGSEGV";
    return W.cause != NULL ? W.cause : "crashed";
}

static struct pl_room world_room; /* total 0: not known */
static const char *world_places = "";
static const struct pl_description *world_description;
static bool world_out_of_service;
bool pl_look_room(const struct pl_crew *c, const char *devices, struct pl_room *out) {
    (void)c;
    *out = world_room;
    return world_room.total != 0 && strcmp(devices, "host") != 0;
}
void pl_look_places(struct pl_worker *w, char out[PL_ROOM_NAMES]) {
    (void)w;
    snprintf(out, PL_ROOM_NAMES, "%s", world_places);
}
static uint64_t world_needs;
void pl_room_needs(struct pl_service *s, uint64_t request_bytes) {
    (void)s;
    world_needs = request_bytes;
}
bool pl_look_out_of_service(const struct pl_worker *w) {
    (void)w;
    return world_out_of_service;
}
const struct pl_description *pl_look_description(const struct pl_service *s) {
    (void)s;
    return world_description;
}
static struct pl_engine_facts world_engine; /* context_tokens 0: nothing told */
const struct pl_engine_facts *pl_worker_engine(const struct pl_worker *w) {
    (void)w;
    return W.service.kind != PL_KIND_PYTHON ? &world_engine : NULL;
}

/* --- the loop */
static void turn(void) {
    for (int i = 0; i < 6; i++) uv_run(&W.loop, UV_RUN_NOWAIT);
}
static inline void pass(uint64_t ms) {
    for (uint64_t to = world_ms + ms; world_ms < to;) {
        world_ms += to - world_ms < 5 ? to - world_ms : 5;
        pl_timers_advance(W.timers, world_ms);
    }
    turn();
}

/* --- sockets that never block */
static inline int client(void) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(W.port) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* no waiting for the other side's ACK */
    fcntl(fd, F_SETFL, O_NONBLOCK);
    turn();
    return fd;
}
/* A reset, as from a client that was killed: no need to ask whether it has only stopped sending. */
static inline void leave(int fd) {
    struct linger at_once = { .l_onoff = 1 };
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    turn();
}
static inline void put_bytes(int fd, const char *bytes, size_t len) {
    for (unsigned idle = 0; len > 0; idle++) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        assert_true(n >= 0 || errno == EAGAIN);
        assert_true(idle < 200000);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
        turn();
    }
}
static inline void put(int fd, const char *text) { put_bytes(fd, text, strlen(text)); }

/* Reads what there is into seen; returns false at the end of the stream. */
static inline bool read_more(int fd) {
    ssize_t n = recv(fd, seen + seen_len, sizeof seen - 1 - seen_len, 0);
    if (n > 0) seen_len += (size_t)n;
    seen[seen_len] = '\0';
    return n > 0 || (n < 0 && errno == EAGAIN);
}
static inline void forget_seen(void) {
    seen_len = 0;
    seen[0] = '\0';
}
static inline void read_until(int fd, const char *text) {
    forget_seen();
    for (unsigned i = 0; strstr(seen, text) == NULL; i++) {
        turn();
        bool open = read_more(fd);
        if (!open || i > 100000) fail_msg("no '%s' in '%s'%s", text, seen, open ? "" : " (closed)");
    }
}
/* The same, and what is in seen already stays. */
static inline void read_until_more(int fd, const char *text) {
    for (unsigned i = 0; strstr(seen, text) == NULL; i++) {
        turn();
        bool open = read_more(fd);
        if (!open || i > 100000) fail_msg("no '%s' in '%s'%s", text, seen, open ? "" : " (closed)");
    }
}
/* A whole message with this body at its end, and nothing after it. */
static inline void read_ends(int fd, const char *text) {
    read_until(fd, text);
    size_t len = strlen(text);
    assert_true(seen_len >= len);
    assert_string_equal(seen + seen_len - len, text);
}

/* The worker at `w` answers the client at `fd`, and both connections end. */
static inline void answers(int w, int fd) {
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(fd, "ok");
    close(w);
    close(fd);
    turn();
}
static inline void read_end(int fd) {
    forget_seen();
    for (unsigned i = 0; read_more(fd); i++) {
        turn();
        assert_true(i < 200000);
    }
}
static inline bool is_silent(int fd) {
    char c;
    turn();
    return recv(fd, &c, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}
static inline bool has(const char *text) { return strstr(seen, text) != NULL; }

/* --- the workers */
static inline int worker_takes(unsigned slot) {
    for (unsigned i = 0; i < 2000; i++) {
        turn();
        int fd = accept4(W.listeners[slot - 1], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) return fd;
    }
    fail_msg("nobody came to worker %u", slot);
    return -1;
}
static inline bool worker_idle(unsigned slot) {
    turn();
    int fd = accept4(W.listeners[slot - 1], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) close(fd);
    return fd < 0;
}
/* x-plimsoll-id of the request in seen. */
static inline uint64_t id_seen(void) {
    const char *at = strcasestr(seen, "x-plimsoll-id: ");
    assert_non_null(at);
    return strtoull(at + 15, NULL, 16);
}
static void worker_starts_of(struct pl_service *s, unsigned slot) {
    struct pl_worker *w = &W.workers[slot - 1];
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct pl_err err;
    *w = (struct pl_worker){ .service = s, .slot = slot, .generation = slot, .state = PL_WORKER_READY };
    char path[sizeof w->to.at.un.sun_path];
    snprintf(path, sizeof path, "%s/%u", W.folder, slot);
    assert_true(pl_dial_to_path(&w->to, path));
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%u", W.folder, slot);
    unlink(a.sun_path);
    W.listeners[slot - 1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(W.listeners[slot - 1], (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(W.listeners[slot - 1], 64), 0);
    page_write_head(&W.pages[slot - 1]);
    page_counts(&W.pages[slot - 1])->features = PL_PAGE_F_RECORDS;
    assert_true(pl_page_open(&w->page, &W.pages[slot - 1], sizeof W.pages[slot - 1], &err));
    w->next = s->workers;
    s->workers = w;
    w->routable = true;
    s->was_ready = true;
    W.hooks.supply_changed(W.hooks.ctx, s);
}
static inline void worker_starts(unsigned slot) { worker_starts_of(&W.service, slot); }
/* The process is reaped; its sockets were closed by the test before. */
static void worker_dies(unsigned slot) {
    struct pl_worker *w = &W.workers[slot - 1];
    close(W.listeners[slot - 1]);
    unlink(w->to.at.un.sun_path);
    w->routable = false;
    w->exited = true;
    W.hooks.unroutable(W.hooks.ctx, w);
    W.hooks.exited(W.hooks.ctx, w);
    W.hooks.supply_changed(W.hooks.ctx, w->service);
}
static void worker_gone(unsigned slot) {
    struct pl_worker *w = &W.workers[slot - 1];
    W.hooks.gone(W.hooks.ctx, w);
    for (struct pl_worker **at = &w->service->workers; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
}

/* --- beginning and end */
static bool own_answer(void *ctx, struct pl_conn *c) {
    struct pl_http_reply r = { .status = 200, .body = "{\"live\":true}", .body_len = 13 };
    (void)ctx;
    pl_conn_reply(c, &r);
    return true;
}
static inline void set_of(size_t service, const char *key, const char *text) {
    struct pl_err err;
    if (!pl_config_set(W.app.config, service, key, text, PL_FROM_FLAG, "test", &err)) fail_msg("%s", err.msg);
    if (W.gateway != NULL) pl_gateway_reconfigured(W.gateway, 1000, 64 << 20);
}
static inline void set(const char *key, const char *text) {
    bool instance = strncmp(key, "limits.head", 11) == 0 || strncmp(key, "http.", 5) == 0;
    set_of(instance ? PL_CFG_INSTANCE : 0, key, text);
}
static int world_begins(void **state) {
    struct pl_err err = { 0 };
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof a;
    (void)state;
    memset(&W, 0, sizeof W);
    world_room = (struct pl_room){ 0 };
    world_places = "";
    world_description = NULL;
    world_out_of_service = false;
    signal(SIGPIPE, SIG_IGN); /* as main does */
    world_ms = 1000000;
    snprintf(W.folder, sizeof W.folder, "/tmp/plimsoll-test-XXXXXX");
    assert_non_null(mkdtemp(W.folder));
    uv_loop_init(&W.loop);
    W.log_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    W.app = (struct pl_app){ .loop = &W.loop, .clock = &world_clock, .boot = 0xabcd1234 };
    struct pl_log_options lo = {
        .out_fd = W.log_fd, .raw_fd = W.log_fd, .format = PL_LOG_JSON, .clock = &world_clock
    };
    W.app.log = pl_log_create(&lo);
    W.app.metrics = pl_metrics_create(10000);
    W.app.config = pl_config_create();
    static const char several[] = "services:\n  first: {run: 'a:A', route: {path: /first}}\n"
                                  "  second: {run: 'a:B', route: {path: /second}}\n"
                                  "  third: {run: 'a:C', route: {path: /third}}\n";
    char *none[] = { NULL };
    if (world_more == 0)
        assert_true(pl_config_add_target(W.app.config, "service:Digits", NULL, false, &err));
    else if (!pl_config_read_yaml(W.app.config, "plimsoll.yaml", several, sizeof several - 1, none, &err))
        fail_msg("%s", err.msg);
    W.service.config = &W.app.config->services[0];
    for (size_t i = 0; i < world_more; i++)
        W.more[i] =
            (struct pl_service){ .config = &W.app.config->services[i + 1], .index = (uint32_t)(i + 1) };
    W.timers = pl_timers_create(&W.loop, &world_clock);
    struct pl_gateway_options o = { .app = &W.app,
                                    .timers = W.timers,
                                    .own = { .answer = own_answer },
                                    .max_connections = 1000,
                                    .max_buffered = 64 << 20 };
    W.gateway = pl_gateway_create(&o, &err);
    assert_non_null(W.gateway);
    pl_gateway_hooks(W.gateway, &W.hooks);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 128), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    W.port = ntohs(a.sin_port);
    assert_true(pl_gateway_listen(W.gateway, fd, "data", &err));
    return 0;
}
static void on_drained(void *ctx) {
    (void)ctx;
    W.drained = true;
}
static inline double counted(enum pl_metric m, const char *label) {
    return pl_series_value(
        pl_metrics_get(W.app.metrics, m, (const char *const[]){ W.service.config->id, label }, 2));
}
static int world_ends(void **state) {
    (void)state;
    pl_gateway_drain(W.gateway, on_drained, NULL);
    pl_gateway_cut(W.gateway);
    turn();
    for (unsigned i = 1; i <= WORKERS; i++)
        if (W.workers[i - 1].service != NULL) {
            if (!W.workers[i - 1].exited) worker_dies(i);
            worker_gone(i);
            turn();
        }
    pass(2000);
    struct pl_gateway_numbers n;
    pl_gateway_numbers(W.gateway, &W.service, &n);
    assert_true(W.drained);
    assert_int_equal(n.running, 0); /* whatever happened: every place was given back */
    assert_int_equal(n.queued, 0);
    assert_int_equal(pl_gateway_buffered(W.gateway), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_int_equal(W.zombies[i], 0);
        assert_int_equal(W.workers[i].in_flight, 0);
        assert_null(W.workers[i].pool);
    }
    pl_gateway_destroy(W.gateway);
    pl_timers_destroy(W.timers);
    uv_run(&W.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&W.loop), 0);
    pl_config_destroy(W.app.config);
    pl_metrics_destroy(W.app.metrics);
    pl_log_destroy(W.app.log);
    close(W.log_fd);
    rmdir(W.folder);
    return 0;
}
static inline int ask(const char *path) {
    char text[256];
    int c = client();
    snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", path);
    put(c, text);
    return c;
}
static inline void reply(int w, const char *body) {
    char text[256];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    put(w, text);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, world_begins, world_ends)
#endif
