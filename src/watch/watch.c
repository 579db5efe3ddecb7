#include "watch/watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wire.h"
#include "watch/host.h"
#include "watch/nvml.h"
#include "watch/writer.h"

enum {
    MEMBERS = 4096,
    DEAR_EVERY_MS = 10000,
    LEAST_PERIOD_MS = 50,
    MOST_PERIOD_MS = 60000,
    USAGE = 2,
    SYSTEM = 5
};
static const struct pl_host_roots machine = { .proc = "/proc", .cgroup = "/sys/fs/cgroup" };

/* What costs something, of one group, as it was found last. */
struct dear {
    pid_t pid;
    uint64_t start_ticks, pss, descriptors;
    uint64_t anon; /* at that time */
};

struct watch {
    struct pl_watch_options o;
    struct pl_watch_writer page;
    struct pl_nvml *nvml;
    pid_t keeper;
    /* the devices' thread, and what wakes it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool look_now;
    pid_t leaders[PL_WATCH_WORKERS]; /* under the mutex: the children of the keeper */
    size_t leader_count;
    /* the host's thread */
    uint64_t dear_ms;
    struct dear dear[PL_WATCH_WORKERS];
    struct pl_host_member members[MEMBERS]; /* of `looked_for` */
    pid_t looked_for[PL_WATCH_WORKERS];
    size_t looked_count, member_count;
};
static struct watch watch;

static uint64_t now_ms(void) { return pl_now_ms(&pl_clock_system); }

/* --- the devices' thread */

static uint32_t leader_of(void *ctx, uint32_t pid) {
    struct watch *w = ctx;
    pid_t leaders[PL_WATCH_WORKERS];
    pthread_mutex_lock(&w->mutex);
    size_t count = w->leader_count;
    memcpy(leaders, w->leaders, count * sizeof *leaders);
    pthread_mutex_unlock(&w->mutex);
    return (uint32_t)pl_host_leader(machine.proc, (pid_t)pid, leaders, count);
}

static void wait_for_next(struct watch *w) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + w->o.period_ms % 1000 * 1000000;
    until.tv_sec += (time_t)(w->o.period_ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&w->mutex);
    while (!w->look_now && pthread_cond_timedwait(&w->wake, &w->mutex, &until) != ETIMEDOUT) continue;
    w->look_now = false;
    pthread_mutex_unlock(&w->mutex);
}

static void *devices(void *ctx) {
    static struct pl_watch_gpu gpus[PL_WATCH_GPUS];
    struct watch *w = ctx;
    struct pl_watch_driver driver;
    for (;;) {
        pl_nvml_look(w->nvml, now_ms(), &driver, gpus);
        for (uint32_t i = 0; i < driver.gpus; i++) pl_watch_put_gpu(&w->page, i, &gpus[i]);
        pl_watch_put_driver(&w->page, &driver);
        pl_watch_store(&pl_watch_beat(&w->page)->device_ms, driver.at_ms);
        wait_for_next(w);
    }
    return NULL;
}

/* --- the host's thread */

static void tell_leaders(struct watch *w, const pid_t *leaders, size_t count) {
    pthread_mutex_lock(&w->mutex);
    memcpy(w->leaders, leaders, count * sizeof *leaders);
    w->leader_count = count;
    pthread_mutex_unlock(&w->mutex);
}

static void look_for_members(struct watch *w, const pid_t *leaders, size_t count) {
    memcpy(w->looked_for, leaders, count * sizeof *leaders);
    w->looked_count = count;
    w->member_count = pl_host_members(machine.proc, leaders, count, w->members, MEMBERS);
}

static bool is_member_of(const struct watch *w, size_t i, pid_t leader) {
    return w->looked_for[w->members[i].leader] == leader && pl_host_same(machine.proc, &w->members[i]);
}

static void add_dear(pid_t pid, struct dear *sum) {
    uint64_t pss, descriptors;
    pl_host_dear(machine.proc, pid, &pss, &descriptors);
    sum->pss = sum->pss == PL_WATCH_UNKNOWN || pss == PL_WATCH_UNKNOWN ? PL_WATCH_UNKNOWN : sum->pss + pss;
    sum->descriptors = sum->descriptors == PL_WATCH_UNKNOWN || descriptors == PL_WATCH_UNKNOWN
                           ? PL_WATCH_UNKNOWN
                           : sum->descriptors + descriptors;
}

static struct dear look_dear(const struct watch *w, pid_t leader, uint64_t start_ticks) {
    struct dear d = { .pid = leader, .start_ticks = start_ticks };
    add_dear(leader, &d);
    for (size_t i = 0; i < w->member_count; i++)
        if (is_member_of(w, i, leader)) add_dear(w->members[i].pid, &d);
    return d;
}

/* The figures of the last dear look, while the process is the same. */
static const struct dear *known_dear(const struct watch *w, pid_t leader, uint64_t start_ticks) {
    for (size_t i = 0; i < PL_WATCH_WORKERS; i++)
        if (w->dear[i].pid == leader && w->dear[i].start_ticks == start_ticks) return &w->dear[i];
    return NULL;
}

static struct pl_watch_worker look_at_group(struct watch *w, pid_t leader, uint64_t now) {
    struct pl_watch_worker sum = { .pid = (uint32_t)leader,
                                   .at_ms = now,
                                   .start_ticks = pl_host_start(machine.proc, leader),
                                   .pss = PL_WATCH_UNKNOWN,
                                   .descriptors = PL_WATCH_UNKNOWN };
    pl_host_add(machine.proc, leader, &sum);
    for (size_t i = 0; i < w->member_count; i++)
        if (is_member_of(w, i, leader)) pl_host_add(machine.proc, w->members[i].pid, &sum);
    const struct dear *d = known_dear(w, leader, sum.start_ticks);
    if (d == NULL) return sum;
    sum.pss = d->pss;
    sum.descriptors = d->descriptors;
    return sum;
}

/* Not looked at yet, or by a quarter another one since: it is starting. */
static bool has_changed(const struct watch *w, const struct pl_watch_worker *sum) {
    const struct dear *d = known_dear(w, (pid_t)sum->pid, sum->start_ticks);
    if (d == NULL) return true;
    uint64_t change = sum->anon > d->anon ? sum->anon - d->anon : d->anon - sum->anon;
    return change > d->anon / 4;
}

static bool same_leaders(const struct watch *w, const pid_t *leaders, size_t count) {
    return count == w->looked_count && memcmp(leaders, w->looked_for, count * sizeof *leaders) == 0;
}

static void look_at_host(struct watch *w, uint64_t now) {
    pid_t leaders[PL_WATCH_WORKERS];
    struct pl_watch_host host = { .at_ms = now };
    size_t count = pl_host_children(machine.proc, w->keeper, leaders, PL_WATCH_WORKERS);
    bool dear = w->dear_ms == 0 || now - w->dear_ms >= DEAR_EVERY_MS;
    tell_leaders(w, leaders, count);
    if (dear || !same_leaders(w, leaders, count)) look_for_members(w, leaders, count);
    for (size_t i = 0; i < count; i++) {
        struct pl_watch_worker sum = look_at_group(w, leaders[i], now);
        if (sum.processes == 0 || (uint32_t)leaders[i] == (uint32_t)getpid()) continue;
        if (dear || has_changed(w, &sum)) {
            struct dear d = look_dear(w, leaders[i], sum.start_ticks);
            d.anon = sum.anon;
            sum.pss = d.pss;
            sum.descriptors = d.descriptors;
            w->dear[host.workers] = d;
        } else {
            w->dear[host.workers] = *known_dear(w, leaders[i], sum.start_ticks);
        }
        pl_watch_put_worker(&w->page, host.workers++, &sum);
    }
    memset(&w->dear[host.workers], 0, (PL_WATCH_WORKERS - host.workers) * sizeof *w->dear);
    if (dear) w->dear_ms = now;
    pl_host_group(&machine, "self", &host);
    pl_watch_put_host(&w->page, &host);
    pl_watch_store(&pl_watch_beat(&w->page)->host_ms, now);
}

/* Until the period is over; sooner when it is asked to look now, which is passed on. */
static void wait_for_period(struct watch *w, const sigset_t *asked) {
    struct timespec period = { (time_t)(w->o.period_ms / 1000), (long)(w->o.period_ms % 1000 * 1000000) };
    if (sigtimedwait(asked, NULL, &period) != SIGUSR1) return;
    pthread_mutex_lock(&w->mutex);
    w->look_now = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

/* --- the start */

static bool read_options(int argc, char **argv, struct pl_watch_options *o) {
    char *end;
    *o = (struct pl_watch_options){ .page_fd = PL_WORKER_PAGE_FD };
    if (argc != 3 || strcmp(argv[1], "--period-ms") != 0) return false;
    o->period_ms = strtoull(argv[2], &end, 10);
    const char *told = getenv("PLIMSOLL_GENERATION"); /* BOOT.GENERATION, hexadecimal and decimal */
    unsigned long long boot, generation;
    if (told != NULL && sscanf(told, "%llx.%llu", &boot, &generation) == 2) {
        o->boot = boot;
        o->generation = generation;
    }
    return *end == '\0' && o->period_ms >= LEAST_PERIOD_MS && o->period_ms <= MOST_PERIOD_MS;
}

static bool start_devices(struct watch *w) {
    pthread_condattr_t attributes;
    pthread_t thread;
    w->nvml = pl_nvml_create(pl_watch_beat(&w->page), leader_of, w);
    return w->nvml != NULL && pthread_mutex_init(&w->mutex, NULL) == 0 &&
           pthread_condattr_init(&attributes) == 0 &&
           pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(&w->wake, &attributes) == 0 && pthread_create(&thread, NULL, devices, w) == 0;
}

int pl_watch_main(int argc, char **argv) {
    struct watch *w = &watch;
    sigset_t asked;
    if (!read_options(argc, argv, &w->o)) {
        fprintf(stderr, "plimsoll watch: is what the gateway starts; it takes --period-ms 50 to 60000\n");
        return USAGE;
    }
    sigemptyset(&asked);
    sigaddset(&asked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &asked, NULL); /* before the other thread is there: it shall not get it */
    w->keeper = getppid();
    if (!pl_watch_writer_open(&w->page, w->o.page_fd, w->o.generation, w->o.boot) || !start_devices(w)) {
        fprintf(stderr, "plimsoll watch: page or thread: %s\n", strerror(errno));
        return SYSTEM;
    }
    for (;;) {
        look_at_host(w, now_ms());
        wait_for_period(w, &asked);
    }
}
