/* record.c - the value of a key goes into the record its dict has become. */
#include <stdlib.h>

#include "snapshot/inside.h"

bool pl_snap_fail_at(struct pl_snap_reader *r, struct pl_err *err, const char *what) {
    return PL_FAIL(err, PL_E_CONFIG, "byte %llu: %s", (unsigned long long)r->offset, what);
}

/* ---- values ---- */

struct pl_snap_object *pl_snap_object_of(struct pl_snap_reader *r, pl_snap_value v) {
    return &r->objects[pl_snap_payload(v)];
}

int64_t pl_snap_to_signed(const struct pl_snap_reader *r, pl_snap_value v, int64_t otherwise) {
    if (pl_snap_tag(v) == V_INT) return (int64_t)v >> 4;
    if (pl_snap_tag(v) == V_BOOL) return (int64_t)pl_snap_payload(v);
    if (pl_snap_tag(v) != V_BIG) return otherwise;
    const struct pl_snap_big *b = &r->bigs[pl_snap_payload(v)];
    return b->above ? INT64_MAX : (int64_t)b->bits;
}

/* An address or a stream: the bits. */
static uint64_t to_bits(const struct pl_snap_reader *r, pl_snap_value v) {
    return pl_snap_tag(v) == V_BIG ? r->bigs[pl_snap_payload(v)].bits : (uint64_t)pl_snap_to_signed(r, v, 0);
}

static bool to_size(struct pl_snap_reader *r, pl_snap_value v, uint64_t *out, struct pl_err *err) {
    int64_t n = pl_snap_to_signed(r, v, 0);
    if (n < 0) {
        r->t.out->clamped++;
        n = 0;
    }
    if ((uint64_t)n > PL_SNAP_MOST_BYTES)
        return pl_snap_fail_at(r, err, "a size of more than 1 PiB: the file is damaged");
    *out = (uint64_t)n;
    return true;
}

uint32_t pl_snap_to_string(pl_snap_value v) {
    return pl_snap_tag(v) == V_STRING ? (uint32_t)pl_snap_payload(v) : PL_SNAP_NONE;
}

static bool to_stream(struct pl_snap_reader *r, pl_snap_value v, uint32_t *out, struct pl_err *err) {
    *out = pl_snap_intern_stream(&r->t, to_bits(r, v));
    return *out != PL_SNAP_NONE ? true : pl_snap_no_memory(r, err);
}

static bool to_pool(struct pl_snap_reader *r, pl_snap_value v, uint16_t *out, struct pl_err *err) {
    if (pl_snap_tag(v) != V_PAIR) return true; /* None in profiler files */
    uint64_t pair = pl_snap_payload(v);
    uint32_t id = pl_snap_intern_pool(&r->t, (uint32_t)(pair >> 32), (uint32_t)pair);
    if (id == PL_SNAP_NONE) return pl_snap_fail_at(r, err, "more than 65,000 memory pools");
    *out = (uint16_t)id;
    return true;
}

/* The stack of a list of frames; from now on the list must not grow. */
static bool to_stack(struct pl_snap_reader *r, pl_snap_value v, uint32_t *out, struct pl_err *err) {
    *out = PL_SNAP_NONE;
    if (pl_snap_tag(v) != V_LIST) return true;
    struct pl_snap_object *o = pl_snap_object_of(r, v);
    o->used = true;
    if (o->kind == L_FRAMES_OPEN) {
        struct pl_snap_open *open = &r->open[o->index];
        uint32_t id = pl_snap_intern_stack(&r->t, open->frames, open->count);
        if (id == PL_SNAP_NONE) return pl_snap_no_memory(r, err);
        pl_snap_release(&r->t.mem, open->frames, open->room * sizeof *open->frames);
        *open = (struct pl_snap_open){ 0 };
        o->kind = L_FRAMES;
        o->index = id;
    }
    if (o->kind == L_FRAMES) *out = o->index;
    r->t.out->has_frames |= o->kind == L_FRAMES;
    return true;
}

/* ---- one value of one key, by kind ---- */

static bool set_event(struct pl_snap_reader *r, struct pl_snap_event *e, uint32_t word, pl_snap_value v,
                      struct pl_err *err) {
    switch (word) {
    case W_ACTION: {
        uint32_t id = pl_snap_to_string(v);
        bool known = id >= W_ACTION_WORDS && id < W_KNOWN;
        e->action = known ? (uint8_t)(id - W_ACTION_WORDS) : PL_SNAP_OTHER;
        return true;
    }
    case W_ADDR:
    case W_DEVICE_FREE:
        e->addr = to_bits(r, v);
        return true;
    case W_SIZE:
        return to_size(r, v, &e->size, err);
    case W_STREAM:
        return to_stream(r, v, &e->stream, err);
    case W_TIME_US:
        e->time_us = to_bits(r, v);
        return true;
    case W_FRAMES:
        return to_stack(r, v, &e->stack, err);
    case W_USER_METADATA:
        e->tag = pl_snap_to_string(v);
        if (e->tag != PL_SNAP_NONE && r->t.out->strings[e->tag].len == 0) e->tag = PL_SNAP_NONE;
        r->t.out->has_tags = true;
        return true;
    case W_POOL_ID:
        r->t.out->has_pools = true;
        return to_pool(r, v, &e->pool, err);
    default:
        return true;
    }
}

static bool set_segment(struct pl_snap_reader *r, struct pl_snap_segment *s, uint32_t word, pl_snap_value v,
                        struct pl_err *err) {
    switch (word) {
    case W_DEVICE:
        s->device = (int32_t)pl_snap_to_signed(r, v, 0);
        return true;
    case W_ADDRESS:
        s->addr = to_bits(r, v);
        s->has_addr = pl_snap_tag(v) != V_NONE;
        return true;
    case W_TOTAL_SIZE:
        return to_size(r, v, &s->total, err);
    case W_ALLOCATED_SIZE:
        return to_size(r, v, &s->allocated, err);
    case W_ACTIVE_SIZE:
        return to_size(r, v, &s->active, err);
    case W_REQUESTED_SIZE:
        s->has_requested = true;
        return to_size(r, v, &s->requested, err);
    case W_STREAM:
        return to_stream(r, v, &s->stream, err);
    case W_SEGMENT_TYPE:
        s->small = pl_snap_to_string(v) == W_SMALL;
        return true;
    case W_SEGMENT_POOL_ID:
        return to_pool(r, v, &s->pool, err);
    case W_IS_EXPANDABLE:
        s->expandable = pl_snap_to_signed(r, v, 0) != 0;
        return true;
    case W_FRAMES:
        return to_stack(r, v, &s->stack, err);
    case W_BLOCKS:
        if (pl_snap_tag(v) == V_LIST && pl_snap_object_of(r, v)->kind == L_BROKEN)
            return pl_snap_fail_at(r, err, "blocks in an order that PyTorch never writes");
        if (pl_snap_tag(v) != V_LIST || pl_snap_object_of(r, v)->kind != L_BLOCKS) return true;
        s->first_block = pl_snap_object_of(r, v)->index;
        s->block_count = pl_snap_object_of(r, v)->count;
        return true;
    default:
        return true;
    }
}

static bool set_block(struct pl_snap_reader *r, struct pl_snap_block *b, uint32_t word, pl_snap_value v,
                      struct pl_err *err) {
    switch (word) {
    case W_ADDRESS:
        b->addr = to_bits(r, v);
        b->has_addr = pl_snap_tag(v) != V_NONE;
        return true;
    case W_SIZE:
        return to_size(r, v, &b->size, err);
    case W_REQUESTED_SIZE:
        return to_size(r, v, &b->requested, err);
    case W_STATE:
        switch (pl_snap_to_string(v)) {
        case W_ACTIVE:
            b->state = PL_SNAP_ACTIVE;
            return true;
        case W_PENDING:
        case W_AWAITING:
            b->state = PL_SNAP_PENDING;
            return true;
        case W_INACTIVE:
            b->state = PL_SNAP_INACTIVE;
            return true;
        default:
            return pl_snap_fail_at(r, err, "a block in a state that PyTorch does not have");
        }
    case W_FRAMES:
        return to_stack(r, v, &b->stack, err);
    case W_HISTORY: /* up to 2.0: who asked for it */
        if (pl_snap_tag(v) == V_LIST && pl_snap_object_of(r, v)->kind == L_HISTORY) {
            const struct pl_snap_history *h = &r->histories[pl_snap_object_of(r, v)->index];
            b->requested = h->real_size;
            b->stack = h->stack;
        }
        return true;
    default:
        return true;
    }
}

/* roundup_power2_divisions: a dict without a telling key, so its pairs were kept. */
static void set_roundup(struct pl_snap_reader *r, pl_snap_value v) {
    struct pl_snap_settings *s = &r->t.out->settings;
    if (pl_snap_tag(v) != V_DICT || pl_snap_object_of(r, v)->kind != D_UNKNOWN) return;
    for (uint32_t i = pl_snap_object_of(r, v)->index; i != PL_SNAP_NONE; i = r->pairs[i].before) {
        const struct pl_snap_pair *p = &r->pairs[i];
        if (p->word < W_MIB_1 || p->word > W_MIB_32768) continue;
        int64_t n = pl_snap_to_signed(r, p->value, 0);
        s->roundup[p->word - W_MIB_1] = n > 0 && n <= 1 << 20 ? (uint32_t)n : 0;
        s->has_roundup = true;
    }
}

static bool set_settings(struct pl_snap_reader *r, uint32_t word, pl_snap_value v) {
    struct pl_snap_settings *s = &r->t.out->settings;
    s->present = true;
    switch (word) {
    case W_CONF:
        s->conf = pl_snap_to_string(v);
        break;
    case W_MAX_SPLIT:
        s->max_split = pl_snap_to_signed(r, v, -1);
        break;
    case W_GC:
        s->gc =
            pl_snap_tag(v) == V_DOUBLE ? r->doubles[pl_snap_payload(v)] : (double)pl_snap_to_signed(r, v, 0);
        break;
    case W_EXPANDABLE:
        s->expandable = pl_snap_to_signed(r, v, 0) != 0;
        break;
    case W_ROUNDUP:
        set_roundup(r, v);
        break;
    default:
        break;
    }
    return true;
}

/* The items of a list that holds only such records in their own order. */
static bool to_range(struct pl_snap_reader *r, pl_snap_value v, enum pl_snap_kind kind,
                     struct pl_snap_trace *out) {
    *out = (struct pl_snap_trace){ 0 };
    if (pl_snap_tag(v) != V_LIST) return false;
    const struct pl_snap_object *o = pl_snap_object_of(r, v);
    if (o->kind == L_EMPTY) return true;
    if (o->kind != kind) return false;
    *out = (struct pl_snap_trace){ o->index, o->count };
    return true;
}

static size_t length_of(struct pl_snap_reader *r, pl_snap_value v) {
    return pl_snap_tag(v) == V_LIST ? pl_snap_object_of(r, v)->count : 0;
}

static bool set_top(struct pl_snap_reader *r, uint32_t word, pl_snap_value v, struct pl_err *err) {
    struct pl_snap *s = r->t.out;
    switch (word) {
    case W_SEGMENTS:
        if (!to_range(r, v, L_SEGMENTS, &r->top_segments))
            return pl_snap_fail_at(r, err, "'segments' is no list of segments");
        break;
    case W_DEVICE_TRACES:
        if (!to_range(r, v, L_LISTS, &r->top_traces))
            return pl_snap_fail_at(r, err, "'device_traces' is no list of lists of events");
        break;
    case W_EXTERNAL_ANNOTATIONS:
        s->annotations = length_of(r, v);
        break;
    case W_HOST_SEGMENTS:
        s->has_host = true;
        s->host_segments = length_of(r, v);
        break;
    case W_HOST_TRACES:
        s->has_host = true;
        s->host_traces = length_of(r, v);
        break;
    case W_OVERFLOWED:
        s->overflowed = pl_snap_tag(v) == V_BOOL ? pl_snap_payload(v) != 0 : length_of(r, v) > 0;
        break;
    default:
        break;
    }
    return true;
}

bool pl_snap_set_one(struct pl_snap_reader *r, const struct pl_snap_object *o, uint32_t word, pl_snap_value v,
                     struct pl_err *err) {
    switch (o->kind) {
    case D_EVENT:
        return set_event(r, &r->t.out->events[o->index], word, v, err);
    case D_SEGMENT:
        return set_segment(r, &r->t.out->segments[o->index], word, v, err);
    case D_BLOCK:
        return set_block(r, &r->t.out->blocks[o->index], word, v, err);
    case D_HISTORY:
        if (word == W_REAL_SIZE) return to_size(r, v, &r->histories[o->index].real_size, err);
        return word != W_FRAMES || to_stack(r, v, &r->histories[o->index].stack, err);
    case D_SETTINGS:
        return set_settings(r, word, v);
    case D_TOP:
        return set_top(r, word, v, err);
    default:
        return true;
    }
}
