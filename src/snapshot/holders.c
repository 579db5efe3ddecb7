/* holders.c - live bytes by stack, by tag, at the peak, over the trace, and against an older file. */
#include "snapshot/holders.h"

#include <stdlib.h>
#include <string.h>

#include "snapshot/map.h"

static int by_bytes(const void *a, const void *b) {
    const struct pl_report_share *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* One share for each key and one for those without, of which the largest `top` stay. */
struct tally {
    struct pl_report_share *at;
    size_t keys;
};

static bool tally_init(struct tally *t, size_t keys) {
    t->keys = keys;
    t->at = calloc(keys + 1, sizeof *t->at);
    return t->at != NULL;
}

static void tally_add(struct tally *t, uint32_t key, uint64_t bytes) {
    struct pl_report_share *x = &t->at[key < t->keys ? key : t->keys];
    x->bytes += bytes;
    x->blocks++;
}

static void tally_end(struct tally *t, size_t top, struct pl_report_share **out, size_t *count) {
    size_t n = 0;
    for (size_t i = 0; i <= t->keys; i++) {
        if (t->at[i].blocks == 0) continue;
        t->at[n] = t->at[i];
        t->at[n++].key = i < t->keys ? (uint32_t)i : PL_SNAP_NONE;
    }
    qsort(t->at, n, sizeof *t->at, by_bytes);
    *count = n < top ? n : top;
    *out = realloc(t->at, (*count + 1) * sizeof *t->at);
    if (*out == NULL) *out = t->at;
    t->at = NULL;
}

/* What the trace knows of the block at an address. */
struct born {
    const struct pl_snap_lives *lives;
    struct pl_map last;
};

static bool born_init(struct born *b, const struct pl_snap_lives *lives) {
    *b = (struct born){ .lives = lives };
    for (size_t i = 0; i < lives->count; i++)
        if (lives->at[i].completed == PL_SNAP_NONE && !pl_map_put(&b->last, lives->at[i].addr, (uint32_t)i))
            return false;
    return true;
}

static const struct pl_snap_life *born_at(const struct born *b, uint64_t addr) {
    uint32_t id = pl_map_get(&b->last, addr);
    return id != PL_SNAP_NONE ? &b->lives->at[id] : NULL;
}

static bool each_live(const struct pl_snap *s, uint32_t device, const struct born *born, pl_live_block *each,
                      void *ctx) {
    struct pl_snap_trace g = pl_snap_segments_of(s, device);
    for (uint32_t i = g.first; i < g.first + g.count; i++) {
        const struct pl_snap_segment *seg = &s->segments[i];
        for (uint32_t k = seg->first_block; k < seg->first_block + seg->block_count; k++) {
            const struct pl_snap_block *b = &s->blocks[k];
            if (b->state == PL_SNAP_INACTIVE) continue;
            const struct pl_snap_life *life = b->has_addr ? born_at(born, b->addr) : NULL;
            uint32_t stack = b->stack, tag = PL_SNAP_NONE;
            if (stack == PL_SNAP_NONE && life != NULL) stack = life->stack;
            if (life != NULL) tag = life->tag;
            if (!each(ctx, k, b->size, stack, tag)) return false;
        }
    }
    return true;
}

bool pl_each_live(const struct pl_snap *s, uint32_t device, const struct pl_snap_lives *lives,
                  pl_live_block *each, void *ctx) {
    struct born born;
    bool ok = born_init(&born, lives) && each_live(s, device, &born, each, ctx);
    pl_map_free(&born.last);
    return ok;
}

/* ---- at the end ---- */

size_t pl_report_tag_len(const char *tag, size_t len) {
    const char *first = memchr(tag, '|', len), *last = memrchr(tag, '|', len);
    return first != NULL && last != first ? (size_t)(last - tag) : len;
}

struct ends {
    const struct pl_snap *s;
    struct tally stacks, tags;
    struct pl_map groups; /* hash of a tag without its request -> the first such tag */
};

static bool add_end(void *ctx, uint32_t block, uint64_t bytes, uint32_t stack, uint32_t tag) {
    struct ends *e = ctx;
    (void)block;
    tally_add(&e->stacks, stack, bytes);
    if (tag != PL_SNAP_NONE) {
        size_t len;
        const char *text = pl_snap_text(e->s, tag, &len);
        uint64_t key = pl_snap_hash(1, text, pl_report_tag_len(text, len));
        uint32_t group = pl_map_get(&e->groups, key);
        if (group == PL_SNAP_NONE && !pl_map_put(&e->groups, key, group = tag)) return false;
        tag = group;
    }
    tally_add(&e->tags, tag, bytes);
    return true;
}

bool pl_holders_at_end(const struct pl_snap *s, size_t top, struct pl_report *r) {
    struct ends e = { .s = s };
    bool ok = tally_init(&e.stacks, s->stack_count) &&
              tally_init(&e.tags, s->has_tags ? s->string_count : 0) &&
              pl_each_live(s, r->device, &r->lives, add_end, &e);
    if (ok) {
        tally_end(&e.stacks, top, &r->holders, &r->holder_count);
        tally_end(&e.tags, top, &r->tags, &r->tag_count);
    }
    free(e.stacks.at);
    free(e.tags.at);
    pl_map_free(&e.groups);
    return ok;
}

/* ---- within the trace ---- */

/* Was it there after `event`? */
static bool alive_after(const struct pl_snap_life *l, uint32_t event) {
    return (l->born == PL_SNAP_NONE || l->born <= event) && (l->freed == PL_SNAP_NONE || l->freed > event);
}

bool pl_holders_at_peak(const struct pl_snap *s, size_t top, struct pl_report *r) {
    struct tally t;
    if (r->peak_event == PL_SNAP_NONE) return true;
    if (!tally_init(&t, s->stack_count)) return false;
    for (size_t i = 0; i < r->lives.count; i++)
        if (alive_after(&r->lives.at[i], r->peak_event))
            tally_add(&t, r->lives.at[i].stack, r->lives.at[i].size);
    tally_end(&t, top, &r->peak_holders, &r->peak_holder_count);
    return true;
}

static int by_rise(const void *a, const void *b) {
    const struct pl_report_growth *x = a, *y = b;
    uint64_t rx = x->bytes[PL_REPORT_QUARTERS - 1] - x->bytes[0],
             ry = y->bytes[PL_REPORT_QUARTERS - 1] - y->bytes[0];
    if (rx != ry) return rx < ry ? 1 : -1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

bool pl_holders_growth(const struct pl_snap *s, size_t top, struct pl_report *r) {
    uint32_t count = r->lives.trace.count;
    if (count < PL_REPORT_QUARTERS || s->stack_count == 0) return true;
    struct pl_report_growth *g = calloc(s->stack_count, sizeof *g);
    if (g == NULL) return false;
    for (size_t i = 0; i < r->lives.count; i++) {
        const struct pl_snap_life *l = &r->lives.at[i];
        if (l->stack >= s->stack_count) continue;
        for (uint32_t q = 0; q < PL_REPORT_QUARTERS; q++)
            if (alive_after(l, (uint32_t)((uint64_t)count * (q + 1) / PL_REPORT_QUARTERS) - 1))
                g[l->stack].bytes[q] += l->size;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->stack_count; i++) {
        bool rises = true;
        for (size_t q = 1; q < PL_REPORT_QUARTERS; q++) rises &= g[i].bytes[q] > g[i].bytes[q - 1];
        if (!rises) continue;
        g[n] = g[i];
        g[n++].stack = (uint32_t)i;
    }
    qsort(g, n, sizeof *g, by_rise);
    r->growth = g;
    r->growth_count = n < top ? n : top;
    return true;
}

/* ---- against an older file ---- */

struct older {
    const struct pl_snap *s;
    struct pl_map rows; /* key of a stack -> row */
    struct pl_report_since *at;
    size_t count, room;
    bool now;
    uint64_t total;
};

static bool add_older(void *ctx, uint32_t block, uint64_t bytes, uint32_t stack, uint32_t tag) {
    struct older *o = ctx;
    (void)block;
    (void)tag;
    uint64_t key = stack < o->s->stack_count ? pl_snap_stack_key(o->s, stack) : 0;
    uint32_t row = pl_map_get(&o->rows, key);
    if (row == PL_SNAP_NONE) {
        if (o->count == o->room) {
            size_t room = o->room < 64 ? 64 : o->room * 2;
            struct pl_report_since *p = realloc(o->at, room * sizeof *p);
            if (p == NULL) return false;
            o->at = p;
            o->room = room;
        }
        row = (uint32_t)o->count++;
        o->at[row] = (struct pl_report_since){ .stack = PL_SNAP_NONE };
        if (!pl_map_put(&o->rows, key, row)) return false;
    }
    if (o->now) {
        o->at[row].now += bytes;
        if (stack < o->s->stack_count) o->at[row].stack = stack;
    } else {
        o->at[row].before += bytes;
    }
    o->total += bytes;
    return true;
}

static int by_growth(const void *a, const void *b) {
    const struct pl_report_since *x = a, *y = b;
    int64_t gx = (int64_t)(x->now - x->before), gy = (int64_t)(y->now - y->before);
    return gx < gy ? 1 : gx > gy ? -1 : x->stack < y->stack ? -1 : x->stack > y->stack;
}

bool pl_holders_since(const struct pl_snap *s, const struct pl_snap *old, size_t top, struct pl_report *r,
                      struct pl_err *err) {
    struct pl_snap_lives lives;
    struct older o = { .s = old };
    if (!pl_snap_lives_make(old, r->device, &lives, err)) return false;
    bool ok = pl_each_live(old, r->device, &lives, add_older, &o);
    pl_snap_lives_free(&lives);
    r->since_before = o.total;
    o.s = s;
    o.now = true;
    o.total = 0;
    ok = ok && pl_each_live(s, r->device, &r->lives, add_older, &o);
    r->since_now = o.total;
    r->has_since = true;
    r->since_stacks = old->has_frames && s->has_frames;
    size_t n = 0;
    for (size_t i = 0; i < o.count; i++)
        if (o.at[i].now > o.at[i].before) o.at[n++] = o.at[i];
    if (n > 0) qsort(o.at, n, sizeof *o.at, by_growth);
    r->since = o.at;
    r->since_count = n < top ? n : top;
    pl_map_free(&o.rows);
    return ok ? true : PL_FAIL(err, PL_E_NOMEM, "no memory to compare both files");
}
