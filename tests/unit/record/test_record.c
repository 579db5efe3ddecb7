#include "record/record.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/schema.h"
#include "unit.h"

/* A folder of its own for each test; the record's thread uses the machine's clock. */
struct rig {
    char folder[64], path[96];
    struct pl_record_options o;
};

static void make(struct rig *r) {
    *r = (struct rig){ 0 };
    snprintf(r->folder, sizeof r->folder, "/tmp/pl-record-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->path, sizeof r->path, "%s/record.sqlite", r->folder);
    r->o = (struct pl_record_options){
        .path = r->path,
        .max_bytes = 64 << 20,
        .max_age_ms = 86400000,
        .clock = &pl_clock_system,
        .boot = { .life = 7,
                  .reason = "first",
                  .version = "1",
                  .instance = "t",
                  .config = "c",
                  .keeper_pid = 1,
                  .main_pid = 2 },
    };
}

static void drop(struct rig *r) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", r->folder);
    assert_int_equal(system(command), 0);
}

static void event(struct pl_record *r, enum pl_level level, const char *name, const char *line) {
    pl_record_event(r, level, name, line, strlen(line));
}

/* The first column of the first row, as text; "" for NULL and for no row. */
static const char *ask(const char *path, const char *sql) {
    static char texts[8][512];
    static unsigned turn;
    char *out = texts[turn++ % 8];
    sqlite3 *db;
    sqlite3_stmt *s;
    out[0] = '\0';
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000); /* it is just being made */
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(s) == SQLITE_ROW && sqlite3_column_text(s, 0) != NULL)
        snprintf(out, 512, "%s", (const char *)sqlite3_column_text(s, 0));
    sqlite3_finalize(s);
    sqlite3_close(db);
    return out;
}

static void sql(const char *path, const char *text) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* Another process writes, and is SIGKILLed when `wanted` rows of events are on the disk. */
static void die_writing(struct rig *r, void (*write)(struct pl_record *), int wanted) {
    char number[16];
    snprintf(number, sizeof number, "%d", wanted);
    pid_t pid = fork();
    assert_true(pid != -1);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        r->o.boot.keeper_pid = getpid();
        struct pl_record *rec = pl_record_create(&r->o);
        write(rec);
        for (;;) pause();
    }
    for (int i = 0; i < 1000; i++) {
        if (access(r->path, R_OK) == 0 &&
            strcmp(ask(r->path, "SELECT count(*) FROM sqlite_master WHERE name = 'event'"), "1") == 0 &&
            strcmp(ask(r->path, "SELECT count(*) FROM event"), number) == 0)
            break;
        usleep(10000);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(ask(r->path, "SELECT count(*) FROM event"), number);
}

TEST(what_was_fed_is_there_after_a_goodbye) {
    struct rig r;
    make(&r);
    struct pl_record *rec = pl_record_create(&r.o);
    assert_non_null(rec);
    event(rec, PL_INFO, "worker.spawned",
          "{\"service\":\"chat\",\"worker\":1,\"generation\":3,\"pid\":42,\"way\":\"exec\"}");
    event(rec, PL_INFO, "worker.imported",
          "{\"service\":\"chat\",\"worker\":1,\"generation\":3,\"since_spawn_ms\":900}");
    event(rec, PL_INFO, "worker.ready",
          "{\"service\":\"chat\",\"worker\":1,\"generation\":3,\"after_ms\":1500,\"warm\":true,\"settled_"
          "ms\":2.5}");
    event(rec, PL_ERROR, "worker.death",
          "{\"service\":\"chat\",\"worker\":1,\"generation\":3,\"death\":\"d3\",\"cause\":\"killed\","
          "\"sentence\":\"it was killed\",\"in_handlers\":2}");
    event(rec, PL_INFO, "would.replace",
          "{\"service\":\"chat\",\"worker\":1,\"reason\":\"leak\",\"mode\":\"observe\"}");
    event(rec, PL_WARN, "memory.verdict",
          "{\"service\":\"chat\",\"worker\":1,\"verdict\":\"leak\",\"scope\":\"gpu0\",\"bytes_per_request\":"
          "32768}");
    event(rec, PL_WARN, "memory.forecast",
          "{\"service\":\"chat\",\"worker\":1,\"scope\":\"gpu0\",\"seconds\":3600}");
    event(rec, PL_WARN, "memory.holder",
          "{\"service\":\"chat\",\"worker\":1,\"holder\":\"CACHE\",\"file\":\"service.py\",\"line\":41}");
    event(rec, PL_INFO, "plan.checked", "{\"service\":\"chat\",\"planned_bytes\":100,\"actual_bytes\":110}");
    event(rec, PL_INFO, "access", "{\"path\":\"/secret\"}");
    pl_record_request(rec, &(struct pl_record_request){ .id = UINT64_C(0xfedcba9876543210),
                                                        .service = "chat",
                                                        .method = "POST /x",
                                                        .method_len = 4,
                                                        .route = "/predict?key=1",
                                                        .route_len = 8,
                                                        .status = 200,
                                                        .outcome = "ok",
                                                        .duration_us = 6100,
                                                        .queue_us = 200,
                                                        .first_byte_us = -1,
                                                        .request_bytes = 11,
                                                        .reply_bytes = 3,
                                                        .input_tokens = -1,
                                                        .output_tokens = -1 });
    struct pl_record_sample sample = pl_record_sample_of("gpu0");
    sample.service = "chat";
    sample.worker = 1;
    sample.allocated = 5;
    sample.peak = 9;
    pl_record_sample(rec, &sample);
    pl_record_verdict(rec, &(struct pl_record_verdict){ .service = "chat",
                                                        .scope = "host",
                                                        .verdict = "stable",
                                                        .bytes_per_request = -2.5,
                                                        .forecast_s = -1,
                                                        .share = -1,
                                                        .since_requests = -1 });
    pl_record_destroy(rec, 0);
    assert_string_equal(ask(r.path, "SELECT count(*) FROM event"), "9");
    assert_string_equal(ask(r.path, "SELECT imported_ms || ' ' || ready_ms || ' ' || warm || ' ' || "
                                    "settled_ms || ' ' || way FROM timeline"),
                        "900 1500 1 2.5 exec");
    assert_string_equal(
        ask(r.path, "SELECT kind || ' ' || death || ' ' || cause || ' ' || in_handlers FROM exit"),
        "worker d3 killed 2");
    assert_string_equal(ask(r.path, "SELECT action || ' ' || reason || ' ' || mode FROM would"),
                        "replace leak observe");
    assert_string_equal(
        ask(r.path, "SELECT verdict || ' ' || forecast_s || ' ' || holder FROM verdict WHERE scope = 'gpu0'"),
        "leak 3600.0 service.py:41 CACHE");
    assert_string_equal(
        ask(r.path,
            "SELECT bytes_per_request || ' ' || ifnull(forecast_s, '-') FROM verdict WHERE scope = 'host'"),
        "-2.5 -");
    assert_string_equal(ask(r.path, "SELECT actual_bytes - planned_bytes FROM plan_check"), "10");
    assert_string_equal(
        ask(r.path, "SELECT id || ' ' || method || ' ' || route || ' ' || duration_ms FROM request"),
        "fedcba9876543210 POST /predict 6.1");
    assert_string_equal(
        ask(r.path, "SELECT peak_bytes || ifnull(reserved_bytes, ' none') FROM sample WHERE scope = 'gpu0'"),
        "9 none");
    assert_string_equal(ask(r.path, "SELECT end || status FROM boot"), "stopped0");
    struct stat st;
    assert_int_equal(stat(r.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    drop(&r);
}

static void write_some(struct pl_record *rec) {
    event(rec, PL_INFO, "main.ready", "{\"after_ms\":5}");
    event(rec, PL_ERROR, "worker.silent", "{\"service\":\"chat\",\"silent_ms\":9}");
}

TEST(a_life_without_a_goodbye_is_judged_at_the_next_start_once) {
    struct rig r;
    struct pl_record_look l = { 0 };
    make(&r);
    die_writing(&r, write_some, 2);
    r.o.boot.life = 8;
    for (unsigned start = 0; start < 3; start++) {
        struct pl_record *rec = pl_record_create(&r.o);
        do pl_record_look(rec, &l);
        while (!l.opened);
        assert_int_equal(l.unfinished, start == 0);
        if (start == 0) assert_string_equal(l.death, "i0000000000000007");
        if (start == 0) assert_string_equal(l.cause, "unknown");
        if (start == 0) /* somebody else knows better */
            event(rec, PL_ERROR, "instance.died", "{\"cause\":\"killed\",\"sentence\":\"the other words\"}");
        pl_record_destroy(rec, 0);
        r.o.boot.life++;
    }
    assert_string_equal(ask(r.path, "SELECT count(*) || cause || sentence FROM exit WHERE kind = 'instance'"),
                        "1killedthe other words");
    assert_string_equal(
        ask(r.path, "SELECT group_concat(end, ' ') FROM (SELECT end FROM boot ORDER BY boot)"),
        "unfinished stopped stopped stopped");
    drop(&r);
}

TEST(a_main_that_died_in_a_living_keeper_is_no_death_of_the_instance) {
    struct rig r;
    struct pl_record_look l = { 0 };
    make(&r);
    die_writing(&r, write_some, 2);
    struct pl_record *rec = pl_record_create(&r.o); /* the same life */
    do pl_record_look(rec, &l);
    while (!l.opened);
    assert_false(l.unfinished);
    pl_record_destroy(rec, 0);
    assert_string_equal(ask(r.path, "SELECT group_concat(kind) FROM exit"), "main");
    assert_string_equal(ask(r.path, "SELECT end FROM boot ORDER BY boot LIMIT 1"), "crashed");
    drop(&r);
}

TEST(a_crash_loop_is_not_taken_for_a_kill) {
    struct rig r;
    struct pl_record_look l = { 0 };
    make(&r);
    die_writing(&r, write_some, 2);
    sql(r.path, "INSERT INTO exit(ts_ms, boot, life, kind, cause) SELECT seen_ms, boot, life, 'main', "
                "'crashed' FROM boot,"
                " (VALUES(1), (2), (3), (4))");
    r.o.boot.life = 8;
    struct pl_record *rec = pl_record_create(&r.o);
    do pl_record_look(rec, &l);
    while (!l.opened);
    assert_string_equal(l.cause, "crashed");
    assert_non_null(strstr(l.sentence, "the keeper gave up"));
    pl_record_destroy(rec, 0);
    drop(&r);
}

static bool nearly_full(void *ctx, struct pl_record_host *out) {
    *out = (struct pl_record_host){ .used = UINT64_C(990) << 20,
                                    .limit = UINT64_C(1000) << 20,
                                    .oom_kills = *(uint64_t *)ctx };
    return true;
}

TEST(a_full_memory_group_says_why_and_its_counter_proves_it) {
    static const char *const words[] = { "probably the kernel", "the kernel ran out" };
    for (uint64_t kills = 0; kills < 2; kills++) {
        struct rig r;
        struct pl_record_look l = { 0 };
        uint64_t none = 0;
        make(&r);
        r.o.host = nearly_full;
        r.o.host_ctx = &none;
        die_writing(&r, write_some, 2);
        sql(r.path, "INSERT INTO sample(ts_ms, boot, scope, used_bytes, limit_bytes, oom_kills) SELECT "
                    "seen_ms, boot, 'instance', 990<<20, 1000<<20, 0 FROM boot");
        r.o.boot.life = 8;
        r.o.host_ctx = &kills;
        struct pl_record *rec = pl_record_create(&r.o);
        do pl_record_look(rec, &l);
        while (!l.opened);
        assert_string_equal(l.cause, kills > 0 ? "killed_by_kernel_oom" : "killed");
        assert_non_null(strstr(l.sentence, words[kills]));
        assert_non_null(strstr(l.sentence, "memory was at 990 of 1000 MiB"));
        pl_record_destroy(rec, 0);
        drop(&r);
    }
}

struct copied {
    pthread_mutex_t lock;
    pthread_cond_t bell;
    bool done;
    int fd;
};

static void take_copy(void *ctx, int fd) {
    struct copied *c = ctx;
    pthread_mutex_lock(&c->lock);
    c->fd = fd;
    c->done = true;
    pthread_cond_signal(&c->bell);
    pthread_mutex_unlock(&c->lock);
}

TEST(where_no_file_can_be_made_rows_go_on_in_memory_and_a_copy_can_be_had) {
    struct rig r;
    struct pl_record_look l = { 0 };
    struct copied c = { .lock = PTHREAD_MUTEX_INITIALIZER, .bell = PTHREAD_COND_INITIALIZER };
    char copy[128];
    make(&r);
    snprintf(r.path, sizeof r.path, "%s/missing/record.sqlite", r.folder);
    snprintf(copy, sizeof copy, "%s/copy", r.folder);
    r.o.path = r.path;
    struct pl_record *rec = pl_record_create(&r.o);
    write_some(rec);
    do pl_record_look(rec, &l);
    while (!l.opened);
    assert_true(l.in_memory);
    assert_true(l.problem[0] != '\0');
    pl_record_copy(rec, take_copy, &c);
    pthread_mutex_lock(&c.lock);
    while (!c.done) pthread_cond_wait(&c.bell, &c.lock);
    pthread_mutex_unlock(&c.lock);
    assert_true(c.fd != -1);
    FILE *f = fopen(copy, "w");
    static char bytes[1 << 20];
    ssize_t n = pread(c.fd, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    assert_int_equal(fwrite(bytes, 1, (size_t)n, f), n);
    fclose(f);
    close(c.fd);
    assert_string_equal(ask(copy, "SELECT count(*) FROM event"), "2");
    pl_record_look(rec, &l);
    assert_int_equal(l.dropped, 0);
    pl_record_destroy(rec, 0);
    drop(&r);
}

TEST(a_newer_file_is_left_alone_and_another_is_begun_beside_it) {
    struct rig r;
    char beside[128];
    make(&r);
    sql(r.path, "PRAGMA user_version = 99; CREATE TABLE later(x)");
    struct pl_record *rec = pl_record_create(&r.o);
    write_some(rec);
    pl_record_destroy(rec, 0);
    snprintf(beside, sizeof beside, "%s.v%d", r.path, PL_RECORD_VERSION);
    assert_string_equal(ask(r.path, "SELECT count(*) FROM sqlite_master"), "1");
    assert_string_equal(ask(beside, "SELECT count(*) FROM event"), "2");
    drop(&r);
}

TEST(a_damaged_file_is_moved_aside) {
    struct rig r;
    char aside[128];
    make(&r);
    FILE *f = fopen(r.path, "w");
    for (int i = 0; i < 5000; i++) fputs("no database ", f);
    fclose(f);
    struct pl_record *rec = pl_record_create(&r.o);
    write_some(rec);
    pl_record_destroy(rec, 0);
    snprintf(aside, sizeof aside, "%s.damaged", r.path);
    assert_int_equal(access(aside, R_OK), 0);
    assert_string_equal(ask(r.path, "SELECT count(*) FROM event"), "2");
    drop(&r);
}

/* The machine's clock, and somewhat more. */
static atomic_uint ahead_ms;
static uint64_t system_now(void *ctx) {
    (void)ctx;
    return pl_now_ms(&pl_clock_system);
}
static uint64_t ahead_wall(void *ctx) {
    (void)ctx;
    return pl_wall_ms(&pl_clock_system) + ahead_ms;
}
static const struct pl_clock ahead = { .now_ms = system_now, .wall_ms = ahead_wall };

TEST(the_oldest_goes_when_the_file_is_too_large_and_deaths_stay) {
    struct rig r;
    char line[1200];
    make(&r);
    r.o.max_bytes = PL_RECORD_LEAST_BYTES;
    r.o.clock = &ahead;
    struct pl_record *rec = pl_record_create(&r.o);
    event(rec, PL_ERROR, "worker.death",
          "{\"service\":\"chat\",\"generation\":1,\"death\":\"d1\",\"cause\":\"killed\"}");
    for (int i = 0; i < 3000; i++) {
        snprintf(line, sizeof line, "{\"n\":%d,\"text\":\"%01000d\"}", i, i);
        event(rec, PL_INFO, "worker.state", line);
        if (i % 500 == 0) ahead_ms += 20; /* the stamps differ: old is by time */
    }
    struct pl_record_look l;
    for (int i = 0; i < 500; i++) {
        pl_record_look(rec, &l);
        if (l.opened && l.bytes > 0 && l.bytes <= r.o.max_bytes + r.o.max_bytes / 4 &&
            strcmp(ask(r.path, "SELECT count(*) FROM event"), "0") != 0)
            break;
        usleep(10000);
    }
    pl_record_destroy(rec, 0);
    struct stat st;
    assert_int_equal(stat(r.path, &st), 0);
    assert_true(st.st_size <= PL_RECORD_LEAST_BYTES * 5 / 4);
    assert_string_equal(ask(r.path, "SELECT count(*) FROM exit"), "1");
    assert_true(atoi(ask(r.path, "SELECT max(line->>'n') FROM event")) > 2500);
    drop(&r);
}

TEST(a_full_queue_drops_and_counts_and_never_waits) {
    struct rig r;
    char line[1200];
    struct pl_record_look l;
    make(&r);
    r.o.queue_bytes = 4096;
    struct pl_record *rec = pl_record_create(&r.o);
    snprintf(line, sizeof line, "{\"text\":\"%01000d\"}", 0);
    for (int i = 0; i < 2000; i++) event(rec, PL_INFO, "worker.state", line);
    pl_record_look(rec, &l);
    pl_record_destroy(rec, 0);
    int there = atoi(ask(r.path, "SELECT count(*) FROM event"));
    assert_true(l.dropped > 0);
    assert_int_equal(there + (int)l.dropped, 2000);
    drop(&r);
}

static uint64_t fake_ms = 1796000000000;
static uint64_t fake_now(void *ctx) { return (void)ctx, __atomic_load_n(&fake_ms, __ATOMIC_SEQ_CST); }
static const struct pl_clock fake_clock = { .now_ms = fake_now, .wall_ms = fake_now };

TEST(of_many_good_answers_some_stand_for_all_and_every_failure_has_a_row) {
    struct rig r;
    make(&r);
    r.o.clock = &fake_clock;
    struct pl_record *rec = pl_record_create(&r.o);
    for (uint64_t i = 1; i <= 1000; i++) {
        bool bad = i % 100 == 0;
        pl_record_request(rec, &(struct pl_record_request){ .id = i,
                                                            .service = "chat",
                                                            .status = bad ? 502 : 200,
                                                            .outcome = bad ? "worker_died" : "ok" });
    }
    __atomic_fetch_add(&fake_ms, 1000, __ATOMIC_SEQ_CST);
    static const char *const later[] = { "other", "chat" };
    for (size_t i = 0; i < 2; i++)
        pl_record_request(rec, &(struct pl_record_request){
                                   .id = 2000 + i, .service = later[i], .status = 200, .outcome = "ok" });
    pl_record_destroy(rec, 0);
    assert_string_equal(ask(r.path, "SELECT sum(stands_for) FROM request WHERE outcome <> 'ok'"), "10");
    assert_string_equal(ask(r.path, "SELECT count(*) FROM request WHERE outcome = 'ok'"), "102");
    assert_string_equal(ask(r.path, "SELECT sum(stands_for) FROM request WHERE service = 'chat'"), "1001");
    assert_string_equal(ask(r.path, "SELECT sum(stands_for) FROM request WHERE service = 'other'"), "1");
    drop(&r);
}

TEST(a_long_request_has_one_row_that_its_end_completes) {
    struct rig r;
    make(&r);
    struct pl_record *rec = pl_record_create(&r.o);
    struct pl_record_request q = { .id = 5, .service = "chat", .open = true, .duration_us = 250000 };
    assert_true(pl_record_request(rec, &q));
    q.open = false;
    q.opened = true;
    q.outcome = "ok";
    q.status = 200;
    q.duration_us = 900000;
    assert_true(pl_record_request(rec, &q));
    pl_record_destroy(rec, 0);
    assert_string_equal(ask(r.path, "SELECT count(*) || outcome || duration_ms FROM request"), "1ok900.0");
    drop(&r);
}

TEST(where_it_lies) {
    char out[64];
    pl_record_path("auto", "/s", out, sizeof out);
    assert_string_equal(out, "/s/record.sqlite");
    pl_record_path("auto", "", out, sizeof out);
    assert_string_equal(out, "");
    pl_record_path("memory", "/s", out, sizeof out);
    assert_string_equal(out, "");
    pl_record_path("/x/y", "/s", out, sizeof out);
    assert_string_equal(out, "/x/y");
}

RUN(cmocka_unit_test(what_was_fed_is_there_after_a_goodbye),
    cmocka_unit_test(a_life_without_a_goodbye_is_judged_at_the_next_start_once),
    cmocka_unit_test(a_main_that_died_in_a_living_keeper_is_no_death_of_the_instance),
    cmocka_unit_test(a_crash_loop_is_not_taken_for_a_kill),
    cmocka_unit_test(a_full_memory_group_says_why_and_its_counter_proves_it),
    cmocka_unit_test(where_no_file_can_be_made_rows_go_on_in_memory_and_a_copy_can_be_had),
    cmocka_unit_test(a_newer_file_is_left_alone_and_another_is_begun_beside_it),
    cmocka_unit_test(a_damaged_file_is_moved_aside),
    cmocka_unit_test(the_oldest_goes_when_the_file_is_too_large_and_deaths_stay),
    cmocka_unit_test(a_full_queue_drops_and_counts_and_never_waits),
    cmocka_unit_test(of_many_good_answers_some_stand_for_all_and_every_failure_has_a_row),
    cmocka_unit_test(a_long_request_has_one_row_that_its_end_completes), cmocka_unit_test(where_it_lies))
