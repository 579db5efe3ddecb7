/* build.c - a dict is known by its keys: `action` makes an event, `filename` a frame, `total_size` a segment,
 * `state` a block. Its values go straight into the record and are forgotten. A dict may come in several
 * pieces and in any order of keys: pairs that come before the telling key are kept until it does. */
#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"

bool pl_snap_new_object(struct pl_snap_reader *r, enum pl_snap_tag tag, pl_snap_value *out,
                        struct pl_err *err) {
    if (r->object_count >= PL_SNAP_NONE ||
        !PL_SNAP_ROOM(&r->t.mem, r->objects, r->object_count, r->object_room))
        return pl_snap_no_memory(r, err);
    r->objects[r->object_count] =
        (struct pl_snap_object){ .index = PL_SNAP_NONE, .kind = tag == V_DICT ? D_UNKNOWN : L_EMPTY };
    *out = pl_snap_make(tag, r->object_count++);
    return true;
}

/* ---- dicts ---- */

/* The kind that a key tells, D_UNKNOWN if none. */
static enum pl_snap_kind told_by(uint32_t word) {
    switch (word) {
    case W_ACTION:
        return D_EVENT;
    case W_FILENAME:
        return D_FRAME;
    case W_TOTAL_SIZE:
        return D_SEGMENT;
    case W_STATE:
        return D_BLOCK;
    case W_REAL_SIZE:
        return D_HISTORY;
    case W_SEGMENTS:
    case W_DEVICE_TRACES:
        return D_TOP;
    case W_CONF:
    case W_MAX_SPLIT:
    case W_ROUNDUP:
        return D_SETTINGS;
    default:
        return D_UNKNOWN;
    }
}

/* A new record of that kind; its index in the object. */
static bool open_record(struct pl_snap_reader *r, struct pl_snap_object *o, enum pl_snap_kind kind,
                        struct pl_err *err) {
    struct pl_snap_mem *m = &r->t.mem;
    struct pl_snap *s = r->t.out;
    size_t index = 0;
    bool ok = true;
    switch (kind) {
    case D_EVENT:
        if ((ok = s->event_count < PL_SNAP_NONE &&
                  PL_SNAP_ROOM(m, s->events, s->event_count, r->event_room))) {
            s->events[index = s->event_count++] = (struct pl_snap_event){
                .stack = PL_SNAP_NONE, .tag = PL_SNAP_NONE, .pool = PL_SNAP_NO_POOL, .action = PL_SNAP_OTHER
            };
        }
        break;
    case D_SEGMENT:
        if ((ok = s->segment_count < PL_SNAP_NONE &&
                  PL_SNAP_ROOM(m, s->segments, s->segment_count, r->segment_room)))
            s->segments[index = s->segment_count++] = (struct pl_snap_segment){ .stack = PL_SNAP_NONE };
        break;
    case D_BLOCK:
        if ((ok = s->block_count < PL_SNAP_NONE && PL_SNAP_ROOM(m, s->blocks, s->block_count, r->block_room)))
            s->blocks[index = s->block_count++] = (struct pl_snap_block){ .stack = PL_SNAP_NONE };
        break;
    case D_HISTORY:
        if ((ok = r->history_count < PL_SNAP_NONE &&
                  PL_SNAP_ROOM(m, r->histories, r->history_count, r->history_room)))
            r->histories[index = r->history_count++] = (struct pl_snap_history){ .stack = PL_SNAP_NONE };
        break;
    case D_TOP:
        r->top_seen = true;
        break;
    default:
        break;
    }
    if (!ok) return pl_snap_no_memory(r, err);
    o->kind = (uint8_t)kind;
    o->index = (uint32_t)index;
    return true;
}

/* Frames are compared by value, so a frame is interned as soon as it has its file. */
static bool set_frame(struct pl_snap_reader *r, struct pl_snap_object *o, const pl_snap_value *pairs,
                      size_t count, struct pl_err *err) {
    struct pl_snap_frame f = { PL_SNAP_NONE, PL_SNAP_NONE, 0 };
    if (o->kind == D_FRAME) f = r->t.out->frames[o->index];
    for (size_t i = 0; i < count; i += 2) {
        int64_t line;
        switch (pl_snap_payload(pairs[i])) {
        case W_NAME:
            f.name = pl_snap_to_string(pairs[i + 1]);
            break;
        case W_FILENAME:
            f.file = pl_snap_to_string(pairs[i + 1]);
            break;
        case W_LINE:
            line = pl_snap_to_signed(r, pairs[i + 1], 0);
            f.line = line < 0 ? 0 : line > UINT32_MAX ? UINT32_MAX : (uint32_t)line;
            break;
        default:
            break;
        }
    }
    uint32_t id = pl_snap_intern_frame(&r->t, f);
    if (id == PL_SNAP_NONE) return pl_snap_no_memory(r, err);
    o->kind = D_FRAME;
    o->index = id;
    return true;
}

static bool keep_pairs(struct pl_snap_reader *r, struct pl_snap_object *o, const pl_snap_value *pairs,
                       size_t count, struct pl_err *err) {
    for (size_t i = 0; i < count; i += 2) {
        uint64_t word = pl_snap_payload(pairs[i]);
        if (word >= W_KNOWN) continue;
        if (r->pair_count >= PL_SNAP_NONE || !PL_SNAP_ROOM(&r->t.mem, r->pairs, r->pair_count, r->pair_room))
            return pl_snap_no_memory(r, err);
        r->pairs[r->pair_count] = (struct pl_snap_pair){ pairs[i + 1], o->index, (uint16_t)word };
        o->index = (uint32_t)r->pair_count++;
    }
    return true;
}

/* The pairs that came before the telling key. Newest first: an older one of the same key must not win. */
static bool set_kept(struct pl_snap_reader *r, struct pl_snap_object *o, uint32_t last, struct pl_err *err) {
    uint64_t done[(W_KNOWN + 63) / 64] = { 0 };
    for (uint32_t i = last; i != PL_SNAP_NONE; i = r->pairs[i].before) {
        const struct pl_snap_pair *p = &r->pairs[i];
        uint64_t bit = UINT64_C(1) << (p->word % 64);
        if ((done[p->word / 64] & bit) != 0) continue;
        done[p->word / 64] |= bit;
        pl_snap_value pair[2] = { pl_snap_make(V_STRING, p->word), p->value };
        if (o->kind == D_FRAME ? !set_frame(r, o, pair, 2, err)
                               : !pl_snap_set_one(r, o, p->word, p->value, err))
            return false;
    }
    return true;
}

bool pl_snap_set_items(struct pl_snap_reader *r, pl_snap_value dict, const pl_snap_value *pairs, size_t count,
                       struct pl_err *err) {
    if (pl_snap_tag(dict) != V_DICT)
        return pl_snap_fail_at(r, err, "an item is put into something that is no dict");
    if (count % 2 != 0) return pl_snap_fail_at(r, err, "a key without a value");
    struct pl_snap_object *o = pl_snap_object_of(r, dict);
    enum pl_snap_kind told = o->kind;
    for (size_t i = 0; i < count; i += 2) {
        if (pl_snap_tag(pairs[i]) != V_STRING) return pl_snap_fail_at(r, err, "a key that is no text");
        if (told == D_UNKNOWN) told = told_by((uint32_t)pl_snap_payload(pairs[i]));
    }
    if (told == D_UNKNOWN) return keep_pairs(r, o, pairs, count, err);
    uint32_t kept = o->kind == D_UNKNOWN ? o->index : PL_SNAP_NONE;
    if (told == D_FRAME) {
        if (kept != PL_SNAP_NONE && (!set_frame(r, o, NULL, 0, err) || !set_kept(r, o, kept, err)))
            return false;
        return set_frame(r, o, pairs, count, err);
    }
    if (o->kind == D_UNKNOWN && (!open_record(r, o, told, err) || !set_kept(r, o, kept, err))) return false;
    for (size_t i = 0; i < count; i += 2)
        if (pl_snap_payload(pairs[i]) < W_KNOWN &&
            !pl_snap_set_one(r, o, (uint32_t)pl_snap_payload(pairs[i]), pairs[i + 1], err))
            return false;
    return true;
}

/* ---- lists ---- */

static bool scratch_room(struct pl_snap_reader *r, size_t count) {
    if (count > r->scratch_room)
        r->scratch = pl_snap_grown(&r->t.mem, r->scratch, count, &r->scratch_room, sizeof *r->scratch);
    return count <= r->scratch_room;
}

/* A list of frames that comes in more than one piece is kept open, so that growing by one stays cheap. */
static bool open_frames(struct pl_snap_reader *r, struct pl_snap_object *o, struct pl_err *err) {
    struct pl_snap_stack old = r->t.out->stacks[o->index];
    if (!PL_SNAP_ROOM(&r->t.mem, r->open, r->open_count, r->open_room)) return pl_snap_no_memory(r, err);
    struct pl_snap_open *open = &r->open[r->open_count];
    *open = (struct pl_snap_open){ 0 };
    open->frames = pl_snap_grown(&r->t.mem, NULL, old.count, &open->room, sizeof *open->frames);
    if (open->room < old.count) return pl_snap_no_memory(r, err);
    memcpy(open->frames, r->t.out->frame_ids + old.first, old.count * sizeof *open->frames);
    open->count = old.count;
    o->kind = L_FRAMES_OPEN;
    o->index = (uint32_t)r->open_count++;
    return true;
}

static bool append_frames(struct pl_snap_reader *r, struct pl_snap_object *o, const pl_snap_value *items,
                          size_t count, struct pl_err *err) {
    size_t n = 0;
    if (o->used) return pl_snap_fail_at(r, err, "a list of frames grows after an event took it");
    if (!scratch_room(r, count)) return pl_snap_no_memory(r, err);
    for (size_t i = 0; i < count; i++) {
        if (pl_snap_tag(items[i]) != V_DICT) continue;
        const struct pl_snap_object *f = pl_snap_object_of(r, items[i]);
        if (f->kind == D_FRAME) r->scratch[n++] = f->index;
    }
    if (o->kind == L_EMPTY) {
        o->index = pl_snap_intern_stack(&r->t, r->scratch, n);
        if (o->index == PL_SNAP_NONE) return pl_snap_no_memory(r, err);
        o->kind = L_FRAMES;
        return true;
    }
    if (o->kind == L_FRAMES && !open_frames(r, o, err)) return false;
    struct pl_snap_open *open = &r->open[o->index];
    for (size_t i = 0; i < n; i++) {
        if (!PL_SNAP_ROOM(&r->t.mem, open->frames, open->count, open->room)) return pl_snap_no_memory(r, err);
        open->frames[open->count++] = r->scratch[i];
    }
    return true;
}

static enum pl_snap_kind list_kind(const struct pl_snap_reader *r, pl_snap_value item) {
    if (pl_snap_tag(item) == V_LIST) return L_LISTS;
    if (pl_snap_tag(item) != V_DICT) return L_OTHER;
    switch (r->objects[pl_snap_payload(item)].kind) {
    case D_FRAME:
        return L_FRAMES;
    case D_EVENT:
        return L_EVENTS;
    case D_SEGMENT:
        return L_SEGMENTS;
    case D_BLOCK:
        return L_BLOCKS;
    case D_HISTORY:
        return L_HISTORY;
    default:
        return L_OTHER;
    }
}

/* Records follow each other in their array as they do in the list, so a list is a range. */
static bool append_one(struct pl_snap_reader *r, struct pl_snap_object *o, pl_snap_value item,
                       struct pl_err *err) {
    enum pl_snap_kind kind = list_kind(r, item);
    uint32_t index = kind == L_LISTS || kind == L_OTHER ? 0 : pl_snap_object_of(r, item)->index;
    if (kind == L_LISTS) {
        if (r->list_count >= PL_SNAP_NONE || !PL_SNAP_ROOM(&r->t.mem, r->lists, r->list_count, r->list_room))
            return pl_snap_no_memory(r, err);
        r->lists[index = (uint32_t)r->list_count++] = (uint32_t)pl_snap_payload(item);
    }
    if (o->kind == L_EMPTY) {
        o->kind = (uint8_t)kind;
        o->index = index;
    } else if (o->kind != kind || (kind != L_OTHER && kind != L_HISTORY && index != o->index + o->count)) {
        o->kind = o->kind == L_OTHER ? L_OTHER : L_BROKEN;
    }
    if (o->count < UINT32_MAX) o->count++;
    return true;
}

bool pl_snap_append(struct pl_snap_reader *r, pl_snap_value list, const pl_snap_value *items, size_t count,
                    struct pl_err *err) {
    if (pl_snap_tag(list) != V_LIST)
        return pl_snap_fail_at(r, err, "an item is put into something that is no list");
    struct pl_snap_object *o = pl_snap_object_of(r, list);
    if (count == 0) return true;
    if (o->kind == L_FRAMES || o->kind == L_FRAMES_OPEN ||
        (o->kind == L_EMPTY && list_kind(r, items[0]) == L_FRAMES))
        return append_frames(r, o, items, count, err);
    for (size_t i = 0; i < count; i++)
        if (!append_one(r, o, items[i], err)) return false;
    return true;
}
