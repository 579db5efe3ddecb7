#include "base/crc32.h"

#include <string.h>

#include "unit.h"

/* values of Python's zlib.crc32 */
TEST(agrees_with_zlib) {
    unsigned char all[256];
    for (size_t i = 0; i < sizeof all; i++) all[i] = (unsigned char)i;
    assert_int_equal(pl_crc32("", 0), 0);
    assert_int_equal(pl_crc32("a", 1), 0xe8b7be43);
    assert_int_equal(pl_crc32("123456789", 9), 0xcbf43926);
    assert_int_equal(pl_crc32("The quick brown fox jumps over the lazy dog", 43), 0x414fa339);
    assert_int_equal(pl_crc32(all, sizeof all), 0x29058c73);
}

TEST(every_flipped_bit_is_seen) {
    unsigned char record[64] = { 1, 2, 3 };
    uint32_t whole = pl_crc32(record, sizeof record);
    for (size_t bit = 0; bit < 8 * sizeof record; bit++) {
        record[bit / 8] = (unsigned char)(record[bit / 8] ^ (1U << bit % 8));
        assert_int_not_equal(pl_crc32(record, sizeof record), whole);
        record[bit / 8] = (unsigned char)(record[bit / 8] ^ (1U << bit % 8));
    }
}

RUN(cmocka_unit_test(agrees_with_zlib), cmocka_unit_test(every_flipped_bit_is_seen))
