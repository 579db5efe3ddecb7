#include "base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t id, uint64_t per_second) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * per_second + (uint64_t)t.tv_nsec / (1000000000 / per_second);
}

static uint64_t system_now(void *ctx) {
    (void)ctx;
    return read_clock(CLOCK_MONOTONIC, 1000);
}

static uint64_t system_wall(void *ctx) {
    (void)ctx;
    return read_clock(CLOCK_REALTIME, 1000);
}

const struct pl_clock pl_clock_system = { .now_ms = system_now, .wall_ms = system_wall };

uint64_t pl_now_us(void) { return read_clock(CLOCK_MONOTONIC, 1000000); }

static char *digits(char *at, unsigned value, int count) {
    for (int i = count - 1; i >= 0; i--, value /= 10) at[i] = (char)('0' + value % 10);
    return at + count;
}

/* By hand, since every log line has one. The calendar is counted from 1 March of year 0, so that a leap day
 * comes last in its year (Hinnant, "chrono-compatible low-level date algorithms"). */
const char *pl_time_rfc3339(uint64_t wall_ms, char out[PL_TIME_TEXT]) {
    unsigned ms = (unsigned)(wall_ms % 1000), second = (unsigned)(wall_ms / 1000 % 86400);
    uint64_t day = wall_ms / 86400000 + 719468, era = day / 146097;
    unsigned of_era = (unsigned)(day % 146097);
    unsigned year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = of_era - (365 * year + year / 4 - year / 100);
    unsigned month = (5 * of_year + 2) / 153;
    unsigned of_month = of_year - (153 * month + 2) / 5 + 1;
    char *at = digits(out, (unsigned)(era % 25) * 400 + year + (month >= 10), 4);
    *at++ = '-';
    at = digits(at, month < 10 ? month + 3 : month - 9, 2);
    *at++ = '-';
    at = digits(at, of_month, 2);
    *at++ = 'T';
    at = digits(at, second / 3600, 2);
    *at++ = ':';
    at = digits(at, second / 60 % 60, 2);
    *at++ = ':';
    at = digits(at, second % 60, 2);
    *at++ = '.';
    at = digits(at, ms, 3);
    *at++ = 'Z';
    *at = '\0';
    return out;
}
