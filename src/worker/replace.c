#include "worker/replace.h"

#include <string.h>

enum {
    HOUR_MS = 3600000,
    HOLD_MOST_MS = 60000,
    LEFT_LEAST_MS = 1000,
    NEAR_BOOTS = 2,
};

static const struct {
    const char *name;
    enum pl_cfg_mode acts_from, near_from;
    unsigned rules;
} reasons[PL_REPLACE_REASON_COUNT] = {
#define X(sym, name, from, near, rules) { name, PL_CFG_MODE_##from, PL_CFG_MODE_##near, rules },
    PL_REPLACE_REASONS(X)
#undef X
};

const char *pl_replace_reason_name(enum pl_replace_reason r) {
    return (unsigned)r < PL_REPLACE_REASON_COUNT ? reasons[r].name : "unknown";
}

enum pl_replace_reason pl_replace_reason_of(const char *name) {
    for (int i = 0; i < PL_REPLACE_REASON_COUNT; i++)
        if (strcmp(reasons[i].name, name) == 0) return (enum pl_replace_reason)i;
    return PL_REPLACE_REASON_COUNT;
}

bool pl_replace_is(enum pl_replace_reason r, enum pl_replace_rule rule) {
    return (reasons[r].rules & (unsigned)rule) != 0;
}

bool pl_replace_listed(enum pl_replace_reason r, const struct pl_strings *when) {
    if (!pl_replace_is(r, PL_REPLACE_LISTED)) return true;
    for (size_t i = 0; i < when->count; i++)
        if (strcmp(when->at[i], reasons[r].name) == 0) return true;
    return false;
}

const char *pl_replace_way_name(enum pl_replace_way w) {
    static const char *const names[] = { "overlap", "handover", "restart" };
    return (unsigned)w < sizeof names / sizeof *names ? names[w] : "unknown";
}

enum pl_replace_way pl_replace_way_of(enum pl_cfg_replace_mode mode, const struct pl_replace_room *room) {
    if (mode == PL_CFG_REPLACE_MODE_HANDOVER) return PL_REPLACE_HANDOVER;
    if (mode == PL_CFG_REPLACE_MODE_OVERLAP || room->max == 0 || room->need == 0) return PL_REPLACE_OVERLAP;
    uint64_t free = room->max > room->used ? room->max - room->used : 0;
    return free < room->need ? PL_REPLACE_HANDOVER : PL_REPLACE_OVERLAP;
}

/* --- the verdict */

const char *pl_replace_held_name(enum pl_replace_held h) {
    static const char *const names[] = { "cap", "device", "gap", "other" };
    return (unsigned)h < sizeof names / sizeof *names ? names[h] : "unknown";
}

static bool is_near(const struct pl_replace_case *c) {
    return c->boot_ms != 0 && c->forecast_ms / NEAR_BOOTS < c->boot_ms;
}

static bool mode_lets(const struct pl_replace_case *c) {
    return c->mode >= (is_near(c) ? reasons[c->reason].near_from : reasons[c->reason].acts_from);
}

static bool gap_holds(const struct pl_replace_case *c) {
    if (c->gap_ms <= c->hold_ms || !c->flowing || is_near(c)) return false;
    return pl_replace_is(c->reason, PL_REPLACE_OURS) || !c->now;
}

enum pl_replace_verdict pl_replace_judge(const struct pl_replace_case *c, enum pl_replace_held *why) {
    bool ours = pl_replace_is(c->reason, PL_REPLACE_OURS), held = true;
    if (c->under_way)
        *why = PL_HELD_BY_OTHER;
    else if (c->device_busy)
        *why = PL_HELD_BY_DEVICE;
    else if (c->silent) /* it serves nobody: to hold it back would only be longer silence */
        held = false;
    else if (ours && c->in_hour >= c->max_per_hour)
        *why = PL_HELD_BY_CAP;
    else if (gap_holds(c))
        *why = PL_HELD_BY_GAP;
    else
        held = false;
    if (mode_lets(c)) return held ? PL_REPLACE_HELD : PL_REPLACE_GO;
    return held ? PL_REPLACE_NOT : PL_REPLACE_WOULD;
}

/* --- the gap */

uint64_t pl_gap_expected_ms(const struct pl_gap *g) {
    return g->boot_ms != 0 ? g->drain_ms + g->stop_ms + g->boot_ms : 0;
}

/* Half of what it is over, when it is late. */
static uint64_t part_left(uint64_t expected_ms, uint64_t age_ms) {
    return age_ms < expected_ms ? expected_ms - age_ms : (age_ms - expected_ms) / 2;
}

uint64_t pl_gap_left_ms(const struct pl_gap *g, enum pl_gap_phase phase, uint64_t age_ms) {
    uint64_t left = 0;
    if (g->boot_ms == 0) return 0;
    switch (phase) {
    case PL_GAP_DRAIN:
        left = part_left(g->drain_ms, age_ms) + g->stop_ms + g->boot_ms;
        break;
    case PL_GAP_STOP:
        left = part_left(g->stop_ms, age_ms) + g->boot_ms;
        break;
    case PL_GAP_BOOT:
        left = part_left(g->boot_ms, age_ms);
        break;
    }
    return left > LEFT_LEAST_MS ? left : LEFT_LEAST_MS;
}

uint64_t pl_hold_ms(int64_t configured_ms, uint64_t boot_ms) {
    if (configured_ms != PL_CFG_AUTO) return (uint64_t)configured_ms;
    uint64_t ms = boot_ms < HOLD_MOST_MS ? boot_ms + boot_ms / 2 : HOLD_MOST_MS;
    return ms < HOLD_MOST_MS ? ms : HOLD_MOST_MS;
}

uint64_t pl_drain_expected_ms(uint32_t in_flight, uint64_t mean_ms, uint64_t limit_ms) {
    if (in_flight == 0) return 0;
    return mean_ms < limit_ms ? mean_ms : limit_ms;
}

bool pl_is_flowing(uint32_t in_flight, uint64_t since_last_ms, uint64_t gap_ms) {
    return in_flight > 0 || since_last_ms < gap_ms;
}

/* --- limits of one worker */

/* Finaliser of splitmix64: neighbours become strangers. */
static uint64_t scatter(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t pl_max_requests_of(int64_t max_requests, int64_t jitter, uint64_t seed) {
    if (max_requests <= 0) return 0;
    uint64_t spread = jitter == PL_CFG_AUTO ? (uint64_t)max_requests / 10 : (uint64_t)jitter;
    return (uint64_t)max_requests + scatter(seed) % (spread + 1);
}

uint64_t pl_host_limit_bytes(struct pl_amount a, uint64_t memory_max_bytes, uint32_t workers) {
    if (!a.share) return (uint64_t)a.value;
    uint64_t part = workers > 0 ? memory_max_bytes / workers : 0;
    return part / 10000 * (uint64_t)a.value + part % 10000 * (uint64_t)a.value / 10000;
}

uint64_t pl_silent_after_ms(int64_t silent_after_ms, int64_t timeout_ms) {
    return (uint64_t)(silent_after_ms > 2 * timeout_ms ? silent_after_ms : 2 * timeout_ms);
}

/* --- the cap */

void pl_hour_add(struct pl_hour *h, uint64_t now_ms) {
    h->at_ms[h->next % PL_HOUR_TIMES] = now_ms != 0 ? now_ms : 1;
    h->next = (h->next + 1) % PL_HOUR_TIMES;
}

static bool within(uint64_t at_ms, uint64_t now_ms) {
    return at_ms != 0 && at_ms <= now_ms && now_ms - at_ms < HOUR_MS;
}

uint32_t pl_hour_count(const struct pl_hour *h, uint64_t now_ms) {
    uint32_t n = 0;
    for (size_t i = 0; i < PL_HOUR_TIMES; i++) n += within(h->at_ms[i], now_ms);
    return n;
}

uint64_t pl_hour_free_at_ms(const struct pl_hour *h, uint32_t max, uint64_t now_ms) {
    uint32_t count = pl_hour_count(h, now_ms);
    if (max == 0 || count < max) return 0;
    /* The ring is in the order of time: the (count - max + 1)-th of the hour's leaves it last. */
    uint32_t leave = count - max + 1;
    for (size_t i = 0; i < PL_HOUR_TIMES; i++) {
        uint64_t at = h->at_ms[(h->next + i) % PL_HOUR_TIMES];
        if (within(at, now_ms) && --leave == 0) return at + HOUR_MS;
    }
    return 0;
}
