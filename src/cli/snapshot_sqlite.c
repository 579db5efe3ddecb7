/* snapshot_sqlite.c - the snapshot as tables, for questions that the report does not answer. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/snapshot_out.h"

static const char schema[] =
    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;"
    "CREATE TABLE info(key TEXT PRIMARY KEY, value);"
    "CREATE TABLE frames(id INTEGER PRIMARY KEY, file TEXT, line INTEGER, name TEXT);"
    "CREATE TABLE stacks(stack INTEGER, depth INTEGER, frame INTEGER REFERENCES frames(id), PRIMARY "
    "KEY(stack, depth)) WITHOUT ROWID;"
    "CREATE TABLE segments(id INTEGER PRIMARY KEY, device INTEGER, address INTEGER, total_bytes INTEGER, "
    "stream INTEGER, pool TEXT,"
    " kind TEXT, expandable INTEGER, stack INTEGER);"
    "CREATE TABLE blocks(segment INTEGER REFERENCES segments(id), address INTEGER, bytes INTEGER, "
    "requested_bytes INTEGER,"
    " state TEXT, stack INTEGER);"
    "CREATE TABLE events(device INTEGER, event INTEGER, action TEXT, address INTEGER, bytes INTEGER, stream "
    "INTEGER, pool TEXT,"
    " time_us INTEGER, stack INTEGER, tag TEXT, PRIMARY KEY(device, event)) WITHOUT ROWID;"
    /* the first frame of each stack outside torch is what a question mostly groups by */
    "CREATE TABLE tops(stack INTEGER PRIMARY KEY, frame INTEGER REFERENCES frames(id));"
    "CREATE VIEW live AS SELECT s.device, b.address, b.bytes, b.requested_bytes, b.state, f.file, f.line, "
    "f.name FROM blocks b"
    " JOIN segments s ON s.id = b.segment LEFT JOIN tops t ON t.stack = b.stack LEFT JOIN frames f ON f.id = "
    "t.frame"
    " WHERE b.state <> 'inactive';";

struct base {
    sqlite3 *db;
    sqlite3_stmt *insert;
    const struct pl_snap *s;
    bool ok;
};

static void prepare(struct base *b, const char *sql) {
    sqlite3_finalize(b->insert);
    b->insert = NULL;
    if (b->ok) b->ok = sqlite3_prepare_v2(b->db, sql, -1, &b->insert, NULL) == SQLITE_OK;
}

/* Addresses above 2^63 become negative: SQLite's integers are signed. */
static void bind(struct base *b, int at, uint64_t n) {
    if (b->ok) b->ok = sqlite3_bind_int64(b->insert, at, (sqlite3_int64)n) == SQLITE_OK;
}

static void bind_id(struct base *b, int at, uint32_t id) {
    if (id != PL_SNAP_NONE)
        bind(b, at, id);
    else if (b->ok)
        b->ok = sqlite3_bind_null(b->insert, at) == SQLITE_OK;
}

static void bind_words(struct base *b, int at, const char *text) {
    if (b->ok) b->ok = sqlite3_bind_text(b->insert, at, text, -1, SQLITE_TRANSIENT) == SQLITE_OK;
}

static void bind_string(struct base *b, int at, uint32_t string) {
    size_t len;
    const char *text = pl_snap_text(b->s, string, &len);
    if (string == PL_SNAP_NONE)
        bind_id(b, at, string);
    else if (b->ok)
        b->ok = sqlite3_bind_text(b->insert, at, text, (int)len, SQLITE_STATIC) == SQLITE_OK;
}

static void bind_pool(struct base *b, int at, uint16_t pool) {
    char text[32];
    if (pool >= b->s->pool_count) {
        bind_id(b, at, PL_SNAP_NONE);
        return;
    }
    snprintf(text, sizeof text, "%u,%u", b->s->pools[pool].a, b->s->pools[pool].b);
    bind_words(b, at, text);
}

static void step(struct base *b) {
    if (!b->ok) return;
    b->ok = sqlite3_step(b->insert) == SQLITE_DONE;
    if (b->ok) b->ok = sqlite3_reset(b->insert) == SQLITE_OK;
}

static void info(struct base *b, const struct pl_snapshot_doc *d) {
    const struct pl_snap *s = d->s;
    const struct {
        const char *key, *text;
        uint64_t number;
    } rows[] = { { "file", d->file, 0 },
                 { "torch", pl_snap_version_text(s), 0 },
                 { "conf", pl_snap_conf(s), 0 },
                 { "file_bytes", NULL, s->file_bytes },
                 { "protocol", NULL, s->protocol } };
    prepare(b, "INSERT INTO info VALUES(?,?)");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bind_words(b, 1, rows[i].key);
        if (rows[i].text != NULL)
            bind_words(b, 2, rows[i].text);
        else
            bind(b, 2, rows[i].number);
        step(b);
    }
}

static void stacks(struct base *b) {
    const struct pl_snap *s = b->s;
    prepare(b, "INSERT INTO frames VALUES(?,?,?,?)");
    for (size_t i = 0; b->ok && i < s->frame_count; i++) {
        bind(b, 1, i);
        bind_string(b, 2, s->frames[i].file);
        bind(b, 3, s->frames[i].line);
        bind_string(b, 4, s->frames[i].name);
        step(b);
    }
    prepare(b, "INSERT INTO stacks VALUES(?,?,?)");
    for (size_t i = 0; b->ok && i < s->stack_count; i++)
        for (uint32_t k = 0; b->ok && k < s->stacks[i].count; k++) {
            bind(b, 1, i);
            bind(b, 2, k);
            bind(b, 3, s->frame_ids[s->stacks[i].first + k]);
            step(b);
        }
    prepare(b, "INSERT INTO tops VALUES(?,?)");
    for (uint32_t i = 0; b->ok && i < s->stack_count; i++) {
        bind(b, 1, i);
        bind_id(b, 2, pl_snap_top_frame(s, i));
        step(b);
    }
}

static void segments(struct base *b) {
    const struct pl_snap *s = b->s;
    prepare(b, "INSERT INTO segments VALUES(?,?,?,?,?,?,?,?,?)");
    for (size_t i = 0; b->ok && i < s->segment_count; i++) {
        const struct pl_snap_segment *g = &s->segments[i];
        bind(b, 1, i);
        bind(b, 2, (uint64_t)g->device);
        bind(b, 3, g->addr);
        bind(b, 4, g->total);
        bind(b, 5, s->streams[g->stream]);
        bind_pool(b, 6, g->pool);
        bind_words(b, 7, g->small ? "small" : "large");
        bind(b, 8, g->expandable);
        bind_id(b, 9, g->stack);
        step(b);
    }
    static const char *const states[] = { "active_allocated", "active_pending_free", "inactive" };
    prepare(b, "INSERT INTO blocks VALUES(?,?,?,?,?,?)");
    for (size_t i = 0; b->ok && i < s->segment_count; i++)
        for (uint32_t k = 0; b->ok && k < s->segments[i].block_count; k++) {
            const struct pl_snap_block *x = &s->blocks[s->segments[i].first_block + k];
            bind(b, 1, i);
            bind(b, 2, x->addr);
            bind(b, 3, x->size);
            bind(b, 4, x->requested);
            bind_words(b, 5, states[x->state]);
            bind_id(b, 6, x->stack);
            step(b);
        }
}

static void events(struct base *b) {
    static const char *const names[] = {
#define X(symbol, word) word,
        PL_SNAP_ACTIONS(X)
#undef X
    };
    const struct pl_snap *s = b->s;
    prepare(b, "INSERT INTO events VALUES(?,?,?,?,?,?,?,?,?,?)");
    for (uint32_t t = 0; t < s->trace_count; t++)
        for (uint32_t i = 0; b->ok && i < s->traces[t].count; i++) {
            const struct pl_snap_event *e = &s->events[s->traces[t].first + i];
            bind(b, 1, t);
            bind(b, 2, i);
            bind_words(b, 3, names[e->action]);
            bind(b, 4, e->addr);
            bind(b, 5, e->size);
            bind(b, 6, s->streams[e->stream]);
            bind_pool(b, 7, e->pool);
            bind(b, 8, e->time_us);
            bind_id(b, 9, e->stack);
            bind_string(b, 10, e->tag);
            step(b);
        }
}

static bool run(struct base *b, const char *sql) {
    if (b->ok) b->ok = sqlite3_exec(b->db, sql, NULL, NULL, NULL) == SQLITE_OK;
    return b->ok;
}

bool pl_snapshot_write_sqlite(const struct pl_snapshot_doc *d, const char *path, struct pl_err *err) {
    struct base b = { .s = d->s };
    char why[200] = "";
    if (access(path, F_OK) == 0) {
        PL_FAIL(err, PL_E_USAGE, "--sqlite %s: there is such a file already", path);
        return pl_err_hint(err, "remove it, or name another");
    }
    b.ok = sqlite3_open_v2(path, &b.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) == SQLITE_OK;
    if (run(&b, schema)) {
        info(&b, d);
        stacks(&b);
        segments(&b);
        events(&b);
        run(&b, "COMMIT");
    }
    if (!b.ok) snprintf(why, sizeof why, "%s", sqlite3_errmsg(b.db));
    sqlite3_finalize(b.insert);
    if (sqlite3_close(b.db) != SQLITE_OK) b.ok = false;
    return b.ok || PL_FAIL(err, PL_E_SYS, "write %s: %s", path, why);
}
