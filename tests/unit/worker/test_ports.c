#include "unit.h"
#include "worker/ports.h"

TEST(the_range_is_two_numbers_or_linuxs_own) {
    static const struct {
        const char *text;
        unsigned low, high;
    } rows[] = { { "32768\t60999\n", 32768, 60999 },
                 { "1024 65535", 1024, 65535 },
                 { "5000 5000", 5000, 5000 },
                 { "", 32768, 60999 },
                 { "9 8", 32768, 60999 },
                 { "0 100", 32768, 60999 },
                 { "1 70000", 32768, 60999 },
                 { "abc", 32768, 60999 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_port_range r = pl_ports_parse(rows[i].text);
        assert_int_equal(r.low, rows[i].low);
        assert_int_equal(r.high, rows[i].high);
    }
}

TEST(candidates_lie_outside_the_range_and_come_round) {
    static const struct {
        struct pl_port_range range;
        unsigned count; /* of different candidates */
    } rows[] = { { { 32768, 60999 }, 32768 - 10000 + 65535 - 60999 },
                 { { 10000, 60000 }, 65535 - 60000 },
                 { { 5000, 9000 }, 65535 - 10000 + 1 },
                 { { 20000, 65535 }, 10000 },
                 { { 1024, 65535 }, 65535 - 10000 + 1 } }; /* nothing is outside: from all of them */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static bool had[65536];
        struct pl_ports p;
        unsigned different = 0;
        for (unsigned n = 0; n < 65536; n++) had[n] = false;
        pl_ports_init(&p, rows[i].range, (unsigned)i * 12345);
        for (unsigned n = 0; n < rows[i].count; n++) {
            uint16_t port = pl_ports_next(&p);
            assert_true(port >= 10000);
            if (i < 4) assert_true(port < rows[i].range.low || port > rows[i].range.high);
            different += !had[port];
            had[port] = true;
        }
        assert_int_equal(different, rows[i].count);
    }
}

RUN(cmocka_unit_test(the_range_is_two_numbers_or_linuxs_own),
    cmocka_unit_test(candidates_lie_outside_the_range_and_come_round))
