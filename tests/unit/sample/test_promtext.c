#include "sample/promtext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "sample/promline.h"
#include "unit.h"

static bool nothing_is_ours(const char *family, size_t len) { return (void)family, (void)len, false; }

/* The page of one text, or of two workers' texts. Borrowed until the next call. */
static const char *page_of(const char *first, const char *second, size_t *skipped) {
    static char text[1 << 20];
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf b;
    pl_buf_init(&b, sizeof text - 1);
    pl_promtext_add(p, NULL, 1, first, strlen(first));
    if (second != NULL) pl_promtext_add(p, NULL, 2, second, strlen(second));
    assert_true(pl_promtext_render(p, &b, nothing_is_ours));
    memcpy(text, pl_buf_text(&b), b.len + 1);
    *skipped = pl_promtext_skipped(p);
    pl_buf_free(&b);
    pl_promtext_destroy(p);
    return text;
}

static void becomes(const char *text, const char *page) {
    size_t skipped;
    assert_string_equal(page_of(text, NULL, &skipped), page);
    assert_int_equal(skipped, 0);
}

static char *data(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/metrics/%s", PL_TEST_DATA, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static size_t count_of(const char *text, const char *piece) {
    size_t n = 0;
    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece)) n++;
    return n;
}

TEST(every_sample_gets_the_worker_and_keeps_the_rest) {
    becomes("# HELP digits_total Digits \"seen\".\n# TYPE digits_total counter\n"
            "digits_total{digit=\"1\",kind=\"a \\\"b\\\"\\\\\\n\"} 2.0\ndigits_total 1e3 1700000000000\n",
            "# HELP digits_total Digits \"seen\".\n# TYPE digits_total counter\n"
            "digits_total{digit=\"1\",kind=\"a \\\"b\\\"\\\\\\n\",worker=\"1\"} 2.0\n"
            "digits_total{worker=\"1\"} 1e3 1700000000000\n");
}

TEST(a_text_that_speaks_for_all_workers_gets_the_service_alone) {
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf b;
    const char *text = "# TYPE a gauge\na{worker=\"x\",service=\"y\"} 1\na 2\n";
    pl_buf_init(&b, 4096);
    pl_promtext_add(p, "front.Scale", 0, text, strlen(text));
    assert_true(pl_promtext_render(p, &b, nothing_is_ours));
    assert_string_equal(pl_buf_text(&b),
                        "# TYPE a gauge\na{worker=\"x\",exported_service=\"y\",service=\"front.Scale\",} 1\n"
                        "a{service=\"front.Scale\",} 2\n");
    pl_buf_free(&b);
    pl_promtext_destroy(p);
}

TEST(two_workers_stand_in_one_family_in_first_seen_order) {
    size_t skipped;
    const char *page = page_of(
        "# HELP b B.\n# TYPE b gauge\nb 1\n# TYPE a counter\na{x=\"\"} 2\n",
        "# HELP a Late.\n# TYPE a counter\na 3\n# HELP b Other.\n# TYPE b gauge\nb 4\nc 5\n", &skipped);
    assert_string_equal(page,
                        "# HELP b B.\n# TYPE b gauge\nb{worker=\"1\"} 1\nb{worker=\"2\"} 4\n"
                        "# HELP a Late.\n# TYPE a counter\na{x=\"\",worker=\"1\"} 2\na{worker=\"2\"} 3\n"
                        "# TYPE c untyped\nc{worker=\"2\"} 5\n");
    assert_int_equal(skipped, 0);
}

TEST(a_label_that_we_add_is_renamed_as_prometheus_does_it) {
    becomes("a{worker=\"w\"} 1\n", "# TYPE a untyped\na{exported_worker=\"w\",worker=\"1\"} 1\n");
    becomes("a{exported_worker=\"e\",worker=\"w\",exported_exported_worker=\"f\"} 1\n",
            "# TYPE a untyped\na{exported_worker=\"e\",exported_exported_exported_worker=\"w\","
            "exported_exported_worker=\"f\",worker=\"1\"} 1\n");
    becomes("a{service=\"s\"} 1\n", "# TYPE a untyped\na{service=\"s\",worker=\"1\"} 1\n");
}

TEST(with_several_services_each_sample_says_whose_it_is) {
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf b;
    pl_buf_init(&b, 0);
    pl_promtext_add(p, "chat", 1, "a 1\n", 4);
    pl_promtext_add(p, "digits", 1, "a{service=\"x\"} 2", 16);
    assert_true(pl_promtext_render(p, &b, nothing_is_ours));
    assert_string_equal(pl_buf_text(&b), "# TYPE a untyped\na{service=\"chat\",worker=\"1\"} 1\n"
                                         "a{exported_service=\"x\",service=\"digits\",worker=\"1\"} 2\n");
    pl_buf_free(&b);
    pl_promtext_destroy(p);
}

TEST(histograms_and_summaries_stay_together) {
    becomes("# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 0.5\nh_count 1\n"
            "# TYPE s summary\ns{quantile=\"0.5\"} 2\ns_sum 2\ns_count 1\n"
            /* far from its TYPE line */
            "h_bucket{x=\"y\",le=\"+Inf\"} 0\n",
            "# TYPE h histogram\nh_bucket{le=\"1\",worker=\"1\"} 1\nh_bucket{le=\"+Inf\",worker=\"1\"} 1\n"
            "h_sum{worker=\"1\"} 0.5\nh_count{worker=\"1\"} 1\nh_bucket{x=\"y\",le=\"+Inf\",worker=\"1\"} 0\n"
            "# TYPE s summary\ns{quantile=\"0.5\",worker=\"1\"} 2\ns_sum{worker=\"1\"} "
            "2\ns_count{worker=\"1\"} 1\n");
    /* these only look like parts of a histogram */
    becomes("# TYPE g gauge\ng 1\ng_count 2\n",
            "# TYPE g gauge\ng{worker=\"1\"} 1\n# TYPE g_count untyped\ng_count{worker=\"1\"} 2\n");
}

TEST(open_metrics_becomes_the_older_format) {
    char *text = data("openmetrics.txt");
    size_t skipped;
    const char *page = page_of(text, NULL, &skipped);
    assert_int_equal(skipped, 0);
    assert_non_null(strstr(page, "# HELP jobs_total Jobs done.\n# TYPE jobs_total counter\n"
                                 "jobs_total{kind=\"a\",worker=\"1\"} 3.0\n"
                                 "# HELP jobs_created Jobs done.\n# TYPE jobs_created gauge\njobs_created{"));
    assert_non_null(strstr(
        page, "# TYPE model_info gauge\nmodel_info{name=\"digits\",version=\"1\",worker=\"1\"} 1.0\n"));
    assert_non_null(strstr(page, "# TYPE phase gauge\nphase{phase=\"idle\",worker=\"1\"} 0.0\n"));
    assert_non_null(strstr(page, "job_seconds_bucket{le=\"1.0\",worker=\"1\"} 1.0\n"));
    assert_non_null(strstr(
        page,
        "temperature_celsius{exported_worker=\"2\",exported_exported_worker=\"1\",worker=\"1\"} 3.0\n"));
    assert_null(strstr(page, "# TYPE jobs counter"));
    assert_null(strstr(page, "EOF"));
    free(text);
    becomes("a 1 12\n# EOF\n", "# TYPE a untyped\na{worker=\"1\"} 1\n");
    becomes("a 1 12\n# EOF\nb 2\n", "# TYPE a untyped\na{worker=\"1\"} 1 12\n");
}

TEST(a_help_text_is_made_readable_for_everyone) {
    becomes("# HELP a say \\\"hi\\\" \\n \\\\ \xff end\\\na 1\n",
            "# HELP a say \\\\\"hi\\\\\" \\n \\\\ ? end\\\\\n# TYPE a untyped\na{worker=\"1\"} 1\n");
    becomes("# HELP a\n# TYPE a gauge\n", "# HELP a \n# TYPE a gauge\n");
    becomes("#HELP a x\n#\n# \n# just words\n# UNIT a s\n\n \t\r\na 1\r\n",
            "# HELP a x\n# TYPE a untyped\na{worker=\"1\"} 1\n");
}

TEST(garbage_is_skipped_and_counted_and_the_rest_passes) {
    static const char *const garbage[] = {
        "a",
        "a ",
        "a b",
        "{x=\"y\"} 1",
        "1a 1",
        "a-b 1",
        "a{x=\"y\" 1",
        "a{x=y} 1",
        "a{x=\"y} 1",
        "a{=\"y\"} 1",
        "a{x=\"y\"z=\"\"} 1",
        "a{1x=\"y\"} 1",
        "a{a:b=\"y\"} 1",
        "a{,} 1",
        "a{x=\"\\t\"} 1",
        "a{x=\"\xff\"} 1",
        "a{x=\"\xc0\xaf\"} 1",
        "a{x=\"1\",x=\"2\"} 1",
        "a{x=\"\\",
        "a 1 2 3",
        "a 1 x",
        "a 0x10",
        "a 1e",
        "a 1_000",
        "a 1e999",
        "a +nan",
        "a nan(1)",
        "a infinit",
        "a 1,5",
        "a 11111111111111111111111111111111111111111111111111111111111111111",
        "<html>",
        "# TYPE a",
        "# TYPE a wrong",
        "# HELP 1a x",
        "# TYPE a{ gauge",
        "a\x01 1",
        "\"a\" 1",
        "{\"a\"} 1",
    };
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        char text[300];
        size_t skipped;
        snprintf(text, sizeof text, "ok{n=\"1\"} 1\n%s\nok{n=\"2\"} 2\n", garbage[i]);
        const char *page = page_of(text, NULL, &skipped);
        if (skipped != 1) fail_msg("not skipped: %s", garbage[i]);
        assert_int_equal(count_of(page, "ok{"), 2);
        assert_int_equal(count_of(page, "a{"), 0);
    }
}

TEST(numbers_and_spaces_are_taken_as_prometheus_takes_them) {
    static const char *const good[] = { "a 1",
                                        "  a\t1",
                                        "a{} 1",
                                        "a {x=\"y\",} 1",
                                        "a{ x = \"y\" , z=\"\" } 1",
                                        "a{x=\"y\"}1",
                                        "a NaN",
                                        "a nan",
                                        "a +Inf",
                                        "a -inf",
                                        "a Infinity",
                                        "a -1.5e-3",
                                        "a .5",
                                        "a 5.",
                                        "a 1 -5",
                                        "a:b_c9 1",
                                        "a 1 1.5",
                                        "a 1 # {x=\"y\"} 1" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t skipped;
        page_of(good[i], NULL, &skipped);
        if (skipped != 0) fail_msg("skipped: %s", good[i]);
    }
}

TEST(a_family_of_another_type_is_not_mixed_in) {
    size_t skipped;
    const char *page =
        page_of("# TYPE a gauge\na 1\n", "# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na 3\n", &skipped);
    assert_string_equal(
        page,
        "# TYPE a gauge\na{worker=\"1\"} 1\n# TYPE a_bucket untyped\na_bucket{le=\"+Inf\",worker=\"2\"} 1\n");
    assert_int_equal(skipped, 2);
    /* a type after the samples, and parts that cannot stand in a histogram */
    page_of("a 1\n# TYPE a gauge\na 2\n", NULL, &skipped);
    assert_int_equal(skipped, 2);
    page_of("# TYPE h histogram\nh 1\nh_bucket 1\n", NULL, &skipped);
    assert_int_equal(skipped, 1);
}

TEST(families_of_ours_are_left_out_and_told_once) {
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf b;
    char *text = data("vllm.txt");
    pl_buf_init(&b, 0);
    for (int round = 0; round < 3; round++) {
        pl_promtext_clear(p);
        b.len = 0;
        pl_promtext_add(p, NULL, 1, text, strlen(text));
        pl_promtext_add(p, NULL, 2, text, strlen(text));
        assert_true(pl_promtext_render(p, &b, pl_metrics_is_ours));
        assert_null(strstr(pl_buf_text(&b), "process_open_fds"));
        assert_non_null(strstr(pl_buf_text(&b), "process_max_fds{worker=\"2\"} 20000.0\n"));
        size_t told = 0;
        while (pl_promtext_clash(p) != NULL) told++;
        assert_int_equal(told, round == 0 ? 4 : 0);
    }
    free(text);
    pl_buf_free(&b);
    pl_promtext_destroy(p);
}

/* Samples of a text, their number and that each came through. */
static void real_text_passes(const char *name) {
    char *text = data(name);
    size_t skipped, samples = 0;
    const char *page = page_of(text, text, &skipped);
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) samples += *at != '#';
    assert_int_equal(skipped, 0);
    assert_int_equal(count_of(page, "worker=\"1\"} "), samples);
    assert_int_equal(count_of(page, "worker=\"2\"} "), samples);
    assert_int_equal(count_of(page, "# TYPE "), count_of(text, "# TYPE "));
    free(text);
}

TEST(the_texts_of_real_workers_pass_whole) {
    real_text_passes("bentoml-1.4.40.txt");
    real_text_passes("vllm.txt");
}

TEST(nothing_grows_past_its_bound) {
    struct pl_promtext *p = pl_promtext_create();
    struct pl_buf text, out;
    pl_buf_init(&text, 0);
    /* more families than allowed */
    for (int i = 0; i < PL_PROMTEXT_FAMILIES + 10; i++) pl_buf_addf(&text, "f%d 1\n", i);
    pl_promtext_add(p, NULL, 1, text.data, text.len);
    assert_int_equal(pl_promtext_skipped(p), 10);
    /* known ones go on */
    pl_promtext_add(p, NULL, 2, "f0 1\n", 5);
    assert_int_equal(pl_promtext_skipped(p), 10);
    pl_promtext_clear(p);
    assert_int_equal(pl_promtext_skipped(p), 0);
    /* too many labels, too long a name, too long a line */
    text.len = 0;
    pl_buf_adds(&text, "a{");
    for (int i = 0; i <= PL_PROMTEXT_LABELS; i++) pl_buf_addf(&text, "l%d=\"\",", i);
    pl_buf_adds(&text, "} 1\n");
    for (int i = 0; i <= PL_PROMTEXT_NAME; i++) pl_buf_adds(&text, "n");
    pl_buf_adds(&text, " 1\na{x=\"");
    for (int i = 0; i < PL_PROMTEXT_LINE / 8; i++) pl_buf_adds(&text, "12345678");
    pl_buf_adds(&text, "\"} 1\n");
    pl_promtext_add(p, NULL, 1, text.data, text.len);
    assert_int_equal(pl_promtext_skipped(p), 3);
    /* bytes of the page: 16 MiB of long labels, then no more */
    text.len = 0;
    for (int i = 0; i < 600; i++) {
        pl_buf_adds(&text, "a{x=\"");
        for (int k = 0; k < 3900; k++) pl_buf_adds(&text, "12345678");
        pl_buf_addf(&text, "\",i=\"%d\"} 1\n", i);
    }
    pl_promtext_clear(p);
    pl_promtext_add(p, NULL, 1, text.data, text.len);
    pl_buf_init(&out, 0);
    assert_true(pl_promtext_render(p, &out, nothing_is_ours));
    assert_true(out.len <= PL_PROMTEXT_BYTES && pl_promtext_skipped(p) > 0);
    pl_buf_free(&out);
    /* an out that is too small gets nothing */
    pl_buf_init(&out, 1000);
    pl_buf_adds(&out, "ours\n");
    assert_false(pl_promtext_render(p, &out, nothing_is_ours));
    assert_string_equal(pl_buf_text(&out), "ours\n");
    pl_buf_free(&out);
    pl_buf_free(&text);
    pl_promtext_destroy(p);
}

RUN(cmocka_unit_test(every_sample_gets_the_worker_and_keeps_the_rest),
    cmocka_unit_test(a_text_that_speaks_for_all_workers_gets_the_service_alone),
    cmocka_unit_test(two_workers_stand_in_one_family_in_first_seen_order),
    cmocka_unit_test(a_label_that_we_add_is_renamed_as_prometheus_does_it),
    cmocka_unit_test(with_several_services_each_sample_says_whose_it_is),
    cmocka_unit_test(histograms_and_summaries_stay_together),
    cmocka_unit_test(open_metrics_becomes_the_older_format),
    cmocka_unit_test(a_help_text_is_made_readable_for_everyone),
    cmocka_unit_test(garbage_is_skipped_and_counted_and_the_rest_passes),
    cmocka_unit_test(numbers_and_spaces_are_taken_as_prometheus_takes_them),
    cmocka_unit_test(a_family_of_another_type_is_not_mixed_in),
    cmocka_unit_test(families_of_ours_are_left_out_and_told_once),
    cmocka_unit_test(the_texts_of_real_workers_pass_whole), cmocka_unit_test(nothing_grows_past_its_bound))
