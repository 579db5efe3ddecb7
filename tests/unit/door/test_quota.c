/* What a key may still use, moment by moment. */
#include "door/quota.h"
#include "unit.h"

static uint64_t retry;

TEST(a_minute_of_requests_may_come_at_once_and_then_they_trickle) {
    struct pl_quota q = { 0 };
    const struct pl_key_row l = { .requests_per_minute = 6 };
    for (int i = 0; i < 6; i++) assert_int_equal(pl_quota_take(&q, &l, 1000, &retry), PL_QUOTA_OK);
    assert_int_equal(pl_quota_take(&q, &l, 1000, &retry), PL_QUOTA_REQUESTS);
    assert_in_range(retry, 10000, 10001);
    assert_int_equal(pl_quota_take(&q, &l, 10900, &retry), PL_QUOTA_REQUESTS);
    assert_in_range(retry, 100, 101);
    assert_int_equal(pl_quota_take(&q, &l, 11001, &retry), PL_QUOTA_OK);
    assert_int_equal(pl_quota_take(&q, &l, 11001, &retry), PL_QUOTA_REQUESTS);
    for (int i = 0; i < 6; i++) assert_int_equal(pl_quota_take(&q, &l, 10000000, &retry), PL_QUOTA_OK);
    assert_int_equal(pl_quota_take(&q, &l, 10000000, &retry),
                     PL_QUOTA_REQUESTS); /* never more than one minute */
    assert_int_equal(q.running, 13);
}

TEST(places_come_back_when_requests_are_done) {
    struct pl_quota q = { 0 };
    const struct pl_key_row l = { .max_concurrency = 2 };
    assert_int_equal(pl_quota_take(&q, &l, 5, &retry), PL_QUOTA_OK);
    assert_int_equal(pl_quota_take(&q, &l, 5, &retry), PL_QUOTA_OK);
    assert_int_equal(pl_quota_take(&q, &l, 5, &retry), PL_QUOTA_CONCURRENCY);
    assert_int_equal(retry, 1000);
    pl_quota_done(&q);
    assert_int_equal(pl_quota_take(&q, &l, 5, &retry), PL_QUOTA_OK);
    pl_quota_take_anyway(&q);
    assert_int_equal(q.running, 3);
}

TEST(tokens_are_owed_for_when_an_answer_was_longer_than_what_was_left) {
    struct pl_quota q = { 0 };
    const struct pl_key_row l = { .tokens_per_minute = 600 };
    assert_int_equal(pl_quota_take(&q, &l, 1, &retry), PL_QUOTA_OK);
    pl_quota_spend(&q, &l, 599, 1);
    assert_int_equal(pl_quota_take(&q, &l, 1, &retry), PL_QUOTA_OK); /* one is left */
    pl_quota_spend(&q, &l, 101, 1);
    assert_int_equal(pl_quota_take(&q, &l, 1, &retry), PL_QUOTA_TOKENS);
    assert_in_range(retry, 10000, 10001);
    assert_int_equal(pl_quota_take(&q, &l, 10002, &retry), PL_QUOTA_OK);
}

TEST(without_limits_nothing_is_refused) {
    struct pl_quota q = { 0 };
    const struct pl_key_row l = { 0 };
    for (int i = 0; i < 1000; i++) assert_int_equal(pl_quota_take(&q, &l, 7, &retry), PL_QUOTA_OK);
    pl_quota_spend(&q, &l, 1000000000, 7);
    assert_int_equal(pl_quota_take(&q, &l, 7, &retry), PL_QUOTA_OK);
}

RUN(cmocka_unit_test(a_minute_of_requests_may_come_at_once_and_then_they_trickle),
    cmocka_unit_test(places_come_back_when_requests_are_done),
    cmocka_unit_test(tokens_are_owed_for_when_an_answer_was_longer_than_what_was_left),
    cmocka_unit_test(without_limits_nothing_is_refused))
