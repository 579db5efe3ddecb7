/* snapshot/inside.h - the reader's own parts: memory under one cap, tables that make equal things one, the
 * values on the pickle's stack. For the files of this room only. */
#ifndef PL_SNAPSHOT_INSIDE_H
#define PL_SNAPSHOT_INSIDE_H
#include "base/err.h"
#include "snapshot/reader.h"
#include "snapshot/snapshot.h"

/* ---- memory: every array of the reader grows through here ---- */
struct pl_snap_mem {
    size_t used, cap; /* bytes; a cap of 0 is none */
    bool hit;         /* something did not fit under the cap */
};
/* `array` with room for at least one more than `used`, or as it was (then *room is as it was, too). */
void *pl_snap_grown(struct pl_snap_mem *m, void *array, size_t used, size_t *room, size_t item_bytes);
void *pl_snap_zeroed(struct pl_snap_mem *m,
                     size_t bytes); /* NULL past the cap; give back with pl_snap_release */
void pl_snap_release(struct pl_snap_mem *m, void *p, size_t bytes);
#define PL_SNAP_ROOM(m, array, used, room) \
    ((used) < (room) ||                    \
     ((array) = pl_snap_grown((m), (array), (used), &(room), sizeof *(array)), (used) < (room)))

/* ---- a hash table of numbers into some array; equality is the caller's ---- */
struct pl_snap_index {
    uint32_t *slots; /* id + 1, 0 = free */
    size_t size, count;
};
uint64_t pl_snap_hash(uint64_t seed, const void *bytes, size_t len);
static inline uint64_t pl_snap_mix(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 m =
        (unsigned __int128)(a ^ UINT64_C(0x9E3779B97F4A7C15)) * (b ^ UINT64_C(0xD1B54A32D192ED03));
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* ---- tables of the file's parts ---- */
enum pl_snap_word {
#define WORD(symbol, text) W_##symbol,
#include "snapshot/words.def"
#undef WORD
    W_ACTION_WORDS, /* the words of enum pl_snap_action come next, in its order */
    W_KNOWN = W_ACTION_WORDS + PL_SNAP_OTHER
};
struct pl_snap_tables {
    struct pl_snap_mem mem;
    uint64_t seed;
    struct pl_snap *out;
    size_t byte_count, byte_room, string_room, frame_room, stack_room, frame_id_room, stream_room, pool_room;
    struct pl_snap_index strings, frames, stacks, streams, pools;
};
bool pl_snap_tables_init(struct pl_snap_tables *t); /* the known words get their numbers */
void pl_snap_tables_free(struct pl_snap_tables *t); /* the indices; not `out` */
/* Each returns an id, or PL_SNAP_NONE without memory (or too many). */
uint32_t pl_snap_intern_string(struct pl_snap_tables *t, const void *bytes, size_t len);
uint32_t pl_snap_intern_frame(struct pl_snap_tables *t, struct pl_snap_frame frame);
uint32_t pl_snap_intern_stack(struct pl_snap_tables *t, const uint32_t *frames, size_t count);
uint32_t pl_snap_intern_stream(struct pl_snap_tables *t, uint64_t stream);
uint32_t pl_snap_intern_pool(struct pl_snap_tables *t, uint32_t a, uint32_t b);

/* ---- values: 4 bits of tag, 60 of payload ---- */
enum pl_snap_tag { V_NONE, V_BOOL, V_INT, V_BIG, V_DOUBLE, V_STRING, V_PAIR, V_LIST, V_DICT, V_OTHER };
typedef uint64_t pl_snap_value;
static inline enum pl_snap_tag pl_snap_tag(pl_snap_value v) { return (enum pl_snap_tag)(v & 15); }
static inline uint64_t pl_snap_payload(pl_snap_value v) { return v >> 4; }
static inline pl_snap_value pl_snap_make(enum pl_snap_tag tag, uint64_t payload) {
    return payload << 4 | (uint64_t)tag;
}

/* What a dict or a list turned out to be. */
enum pl_snap_kind {
    D_UNKNOWN, /* index: the last of its kept pairs, PL_SNAP_NONE if there is none */
    D_EVENT,
    D_FRAME,
    D_SEGMENT,
    D_BLOCK,
    D_HISTORY,
    D_SETTINGS,
    D_TOP,
    L_EMPTY,
    L_FRAMES,      /* index: the stack */
    L_FRAMES_OPEN, /* index: in `open` */
    L_EVENTS,
    L_SEGMENTS,
    L_BLOCKS,
    L_HISTORY,
    L_LISTS,  /* index: the first, count: how many follow it in order */
    L_BROKEN, /* items that do not follow each other: no writer makes that */
    L_OTHER
};
struct pl_snap_object {
    uint32_t index, count;
    uint8_t kind;
    bool used; /* a frame list that an event or block has: it must not grow any more */
};
struct pl_snap_big {
    uint64_t bits;
    bool above; /* 2^63 or more; else a signed number */
};
struct pl_snap_pair {
    pl_snap_value value;
    uint32_t before;
    uint16_t word;
};
struct pl_snap_history {
    uint64_t real_size;
    uint32_t stack;
};
struct pl_snap_open {
    uint32_t *frames;
    size_t count, room;
};
enum {
    PL_SNAP_MOST_MARKS = 64,
    PL_SNAP_MOST_STRING = 16 << 20,
    PL_SNAP_MOST_STACK = 1 << 26,
    PL_SNAP_MOST_MEMO = 1 << 28
};

struct pl_snap_reader {
    struct pl_snap_tables t;
    /* the machine */
    uint64_t offset; /* of the opcode at work */
    pl_snap_value *stack, *memo;
    size_t stack_count, stack_room, memo_count, memo_room;
    uint32_t marks[PL_SNAP_MOST_MARKS];
    size_t mark_count;
    unsigned char *carry; /* the beginning of an opcode that goes on in the next piece */
    size_t carry_count, carry_room;
    bool begun, stopped, failed;
    /* what is being built */
    struct pl_snap_object *objects;
    struct pl_snap_big *bigs;
    double *doubles;
    struct pl_snap_pair *pairs;
    struct pl_snap_history *histories;
    struct pl_snap_open *open;
    uint32_t *lists; /* objects that are items of a list of lists */
    size_t object_count, object_room, big_count, big_room, double_count, double_room, pair_count, pair_room;
    size_t history_count, history_room, open_count, open_room, list_count, list_room;
    size_t segment_room, block_room, event_room;
    uint32_t *scratch; /* frames of one list */
    size_t scratch_room;
    bool top_seen;
    struct pl_snap_trace top_segments;
    struct pl_snap_trace top_traces; /* in `lists` */
};

bool pl_snap_no_memory(struct pl_snap_reader *r, struct pl_err *err);
/* record.c: values, and where they go. */
bool pl_snap_fail_at(struct pl_snap_reader *r, struct pl_err *err, const char *what);
struct pl_snap_object *pl_snap_object_of(struct pl_snap_reader *r, pl_snap_value v); /* of a list or dict */
int64_t pl_snap_to_signed(const struct pl_snap_reader *r, pl_snap_value v, int64_t otherwise);
uint32_t pl_snap_to_string(pl_snap_value v); /* PL_SNAP_NONE: no text */
bool pl_snap_set_one(struct pl_snap_reader *r, const struct pl_snap_object *o, uint32_t word, pl_snap_value v,
                     struct pl_err *err);
/* build.c: what the containers of a pickle mean here. Offsets in errors are r->offset. */
bool pl_snap_new_object(struct pl_snap_reader *r, enum pl_snap_tag tag, pl_snap_value *out,
                        struct pl_err *err);
bool pl_snap_set_items(struct pl_snap_reader *r, pl_snap_value dict, const pl_snap_value *pairs, size_t count,
                       struct pl_err *err);
bool pl_snap_append(struct pl_snap_reader *r, pl_snap_value list, const pl_snap_value *items, size_t count,
                    struct pl_err *err);
/* settle.c: from what was built to the snapshot; checks what must hold. */
bool pl_snap_settle(struct pl_snap_reader *r, pl_snap_value top, struct pl_err *err);
#endif
