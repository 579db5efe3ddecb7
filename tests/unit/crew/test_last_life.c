/* What the last life left, as foreign bytes; and what ended it. */
#include "crew/last_life.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static const char whole[] =
    "{\"v\":1,\"kind\":\"life\",\"boot\":\"9f3c12ab\",\"keeper_pid\":1,\"keeper_start\":77,\"machine\":\"m\","
    "\"group\":\"/a\",\"seen\":\"2026-11-30T14:02:11.207Z\",\"services\":[{\"name\":\"chat\",\"workers\":["
    "{\"worker\":1,\"state\":\"ready\",\"in_flight\":3},{\"worker\":2,\"state\":\"loading\",\"in_flight\":0}]"
    "}],"
    "\"memory\":{\"current_bytes\":7,\"limit_bytes\":8,\"oom_kill\":2}}";

TEST(a_whole_file_reads_as_it_was_written) {
    struct pl_life l;
    assert_true(pl_life_read(whole, sizeof whole - 1, &l));
    assert_int_equal(l.boot, 0x9f3c12ab);
    assert_int_equal(l.keeper_pid, 1);
    assert_int_equal(l.keeper_start, 77);
    assert_string_equal(l.seen, "2026-11-30T14:02:11.207Z");
    assert_int_equal(l.workers, 2);
    assert_int_equal(l.ready, 1);
    assert_int_equal(l.in_flight, 3);
    assert_int_equal(l.kills, 2);
    assert_false(l.goodbye);
}

TEST(a_damaged_one_is_none) {
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"v\":2,\"boot\":\"1\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"t\"}",
        "{\"v\":1,\"boot\":\"x\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"t\"}",
        "{\"v\":1,\"boot\":\"\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"t\"}",
        "{\"v\":1,\"boot\":\"1\",\"machine\":7,\"group\":\"/\",\"seen\":\"t\"}",
        "{\"v\":1,\"boot\":\"1\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"line\\nbreak\"}",
        ("{\"v\":1,\"boot\":\"1\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"2026-11-30T14:02:11.207Z "
         "and much more\"}"),
    };
    struct pl_life l;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pl_life_read(bad[i], strlen(bad[i]), &l)) fail_msg("row %zu", i);
    for (size_t n = 0; n < sizeof whole - 1; n++) assert_false(pl_life_read(whole, n, &l));
}

TEST(figures_that_are_missing_are_not_known) {
    static const char text[] =
        "{\"v\":1,\"boot\":\"1\",\"machine\":\"m\",\"group\":\"/\",\"seen\":\"t\",\"services\":7,"
        "\"memory\":{\"current_bytes\":-1,\"limit_bytes\":\"8\"},\"goodbye\":{\"status\":0}}";
    struct pl_life l;
    assert_true(pl_life_read(text, sizeof text - 1, &l));
    assert_true(l.current == UINT64_MAX && l.limit == UINT64_MAX && l.kills == UINT64_MAX);
    assert_true(l.goodbye);
    assert_int_equal(l.workers, 0);
}

TEST(what_ended_it_follows_from_counts_memory_and_machine) {
    const uint64_t gib = (uint64_t)1 << 30, no = UINT64_MAX;
    const struct {
        const char *machine, *group;
        uint64_t kills, current, limit; /* then */
        uint64_t kills_now;
        const char *cause, *scope, *words;
    } rows[] = {
        { "m", "/a", 2, 7 * gib, 8 * gib, 3, "killed_by_kernel_oom", "container",
          "killed by the kernel, which had no" },
        { "m", "/a", 2, 7 * gib, 8 * gib, 2, "unknown", NULL, "the cause is not known" },
        { "m", "/a", no, 7 * gib, 8 * gib, 3, "unknown", NULL, "the cause is not known" },
        { "m", "/b", 2, 7 * gib, 8 * gib, 3, "unknown", NULL, "the cause is not known" },
        { "m", "/b", 2, 79 * gib, 80 * gib, 0, "killed", NULL, "probably killed by the kernel" },
        { "m", "/b", 2, 79 * gib, no, 0, "unknown", NULL, "without a limit" },
        { "other", "/a", 2, 79 * gib, 80 * gib, 3, "unknown", NULL, "the machine has been started since" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_life last = { .seen = "2026-11-30T14:02:11.207Z",
                                .kills = rows[i].kills,
                                .current = rows[i].current,
                                .limit = rows[i].limit,
                                .workers = 2,
                                .ready = 1,
                                .in_flight = 3 };
        struct pl_life now = { .machine = "m", .group = "/a", .kills = rows[i].kills_now };
        const char *scope;
        char sentence[320];
        snprintf(last.machine, sizeof last.machine, "%s", rows[i].machine);
        snprintf(last.group, sizeof last.group, "%s", rows[i].group);
        assert_string_equal(pl_life_judge(&last, &now, &scope, sentence, sizeof sentence), rows[i].cause);
        if ((scope == NULL) != (rows[i].scope == NULL)) fail_msg("row %zu", i);
        if (scope != NULL) assert_string_equal(scope, rows[i].scope);
        if (strstr(sentence, rows[i].words) == NULL) fail_msg("row %zu: %s", i, sentence);
        assert_non_null(strstr(sentence, "1 of 2 workers were ready, 3 requests in flight"));
    }
}

RUN(cmocka_unit_test(a_whole_file_reads_as_it_was_written), cmocka_unit_test(a_damaged_one_is_none),
    cmocka_unit_test(figures_that_are_missing_are_not_known),
    cmocka_unit_test(what_ended_it_follows_from_counts_memory_and_machine))
