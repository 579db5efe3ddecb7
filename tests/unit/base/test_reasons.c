#include "base/reasons.h"

#include <string.h>

#include "unit.h"

TEST(every_reason_has_a_name_of_its_own_and_a_status_that_refuses) {
    for (int r = PL_REASON_NONE + 1; r < PL_REASON_COUNT; r++) {
        const struct pl_reason_info *info = pl_reason_info((enum pl_reason)r);
        assert_true(info->name != NULL &&
                    strspn(info->name, "abcdefghijklmnopqrstuvwxyz_") == strlen(info->name));
        assert_true(info->status >= 400 && info->status < 600);
        for (int other = PL_REASON_NONE; other < r; other++)
            assert_string_not_equal(info->name, pl_reason_info((enum pl_reason)other)->name);
    }
}

/* A router may try another replica on load, and must not on a fault of the request. */
TEST(load_is_told_to_routers_and_a_fault_of_the_request_is_not) {
    for (int r = PL_REASON_NONE + 1; r < PL_REASON_COUNT; r++) {
        const struct pl_reason_info *info = pl_reason_info((enum pl_reason)r);
        bool told = strncmp(info->dropped, "rejected-", strlen("rejected-")) == 0;
        assert_int_equal(told, info->load);
        assert_true(info->load ? info->status == 429 || info->status == 503 || info->status == 499
                               : info->status >= 400 && info->status < 429);
    }
}

TEST(only_a_client_that_left_gets_no_error_code) {
    for (int r = PL_REASON_NONE + 1; r < PL_REASON_COUNT; r++)
        assert_int_equal(pl_reason_info((enum pl_reason)r)->code[0] == '\0', r == PL_REASON_CLIENT_GONE);
}

TEST(a_reason_out_of_range_is_none) {
    assert_string_equal(pl_reason_info((enum pl_reason)9999)->name, "none");
    assert_string_equal(pl_reason_info(PL_REASON_NONE)->name, "none");
}

RUN(cmocka_unit_test(every_reason_has_a_name_of_its_own_and_a_status_that_refuses),
    cmocka_unit_test(load_is_told_to_routers_and_a_fault_of_the_request_is_not),
    cmocka_unit_test(only_a_client_that_left_gets_no_error_code),
    cmocka_unit_test(a_reason_out_of_range_is_none))
