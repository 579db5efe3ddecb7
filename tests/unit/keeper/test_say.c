/* The keeper's lines as JSON: for a log that main writes in JSON, nothing else may stand between. */
#include <string.h>

#include "keeper/keeper.h"
#include "unit.h"

TEST(pairs_become_members_with_their_types) {
    static const struct {
        const char *line, *want;
    } rows[] = {
        { "ts=2026-11-30T14:02:11.207Z level=error event=main.crashed signal=SIGKILL restarts=0 "
          "restart_in_ms=1",
          "{\"ts\":\"2026-11-30T14:02:11.207Z\",\"level\":\"error\",\"event\":\"main.crashed\",\"signal\":"
          "\"SIGKILL\","
          "\"restarts\":0,\"restart_in_ms\":1}\n" },
        { "event=x stopping=true", "{\"event\":\"x\",\"stopping\":true}\n" },
        { "worker=0.1:0 my service generation=3", "{\"worker\":\"0.1:0 my service\",\"generation\":3}\n" },
        { "wait_status=0x100 n=007 empty=", "{\"wait_status\":\"0x100\",\"n\":\"007\",\"empty\":\"\"}\n" },
        { "name=a\"b\\c\td", "{\"name\":\"a\\\"b\\\\c?d\"}\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[512] = "";
        size_t n = pl_keeper_json(rows[i].line, out, sizeof out);
        if (n != strlen(rows[i].want) || memcmp(out, rows[i].want, n) != 0)
            fail_msg("row %zu: %.*s", i, (int)n, out);
    }
}

TEST(what_does_not_fit_is_not_cut) {
    char out[16];
    memset(out, 'x', sizeof out);
    assert_int_equal(pl_keeper_json("event=something.long", out, sizeof out), 0);
    for (size_t room = 0; room < 13; room++) assert_int_equal(pl_keeper_json("event=abc", out, room), 0);
}

RUN(cmocka_unit_test(pairs_become_members_with_their_types), cmocka_unit_test(what_does_not_fit_is_not_cut))
