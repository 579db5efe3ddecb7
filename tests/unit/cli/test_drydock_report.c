/* The report of a run, from a table filled by hand. */
#include "cli/drydock_report.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#define MIB ((uint64_t)1 << 20)
static struct dd_table table;

static void fill(void) {
    char error[DD_ERROR];
    struct dd_plan p = { .gpu = "t4x2", .context = 400 * MIB };
    memset(&table, 0, sizeof table);
    assert_true(dd_table_fill(&table, &p, error));
    table.card[0].peak = 3000 * MIB;
    table.row[3] = (struct dd_row){ .pid = 812, .state = DD_GONE, .born = 2, .command = "python \"a\".py" };
    table.row[3].use[0] = (struct dd_use){ .peak = 2900 * MIB,
                                           .context = 400 * MIB,
                                           .launches = 7,
                                           .allocated_peak = 2400 * MIB,
                                           .reserved_peak = 2500 * MIB,
                                           .ooms = 1,
                                           .retries = 2,
                                           .oom_largest = 80 * MIB,
                                           .torch = 1 };
    table.row[5] = (struct dd_row){ .pid = 700, .state = DD_LIVE, .born = 1, .command = "hold" };
    table.row[5].use[1] = (struct dd_use){ .peak = 64 * MIB, .refused = 3, .refused_largest = 99 * MIB };
    table.lack_count = 1;
    snprintf(table.lack[0], DD_NAME, "cudaNew");
}

TEST(the_text_begins_with_the_label_and_tells_each_process) {
    struct pl_buf out;
    fill();
    pl_buf_init(&out, 0);
    pl_drydock_text(&(struct pl_drydock_run){ .table = &table, .command = "x", .torch = "", .gpu = "t4x2" },
                    &out);
    const char *text = pl_buf_text(&out);
    assert_true(strncmp(text, "plimsoll drydock: " PL_DRYDOCK_LABEL "\n",
                        sizeof "plimsoll drydock: " PL_DRYDOCK_LABEL) == 0);
    assert_non_null(strstr(
        text,
        "gpu 0: device at most 2.83 GiB (context 400.0 MiB), PyTorch reserved at most 2.44 GiB, allocated at "
        "most 2.34 GiB; 1 OOM (largest request 80.0 MiB), 2 retries; 7 kernels accepted"));
    assert_non_null(strstr(text, "3 allocations refused (largest 99.0 MiB)"));
    assert_non_null(strstr(text, "lacking in the dry dock: cudaNew"));
    assert_true(strstr(text, "pid 700") < strstr(text, "pid 812")); /* in the order of their first use */
    pl_buf_free(&out);
}

TEST(the_json_leaves_out_what_is_not_known) {
    struct pl_buf out;
    fill();
    pl_buf_init(&out, 0);
    pl_drydock_json(
        &(struct pl_drydock_run){
            .table = &table, .command = "x", .torch = "2.15.0", .gpu = "t4x2", .status = 1 },
        &out);
    json_t *doc = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(doc);
    assert_string_equal(json_string_value(json_object_get(doc, "label")), PL_DRYDOCK_LABEL);
    assert_true(json_is_true(json_object_get(doc, "dry_run")));
    assert_int_equal(json_array_size(json_object_get(doc, "devices")), 2);
    const json_t *rows = json_object_get(doc, "processes");
    const json_t *plain = json_array_get(json_object_get(json_array_get(rows, 0), "devices"), 0);
    const json_t *torch = json_array_get(json_object_get(json_array_get(rows, 1), "devices"), 0);
    assert_null(json_object_get(plain, "peak_allocated_bytes"));
    assert_int_equal(json_integer_value(json_object_get(plain, "refused")), 3);
    assert_int_equal(json_integer_value(json_object_get(torch, "peak_allocated_bytes")), 2400 * MIB);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "command")),
                        "python \"a\".py");
    json_decref(doc);
    pl_buf_free(&out);
}

RUN(cmocka_unit_test(the_text_begins_with_the_label_and_tells_each_process),
    cmocka_unit_test(the_json_leaves_out_what_is_not_known))
