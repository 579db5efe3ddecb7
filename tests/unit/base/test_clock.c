#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "unit.h"

TEST(wall_time_is_rfc3339_in_utc_with_milliseconds) {
    static const struct {
        uint64_t ms;
        const char *text;
    } table[] = {
        { 0, "1970-01-01T00:00:00.000Z" },
        { 1, "1970-01-01T00:00:00.001Z" },
        { 951782399999, "2000-02-28T23:59:59.999Z" },
        { 951782400000, "2000-02-29T00:00:00.000Z" },
        { 1796047331207, "2026-11-30T14:02:11.207Z" },
        { 4102444800050, "2100-01-01T00:00:00.050Z" },
    };
    char out[PL_TIME_TEXT];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_string_equal(pl_time_rfc3339(table[i].ms, out), table[i].text);
}

TEST(every_day_of_four_centuries_is_the_one_the_c_library_says) {
    char out[PL_TIME_TEXT], want[PL_TIME_TEXT];
    for (uint64_t day = 0; day < 146097; day++) {
        time_t seconds = (time_t)(day * 86400 + day % 86400);
        struct tm tm;
        gmtime_r(&seconds, &tm);
        size_t n = strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(want + n, sizeof want - n, ".%03uZ", (unsigned)(day % 1000));
        assert_string_equal(pl_time_rfc3339((uint64_t)seconds * 1000 + day % 1000, out), want);
    }
}

static uint64_t told(void *ctx) { return *(uint64_t *)ctx; }

TEST(a_test_can_be_the_clock) {
    uint64_t now = 42;
    struct pl_clock c = { .now_ms = told, .wall_ms = told, .ctx = &now };
    assert_int_equal(pl_now_ms(&c), 42);
    now += 1000;
    assert_int_equal(pl_now_ms(&c), 1042);
    assert_int_equal(pl_wall_ms(&c), 1042);
}

TEST(the_machines_clock_never_goes_back) {
    uint64_t before = pl_now_ms(&pl_clock_system), before_us = pl_now_us();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = pl_now_ms(&pl_clock_system), now_us = pl_now_us();
        assert_true(now >= before && now_us >= before_us);
        before = now;
        before_us = now_us;
    }
    /* after 2020, and both scales are one clock */
    assert_true(pl_wall_ms(&pl_clock_system) > 1577836800000);
    assert_true(pl_now_us() / 1000 >= before);
}

RUN(cmocka_unit_test(wall_time_is_rfc3339_in_utc_with_milliseconds),
    cmocka_unit_test(every_day_of_four_centuries_is_the_one_the_c_library_says),
    cmocka_unit_test(a_test_can_be_the_clock), cmocka_unit_test(the_machines_clock_never_goes_back))
