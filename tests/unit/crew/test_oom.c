/* Deaths of tests/data/proc/deaths.json, from the trees before and after to cause and sentence; and who takes
 * which kill. */
#include "crew/oom.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "unit.h"
#include "worker/death.h"

static const struct json *field(const struct json *o, const char *name) {
    for (const struct json *j = o != NULL ? o->first : NULL; j != NULL; j = j->next)
        if (j->name != NULL && strcmp(j->name, name) == 0) return j;
    return NULL;
}

static const char *text(const struct json *o, const char *name) {
    const struct json *j = field(o, name);
    return j != NULL && j->kind == JSON_TEXT ? j->text : "";
}

static uint64_t figure(const struct json *o, const char *name) {
    const struct json *j = field(o, name);
    return j != NULL && j->kind == JSON_NUMBER ? (uint64_t)j->number : 0;
}

static void group_of(const char *tree, struct pl_host_group *g) {
    char proc[256], cgroup[256];
    snprintf(proc, sizeof proc, "%s/proc/trees/%s/proc", PL_TEST_DATA, tree);
    snprintf(cgroup, sizeof cgroup, "%s/proc/trees/%s/cgroup", PL_TEST_DATA, tree);
    pl_host_group(proc, cgroup, "4242", g);
}

static struct json *read_json(const char *name) {
    static char all[1 << 20];
    char path[256];
    snprintf(path, sizeof path, "%s/proc/%s", PL_TEST_DATA, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(all, 1, sizeof all - 1, f);
    fclose(f);
    all[n] = '\0';
    const char *at = all;
    return json_value(&at);
}

TEST(every_tree_tells_its_group) {
    struct json *trees = read_json("readings.json");
    for (const struct json *t = trees->first; t != NULL; t = t->next) {
        const struct json *want = field(t, "cgroup"), *events = field(want, "events");
        struct pl_host_group g;
        group_of(t->name, &g);
        if (field(want, "version") == NULL) {
            assert_false(g.found);
            continue;
        }
        const struct {
            const char *name;
            uint64_t got, want;
            bool known;
        } rows[] = {
            { "current", g.current, figure(want, "current_bytes"), figure(want, "current_bytes") != 0 },
            { "peak", g.peak, figure(want, "peak_bytes"), figure(want, "peak_bytes") != 0 },
            { "limit", g.limit, figure(want, "limit_bytes"), figure(want, "limit_bytes") != 0 },
            { "max", g.events.max, figure(events, "max"), events != NULL },
            { "group", g.events.oom_group_kill, figure(events, "oom_group_kill"), events != NULL },
            { "local", g.local.oom_kill, figure(field(want, "events_local"), "oom_kill"), events != NULL }
        };
        bool damaged = strcmp(t->name, "damaged") == 0;
        for (size_t i = 0; !damaged && i < sizeof rows / sizeof *rows; i++) {
            if (events == NULL && i > 2) continue;
            if (rows[i].got != (rows[i].known ? rows[i].want : PL_PROC_UNKNOWN))
                fail_msg("%s: %s", t->name, rows[i].name);
        }
        if (damaged) assert_true(!g.told && g.current == PL_PROC_UNKNOWN);
        const struct json *v1 = field(want, "oom_kill");
        if (v1 != NULL && v1->kind == JSON_NUMBER) assert_int_equal(g.events.oom_kill, (uint64_t)v1->number);
        if (v1 != NULL && v1->kind != JSON_NUMBER) assert_false(g.told);
    }
    json_free(trees);
}

/* The labels of the data are older than the closed list of causes. */
static const char *cause_of(const char *label, const struct json *wait) {
    static const char *const rows[][2] = {
        { "host_oom", "killed_by_kernel_oom" },
        { "node_oom", "killed_by_kernel_oom" },
        { "killed_unknown", "killed" },
        { "stop_timeout", "none" },
        { "stopped", "none" },
        { "native_crash", "crashed" },
        { "exited", "exited_zero" },
    };
    if (strcmp(label, "start_failed") == 0)
        return figure(wait, "exited") == 3 ? "init_failed" : "import_failed";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(label, rows[i][0]) == 0) return rows[i][1];
    return label;
}

static void check_death(const struct json *d) {
    const struct json *expect = field(d, "expect"), *sample = field(d, "last_sample"),
                      *log = field(d, "kernel_log");
    const char *id = text(d, "id"), *host_oom = text(expect, "host_oom"), *line = text(d, "kernel_log");
    struct pl_oom o = { 0 };
    struct pl_host_group after;
    int64_t pid = 0;
    bool machine = false, serving = strcmp(text(d, "phase"), "serving") == 0;
    char sentence[256];
    group_of(text(d, "before"), &o.last);
    group_of(text(d, "after"), &after);
    pl_oom_count(&o, &after, 5000);
    bool named = pl_proc_kernel_kill(line, strlen(line), &pid, &machine) && pid == 4242;
    struct pl_death_memory m = { .found = after.found,
                                 .told = after.told,
                                 .kernel_log = log != NULL && log->kind == JSON_TEXT,
                                 .kills = pl_oom_open(&o, 5010, 1000) + named,
                                 .group = o.group_killed,
                                 .machine = named ? machine : o.machine,
                                 .peak = after.peak != PL_PROC_UNKNOWN ? after.peak : 0,
                                 .limit = after.limit != PL_PROC_UNKNOWN ? after.limit : 0,
                                 .last_current = figure(sample, "current_bytes") };
    const struct pl_death death = { .wait_status = (int)figure(d, "wait_status"),
                                    .was_ready = serving,
                                    .ordered = text(d, "sent_by_us")[0] != '\0',
                                    .memory = &m };
    enum pl_cause cause = pl_death_explain(&death, sentence, sizeof sentence);
    const char *want = cause_of(text(expect, "label"), field(d, "wait"));
    if (strcmp(pl_cause_name(cause), want) != 0) fail_msg("%s: %s: %s", id, pl_cause_name(cause), sentence);
    bool killed = cause == PL_CAUSE_KILLED_BY_KERNEL_OOM;
    assert_int_equal(killed, strcmp(host_oom, "yes") == 0);
    assert_int_equal(strstr(sentence, "probably") != NULL, strcmp(host_oom, "probably") == 0);
    assert_int_equal(strstr(sentence, "while it was starting") != NULL, killed && !serving);
    const char *scope = pl_death_scope(&death, cause);
    assert_int_equal(scope != NULL, killed);
    const struct json *never = field(d, "must_not_say");
    for (const struct json *w = never != NULL ? never->first : NULL; w != NULL; w = w->next)
        if (strstr(sentence, w->text) != NULL) fail_msg("%s: %s", id, sentence);
}

TEST(every_death_has_its_cause) {
    struct json *deaths = read_json("deaths.json");
    int count = 0;
    for (const struct json *d = deaths->first; d != NULL; d = d->next)
        if (field(d, "alive") == NULL) {
            check_death(d);
            count++;
        }
    assert_in_range(count, 20, 100);
    json_free(deaths);
}

static void assert_says(const struct pl_death_memory *m, int status, bool was_ready, const char *want) {
    char sentence[256];
    const struct pl_death d = { .wait_status = status, .was_ready = was_ready, .memory = m };
    pl_death_explain(&d, sentence, sizeof sentence);
    assert_string_equal(sentence, want);
}

TEST(the_sentence_says_what_was_looked_at) {
    enum { GIB = 1 << 30 };
    const struct pl_death_memory oom = { .found = true,
                                         .told = true,
                                         .kills = 1,
                                         .peak = UINT64_C(8) * GIB,
                                         .limit = UINT64_C(8) * GIB },
                                 group = { .found = true,
                                           .told = true,
                                           .group = true,
                                           .kills = 4,
                                           .limit = UINT64_C(8) * GIB },
                                 machine = { .found = true, .told = true, .machine = true, .kills = 1 },
                                 none = { .found = true, .told = true, .limit = 100, .last_current = 35 },
                                 blind = { .kernel_log = true },
                                 damaged = { .found = true, .last_current = 7 };
    assert_says(
        &oom, SIGKILL, true,
        "killed by the kernel, which had no memory left: peak 8.00 GiB of limit 8.00 GiB; raise the memory "
        "limit, or run fewer workers");
    assert_says(
        &oom, SIGKILL, false,
        "killed by the kernel while it was starting, which had no memory left: peak 8.00 GiB of limit 8.00 "
        "GiB; raise the memory limit, or run fewer workers");
    assert_says(
        &oom, 137 << 8, true,
        "killed by the kernel, which had no memory left: peak 8.00 GiB of limit 8.00 GiB (status 137 is a "
        "shell's word for it); raise the memory limit, or run fewer workers");
    assert_says(&oom, 0, true,
                "a child of it was killed by the kernel, which had no memory left: peak 8.00 GiB of limit "
                "8.00 GiB; it "
                "then left with status 0; raise the memory limit, or run fewer workers");
    assert_says(
        &group, SIGKILL, true,
        "its whole group (4 processes) was killed by the kernel, which had no memory left: the limit is "
        "8.00 GiB; "
        "raise the memory limit, or run fewer workers");
    assert_says(&machine, SIGKILL, true,
                "killed by the kernel, which had no memory left: its pod or the whole machine was short of "
                "it; give it "
                "more, or run fewer workers");
    assert_says(
        &none, SIGKILL, true,
        "killed by SIGKILL, which Plimsoll did not send, cause unknown: looked at memory events without a "
        "kill, memory at 35 % of the limit, the kernel's log (not readable), its output");
    assert_says(&blind, SIGKILL, true,
                "killed by SIGKILL, which Plimsoll did not send, cause unknown: looked at a memory group "
                "that is gone "
                "or hidden, the kernel's log, its output");
    assert_says(&damaged, SIGKILL, true,
                "killed by SIGKILL, which Plimsoll did not send, cause unknown: looked at memory events that "
                "cannot be "
                "read, a memory group without a limit, the kernel's log (not readable), its output");
}

static struct pl_host_group counted(uint64_t oom, uint64_t kills) {
    return (struct pl_host_group){ .found = true,
                                   .told = true,
                                   .limit = 100,
                                   .events = { .oom = oom, .oom_kill = kills, .oom_group_kill = 0 } };
}

TEST(a_kill_explains_one_death_and_not_for_ever) {
    struct pl_oom o = { .last = counted(0, 3) }; /* those before us are nobody's */
    struct pl_host_group g = counted(1, 4);
    assert_int_equal(pl_oom_count(&o, &g, 10000), 1);
    assert_false(o.machine);
    assert_int_equal(pl_oom_open(&o, 10000, 20000), 0); /* born after it */
    assert_int_equal(pl_oom_open(&o, 10500, 1000), 1);
    assert_int_equal(pl_oom_open(&o, 80000, 1000), 0);
    o.unclaimed = 0; /* taken */
    assert_int_equal(pl_oom_count(&o, &g, 11000), 0);
    assert_int_equal(pl_oom_open(&o, 11000, 1000), 0);
}

TEST(a_reading_that_was_overtaken_counts_nothing_twice) {
    struct pl_oom o = { .last = counted(0, 0) };
    struct pl_host_group newer = counted(1, 1), older = counted(0, 0), failed = { .found = false };
    failed.events.oom_kill = PL_PROC_UNKNOWN;
    assert_int_equal(pl_oom_count(&o, &newer, 1000), 1);
    assert_int_equal(pl_oom_count(&o, &older, 1001), 0);
    assert_int_equal(pl_oom_count(&o, &failed, 1002), 0);
    assert_int_equal(pl_oom_count(&o, &newer, 1003), 0);
    assert_int_equal(o.unclaimed, 1);
}

TEST(a_kill_without_the_groups_own_limit_came_from_above) {
    struct pl_oom o = { .last = counted(0, 0) };
    struct pl_host_group g = counted(0, 1);
    assert_int_equal(pl_oom_count(&o, &g, 1000), 1);
    assert_true(o.machine);
}

RUN(cmocka_unit_test(every_tree_tells_its_group), cmocka_unit_test(every_death_has_its_cause),
    cmocka_unit_test(the_sentence_says_what_was_looked_at),
    cmocka_unit_test(a_kill_explains_one_death_and_not_for_ever),
    cmocka_unit_test(a_reading_that_was_overtaken_counts_nothing_twice),
    cmocka_unit_test(a_kill_without_the_groups_own_limit_came_from_above))
