/* The trees of tests/data/proc: what a process and its group say of their memory, traps included. */
#include "sample/proc.h"

#include <stdio.h>
#include <string.h>

#include "json.h"
#include "unit.h"

static size_t read_text(const char *tree, const char *below, char *out, size_t room) {
    char path[512];
    snprintf(path, sizeof path, "%s/proc/trees/%s/%s", PL_TEST_DATA, tree, below);
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    size_t n = fread(out, 1, room, f);
    fclose(f);
    return n;
}

static const struct json *field(const struct json *o, const char *name) {
    for (const struct json *j = o != NULL ? o->first : NULL; j != NULL; j = j->next)
        if (j->name != NULL && strcmp(j->name, name) == 0) return j;
    return NULL;
}

static struct json *readings(void) {
    static char text[1 << 20];
    FILE *f = fopen(PL_TEST_DATA "/proc/readings.json", "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = text;
    return json_value(&at);
}

/* A figure of readings.json: null, or not there, is "not known". */
static uint64_t figure(const struct json *o, const char *name) {
    const struct json *j = field(o, name);
    return j != NULL && j->kind == JSON_NUMBER ? (uint64_t)j->number : PL_PROC_UNKNOWN;
}

static void check_process(const char *tree, const struct json *want) {
    char text[8192];
    struct pl_proc_memory m;
    struct pl_proc_stat s;
    size_t n = read_text(tree, "proc/4242/status", text, sizeof text);
    bool known = pl_proc_read_status(text, n, &m);
    if (known != (figure(want, "rss_anon_bytes") != PL_PROC_UNKNOWN)) fail_msg("%s: status", tree);
    if (known) {
        assert_int_equal(m.anon, figure(want, "rss_anon_bytes"));
        assert_int_equal(m.file, figure(want, "rss_file_bytes"));
        assert_int_equal(m.shmem, figure(want, "rss_shmem_bytes"));
        assert_int_equal(m.swap, figure(want, "swap_bytes"));
        assert_int_equal(m.anon + m.swap, figure(want, "host_anon_bytes"));
        assert_int_equal(m.peak_rss, figure(want, "rss_peak_bytes"));
        assert_int_equal(pl_proc_read_threads(text, n), figure(want, "threads"));
        n = read_text(tree, "proc/4242/smaps_rollup", text, sizeof text);
        assert_int_equal(pl_proc_read_pss(text, n), figure(want, "pss_bytes"));
    }
    n = read_text(tree, "proc/4242/stat", text, sizeof text);
    known = pl_proc_read_stat(text, n, &s);
    if (known != (figure(want, "start_ticks") != PL_PROC_UNKNOWN)) fail_msg("%s: stat", tree);
    if (!known) return;
    assert_int_equal(s.ppid, figure(want, "ppid"));
    assert_int_equal(s.group, figure(want, "pgrp"));
    assert_int_equal(s.start_ticks, figure(want, "start_ticks"));
    assert_int_equal(s.state, field(want, "state")->text[0]);
}

static void check_group(const char *tree, const struct json *want) {
    char text[4096], path[256], below[512];
    bool v2 = false;
    size_t n = read_text(tree, "proc/4242/cgroup", text, sizeof text);
    if (n == 0) return;
    if (!pl_proc_read_cgroup(text, n, &v2, path, sizeof path)) fail_msg("%s: cgroup", tree);
    assert_int_equal(v2 ? 2 : 1, figure(want, "version"));
    if (field(want, "path") != NULL) assert_string_equal(path, field(want, "path")->text);
    snprintf(below, sizeof below, v2 ? "cgroup%s/memory.max" : "cgroup/memory%s/memory.limit_in_bytes",
             strcmp(path, "/") == 0 ? "" : path);
    n = read_text(tree, below, text, sizeof text);
    assert_true(n > 0);
    if (pl_proc_read_limit(text, n) != figure(want, "limit_bytes")) fail_msg("%s: limit", tree);
    snprintf(below, sizeof below, v2 ? "cgroup%s/memory.current" : "cgroup/memory%s/memory.usage_in_bytes",
             strcmp(path, "/") == 0 ? "" : path);
    n = read_text(tree, below, text, sizeof text);
    assert_int_equal(pl_proc_read_count(text, n), figure(want, "current_bytes"));
    snprintf(below, sizeof below, v2 ? "cgroup%s/memory.stat" : "cgroup/memory%s/memory.stat",
             strcmp(path, "/") == 0 ? "" : path);
    n = read_text(tree, below, text, sizeof text);
    if (field(want, "anon_bytes") != NULL) {
        assert_int_equal(pl_proc_read_key(text, n, v2 ? "anon" : "total_rss"), figure(want, "anon_bytes"));
        assert_int_equal(pl_proc_read_key(text, n, v2 ? "file" : "total_cache"), figure(want, "file_bytes"));
    }
    snprintf(below, sizeof below, v2 ? "cgroup%s/memory.events" : "cgroup/memory%s/memory.oom_control",
             strcmp(path, "/") == 0 ? "" : path);
    n = read_text(tree, below, text, sizeof text);
    const struct json *events = v2 ? field(want, "events") : want;
    assert_int_equal(pl_proc_read_key(text, n, "oom_kill"), figure(events, "oom_kill"));
    if (v2) assert_int_equal(pl_proc_read_key(text, n, "max"), figure(events, "max"));
}

TEST(a_number_must_end_where_its_line_does) {
    static const char keys[] = "oom 1\noom_kill 23\nlow x\nhigh 4 5\nmax 99999999999999999999\nopen 7";
    assert_int_equal(pl_proc_read_key(keys, sizeof keys - 1, "oom_kill"), 23);
    assert_int_equal(pl_proc_read_key(keys, sizeof keys - 1, "oom"), 1);
    static const char *const unknown[] = { "low", "high", "max", "open", "kill", "" };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_true(pl_proc_read_key(keys, sizeof keys - 1, unknown[i]) == PL_PROC_UNKNOWN);
    assert_int_equal(pl_proc_read_count("17\n", 3), 17);
    assert_true(pl_proc_read_count("17", 2) == PL_PROC_UNKNOWN);
    assert_true(pl_proc_read_count("max\n", 4) == PL_PROC_UNKNOWN);
    assert_true(pl_proc_read_threads("Threads:\t x\n", 13) == PL_PROC_UNKNOWN);
}

TEST(every_tree_reads_as_it_is_told) {
    struct json *all = readings();
    int trees = 0;
    for (const struct json *t = all->first; t != NULL; t = t->next, trees++) {
        check_process(t->name, field(t, "process"));
        check_group(t->name, field(t, "cgroup"));
    }
    assert_in_range(trees, 10, 100);
    json_free(all);
}

TEST(what_is_cut_or_no_number_is_not_known) {
    static const char *const bad[] = { "",
                                       "RssAnon:",
                                       "RssAnon:\t 1 kB",
                                       "RssAnon:\t 1 MB\n",
                                       "kB\n\n",
                                       "RssAnon: -1 kB\n",
                                       "RssAnonX:\t 1 kB\n",
                                       "RssAnon:\t kB\n",
                                       "RssAnon:\t 18446744073709551615 kB\n" };
    struct pl_proc_memory m;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (pl_proc_read_status(bad[i], strlen(bad[i]), &m)) fail_msg("row %zu", i);
    static const char open_end[] = "RssAnon:\t 3 kB\nVmSwap:\t 1 kB";
    assert_true(pl_proc_read_status(open_end, sizeof open_end - 1, &m));
    assert_int_equal(m.anon, 3072);
    assert_true(m.swap == PL_PROC_UNKNOWN); /* its line has not ended */
}

TEST(a_stat_line_cut_anywhere_is_refused_or_right) {
    static const char line[] =
        "7 (a) R 1 (b) S 4200 4242 4200 0 -1 4194304 900000 0 37 0 5120 311 0 0 20 0 38 0 "
        "586626 9889644544";
    struct pl_proc_stat s;
    for (size_t n = 0; n < sizeof line; n++) {
        if (!pl_proc_read_stat(line, n, &s) || s.group != 4242) continue;
        assert_int_equal(s.ppid, 4200);
    }
    assert_true(pl_proc_read_stat(line, sizeof line - 1, &s));
    assert_int_equal(s.start_ticks, 586626);
}

TEST(no_limit_is_not_a_number) {
    static const struct {
        const char *text;
        uint64_t limit;
    } rows[] = {
        { "max\n", PL_PROC_UNKNOWN },
        { "9223372036854771712\n", PL_PROC_UNKNOWN },
        { "9223372036854710272\n", PL_PROC_UNKNOWN }, /* pages of 64 KiB */
        { "", PL_PROC_UNKNOWN },
        { "12x\n", PL_PROC_UNKNOWN },
        { "99999999999999999999\n", PL_PROC_UNKNOWN },
        { "8589934592\n", UINT64_C(8589934592) },
        { "0\n", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pl_proc_read_limit(rows[i].text, strlen(rows[i].text)) != rows[i].limit) fail_msg("row %zu", i);
}

TEST(the_memory_controller_is_found_among_the_others) {
    static const struct {
        const char *text, *path;
        bool v2;
    } rows[] = {
        { "0::/\n", "/", true },
        { "0::/kubepods/pod1/c", "/kubepods/pod1/c", true },
        { "4:memory:/a\n3:cpuset:/b\n0::/c\n", "/a", false },
        { "0::/c\n4:cpu,memory:/a:b\n", "/a:b", false },
        { "4:memoryx:/a\n3:x,memo:/b\n", NULL, false },
        { "1:name=systemd:/x\n", NULL, false },
        { "0::\n", NULL, true },
        { ":::\n0:\n", NULL, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[64] = "";
        bool v2 = false;
        bool ok = pl_proc_read_cgroup(rows[i].text, strlen(rows[i].text), &v2, path, sizeof path);
        if (ok != (rows[i].path != NULL)) fail_msg("row %zu", i);
        if (!ok) continue;
        assert_string_equal(path, rows[i].path);
        assert_int_equal(v2, rows[i].v2);
    }
    char little[4];
    bool v2;
    assert_false(pl_proc_read_cgroup("0::/long\n", 9, &v2, little, sizeof little));
}

RUN(cmocka_unit_test(every_tree_reads_as_it_is_told), cmocka_unit_test(a_number_must_end_where_its_line_does),
    cmocka_unit_test(what_is_cut_or_no_number_is_not_known),
    cmocka_unit_test(a_stat_line_cut_anywhere_is_refused_or_right),
    cmocka_unit_test(no_limit_is_not_a_number),
    cmocka_unit_test(the_memory_controller_is_found_among_the_others))
