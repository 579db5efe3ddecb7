/* life.c - a worker's life: every change of state happens in set_state(), with all that follows from it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "crew/accounts.h"
#include "crew/books.h"
#include "crew/cells.h"
#include "crew/devices.h"
#include "crew/tail.h"
#include "crew/zygote.h"
#include "sample/oom.h"

enum { HEARS_MS = 20 }; /* until another main surely sends it nothing new */

static struct pl_logger *log_of(const struct pl_worker *w) { return w->service->crew->app->log; }

struct pl_slot *pl_life_slot(struct pl_service *s, uint32_t slot) {
    struct pl_service_more *o = s->more;
    if (slot > o->slot_room) {
        struct pl_slot *more = realloc(o->slots, slot * sizeof *more);
        if (more == NULL) return &o->slots[0]; /* the first always exists */
        memset(more + o->slot_room, 0, (slot - o->slot_room) * sizeof *more);
        o->slots = more;
        o->slot_room = slot;
    }
    return &o->slots[slot - 1];
}

/* One until the service has told how many it wants. */
uint32_t pl_life_slots(const struct pl_service *s) {
    if (!s->described || s->kind == PL_KIND_REMOTE) return 1;
    if (pl_depend_is(s) && !pl_depend_wanted(s)) return 0;
    if (s->config->workers != PL_CFG_CPU_COUNT) return (uint32_t)s->config->workers;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus > 0 ? (uint32_t)cpus : 1;
}

struct pl_worker *pl_life_new(struct pl_service *s, uint32_t slot) {
    struct pl_worker *w = calloc(1, sizeof *w);
    struct pl_worker_more *o = calloc(1, sizeof *o);
    if (w == NULL || o == NULL) {
        free(w);
        free(o);
        return NULL;
    }
    w->service = s;
    w->slot = slot;
    w->more = o;
    pl_buf_init(&o->partial, PL_CREW_LINE_BYTES);
    pl_buf_init(&o->unsent, (size_t)1 << 20);
    pl_buf_init(&o->metrics_text, (size_t)4 << 20);
    struct pl_worker **at = &s->workers;
    while (*at != NULL) at = &(*at)->next;
    *at = w;
    return w;
}

/* --- what follows from a state */

/* What the launcher stamped on the page, told once. */
static void read_stamps(struct pl_worker *w) {
    struct pl_page_counters p;
    struct pl_timeline *t = &w->more->time;
    if (t->loaded != 0 || !pl_page_counters(&w->page, &p)) return;
    if (t->imported == 0 && p.imported_ms != 0) {
        t->imported = p.imported_ms;
        pl_log(log_of(w), PL_INFO, "worker.imported", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation),
               F_INT("since_spawn_ms", (int64_t)(t->imported - t->spawned)));
    }
    if (p.loaded_ms != 0) {
        t->loaded = p.loaded_ms;
        pl_log(log_of(w), PL_INFO, "worker.loaded", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation),
               F_INT("since_spawn_ms", (int64_t)(t->loaded - t->spawned)));
    }
}

uint64_t pl_life_drain_ms(const struct pl_service *s) {
    const struct pl_service_config *c = s->config;
    return (uint64_t)(c->replace_drain_ms != PL_CFG_AUTO ? c->replace_drain_ms : c->traffic_timeout_ms);
}

/* A stream lasts as long as it lasts: it is given more time than a request. */
static uint64_t drain_until(const struct pl_worker *w) {
    bool set = w->service->config->replace_drain_ms != PL_CFG_AUTO;
    uint64_t most = pl_life_drain_ms(w->service);
    if (!set && w->streams > 0 && most < PL_CREW_STREAM_DRAIN_MS) most = PL_CREW_STREAM_DRAIN_MS;
    return w->more->drain_from_ms + most;
}

/* One that shares its socket may have to be told to end before it could leave it: it drains after SIGTERM. */
uint64_t pl_life_patience_ms(const struct pl_service *s) {
    uint64_t stop_ms = (uint64_t)s->config->stop_timeout_ms;
    return pl_depend_is(s) ? stop_ms + pl_life_drain_ms(s) : stop_ms;
}

void pl_life_order_stop(struct pl_worker *w) {
    if (w->service->kind == PL_KIND_REMOTE) { /* it is not ours to stop: we look away */
        const struct pl_wire_exit nothing = { 0 };
        pl_life_gone(w, &nothing);
        return;
    }
    if (w->generation == 0 || w->exited) return; /* not spawned yet: on_spawned comes back here */
    bool silent = w->more->hung_ms != 0;         /* it would not hear a SIGTERM */
    bool drains = w->more->was_ready && !w->service->crew->stopping;
    pl_crew_signal(w->service->crew, w->generation, silent ? SIGKILL : SIGTERM,
                   drains ? pl_life_patience_ms(w->service) : (uint64_t)w->service->config->stop_timeout_ms);
    w->more->stopped_ms = pl_crew_now(w->service->crew);
    pl_log(log_of(w), PL_INFO, "worker.stopping", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation),
           F_STR("signal", silent ? "SIGKILL" : "SIGTERM"));
}

/* A main that was upgraded away may send it what its last connections bring: it hears of it before the end.
 */
static void withdraw(const struct pl_worker *w) {
    struct pl_crew *c = w->service->crew;
    if (c->other_main && w->generation != 0 && !w->exited) pl_crew_signal(c, w->generation, 0, 0);
}

static void enter_loading(struct pl_worker *w) { pl_probe_start(w); }

static void enter_warming(struct pl_worker *w) {
    struct pl_service *s = w->service, *family = s->parent != NULL ? s->parent : s;
    read_stamps(w);
    w->more->time.socket = pl_crew_now(s->crew);
    if (family->described && w->more->deploying && !family->more->deployed) {
        char name[PL_WIRE_NAME_BYTES];
        family->more->deployed = true;
        snprintf(name, sizeof name, "deployed:%u", s->index);
        pl_hold_text(s->crew, name, "1", 1);
        if (family->more->description->deployment_hooks > 0)
            pl_log(log_of(w), PL_INFO, "deployment.hooks", F_STR("service", s->config->id),
                   F_INT("worker", w->slot), F_INT("generation", w->generation),
                   F_INT("hooks", family->more->description->deployment_hooks));
    }
    pl_log(log_of(w), PL_INFO, "worker.socket", F_STR("service", s->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation),
           F_INT("since_spawn_ms", w->more->time.socket - w->more->time.spawned));
    pl_warm_start(w);
}

/* The slot's last worker died; this one is what came of it. */
static void tell_restarted(struct pl_worker *w, uint64_t now) {
    struct pl_service *s = w->service;
    struct pl_slot *slot = pl_life_slot(s, w->slot);
    if (slot->down_since_ms == 0) return;
    uint64_t took = now - slot->down_since_ms;
    slot->down_since_ms = 0;
    pl_replace_counted(s, slot->restart_for, PL_REPLACE_RESTART, took);
    pl_log(log_of(w), PL_INFO, "worker.replaced", F_STR("service", s->config->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_STR("reason", pl_replace_reason_name(slot->restart_for)),
           F_STR("mode", pl_replace_way_name(PL_REPLACE_RESTART)), F_INT("took_ms", took),
           F_INT("gap_ms", pl_service_ready_count(s) == 0 ? took : 0));
}

static void enter_ready(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_worker_more *o = w->more;
    uint64_t now = pl_crew_now(s->crew);
    const struct pl_service_config *c = s->config;
    o->max_requests = pl_max_requests_of(c->replace_max_requests, c->replace_max_requests_jitter,
                                         s->crew->app->keeper_boot ^ w->generation);
    o->was_ready = true;
    pl_host_room_ready(w);
    o->ready_from_ms = o->proof_ms = now;
    pl_canary_ready(w);
    o->probe_at_ms = now + (uint64_t)s->config->probe_interval_ms;
    if (!o->adopted) {
        o->time.ready = now;
        if (s->kind != PL_KIND_REMOTE)
            s->boot_ms = pl_boot_learn_ms(s->boot_ms, now - o->time.spawned - o->held_ms);
        pl_life_slot(s, w->slot)->failed_starts = 0;
        pl_log(log_of(w), PL_INFO, "worker.ready", F_STR("service", s->config->id), F_INT("worker", w->slot),
               F_INT("generation", w->generation), F_INT("after_ms", now - o->time.spawned),
               F_BOOL("warm", o->warm), F_REAL("first_ms", (double)o->time.first_us / 1000),
               F_REAL("settled_ms", (double)o->time.settled_us / 1000),
               F_INT("warmup_requests", o->warmup.done), F_INT("peak_rss_bytes", o->peak.rss));
        pl_caches_ready(w);
    }
    s->was_ready = true;
    s->more->failed_since_ms = 0;
    tell_restarted(w, now);
    w->routable = o->says_ready;
    pl_room_ready(w);
    pl_note_leave(w);
    pl_explain_ready(w);
    pl_replace_ready(w);
    pl_gap_meter(s, now);
    pl_life_ready_changed(s);
    s->crew->hooks.supply_changed(s->crew->hooks.ctx, s);
}

static void enter_draining(struct pl_worker *w) {
    const struct pl_service_config *c = w->service->config;
    w->more->drain_from_ms = pl_crew_now(w->service->crew);
    pl_note_leave(w);
    pl_log(log_of(w), PL_INFO, "worker.draining", F_STR("service", c->id), F_INT("worker", w->slot),
           F_INT("generation", w->generation), F_INT("in_flight", w->in_flight));
    if (pl_depend_is(w->service)) pl_control_drain(w);
}

static void enter_stopping(struct pl_worker *w, enum pl_worker_event ev) {
    w->more->timed_out = ev == PL_WEV_START_TIMEOUT;
    if (ev != PL_WEV_EXITED) w->more->ordered = true;
    pl_probe_stop(w);
    pl_canary_stop(w);
    pl_warm_stop(w);
    pl_scrape_stop(w);
    pl_engine_stop(w);
    if (ev != PL_WEV_EXITED) pl_life_order_stop(w);
}

static void set_state(struct pl_worker *w, enum pl_worker_event ev, enum pl_worker_state to) {
    struct pl_crew *c = w->service->crew;
    enum pl_worker_state from = w->state;
    if (from == to) return;
    w->state = to;
    pl_log(log_of(w), PL_DEBUG, "worker.state", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation),
           F_STR("from", pl_worker_state_name(from)), F_STR("to", pl_worker_state_name(to)),
           F_STR("cause", pl_worker_event_name(ev)));
    if (from == PL_WORKER_READY) {
        w->routable = false;
        c->hooks.unroutable(c->hooks.ctx, w);
        withdraw(w);
        pl_life_ready_changed(w->service);
    }
    if (to == PL_WORKER_LOADING) enter_loading(w);
    if (to == PL_WORKER_WARMING) enter_warming(w);
    if (to == PL_WORKER_READY) enter_ready(w);
    if (to == PL_WORKER_DRAINING) enter_draining(w);
    if (to == PL_WORKER_STOPPING) enter_stopping(w, ev);
    pl_meters_state(w);
}

void pl_life_feed(struct pl_worker *w, enum pl_worker_event ev) {
    enum pl_worker_state to;
    if (pl_worker_next(w->state, ev, &to)) {
        set_state(w, ev, to);
        return;
    }
    pl_log(log_of(w), PL_DEBUG, "worker.state", F_STR("service", w->service->config->id),
           F_INT("worker", w->slot), F_INT("generation", w->generation),
           F_STR("from", pl_worker_state_name(w->state)), F_STR("to", "same"),
           F_STR("cause", pl_worker_event_name(ev)));
}

/* --- the end */

/* When the gateway has judged all that was in flight, so that the event can say what the death has cost. */
static void tell_death(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_worker_more *o = w->more;
    struct pl_metrics *m = s->crew->app->metrics;
    char id[32];
    const char *cause = pl_cause_name(o->cause);
    snprintf(id, sizeof id, "d%llu", (unsigned long long)w->generation);
    if (o->was_ready) {
        pl_series_add(pl_series(m, PL_M_WORKER_DEATHS_TOTAL, s->config->id, cause), 1);
        const struct pl_field fields[] = {
            F_STR("service", s->config->id),
            F_INT("worker", w->slot),
            F_INT("generation", w->generation),
            F_STR("death", id),
            F_STR("cause", cause),
            F_STR("scope", o->cause == PL_CAUSE_KILLED_BY_KERNEL_OOM ? "worker" : NULL),
            F_INT("status", o->exit.status),
            F_STR("sentence", o->end_sentence),
            F_INT("in_handlers", w->lost_in_handlers),
            F_STR("oom_verdict", o->oom_verdict),
            F_INT("requested_bytes", o->oom_requested),
        };
        size_t count = sizeof fields / sizeof *fields - (o->oom_requested == PL_OOM_UNKNOWN);
        pl_log_emit(log_of(w), PL_ERROR, "worker.death", fields, count);
    } else {
        if (o->way == PL_WAY_STANDBY || o->way == PL_WAY_FORK)
            pl_zygote_unfit(w, "a worker that it forked did not become ready");
        pl_series_add(pl_series(m, PL_M_START_FAILURES_TOTAL, s->config->id, cause), 1);
        pl_log(log_of(w), PL_ERROR, "worker.start_failed", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation), F_STR("cause", cause),
               F_STR("scope", o->cause == PL_CAUSE_KILLED_BY_KERNEL_OOM ? "worker" : NULL),
               F_INT("status", o->exit.status), F_STR("sentence", o->end_sentence),
               F_STR("last_line", o->last_line));
    }
    snprintf(s->more->last_death, sizeof s->more->last_death, "%s", o->end_sentence);
    s->more->last_cause = o->cause;
    s->more->last_death_generation = w->generation;
    s->more->last_death_wall_ms = pl_wall_ms(s->crew->app->clock);
}

static const char *program_of(const struct pl_service *s) {
    bool own = s->config->command.count > 0;
    return own ? s->config->command.at[0] : s->config->python;
}

void pl_life_explain(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    char line[512] = "";
    struct pl_buf text;
    pl_buf_init(&text, (size_t)1 << 20);
    if (o->tail != NULL) pl_tail_text(o->tail, UINT32_MAX, 0, &text);
    pl_death_last_line(text.data != NULL ? text.data : "", text.len, line, sizeof line);
    struct pl_oom oom;
    struct pl_death_group group = { .known = false };
    bool full = pl_death_oom(text.data != NULL ? text.data : "", text.len, line, sizeof line, &oom);
    o->oom_requested = full ? oom.requested : PL_OOM_UNKNOWN;
    o->oom_verdict = full ? pl_oom_verdict_name(pl_oom_judge(&oom)) : NULL;
    if (!o->ordered) pl_host_death(w, &group);
    const struct pl_death death = { .wait_status = o->exit.status,
                                    .oom = full ? &oom : NULL,
                                    .group = &group,
                                    .xid = pl_devices_xid(w, pl_crew_now(w->service->crew)),
                                    .exec_step = o->exit.exec_step,
                                    .exec_errno = o->exit.exec_errno,
                                    .was_ready = o->was_ready,
                                    .timed_out = o->timed_out,
                                    .ordered = o->ordered,
                                    .lived_ms = pl_crew_now(w->service->crew) - o->time.spawned,
                                    .silent_ms = o->hung_ms,
                                    .last_line = line,
                                    .command = w->service->kind == PL_KIND_COMMAND,
                                    .engine_died = w->service->kind == PL_KIND_COMMAND && text.data != NULL &&
                                                   pl_death_engine_died(text.data, text.len),
                                    .program = program_of(w->service),
                                    .folder = w->service->config->working_dir,
                                    .warmup = o->warm_failed ? o->problem : NULL };
    o->cause = pl_death_explain(&death, o->end_sentence, sizeof o->end_sentence);
    if (o->never_spawned) {
        o->cause = PL_CAUSE_EXEC_FAILED;
        snprintf(o->end_sentence, sizeof o->end_sentence, "could not be started: %s", o->problem);
    }
    snprintf(o->last_line, sizeof o->last_line, "%s", line);
    pl_buf_free(&text);
}

/* True if nobody asked for this end. A start that took too long or did not warm up was ended by us, and is a
 * failure; so is a silence. */
static bool is_failure(const struct pl_worker_more *o) {
    return (!o->ordered || o->timed_out || o->warm_failed || o->hung_ms != 0) && !o->fallback;
}

/* Ordered or not: nobody asked for one that does not end. */
void pl_life_stuck(struct pl_worker *w) {
    struct pl_worker_more *o = w->more;
    if (o->told) return;
    o->told = true;
    o->cause = PL_CAUSE_STUCK;
    snprintf(o->end_sentence, sizeof o->end_sentence,
             "does not end, 30 s after SIGKILL: look for a driver fault, or a debugger that holds it; its "
             "place stays "
             "empty until it does");
    tell_death(w);
}

static void tell_end(struct pl_worker *w) {
    if (w->more->told || w->in_flight > 0 || !is_failure(w->more)) return;
    w->more->told = true;
    tell_death(w);
}

void pl_life_exited(struct pl_worker *w, const struct pl_wire_exit *e) {
    struct pl_crew *c = w->service->crew;
    if (w->exited) return;
    w->exited = true;
    w->more->exit = *e;
    pl_output_read(w);
    pl_devices_exited(w);
    pl_life_feed(w, PL_WEV_EXITED);
    if (is_failure(w->more)) pl_life_explain(w);
    struct pl_page_counters p;
    if (pl_depend_is(w->service) && pl_page_counters(&w->page, &p)) w->lost_in_handlers = p.in_flight;
    c->hooks.exited(c->hooks.ctx, w);
}

static enum pl_worker_event after_the_end(struct pl_worker *w) {
    struct pl_service *s = w->service;
    struct pl_worker_more *o = w->more;
    struct pl_slot *slot = pl_life_slot(s, w->slot);
    uint64_t now = pl_crew_now(s->crew);
    if (o->fallback && o->replaces != NULL) {
        snprintf(o->end_sentence, sizeof o->end_sentence,
                 "the service is of another kind now: restart it again");
        pl_replace_lost(w);
    }
    if (!is_failure(o) || s->crew->stopping) return PL_WEV_EMPTY;
    slot->last_cause = o->cause;
    if (pl_replace_lost(w)) return PL_WEV_EMPTY; /* the old one goes on serving: no retry here */
    if (o->was_ready && !o->replaced) {
        slot->down_since_ms = now;
        slot->restart_for = o->hung_ms != 0 ? PL_REPLACE_FOR_HANG : PL_REPLACE_FOR_CRASH;
    }
    uint64_t lived = o->was_ready ? now - o->ready_from_ms : 0;
    switch (pl_after_death(o->was_ready, lived, slot->failed_starts + !o->was_ready,
                           (uint32_t)s->config->backoff_attempts)) {
    case PL_RESTART_NOW:
        if (!o->was_ready) slot->failed_starts++;
        return PL_WEV_EMPTY;
    case PL_RESTART_LATER: {
        slot->failed_starts++;
        uint64_t pause = pl_backoff_ms((uint64_t)s->config->backoff_initial_ms,
                                       (uint64_t)s->config->backoff_max_ms, slot->failed_starts);
        slot->retry_at_ms = now + pause;
        pl_log(log_of(w), PL_ERROR, "worker.backoff", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_INT("delay_ms", pause), F_INT("attempt", slot->failed_starts));
        return PL_WEV_WAIT;
    }
    case PL_GIVE_UP:
    default:
        slot->failed_starts++;
        slot->failed = true;
        pl_log(log_of(w), PL_ERROR, "worker.failed", F_STR("service", s->config->id),
               F_INT("worker", w->slot), F_INT("attempts", slot->failed_starts),
               F_STR("cause", pl_cause_name(o->cause)), F_STR("sentence", o->end_sentence));
        return PL_WEV_GIVE_UP;
    }
}

void pl_life_gone(struct pl_worker *w, const struct pl_wire_exit *e) {
    char name[PL_WIRE_NAME_BYTES];
    struct pl_crew *c = w->service->crew;
    if (w->more->keeper_gone) return;
    if (!w->exited) pl_life_exited(w, e);
    w->more->gone_waits = !pl_devices_returned(w, pl_crew_now(c));
    if (w->more->gone_waits) { /* its memory on a GPU is still taken: the tick asks again */
        w->more->gone_exit = *e;
        return;
    }
    pl_output_done(w);
    pl_control_close(w);
    pl_explain_stop(w);
    w->more->keeper_gone = true;
    w->more->gone_ms = pl_crew_now(c);
    if (w->more->ordered && !is_failure(w->more) && w->more->stopped_ms != 0)
        w->service->more->stop_ms =
            pl_boot_learn_ms(w->service->more->stop_ms, w->more->gone_ms - w->more->stopped_ms);
    if (w->generation != 0) {
        snprintf(name, sizeof name, "ctl:%llu", (unsigned long long)w->generation);
        pl_hold(c, name, -1);
        pl_log(log_of(w), PL_INFO, "worker.gone", F_STR("service", w->service->config->id),
               F_INT("worker", w->slot), F_INT("generation", w->generation),
               F_INT("took_ms", w->more->stopped_ms != 0 ? pl_crew_now(c) - w->more->stopped_ms : 0));
        if (e->strays > 0)
            pl_log(log_of(w), PL_WARN, "group.leftover", F_STR("service", w->service->config->id),
                   F_INT("worker", w->slot), F_INT("generation", w->generation), F_INT("ended", e->strays));
    }
    tell_end(w);
    pl_life_feed(w, after_the_end(w));
    pl_life_tend(w->service, pl_crew_now(c));
    c->hooks.supply_changed(c->hooks.ctx, w->service);
}

/* The process is gone and the gateway holds nothing of it: give back what was its. */
static void let_go(struct pl_worker *w) {
    struct pl_crew *c = w->service->crew;
    struct pl_wire_message m;
    c->hooks.gone(c->hooks.ctx, w);
    if (w->generation != 0) {
        pl_wire_init(&m, PL_WIRE_FORGET, sizeof m.forget, 0);
        m.forget.generation = w->generation;
        pl_link_order(c->link, &m, NULL, NULL);
    }
    pl_accounts_take(w, pl_crew_now(c)); /* the last ones */
    pl_accounts_free(w);
    pl_cells_free(w);
    pl_explain_free(w);
    pl_lane_free(w);
    pl_books_free(w);
    if (w->page.at != NULL) munmap((void *)(uintptr_t)w->page.at, w->more->page_bytes);
    w->page = (struct pl_page){ 0 };
    if (w->more->page_fd > 0) close(w->more->page_fd);
    w->more->page_fd = 0;
    pl_output_free(w);
    if (w->more->id[0] != '\0') pl_spawn_clean(w);
    w->more->let_go = true;
}

void pl_life_release(struct pl_worker *w) {
    struct pl_service *s = w->service;
    bool ended = w->more->keeper_gone || (w->generation == 0 && w->state == PL_WORKER_GONE);
    if (!ended || w->in_flight > 0 || !pl_output_done(w)) return;
    if (!w->more->let_go) {
        tell_end(w);
        let_go(w);
    }
    if (w->state != PL_WORKER_GONE || w->more->samples_loading) return;
    pl_meters_state(w);
    for (struct pl_worker **at = &s->workers; *at != NULL; at = &(*at)->next) {
        if (*at != w) continue;
        *at = w->next;
        break;
    }
    pl_replace_forget(w);
    pl_samples_free(w->more->samples);
    pl_buf_free(&w->more->metrics_text);
    free(w->more->room);
    free(w->more);
    free(w);
}

/* --- drain */

static bool has_elsewhere(const struct pl_worker *w) {
    const struct pl_crew *c = w->service->crew;
    return c->other_main && (c->hooks.elsewhere == NULL || c->hooks.elsewhere(c->hooks.ctx, w));
}

bool pl_life_drained(struct pl_worker *w) {
    struct pl_page_counters p;
    if (w->in_flight > 0 || w->more->zombies > 0) return false;
    if (w->service->crew->other_main && pl_crew_now(w->service->crew) < w->more->drain_from_ms + HEARS_MS)
        return false;
    if (pl_depend_is(w->service))
        return w->more->left_socket && (!pl_page_counters(&w->page, &p) || p.tasks == 0);
    if (!pl_page_counters(&w->page, &p)) return !has_elsewhere(w);
    return p.in_flight == 0 && p.tasks == 0;
}

/* --- the difference between what is and what should be */

static bool occupied(const struct pl_service *s, uint32_t slot) {
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot == slot && w->state != PL_WORKER_GONE && !w->more->replaced) return true;
    return false;
}

void pl_life_give_time(struct pl_worker *w) {
    const struct pl_service *s = w->service;
    int64_t limit = s->config->start_timeout_ms;
    w->more->start_until_ms =
        pl_crew_now(s->crew) + (limit == PL_CFG_AUTO ? pl_start_timeout_ms(s->boot_ms) : (uint64_t)limit);
}

static void start_in(struct pl_service *s, uint32_t slot, struct pl_worker *replaces) {
    struct pl_err err;
    struct pl_worker *w = pl_life_new(s, slot);
    if (w == NULL) return; /* the next tick tries again */
    w->more->replaces = replaces;
    w->more->time.spawned = pl_crew_now(s->crew); /* nearly: who waits is judged before it is */
    pl_life_give_time(w);
    if (s->kind == PL_KIND_REMOTE) w->more->start_until_ms = UINT64_MAX;
    pl_life_feed(w, PL_WEV_START);
    pl_room_spawning(w);
    if (pl_host_room_allows(s, &err) && pl_spawn(w, &err)) return;
    snprintf(w->more->problem, sizeof w->more->problem, "%s", err.msg);
    w->more->never_spawned = true;
    struct pl_wire_exit e = { 0 };
    pl_life_exited(w, &e);
    pl_life_gone(w, &e);
}

void pl_life_successor(struct pl_service *s, struct pl_worker *old) { start_in(s, old->slot, old); }

void pl_life_tend(struct pl_service *s, uint64_t now) {
    (void)now;
    if (s->crew->stopping || s->crew->adopting || s->crew->resting) return;
    for (uint32_t slot = 1; slot <= pl_life_slots(s); slot++)
        if (!occupied(s, slot) && pl_host_room_is_free(s, slot)) start_in(s, slot, NULL);
    for (struct pl_worker *w = s->workers; w != NULL; w = w->next)
        if (w->slot > pl_life_slots(s) && w->state == PL_WORKER_READY) pl_life_feed(w, PL_WEV_REPLACE);
}

static void tick_worker(struct pl_worker *w, uint64_t now) {
    struct pl_slot *slot = pl_life_slot(w->service, w->slot);
    if (w->more->gone_waits) {
        const struct pl_wire_exit e = w->more->gone_exit;
        pl_life_gone(w, &e);
    }
    if (!w->more->keeper_gone) pl_output_read(w);
    read_stamps(w);
    pl_depend_tick(w, now);
    switch (w->state) {
    case PL_WORKER_SPAWNING:
    case PL_WORKER_LOADING:
    case PL_WORKER_WARMING:
        if (now >= w->more->start_until_ms && !pl_depend_waits(w)) pl_life_feed(w, PL_WEV_START_TIMEOUT);
        break;
    case PL_WORKER_DRAINING:
        if (pl_life_drained(w))
            pl_life_feed(w, PL_WEV_DRAINED);
        else if (now >= drain_until(w))
            pl_life_feed(w, PL_WEV_DRAIN_TIMEOUT);
        break;
    case PL_WORKER_BACKOFF:
        if (now >= slot->retry_at_ms) pl_life_feed(w, PL_WEV_RETRY);
        break;
    default:
        break;
    }
    pl_probe_tick(w, now);
    pl_canary_tick(w, now);
    pl_scrape_tick(w, now);
    pl_engine_tick(w, now);
}

void pl_life_tick(struct pl_crew *c, uint64_t now) {
    for (size_t i = 0; i < c->every_count; i++) {
        struct pl_service *s = c->every[i];
        for (struct pl_worker *w = s->workers, *next; w != NULL; w = next) {
            next = w->next;
            tick_worker(w, now);
        }
        for (struct pl_worker *w = s->workers, *next; w != NULL; w = next) {
            next = w->next;
            pl_life_release(w);
        }
        pl_replace_tick(s, now);
        pl_life_tend(s, now);
    }
}

/* --- readiness of the service */

void pl_life_ready_changed(struct pl_service *s) {
    struct pl_service_more *o = s->more;
    bool ready = pl_service_ready(s);
    if (s->crew->left) return; /* another main says how it is */
    if (o->ready_told && o->ready_was == ready) return;
    bool first = !o->ready_told;
    o->ready_told = true;
    o->ready_was = ready;
    pl_series_set(pl_series(s->crew->app->metrics, PL_M_READY, s->config->id), ready);
    if (first && !ready) return;
    pl_log(s->crew->app->log, ready ? PL_INFO : PL_WARN, "ready.changed", F_STR("service", s->config->id),
           F_BOOL("ready", ready));
}
