/* A worker's books: each of the eleven words, who is blamed, when it will end, and rows that lie. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger.h"
#include "unit.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

struct feed {
    struct pl_ledger l;
    struct pl_ledger_row row;
    struct pl_ledger_sample sample;
    struct pl_ledger_verdict v;
};

static struct feed *start(void) {
    struct feed *f = calloc(1, sizeof *f);
    assert_non_null(f);
    pl_ledger_start(&f->l);
    f->row = (struct pl_ledger_row){ .at_ms = 1000,
                                     .quiet = true,
                                     .known = true,
                                     .before = GIB,
                                     .after = GIB,
                                     .reserved = GIB + 64 * MIB,
                                     .peak = GIB + 8 * MIB,
                                     .peak_exact = true };
    f->sample.gpu[0].total = 24 * GIB;
    f->sample.gpu[0].used = f->sample.gpu[0].process = GIB + 512 * MIB;
    f->sample.host_max = 8 * GIB;
    f->sample.at_ms = 1000;
    return f;
}

/* `count` requests, each leaving `leak` behind; 100 a second, a sample each second. */
static void serve(struct feed *f, int count, uint64_t leak) {
    for (int i = 0; i < count; i++) {
        f->row.before = f->row.after;
        f->row.after += leak;
        f->row.peak += leak;
        if (leak > 0 && f->row.after + 64 * MIB > f->row.reserved) f->row.reserved += 20 * MIB;
        f->row.at_ms += 10;
        pl_ledger_row(&f->l, &f->row);
        if (i % 100 != 99) continue;
        f->sample.at_ms += 1000;
        f->sample.gpu[0].process = f->row.reserved + 512 * MIB;
        f->sample.gpu[0].used = f->sample.gpu[0].process + GIB;
        pl_ledger_sample(&f->l, &f->sample);
    }
    pl_ledger_verdict(&f->l, &f->v);
}

TEST(every_word_has_its_name_and_text) {
    const char *const names[] = { "stable",         "warming",         "growing",        "leak",
                                  "cache",          "fragmentation",   "dynamic_shapes", "preallocated",
                                  "duplicate_load", "outside_pytorch", "host_leak" };
    assert_int_equal(PL_VERDICT_COUNT, 11);
    for (int i = 0; i < PL_VERDICT_COUNT; i++) {
        assert_string_equal(pl_verdict_name((enum pl_verdict)i), names[i]);
        assert_true(strlen(pl_verdict_text((enum pl_verdict)i)) > 10);
    }
    assert_string_equal(pl_ledger_scope_name(3), "gpu3");
    assert_string_equal(pl_ledger_scope_name(PL_LEDGER_HOST), "host");
    assert_string_equal(pl_ledger_scope_name(-1), "unknown");
}

TEST(warming_says_how_many_requests_are_missing_then_it_is_stable) {
    struct feed *f = start();
    serve(f, 100, 0);
    assert_int_equal(f->v.word, PL_VERDICT_WARMING);
    assert_int_equal(f->v.missing, 400);
    serve(f, 1000, 0);
    assert_int_equal(f->v.word, PL_VERDICT_STABLE);
    assert_int_equal(f->v.shape, PL_SHAPE_FLAT);
    assert_int_equal(f->v.scope, 0);
    free(f);
}

TEST(a_leak_is_growing_first_then_a_leak_with_rate_tag_and_end) {
    struct feed *f = start();
    struct pl_tag_report tags;
    struct pl_forecast fc;
    f->row.tag = 7;
    serve(f, 1500, 32 * KIB);
    assert_int_equal(f->v.word, PL_VERDICT_GROWING);
    assert_false(f->v.confirmed);
    serve(f, 3000, 32 * KIB);
    assert_int_equal(f->v.word, PL_VERDICT_LEAK);
    assert_true(f->v.confirmed);
    assert_int_equal(f->v.shape, PL_SHAPE_LINE);
    assert_true(fabs(f->v.bytes_per_request - 32.0 * KIB) < KIB);
    assert_in_range(f->v.since_requests, 750, 1500);
    pl_tags_report(&f->l.tags, f->v.bytes_per_request, &tags);
    assert_int_equal(tags.count, 1);
    assert_int_equal(tags.of[0].name, 7);
    /* limit: 24 GiB less 1 GiB of others, 512 MiB of libraries, 8 MiB of a request, 5 % of reserved */
    pl_ledger_forecast(&f->l, 0, 500, &fc);
    assert_true(fc.is);
    double room = 22.5 * GIB - 8.0 * MIB - 0.05 * (double)f->row.reserved - (double)f->row.after;
    assert_true(fabs(fc.requests / (room / (32.0 * KIB)) - 1) < 0.02);
    assert_true(fabs(fc.seconds / (fc.requests / 100) - 1) < 0.02);
    assert_true(fc.low_s <= fc.seconds && fc.seconds <= fc.high_s);
    free(f);
}

TEST(a_buffer_that_is_full_is_a_cache) {
    struct feed *f = start();
    serve(f, 100, 32 * KIB);
    serve(f, 900, 0);
    assert_int_equal(f->v.word, PL_VERDICT_CACHE);
    assert_true(f->v.growth_bytes == 3200.0 * KIB);
    assert_in_range(f->v.since_requests, 88, 112);
    free(f);
}

TEST(one_kept_tensor_of_the_first_request_is_a_cache_too) {
    struct feed *f = start();
    serve(f, 1, 32 * KIB);
    serve(f, 900, 0);
    assert_int_equal(f->v.word, PL_VERDICT_CACHE);
    assert_true(f->v.growth_bytes == 32.0 * KIB);
    free(f);
}

/* It is there at the end of each request and gone before the next one begins. */
TEST(a_reply_that_is_freed_late_is_no_cache) {
    struct feed *f = start();
    for (int i = 0; i < 900; i++) {
        f->row.before = GIB;
        f->row.after = GIB + 32 * KIB;
        pl_ledger_row(&f->l, &f->row);
    }
    pl_ledger_verdict(&f->l, &f->v);
    assert_int_equal(f->v.word, PL_VERDICT_STABLE);
    free(f);
}

TEST(a_model_that_the_first_request_loads_is_no_cache) {
    struct feed *f = start();
    f->row.after = 0; /* `before` of the first row */
    serve(f, 1, GIB);
    serve(f, 900, 0);
    assert_int_equal(f->v.word, PL_VERDICT_STABLE);
    free(f);
}

TEST(reserved_that_rises_with_new_shapes_is_dynamic_shapes) {
    struct feed *f = start();
    for (int i = 0; i < 40; i++) {
        f->row.tag = (uint16_t)(100 + i);
        if (i % 4 == 0) f->row.reserved += 8 * MIB;
        serve(f, 1, 0);
        f->row.tag = 100;
        serve(f, 50, 0);
    }
    assert_int_equal(f->v.word, PL_VERDICT_DYNAMIC_SHAPES);
    assert_int_equal(f->l.shapes, 40);
    assert_true(f->v.growth_bytes == 72.0 * MIB); /* the first row is the beginning */
    free(f);
}

TEST(reserved_that_rises_without_new_shapes_is_fragmentation) {
    struct feed *f = start();
    for (int i = 0; i < 40; i++) {
        serve(f, 50, 0);
        f->row.reserved += 8 * MIB;
    }
    assert_int_equal(f->v.word, PL_VERDICT_FRAGMENTATION);
    free(f);
}

TEST(the_first_segments_of_the_allocator_are_nothing) {
    struct feed *f = start();
    f->row.reserved = 2 * MIB;
    f->row.before = f->row.after = MIB;
    serve(f, 1, 0);
    f->row.reserved += 12 * MIB;
    serve(f, 1000, 0);
    assert_int_equal(f->v.word, PL_VERDICT_STABLE);
    free(f);
}

TEST(most_of_the_device_from_the_start_is_preallocated) {
    struct feed *f = start();
    f->row.known = false; /* an engine with its own page, or none: the driver alone tells */
    f->sample.gpu[0].process = 20 * GIB;
    f->sample.gpu[0].used = 20 * GIB;
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < 20; k++) pl_ledger_row(&f->l, &f->row);
        f->sample.at_ms += 1000;
        pl_ledger_sample(&f->l, &f->sample);
    }
    pl_ledger_verdict(&f->l, &f->v);
    assert_int_equal(f->v.word, PL_VERDICT_PREALLOCATED);
    assert_true(f->v.level_bytes == 20.0 * GIB);
    free(f);
}

TEST(more_holders_than_devices_is_a_duplicate_load_at_once) {
    struct feed *f = start();
    f->sample.holders = 4;
    f->sample.holders_ok = 1;
    serve(f, 100, 0);
    assert_int_equal(f->v.word, PL_VERDICT_DUPLICATE_LOAD);
    assert_int_equal(f->v.copies, 4);
    serve(f, 4500, 32 * KIB); /* a leak is worse */
    assert_int_equal(f->v.word, PL_VERDICT_LEAK);
    free(f);
}

TEST(the_process_that_grows_around_pytorch_is_outside) {
    struct feed *f = start();
    for (int i = 0; i < 300; i++) {
        for (int k = 0; k < 20; k++) pl_ledger_row(&f->l, &f->row);
        f->sample.at_ms += 200;
        f->sample.gpu[0].process += 20 * 48 * KIB;
        f->sample.gpu[0].used += 20 * 48 * KIB;
        pl_ledger_sample(&f->l, &f->sample);
    }
    pl_ledger_verdict(&f->l, &f->v);
    assert_int_equal(f->v.word, PL_VERDICT_OUTSIDE_PYTORCH);
    assert_true(fabs(f->v.bytes_per_request - 48.0 * KIB) < 2 * KIB);
    struct pl_forecast fc;
    pl_ledger_forecast(&f->l, 0, 500, &fc);
    assert_true(fc.is && fc.requests > 0);
    free(f);
}

TEST(host_memory_that_grows_alone_is_a_host_leak) {
    struct feed *f = start();
    struct pl_forecast fc;
    for (int i = 0; i < 4500; i++) {
        f->row.host_bytes = 500 * MIB + (uint64_t)i * 32 * KIB;
        serve(f, 1, 0);
        if (i % 100 == 0) {
            f->sample.at_ms += 1000;
            pl_ledger_sample(&f->l, &f->sample);
        }
    }
    assert_int_equal(f->v.word, PL_VERDICT_HOST_LEAK);
    assert_int_equal(f->v.scope, PL_LEDGER_HOST);
    assert_true(fabs(f->v.bytes_per_request - 32.0 * KIB) < KIB);
    pl_ledger_forecast(&f->l, PL_LEDGER_HOST, 500, &fc);
    assert_true(fc.is && fc.seconds > 1000);
    free(f);
}

/* --- what may not be believed */

TEST(rows_that_cannot_be_true_are_left_out) {
    struct feed *f = start();
    serve(f, 600, 0);
    for (int i = 0; i < 500; i++) {
        struct pl_ledger_row bad = f->row;
        if (i % 3 == 0) bad.after = UINT64_MAX;
        if (i % 3 == 1) bad.gpu = 200;
        if (i % 3 == 2) bad.reserved = PL_LEDGER_ABSURD + 1;
        pl_ledger_row(&f->l, &bad);
    }
    serve(f, 600, 0);
    assert_int_equal(f->l.bad_rows, 500);
    assert_int_equal(f->v.word, PL_VERDICT_STABLE);
    free(f);
}

TEST(lost_records_count_as_requests_and_nobody_is_blamed_for_them) {
    struct feed *f = start();
    struct pl_tag_report tags;
    f->row.tag = 1;
    for (int i = 0; i < 100; i++) {
        serve(f, 40, 0);
        f->row.after += 40 * 64 * KIB; /* by requests that nobody saw */
        pl_ledger_lost(&f->l, 40);
    }
    assert_int_equal(f->v.word, PL_VERDICT_LEAK);
    assert_true(fabs(f->v.bytes_per_request - 32.0 * KIB) < 4 * KIB);
    assert_int_equal(f->v.requests, 7960);
    pl_tags_report(&f->l.tags, f->v.bytes_per_request, &tags);
    assert_int_equal(tags.count, 0);
    pl_ledger_lost(&f->l, UINT64_MAX);
    free(f);
}

TEST(counters_that_go_back_began_anew) {
    struct feed *f = start();
    uint64_t retries, ooms;
    f->sample.gpu[0].retries = 100; /* there before we looked */
    pl_ledger_sample(&f->l, &f->sample);
    f->sample.gpu[0].retries = 103;
    pl_ledger_sample(&f->l, &f->sample);
    f->sample.gpu[0].retries = 2;
    pl_ledger_sample(&f->l, &f->sample);
    pl_ledger_take_counts(&f->l, &retries, &ooms);
    assert_int_equal(retries, 5);
    assert_int_equal(ooms, 0);
    pl_ledger_take_counts(&f->l, &retries, &ooms);
    assert_int_equal(retries, 0);
    free(f);
}

TEST(a_clock_that_jumps_bends_no_forecast) {
    struct feed *f = start();
    struct pl_forecast fc;
    serve(f, 4500, 32 * KIB);
    uint64_t at = f->sample.at_ms;
    f->sample.at_ms = 5; /* back */
    pl_ledger_sample(&f->l, &f->sample);
    f->sample.at_ms = at;
    pl_ledger_sample(&f->l, &f->sample);
    pl_ledger_forecast(&f->l, 0, 500, &fc);
    assert_true(fabs(fc.requests / fc.seconds - 100) < 5);
    f->sample.at_ms = at + 3600 * 1000ull; /* an hour of sleep: the rate is what came since */
    pl_ledger_sample(&f->l, &f->sample);
    pl_ledger_forecast(&f->l, 0, 500, &fc);
    assert_true(fc.is && fc.requests / fc.seconds < 1);
    free(f);
}

TEST(without_a_limit_there_is_no_forecast) {
    struct feed *f = start();
    struct pl_forecast fc;
    memset(&f->sample.gpu[0], 0, sizeof f->sample.gpu[0]);
    for (int i = 0; i < 4500; i++) {
        f->row.after += 32 * KIB;
        pl_ledger_row(&f->l, &f->row);
    }
    pl_ledger_forecast(&f->l, 0, 500, &fc);
    assert_false(fc.is);
    free(f);
}

TEST(peaks_are_kept_by_batch_size_and_by_minute) {
    struct feed *f = start();
    const uint32_t sizes[] = { 0, 1, 2, 3, 4, 5, 8, 9, 100000 };
    const int where[] = { 0, 0, 1, 2, 2, 3, 3, 4, PL_LEDGER_BATCHES - 1 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t had = f->l.batch[where[i]].requests;
        f->row.batch = sizes[i];
        f->row.peak = GIB + (i + 1) * MIB;
        pl_ledger_row(&f->l, &f->row);
        assert_int_equal(f->l.batch[where[i]].requests, had + 1);
        assert_int_equal(f->l.batch[where[i]].peak_bytes, (i + 1) * MIB);
    }
    assert_int_equal(pl_ledger_peak(&f->l, 0), GIB + 9 * MIB);
    f->row.peak = GIB + MIB;
    f->row.at_ms += 61000;
    pl_ledger_row(&f->l, &f->row);
    assert_int_equal(pl_ledger_peak(&f->l, 0), GIB + 9 * MIB); /* of the minute before */
    f->row.at_ms += 61000;
    pl_ledger_row(&f->l, &f->row);
    assert_int_equal(pl_ledger_peak(&f->l, 0), GIB + MIB);
    f->row.at_ms = 1; /* a clock that went back */
    pl_ledger_row(&f->l, &f->row);
    free(f);
}

TEST(a_batch_is_one_row_and_as_many_requests) {
    struct feed *f = start();
    for (int i = 0; i < 6000; i++) {
        f->row.known = i % 4 == 3; /* the others of its batch say nothing */
        f->row.before = f->row.after;
        if (f->row.known) f->row.after += 128 * KIB;
        pl_ledger_row(&f->l, &f->row);
    }
    pl_ledger_verdict(&f->l, &f->v);
    assert_int_equal(f->v.word, PL_VERDICT_LEAK);
    assert_true(fabs(f->v.bytes_per_request - 32.0 * KIB) < KIB);
    free(f);
}

TEST(an_oom_whose_tensors_stay_is_stuck_and_one_that_frees_them_is_not) {
    struct feed *f = start();
    serve(f, 10, 0);
    f->row.oom = true;
    f->row.after += 500 * MIB;
    pl_ledger_row(&f->l, &f->row);
    f->row.oom = false;
    serve(f, 5, 0);
    assert_int_equal(f->l.oom.state, PL_AFTER_OOM_WATCHED);
    f->row.after -= 500 * MIB; /* the traceback was dropped */
    serve(f, 1, 0);
    assert_int_equal(f->l.oom.state, PL_AFTER_OOM_CALM);
    f->row.oom = true;
    f->row.before = f->row.after;
    f->row.after += 500 * MIB;
    pl_ledger_row(&f->l, &f->row);
    f->row.oom = false;
    serve(f, PL_AFTER_OOM_REQUESTS, 0);
    assert_int_equal(f->l.oom.state, PL_AFTER_OOM_STUCK);
    f->row.after -= 500 * MIB;
    serve(f, 1, 0);
    assert_int_equal(f->l.oom.state, PL_AFTER_OOM_CALM);
    free(f);
}

RUN(cmocka_unit_test(a_batch_is_one_row_and_as_many_requests),
    cmocka_unit_test(an_oom_whose_tensors_stay_is_stuck_and_one_that_frees_them_is_not),
    cmocka_unit_test(every_word_has_its_name_and_text),
    cmocka_unit_test(warming_says_how_many_requests_are_missing_then_it_is_stable),
    cmocka_unit_test(a_leak_is_growing_first_then_a_leak_with_rate_tag_and_end),
    cmocka_unit_test(a_buffer_that_is_full_is_a_cache),
    cmocka_unit_test(one_kept_tensor_of_the_first_request_is_a_cache_too),
    cmocka_unit_test(a_reply_that_is_freed_late_is_no_cache),
    cmocka_unit_test(a_model_that_the_first_request_loads_is_no_cache),
    cmocka_unit_test(reserved_that_rises_with_new_shapes_is_dynamic_shapes),
    cmocka_unit_test(reserved_that_rises_without_new_shapes_is_fragmentation),
    cmocka_unit_test(the_first_segments_of_the_allocator_are_nothing),
    cmocka_unit_test(most_of_the_device_from_the_start_is_preallocated),
    cmocka_unit_test(more_holders_than_devices_is_a_duplicate_load_at_once),
    cmocka_unit_test(the_process_that_grows_around_pytorch_is_outside),
    cmocka_unit_test(host_memory_that_grows_alone_is_a_host_leak),
    cmocka_unit_test(rows_that_cannot_be_true_are_left_out),
    cmocka_unit_test(lost_records_count_as_requests_and_nobody_is_blamed_for_them),
    cmocka_unit_test(counters_that_go_back_began_anew),
    cmocka_unit_test(a_clock_that_jumps_bends_no_forecast),
    cmocka_unit_test(without_a_limit_there_is_no_forecast),
    cmocka_unit_test(peaks_are_kept_by_batch_size_and_by_minute))
