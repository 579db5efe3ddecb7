/* What a request will hold of a KV cache, and how full an engine that preempts is made. */
#include "admit/kv.h"
#include "unit.h"

static struct pl_answers learnt(uint64_t shortest, uint64_t longest) {
    struct pl_answers a = { 0 };
    for (uint64_t i = 0; i < 512; i++)
        pl_answers_learn(&a, shortest + i % 256 * (longest - shortest) / 255, 100, 0);
    return a;
}

TEST(an_answer_is_expected_to_be_as_long_as_95_in_100_were) {
    struct pl_answers a = { 0 };
    assert_int_equal(pl_answers_expect(NULL), PL_ANSWER_UNKNOWN);
    for (int i = 0; i < PL_ANSWERS_KNOWN - 1; i++) pl_answers_learn(&a, 7, 10, 0);
    assert_int_equal(pl_answers_expect(&a), PL_ANSWER_UNKNOWN);
    pl_answers_learn(&a, 7, 10, 0);
    assert_int_equal(pl_answers_expect(&a), 7);
    a = learnt(0, 1000);
    assert_in_range(pl_answers_expect(&a), 940, 955);
    for (int i = 0; i < 512; i++) pl_answers_learn(&a, 30, 10, 0); /* another time of day */
    assert_int_equal(pl_answers_expect(&a), 30);
}

TEST(what_is_charged_of_a_request) {
    struct pl_answers a = learnt(200, 200), cached = a;
    cached.cached_share = 0.75;
    const struct {
        struct pl_kv_demand d;
        const struct pl_answers *a;
        uint64_t want;
    } rows[] = {
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = UINT64_MAX, .context = 4096 }, &a, 300 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 50, .context = 4096 }, &a, 150 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 1000, .context = 4096 }, &a, 300 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 1000, .context = 4096, .worst = true },
          &a,
          1100 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = UINT64_MAX, .context = 4096, .worst = true },
          &a,
          4096 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = UINT64_MAX, .context = 120 }, &a, 120 },
        { { .prompt = 100, .prompts = 1, .answers = 4, .asked = UINT64_MAX, .context = 4096 }, &a, 900 },
        { { .prompt = 100, .prompts = 2, .answers = 1, .asked = 10, .context = 4096 }, &a, 120 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 1, .context = 4096, .block = 16 }, &a, 112 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = UINT64_MAX, .context = 4096 }, NULL, 612 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 10, .context = 4096 }, &cached, 35 },
        { { .prompt = 100, .prompts = 1, .answers = 1, .asked = 10, .context = 4096, .worst = true },
          &cached,
          110 },
        /* too long a prompt has no answer; that is refused elsewhere */
        { { .prompt = 9000, .prompts = 1, .answers = 1, .asked = 10, .context = 4096 }, &a, 9000 },
        { { .prompt = 1, .prompts = 1, .answers = UINT64_MAX, .asked = 10, .context = 0 }, &a, UINT64_MAX },
        { { .prompt = 1, .prompts = 1, .answers = 1, .asked = UINT64_MAX, .worst = true }, &a, UINT64_MAX },
        { { .prompt = 5, .prompts = 0, .answers = 0, .asked = 0 }, &a, 5 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (pl_kv_tokens(&rows[i].d, rows[i].a) != rows[i].want)
            fail_msg("row %zu: %llu", i, (unsigned long long)pl_kv_tokens(&rows[i].d, rows[i].a));
}

TEST(the_share_of_prompts_that_is_cached_is_learnt_and_never_nonsense) {
    struct pl_answers a = { 0 };
    for (int i = 0; i < 300; i++) pl_answers_learn(&a, 10, 100, 50);
    assert_true(a.cached_share > 0.49 && a.cached_share < 0.51);
    for (int i = 0; i < 300; i++) pl_answers_learn(&a, 10, 100, 101); /* an engine that cannot count */
    assert_true(a.cached_share > 0.49 && a.cached_share < 0.51);
}

static enum pl_pace_move look(struct pl_pace *p, uint64_t waiting, uint64_t preemptions, bool is_short) {
    static uint64_t now = 1000;
    const struct pl_pace_look l = { 100, waiting, preemptions, is_short };
    return pl_pace_take(p, &l, now += PL_PACE_EVERY_MS);
}

TEST(the_pace_follows_what_the_engine_does) {
    struct pl_pace p = { 0 };
    assert_true(pl_pace_times(&p) == 1);
    assert_int_equal(look(&p, 0, 1000, true), PL_PACE_STAYS); /* what was before us is not ours */
    assert_int_equal(look(&p, 0, 1000, true), PL_PACE_UP);
    assert_int_equal(look(&p, 3, 1000, true), PL_PACE_STAYS);  /* it has enough to do */
    assert_int_equal(look(&p, 0, 1000, false), PL_PACE_STAYS); /* nobody waits here */
    assert_int_equal(look(&p, 0, 1003, true), PL_PACE_UP);     /* now and then one is nothing */
    assert_int_equal(look(&p, 0, 1029, true), PL_PACE_DOWN);   /* a quarter of the work is done again */
    assert_int_equal(look(&p, 15, 1029, true), PL_PACE_DOWN);  /* what waits should wait here */
    for (int i = 0; i < 100; i++) look(&p, 0, 1029, true);
    assert_true(pl_pace_times(&p) == 8);
    for (uint64_t i = 0; i < 100; i++) look(&p, 90, 2000 + i * 50, true);
    assert_true(pl_pace_times(&p) == 0.5);
    assert_int_equal(look(&p, 0, 0, true), PL_PACE_STAYS); /* it began anew */
    assert_int_equal(look(&p, 0, 0, true), PL_PACE_UP);
}

RUN(cmocka_unit_test(an_answer_is_expected_to_be_as_long_as_95_in_100_were),
    cmocka_unit_test(what_is_charged_of_a_request),
    cmocka_unit_test(the_share_of_prompts_that_is_cached_is_learnt_and_never_nonsense),
    cmocka_unit_test(the_pace_follows_what_the_engine_does))
