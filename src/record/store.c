#include "record/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { BUSY_MS = 2000, THIN_ROWS = 2000, JOURNAL_BYTES = 8 << 20 };

/* clang-format off */
static const char *const inserts[PL_ROW_KINDS] = {
    [PL_ROW_EVENT] = "INSERT INTO event(boot, ts_ms, level, event, line, service, worker, generation)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?5->>'service', ?5->>'worker', ?5->>'generation')",
    [PL_ROW_REQUEST] = "INSERT OR REPLACE INTO request(boot, n, ts_ms, service, method, route, worker, generation, status,"
        " outcome, reason, duration_ms, queue_ms, first_byte_ms, request_bytes, reply_bytes, input_tokens, output_tokens,"
        " replay, stands_for) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,"
        " ?20)",
    [PL_ROW_SAMPLE] = "INSERT INTO sample(boot, ts_ms, scope, service, worker, generation, allocated_bytes, reserved_bytes,"
        " peak_bytes, limit_bytes, used_bytes, total_bytes, foreign_bytes, rss_bytes, anon_bytes, swap_bytes, in_flight,"
        " requests, utilization_ratio, oom_kills) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
        " ?16, ?17, ?18, ?19, ?20)",
    [PL_ROW_VERDICT] = "INSERT INTO verdict(boot, ts_ms, service, worker, generation, scope, verdict, shape, confidence,"
        " bytes_per_request, low, high, since_requests, forecast_s, tag, share, holder) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7,"
        " ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
};
static const struct { const char *glob, *sql; } derives[] = {
#define DERIVE(glob, sql) { glob, sql },
#include "record/derive.def"
#undef DERIVE
};
/* clang-format on */
enum { DERIVES = sizeof derives / sizeof *derives };
_Static_assert((int)DERIVES <= (int)PL_DERIVED_MOST, "derive.def has more rows than a store has places");

bool pl_store_fail(struct pl_store *s, const char *what, struct pl_err *err) {
    const char *place = s->memory ? "the record in memory" : s->path;
    return PL_FAIL(err, PL_E_SYS, "%s: %s: %s", place, what,
                   s->db != NULL ? sqlite3_errmsg(s->db) : "cannot be opened");
}

static int exec(struct pl_store *s, const char *sql) { return sqlite3_exec(s->db, sql, NULL, NULL, NULL); }

/* --- opening */

/* WAL, so that readers never hold us up and a commit is one write; NORMAL syncs at checkpoints only: what a
 * power cut may take is the last of it, and SIGKILL takes nothing. */
static int settle(struct pl_store *s) {
    char text[64];
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_extended_result_codes(s->db, 1);
    int rc = exec(s, "PRAGMA auto_vacuum = INCREMENTAL");
    if (rc == SQLITE_OK && !s->memory) rc = exec(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
    snprintf(text, sizeof text, "PRAGMA journal_size_limit = %d", JOURNAL_BYTES);
    if (rc == SQLITE_OK) rc = exec(s, text);
    return rc;
}

static int prepare(struct pl_store *s) {
    int rc = SQLITE_OK;
    for (unsigned i = 0; rc == SQLITE_OK && i < PL_ROW_KINDS; i++)
        rc = sqlite3_prepare_v3(s->db, inserts[i], -1, SQLITE_PREPARE_PERSISTENT, &s->insert[i], NULL);
    for (unsigned i = 0; rc == SQLITE_OK && i < DERIVES; i++)
        rc = sqlite3_prepare_v3(s->db, derives[i].sql, -1, SQLITE_PREPARE_PERSISTENT, &s->derived[i], NULL);
    return rc;
}

/* Nobody else may read it: it tells who asked for what. SQLite gives its other files the same mode. */
static void make_private(const char *path) {
    PL_AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    (void)fd; /* what is wrong with it SQLite will say */
}

static int open_at(struct pl_store *s, const char *path) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (path != NULL) make_private(path);
    snprintf(s->path, sizeof s->path, "%s", path != NULL ? path : "");
    s->memory = path == NULL;
    int rc = sqlite3_open_v2(path != NULL ? path : ":memory:", &s->db, flags, NULL);
    if (rc == SQLITE_OK) rc = settle(s);
    if (rc != SQLITE_OK) return rc;
    int version = pl_schema_version(s->db);
    if (version > PL_RECORD_VERSION) return SQLITE_SCHEMA;
    rc = pl_schema_migrate(s->db);
    return rc == SQLITE_OK ? prepare(s) : rc;
}

/* A damaged file is kept for whoever wants to repair it. */
static void move_aside(const char *path) {
    char to[600], from[600];
    static const char *const ends[] = { "", "-wal", "-shm" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(from, sizeof from, "%s%s", path, ends[i]);
        snprintf(to, sizeof to, "%s.damaged%s", path, ends[i]);
        if (rename(from, to) == -1 && i == 0) unlink(from);
    }
}

bool pl_store_open(struct pl_store *s, const char *path, char *note, size_t room, struct pl_err *err) {
    char other[512];
    memset(s, 0, sizeof *s);
    note[0] = '\0';
    int rc = open_at(s, path);
    if (rc == SQLITE_SCHEMA && path != NULL) {
        pl_store_close(s);
        snprintf(other, sizeof other, "%.480s.v%d", path, PL_RECORD_VERSION);
        snprintf(note, room, "%.120s was written by a newer plimsoll: %.120s is begun", path, other);
        rc = open_at(s, other);
    } else if (path != NULL && ((rc & 0xff) == SQLITE_NOTADB || (rc & 0xff) == SQLITE_CORRUPT)) {
        pl_store_close(s);
        move_aside(path);
        snprintf(note, room, "%.200s was damaged: it is %.30s now, a new one is begun", path, "NAME.damaged");
        rc = open_at(s, path);
    }
    if (rc == SQLITE_OK) return true;
    pl_store_fail(s, "open", err);
    pl_store_close(s);
    return false;
}

void pl_store_close(struct pl_store *s) {
    for (unsigned i = 0; i < PL_ROW_KINDS; i++) sqlite3_finalize(s->insert[i]);
    for (unsigned i = 0; i < DERIVES; i++) sqlite3_finalize(s->derived[i]);
    sqlite3_finalize(s->seen);
    sqlite3_close(s->db);
    s->db = NULL;
    s->seen = NULL;
    memset(s->insert, 0, sizeof s->insert);
    memset(s->derived, 0, sizeof s->derived);
}

/* --- writing */

static void bind(sqlite3_stmt *st, int at, const struct pl_value *v) {
    if (v->kind == PL_V_INT)
        sqlite3_bind_int64(st, at, v->i);
    else if (v->kind == PL_V_REAL)
        sqlite3_bind_double(st, at, v->d);
    else if (v->kind == PL_V_TEXT)
        sqlite3_bind_text(st, at, v->text, (int)v->len, SQLITE_STATIC);
    else
        sqlite3_bind_null(st, at);
}

static int run(sqlite3_stmt *st) {
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) return SQLITE_OK;
    /* A row that does not fit its table is our mistake, and the disk's no more than the next row's. */
    return (rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_ERROR || (rc & 0xff) == SQLITE_MISMATCH
               ? SQLITE_OK
               : rc;
}

int pl_store_run(struct pl_store *s, const char *sql, const struct pl_value *values, size_t count) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc != SQLITE_OK) return rc;
    for (size_t i = 0; i < count; i++) bind(st, (int)i + 1, &values[i]);
    rc = sqlite3_step(st);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int derive(struct pl_store *s, const struct pl_value *v) {
    int rc = SQLITE_OK;
    char name[64];
    const struct pl_value life = pl_v_text(s->life);
    snprintf(name, sizeof name, "%.*s", (int)v[2].len, v[2].text);
    for (unsigned i = 0; rc == SQLITE_OK && i < DERIVES; i++) {
        sqlite3_stmt *st = s->derived[i];
        if (sqlite3_strglob(derives[i].glob, name) != 0) continue;
        sqlite3_bind_int64(st, 1, s->boot);
        for (int k = 0; k < 4; k++) bind(st, k + 2, &v[k]);
        bind(st, 6, &life);
        rc = run(st);
    }
    return rc;
}

static int write_row(struct pl_store *s, struct pl_row *r) {
    sqlite3_stmt *st = s->insert[r->kind];
    struct pl_value values[32];
    sqlite3_bind_int64(st, 1, s->boot);
    for (size_t i = 0; i < r->count; i++) {
        values[i] = pl_row_value(r);
        bind(st, (int)i + 2, &values[i]);
    }
    int rc = run(st);
    return rc == SQLITE_OK && r->kind == PL_ROW_EVENT ? derive(s, values) : rc;
}

bool pl_store_write(struct pl_store *s, const char *rows, size_t len, struct pl_err *err) {
    struct pl_row r;
    int rc = exec(s, "BEGIN IMMEDIATE");
    for (size_t at = 0; rc == SQLITE_OK && pl_row_first(rows + at, len - at, &r); at += r.bytes)
        rc = write_row(s, &r);
    if (rc == SQLITE_OK) rc = exec(s, "COMMIT");
    if (rc == SQLITE_OK) return true;
    pl_store_fail(s, "write", err);
    if (sqlite3_get_autocommit(s->db) == 0) exec(s, "ROLLBACK");
    return false;
}

/* --- size and age */

static int64_t ask(struct pl_store *s, const char *sql) {
    sqlite3_stmt *st;
    int64_t value = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) return 0;
    if (sqlite3_step(st) == SQLITE_ROW) value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return value;
}

uint64_t pl_store_bytes(struct pl_store *s) {
    return (uint64_t)ask(s, "PRAGMA page_count") * (uint64_t)ask(s, "PRAGMA page_size");
}

static uint64_t used_bytes(struct pl_store *s) {
    int64_t pages = ask(s, "PRAGMA page_count") - ask(s, "PRAGMA freelist_count");
    return (uint64_t)pages * (uint64_t)ask(s, "PRAGMA page_size");
}

static int thin_old(struct pl_store *s, uint64_t before_ms) {
    char sql[256];
    int rc = SQLITE_OK;
    const struct pl_value v = pl_v_count(before_ms);
    for (unsigned i = 0; rc == SQLITE_OK && i < pl_record_table_count; i++) {
        const char *name = pl_record_tables[i].name;
        snprintf(sql, sizeof sql,
                 "DELETE FROM %s WHERE rowid IN (SELECT rowid FROM %s WHERE ts_ms < ?1 LIMIT %d)", name, name,
                 THIN_ROWS);
        rc = pl_store_run(s, sql, &v, 1);
    }
    return rc;
}

/* The oldest tenth of the time that is covered goes, of every bulky table alike: what is left is one story.
 */
static int thin_large(struct pl_store *s) {
    char sql[256];
    int rc = SQLITE_OK;
    int64_t first = INT64_MAX, last = 0;
    for (unsigned i = 0; i < pl_record_table_count; i++) {
        if (!pl_record_tables[i].bulky) continue;
        snprintf(sql, sizeof sql, "SELECT min(ts_ms) FROM %s", pl_record_tables[i].name);
        int64_t from = ask(s, sql);
        snprintf(sql, sizeof sql, "SELECT max(ts_ms) FROM %s", pl_record_tables[i].name);
        int64_t to = ask(s, sql);
        if (from != 0 && from < first) first = from;
        if (to > last) last = to;
    }
    if (last == 0) return SQLITE_OK;
    const struct pl_value v = pl_v_int(first + (last - first) / 10 + 1);
    for (unsigned i = 0; rc == SQLITE_OK && i < pl_record_table_count; i++) {
        if (!pl_record_tables[i].bulky) continue;
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE ts_ms < ?1", pl_record_tables[i].name);
        rc = pl_store_run(s, sql, &v, 1);
    }
    return rc;
}

bool pl_store_thin(struct pl_store *s, uint64_t now_ms, uint64_t max_bytes, uint64_t max_age_ms,
                   struct pl_err *err) {
    int rc = max_age_ms != 0 && now_ms > max_age_ms ? thin_old(s, now_ms - max_age_ms) : SQLITE_OK;
    for (int turn = 0; rc == SQLITE_OK && turn < 10 && used_bytes(s) > max_bytes; turn++) rc = thin_large(s);
    if (rc == SQLITE_OK && pl_store_bytes(s) > max_bytes) {
        rc = exec(s, "PRAGMA incremental_vacuum");
        if (rc == SQLITE_OK && !s->memory)
            sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
    return rc == SQLITE_OK || pl_store_fail(s, "thin out", err);
}

/* --- from memory to the disk, and to whoever asks */

bool pl_store_move(struct pl_store *memory, const char *path, struct pl_err *err) {
    char sql[1024];
    const struct pl_value to = pl_v_text(path);
    int rc = pl_store_run(memory, "ATTACH ?1 AS disk", &to, 1);
    if (rc != SQLITE_OK) return pl_store_fail(memory, "attach the file", err);
    rc = exec(memory, "BEGIN");
    for (unsigned i = 0; rc == SQLITE_OK && i < pl_record_table_count; i++) {
        const struct pl_record_table *t = &pl_record_tables[i];
        bool all = t->columns[0] == '*';
        snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO disk.%s%s%s%s SELECT %s FROM main.%s", t->name,
                 all ? "" : "(", all ? "" : t->columns, all ? "" : ")", t->columns, t->name);
        rc = exec(memory, sql);
    }
    if (rc == SQLITE_OK) rc = exec(memory, "COMMIT");
    bool ok = rc == SQLITE_OK || pl_store_fail(memory, "move to the file", err);
    if (sqlite3_get_autocommit(memory->db) == 0) exec(memory, "ROLLBACK");
    exec(memory, "DETACH disk");
    return ok;
}

int pl_store_copy(struct pl_store *s) {
    sqlite3_int64 bytes = 0;
    unsigned char *image = s->db != NULL ? sqlite3_serialize(s->db, "main", &bytes, 0) : NULL;
    int fd = image != NULL ? memfd_create("plimsoll-record", MFD_CLOEXEC) : -1;
    size_t done = 0;
    while (fd != -1 && done < (size_t)bytes) {
        ssize_t n = write(fd, image + done, (size_t)bytes - done);
        if (n <= 0 && !(n == -1 && errno == EINTR)) {
            close(fd);
            fd = -1;
        } else if (n > 0) {
            done += (size_t)n;
        }
    }
    sqlite3_free(image);
    return fd;
}
