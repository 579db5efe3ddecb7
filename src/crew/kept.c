/* kept.c - what a service's next main must know beside its workers: replacements of the last hour, the one
 * under way, what an operator has set, and what a new worker takes, which the grown ones that it finds do not
 * tell. Kept by the keeper as "life:INDEX". Unreadable: begins anew. New fields at the end; times are
 * CLOCK_MONOTONIC, which goes on. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "crew/more.h"

enum { KEPT_VERSION = 1 };
struct kept {
    uint32_t version;
    uint32_t draining;
    char mode[16]; /* set by an operator; "" = it was not */
    struct pl_hour hour;
    uint32_t pad;
    /* the replacement */
    uint32_t active, waiting, now, ready_held;
    char reason[16], way[16];
    uint32_t slot, last_slot;
    uint64_t started_ms, from_generation, gap_from_ms, gap_longest_ms, expected_ms;
    uint64_t drain_ms, stop_ms, boot_ms;
    uint64_t measured_stop_ms;
    /* see struct pl_service_more; bytes */
    uint64_t new_bytes, new_device_bytes, fresh_bytes[PL_WATCH_GPUS], load_bytes[PL_WATCH_GPUS];
    uint32_t crowd_believed, crowd_sure;
};

void pl_kept_save(const struct pl_service *s) {
    char name[PL_WIRE_NAME_BYTES];
    const struct pl_service_more *o = s->more;
    const struct pl_replacement *r = &o->replacement;
    if (pl_depend_is(s)) return; /* the name is its parent's; what it was doing shows in its workers */
    struct kept k = { .version = KEPT_VERSION,
                      .draining = s->draining,
                      .hour = o->hour,
                      .active = r->active,
                      .waiting = r->waiting,
                      .now = r->now,
                      .ready_held = r->ready_held,
                      .slot = r->slot,
                      .last_slot = r->last_slot,
                      .started_ms = r->started_ms,
                      .from_generation = r->from_generation,
                      .gap_from_ms = r->gap_from_ms,
                      .gap_longest_ms = r->gap_longest_ms,
                      .expected_ms = r->expected_ms,
                      .drain_ms = r->gap.drain_ms,
                      .stop_ms = r->gap.stop_ms,
                      .boot_ms = r->gap.boot_ms,
                      .measured_stop_ms = o->stop_ms,
                      .new_bytes = o->new_bytes,
                      .new_device_bytes = o->new_device_bytes,
                      .crowd_believed = o->crowd_believed,
                      .crowd_sure = o->crowd_sure };
    memcpy(k.fresh_bytes, o->fresh_bytes, sizeof k.fresh_bytes);
    memcpy(k.load_bytes, o->load_bytes, sizeof k.load_bytes);
    memcpy(k.mode, o->operator_mode, sizeof k.mode);
    snprintf(k.reason, sizeof k.reason, "%s", pl_replace_reason_name(r->reason));
    snprintf(k.way, sizeof k.way, "%s", pl_replace_way_name(r->way));
    snprintf(name, sizeof name, "life:%u", s->index);
    pl_hold_text(s->crew, name, (const char *)&k, sizeof k);
}

static void take_replacement(struct pl_service *s, const struct kept *k) {
    enum pl_replace_reason reason = pl_replace_reason_of(k->reason);
    if (k->active == 0 || reason == PL_REPLACE_REASON_COUNT || k->slot == 0 || k->last_slot < k->slot) return;
    s->more->replacement = (struct pl_replacement){
        .active = true,
        .waiting = k->waiting != 0,
        .now = k->now != 0,
        .reason = reason,
        .way = strcmp(k->way, "handover") == 0 ? PL_REPLACE_HANDOVER : PL_REPLACE_OVERLAP,
        .slot = k->slot,
        .last_slot = k->last_slot,
        .started_ms = k->started_ms,
        .from_generation = k->from_generation,
        .gap_from_ms = k->gap_from_ms,
        .gap_longest_ms = k->gap_longest_ms,
        .expected_ms = k->expected_ms,
        .gap = { .drain_ms = k->drain_ms, .stop_ms = k->stop_ms, .boot_ms = k->boot_ms },
        .ready_held = k->ready_held != 0
    };
}

static void take_needs(struct pl_service_more *o, const struct kept *k) {
    o->new_bytes = k->new_bytes;
    o->new_device_bytes = k->new_device_bytes;
    o->crowd_believed = k->crowd_believed != 0;
    o->crowd_sure = k->crowd_sure != 0;
    memcpy(o->fresh_bytes, k->fresh_bytes, sizeof o->fresh_bytes);
    memcpy(o->load_bytes, k->load_bytes, sizeof o->load_bytes);
}

void pl_kept_reapply(struct pl_service *s) {
    const char *mode = s->more->operator_mode;
    struct pl_err err;
    if (mode[0] == '\0') return;
    if (pl_config_set(s->crew->app->config, s->index, "mode", mode, PL_FROM_OPERATOR, "plimsoll enforce",
                      &err)) {
        pl_depend_reconfigured(s);
        s->crew->hooks.described(s->crew->hooks.ctx, s);
    }
}

void pl_kept_load(struct pl_service *s, struct pl_held_list *held) {
    char name[PL_WIRE_NAME_BYTES];
    struct kept k = { 0 };
    struct pl_buf text;
    snprintf(name, sizeof name, "life:%u", s->index);
    int fd = pl_held_take(held, name);
    if (fd == -1) return;
    pl_buf_init(&text, 65536);
    if (pl_held_read(fd, &text) && text.len >= offsetof(struct kept, measured_stop_ms))
        memcpy(&k, text.data, text.len < sizeof k ? text.len : sizeof k);
    pl_buf_free(&text);
    if (k.version != KEPT_VERSION) return;
    k.mode[sizeof k.mode - 1] = k.reason[sizeof k.reason - 1] = k.way[sizeof k.way - 1] = '\0';
    s->draining = k.draining != 0;
    s->more->hour = k.hour;
    s->more->stop_ms = k.measured_stop_ms;
    take_needs(s->more, &k);
    take_replacement(s, &k);
    memcpy(s->more->operator_mode, k.mode, sizeof k.mode);
    pl_kept_reapply(s);
}

bool pl_service_set_mode(struct pl_service *s, const char *mode, struct pl_err *err) {
    struct pl_crew *c = s->crew;
    if (pl_depend_is(s))
        return PL_FAIL(err, PL_E_USAGE, "%s has the mode of %s", s->config->id, s->parent->config->id);
    if (!pl_config_set(c->app->config, s->index, "mode", mode, PL_FROM_OPERATOR, "plimsoll enforce", err))
        return false;
    pl_depend_reconfigured(s);
    snprintf(s->more->operator_mode, sizeof s->more->operator_mode, "%s", mode);
    c->hooks.described(c->hooks.ctx, s);
    pl_kept_save(s);
    return true;
}

void pl_service_drain(struct pl_service *s, bool drain) {
    struct pl_crew *c = s->crew;
    if (s->draining == drain) return;
    s->draining = drain;
    pl_kept_save(s);
    pl_log(c->app->log, PL_INFO, "drain.changed", F_STR("service", s->config->id), F_BOOL("draining", drain));
    pl_life_ready_changed(s);
    c->hooks.supply_changed(c->hooks.ctx, s);
}
