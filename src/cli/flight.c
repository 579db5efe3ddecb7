#include "cli/flight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "record/schema.h"

enum {
    BEFORE_MS = 60000, /* of a death: this is told */
    AFTER_MS = 1000,
    QUIET_MS = 10000, /* without a sign of life: it is no more */
    EVENTS_MOST = 400,
    ROWS_MOST = 200,
    SERIES_MOST = 64,
    POINTS = 300, /* of a series, about */
    IMAGE_BYTES = 512 << 20
};

#define TS(column) "strftime('%Y-%m-%dT%H:%M:%fZ', " column " / 1000.0, 'unixepoch')"

/* --- opening */

static bool read_image(struct pl_flight *f, int fd, struct pl_err *err) {
    off_t size = lseek(fd, 0, SEEK_END);
    if (size <= 0 || size > IMAGE_BYTES)
        return PL_FAIL(err, PL_E_CONFIG, "%s: no copy of a record", f->place);
    f->image = sqlite3_malloc64((sqlite3_uint64)size);
    if (f->image == NULL) return PL_FAIL(err, PL_E_NOMEM, "out of memory");
    for (off_t at = 0; at < size;) {
        ssize_t n = pread(fd, (char *)f->image + at, (size_t)(size - at), at);
        if (n <= 0 && !(n == -1 && errno == EINTR)) return PL_FAIL_SYS(err, errno, "read %s", f->place);
        if (n > 0) at += n;
    }
    return sqlite3_open(":memory:", &f->db) == SQLITE_OK &&
           sqlite3_deserialize(f->db, "main", f->image, size, size, SQLITE_DESERIALIZE_READONLY) == SQLITE_OK;
}

/* In a folder that is not ours to write, a file in WAL mode opens only as one that nobody changes. */
static bool open_file(struct pl_flight *f, const char *path) {
    char uri[1600] = "file:";
    size_t at = strlen(uri);
    for (const char *c = path; *c != '\0' && at < sizeof uri - 32; c++) /* '?' and '%' mean something there */
        at += (size_t)snprintf(uri + at, sizeof uri - at,
                               *c == '?' || *c == '%' || *c == '#' ? "%%%02x" : "%c", (unsigned char)*c);
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
    if (sqlite3_open_v2(uri, &f->db, flags, NULL) == SQLITE_OK && pl_schema_version(f->db) >= 0) return true;
    sqlite3_close(f->db);
    f->db = NULL;
    snprintf(uri + at, sizeof uri - at, "?immutable=1");
    return sqlite3_open_v2(uri, &f->db, flags, NULL) == SQLITE_OK && pl_schema_version(f->db) >= 0;
}

static bool is_record(struct pl_flight *f, struct pl_err *err) {
    sqlite3_stmt *s;
    int version = pl_schema_version(f->db);
    if (version < 1 || sqlite3_prepare_v2(f->db, "SELECT 1 FROM boot, exit, event, request, sample LIMIT 0",
                                          -1, &s, NULL) != SQLITE_OK)
        return PL_FAIL(err, PL_E_CONFIG, "%s is no flight record", f->place);
    sqlite3_finalize(s);
    if (version <= PL_RECORD_VERSION) return true;
    PL_FAIL(err, PL_E_CONFIG, "%s was written by a newer plimsoll (tables of version %d, %d is known here)",
            f->place, version, PL_RECORD_VERSION);
    return pl_err_hint(err, "use that one's `plimsoll report`, or sqlite3");
}

bool pl_flight_open(struct pl_flight *f, const char *place, struct pl_err *err) {
    *f = (struct pl_flight){ 0 };
    snprintf(f->place, sizeof f->place, "%s", place);
    bool handed = strncmp(place, "fd:", 3) == 0;
    if (!handed && access(place, R_OK) == -1) {
        PL_FAIL_SYS(err, errno, "%s", place);
        return pl_err_hint(err, "--record FILE names one; it is record.sqlite in the state folder");
    }
    err->msg[0] = '\0';
    bool ok = handed ? read_image(f, (int)strtol(place + 3, NULL, 10), err) : open_file(f, place);
    if (!ok && err->msg[0] == '\0') PL_FAIL(err, PL_E_CONFIG, "%s is no flight record", place);
    if (ok) {
        sqlite3_busy_timeout(f->db, 2000);
        sqlite3_db_config(f->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        ok = is_record(f, err);
    }
    if (!ok) pl_flight_close(f);
    return ok;
}

void pl_flight_close(struct pl_flight *f) {
    sqlite3_close(f->db);
    sqlite3_free(f->image);
    f->db = NULL;
    f->image = NULL;
}

/* --- questions */

struct window {
    uint64_t from, to;
    const char *service;
};

/* ?1 from, ?2 to, ?3 service or NULL; then what `more` binds. */
static sqlite3_stmt *ask(struct pl_flight *f, const char *sql, const struct window *w) {
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(f->db, sql, -1, &s, NULL) != SQLITE_OK) return NULL;
    sqlite3_bind_int64(s, 1, (sqlite3_int64)w->from);
    sqlite3_bind_int64(s, 2, (sqlite3_int64)w->to);
    if (w->service != NULL) sqlite3_bind_text(s, 3, w->service, -1, SQLITE_TRANSIENT);
    return s;
}

static json_t *cell(sqlite3_stmt *s, int i) {
    const char *text;
    switch (sqlite3_column_type(s, i)) {
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(s, i));
    case SQLITE_FLOAT:
        return json_real(sqlite3_column_double(s, i));
    case SQLITE_NULL:
        return NULL;
    default:
        text = (const char *)sqlite3_column_text(s, i);
        return text != NULL ? json_stringn(text, (size_t)sqlite3_column_bytes(s, i)) : NULL;
    }
}

/* A column named `line` is an event as it was logged. */
static json_t *row(sqlite3_stmt *s) {
    json_t *o = json_object();
    for (int i = 0; i < sqlite3_column_count(s); i++) {
        json_t *value = cell(s, i);
        if (value != NULL) json_object_set_new(o, sqlite3_column_name(s, i), value);
    }
    return o;
}

static json_t *rows(struct pl_flight *f, const char *sql, const struct window *w) {
    json_t *list = json_array();
    sqlite3_stmt *s = ask(f, sql, w);
    for (int n = 0; n < ROWS_MOST && s != NULL && sqlite3_step(s) == SQLITE_ROW; n++)
        json_array_append_new(list, row(s));
    sqlite3_finalize(s);
    return list;
}

static json_t *story(struct pl_flight *f, const struct window *w) {
    char sql[400];
    json_t *list = json_array();
    snprintf(
        sql, sizeof sql,
        "SELECT line FROM (SELECT rowid AS n, ts_ms, line FROM event WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 "
        "IS NULL"
        " OR service IS NULL OR service = ?3) AND level <> 'debug' ORDER BY ts_ms DESC, rowid DESC LIMIT %d)"
        " ORDER BY ts_ms, n",
        EVENTS_MOST);
    sqlite3_stmt *s = ask(f, sql, w);
    while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(s, 0);
        json_t *line = text != NULL ? json_loads(text, 0, NULL) : NULL;
        if (json_is_object(line)) json_array_append(list, line);
        json_decref(line);
    }
    sqlite3_finalize(s);
    return list;
}

/* --- requests */

static void set_quantiles(struct pl_flight *f, json_t *o, const struct window *w) {
    static const struct {
        const char *key, *sql;
    } asked[] = {
#define AT(share)                                                                                            \
    "SELECT duration_ms FROM request WHERE ts_ms BETWEEN ?1 AND ?2 AND service = ?3 AND duration_ms IS NOT " \
    "NULL"                                                                                                   \
    " ORDER BY duration_ms LIMIT 1 OFFSET (SELECT cast(count(*) * " share " AS INTEGER) FROM request WHERE"  \
    " ts_ms BETWEEN ?1 AND ?2 AND service = ?3 AND duration_ms IS NOT NULL)"
        { "median_ms", AT("0.5") },
        { "p95_ms", AT("0.95") },
        { "longest_ms",
          "SELECT max(duration_ms) FROM request WHERE ts_ms BETWEEN ?1 AND ?2 AND service = ?3" },
#undef AT
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        sqlite3_stmt *s = ask(f, asked[i].sql, w);
        json_t *value = s != NULL && sqlite3_step(s) == SQLITE_ROW ? cell(s, 0) : NULL;
        if (value != NULL) json_object_set_new(o, asked[i].key, value);
        sqlite3_finalize(s);
    }
}

static json_t *numbers(struct pl_flight *f, const struct window *w) {
    json_t *list =
        rows(f,
             "SELECT service, sum(stands_for) AS requests, count(*) AS recorded, sum(request_bytes) AS"
             " request_bytes, sum(reply_bytes) AS reply_bytes FROM request WHERE ts_ms BETWEEN ?1 AND ?2"
             " AND (?3 IS NULL OR service = ?3) AND outcome IS NOT NULL GROUP BY service",
             w);
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        struct window own = *w;
        json_t *outcomes = json_object();
        own.service = json_string_value(json_object_get(o, "service"));
        sqlite3_stmt *s =
            ask(f,
                "SELECT outcome, sum(stands_for) FROM request WHERE ts_ms BETWEEN ?1 AND ?2 AND service ="
                " ?3 AND outcome IS NOT NULL GROUP BY outcome",
                &own);
        while (s != NULL && sqlite3_step(s) == SQLITE_ROW)
            json_object_set_new(outcomes, (const char *)sqlite3_column_text(s, 0), cell(s, 1));
        sqlite3_finalize(s);
        json_object_set_new(o, "outcomes", outcomes);
        set_quantiles(f, o, &own);
    }
    return list;
}

/* How many began when, and how they ended: a row a step and service. */
static json_t *request_points(struct pl_flight *f, const struct window *w, uint64_t step) {
    json_t *list = json_array();
    sqlite3_stmt *s =
        ask(f,
            "SELECT ts_ms / ?4 * ?4, service, sum(stands_for), sum(CASE WHEN outcome = 'ok' THEN 0 ELSE"
            " stands_for END), avg(duration_ms), max(duration_ms) FROM request WHERE ts_ms BETWEEN ?1 AND"
            " ?2 AND (?3 IS NULL OR service = ?3) AND outcome IS NOT NULL GROUP BY 1, 2 ORDER BY 1",
            w);
    if (s != NULL) sqlite3_bind_int64(s, 4, (sqlite3_int64)step);
    for (int n = 0; n < POINTS * 10 * 8 && s != NULL && sqlite3_step(s) == SQLITE_ROW; n++) {
        const char *service = (const char *)sqlite3_column_text(s, 1);
        json_t *point = json_pack("{s:I,s:s,s:I,s:I}", "ts_ms", sqlite3_column_int64(s, 0), "service",
                                  service != NULL ? service : "", "requests", sqlite3_column_int64(s, 2),
                                  "failed", sqlite3_column_int64(s, 3));
        if (sqlite3_column_type(s, 4) != SQLITE_NULL) {
            json_object_set_new(point, "mean_ms", json_real(sqlite3_column_double(s, 4)));
            json_object_set_new(point, "longest_ms", json_real(sqlite3_column_double(s, 5)));
        }
        json_array_append_new(list, point);
    }
    sqlite3_finalize(s);
    return list;
}

/* Those that ran when it ended: without an end of their own, over it, or ended by it. */
static json_t *in_flight(struct pl_flight *f, const json_t *death) {
    const struct window w = { .from = (uint64_t)json_integer_value(json_object_get(death, "ts_ms")),
                              .to = (uint64_t)json_integer_value(json_object_get(death, "boot")),
                              .service = json_string_value(json_object_get(death, "service")) };
    return rows(
        f,
        "SELECT id, " TS(
            "ts_ms") " AS ts, service, method, route, worker, generation, status, outcome, reason,"
                     " request_bytes, replay, coalesce(duration_ms, ?1 - ts_ms) AS running_ms FROM request "
                     "WHERE"
                     " ts_ms <= ?1 AND ts_ms > ?1 - 86400000 AND boot = ?2 AND (?3 IS NULL OR service = ?3) "
                     "AND"
                     " (outcome IS NULL OR ts_ms + duration_ms > ?1 OR (outcome IN ('worker_died', 'cut')"
                     " AND ts_ms + duration_ms > ?1 - 5000)) ORDER BY ts_ms",
        &w);
}

/* --- memory */

/* Which figure of a sample speaks for its scope. */
#define VALUE "coalesce(allocated_bytes, used_bytes, rss_bytes)"

static void set_points(struct pl_flight *f, json_t *o, const struct window *w, uint64_t step) {
    sqlite3_stmt *s =
        ask(f,
            "SELECT min(ts_ms), max(" VALUE "), max(peak_bytes), max(limit_bytes), max(reserved_bytes),"
            " max(total_bytes) FROM sample WHERE ts_ms BETWEEN ?1 AND ?2 AND scope = ?4 AND service IS ?3"
            " AND worker IS ?5 AND generation IS ?6 AND " VALUE " IS NOT NULL GROUP BY ts_ms / ?7"
            " ORDER BY 1",
            w);
    json_t *points = json_array(), *reserved = json_array();
    const json_t *worker = json_object_get(o, "worker"), *generation = json_object_get(o, "generation");
    int64_t peak = 0, limit = 0;
    if (s != NULL) {
        sqlite3_bind_text(s, 4, json_string_value(json_object_get(o, "scope")), -1, SQLITE_TRANSIENT);
        if (worker != NULL) sqlite3_bind_int64(s, 5, json_integer_value(worker));
        if (generation != NULL) sqlite3_bind_int64(s, 6, json_integer_value(generation));
        sqlite3_bind_int64(s, 7, (sqlite3_int64)step);
    }
    while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        int64_t value = sqlite3_column_int64(s, 1), top = sqlite3_column_int64(s, 2);
        json_array_append_new(points, json_pack("[I,I]", sqlite3_column_int64(s, 0), value));
        if (sqlite3_column_type(s, 4) != SQLITE_NULL)
            json_array_append_new(reserved,
                                  json_pack("[I,I]", sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 4)));
        if (value > peak) peak = value;
        if (top > peak) peak = top;
        limit = sqlite3_column_int64(s, 3) > 0 ? sqlite3_column_int64(s, 3) : limit;
        if (limit == 0) limit = sqlite3_column_int64(s, 5);
    }
    sqlite3_finalize(s);
    json_object_set_new(o, "peak_bytes", json_integer(peak));
    if (limit > 0) json_object_set_new(o, "limit_bytes", json_integer(limit));
    json_object_set_new(o, "points", points);
    if (json_array_size(reserved) > 0) json_object_set(o, "reserved", reserved);
    json_decref(reserved);
}

static json_t *memory(struct pl_flight *f, const struct window *w, uint64_t step) {
    json_t *list =
        rows(f,
             "SELECT scope, service, worker, generation, CASE WHEN max(allocated_bytes) IS NOT NULL THEN"
             " 'allocated' WHEN max(used_bytes) IS NOT NULL THEN 'used' ELSE 'rss' END AS what FROM sample"
             " WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR service IS NULL OR service = ?3) AND " VALUE
             " IS NOT NULL GROUP BY scope, service, worker, generation ORDER BY scope, service, worker,"
             " generation LIMIT 64",
             w);
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        struct window own = *w;
        own.service = json_string_value(json_object_get(o, "service"));
        set_points(f, o, &own, step);
    }
    return list;
}

static uint64_t step_of(const struct window *w, uint64_t wanted) {
    uint64_t step = wanted != 0 ? wanted : (w->to - w->from) / POINTS,
             least = (w->to - w->from) / (POINTS * 10) + 1;
    return step > least ? step : least;
}

/* --- documents */

static const char exit_columns[] = "SELECT death AS id, " TS(
    "ts_ms") " AS ts, ts_ms, boot, kind, service, worker, generation, cause, scope, status,"
             " sentence, last_line, in_handlers, allocated_bytes, reserved_bytes, device_free_bytes, "
             "oom_verdict FROM exit"
             " WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR service IS NULL OR service = ?3) ORDER BY "
             "ts_ms DESC, rowid DESC";

static json_t *document(struct pl_flight *f, const char *kind, const struct window *w) {
    char from[PL_TIME_TEXT], to[PL_TIME_TEXT];
    const struct window all = { .from = 0, .to = INT64_MAX };
    json_t *o = json_pack("{s:i,s:s,s:s,s:s}", "v", 1, "kind", kind, "from", pl_time_rfc3339(w->from, from),
                          "to", pl_time_rfc3339(w->to, to));
    json_t *record = json_pack("{s:s}", "file", f->place);
    json_t *first =
        rows(f,
             "SELECT " TS("min(ts_ms)") " AS 'from', " TS(
                 "max(coalesce(seen_ms, ts_ms))") " AS 'to',"
                                                  " count(*) AS starts, max(instance) AS instance FROM boot "
                                                  "WHERE ts_ms BETWEEN ?1 AND ?2 AND"
                                                  " (?3 IS NULL OR 1)",
             &all);
    json_object_update(record, json_array_get(first, 0));
    json_decref(first);
    json_object_set_new(o, "record", record);
    json_object_set_new(o, "from_ms", json_integer((json_int_t)w->from));
    json_object_set_new(o, "to_ms", json_integer((json_int_t)w->to));
    if (w->service != NULL) json_object_set_new(o, "service", json_string(w->service));
    return o;
}

/* A statement that does not work here was not written for this file: SQLite has the words. */
static json_t *checked(struct pl_flight *f, json_t *doc, struct pl_err *err) {
    int rc = sqlite3_errcode(f->db) & 0xff;
    if (rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW) return doc;
    PL_FAIL(err, PL_E_CONFIG, "%s: %s", f->place, sqlite3_errmsg(f->db));
    json_decref(doc);
    return NULL;
}

static struct window asked(const struct pl_flight_wish *w) {
    return (struct window){ .from = w->from_ms,
                            .to = w->to_ms != 0 ? w->to_ms : w->now_ms,
                            .service = w->service };
}

/* A life that has not ended and has long given no sign: nobody has judged it yet. Whether it runs where the
 * file comes from cannot be known here, but its sign of life comes every second. */
static json_t *unjudged(struct pl_flight *f, const struct pl_flight_wish *wish) {
    const struct window w = { .from = 0, .to = wish->now_ms - QUIET_MS };
    json_t *list =
        rows(f,
             "SELECT 'i' || life AS id, " TS("seen_ms") " AS ts, seen_ms AS ts_ms, boot, 'instance' AS kind,"
                                                        " 'unknown' AS cause, 'no goodbye and no sign of "
                                                        "life since: the next start will judge it' AS"
                                                        " sentence FROM boot WHERE ended_ms IS NULL AND "
                                                        "seen_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR 1)"
                                                        " AND boot = (SELECT max(boot) FROM boot)",
             &w);
    json_t *first = json_incref(json_array_get(list, 0));
    json_decref(list);
    return first;
}

json_t *pl_flight_report(struct pl_flight *f, const struct pl_flight_wish *wish, struct pl_err *err) {
    struct window w = asked(wish);
    json_t *deaths = rows(f, exit_columns, &w), *death = json_incref(json_array_get(deaths, 0));
    json_t *open = wish->to_ms == 0 ? unjudged(f, wish) : NULL;
    if (open != NULL) {
        json_array_insert(deaths, 0, open);
        json_decref(death);
        death = json_incref(open);
    }
    if (wish->from_ms == 0 && wish->to_ms == 0 && death != NULL) {
        uint64_t at = (uint64_t)json_integer_value(json_object_get(death, "ts_ms"));
        w.from = at - BEFORE_MS;
        w.to = at + AFTER_MS;
        json_decref(deaths);
        deaths = rows(f, exit_columns, &w);
        if (open != NULL) json_array_insert(deaths, 0, open);
    }
    json_decref(open);
    json_t *o = document(f, "report", &w);
    if (death != NULL) json_object_set_new(o, "in_flight", in_flight(f, death));
    if (death != NULL) json_object_set(o, "death", death);
    json_decref(death);
    json_object_set_new(o, "deaths", deaths);
    bool nothing = wish->from_ms == 0 && wish->to_ms == 0 && death == NULL;
    if (!nothing) json_object_set_new(o, "story", story(f, &w));
    if (!nothing) json_object_set_new(o, "numbers", numbers(f, &w));
    if (!nothing) json_object_set_new(o, "step_ms", json_integer((json_int_t)step_of(&w, 1000)));
    if (!nothing) json_object_set_new(o, "requests", request_points(f, &w, step_of(&w, 1000)));
    if (!nothing) json_object_set_new(o, "memory", memory(f, &w, step_of(&w, 1000)));
    if (!nothing)
        json_object_set_new(
            o, "verdicts",
            rows(f,
                 "SELECT " TS("ts_ms") " AS ts, service, worker, generation, scope, verdict, shape,"
                                       " confidence, bytes_per_request, low, high, since_requests, "
                                       "forecast_s, tag, share,"
                                       " holder FROM verdict WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL "
                                       "OR service = ?3)"
                                       " ORDER BY ts_ms",
                 &w));
    /* What would have been done is asked of the whole record unless a time is given. */
    struct window whole = wish->from_ms == 0 && wish->to_ms == 0
                              ? (struct window){ .to = INT64_MAX, .service = wish->service }
                              : w;
    json_object_set_new(
        o, "would",
        rows(f,
             "SELECT service, action, reason, mode, count(*) AS times, " TS("min(ts_ms)") " AS first, " TS(
                 "max(ts_ms)") " AS last FROM would WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR"
                               " service = ?3) GROUP BY service, action, reason, mode ORDER BY 5 DESC",
             &whole));
    json_object_set_new(
        o, "starts",
        rows(f,
             "SELECT " TS(
                 "ts_ms") " AS ts, service, worker, generation, way, source, imported_ms,"
                          " loaded_ms, socket_ms, ready_ms, warm, first_ms, settled_ms, warmup_requests,"
                          " first_request_ms FROM timeline WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR "
                          "service ="
                          " ?3) ORDER BY ts_ms",
             &w));
    return checked(f, o, err);
}

json_t *pl_flight_history(struct pl_flight *f, const struct pl_flight_wish *wish, struct pl_err *err) {
    struct window w = asked(wish);
    if (w.from == 0) w.from = w.to > 3600000 ? w.to - 3600000 : 0;
    if (w.from >= w.to) {
        PL_FAIL(err, PL_E_USAGE, "from lies behind to");
        return NULL;
    }
    uint64_t step = step_of(&w, wish->step_ms);
    json_t *o = document(f, "history", &w);
    json_object_set_new(o, "step_ms", json_integer((json_int_t)step));
    json_object_set_new(o, "memory", memory(f, &w, step));
    json_object_set_new(o, "requests", request_points(f, &w, step));
    json_object_set_new(o, "deaths", rows(f, exit_columns, &w));
    return checked(f, o, err);
}

json_t *pl_flight_timeline(struct pl_flight *f, const struct pl_flight_wish *wish, struct pl_err *err) {
    struct window w = asked(wish);
    json_t *o = document(f, "timeline", &w);
    json_object_set_new(
        o, "starts",
        rows(f,
             "SELECT " TS(
                 "ts_ms") " AS ts, service, worker, generation, pid, way, source, imported_ms,"
                          " loaded_ms, socket_ms, ready_ms, warm, first_ms, settled_ms, warmup_requests,"
                          " first_request_ms FROM timeline WHERE ts_ms BETWEEN ?1 AND ?2 AND (?3 IS NULL OR "
                          "service ="
                          " ?3) ORDER BY ts_ms DESC",
             &w));
    return checked(f, o, err);
}

/* --- times */

bool pl_flight_time(const char *text, uint64_t now_ms, uint64_t *out, struct pl_err *err) {
    static const char *const forms[] = { "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                                         "%Y-%m-%d %H:%M", "%Y-%m-%d" };
    int64_t ago;
    struct pl_err why = { 0 };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm t = { 0 };
        char *end = strptime(text, forms[i], &t);
        if (end == NULL) continue;
        uint64_t ms = 0;
        if (*end == '.') {
            char *from = end + 1;
            unsigned long fraction = strtoul(from, &end, 10);
            size_t digits = (size_t)(end - from);
            if (digits < 1 || digits > 9) continue;
            for (; digits < 3; digits++) fraction *= 10;
            for (; digits > 3; digits--) fraction /= 10;
            ms = fraction;
        }
        if (*end != '\0' && strcmp(end, "Z") != 0) continue;
        *out = (uint64_t)timegm(&t) * 1000 + ms;
        return true;
    }
    if (pl_config_parse_duration(text, &ago, &why) && ago >= 0 && (uint64_t)ago < now_ms) {
        *out = now_ms - (uint64_t)ago;
        return true;
    }
    PL_FAIL(err, PL_E_USAGE, "'%.60s' is no time", text);
    return pl_err_hint(err, "2026-11-30T14:02:11Z, or how long ago: 10m");
}
