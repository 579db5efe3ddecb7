/* plan_record.c - the lengths of requests that really came, out of a flight record: the expectation of a
 * plan. */
#include <stdio.h>

#include "cli/flight.h"
#include "cli/plan_files.h"

enum { NOTHING_TO_JUDGE = 100 }; /* fewer requests than this are no picture of the traffic */

static int64_t count(sqlite3 *db) {
    sqlite3_stmt *s;
    int64_t n = 0;
    static const char sql[] = "SELECT count(*) FROM request WHERE input_tokens > 0 AND output_tokens > 0";
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return n;
}

/* Classes of as many requests each, from the shortest to the longest: each stands for its mean. */
static bool read_classes(sqlite3 *db, struct pl_expect out[PL_EXPECTS], size_t *found) {
    static const char sql[] =
        "SELECT avg(input_tokens), avg(output_tokens), sum(stands_for) * 1.0 / (SELECT sum(stands_for) FROM "
        "request"
        " WHERE input_tokens > 0 AND output_tokens > 0) FROM (SELECT input_tokens, output_tokens, stands_for,"
        " ntile(?1) OVER (ORDER BY input_tokens + output_tokens) AS class FROM request WHERE input_tokens > "
        "0 AND"
        " output_tokens > 0) GROUP BY class ORDER BY class";
    sqlite3_stmt *s;
    uint32_t left = PL_SHARES;
    *found = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return false;
    sqlite3_bind_int(s, 1, PL_EXPECTS);
    while (*found < PL_EXPECTS && sqlite3_step(s) == SQLITE_ROW) {
        uint32_t share = (uint32_t)(sqlite3_column_double(s, 2) * PL_SHARES + 0.5);
        if (share > left) share = left;
        left -= share;
        out[(*found)++] = (struct pl_expect){ .in = (uint64_t)(sqlite3_column_double(s, 0) + 0.5),
                                              .out = (uint64_t)(sqlite3_column_double(s, 1) + 0.5),
                                              .share = share };
    }
    sqlite3_finalize(s);
    if (*found > 0) out[*found - 1].share += left; /* what rounding left over */
    return *found > 0;
}

bool pl_plan_record(const char *file, struct pl_expect out[PL_EXPECTS], size_t *found, bool *too_few,
                    struct pl_err *err) {
    struct pl_flight f;
    *too_few = false;
    if (!pl_flight_open(&f, file, err)) return false;
    int64_t n = count(f.db);
    *too_few = n < NOTHING_TO_JUDGE;
    bool ok = !*too_few && read_classes(f.db, out, found);
    pl_flight_close(&f);
    if (ok) return true;
    PL_FAIL(err, PL_E_USAGE, "%s holds %lld requests whose tokens were counted; at least %d are wanted", file,
            (long long)n, NOTHING_TO_JUDGE);
    return pl_err_hint(err, "give --expect IN+OUT");
}
