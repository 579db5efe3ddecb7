/* watcher.c - the watch process as main has it: spawned through the keeper like a worker, adopted by the next
 * main, started again when it ends, and left alone when it hangs: whatever it does, it takes nothing with it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "crew/devices.h"
#include "worker/recipe.h"

extern char **environ;

static const char NAME[] = "watch";
enum {
    RING_BYTES = 65536,
    STOP_MS = 1000,
    BACKOFF_MS = 1000,
    BACKOFF_MOST_MS = 60000,
    LIVED_MS = 60000, /* so long, and its end was none of the row before */
    WORDS = 64,
};
static const uint32_t last_rank = UINT32_MAX; /* the keeper's own stop ends it behind all workers */

/* What a library loader needs, and what the dry dock tells its stand-ins. Not the rest: it is not its own. */
static bool is_passed(const char *variable) {
    static const char *const names[] = {
        "PATH=",          "LD_LIBRARY_PATH=", "LD_PRELOAD=",       "ASAN_OPTIONS=",
        "UBSAN_OPTIONS=", "TSAN_OPTIONS=",    "PLIMSOLL_DRYDOCK_", "NVIDIA_"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Borrowed texts: of the crew and of the environment. */
struct words {
    char period[24];
    char *argv[4], *envp[WORDS + 1];
    struct pl_recipe recipe;
};

static void write_recipe(const struct pl_crew *c, struct words *w) {
    snprintf(w->period, sizeof w->period, "%lld", (long long)c->app->config->device_sample_ms);
    w->argv[0] = (char *)(uintptr_t)c->watch_path;
    w->argv[1] = (char *)(uintptr_t) "--period-ms";
    w->argv[2] = w->period;
    w->argv[3] = NULL;
    uint32_t count = 0;
    for (char **e = environ; *e != NULL && count < WORDS; e++)
        if (is_passed(*e)) w->envp[count++] = *e;
    w->envp[count] = NULL;
    w->recipe =
        (struct pl_recipe){ .folder = "/", .argv = w->argv, .envp = w->envp, .argc = 3, .envc = count };
}

/* --- its page */

static void drop_page(struct pl_devices *d) {
    if (d->page.at != NULL) munmap((void *)(uintptr_t)d->page.at, d->page_bytes);
    d->page = (struct pl_watch_page){ 0 };
    pl_ring_close(&d->ring);
}

static void take_page(struct pl_devices *d, int page_fd, int ring_fd) {
    PL_AUTO_FD int page = page_fd;
    PL_AUTO_FD int ring = ring_fd;
    struct stat st;
    struct pl_err err;
    drop_page(d);
    if (!pl_ring_open(&d->ring, ring)) d->ring = (struct pl_ring){ 0 };
    if (fstat(page, &st) != 0 || st.st_size <= 0) return;
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, page, 0);
    if (at == MAP_FAILED) return;
    d->page_bytes = (size_t)st.st_size;
    if (!pl_watch_open(&d->page, at, d->page_bytes, &err)) pl_devices_silent(d->crew, err.msg);
}

/* --- its end */

static void forget(struct pl_crew *c, uint64_t generation) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_FORGET, sizeof m.forget, 0);
    m.forget.generation = generation;
    pl_link_order(c->link, &m, NULL, NULL);
}

static void order_signal(struct pl_crew *c, int signal, uint32_t kill_ms) {
    pl_crew_signal(c, c->devices->generation, signal, kill_ms);
}

static void end_it(struct pl_crew *c) {
    c->devices->ending = true;
    order_signal(c, SIGTERM, STOP_MS);
}

static void wait_longer(struct pl_devices *d, uint64_t now) {
    if (now - d->started_ms >= LIVED_MS) d->failures = 0;
    d->failures++;
    d->restart_at_ms = now + pl_backoff_ms(BACKOFF_MS, BACKOFF_MOST_MS, d->failures);
}

/* The last line that it printed, or "". */
static void last_words(struct pl_devices *d, char *out, size_t room) {
    char text[1024];
    size_t n, len = 0;
    out[0] = '\0';
    if (d->ring.head == NULL) return;
    while ((n = pl_ring_read(&d->ring, text, sizeof text)) > 0) len = n;
    while (len > 0 && text[len - 1] == '\n') len--;
    const char *line = len > 0 ? memrchr(text, '\n', len) : NULL;
    line = line != NULL ? line + 1 : text;
    snprintf(out, room, ": %.*s", (int)(len - (size_t)(line - text)), line);
    if (len == 0) out[0] = '\0';
}

static void say_end(struct pl_crew *c, const struct pl_wire_exit *e, uint64_t now) {
    struct pl_devices *d = c->devices;
    char reason[200], how[40], said[120];
    last_words(d, said, sizeof said);
    unsigned long long pause = (d->restart_at_ms - now) / 1000;
    if (e->exec_errno != 0) {
        snprintf(reason, sizeof reason, "watch could not be run: %s; it is tried again in %llu s",
                 strerror((int)e->exec_errno), pause);
    } else {
        if (WIFSIGNALED(e->status))
            snprintf(how, sizeof how, "SIG%s", sigabbrev_np(WTERMSIG(e->status)));
        else
            snprintf(how, sizeof how, "status %d", WEXITSTATUS(e->status));
        snprintf(reason, sizeof reason, "watch has ended by %s%s; it is started again in %llu s", how, said,
                 pause);
    }
    pl_devices_silent(c, reason);
}

static void ended(struct pl_crew *c, const struct pl_wire_exit *e) {
    struct pl_devices *d = c->devices;
    uint64_t now = pl_crew_now(c);
    if (d->ending || c->stopping) {
        d->restart_at_ms = now;
        return;
    }
    wait_longer(d, now);
    say_end(c, e, now);
}

static void gone(struct pl_crew *c) {
    struct pl_devices *d = c->devices;
    forget(c, d->generation);
    drop_page(d);
    d->generation = 0;
    d->pid = 0;
    d->ending = false;
}

bool pl_watcher_news(struct pl_crew *c, const struct pl_wire_message *m) {
    struct pl_devices *d = c->devices;
    if (d == NULL || d->generation == 0 || m->exit.generation != d->generation) return false;
    if (m->head.kind == PL_WIRE_EXITED) ended(c, &m->exit);
    if (m->head.kind == PL_WIRE_GONE) gone(c);
    if (m->head.kind == PL_WIRE_STUCK)
        pl_devices_silent(c, "watch does not end, even by SIGKILL: look for a driver fault");
    return true;
}

/* --- its start */

static void on_spawned(void *ctx, struct pl_wire_message *reply) {
    struct pl_crew *c = ctx;
    struct pl_devices *d = c->devices;
    d->spawning = false;
    if (reply->head.kind != PL_WIRE_SPAWNED || reply->fd_count != 2) {
        int error = reply->head.kind == PL_WIRE_REFUSED ? (int)reply->refused.error : 0;
        char reason[120];
        wait_longer(d, pl_crew_now(c));
        snprintf(reason, sizeof reason, "the keeper refused to start watch: %s", strerror(error));
        pl_devices_silent(c, reason);
        return;
    }
    reply->fd_count = 0;
    d->generation = reply->spawned.generation;
    d->pid = (pid_t)reply->spawned.pid;
    d->fresh_watch = true;
    take_page(d, reply->fds[0], reply->fds[1]);
    pl_devices_renewed(c);
}

static void spawn(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    struct pl_wire_message m;
    struct words w;
    struct pl_err err;
    write_recipe(c, &w);
    d->started_ms = now;
    d->period_ms = (uint64_t)c->app->config->device_sample_ms;
    PL_AUTO_FD int recipe = pl_spawn_recipe(&w.recipe, &err);
    pl_wire_init(&m, PL_WIRE_SPAWN, sizeof m.spawn, 0);
    m.spawn.recipe_hash = pl_recipe_hash(&w.recipe);
    m.spawn.flags = PL_SPAWN_ASIDE;
    m.spawn.page_bytes = PL_WATCH_BYTES;
    m.spawn.ring_bytes = RING_BYTES;
    m.spawn.stop_rank = last_rank;
    m.spawn.stop_signal = SIGTERM;
    m.spawn.stop_ms = STOP_MS;
    snprintf(m.spawn.name, sizeof m.spawn.name, "%s", NAME);
    m.fds[0] = recipe;
    m.fd_count = 1;
    d->spawning = recipe != -1 && pl_link_order(c->link, &m, on_spawned, c);
    if (!d->spawning) wait_longer(d, now);
}

static struct pl_devices *make(struct pl_crew *c) {
    if (c->devices != NULL) return c->devices;
    c->devices = calloc(1, sizeof *c->devices);
    if (c->devices != NULL) c->devices->crew = c;
    return c->devices;
}

bool pl_watcher_is(const struct pl_wire_item *item) { return strcmp(item->name, NAME) == 0; }

/* Another build, another period or another environment: it is ended, and one that fits is started. */
void pl_watcher_adopt(struct pl_crew *c, const struct pl_wire_item *item, int page_fd, int ring_fd) {
    struct pl_devices *d = make(c);
    struct words w;
    if (d == NULL || d->generation != 0) {
        close(page_fd);
        close(ring_fd);
        return;
    }
    write_recipe(c, &w);
    d->generation = item->generation;
    d->pid = (pid_t)item->exit.pid;
    d->started_ms = pl_crew_now(c) - item->age_ms;
    d->period_ms = (uint64_t)c->app->config->device_sample_ms;
    take_page(d, page_fd, ring_fd);
    d->outdated = item->recipe_hash != pl_recipe_hash(&w.recipe);
    if (item->exit.state == PL_GEN_EXITED || item->exit.state == PL_GEN_GONE) ended(c, &item->exit);
    if (item->exit.state == PL_GEN_GONE) gone(c);
}

void pl_watcher_start(struct pl_crew *c) {
    if (make(c) != NULL) pl_watcher_tick(c, pl_crew_now(c));
}

void pl_watcher_tick(struct pl_crew *c, uint64_t now) {
    struct pl_devices *d = c->devices;
    if (d == NULL || c->stopping || c->watch_path == NULL) return;
    if (d->generation != 0 && d->outdated && !d->ending) {
        d->outdated = false;
        end_it(c);
    }
    if (d->generation == 0 && !d->spawning && now >= d->restart_at_ms) spawn(c, now);
}

/* Not before it has looked once: until it blocks the signal it would die by it. */
void pl_watcher_look_now(struct pl_crew *c) {
    struct pl_devices *d = c->devices;
    struct pl_watch_beat beat;
    if (d != NULL && d->generation != 0 && pl_watch_read_beat(&d->page, &beat) && beat.host_ms != 0)
        order_signal(c, SIGUSR1, 0);
}

void pl_watcher_reconfigured(struct pl_crew *c) {
    struct pl_devices *d = c->devices;
    if (d != NULL && d->period_ms != (uint64_t)c->app->config->device_sample_ms) d->outdated = true;
}
