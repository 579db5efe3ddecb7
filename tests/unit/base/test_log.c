#include "base/log.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/access.h"
#include "base/events.h"
#include "unit.h"

static uint64_t fixed(void *ctx) { return (void)ctx, 1796047331207; }
static const struct pl_clock noon = { .now_ms = fixed, .wall_ms = fixed };
#define COUNT(fields) (sizeof(fields) / sizeof(fields)[0])

/* A logger whose two descriptors are pipes, or one pipe for both. */
struct rig {
    struct pl_logger *log;
    int out, raw; /* to read */
    int out_end, raw_end;
};

static void start_with(struct rig *r, struct pl_log_options o, bool one_pipe) {
    int a[2], b[2];
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    *r = (struct rig){ .out = a[0], .out_end = a[1], .raw = b[0], .raw_end = b[1] };
    o.out_fd = a[1];
    o.raw_fd = one_pipe ? a[1] : b[1];
    o.clock = &noon;
    r->log = pl_log_create(&o);
    assert_non_null(r->log);
}

static void start(struct rig *r, enum pl_log_format format) {
    start_with(r, (struct pl_log_options){ .format = format }, false);
}

/* Fills a pipe to the brim, with empty lines. */
static void stuff(int end) {
    char block[4096];
    memset(block, '\n', sizeof block);
    int flags = fcntl(end, F_GETFL);
    fcntl(end, F_SETFL, flags | O_NONBLOCK);
    while (write(end, block, sizeof block) > 0) {
    }
    fcntl(end, F_SETFL, flags);
}

/* Everything that was written, the logger and its ends closed. */
static const char *finish(struct rig *r) {
    static char text[4 << 20];
    size_t n = 0;
    pl_log_destroy(r->log);
    close(r->out_end);
    close(r->raw_end);
    for (ssize_t got; (got = read(r->out, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    text[n] = '\0';
    close(r->out);
    close(r->raw);
    return text;
}

static size_t count_of(const char *text, const char *piece) {
    size_t n = 0;
    for (; (text = strstr(text, piece)) != NULL; text += strlen(piece)) n++;
    return n;
}

/* Borrowed until the next call. */
static const char *line(enum pl_log_format format, bool color, const struct pl_field *fields, size_t count) {
    static char text[8192];
    struct pl_buf b;
    pl_buf_init(&b, 0);
    pl_log_format_line(&b, format, color, PL_WARN, "worker.replace", pl_wall_ms(&noon), fields, count);
    snprintf(text, sizeof text, "%s", pl_buf_text(&b));
    pl_buf_free(&b);
    return text;
}

TEST(a_line_has_three_forms) {
    const struct pl_field f[] = { F_STR("service", "chat"),        F_INT("worker", 1),
                                  F_STR("reason", "max requests"), F_REAL("took_ms", 6.125),
                                  F_BOOL("forced", true),          F_TEXT("route", "/predict?x", 8) };
    assert_string_equal(
        line(PL_LOG_TERMINAL, false, f, COUNT(f)),
        "14:02:11.207 WARN worker.replace service=chat worker=1 reason=\"max requests\" took_ms=6.125 "
        "forced=true route=/predict\n");
    assert_string_equal(line(PL_LOG_LOGFMT, false, f, COUNT(f)),
                        "ts=2026-11-30T14:02:11.207Z level=warn event=worker.replace service=chat worker=1 "
                        "reason=\"max requests\" took_ms=6.125 forced=true route=/predict\n");
    assert_string_equal(
        line(PL_LOG_JSON, false, f, COUNT(f)),
        "{\"ts\":\"2026-11-30T14:02:11.207Z\",\"level\":\"warn\",\"event\":\"worker.replace\","
        "\"service\":\"chat\",\"worker\":1,\"reason\":\"max requests\",\"took_ms\":6.125,"
        "\"forced\":true,\"route\":\"/predict\"}\n");
}

TEST(only_the_level_is_coloured) {
    assert_string_equal(line(PL_LOG_TERMINAL, true, NULL, 0),
                        "14:02:11.207 \x1b[33mWARN\x1b[0m worker.replace\n");
    assert_null(strchr(line(PL_LOG_LOGFMT, true, NULL, 0), '\x1b'));
    assert_null(strchr(line(PL_LOG_JSON, true, NULL, 0), '\x1b'));
}

TEST(nobody_can_write_a_line_or_a_terminal_sequence_of_their_own) {
    static const struct {
        const char *in, *out;
    } table[] = {
        { "a\nlevel=error event=main.crashed", "\"a\\nlevel=error event=main.crashed\"" },
        { "\x1b[2J", "\"\\u001b[2J\"" },
        { "\xc2\x9b"
          "2J",
          "\"\\u009b2J\"" },
        { "\xff", "\"\\ufffd\"" },
        { "say \"hi\"", "\"say \\\"hi\\\"\"" },
        { "a=b", "\"a=b\"" },
        { "back\\slash", "\"back\\\\slash\"" },
        { "", "\"\"" },
        { "gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\"" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char want[300];
        const struct pl_field f[] = { F_STR("reason", table[i].in) };
        snprintf(want, sizeof want, " reason=%s\n", table[i].out);
        assert_non_null(strstr(line(PL_LOG_TERMINAL, false, f, 1), want));
        assert_non_null(strstr(line(PL_LOG_LOGFMT, false, f, 1), want));
        snprintf(want, sizeof want, ",\"reason\":%s}\n", table[i].out);
        assert_non_null(strstr(line(PL_LOG_JSON, false, f, 1), want));
    }
}

TEST(long_values_are_cut_between_characters) {
    char text[4000] = "", want[4000];
    for (int i = 0; i < 300; i++) strcat(text, "\xe2\x82\xac");
    const struct pl_field f[] = { F_STR("reason", text) };
    snprintf(want, sizeof want, "\"reason\":\"%.600s\xe2\x80\xa6\"}\n", text);
    assert_non_null(strstr(line(PL_LOG_JSON, false, f, 1), want));
    const struct pl_field m[] = { F_STR("message", text) };
    assert_non_null(strstr(line(PL_LOG_JSON, false, m, 1), text));
    for (int i = 0; i < 300; i++) strcat(text, "\xe2\x82\xac");
    snprintf(want, sizeof want, "\"message\":\"%.999s\xe2\x80\xa6\"}\n", text);
    assert_non_null(strstr(line(PL_LOG_JSON, false, m, 1), want));
    /* exactly as long as allowed: whole */
    memset(text, 'a', 200);
    text[200] = '\0';
    snprintf(want, sizeof want, " reason=%s\n", text);
    assert_non_null(strstr(line(PL_LOG_LOGFMT, false, f, 1), want));
    /* continuation bytes alone are no characters to count, and bounded all the same */
    memset(text, '\x80', 3999);
    assert_true(strlen(line(PL_LOG_JSON, false, f, 1)) < 6000);
}

TEST(what_is_not_known_is_left_out) {
    const struct pl_field f[] = { F_STR("cause", NULL), F_REAL("took_ms", (double)NAN),
                                  F_REAL("share", (double)INFINITY), F_TEXT("route", NULL, 5),
                                  F_INT("status", INT64_MIN) };
    assert_string_equal(line(PL_LOG_TERMINAL, false, f, COUNT(f)),
                        "14:02:11.207 WARN worker.replace status=-9223372036854775808\n");
}

TEST(numbers_are_written_short_and_right) {
    static const struct {
        double value;
        const char *text;
    } table[] = {
        { 0, "0" },
        { 0.001, "0.001" },
        { 0.01, "0.01" },
        { 0.1, "0.1" },
        { 1, "1" },
        { 6.123, "6.123" },
        { 59999.5, "59999.5" },
        { 1.05, "1.05" },
        { 0.9999, "0.9999" },
        { 1.0 / 3, "0.333333" },
        { -1.5, "-1.5" },
        { -0.0001, "-0.0001" },
        { 1e9, "1e+09" },
        { 1e300, "1e+300" },
        { 123456789.25, "123456789.25" },
        { -0.001, "-0.001" },
        { 0.0005, "0.0005" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char want[64];
        const struct pl_field f[] = { F_REAL("took_ms", table[i].value) };
        snprintf(want, sizeof want, " took_ms=%s\n", table[i].text);
        assert_non_null(strstr(line(PL_LOG_LOGFMT, false, f, 1), want));
    }
}

TEST(only_the_level_asked_for_and_above_is_written) {
    struct rig r;
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT, .min = PL_WARN }, false);
    pl_log(r.log, PL_INFO, "worker.spawned", F_INT("pid", 1));
    pl_log(r.log, PL_WARN, "worker.rollback", F_INT("pid", 2));
    pl_log_set_level(r.log, PL_DEBUG);
    pl_log(r.log, PL_DEBUG, "worker.state", F_INT("pid", 3));
    const char *text = finish(&r);
    assert_null(strstr(text, "pid=1"));
    assert_non_null(strstr(text, "level=warn event=worker.rollback pid=2\n"));
    assert_non_null(strstr(text, "level=debug event=worker.state pid=3\n"));
}

TEST(common_fields_follow_every_event_unless_it_has_its_own) {
    struct rig r;
    char name[] = "default";
    start(&r, PL_LOG_LOGFMT);
    const struct pl_field common[] = { F_STR("instance", name), F_STR("service", "none") };
    pl_log_set_common(r.log, common, COUNT(common));
    strcpy(name, "gone...");
    pl_log(r.log, PL_INFO, "worker.ready", F_STR("service", "chat"));
    pl_log_emit(r.log, PL_INFO, "main.ready", NULL, 0);
    pl_log_set_common(r.log, NULL, 0);
    pl_log_emit(r.log, PL_INFO, "main.stopped", NULL, 0);
    const char *text = finish(&r);
    assert_non_null(strstr(text, "event=worker.ready service=chat instance=default\n"));
    assert_non_null(strstr(text, "event=main.ready instance=default service=none\n"));
    assert_non_null(strstr(text, "event=main.stopped\n"));
}

struct tapped {
    char text[1000];
    int count;
};

static void note(void *ctx, enum pl_level level, const char *event, const char *text, size_t len) {
    struct tapped *t = ctx;
    assert_int_equal(level, PL_INFO);
    assert_string_equal(event, "worker.ready");
    assert_true(len < sizeof t->text);
    memcpy(t->text, text, len);
    t->text[len] = '\0';
    t->count++;
}

TEST(the_tap_hears_json_whatever_the_form_of_the_log) {
    for (int format = PL_LOG_TERMINAL; format <= PL_LOG_JSON; format++) {
        struct tapped t = { 0 };
        struct rig r;
        struct pl_log_options o = { .format = (enum pl_log_format)format,
                                    .min = PL_INFO,
                                    .tap = note,
                                    .tap_ctx = &t,
                                    .tap_min = PL_INFO };
        start_with(&r, o, false);
        pl_log(r.log, PL_DEBUG, "worker.state", F_STR("from", "idle"));
        pl_log(r.log, PL_INFO, "worker.ready", F_INT("after_ms", 5));
        assert_int_equal(t.count, 1);
        assert_string_equal(
            t.text, "{\"ts\":\"2026-11-30T14:02:11.207Z\",\"level\":\"info\",\"event\":\"worker.ready\","
                    "\"after_ms\":5}");
        finish(&r);
    }
}

TEST(the_tap_hears_what_a_quiet_log_leaves_out) {
    struct tapped t = { 0 };
    struct rig r;
    start_with(&r,
               (struct pl_log_options){
                   .format = PL_LOG_JSON, .min = PL_ERROR, .tap = note, .tap_ctx = &t, .tap_min = PL_INFO },
               false);
    pl_log(r.log, PL_INFO, "worker.ready", F_INT("after_ms", 5));
    pl_log(r.log, PL_DEBUG, "worker.state", F_STR("from", "idle"));
    assert_int_equal(t.count, 1);
    assert_string_equal(finish(&r), "");
}

TEST(worker_lines_and_events_on_one_descriptor_keep_their_order) {
    struct rig r;
    char want[32];
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT }, true);
    for (int i = 0; i < 100; i++) {
        snprintf(want, sizeof want, "raw %d\n", i);
        assert_true(pl_log_raw(r.log, want, strlen(want)));
        pl_log(r.log, PL_INFO, "worker.state", F_INT("n", i));
    }
    pl_log_text(r.log, "the banner\nof two lines\n");
    const char *text = finish(&r);
    for (int i = 0; i < 100; i++) {
        snprintf(want, sizeof want, "raw %d\n", i);
        text = strstr(text, want);
        assert_non_null(text);
        snprintf(want, sizeof want, " n=%d\n", i);
        text = strstr(text, want);
        assert_non_null(text);
    }
    assert_string_equal(strchr(text, '\n') + 1, "the banner\nof two lines\n");
}

TEST(a_blocked_stdout_does_not_hold_back_the_log) {
    struct rig r;
    char block[1024], got[4096];
    memset(block, 'x', sizeof block - 1);
    block[sizeof block - 1] = '\n';
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT, .ring_bytes = 16384 }, false);
    stuff(r.raw_end);
    while (pl_log_raw(r.log, block, sizeof block)) {
    }
    pl_log(r.log, PL_INFO, "main.ready", F_INT("after_ms", 1));
    ssize_t n = read(r.out, got, sizeof got - 1);
    assert_true(n > 0);
    got[n] = '\0';
    assert_non_null(strstr(got, "event=main.ready"));
    /* there is room again as soon as somebody reads */
    do {
        assert_true(read(r.raw, got, sizeof got) > 0);
    } while (!pl_log_raw(r.log, block, sizeof block));
    assert_int_equal(pl_log_dropped(r.log), 0);
    /* the end does not wait for ever, although stdout is full */
    finish(&r);
}

TEST(a_blocked_reader_never_blocks_the_caller_and_one_line_tells_what_is_missing) {
    struct rig r;
    char want[64];
    static char text[4 << 20];
    size_t n = 0, lines = 20000;
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT, .ring_bytes = 65536 }, false);
    stuff(r.out_end);
    for (size_t i = 0; i < lines; i++) pl_log(r.log, PL_INFO, "worker.state", F_INT("n", i));
    uint64_t dropped = pl_log_dropped(r.log);
    assert_true(dropped > 0 && dropped < lines);
    /* somebody reads at last: what was kept comes in order, then the notice */
    while (strstr(text + (n > 200 ? n - 200 : 0), "log.dropped") == NULL || text[n - 1] != '\n') {
        ssize_t got = read(r.out, text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        text[n] = '\0';
    }
    pl_log(r.log, PL_INFO, "worker.state", F_STR("n", "after"));
    snprintf(text + n, sizeof text - n, "%s", finish(&r));
    assert_int_equal(count_of(text, "event=log.dropped"), 1);
    snprintf(want, sizeof want, "level=warn event=log.dropped lines=%llu\n", (unsigned long long)dropped);
    assert_non_null(strstr(text, want));
    assert_int_equal(count_of(text, "event=worker.state"), lines - (size_t)dropped + 1);
    snprintf(want, sizeof want, " n=%zu\n", lines - (size_t)dropped - 1);
    const char *last = strstr(text, want), *notice = strstr(text, "event=log.dropped");
    assert_true(last != NULL && last < notice && notice < strstr(text, " n=after\n"));
}

TEST(a_text_larger_than_the_ring_is_dropped_and_told_and_the_next_line_comes) {
    struct rig r;
    static char huge[8192];
    char got[1024];
    memset(huge, 'x', sizeof huge - 2);
    huge[sizeof huge - 2] = '\n';
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT, .ring_bytes = 4096 }, false);
    pl_log_text(r.log, huge);
    ssize_t n = read(r.out, got, sizeof got - 1);
    assert_true(n > 0);
    got[n] = '\0';
    assert_string_equal(got, "ts=2026-11-30T14:02:11.207Z level=warn event=log.dropped lines=1\n");
    pl_log_emit(r.log, PL_INFO, "main.ready", NULL, 0);
    assert_non_null(strstr(finish(&r), "event=main.ready\n"));
}

TEST(raw_bytes_leave_a_quarter_of_a_shared_ring_to_our_own_events) {
    struct rig r;
    char block[512];
    memset(block, 'x', sizeof block - 1);
    block[sizeof block - 1] = '\n';
    start_with(&r, (struct pl_log_options){ .format = PL_LOG_LOGFMT, .ring_bytes = 16384 }, true);
    stuff(r.out_end);
    while (pl_log_raw(r.log, block, sizeof block)) {
    }
    for (int i = 0; i < 20; i++) pl_log(r.log, PL_INFO, "worker.state", F_INT("n", i));
    assert_int_equal(pl_log_dropped(r.log), 0);
    /* more than three quarters at once never fit */
    static char much[12289];
    assert_false(pl_log_raw(r.log, much, sizeof much));
    finish(&r);
}

TEST(a_reader_that_left_costs_lines_and_nothing_else) {
    struct rig r;
    start(&r, PL_LOG_JSON);
    close(r.out);
    for (int i = 0; i < 10; i++) pl_log(r.log, PL_INFO, "worker.state", F_INT("n", i));
    while (pl_log_dropped(r.log) < 10) sched_yield();
    r.out = open("/dev/null", O_RDONLY | O_CLOEXEC);
    finish(&r);
}

static void *shout(void *arg) {
    for (int i = 0; i < 500; i++)
        pl_log(arg, PL_INFO, "worker.state", F_STR("from", "a word that takes a little time"), F_INT("n", i));
    return NULL;
}

TEST(lines_of_many_threads_come_whole) {
    struct rig r;
    pthread_t threads[4];
    static char text[4 << 20];
    size_t n = 0;
    start(&r, PL_LOG_LOGFMT);
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, shout, r.log), 0);
    while (count_of(text + (n > 70000 ? n - 70000 : 0), "\n") == 0 || count_of(text, "\n") < 2000) {
        ssize_t got = read(r.out, text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        text[n] = '\0';
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    const char *at = text;
    for (int i = 0; i < 2000; i++) {
        int number = -1, used = 0;
        sscanf(at,
               "ts=2026-11-30T14:02:11.207Z level=info event=worker.state from=\"a word that takes a little "
               "time\" n=%d%n",
               &number, &used);
        assert_true(number >= 0 && at[used] == '\n');
        at += used + 1;
    }
    assert_string_equal(finish(&r), "");
}

TEST(a_sampler_lets_one_through_a_second_and_counts_the_rest) {
    struct pl_log_sampler s = { 0 };
    assert_int_equal(pl_log_sample(&s, 5000), 0);
    for (uint64_t t = 5000; t < 6000; t += 100) assert_int_equal(pl_log_sample(&s, t), -1);
    assert_int_equal(pl_log_sample(&s, 6000), 10);
    assert_int_equal(pl_log_sample(&s, 6001), -1);
    assert_int_equal(pl_log_sample(&s, 60000), 1);
    assert_int_equal(pl_log_sample(&s, 90000), 0);
}

#define TEXT(s) \
    { s, sizeof(s) - 1 }
static const struct pl_access served = {
    .remote = "10.0.0.7:51234",
    .scheme = "http",
    .method = TEXT("POST"),
    .target = TEXT("/predict?key=secret"),
    .request_type = TEXT("application/json"),
    .request_length = 11,
    .status = 200,
    .response_type = TEXT("application/json"),
    .response_length = 3,
    .duration_us = 6123,
    .queue_us = 200,
    .first_byte_us = 6000,
    .trace_id = TEXT("0af7651916cd43dd8448eb211c80319c"),
    .span_id = TEXT("b7ad6b7169203331"),
    .service = "chat",
    .request_id = TEXT("r-1"),
    .id = 0x9f3c12ab00000001,
    .outcome = "ok",
    .worker = 1,
    .generation = 12,
};
static const struct pl_access refused = {
    .remote = "unix",
    .scheme = "http",
    .method = TEXT("GET"),
    .target = TEXT("/\x1b[2J"),
    .request_length = -1,
    .response_length = -1,
    .duration_us = 40,
    .queue_us = -1,
    .first_byte_us = -1,
    .outcome = "client_gone",
    .reason = "client_gone",
    .service = "chat",
};

static const char *access_of(enum pl_log_format format, const struct pl_access *a) {
    struct rig r;
    start(&r, format);
    pl_log_access(r.log, a);
    pl_log_set_level(r.log, PL_WARN);
    pl_log_access(r.log, a);
    return finish(&r);
}

TEST(the_access_line_on_a_terminal_reads_like_bentomls) {
    assert_string_equal(
        access_of(PL_LOG_TERMINAL, &served),
        "14:02:11.207 INFO [service:chat:1] 10.0.0.7:51234 (scheme=http,method=POST,path=/predict,"
        "type=application/json,length=11) (status=200,type=application/json,length=3) 6.1ms "
        "(trace=0af7651916cd43dd8448eb211c80319c,span=b7ad6b7169203331,queue=0.2ms,outcome=ok,"
        "id=9f3c12ab00000001)\n");
    assert_string_equal(
        access_of(PL_LOG_TERMINAL, &refused),
        "14:02:11.207 INFO [service:chat] unix (scheme=http,method=GET,path=/\\u001b[2J,type=,length=) "
        "(status=,type=,length=) 0.0ms (trace=,span=,outcome=client_gone,reason=client_gone)\n");
}

TEST(the_access_line_elsewhere_has_bentomls_fields_first) {
    assert_string_equal(
        access_of(PL_LOG_JSON, &served),
        "{\"ts\":\"2026-11-30T14:02:11.207Z\",\"level\":\"info\",\"event\":\"access\",\"remote\":\"10.0.0.7:"
        "51234\","
        "\"scheme\":\"http\",\"method\":\"POST\",\"path\":\"/predict\",\"request_type\":\"application/json\","
        "\"request_length\":11,\"status\":200,\"response_type\":\"application/json\",\"response_length\":3,"
        "\"duration_ms\":6.123,\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\",\"span_id\":"
        "\"b7ad6b7169203331\","
        "\"service\":\"chat\",\"request_id\":\"r-1\",\"id\":\"9f3c12ab00000001\",\"queue_ms\":0.2,"
        "\"first_byte_ms\":6,\"outcome\":\"ok\",\"worker\":1,\"generation\":12}\n");
    assert_string_equal(
        access_of(PL_LOG_LOGFMT, &refused),
        "ts=2026-11-30T14:02:11.207Z level=info event=access remote=unix scheme=http method=GET "
        "path=\"/\\u001b[2J\" duration_ms=0.04 service=chat outcome=client_gone reason=client_gone\n");
}

TEST(event_names_are_plain_dotted_words_and_found_by_name) {
    size_t count = 0;
    for (const struct pl_event_info *e; (e = pl_event_at(count)) != NULL; count++) {
        assert_int_equal(strspn(e->name, "abcdefghijklmnopqrstuvwxyz_."), strlen(e->name));
        assert_true(e->level >= PL_DEBUG && e->level <= PL_ERROR && e->fields != NULL);
        assert_ptr_equal(pl_event_find(e->name), e);
    }
    assert_true(count > 0);
    assert_null(pl_event_find("worker"));
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_three_forms),
        cmocka_unit_test(only_the_level_is_coloured),
        cmocka_unit_test(nobody_can_write_a_line_or_a_terminal_sequence_of_their_own),
        cmocka_unit_test(long_values_are_cut_between_characters),
        cmocka_unit_test(what_is_not_known_is_left_out),
        cmocka_unit_test(numbers_are_written_short_and_right),
        cmocka_unit_test(only_the_level_asked_for_and_above_is_written),
        cmocka_unit_test(common_fields_follow_every_event_unless_it_has_its_own),
        cmocka_unit_test(the_tap_hears_json_whatever_the_form_of_the_log),
        cmocka_unit_test(the_tap_hears_what_a_quiet_log_leaves_out),
        cmocka_unit_test(worker_lines_and_events_on_one_descriptor_keep_their_order),
        cmocka_unit_test(a_blocked_stdout_does_not_hold_back_the_log),
        cmocka_unit_test(a_blocked_reader_never_blocks_the_caller_and_one_line_tells_what_is_missing),
        cmocka_unit_test(a_text_larger_than_the_ring_is_dropped_and_told_and_the_next_line_comes),
        cmocka_unit_test(raw_bytes_leave_a_quarter_of_a_shared_ring_to_our_own_events),
        cmocka_unit_test(a_reader_that_left_costs_lines_and_nothing_else),
        cmocka_unit_test(lines_of_many_threads_come_whole),
        cmocka_unit_test(a_sampler_lets_one_through_a_second_and_counts_the_rest),
        cmocka_unit_test(the_access_line_on_a_terminal_reads_like_bentomls),
        cmocka_unit_test(the_access_line_elsewhere_has_bentomls_fields_first),
        cmocka_unit_test(event_names_are_plain_dotted_words_and_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
