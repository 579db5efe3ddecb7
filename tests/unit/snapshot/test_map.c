#include "snapshot/map.h"

#include "snapshot/snapshot.h"
#include "unit.h"

enum { KEYS = 500, STEPS = 200000 };

TEST(it_agrees_with_a_plain_table) {
    uint32_t plain[KEYS];
    uint64_t random = 1;
    size_t count = 0;
    struct pl_map m = { 0 };
    for (size_t i = 0; i < KEYS; i++) plain[i] = PL_SNAP_NONE;
    assert_int_equal(pl_map_take(&m, 1), PL_SNAP_NONE);
    for (uint32_t step = 0; step < STEPS; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t i = (size_t)(random >> 33) % KEYS;
        uint64_t key = 0x7f0000000000 + i * 512;
        if ((random >> 20 & 3) != 0) {
            assert_int_equal(pl_map_get(&m, key), plain[i]);
            count += plain[i] == PL_SNAP_NONE;
            assert_true(pl_map_put(&m, key, plain[i] = step));
        } else {
            assert_int_equal(pl_map_take(&m, key), plain[i]);
            count -= plain[i] != PL_SNAP_NONE;
            plain[i] = PL_SNAP_NONE;
        }
        assert_int_equal(m.count, count);
    }
    pl_map_free(&m);
}

RUN(cmocka_unit_test(it_agrees_with_a_plain_table))
