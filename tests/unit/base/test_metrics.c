#include "base/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static const struct {
    const char *name, *labels, *help;
    enum pl_metric_type type;
} table[PL_METRIC_COUNT] = {
#define METRIC(id, name, type, labels, help) { name, labels, help, type },
#include "base/metrics.def"
#undef METRIC
};

/* Borrowed until the next call. */
static const char *page(struct pl_metrics *m) {
    static char text[1 << 20];
    struct pl_buf b;
    pl_buf_init(&b, 0);
    pl_metrics_render(m, &b);
    assert_true(b.len < sizeof text);
    memcpy(text, pl_buf_text(&b), b.len + 1);
    pl_buf_free(&b);
    return text;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

TEST(the_table_keeps_the_rules_of_prometheus) {
    for (size_t i = 0; i < PL_METRIC_COUNT; i++) {
        const char *name = table[i].name;
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
        assert_true(strncmp(name, "plimsoll_", 9) == 0 || strncmp(name, "process_", 8) == 0);
        assert_int_equal(ends_with(name, "_total"), table[i].type == PL_COUNTER);
        if (table[i].type == PL_HISTOGRAM_SECONDS) assert_true(ends_with(name, "_seconds"));
        if (table[i].type == PL_HISTOGRAM_BYTES) assert_true(ends_with(name, "_bytes"));
        assert_true(ends_with(table[i].help, ".") && strpbrk(table[i].help, "\\\n") == NULL);
        size_t labels = table[i].labels[0] != '\0';
        for (const char *c = table[i].labels; *c != '\0'; c++) labels += *c == ',';
        assert_true(labels <= PL_METRIC_MAX_LABELS);
        assert_int_equal(strspn(table[i].labels, "abcdefghijklmnopqrstuvwxyz_,"), strlen(table[i].labels));
        for (size_t k = 0; k < i; k++) assert_string_not_equal(name, table[k].name);
    }
}

TEST(without_data_there_is_no_family) {
    struct pl_metrics *m = pl_metrics_create(100);
    assert_string_equal(page(m), "");
    pl_metrics_destroy(m);
}

TEST(a_series_is_made_once_and_written_with_its_family) {
    struct pl_metrics *m = pl_metrics_create(100);
    struct pl_series *s = pl_series(m, PL_M_REQUESTS_TOTAL, "chat", "200");
    pl_series_add(s, 1);
    pl_series_add(pl_series(m, PL_M_REQUESTS_TOTAL, "chat", "200"), 2);
    assert_ptr_equal(s, pl_series(m, PL_M_REQUESTS_TOTAL, "chat", "200"));
    pl_series_set(pl_series0(m, PL_M_DRAINING), 1);
    pl_series(m, PL_M_REQUESTS_TOTAL, "chat", "429");
    assert_true(pl_series_value(s) == 3);
    assert_string_equal(
        page(m), "# HELP plimsoll_draining 1 while nothing new is taken.\n"
                 "# TYPE plimsoll_draining gauge\n"
                 "plimsoll_draining 1\n"
                 "# HELP plimsoll_requests_total All answers, refusals included; 499 is a client that left.\n"
                 "# TYPE plimsoll_requests_total counter\n"
                 "plimsoll_requests_total{service=\"chat\",code=\"200\"} 3\n"
                 "plimsoll_requests_total{service=\"chat\",code=\"429\"} 0\n");
    pl_metrics_destroy(m);
}

TEST(the_order_on_the_page_does_not_depend_on_who_came_first) {
    static const char *const codes[] = { "200", "404", "429", "499", "502", "503", "504" };
    static const size_t orders[2][7] = { { 3, 0, 6, 2, 5, 1, 4 }, { 6, 5, 4, 3, 2, 1, 0 } };
    char first[4096];
    for (size_t i = 0; i < 2; i++) {
        struct pl_metrics *m = pl_metrics_create(100);
        for (size_t k = 0; k < 7; k++) pl_series(m, PL_M_REQUESTS_TOTAL, "chat", codes[orders[i][k]]);
        if (i == 0) strcpy(first, page(m));
        assert_string_equal(page(m), first);
        pl_metrics_destroy(m);
    }
}

static void collect(void *ctx, enum pl_metric id, const struct pl_series *s) {
    char service[64], reason[64], nothing[8] = "x";
    assert_int_equal(id, PL_M_REQUESTS_REFUSED_TOTAL);
    assert_true(pl_series_label(s, "service", service, sizeof service));
    assert_true(pl_series_label(s, "reason", reason, sizeof reason));
    assert_false(pl_series_label(s, "son", nothing, sizeof nothing));
    assert_string_equal(nothing, "");
    char *out = ctx;
    sprintf(out + strlen(out), "[%s|%s|%.0f]", service, reason, pl_series_value(s));
}

TEST(who_looks_reads_the_labels_back) {
    struct pl_metrics *m = pl_metrics_create(100);
    char seen[256] = "", four[5];
    pl_series_add(pl_series(m, PL_M_REQUESTS_REFUSED_TOTAL, "a", "queue_full"), 3);
    pl_series_add(pl_series(m, PL_M_REQUESTS_REFUSED_TOTAL, "b\\\"\n,reason=\"x", "budget"), 1);
    pl_metrics_each(m, PL_M_REQUESTS_REFUSED_TOTAL, collect, seen);
    assert_string_equal(seen, "[a|queue_full|3][b\\\"\n,reason=\"x|budget|1]");
    assert_true(pl_series_label(pl_series(m, PL_M_REQUESTS_REFUSED_TOTAL, "a", "queue_full"), "reason", four,
                                sizeof four));
    assert_string_equal(four, "queu");
    assert_false(pl_series_label(pl_series0(m, PL_M_UP_SECONDS), "service", four, sizeof four));
    pl_metrics_destroy(m);
}

/* What has not changed is copied from the page before: every way to change a series must say so. */
TEST(each_change_is_on_the_next_page) {
    struct pl_metrics *m = pl_metrics_create(100);
    struct pl_series *gauge = pl_series0(m, PL_M_UP_SECONDS),
                     *seconds = pl_series(m, PL_M_REQUEST_SECONDS, "a");
    const uint64_t two[PL_METRIC_BUCKETS] = { 2 };
    page(m);
    pl_series_set(gauge, 41);
    assert_non_null(strstr(page(m), "plimsoll_up_seconds 41\n"));
    pl_series_add(gauge, 1);
    assert_non_null(strstr(page(m), "plimsoll_up_seconds 42\n"));
    pl_series_observe(seconds, 0.0001);
    assert_non_null(strstr(page(m), "plimsoll_request_seconds_count{service=\"a\"} 1\n"));
    pl_series_merge(seconds, two, 0.0002);
    assert_non_null(strstr(page(m), "plimsoll_request_seconds_count{service=\"a\"} 3\n"));
    pl_metrics_destroy(m);
}

TEST(quantiles_lie_within_their_bucket) {
    struct pl_metrics *m = pl_metrics_create(100);
    struct pl_series *s = pl_series(m, PL_M_REQUEST_SECONDS, "a");
    uint64_t buckets[PL_METRIC_BUCKETS];
    pl_series_buckets(s, buckets);
    assert_true(isnan(pl_metrics_quantile_seconds(buckets, 0.5)));
    for (int i = 0; i < 98; i++) pl_series_observe(s, 0.007); /* in 5 to 10 ms */
    pl_series_observe(s, 0.2);
    pl_series_observe(s, 1000);
    pl_series_buckets(s, buckets);
    assert_float_equal(pl_metrics_quantile_seconds(buckets, 0.49), 0.0075, 1e-9);
    assert_float_equal(pl_metrics_quantile_seconds(buckets, 0.99), 0.25, 1e-9);
    assert_float_equal(pl_metrics_quantile_seconds(buckets, 1), 300, 1e-9);
    pl_series_buckets(pl_series0(m, PL_M_UP_SECONDS), buckets); /* no histogram: nothing fell anywhere */
    assert_true(isnan(pl_metrics_quantile_seconds(buckets, 0.5)));
    pl_metrics_destroy(m);
}

TEST(label_values_are_escaped_and_bounded) {
    struct pl_metrics *m = pl_metrics_create(100);
    char long_value[500];
    memset(long_value, 'a', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    pl_series(m, PL_M_CONNECTIONS, "a\"b\\c\nd\xff");
    assert_non_null(strstr(page(m), "plimsoll_connections{listener=\"a\\\"b\\\\c\\nd?\"} 0\n"));
    struct pl_series *s = pl_series(m, PL_M_CONNECTIONS_TOTAL, long_value);
    long_value[PL_METRIC_LABEL_BYTES] = '\0';
    assert_ptr_equal(s, pl_series(m, PL_M_CONNECTIONS_TOTAL, long_value));
    /* escaped, a value is twice as long */
    memset(long_value, '"', sizeof long_value - 1);
    pl_series(m, PL_M_BUILD_INFO, long_value, long_value, long_value, long_value, long_value);
    assert_non_null(strstr(page(m), "python=\"\\\"\\\""));
    pl_metrics_destroy(m);
}

TEST(a_histogram_counts_up_to_and_with_its_bounds) {
    struct pl_metrics *m = pl_metrics_create(100);
    struct pl_series *s = pl_series(m, PL_M_REQUEST_SECONDS, "chat");
    pl_series_observe(s, 0.25);
    pl_series_observe(s, 0.375);
    pl_series_observe(s, 299);
    pl_series_observe(s, 301);
    assert_true(pl_series_value(s) == 4);
    const char *samples = strstr(page(m), "histogram\n") + strlen("histogram\n");
    static const struct {
        const char *le;
        int count;
    } expected[] = {
        { "0.001", 0 }, { "0.0025", 0 }, { "0.005", 0 }, { "0.01", 0 }, { "0.025", 0 }, { "0.05", 0 },
        { "0.1", 0 },   { "0.25", 1 },   { "0.5", 2 },   { "1", 2 },    { "2.5", 2 },   { "5", 2 },
        { "10", 2 },    { "25", 2 },     { "50", 2 },    { "100", 2 },  { "300", 3 },   { "+Inf", 4 },
    };
    struct pl_buf want;
    pl_buf_init(&want, 0);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        pl_buf_addf(&want, "plimsoll_request_seconds_bucket{service=\"chat\",le=\"%s\"} %d\n", expected[i].le,
                    expected[i].count);
    pl_buf_adds(&want, "plimsoll_request_seconds_sum{service=\"chat\"} 600.625\n"
                       "plimsoll_request_seconds_count{service=\"chat\"} 4\n");
    assert_string_equal(samples, pl_buf_text(&want));
    pl_buf_free(&want);
    pl_metrics_destroy(m);
}

TEST(numbers_read_back_as_they_were) {
    static const struct {
        double value;
        const char *text;
    } numbers[] = {
        { 0, " 0\n" },
        { 0.1, " 0.1\n" },
        { -2.5, " -2.5\n" },
        { 1796047331.207, " 1796047331.207\n" },
        { 1e21, " 1e+21\n" },
        { 9007199254740991, " 9007199254740991\n" },
        { 1.0 / 3, " 0.3333333333333333\n" },
        { (double)NAN, " NaN\n" },
        { (double)INFINITY, " +Inf\n" },
        { -(double)INFINITY, " -Inf\n" },
    };
    struct pl_metrics *m = pl_metrics_create(100);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        pl_series_set(pl_series0(m, PL_M_UP_SECONDS), numbers[i].value);
        assert_true(ends_with(page(m), numbers[i].text));
    }
    pl_metrics_destroy(m);
}

TEST(what_is_dropped_leaves_the_page_and_starts_again_at_zero) {
    struct pl_metrics *m = pl_metrics_create(100);
    const char *gone[] = { "chat", "2" };
    pl_series_set(pl_series(m, PL_M_WORKER_WARM, "chat", "1"), 1);
    pl_series_set(pl_series(m, PL_M_WORKER_WARM, "chat", "2"), 1);
    pl_metrics_drop(m, PL_M_WORKER_WARM, gone, 2);
    pl_metrics_drop(m, PL_M_WORKER_WARM, gone, 2);
    assert_non_null(strstr(page(m), "worker=\"1\""));
    assert_null(strstr(page(m), "worker=\"2\""));
    assert_true(pl_series_value(pl_series(m, PL_M_WORKER_WARM, "chat", "2")) == 0);
    pl_metrics_destroy(m);
}

TEST(over_the_bound_new_values_become_other) {
    struct pl_metrics *m = pl_metrics_create(3);
    const char *first[] = { "l1", "malformed" };
    pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l1", "malformed");
    pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l1", "head_timeout");
    pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l1", "idle_timeout");
    struct pl_series *other = pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l2", "malformed");
    for (int i = 0; i < 1000; i++) {
        char value[16];
        snprintf(value, sizeof value, "x%d", i);
        pl_series_add(pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l3", value), 1);
    }
    assert_true(pl_series_value(other) == 1000);
    assert_non_null(
        strstr(page(m), "plimsoll_http_errors_total{listener=\"other\",reason=\"other\"} 1000\n"));
    /* known ones and those without labels go on */
    pl_series_add(pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l1", "malformed"), 1);
    assert_non_null(strstr(page(m), "{listener=\"l1\",reason=\"malformed\"} 1\n"));
    pl_series_set(pl_series0(m, PL_M_DRAINING), 1);
    assert_non_null(strstr(page(m), "plimsoll_draining 1\n"));
    /* there is room again after series went */
    pl_metrics_drop(m, PL_M_HTTP_ERRORS_TOTAL, first, 2);
    pl_metrics_drop(m, PL_M_HTTP_ERRORS_TOTAL, (const char *const[]){ "l1", "head_timeout" }, 2);
    pl_metrics_drop(m, PL_M_HTTP_ERRORS_TOTAL, (const char *const[]){ "l1", "idle_timeout" }, 2);
    pl_series(m, PL_M_HTTP_ERRORS_TOTAL, "l4", "malformed");
    assert_non_null(strstr(page(m), "listener=\"l4\""));
    pl_metrics_destroy(m);
}

TEST(ours_are_the_tables_names_and_what_our_histograms_are_made_of) {
    static const struct {
        const char *name;
        bool ours;
    } names[] = {
        { "plimsoll_requests_total", true },
        { "plimsoll_requests", false },
        { "plimsoll_requests_total_x", false },
        { "requests_total", false },
        { "process_open_fds", true },
        { "process_max_fds", false },
        { "plimsoll_request_seconds", true },
        { "plimsoll_request_seconds_bucket", true },
        { "plimsoll_request_seconds_sum", true },
        { "plimsoll_request_seconds_count", true },
        { "plimsoll_requests_total_count", false },
        { "bentoml_service_request_total", false },
        { "", false },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(pl_metrics_is_ours(names[i].name, strlen(names[i].name)), names[i].ours);
    for (size_t i = 0; i < PL_METRIC_COUNT; i++)
        assert_true(pl_metrics_is_ours(table[i].name, strlen(table[i].name)));
}

RUN(cmocka_unit_test(the_table_keeps_the_rules_of_prometheus),
    cmocka_unit_test(without_data_there_is_no_family),
    cmocka_unit_test(a_series_is_made_once_and_written_with_its_family),
    cmocka_unit_test(the_order_on_the_page_does_not_depend_on_who_came_first),
    cmocka_unit_test(who_looks_reads_the_labels_back), cmocka_unit_test(quantiles_lie_within_their_bucket),
    cmocka_unit_test(each_change_is_on_the_next_page), cmocka_unit_test(label_values_are_escaped_and_bounded),
    cmocka_unit_test(a_histogram_counts_up_to_and_with_its_bounds),
    cmocka_unit_test(numbers_read_back_as_they_were),
    cmocka_unit_test(what_is_dropped_leaves_the_page_and_starts_again_at_zero),
    cmocka_unit_test(over_the_bound_new_values_become_other),
    cmocka_unit_test(ours_are_the_tables_names_and_what_our_histograms_are_made_of))
