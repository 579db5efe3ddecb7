#include "admit/ordinary.h"
#include "unit.h"

TEST(eight_are_needed_to_know) {
    struct pl_ordinary o = { 0 };
    for (uint64_t i = 1; i < PL_ORDINARY_KNOWN; i++) {
        pl_ordinary_add(&o, 100);
        assert_int_equal(pl_ordinary_bytes(&o), 0);
    }
    pl_ordinary_add(&o, 100);
    assert_int_equal(pl_ordinary_bytes(&o), 100);
}

TEST(one_in_ten_may_be_larger) {
    struct pl_ordinary o = { 0 };
    for (int i = 0; i < 640; i++) {
        pl_ordinary_add(&o, i % 16 == 0 ? 1000 : (uint64_t)(i % 16));
        if (i >= 63) assert_int_equal(pl_ordinary_bytes(&o), 15);
    }
}

TEST(what_is_ordinary_follows_the_latest) {
    struct pl_ordinary o = { 0 };
    for (int i = 0; i < 1000; i++) pl_ordinary_add(&o, 7);
    for (int i = 0; i < 6; i++) pl_ordinary_add(&o, 9);
    assert_int_equal(pl_ordinary_bytes(&o), 7);
    pl_ordinary_add(&o, 9);
    assert_int_equal(pl_ordinary_bytes(&o), 9);
}

RUN(cmocka_unit_test(eight_are_needed_to_know), cmocka_unit_test(one_in_ten_may_be_larger),
    cmocka_unit_test(what_is_ordinary_follows_the_latest))
