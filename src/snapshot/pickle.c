/* pickle.c - the machine: opcodes, stack, marks, memo. One pass; an opcode that a piece cuts in two waits in
 * `carry`. */
#include <stdlib.h>
#include <string.h>

#include "snapshot/inside.h"

enum { T1 = 16, T4, T8 }; /* opcodes.def */
enum opcode {
#define OP(byte, name, argument, allowed) OP_##name = (byte),
#include "snapshot/opcodes.def"
#undef OP
};
static const struct {
    const char *name;
    uint8_t argument;
    bool allowed;
} opcodes[256] = {
#define OP(byte, name, argument, allowed) [(byte)] = { #name, argument, allowed },
#include "snapshot/opcodes.def"
#undef OP
};
enum { LONGEST_INT = 9, NEWEST_PROTOCOL = 5 };

bool pl_snap_no_memory(struct pl_snap_reader *r, struct pl_err *err) {
    const struct pl_snap_mem *m = &r->t.mem;
    if (!m->hit)
        return PL_FAIL(err, PL_E_NOMEM, "no memory at byte %llu of the file", (unsigned long long)r->offset);
    PL_FAIL(err, PL_E_TOO_LARGE, "at byte %llu the file would need more than %llu MiB of memory",
            (unsigned long long)r->offset, (unsigned long long)(m->cap >> 20));
    return pl_err_hint(err, "real snapshots need less than their own size; record with a smaller "
                            "max_entries, or without C++ stacks");
}

static bool refuse(struct pl_snap_reader *r, struct pl_err *err, const char *what) {
    return PL_FAIL(err, PL_E_CONFIG, "byte %llu: %s", (unsigned long long)r->offset, what);
}

static bool refuse_opcode(struct pl_snap_reader *r, unsigned char byte, struct pl_err *err) {
    if (opcodes[byte].name == NULL)
        return PL_FAIL(err, PL_E_CONFIG,
                       "byte %llu: 0x%02x is no opcode of a pickle; the file is damaged or no snapshot",
                       (unsigned long long)r->offset, byte);
    PL_FAIL(err, PL_E_CONFIG, "byte %llu: opcode %s refused: a memory snapshot holds numbers and texts only",
            (unsigned long long)r->offset, opcodes[byte].name);
    return pl_err_hint(err, "loading this file with pickle could run code; it was not written by "
                            "torch.cuda.memory._dump_snapshot()");
}

/* The first bytes of what people give us by mistake. */
static bool check_beginning(struct pl_snap_reader *r, const unsigned char *p, size_t count,
                            struct pl_err *err) {
    const char *what = "no pickle of protocol 2 to 5";
    if (p[0] == OP_PROTO) return true;
    if (p[0] == 'P' && count > 1 && p[1] == 'K') what = "a zip archive, perhaps of torch.save()";
    if (p[0] == 0x1f && count > 1 && p[1] == 0x8b) what = "compressed; gunzip it first";
    if (p[0] == '{' || p[0] == '[') what = "JSON";
    if (p[0] == '<') what = "a page, not the snapshot behind it";
    (void)r;
    PL_FAIL(err, PL_E_CONFIG, "byte 0: not a memory snapshot: this is %s", what);
    return pl_err_hint(err, "torch.cuda.memory._dump_snapshot(\"mem.pickle\") writes one");
}

/* ---- stack ---- */

static inline bool push(struct pl_snap_reader *r, pl_snap_value v, struct pl_err *err) {
    if (!PL_SNAP_ROOM(&r->t.mem, r->stack, r->stack_count, r->stack_room)) return pl_snap_no_memory(r, err);
    if (r->stack_count >= PL_SNAP_MOST_STACK) return refuse(r, err, "the stack is too high");
    r->stack[r->stack_count++] = v;
    return true;
}

/* Before the first push there is no stack yet, and nothing may be added to NULL, not even 0. */
static const pl_snap_value *above(const struct pl_snap_reader *r, size_t at) {
    return r->stack != NULL ? r->stack + at : NULL;
}

static size_t floor_of(const struct pl_snap_reader *r) {
    return r->mark_count > 0 ? r->marks[r->mark_count - 1] : 0;
}

/* At least `count` values above the last mark. */
static bool have(struct pl_snap_reader *r, size_t count, struct pl_err *err) {
    return r->stack_count - floor_of(r) >= count ? true : refuse(r, err, "a value is missing on the stack");
}

static bool pop_mark(struct pl_snap_reader *r, size_t *mark, struct pl_err *err) {
    if (r->mark_count == 0) return refuse(r, err, "a mark is missing on the stack");
    *mark = r->marks[--r->mark_count];
    return true;
}

/* The container below the mark. */
static bool pop_items(struct pl_snap_reader *r, size_t *mark, struct pl_err *err) {
    if (!pop_mark(r, mark, err)) return false;
    return *mark > floor_of(r) ? true : refuse(r, err, "no container below the mark");
}

static bool memo_put(struct pl_snap_reader *r, uint64_t index, struct pl_err *err) {
    if (!have(r, 1, err)) return false;
    if (index >= PL_SNAP_MOST_MEMO || index > r->memo_count)
        return refuse(r, err, "a memo number that skips others");
    if (index == r->memo_count) {
        if (!PL_SNAP_ROOM(&r->t.mem, r->memo, r->memo_count, r->memo_room)) return pl_snap_no_memory(r, err);
        r->memo_count++;
    }
    r->memo[index] = r->stack[r->stack_count - 1];
    return true;
}

static bool memo_get(struct pl_snap_reader *r, uint64_t index, struct pl_err *err) {
    if (index >= r->memo_count) return refuse(r, err, "a memo number that was never given");
    return push(r, r->memo[index], err);
}

/* ---- values ---- */

static inline uint64_t little(const unsigned char *p, size_t count) {
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++) n |= (uint64_t)p[i] << (8 * i);
    return n;
}

static bool push_int(struct pl_snap_reader *r, int64_t n, struct pl_err *err) {
    if (n >= -(INT64_C(1) << 59) && n < INT64_C(1) << 59)
        return push(r, pl_snap_make(V_INT, (uint64_t)n), err);
    if (!PL_SNAP_ROOM(&r->t.mem, r->bigs, r->big_count, r->big_room)) return pl_snap_no_memory(r, err);
    r->bigs[r->big_count] = (struct pl_snap_big){ .bits = (uint64_t)n };
    return push(r, pl_snap_make(V_BIG, r->big_count++), err);
}

/* Two's complement, little endian; nine bytes for an address at or above 2^63. */
static bool push_long(struct pl_snap_reader *r, const unsigned char *p, size_t len, struct pl_err *err) {
    if (len > LONGEST_INT) return refuse(r, err, "an integer of more than 9 bytes");
    uint64_t n = little(p, len < 8 ? len : 8);
    if (len > 0 && len < 8 && (p[len - 1] & 0x80) != 0) n |= ~UINT64_C(0) << (8 * len);
    if (len < LONGEST_INT) return push_int(r, (int64_t)n, err);
    if (p[8] != 0) return refuse(r, err, "an integer beyond 64 bits");
    if (n < UINT64_C(1) << 63) return push_int(r, (int64_t)n, err);
    if (!PL_SNAP_ROOM(&r->t.mem, r->bigs, r->big_count, r->big_room)) return pl_snap_no_memory(r, err);
    r->bigs[r->big_count] = (struct pl_snap_big){ .bits = n, .above = true };
    return push(r, pl_snap_make(V_BIG, r->big_count++), err);
}

static bool push_double(struct pl_snap_reader *r, const unsigned char *p, struct pl_err *err) {
    uint64_t bits = 0;
    double d;
    for (size_t i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&d, &bits, sizeof d);
    if (!PL_SNAP_ROOM(&r->t.mem, r->doubles, r->double_count, r->double_room))
        return pl_snap_no_memory(r, err);
    r->doubles[r->double_count] = d;
    return push(r, pl_snap_make(V_DOUBLE, r->double_count++), err);
}

static bool push_string(struct pl_snap_reader *r, const unsigned char *p, size_t len, struct pl_err *err) {
    uint32_t id = pl_snap_intern_string(&r->t, p, len);
    return id != PL_SNAP_NONE ? push(r, pl_snap_make(V_STRING, id), err) : pl_snap_no_memory(r, err);
}

static bool push_object(struct pl_snap_reader *r, enum pl_snap_tag tag, struct pl_err *err) {
    pl_snap_value v;
    return pl_snap_new_object(r, tag, &v, err) && push(r, v, err);
}

/* The last `count` values become one. Only pairs of small numbers are kept: pool ids. */
static bool tuple(struct pl_snap_reader *r, size_t count, struct pl_err *err) {
    pl_snap_value v = pl_snap_make(V_OTHER, 0);
    if (!have(r, count, err)) return false;
    r->stack_count -= count;
    const pl_snap_value *p = above(r, r->stack_count);
    if (count == 2 && pl_snap_tag(p[0]) == V_INT && pl_snap_tag(p[1]) == V_INT) {
        uint64_t a = pl_snap_payload(p[0]), b = pl_snap_payload(p[1]);
        if (a < UINT64_C(1) << 28 && b < UINT64_C(1) << 32) v = pl_snap_make(V_PAIR, a << 32 | b);
    }
    return push(r, v, err);
}

/* DICT and LIST: protocol 0's way, items first. */
static bool container_of_items(struct pl_snap_reader *r, enum pl_snap_tag tag, struct pl_err *err) {
    size_t mark = 0;
    pl_snap_value v;
    if (!pop_mark(r, &mark, err) || !pl_snap_new_object(r, tag, &v, err)) return false;
    const pl_snap_value *items = above(r, mark);
    size_t count = r->stack_count - mark;
    if (!(tag == V_DICT ? pl_snap_set_items : pl_snap_append)(r, v, items, count, err)) return false;
    r->stack_count = mark;
    return push(r, v, err);
}

/* ---- opcodes ---- */

static bool set_items(struct pl_snap_reader *r, struct pl_err *err) {
    size_t mark = 0;
    if (!pop_items(r, &mark, err)) return false;
    bool ok = pl_snap_set_items(r, r->stack[mark - 1], r->stack + mark, r->stack_count - mark, err);
    r->stack_count = mark;
    return ok;
}

static bool append_items(struct pl_snap_reader *r, struct pl_err *err) {
    size_t mark = 0;
    if (!pop_items(r, &mark, err)) return false;
    bool ok = pl_snap_append(r, r->stack[mark - 1], r->stack + mark, r->stack_count - mark, err);
    r->stack_count = mark;
    return ok;
}

static bool one_item(struct pl_snap_reader *r, bool dict, struct pl_err *err) {
    size_t n = dict ? 2 : 1;
    if (!have(r, n + 1, err)) return false;
    r->stack_count -= n;
    const pl_snap_value *items = r->stack + r->stack_count;
    return (dict ? pl_snap_set_items : pl_snap_append)(r, items[-1], items, n, err);
}

/* `p` is the whole opcode with its argument. */
static bool execute(struct pl_snap_reader *r, const unsigned char *p, struct pl_err *err) {
    size_t mark = 0;
    switch (p[0]) {
    case OP_PROTO:
        if (p[1] > NEWEST_PROTOCOL) return refuse(r, err, "a pickle protocol newer than 5");
        r->t.out->protocol = p[1];
        return true;
    case OP_FRAME:
        return true;
    case OP_EMPTY_DICT:
        return push_object(r, V_DICT, err);
    case OP_EMPTY_LIST:
        return push_object(r, V_LIST, err);
    case OP_DICT:
        return container_of_items(r, V_DICT, err);
    case OP_LIST:
        return container_of_items(r, V_LIST, err);
    case OP_MARK:
        if (r->mark_count == PL_SNAP_MOST_MARKS) return refuse(r, err, "nested more than 64 deep");
        r->marks[r->mark_count++] = (uint32_t)r->stack_count;
        return true;
    case OP_SETITEMS:
        return set_items(r, err);
    case OP_APPENDS:
        return append_items(r, err);
    case OP_SETITEM:
        return one_item(r, true, err);
    case OP_APPEND:
        return one_item(r, false, err);
    case OP_MEMOIZE:
        return memo_put(r, r->memo_count, err);
    case OP_BINPUT:
        return memo_put(r, p[1], err);
    case OP_LONG_BINPUT:
        return memo_put(r, little(p + 1, 4), err);
    case OP_BINGET:
        return memo_get(r, p[1], err);
    case OP_LONG_BINGET:
        return memo_get(r, little(p + 1, 4), err);
    case OP_SHORT_BINUNICODE:
        return push_string(r, p + 2, p[1], err);
    case OP_BINUNICODE:
        return push_string(r, p + 5, little(p + 1, 4), err);
    case OP_BINUNICODE8:
        return push_string(r, p + 9, little(p + 1, 8), err);
    case OP_BININT1:
        return push(r, pl_snap_make(V_INT, p[1]), err);
    case OP_BININT2:
        return push(r, pl_snap_make(V_INT, little(p + 1, 2)), err);
    case OP_BININT:
        return push_int(r, (int32_t)(uint32_t)little(p + 1, 4), err);
    case OP_LONG1:
        return push_long(r, p + 2, p[1], err);
    case OP_LONG4:
        return push_long(r, p + 5, little(p + 1, 4), err);
    case OP_BINFLOAT:
        return push_double(r, p + 1, err);
    case OP_NEWTRUE:
        return push(r, pl_snap_make(V_BOOL, 1), err);
    case OP_NEWFALSE:
        return push(r, pl_snap_make(V_BOOL, 0), err);
    case OP_NONE:
        return push(r, pl_snap_make(V_NONE, 0), err);
    case OP_SHORT_BINBYTES:
    case OP_BINBYTES:
    case OP_EMPTY_TUPLE:
        return push(r, pl_snap_make(V_OTHER, 0), err);
    case OP_TUPLE1:
        return tuple(r, 1, err);
    case OP_TUPLE2:
        return tuple(r, 2, err);
    case OP_TUPLE3:
        return tuple(r, 3, err);
    case OP_TUPLE:
        if (!pop_mark(r, &mark, err)) return false;
        return tuple(r, r->stack_count - mark, err);
    case OP_POP_MARK:
        if (!pop_mark(r, &mark, err)) return false;
        r->stack_count = mark;
        return true;
    case OP_POP:
        if (!have(r, 1, err)) return false;
        r->stack_count--;
        return true;
    case OP_DUP:
        return have(r, 1, err) && push(r, r->stack[r->stack_count - 1], err);
    case OP_STOP:
        r->stopped = true;
        return have(r, 1, err);
    default:
        return refuse_opcode(r, p[0], err);
    }
}

/* Bytes of the opcode at p, as far as the `left` bytes tell: the whole, or more than `left`. 0: refused. */
static size_t size_of(struct pl_snap_reader *r, const unsigned char *p, size_t left, struct pl_err *err) {
    if (!opcodes[p[0]].allowed) return (size_t)refuse_opcode(r, p[0], err);
    uint8_t argument = opcodes[p[0]].argument;
    if (argument < T1) return 1 + (size_t)argument;
    size_t width = argument == T1 ? 1 : argument == T4 ? 4 : 8;
    if (left < 1 + width) return 1 + width;
    uint64_t len = little(p + 1, width);
    if (len > PL_SNAP_MOST_STRING) return (size_t)refuse(r, err, "a text of more than 16 MiB");
    return 1 + width + (size_t)len;
}

/* Runs of LONG_BINGET are nine tenths of a file with stacks. Returns how many bytes were done. */
static size_t run_of_gets(struct pl_snap_reader *r, const unsigned char *p, size_t left) {
    const unsigned char *begin = p;
    size_t count = r->stack_count,
           room = r->stack_room < PL_SNAP_MOST_STACK ? r->stack_room : PL_SNAP_MOST_STACK;
    for (; left >= 5 && p[0] == OP_LONG_BINGET && count < room; p += 5, left -= 5) {
        uint32_t index = (uint32_t)p[1] | (uint32_t)p[2] << 8 | (uint32_t)p[3] << 16 | (uint32_t)p[4] << 24;
        if (index >= r->memo_count) break; /* the slow way tells what is wrong */
        r->stack[count++] = r->memo[index];
    }
    r->stack_count = count;
    return (size_t)(p - begin);
}

/* As many whole opcodes as there are. Returns the bytes done, or SIZE_MAX. */
static size_t run(struct pl_snap_reader *r, const unsigned char *p, size_t count, struct pl_err *err) {
    size_t at = 0;
    while (at < count && !r->stopped) {
        if (p[at] == OP_LONG_BINGET) {
            size_t done = run_of_gets(r, p + at, count - at);
            at += done;
            r->offset += done;
            if (done > 0) continue;
        }
        size_t size = size_of(r, p + at, count - at, err);
        if (size == 0) return SIZE_MAX;
        if (size > count - at) break;
        if (!execute(r, p + at, err)) return SIZE_MAX;
        at += size;
        r->offset += size;
    }
    return at;
}

static bool carry_more(struct pl_snap_reader *r, const unsigned char *p, size_t count, struct pl_err *err) {
    size_t want = r->carry_count + count;
    if (want > r->carry_room) {
        r->carry = pl_snap_grown(&r->t.mem, r->carry, want, &r->carry_room, 1);
        if (want > r->carry_room) return pl_snap_no_memory(r, err);
    }
    if (count > 0) memcpy(r->carry + r->carry_count, p, count);
    r->carry_count = want;
    return true;
}

/* Fills the opcode in `carry` from the piece and does it. *used: bytes taken from the piece. */
static bool finish_carried(struct pl_snap_reader *r, const unsigned char *p, size_t count, size_t *used,
                           struct pl_err *err) {
    *used = 0;
    while (r->carry_count > 0) {
        size_t size = size_of(r, r->carry, r->carry_count, err);
        if (size == 0) return false;
        if (size == r->carry_count) {
            if (!execute(r, r->carry, err)) return false;
            r->offset += size;
            r->carry_count = 0;
            break;
        }
        size_t more = size - r->carry_count;
        if (more > count - *used) more = count - *used;
        if (more == 0) break;
        if (!carry_more(r, p + *used, more, err)) return false;
        *used += more;
    }
    return true;
}

bool pl_snap_reader_feed(struct pl_snap_reader *r, const void *bytes, size_t count, struct pl_err *err) {
    const unsigned char *p = bytes;
    size_t used, done;
    if (count == 0) return true;
    r->t.out->file_bytes += count;
    if (!r->begun) {
        r->begun = true;
        if (!check_beginning(r, p, count, err)) return !(r->failed = true);
    }
    r->failed = true;
    if (!finish_carried(r, p, count, &used, err)) return false;
    if (r->carry_count == 0) {
        if ((done = run(r, p + used, count - used, err)) == SIZE_MAX) return false;
        used += done;
        if (r->stopped)
            r->t.out->trailing_bytes += count - used;
        else if (!carry_more(r, p + used, count - used, err))
            return false;
    }
    r->failed = false;
    return true;
}

struct pl_snap_reader *pl_snap_reader_create(const struct pl_snap_limits *limits) {
    struct pl_snap_reader *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->t.mem.cap = limits->memory_bytes;
    r->t.seed = limits->seed;
    r->t.out = calloc(1, sizeof *r->t.out);
    if (r->t.out == NULL || !pl_snap_tables_init(&r->t)) {
        pl_snap_reader_destroy(r);
        return NULL;
    }
    r->t.out->settings.conf = PL_SNAP_NONE;
    r->t.out->settings.max_split = -1;
    return r;
}

/* What only the reading needed. */
static void free_machine(struct pl_snap_reader *r) {
    void *const all[] = { r->stack,   r->memo,  r->carry,     r->objects, r->bigs,
                          r->doubles, r->pairs, r->histories, r->scratch, r->lists };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    for (size_t i = 0; i < r->open_count; i++) free(r->open[i].frames);
    free(r->open);
    pl_snap_tables_free(&r->t);
}

void pl_snap_reader_destroy(struct pl_snap_reader *r) {
    if (r == NULL) return;
    free_machine(r);
    pl_snap_destroy(r->t.out);
    free(r);
}

static bool check_end(struct pl_snap_reader *r, struct pl_err *err) {
    if (r->failed) return PL_FAIL(err, PL_E_CONFIG, "the file was refused before");
    if (!r->begun) return PL_FAIL(err, PL_E_CONFIG, "the file is empty");
    if (!r->stopped) {
        PL_FAIL(err, PL_E_CONFIG, "the file ends at byte %llu in the middle of the pickle: it was cut off",
                (unsigned long long)r->t.out->file_bytes);
        return pl_err_hint(err, "was the process killed while it wrote, or the disk full?");
    }
    return true;
}

struct pl_snap *pl_snap_reader_finish(struct pl_snap_reader *r, struct pl_err *err) {
    struct pl_snap *s = NULL;
    if (check_end(r, err) && pl_snap_settle(r, r->stack[r->stack_count - 1], err)) {
        s = r->t.out;
        r->t.out = NULL;
    }
    pl_snap_reader_destroy(r);
    return s;
}
