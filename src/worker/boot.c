#include "worker/boot.h"

#include <math.h>
#include <string.h>

static const double drifts_at = 0.05;      /* of a part */
static const double noise = 0.005;         /* of the cache, between two starts */
static const double misunderstood = 0.015; /* of the cache, between two ways to count the same tokens */

bool pl_boot_planned(const struct pl_boot_start *s, enum pl_boot_part p, struct pl_boot_bytes *out) {
    if (p == PL_BOOT_KV && s->asked_kv_bytes > 0) {
        *out = (struct pl_boot_bytes){ .known = true, .bytes = s->asked_kv_bytes };
        return true;
    }
    if (s->plan == NULL || !s->plan->made || !s->plan->side.part[p].known) return false;
    *out = s->plan->side.part[p];
    return true;
}

/* --- how far two figures are apart */

struct gap {
    double ratio;     /* of what was expected */
    double bytes;     /* now - then */
    bool over, known; /* over: more than drifts_at, and more than rounding can have made */
};

static struct gap between(struct pl_boot_bytes then, struct pl_boot_bytes now) {
    struct gap g = { .ratio = 0 };
    if (!then.known || !now.known || then.bytes == 0) return g;
    g.known = true;
    g.bytes = (double)now.bytes - (double)then.bytes;
    g.ratio = g.bytes / (double)then.bytes;
    double hidden = (double)then.off + (double)now.off;
    g.over = fabs(g.ratio) > drifts_at && fabs(g.bytes) > hidden;
    return g;
}

/* A cache of which only tokens are told: they are what is compared. */
static struct gap between_tokens(uint64_t then, uint64_t now) {
    struct gap g = { .ratio = 0 };
    if (then == 0 || now == 0) return g;
    g.known = true;
    g.ratio = (double)now / (double)then - 1;
    g.over = fabs(g.ratio) > drifts_at;
    return g;
}

/* --- why */

static const char *likely_cache(const struct pl_boot_start *s, enum pl_boot_against against, double ratio) {
    if (against == PL_BOOT_COMMAND)
        return ratio < 0 ? "the engine found less memory free than --kv-cache-memory-bytes asks for"
                         : "the engine was told in another way as well: look at its own lines";
    if (against == PL_BOOT_PLAN)
        return ratio < 0 ? "less was free on the device when it started than the plan takes it to be: "
                           "another process, or an estimate that is too low"
                         : "what was estimated for activation, graphs and the rest was not all needed";
    if (ratio >= 0)
        return s->persisted_bytes > 0
                   ? "the engine has used what it had stored of a start with more room"
                   : "more was free on the device than at the last boot: a process has gone, or its compile "
                     "cache is warm by now";
    if (s->cold)
        return "its compile cache was empty, and compiling has taken memory that is missing now: a restart "
               "brings it back";
    return s->persisted_bytes > 0
               ? "the engine has used what it had stored of a start with less room: remove its stored plan"
               : "less was free on the device when it started: another process, or a first boot whose "
                 "compile "
                 "cache was cold; a restart may bring it back";
}

static bool other_version(const struct pl_boot_start *s) {
    return s->last != NULL && s->last->version[0] != '\0' && s->now.version[0] != '\0' &&
           strcmp(s->last->version, s->now.version) != 0;
}

static const char *likely_part(const struct pl_boot_start *s, enum pl_boot_part part,
                               enum pl_boot_against against, double ratio) {
    bool more = ratio > 0;
    if (part == PL_BOOT_WEIGHTS && against == PL_BOOT_PLAN)
        return more ? "in memory they take more than in their files: it repacks or widens them while it "
                      "loads, or "
                      "loads more than this model"
                    : "in memory they take less than in their files: it quantises them while it loads, or "
                      "leaves "
                      "some on the host";
    if (against == PL_BOOT_LAST && other_version(s))
        return "the engine is of another version than at the last boot";
    switch (part) {
    case PL_BOOT_WEIGHTS:
        return "the model's files have changed since the last boot";
    case PL_BOOT_ACTIVATION:
        if (against == PL_BOOT_LAST && s->cold && more)
            return "its compile cache was empty: compiling leaves memory behind; a restart brings it back";
        return more ? "a full step takes more than that: lower --max-num-batched-tokens, or the images of a "
                      "request"
                    : "a full step takes less than that";
    case PL_BOOT_GRAPHS:
        if (s->graphs_estimated.known && s->now.part[PL_BOOT_GRAPHS].known &&
            between(s->graphs_estimated, s->now.part[PL_BOOT_GRAPHS]).over && more)
            return "its graphs took more than the engine itself had kept free for them: fewer capture sizes, "
                   "or "
                   "--enforce-eager";
        return more ? "its graphs take more than that: fewer capture sizes, or --enforce-eager"
                    : "its graphs take less than that";
    case PL_BOOT_NON_TORCH:
        return more ? "libraries and NCCL took more, or another process grew on the device while it started"
                    : "libraries and NCCL took less, or another process left the device while it started";
    case PL_BOOT_KV:
    case PL_BOOT_PARTS:
    default:
        return likely_cache(s, against, ratio);
    }
}

/* --- what to tell */

static bool is_told(const struct pl_boot_verdict *v, enum pl_boot_part part) {
    for (unsigned i = 0; i < v->count; i++)
        if (v->drifts[i].part == part) return true;
    return false;
}

static void tell(struct pl_boot_verdict *v, struct pl_boot_drift d) {
    if (v->count < PL_BOOT_DRIFTS && !is_told(v, d.part)) v->drifts[v->count++] = d;
}

static void tell_part(const struct pl_boot_start *s, enum pl_boot_part part, enum pl_boot_against against,
                      struct pl_boot_bytes then, struct pl_boot_verdict *v) {
    struct pl_boot_bytes now = s->now.part[part];
    struct gap g = between(then, now);
    tell(v, (struct pl_boot_drift){ .part = part,
                                    .against = against,
                                    .ratio = g.ratio,
                                    .from = then.bytes,
                                    .to = now.bytes,
                                    .likely = likely_part(s, part, against, g.ratio) });
}

/* The part that has taken, or left, at least half of what the cache lacks, or has more. PL_BOOT_KV: none. */
static enum pl_boot_part explaining(const struct pl_boot_start *s, const struct pl_boot_side *then,
                                    double kv_bytes) {
    enum pl_boot_part found = PL_BOOT_KV;
    double most = fabs(kv_bytes) / 2;
    for (int p = 0; p < PL_BOOT_PARTS; p++) {
        struct gap g = between(then->part[p], s->now.part[p]);
        if (p == PL_BOOT_KV || !g.known || (g.bytes > 0) == (kv_bytes > 0) || fabs(g.bytes) < most) continue;
        most = fabs(g.bytes);
        found = (enum pl_boot_part)p;
    }
    return found;
}

/* The gap to the first of command, last start and plan that says something of the cache. */
static struct gap gap_of_cache(const struct pl_boot_start *s, enum pl_boot_against *against,
                               const struct pl_boot_side **side, struct pl_boot_bytes *then) {
    struct pl_boot_bytes now = s->now.part[PL_BOOT_KV];
    struct gap g = { .known = false };
    *against = PL_BOOT_COMMAND;
    *side = NULL;
    *then = (struct pl_boot_bytes){ .known = s->asked_kv_bytes > 0, .bytes = s->asked_kv_bytes };
    if ((g = between(*then, now)).known) return g;
    *against = PL_BOOT_LAST;
    *side = s->last;
    if (s->last != NULL) {
        *then = s->last->part[PL_BOOT_KV];
        if ((g = between(*then, now)).known) return g;
        if ((g = between_tokens(s->last->kv_tokens, s->now.kv_tokens)).known) return g;
    }
    *against = PL_BOOT_PLAN;
    if (s->plan != NULL && s->plan->made) {
        *side = &s->plan->side;
        *then = s->plan->side.part[PL_BOOT_KV];
        if ((g = between(*then, now)).known) return g;
    }
    *against = PL_BOOT_NOTHING;
    return g;
}

static void judge_cache(const struct pl_boot_start *s, struct pl_boot_verdict *v) {
    const struct pl_boot_side *side;
    struct pl_boot_bytes then;
    struct gap g = gap_of_cache(s, &v->against, &side, &then);
    v->kv_ratio = g.ratio;
    if (!g.known || !g.over) return;
    enum pl_boot_part why = side != NULL ? explaining(s, side, g.bytes) : PL_BOOT_KV;
    if (why != PL_BOOT_KV) {
        tell_part(s, why, v->against, side->part[why], v);
        return;
    }
    tell(v, (struct pl_boot_drift){ .part = PL_BOOT_KV,
                                    .against = v->against,
                                    .ratio = g.ratio,
                                    .from = then.bytes,
                                    .to = s->now.part[PL_BOOT_KV].bytes,
                                    .likely = likely_cache(s, v->against, g.ratio) });
}

/* Weights are read from the files: they are no estimate. */
static void judge_weights(const struct pl_boot_start *s, struct pl_boot_verdict *v) {
    struct pl_boot_bytes then;
    if (!pl_boot_planned(s, PL_BOOT_WEIGHTS, &then)) return;
    if (between(then, s->now.part[PL_BOOT_WEIGHTS]).over)
        tell_part(s, PL_BOOT_WEIGHTS, PL_BOOT_PLAN, then, v);
}

static void judge_last(const struct pl_boot_start *s, struct pl_boot_verdict *v) {
    struct pl_boot_bytes kv = s->now.part[PL_BOOT_KV];
    for (int p = 0; s->last != NULL && p < PL_BOOT_PARTS; p++) {
        struct gap g = between(s->last->part[p], s->now.part[p]);
        bool seen = p == PL_BOOT_WEIGHTS || (kv.known && fabs(g.bytes) > noise * (double)kv.bytes);
        if (p != PL_BOOT_KV && g.over && seen)
            tell_part(s, (enum pl_boot_part)p, PL_BOOT_LAST, s->last->part[p], v);
    }
}

/* The plan's bytes of the engine's own tokens, against the engine's bytes of them: no estimate is in it. */
static void judge_count(const struct pl_boot_start *s, struct pl_boot_verdict *v) {
    const struct pl_boot_plan *p = s->plan;
    struct pl_boot_bytes now = s->now.part[PL_BOOT_KV];
    uint64_t bytes = 0;
    if (p == NULL || !p->made || !now.known || now.bytes == 0) return;
    bool same_blocks = s->block_tokens != 0 && s->block_tokens == p->block_tokens;
    bool counted = p->token_bytes != 0 && s->now.kv_tokens != 0
                       ? !__builtin_mul_overflow(p->token_bytes, s->now.kv_tokens, &bytes)
                       : same_blocks && !__builtin_mul_overflow(p->block_bytes, s->kv_blocks, &bytes);
    if (!counted || bytes == 0) return;
    uint64_t block = p->block_bytes;
    if (p->token_bytes != 0 && s->block_tokens != 0 &&
        __builtin_mul_overflow(p->token_bytes, s->block_tokens, &block))
        return;
    double off = (double)now.bytes - (double)bytes;
    if (fabs(off) <= misunderstood * (double)bytes || fabs(off) <= (double)now.off + (double)block) return;
    tell(v, (struct pl_boot_drift){ .part = PL_BOOT_KV,
                                    .against = PL_BOOT_PLAN,
                                    .ratio = off / (double)bytes,
                                    .from = bytes,
                                    .to = now.bytes,
                                    .likely = "the planner counts this model's cache in another way than the "
                                              "engine does: the engine's own number is the budget" });
}

void pl_boot_judge(const struct pl_boot_start *s, struct pl_boot_verdict *out) {
    *out = (struct pl_boot_verdict){ .against = PL_BOOT_NOTHING };
    judge_cache(s, out);
    judge_weights(s, out);
    judge_count(s, out);
    judge_last(s, out);
}
