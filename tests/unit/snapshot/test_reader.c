/* The reader on real files, in pieces of every size, cut at every byte, and on pickles that no snapshot is.
 */
#include <stdio.h>

#include "snapshots.h"

static uint64_t sum(const struct pl_snap *s, int what) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->segment_count; i++) {
        const struct pl_snap_segment *g = &s->segments[i];
        n += what == 0 ? g->total : what == 1 ? g->allocated : what == 2 ? g->active : g->requested;
    }
    return n;
}

static void counts_equal(const struct pl_snap *s, const struct json *want) {
    static const char *const states[] = { "active_allocated", "active_pending_free", "inactive" };
    static const char *const actions[] = {
#define X(symbol, word) word,
        PL_SNAP_ACTIONS(X)
#undef X
    };
    double blocks[3] = { 0 };
    for (size_t i = 0; i < s->segment_count; i++)
        for (uint32_t k = 0; k < s->segments[i].block_count; k++)
            blocks[s->blocks[s->segments[i].first_block + k].state]++;
    for (size_t i = 0; i < 3; i++) {
        const struct json *n = json_get(json_get(want, "blocks"), states[i]);
        assert_true(blocks[i] == (n != NULL ? n->number : 0));
    }
    for (uint32_t d = 0; d < s->trace_count; d++) {
        double found[PL_SNAP_ACTION_COUNT] = { 0 };
        char key[16];
        snprintf(key, sizeof key, "%u", d);
        for (uint32_t i = 0; i < s->traces[d].count; i++) found[s->events[s->traces[d].first + i].action]++;
        for (size_t i = 0; i < PL_SNAP_ACTION_COUNT; i++) {
            const struct json *trace = json_get(json_get(want, "trace_counts"), key);
            const struct json *n = trace != NULL ? json_get(trace, actions[i]) : NULL;
            assert_true(found[i] == (n != NULL ? n->number : 0));
        }
    }
}

static void equals_its_json(const char *path, const char *name) {
    (void)name;
    struct json *facts = snap_facts(path), *want = json_get(facts, "snapshot");
    struct pl_snap *s = snap_file(path);
    static const char *const keys[] = { "total_size", "allocated_size", "active_size", "requested_size" };
    assert_int_equal(s->segment_count, json_get(want, "segments")->number);
    for (int i = 0; i < 4; i++) assert_true((double)sum(s, i) == json_get(want, keys[i])->number);
    counts_equal(s, want);
    assert_string_equal(pl_snap_conf(s), json_str(facts, "conf"));
    bool old = strstr(json_str(facts, "torch"), "2.8.0") != NULL;
    assert_int_equal(pl_snap_orders_by_age(s), !old);
    pl_snap_destroy(s);
    json_free(facts);
}

TEST(every_recorded_file_has_the_sums_that_torch_reported) { each_snapshot("*", equals_its_json); }

TEST(pieces_of_any_size_give_the_same_snapshot) {
    struct bytes b = file_bytes(PL_TEST_DATA "/snapshots/stacks_all.pickle");
    struct pl_err err = { 0 };
    struct pl_snap *whole = snap_of(b.at, b.len, b.len, &err);
    assert_non_null(whole);
    for (size_t piece = 1; piece < 70; piece++) {
        struct pl_snap *s = snap_of(b.at, b.len, piece, &err);
        assert_non_null(s);
        assert_int_equal(s->event_count, whole->event_count);
        assert_int_equal(s->stack_count, whole->stack_count);
        assert_memory_equal(s->events, whole->events, whole->event_count * sizeof *s->events);
        assert_memory_equal(s->frame_ids, whole->frame_ids, whole->frame_id_count * sizeof *s->frame_ids);
        pl_snap_destroy(s);
    }
    pl_snap_destroy(whole);
    free(b.at);
}

TEST(a_file_cut_at_any_byte_is_refused) {
    static const char *const files[] = { "user_metadata", "pending_free", "expandable_unmap", "roundup" };
    for (size_t f = 0; f < 4; f++) {
        char path[600];
        snprintf(path, sizeof path, "%s/snapshots/%s.pickle", PL_TEST_DATA, files[f]);
        struct bytes b = file_bytes(path);
        for (size_t len = 0; len < b.len; len++) {
            struct pl_err err = { 0 };
            assert_null(snap_of(b.at, len, 512, &err));
            assert_int_equal(err.code, PL_E_CONFIG);
            if (len > 0) assert_non_null(strstr(err.msg, "cut off"));
        }
        free(b.at);
    }
}

TEST(changed_bytes_never_crash_it) {
    uint64_t random = 12345;
    struct bytes b = file_bytes(PL_TEST_DATA "/snapshots/two_devices.pickle");
    unsigned char *copy = malloc(b.len);
    for (int round = 0; round < 20000; round++) {
        struct pl_err err = { 0 };
        memcpy(copy, b.at, b.len);
        for (int i = 0; i < 1 + round % 4; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            copy[(random >> 33) % b.len] = (unsigned char)(random >> 25);
        }
        pl_snap_destroy(snap_of(copy, b.len, 1 + (size_t)round % 300, &err));
    }
    free(copy);
    free(b.at);
}

/* ---- by hand ---- */

static void refused(const void *bytes, size_t len, const char *words) {
    struct pl_err err = { 0 };
    struct pl_snap *s = snap_of(bytes, len, 7, &err);
    assert_null(s);
    if (strstr(err.msg, words) == NULL) fail_msg("'%s' does not say '%s'", err.msg, words);
}
#define REFUSED(text, words) refused(text, sizeof text - 1, words)

TEST(what_could_run_code_is_refused_with_its_place) {
    REFUSED("\x80\x02"
            "cos\nsystem\nq\0X\4\0\0\0echo\205R.",
            "byte 2: opcode GLOBAL refused");
    REFUSED("\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\5posix\x94\x8c\6system\x94\x93\x94\x8c\2id\x94\x85\x94R\x94.",
            "byte 28: opcode STACK_GLOBAL refused");
    REFUSED("\x80\x02}R.", "byte 3: opcode REDUCE refused");
    REFUSED("\x80\x02}b.", "opcode BUILD refused");
    REFUSED("\x80\x02(ios\nsystem\n.", "opcode INST refused");
    REFUSED("\x80\x02(o.", "opcode OBJ refused");
    REFUSED("\x80\x02)\x81.", "opcode NEWOBJ refused");
    REFUSED("\x80\x04)\x92.", "opcode NEWOBJ_EX refused");
    REFUSED("\x80\x02\x82\1.", "opcode EXT1 refused");
    REFUSED("\x80\x02P1\n.", "opcode PERSID refused");
    REFUSED("\x80\x02K\1Q.", "opcode BINPERSID refused");
    REFUSED("\x80\x05\x97.", "opcode NEXT_BUFFER refused");
    REFUSED("\x80\x02I1\n.", "opcode INT refused");
    REFUSED("\x80\x02\xff.", "no opcode of a pickle");
}

TEST(other_files_are_named_at_once) {
    REFUSED("PK\3\4", "zip archive");
    REFUSED("\x1f\x8b\10", "gunzip it first");
    REFUSED("{\"segments\": []}", "JSON");
    REFUSED("<html>", "a page");
    REFUSED("hello", "no pickle");
    REFUSED("", "empty");
    REFUSED("\x80\x06}.", "newer than 5");
    REFUSED("\x80\x04K\1.", "no memory snapshot");
    REFUSED("\x80\x04}.", "no 'segments'");
    REFUSED("\x80\x04]K\1a.", "no 'segments'");
}

TEST(the_machine_never_goes_below_its_stack) {
    REFUSED("\x80\x02.", "a value is missing");
    REFUSED("\x80\x02"
            "0.",
            "a value is missing");
    REFUSED("\x80\x02"
            "2.",
            "a value is missing");
    REFUSED("\x80\x02s.", "a value is missing");
    REFUSED("\x80\x02"
            "a.",
            "a value is missing");
    REFUSED("\x80\x02K\1(a.", "a value is missing");
    REFUSED("\x80\x02\x87.", "a value is missing");
    REFUSED("\x80\x02u.", "a mark is missing");
    REFUSED("\x80\x02t.", "a mark is missing");
    REFUSED("\x80\x02"
            "1.",
            "a mark is missing");
    REFUSED("\x80\x02(u.", "no container");
    REFUSED("\x80\x02(e.", "no container");
    REFUSED("\x80\x02}(K\1u.", "a key without a value");
    REFUSED("\x80\x02}(K\1K\1u.", "a key that is no text");
    REFUSED("\x80\x02]X\1\0\0\0aK\1s.", "no dict");
    REFUSED("\x80\x02}K\1a.", "no list");
    REFUSED("\x80\x02h\0.", "never given");
    REFUSED("\x80\x02K\1q\5.", "skips");
    REFUSED("\x80\x02K\1r\xff\xff\xff\xff.", "skips");
    REFUSED("\x80\x02\x8a\12\1\1\1\1\1\1\1\1\1\1.", "more than 9 bytes");
    REFUSED("\x80\x02\x8a\11\1\1\1\1\1\1\1\1\1.", "beyond 64 bits");
    REFUSED("\x80\x02\x8b\xff\xff\xff\x7f.", "more than 16 MiB");
    REFUSED("\x80\x02X\xff\xff\xff\xff.", "more than 16 MiB");
    REFUSED("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "more than 16 MiB");
    char deep[80] = "\x80\x02";
    memset(deep + 2, '(', 70);
    refused(deep, 72, "nested more than 64 deep");
}

TEST(a_bomb_meets_the_cap) {
    size_t len = 40 << 20;
    char *bomb = malloc(len);
    struct pl_err err = { 0 };
    memset(bomb, '}', len); /* one byte of file, twenty of memory */
    memcpy(bomb, "\x80\x04", 2);
    assert_null(snap_of(bomb, len, 1 << 20, &err));
    assert_int_equal(err.code, PL_E_TOO_LARGE);
    memcpy(bomb, "\x80\x04]\x94", 4); /* a list that doubles itself */
    for (size_t i = 4; i + 2 < len; i += 2) memcpy(bomb + i, "h\0", 2);
    assert_null(snap_of(bomb, len, 1 << 20, &err));
    free(bomb);
}

/* A pickle of protocol 2 in pieces. */
struct writer {
    unsigned char at[8192];
    size_t len;
};
static void put(struct writer *w, const void *bytes, size_t len) {
    memcpy(w->at + w->len, bytes, len);
    w->len += len;
}
#define PUT(w, text) put((w), text, sizeof text - 1)
static void put_text(struct writer *w, const char *text) {
    unsigned char head[5] = { 'X', (unsigned char)strlen(text), 0, 0, 0 };
    put(w, head, 5);
    put(w, text, strlen(text));
}
static void put_number(struct writer *w,
                       uint64_t n) { /* as the C++ writer does it: LONG1 of 8 bytes, 9 above 2^63 */
    unsigned char long1[11] = { 0x8a, n >> 63 ? 9 : 8 };
    for (int i = 0; i < 8; i++) long1[2 + i] = (unsigned char)(n >> (8 * i));
    put(w, long1, n >> 63 ? 11 : 10);
}
static void put_pair(struct writer *w, const char *key, uint64_t n) {
    put_text(w, key);
    put_number(w, n);
}
static void put_words(struct writer *w, const char *key, const char *text) {
    put_text(w, key);
    put_text(w, text);
}

static void put_block(struct writer *w, uint64_t addr, uint64_t size, const char *state) {
    PUT(w, "}(");
    put_pair(w, "address", addr);
    put_pair(w, "size", size);
    put_pair(w, "requested_size", size);
    put_words(w, "state", state);
    PUT(w, "u");
}

/* {"segments": [one segment of 4096 bytes at `addr` with two blocks]} */
static void put_segment(struct writer *w, uint64_t addr, uint64_t second, uint64_t second_size) {
    PUT(w, "\x80\x02}(");
    put_text(w, "segments");
    PUT(w, "](}(");
    put_pair(w, "device", 0);
    put_pair(w, "address", addr);
    put_pair(w, "total_size", 4096);
    put_pair(w, "stream", 0);
    put_words(w, "segment_type", "small");
    put_text(w, "blocks");
    PUT(w, "](");
    put_block(w, addr, 1024, "active_allocated");
    put_block(w, second, second_size, "inactive");
    PUT(w, "eueu.");
}

TEST(blocks_lie_in_their_segment) {
    struct writer w = { .len = 0 };
    struct pl_err err = { 0 };
    put_segment(&w, 1 << 20, (1 << 20) + 1024, 3072);
    struct pl_snap *s = snap_of(w.at, w.len, 5, &err);
    if (s == NULL) fail_msg("%s", err.msg);
    assert_int_equal(s->segment_count, 1);
    assert_int_equal(s->segments[0].requested, 1024);
    pl_snap_destroy(s);
    w.len = 0;
    put_segment(&w, 1 << 20, (1 << 20) + 512, 3072);
    refused(w.at, w.len, "overlaps the one before");
    w.len = 0;
    put_segment(&w, 1 << 20, (1 << 20) + 1024, 4096);
    refused(w.at, w.len, "goes beyond its end");
    w.len = 0;
    put_segment(&w, 1 << 20, 1, 512);
    refused(w.at, w.len, "beyond its end");
}

TEST(addresses_above_2_to_the_63_are_read) {
    struct writer w = { .len = 0 };
    struct pl_err err = { 0 };
    uint64_t addr = (UINT64_C(1) << 63) + (UINT64_C(1) << 46);
    put_segment(&w, addr, addr + 1024, 3072);
    struct pl_snap *s = snap_of(w.at, w.len, 5, &err);
    assert_non_null(s);
    assert_true(s->segments[0].addr == addr && s->blocks[1].addr == addr + 1024);
    assert_int_equal(pl_snap_segment_at(s, 0, addr + 4095), 0);
    assert_int_equal(pl_snap_segment_at(s, 0, addr + 4096), PL_SNAP_NONE);
    pl_snap_destroy(s);
}

/* torch 1.4: a bare list, blocks without addresses, who asked in `history`. One dict comes key by key, the
 * telling key last. */
TEST(old_schemas_and_dicts_in_pieces_are_read) {
    struct writer w = { .len = 0 };
    struct pl_err err = { 0 };
    PUT(&w, "\x80\x02]}(");
    put_pair(&w, "device", 1);
    put_pair(&w, "address", 1 << 21);
    put_pair(&w, "total_size", 2 << 20);
    put_text(&w, "blocks");
    PUT(&w, "](}");
    put_pair(&w, "size", 1 << 20);
    PUT(&w, "s");
    put_text(&w, "history");
    PUT(&w, "]}(");
    put_pair(&w, "addr", 1 << 21);
    put_pair(&w, "real_size", 1000000);
    put_text(&w, "frames");
    PUT(&w, "]}");
    put_words(&w, "name", "load");
    PUT(&w, "s");
    put_pair(&w, "line", 41);
    PUT(&w, "s");
    put_words(&w, "filename", "/srv/app.py");
    PUT(&w, "sauas");
    put_words(&w, "state", "active_allocated");
    PUT(&w, "s}(");
    put_pair(&w, "size", 1 << 20);
    put_words(&w, "state", "inactive");
    PUT(&w, "ueua.");
    struct pl_snap *s = snap_of(w.at, w.len, 3, &err);
    if (s == NULL) fail_msg("%s", err.msg);
    assert_true(s->bare_list && s->segment_count == 1 && s->segments[0].device == 1 &&
                s->segments[0].block_count == 2);
    const struct pl_snap_block *b = &s->blocks[s->segments[0].first_block];
    assert_int_equal(b[1].addr, (1 << 21) + (1 << 20));
    assert_int_equal(b[0].requested, 1000000);
    assert_int_equal(s->segments[0].requested, 1000000);
    const struct pl_snap_frame *f = &s->frames[pl_snap_top_frame(s, b[0].stack)];
    assert_string_equal(pl_snap_text(s, f->name, NULL), "load");
    assert_string_equal(pl_snap_text(s, f->file, NULL), "/srv/app.py");
    assert_int_equal(f->line, 41);
    assert_int_equal(pl_snap_device_count(s), 2);
    pl_snap_destroy(s);
}

TEST(unknown_keys_of_any_kind_are_skipped) {
    struct writer w = { .len = 0 };
    struct pl_err err = { 0 };
    PUT(&w, "\x80\x02}(");
    put_text(&w, "from_the_future");
    PUT(&w, "](](](K\1ee}(");
    put_text(&w, "x");
    PUT(&w, "G\x3f\xf0\0\0\0\0\0\0u(K\1K\2K\3tN\x88\x89"
            "C\2ab\x85K\1e");
    put_text(&w, "segments");
    PUT(&w, "]");
    put_text(&w, "device_traces");
    PUT(&w, "](]](}(");
    put_words(&w, "action", "user_defined");
    put_text(&w, "size");
    PUT(&w, "N");
    put_text(&w, "addr");
    PUT(&w, "N");
    put_words(&w, "category", "unknown");
    PUT(&w, "ueeu.");
    struct pl_snap *s = snap_of(w.at, w.len, 2, &err);
    if (s == NULL) fail_msg("%s", err.msg);
    assert_int_equal(s->trace_count, 2);
    assert_int_equal(s->traces[1].count, 1);
    assert_int_equal(s->events[s->traces[1].first].action, PL_SNAP_OTHER);
    pl_snap_destroy(s);
}

/* PyTorch's list of frames is one object in many events; equal lists of different objects are one stack, too.
 */
TEST(equal_stacks_are_one) {
    struct pl_snap *s = snap_file(PL_TEST_DATA "/snapshots/steady_leak.pickle");
    assert_true(s->stack_count < 20 && s->event_count == 451);
    pl_snap_destroy(s);
}

TEST(bytes_behind_the_end_are_counted) {
    struct bytes b = file_bytes(PL_TEST_DATA "/snapshots/empty.pickle");
    struct pl_err err = { 0 };
    memcpy(b.at + b.len, "more", 4);
    struct pl_snap *s = snap_of(b.at, b.len + 4, 100, &err);
    assert_non_null(s);
    assert_int_equal(s->trailing_bytes, 4);
    pl_snap_destroy(s);
    free(b.at);
}

RUN(cmocka_unit_test(every_recorded_file_has_the_sums_that_torch_reported),
    cmocka_unit_test(pieces_of_any_size_give_the_same_snapshot),
    cmocka_unit_test(a_file_cut_at_any_byte_is_refused), cmocka_unit_test(changed_bytes_never_crash_it),
    cmocka_unit_test(what_could_run_code_is_refused_with_its_place),
    cmocka_unit_test(other_files_are_named_at_once), cmocka_unit_test(the_machine_never_goes_below_its_stack),
    cmocka_unit_test(a_bomb_meets_the_cap), cmocka_unit_test(blocks_lie_in_their_segment),
    cmocka_unit_test(addresses_above_2_to_the_63_are_read),
    cmocka_unit_test(old_schemas_and_dicts_in_pieces_are_read),
    cmocka_unit_test(unknown_keys_of_any_kind_are_skipped), cmocka_unit_test(equal_stacks_are_one),
    cmocka_unit_test(bytes_behind_the_end_are_counted))
