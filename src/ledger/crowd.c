#include "ledger/crowd.h"

enum {
    BOOT_UNKNOWN_MS = 60000,
    NEWS_MS = 3000, /* device, guard and budget are looked at once a second each */
    LIVES = 3,      /* one that is full again sooner than so many replacements take has helped little */
    AHEAD = 3,      /* replacements: what is further off may come to rest before */
    AHEAD_SURE = 20,
};
#define GROWN (24ull * 1024 * 1024) /* less is no growth: ledger/rule.h */

/* --- rise */

void pl_rise_add(struct pl_rise *r, uint64_t bytes, uint64_t every_ms, uint64_t now_ms) {
    if (r->at_ms[2] != 0 && now_ms - r->at_ms[2] < every_ms) return;
    for (int i = 0; i < 2; i++) {
        r->at_ms[i] = r->at_ms[i + 1];
        r->bytes[i] = r->bytes[i + 1];
    }
    r->at_ms[2] = now_ms;
    r->bytes[2] = bytes;
}

static double between(const struct pl_rise *r, int i) {
    if (r->at_ms[i] == 0 || r->at_ms[i + 1] <= r->at_ms[i] || r->bytes[i + 1] <= r->bytes[i]) return 0;
    return (double)(r->bytes[i + 1] - r->bytes[i]) / (double)(r->at_ms[i + 1] - r->at_ms[i]);
}

double pl_rise_per_ms(const struct pl_rise *r) {
    double before = between(r, 0), after = between(r, 1);
    return before < after ? before : after;
}

/* --- the verdict */

uint64_t pl_crowd_replace_ms(uint64_t boot_ms) {
    uint64_t boot = boot_ms != 0 ? boot_ms : BOOT_UNKNOWN_MS;
    return boot + boot / 2 + NEWS_MS;
}

const char *pl_crowd_name(enum pl_crowd c) {
    static const char *const names[] = { "room", "soon", "full", "large", "again" };
    return (unsigned)c < sizeof names / sizeof *names ? names[c] : "unknown";
}

static uint64_t less(uint64_t a, uint64_t b) { return b < a ? a - b : 0; }

/* So much must be left for it: the margin takes its part, at most as much again. */
static uint64_t needed(const struct pl_crowd_case *c) {
    return c->request + (c->margin < c->request ? c->margin : c->request);
}

static uint64_t end_of(const struct pl_crowd_case *c) {
    if (c->left < needed(c)) return 0;
    double ms = c->per_ms > 0 ? (double)(c->left - needed(c)) / c->per_ms : 1e18;
    return ms < 1 ? 1 : ms < 1e15 ? (uint64_t)ms : UINT64_MAX;
}

/* With a new worker there would be so much. */
static uint64_t left_when_new(const struct pl_crowd_case *c) { return c->left + less(c->held, c->fresh); }

static bool goes_below(const struct pl_crowd_case *c, uint64_t bytes, uint64_t least) {
    return (double)less(bytes, least) < c->per_ms * (double)c->replace_ms;
}

/* Beside it means: while there is place for that in what nobody uses, with a tenth more and a request
 * (crew/room.h). That place may go long before the last that is left: then a handover would be all that
 * remains. */
static bool soon(const struct pl_crowd_case *c, uint64_t end_ms) {
    if (c->per_ms <= 0 || (c->believed && !c->sure)) return false;
    uint64_t place = c->beside + c->beside / 10 + c->request;
    bool beside = c->beside > 0 && c->unused >= place && less(left_when_new(c), c->beside) >= needed(c);
    if (beside && end_ms / AHEAD_SURE < c->replace_ms && goes_below(c, c->unused, place)) return true;
    if (end_ms / (c->sure ? AHEAD_SURE : AHEAD) >= c->replace_ms) return false;
    return goes_below(c, c->left, needed(c) + (beside ? c->beside : 0));
}

enum pl_crowd pl_crowd_judge(const struct pl_crowd_case *c, uint64_t *end_ms) {
    *end_ms = UINT64_MAX;
    if (c->request == 0) return PL_CROWD_ROOM;
    *end_ms = end_of(c);
    bool full = c->left < c->request;
    bool helps = less(c->held, c->fresh) >= GROWN && left_when_new(c) >= needed(c);
    if (*end_ms == 0 && !helps) return PL_CROWD_LARGE;
    if (!full && !(helps && soon(c, *end_ms))) return PL_CROWD_ROOM;
    if (c->lived_ms / LIVES < c->replace_ms) return PL_CROWD_AGAIN;
    return full ? PL_CROWD_FULL : PL_CROWD_SOON;
}
