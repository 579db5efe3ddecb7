/* Which tokens are looked at. */
#include "llama/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "unit.h"

enum { WORDS = 5000, K = 40 };

static int falling(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

TEST(the_shortlist_is_the_head_of_the_sorted_row) {
    static float logits[WORDS], sorted[WORDS];
    llama_token_data out[K];
    uint32_t random = 7;
    for (int turn = 0; turn < 50; turn++) {
        for (int i = 0; i < WORDS; i++) {
            random = random * 1664525 + 1013904223;
            logits[i] = sorted[i] =
                (float)(random >> 8) / 1e5F - (turn % 2 != 0 ? (float)i : 0); /* also in falling order */
        }
        qsort(sorted, WORDS, sizeof *sorted, falling);
        assert_int_equal(pl_llm_shortlist(logits, WORDS, K, out), K);
        for (int i = 0; i < K; i++) {
            assert_true(out[i].logit == sorted[i]);
            assert_true(logits[out[i].id] == out[i].logit);
            for (int k = 0; k < i; k++) assert_int_not_equal(out[k].id, out[i].id);
        }
    }
}

TEST(of_equals_the_first_is_the_likeliest) {
    const float logits[] = { 1, 3, 3, 2 };
    llama_token_data out[2];
    assert_int_equal(pl_llm_shortlist(logits, 4, 1, out), 1);
    assert_int_equal(out[0].id, 1);
    assert_int_equal(pl_llm_shortlist(logits, 4, 2, out), 2);
    assert_int_equal(out[0].id, 1);
    assert_int_equal(out[1].id, 2);
}

TEST(what_is_no_number_is_never_taken) {
    const float logits[] = { NAN, -INFINITY, 5, NAN };
    llama_token_data out[4];
    assert_int_equal(pl_llm_shortlist(logits, 4, 4, out), 2);
    assert_int_equal(out[0].id, 2);
    assert_int_equal(out[1].id, 1);
    const float none[] = { NAN, NAN };
    assert_int_equal(pl_llm_shortlist(none, 2, 2, out), 0);
}

RUN(cmocka_unit_test(the_shortlist_is_the_head_of_the_sorted_row),
    cmocka_unit_test(of_equals_the_first_is_the_likeliest),
    cmocka_unit_test(what_is_no_number_is_never_taken))
