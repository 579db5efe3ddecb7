#include "record/schema.h"

#include <stddef.h>

/* One step a version: steps[0] makes version 1. A released step is never changed. */
/* clang-format off */
static const char *const steps[PL_RECORD_VERSION] = {
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;"
    "CREATE TABLE boot(boot INTEGER PRIMARY KEY, ts_ms INTEGER NOT NULL, life TEXT NOT NULL, reason TEXT, version TEXT,"
    " instance TEXT, config TEXT, keeper_pid INTEGER, keeper_start INTEGER, main_pid INTEGER, machine TEXT,"
    " seen_ms INTEGER, ended_ms INTEGER, end TEXT, status INTEGER);"
    "CREATE TABLE event(ts_ms INTEGER NOT NULL, boot INTEGER, level TEXT, event TEXT NOT NULL, service TEXT,"
    " worker INTEGER, generation INTEGER, line TEXT NOT NULL);"
    "CREATE INDEX event_ts ON event(ts_ms);"
    "CREATE TABLE request(n INTEGER PRIMARY KEY, id TEXT AS (printf('%016x', n)) VIRTUAL, ts_ms INTEGER NOT NULL,"
    " boot INTEGER, service TEXT, method TEXT, route TEXT, worker INTEGER, generation INTEGER, status INTEGER,"
    " outcome TEXT, reason TEXT, duration_ms REAL, queue_ms REAL, first_byte_ms REAL, request_bytes INTEGER,"
    " reply_bytes INTEGER, input_tokens INTEGER, output_tokens INTEGER, replay TEXT,"
    " stands_for INTEGER NOT NULL DEFAULT 1);"
    "CREATE INDEX request_ts ON request(ts_ms);"
    "CREATE TABLE sample(ts_ms INTEGER NOT NULL, boot INTEGER, scope TEXT NOT NULL, service TEXT, worker INTEGER,"
    " generation INTEGER, allocated_bytes INTEGER, reserved_bytes INTEGER, peak_bytes INTEGER, limit_bytes INTEGER,"
    " used_bytes INTEGER, total_bytes INTEGER, foreign_bytes INTEGER, rss_bytes INTEGER, anon_bytes INTEGER,"
    " swap_bytes INTEGER, in_flight INTEGER, requests INTEGER, utilization_ratio REAL, oom_kills INTEGER);"
    "CREATE INDEX sample_ts ON sample(ts_ms);"
    "CREATE TABLE verdict(ts_ms INTEGER NOT NULL, boot INTEGER, service TEXT, worker INTEGER, generation INTEGER,"
    " scope TEXT, verdict TEXT NOT NULL, shape TEXT, confidence TEXT, bytes_per_request REAL, low REAL, high REAL,"
    " since_requests INTEGER, forecast_s REAL, tag TEXT, share REAL, holder TEXT);"
    "CREATE TABLE exit(ts_ms INTEGER NOT NULL, boot INTEGER, life TEXT, kind TEXT NOT NULL, death TEXT, service TEXT,"
    " worker INTEGER, generation INTEGER, cause TEXT, scope TEXT, status INTEGER, sentence TEXT, last_line TEXT,"
    " in_handlers INTEGER, allocated_bytes INTEGER, reserved_bytes INTEGER, device_free_bytes INTEGER,"
    " oom_verdict TEXT);"
    "CREATE TABLE timeline(ts_ms INTEGER NOT NULL, boot INTEGER, life TEXT, service TEXT, worker INTEGER,"
    " generation INTEGER, pid INTEGER, way TEXT, source TEXT, imported_ms INTEGER, loaded_ms INTEGER,"
    " socket_ms INTEGER, ready_ms INTEGER, warm INTEGER, first_ms REAL, settled_ms REAL, warmup_requests INTEGER,"
    " first_request_ms REAL);"
    "CREATE INDEX timeline_generation ON timeline(life, generation);"
    "CREATE TABLE plan_check(ts_ms INTEGER NOT NULL, boot INTEGER, service TEXT, event TEXT, planned_bytes INTEGER,"
    " actual_bytes INTEGER, capacity INTEGER, drift_ratio REAL, component TEXT, likely TEXT);"
    "CREATE TABLE would(ts_ms INTEGER NOT NULL, boot INTEGER, service TEXT, worker INTEGER, generation INTEGER,"
    " action TEXT NOT NULL, reason TEXT, mode TEXT, line TEXT);",
};

#define BULKY true
const struct pl_record_table pl_record_tables[] = {
    { "request", "n, ts_ms, boot, service, method, route, worker, generation, status, outcome, reason, duration_ms,"
      " queue_ms, first_byte_ms, request_bytes, reply_bytes, input_tokens, output_tokens, replay, stands_for", BULKY },
    { "sample", "*", BULKY },
    { "event", "*", BULKY },
    { "verdict", "*", BULKY },
    { "would", "*", BULKY },
    { "plan_check", "*", BULKY },
    { "timeline", "*", BULKY },
    { "exit", "*", !BULKY },
    { "boot", "*", !BULKY },
};
/* clang-format on */
const unsigned pl_record_table_count = sizeof pl_record_tables / sizeof *pl_record_tables;

int pl_schema_version(sqlite3 *db) {
    sqlite3_stmt *s;
    int version = -1;
    if (sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL) != SQLITE_OK) return -1;
    if (sqlite3_step(s) == SQLITE_ROW) version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

static int step_to(sqlite3 *db, int version) {
    char text[64];
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    if (pl_schema_version(db) >= version) return sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_snprintf(sizeof text, text, "PRAGMA user_version = %d", version);
    rc = sqlite3_exec(db, steps[version - 1], NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, text, NULL, NULL, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int pl_schema_migrate(sqlite3 *db) {
    for (int version = pl_schema_version(db) + 1; version <= PL_RECORD_VERSION; version++) {
        int rc = step_to(db, version);
        if (rc != SQLITE_OK) return rc;
    }
    return SQLITE_OK;
}
