#include "cli/top_screen.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

/* One document with an answer to each of the eight questions of a night. */
static const char document[] =
    "{\"version\":\"0.1.0\",\"instance\":\"default\",\"uptime_s\":7800,\"ready\":true,"
    "\"gpus\":[{\"gpu\":0,\"uuid\":\"GPU-1\",\"name\":\"A100\",\"total_bytes\":42949672960,\"used_bytes\":"
    "21474836480,"
    "\"foreign_bytes\":4294967296,\"utilization_ratio\":0.71,\"in_service\":true}],"
    "\"services\":[{\"name\":\"chat\",\"kind\":\"python\",\"target\":\"service:Chat\",\"mode\":\"guard\","
    "\"mode_origin\":\"default\","
    "\"ready\":true,\"warmth\":\"warm\",\"recent\":{\"per_s\":41.5,\"p50_s\":0.0061,\"p99_s\":0.2},"
    "\"queue\":{\"running\":3,\"requests\":2,\"max_requests\":256,\"oldest_ms\":1500},"
    "\"binds\":{\"limit\":\"budget\",\"used\":9663676416,\"of\":10737418240,\"used_ratio\":0.9,\"unit\":"
    "\"bytes\",\"key\":\"memory.budget\"},"
    "\"budget\":[{\"gpu\":0,\"charged_bytes\":9663676416,\"budget_bytes\":10737418240,\"fixed_bytes\":"
    "4294967296,\"margin_bytes\":6442450944}],"
    "\"refused_5m\":{\"budget\":3,\"queue_full\":12},\"would\":{\"replace:leak\":1},\"keys_5m\":{\"batch\":"
    "90,\"web\":7},"
    "\"workers\":[{\"worker\":1,\"generation\":12,\"state\":\"ready\",\"warm\":true,\"age_s\":7200,"
    "\"requests\":48211,\"in_flight\":3,"
    "\"memory\":[{\"scope\":\"gpu0\",\"allocated_bytes\":8589934592,\"reserved_bytes\":12884901888}],"
    "\"verdict\":{\"word\":\"leak\",\"bad\":true,\"scope\":\"gpu0\",\"bytes_per_request\":32768,"
    "\"confidence\":\"confirmed\","
    "\"top_tag\":\"chat /predict\",\"holder\":\"service.py:41 CACHE\",\"forecast_s\":11400}}],"
    "\"replacement\":{\"planned\":true,\"worker\":1,\"reason\":\"leak\",\"mode\":\"handover\",\"expected_gap_"
    "s\":31,\"held_by\":\"gap\"},"
    "\"last_death\":{\"id\":\"d11\",\"ts\":\"2026-11-30T03:12:45.000Z\",\"cause\":\"gpu_out_of_memory\","
    "\"sentence\":\"ran out of memory\"}},"
    "{\"name\":\"other\",\"ready\":false,\"why\":\"starting\",\"workers\":[]}],"
    "\"events\":[{\"ts\":\"2026-11-30T03:12:45.000Z\",\"level\":\"info\",\"event\":\"request.refused\","
    "\"service\":\"chat\","
    "\"reason\":\"budget\",\"status\":429},{\"ts\":\"2026-11-30T03:12:46.000Z\",\"level\":\"error\","
    "\"event\":\"worker.death\","
    "\"service\":\"chat\",\"sentence\":\"was killed\"}]}";

static struct pl_top_screen screen;

/* All lines, each with a newline. Borrowed until the next call. */
static const char *render(const char *text, size_t service, size_t rows, size_t cols) {
    static char all[PL_TOP_MOST_ROWS * (PL_TOP_MOST_COLS + 1)];
    json_t *doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    screen.rows = rows;
    screen.cols = cols;
    pl_top_render(doc, service, &screen);
    json_decref(doc);
    all[0] = '\0';
    assert_true(screen.count <= screen.rows);
    for (size_t i = 0, at = 0; i < screen.count; i++) {
        assert_true(strlen(screen.lines[i].text) <= screen.cols);
        at += (size_t)sprintf(all + at, "%s\n", screen.lines[i].text);
    }
    return all;
}

static void assert_says(const char *all, const char *what) {
    if (strstr(all, what) == NULL) fail_msg("not there: %s\n%s", what, all);
}

TEST(eight_questions_are_answered_within_80_by_24) {
    const char *all = render(document, 0, 24, 80);
    assert_says(all, "leak on gpu0: 32.0 KiB a request, confirmed, most by chat /predict\n");
    assert_says(all, "held by service.py:41 CACHE\n");               /* which leaks, and where */
    assert_says(all, "refused in 5 min: queue_full 12, budget 3\n"); /* why refused */
    assert_says(all, "03:12:45 request.refused chat reason=budget status=429\n");
    assert_says(all, "out of memory in 3h10m\n"); /* how long */
    assert_says(all, "last death 03:12:45 gpu_out_of_memory: ran out of memory\n");
    assert_says(all, "binds: budget, 9.0 GiB of 10.0 GiB (90 %), memory.budget\n");
    assert_says(all, "chat  service:Chat  ready, warm  mode guard (default)\n");
    assert_says(all, "enforce would have: replace:leak 1\n");
    assert_says(all, "budget of gpu 0: 9.0 GiB of 10.0 GiB charged, 4.0 GiB fixed\n"); /* who uses it */
    assert_says(all, "requests by key in 5 min: batch 90, web 7\n");
    assert_says(all, "held back by gap\n");
}

TEST(the_load_line_shows_parts_in_their_share) {
    const char *all = render(document, 0, 24, 80);
    /* 28 cells for 40 GiB: 8 in use, 4 reserved, 4 not ours; the margin begins at 34 */
    assert_says(all, "gpu 0 [######===xxx...........|....] 20.0 GiB of 40.0 GiB, 4.0 GiB not");
}

TEST(services_are_shown_one_at_a_time_and_round) {
    assert_says(render(document, 1, 24, 80), "other  -  NOT READY: starting");
    assert_says(render(document, 1, 24, 80), "service 2 of 2 (tab)\n");
    assert_says(render(document, 2, 24, 80), "chat  service:Chat");
}

TEST(any_size_of_terminal_is_kept_to) {
    for (size_t rows = 0; rows < 40; rows++)
        for (size_t cols = 0; cols < 120; cols += 7) render(document, 0, rows, cols);
    render(document, 0, 10000, 10000);
    assert_int_equal(screen.rows, PL_TOP_MOST_ROWS);
}

TEST(documents_that_say_little_or_nonsense_are_shown_as_far_as_they_go) {
    assert_says(render("{}", 0, 24, 80), "NOT READY");
    assert_says(render("[]", 0, 24, 80), "NOT READY");
    render("{\"services\":3,\"gpus\":{},\"events\":[1,{}]}", 5, 24, 80);
    render("{\"services\":[1],\"gpus\":[1,2,3,4,5,6]}", 0, 24, 80);
    assert_says(render("{\"gpus\":[{\"gpu\":0,\"name\":\"x\"}]}", 0, 24, 80), "the driver tells no memory");
    render("{\"gpus\":[{\"gpu\":0,\"total_bytes\":10,\"used_bytes\":1e300,\"foreign_bytes\":-5}],"
           "\"services\":[{\"workers\":[{\"memory\":[{\"scope\":\"gpu0\",\"allocated_bytes\":1e300}]}],"
           "\"budget\":[{\"gpu\":0,"
           "\"margin_bytes\":-5}]}]}",
           0, 24, 80);
}

TEST(names_cannot_move_the_cursor) {
    const char *all =
        render("{\"services\":[{\"name\":\"\\u001b[2Jx\\u00e9\\n\",\"ready\":false,\"why\":\"\\u0007\"}]}", 0,
               24, 80);
    assert_says(all, "?[2Jx??  -  NOT READY: ?  mode - (-)\n");
}

TEST(of_many_workers_the_rest_is_counted) {
    char text[8192] = "{\"services\":[{\"name\":\"a\",\"ready\":true,\"workers\":[";
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "%s{\"worker\":%d,\"generation\":1,\"state\":\"ready\"}",
                i > 0 ? "," : "", i);
    strcat(text, "]}],\"events\":[{\"event\":\"main.ready\"},{\"event\":\"b\"},{\"event\":\"c\"}]}");
    const char *all = render(text, 0, 24, 80);
    assert_says(all, "more workers\n");
    assert_says(all, "main.ready");
}

RUN(cmocka_unit_test(eight_questions_are_answered_within_80_by_24),
    cmocka_unit_test(the_load_line_shows_parts_in_their_share),
    cmocka_unit_test(services_are_shown_one_at_a_time_and_round),
    cmocka_unit_test(any_size_of_terminal_is_kept_to),
    cmocka_unit_test(documents_that_say_little_or_nonsense_are_shown_as_far_as_they_go),
    cmocka_unit_test(names_cannot_move_the_cursor), cmocka_unit_test(of_many_workers_the_rest_is_counted))
