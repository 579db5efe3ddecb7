/* tables.c - equal texts, frames, stacks, streams and pools become one number each. */
#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"

enum { FIRST_ROOM = 64, FIRST_SLOTS = 256 };

static bool over_cap(struct pl_snap_mem *m, size_t more) {
    bool over = m->cap != 0 && (more > m->cap || m->used > m->cap - more);
    m->hit |= over;
    return over;
}

void *pl_snap_grown(struct pl_snap_mem *m, void *array, size_t used, size_t *room, size_t item_bytes) {
    size_t want = used < FIRST_ROOM ? FIRST_ROOM : used + used / 2;
    size_t old = *room * item_bytes, bytes;
    if (__builtin_mul_overflow(want, item_bytes, &bytes)) return array;
    if (over_cap(m, bytes - old)) return array;
    void *p = realloc(array, bytes);
    if (p == NULL) return array;
    m->used += bytes - old;
    *room = want;
    return p;
}

void *pl_snap_zeroed(struct pl_snap_mem *m, size_t bytes) {
    if (over_cap(m, bytes)) return NULL;
    void *p = calloc(1, bytes);
    if (p != NULL) m->used += bytes;
    return p;
}

void pl_snap_release(struct pl_snap_mem *m, void *p, size_t bytes) {
    if (p != NULL) m->used -= bytes;
    free(p);
}

uint64_t pl_snap_hash(uint64_t seed, const void *bytes, size_t len) {
    const unsigned char *p = bytes;
    uint64_t h = pl_snap_mix(seed, len), word;
    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&word, p, 8);
        h = pl_snap_mix(h, word);
    }
    word = 0;
    if (len > 0) memcpy(&word, p, len);
    return pl_snap_mix(h, word ^ seed);
}

/* ---- the one hash table ---- */

typedef uint64_t hash_of(const struct pl_snap_tables *t, uint32_t id);

/* Room for one more. False past the cap. */
static bool index_grow(struct pl_snap_tables *t, struct pl_snap_index *x, hash_of *hash) {
    if ((x->count + 1) * 2 <= x->size) return true;
    size_t size = x->size == 0 ? FIRST_SLOTS : x->size * 2;
    uint32_t *slots = pl_snap_zeroed(&t->mem, size * sizeof *slots);
    if (slots == NULL) return false;
    for (uint32_t id = 0; id < x->count; id++) {
        size_t at = hash(t, id) & (size - 1);
        while (slots[at] != 0) at = (at + 1) & (size - 1);
        slots[at] = id + 1;
    }
    pl_snap_release(&t->mem, x->slots, x->size * sizeof *x->slots);
    x->slots = slots;
    x->size = size;
    return true;
}

/* ---- strings ---- */

static uint64_t string_hash(const struct pl_snap_tables *t, uint32_t id) { return t->out->strings[id].hash; }

static bool bytes_room(struct pl_snap_tables *t, size_t more) {
    size_t want = t->byte_count + more;
    if (want <= t->byte_room) return true;
    if (want < t->byte_count) return false;
    size_t room = t->byte_room;
    char *p = pl_snap_grown(&t->mem, t->out->bytes, want, &room, 1); /* at least 1.5 times what is wanted */
    t->out->bytes = p;
    t->byte_room = room;
    return want <= room;
}

uint32_t pl_snap_intern_string(struct pl_snap_tables *t, const void *bytes, size_t len) {
    struct pl_snap *s = t->out;
    if (!index_grow(t, &t->strings, string_hash)) return PL_SNAP_NONE;
    uint32_t hash = (uint32_t)pl_snap_hash(t->seed, bytes, len);
    size_t mask = t->strings.size - 1, at = hash & mask;
    for (; t->strings.slots[at] != 0; at = (at + 1) & mask) {
        uint32_t id = t->strings.slots[at] - 1;
        const struct pl_snap_string *x = &s->strings[id];
        if (x->hash == hash && x->len == len && memcmp(s->bytes + x->at, bytes, len) == 0) return id;
    }
    if (s->string_count >= PL_SNAP_NONE || !bytes_room(t, len + 1)) return PL_SNAP_NONE;
    if (!PL_SNAP_ROOM(&t->mem, s->strings, s->string_count, t->string_room)) return PL_SNAP_NONE;
    s->strings[s->string_count] =
        (struct pl_snap_string){ .at = t->byte_count, .len = (uint32_t)len, .hash = hash };
    if (len > 0) memcpy(s->bytes + t->byte_count, bytes, len);
    s->bytes[t->byte_count + len] = '\0';
    t->byte_count += len + 1;
    t->strings.count++;
    t->strings.slots[at] = (uint32_t)++s->string_count;
    return (uint32_t)s->string_count - 1;
}

/* ---- frames ---- */

static uint64_t hash_frame(const struct pl_snap_tables *t, const struct pl_snap_frame *f) {
    return pl_snap_mix(pl_snap_mix(t->seed, f->name), (uint64_t)f->file << 32 | f->line);
}
static uint64_t frame_hash(const struct pl_snap_tables *t, uint32_t id) {
    return hash_frame(t, &t->out->frames[id]);
}

uint32_t pl_snap_intern_frame(struct pl_snap_tables *t, struct pl_snap_frame f) {
    struct pl_snap *s = t->out;
    if (!index_grow(t, &t->frames, frame_hash)) return PL_SNAP_NONE;
    size_t mask = t->frames.size - 1, at = hash_frame(t, &f) & mask;
    for (; t->frames.slots[at] != 0; at = (at + 1) & mask) {
        uint32_t id = t->frames.slots[at] - 1;
        const struct pl_snap_frame *x = &s->frames[id];
        if (x->name == f.name && x->file == f.file && x->line == f.line) return id;
    }
    if (!PL_SNAP_ROOM(&t->mem, s->frames, s->frame_count, t->frame_room)) return PL_SNAP_NONE;
    s->frames[s->frame_count] = f;
    t->frames.count++;
    t->frames.slots[at] = (uint32_t)++s->frame_count;
    return (uint32_t)s->frame_count - 1;
}

/* ---- stacks ---- */

static uint64_t stack_hash(const struct pl_snap_tables *t, uint32_t id) { return t->out->stacks[id].hash; }

/* Two chains side by side: one multiplication waits for the other, and this loop sees every frame of the
 * file. */
static uint32_t hash_frames(uint64_t seed, const uint32_t *frames, size_t count) {
    uint64_t a = seed ^ count, b = seed + UINT64_C(0x9E3779B97F4A7C15);
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        uint64_t x, y;
        memcpy(&x, frames + i, 8);
        memcpy(&y, frames + i + 2, 8);
        a = pl_snap_mix(a, x);
        b = pl_snap_mix(b, y);
    }
    for (; i < count; i++) a = pl_snap_mix(a, frames[i]);
    return (uint32_t)pl_snap_mix(a, b);
}

uint32_t pl_snap_intern_stack(struct pl_snap_tables *t, const uint32_t *frames, size_t count) {
    struct pl_snap *s = t->out;
    if (!index_grow(t, &t->stacks, stack_hash)) return PL_SNAP_NONE;
    uint32_t hash = hash_frames(t->seed, frames, count);
    size_t mask = t->stacks.size - 1, at = hash & mask;
    for (; t->stacks.slots[at] != 0; at = (at + 1) & mask) {
        uint32_t id = t->stacks.slots[at] - 1;
        const struct pl_snap_stack *x = &s->stacks[id];
        if (x->hash == hash && x->count == count &&
            memcmp(s->frame_ids + x->first, frames, count * sizeof *frames) == 0)
            return id;
    }
    if (count >= PL_SNAP_NONE || s->stack_count >= PL_SNAP_NONE - 1) return PL_SNAP_NONE;
    if (!PL_SNAP_ROOM(&t->mem, s->stacks, s->stack_count, t->stack_room)) return PL_SNAP_NONE;
    size_t want = s->frame_id_count + count;
    if (want > t->frame_id_room) {
        uint32_t *p = pl_snap_grown(&t->mem, s->frame_ids, want, &t->frame_id_room, sizeof *p);
        s->frame_ids = p;
        if (want > t->frame_id_room) return PL_SNAP_NONE;
    }
    memcpy(s->frame_ids + s->frame_id_count, frames, count * sizeof *frames);
    s->stacks[s->stack_count] = (struct pl_snap_stack){ s->frame_id_count, (uint32_t)count, hash };
    s->frame_id_count = want;
    t->stacks.count++;
    t->stacks.slots[at] = (uint32_t)++s->stack_count;
    return (uint32_t)s->stack_count - 1;
}

/* ---- streams and pools ---- */

static uint64_t stream_hash(const struct pl_snap_tables *t, uint32_t id) {
    return pl_snap_mix(t->seed, t->out->streams[id]);
}

uint32_t pl_snap_intern_stream(struct pl_snap_tables *t, uint64_t stream) {
    struct pl_snap *s = t->out;
    if (!index_grow(t, &t->streams, stream_hash)) return PL_SNAP_NONE;
    size_t mask = t->streams.size - 1, at = pl_snap_mix(t->seed, stream) & mask;
    for (; t->streams.slots[at] != 0; at = (at + 1) & mask)
        if (s->streams[t->streams.slots[at] - 1] == stream) return t->streams.slots[at] - 1;
    if (!PL_SNAP_ROOM(&t->mem, s->streams, s->stream_count, t->stream_room)) return PL_SNAP_NONE;
    s->streams[s->stream_count] = stream;
    t->streams.count++;
    t->streams.slots[at] = (uint32_t)++s->stream_count;
    return (uint32_t)s->stream_count - 1;
}

static uint64_t hash_pool(const struct pl_snap_tables *t, uint32_t a, uint32_t b) {
    return pl_snap_mix(t->seed, (uint64_t)a << 32 | b);
}
static uint64_t pool_hash(const struct pl_snap_tables *t, uint32_t id) {
    return hash_pool(t, t->out->pools[id].a, t->out->pools[id].b);
}

uint32_t pl_snap_intern_pool(struct pl_snap_tables *t, uint32_t a, uint32_t b) {
    struct pl_snap *s = t->out;
    if (!index_grow(t, &t->pools, pool_hash)) return PL_SNAP_NONE;
    size_t mask = t->pools.size - 1, at = hash_pool(t, a, b) & mask;
    for (; t->pools.slots[at] != 0; at = (at + 1) & mask) {
        uint32_t id = t->pools.slots[at] - 1;
        if (s->pools[id].a == a && s->pools[id].b == b) return id;
    }
    if (s->pool_count >= PL_SNAP_NO_POOL) return PL_SNAP_NONE;
    if (!PL_SNAP_ROOM(&t->mem, s->pools, s->pool_count, t->pool_room)) return PL_SNAP_NONE;
    s->pools[s->pool_count] = (struct pl_snap_pool){ a, b };
    t->pools.count++;
    t->pools.slots[at] = (uint32_t)++s->pool_count;
    return (uint32_t)s->pool_count - 1;
}

bool pl_snap_tables_init(struct pl_snap_tables *t) {
    static const char *const words[] = {
#define WORD(symbol, text) text,
#include "snapshot/words.def"
#undef WORD
#define X(symbol, text) text,
        PL_SNAP_ACTIONS(X)
#undef X
    };
    for (uint32_t i = 0; i < W_KNOWN; i++)
        if (pl_snap_intern_string(t, words[i], strlen(words[i])) != i) return false;
    return pl_snap_intern_pool(t, 0, 0) == 0 && pl_snap_intern_stream(t, 0) == 0;
}

void pl_snap_tables_free(struct pl_snap_tables *t) {
    struct pl_snap_index *all[] = { &t->strings, &t->frames, &t->stacks, &t->streams, &t->pools };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->slots);
        *all[i] = (struct pl_snap_index){ 0 };
    }
}
