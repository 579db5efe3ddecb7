/* The token estimate: exact where it can be, careful until it has learnt, hard to poison. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "admit/tokens.h"
#include "unit.h"

static struct pl_tokens t;

/* A text of `words` words of four letters and some marks; in this world a word is 1.5 tokens, a mark one, and
 * the template ten. */
static struct pl_text_counts text_of(unsigned words, unsigned marks) {
    struct pl_text_counts c = { 0 };
    for (unsigned i = 0; i < words; i++) pl_text_count(&c, "word ", 5);
    for (unsigned i = 0; i < marks; i++) pl_text_count(&c, ".,", 2);
    return c;
}
static uint64_t truth(unsigned words, unsigned marks) { return 10 + words * 3 / 2 + marks * 2; }

static void learn(unsigned rounds, double noise) {
    srand(3);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned words = 10 + (unsigned)rand() % 500, marks = (unsigned)rand() % 50;
        struct pl_text_counts c = text_of(words, marks);
        double off = 1 + noise * ((double)rand() / RAND_MAX * 2 - 1);
        assert_true(pl_tokens_learn(&t, &c, (uint64_t)((double)truth(words, marks) * off)));
    }
}

TEST(tokens_that_came_as_numbers_are_exact) {
    pl_tokens_init(&t);
    struct pl_text_counts none = { 0 };
    struct pl_token_count c = pl_tokens_estimate(&t, &none, 1234);
    assert_int_equal(c.tokens, 1234);
    assert_int_equal(c.most, 1234);
    assert_int_equal(c.source, PL_TOKENS_EXACT);
    assert_string_equal(pl_token_source_name(c.source), "exact");
}

TEST(until_twenty_counts_are_known_bytes_are_charged) {
    pl_tokens_init(&t);
    struct pl_text_counts c = text_of(200, 0);
    learn(PL_TOKEN_KNOWN - 1, 0);
    struct pl_token_count e = pl_tokens_estimate(&t, &c, 5);
    assert_int_equal(e.source, PL_TOKENS_FALLBACK);
    assert_int_equal(e.most, 1000 / 2 + 32 + 5);
    learn(1, 0);
    assert_int_equal(pl_tokens_estimate(&t, &c, 5).source, PL_TOKENS_CALIBRATED);
}

TEST(it_learns_a_vocabulary_it_did_not_know) {
    pl_tokens_init(&t);
    learn(300, 0);
    for (unsigned words = 20; words < 2000; words += 97) {
        struct pl_text_counts c = text_of(words, words / 10);
        double e = (double)pl_tokens_estimate(&t, &c, 0).tokens / (double)truth(words, words / 10);
        assert_true(e > 0.95 && e < 1.05);
    }
    assert_true(t.factor >= 1 && t.factor < 1.1);
    assert_true(t.error < 0.05);
}

TEST(one_in_a_hundred_is_charged_too_little) {
    pl_tokens_init(&t);
    learn(1000, 0.3);
    assert_true(t.factor > 1.2 && t.factor < 1.4);
    unsigned little = 0;
    srand(9);
    for (unsigned i = 0; i < 1000; i++) {
        unsigned words = 10 + (unsigned)rand() % 500;
        struct pl_text_counts c = text_of(words, 10);
        double off = 1 + 0.3 * ((double)rand() / RAND_MAX * 2 - 1);
        little += (double)pl_tokens_estimate(&t, &c, 0).most < (double)truth(words, 10) * off;
    }
    assert_true(little <= 40);
}

TEST(a_count_that_cannot_be_is_not_learnt) {
    pl_tokens_init(&t);
    learn(100, 0);
    struct pl_tokens before = t;
    struct pl_text_counts c = text_of(1000, 0);
    assert_false(pl_tokens_learn(&t, &c, 0));
    assert_false(pl_tokens_learn(&t, &c, 1));
    assert_false(pl_tokens_learn(&t, &c, 2 * c.bytes + 4097));
    assert_false(pl_tokens_learn(&t, &c, UINT64_MAX));
    assert_memory_equal(&before, &t, sizeof t);
}

TEST(a_text_unlike_all_before_is_not_free) {
    pl_tokens_init(&t);
    learn(500, 0);
    struct pl_text_counts c = { 0 };
    for (int i = 0; i < 10000; i++) pl_text_count(&c, "\xed\x95\x9c", 3);
    assert_true(pl_tokens_estimate(&t, &c, 0).tokens >= c.bytes / 32);
    memset(&c, 0, sizeof c);
    c.bytes = c.letters = c.puncts = UINT64_MAX / 4;
    assert_true(pl_tokens_estimate(&t, &c, 0).most <= UINT64_MAX / 2);
}

TEST(thirty_thousand_lessons_leave_it_sane) {
    pl_tokens_init(&t);
    for (int i = 0; i < 30; i++) learn(1000, i == 15 ? 0 : 0.2);
    assert_true(pl_tokens_check(&t));
    struct pl_text_counts c = text_of(100, 10);
    double e = (double)pl_tokens_estimate(&t, &c, 0).tokens / (double)truth(100, 10);
    assert_true(e > 0.85 && e < 1.15);
}

TEST(what_was_restored_and_is_no_estimator_begins_anew) {
    pl_tokens_init(&t);
    learn(100, 0);
    t.weight[3] = (double)NAN;
    assert_false(pl_tokens_check(&t));
    assert_int_equal(t.seen, 0);
    assert_true(pl_tokens_check(&t));
    t.covariance[2][2] = -1;
    assert_false(pl_tokens_check(&t));
    t.factor = 1e9;
    assert_false(pl_tokens_check(&t));
}

RUN(cmocka_unit_test(tokens_that_came_as_numbers_are_exact),
    cmocka_unit_test(until_twenty_counts_are_known_bytes_are_charged),
    cmocka_unit_test(it_learns_a_vocabulary_it_did_not_know),
    cmocka_unit_test(one_in_a_hundred_is_charged_too_little),
    cmocka_unit_test(a_count_that_cannot_be_is_not_learnt),
    cmocka_unit_test(a_text_unlike_all_before_is_not_free),
    cmocka_unit_test(thirty_thousand_lessons_leave_it_sane),
    cmocka_unit_test(what_was_restored_and_is_no_estimator_begins_anew))
