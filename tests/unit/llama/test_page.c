/* plimsoll-llama's page, as main reads it. */
#include "llama/page.h"

#include <string.h>
#include <unistd.h>

#include "plimsoll/shm.h"
#include "sample/page.h"
#include "unit.h"

static struct pl_llm_page w;
static struct pl_page p;
static struct pl_err err;

static void open_new(void) {
    assert_true(pl_llm_page_open(&w, -1, "9f3c12ab00000001.7", &err));
    assert_true(pl_page_open(&p, w.at, w.bytes, &err));
    assert_true(p.open);
}

static void end_it(uint64_t id, uint64_t begun, uint16_t status, bool whole) {
    pl_llm_page_end(
        &w,
        &(struct pl_llm_page_end){
            .id = id, .begun = begun, .begun_us = 100, .input_bytes = 30, .status = status, .whole = whole },
        250);
}

TEST(the_header_says_who_writes) {
    open_new();
    const struct pl_page_head *h = (const struct pl_page_head *)(const void *)w.at;
    assert_int_equal(h->generation, 7);
    assert_int_equal(h->boot, 0x9f3c12ab00000001u);
    assert_int_equal(h->writer_pid, getpid());
    assert_true(h->writer_start > 0);
    pl_llm_page_close(&w);
}

TEST(a_page_that_is_too_small_is_refused) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    assert_false(pl_llm_page_open(&w, fd[0], NULL, &err));
    assert_non_null(strstr(err.msg, "bytes"));
    close(fd[0]);
    close(fd[1]);
    assert_false(pl_llm_page_open(&w, fd[0], NULL, &err));
}

TEST(what_began_and_what_ended_is_seen) {
    struct pl_page_counters c;
    struct pl_page_end e;
    open_new();
    assert_int_equal(pl_page_began(&p, 42, 0), PL_SEEN_NO);
    uint64_t number = pl_llm_page_begin(&w, 42, true, 100);
    assert_int_equal(pl_page_began(&p, 42, 0), PL_SEEN_YES);
    assert_int_equal(pl_page_ended(&p, 42, 0, NULL), PL_SEEN_NO);
    assert_true(pl_page_counters(&p, &c) && c.in_flight == 1);
    end_it(42, number, 200, true);
    assert_int_equal(pl_page_ended(&p, 42, 0, &e), PL_SEEN_YES);
    assert_int_equal(e.duration_us, 150);
    assert_int_equal(e.outcome, PL_OUTCOME_OK);
    assert_true(pl_page_counters(&p, &c) && c.in_flight == 0 && c.errors == 0);
    pl_llm_page_close(&w);
}

TEST(how_it_ended_is_told) {
    struct pl_page_record r[8];
    uint64_t cursor = 0, lost = 0;
    struct pl_page_counters c;
    open_new();
    uint64_t first = pl_llm_page_begin(&w, 1, false, 100), second = pl_llm_page_begin(&w, 2, false, 110);
    end_it(1, first, 0, false);    /* the client left */
    end_it(2, second, 200, false); /* a stream that was cut */
    end_it(3, 0, 429, true);       /* refused before it was begun */
    end_it(4, pl_llm_page_begin(&w, 4, false, 120), 503, true);
    assert_int_equal(pl_page_take_ends(&p, &cursor, r, 8, &lost), 4);
    assert_int_equal(r[0].outcome, PL_OUTCOME_CANCELLED);
    assert_int_equal(r[0].flags, PL_RECORD_OVERLAPPED);
    assert_int_equal(r[1].outcome, PL_OUTCOME_ERROR);
    assert_int_equal(r[1].flags, PL_RECORD_OVERLAPPED | PL_RECORD_QUIESCENT);
    assert_int_equal(r[2].outcome, PL_OUTCOME_CLIENT_ERROR);
    assert_int_equal(r[2].flags, PL_RECORD_UNBEGUN);
    assert_int_equal(r[2].begun, 0);
    assert_int_equal(r[3].outcome, PL_OUTCOME_ERROR);
    assert_int_equal(r[3].flags, PL_RECORD_ALONE | PL_RECORD_QUIESCENT);
    assert_int_equal(r[3].input_bytes, 30);
    assert_int_equal(lost, 0);
    assert_true(pl_page_counters(&p, &c) && c.in_flight == 0 && c.errors == 2);
    pl_llm_page_close(&w);
}

TEST(rings_go_round) {
    uint64_t number = 0;
    open_new();
    for (uint64_t id = 1; id <= 3 * PL_PAGE_RECORDS; id++)
        end_it(id, number = pl_llm_page_begin(&w, id, false, 100), 200, true);
    assert_int_equal(number, 3 * PL_PAGE_RECORDS);
    assert_int_equal(pl_page_began(&p, 3 * PL_PAGE_RECORDS, number - 5), PL_SEEN_YES);
    assert_int_equal(pl_page_began(&p, 1, 0), PL_SEEN_UNKNOWN);
    pl_llm_page_close(&w);
}

TEST(the_engine_s_figures_are_read) {
    uint64_t steps[PL_METRIC_BUCKETS] = { [3] = 5, [PL_METRIC_BUCKETS - 1] = 1 };
    struct pl_page_engine_now e;
    open_new();
    assert_false(pl_page_engine(&p, &e)); /* nothing is loaded */
    pl_llm_page_engine(&w,
                       &(struct pl_llm_page_engine){ .cells = 1,
                                                     .used = 2,
                                                     .reserved = 3,
                                                     .cached = 4,
                                                     .parked = 5,
                                                     .weights = 6,
                                                     .kv = 7,
                                                     .compute = 8,
                                                     .output = 9,
                                                     .tokens_in = 10,
                                                     .tokens_out = 11,
                                                     .preemptions = 12,
                                                     .steps = steps,
                                                     .steps_s = 1.5 },
                       99);
    assert_true(pl_page_engine(&p, &e));
    assert_int_equal(e.sampled_us, 99);
    assert_int_equal(e.cells * 10000 + e.cells_used * 1000 + e.cells_reserved * 100 + e.cells_cached * 10 +
                         e.cells_parked,
                     12345);
    assert_int_equal(e.weights * 1000 + e.kv * 100 + e.compute * 10 + e.output, 6789);
    assert_int_equal(e.tokens_in * 10000 + e.tokens_out * 100 + e.preemptions, 101112 + 0);
    assert_int_equal(e.steps_us, 1500000);
    assert_memory_equal(e.steps, steps, sizeof steps);
    pl_llm_page_close(&w);
}

RUN(cmocka_unit_test(the_header_says_who_writes), cmocka_unit_test(a_page_that_is_too_small_is_refused),
    cmocka_unit_test(what_began_and_what_ended_is_seen), cmocka_unit_test(how_it_ended_is_told),
    cmocka_unit_test(rings_go_round), cmocka_unit_test(the_engine_s_figures_are_read))
