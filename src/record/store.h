/* record/store.h - the database: opened, migrated, written to, thinned out. Only the record's thread comes
 * here. */
#ifndef PL_RECORD_STORE_H
#define PL_RECORD_STORE_H
#include "record/record.h"
#include "record/rows.h"
#include "record/schema.h"

enum { PL_DERIVED_MOST = 32 };

struct pl_store {
    sqlite3 *db; /* NULL: closed */
    bool memory;
    char path[512]; /* of the file; an older binary's differs from the one asked for */
    int64_t boot;
    char life[20];
    sqlite3_stmt *insert[PL_ROW_KINDS], *derived[PL_DERIVED_MOST], *seen;
};

/* path NULL: in memory. A damaged file is moved aside, a newer one left alone; `note` says so. */
bool pl_store_open(struct pl_store *s, const char *path, char *note, size_t room, struct pl_err *err);
void pl_store_close(struct pl_store *s);
/* All rows or none. False: `err` says why, and nothing was written. */
bool pl_store_write(struct pl_store *s, const char *rows, size_t len, struct pl_err *err);
/* This start of main: its row. Closes what others left open: see life.c. `at_ms` is also its number. */
bool pl_store_begin(struct pl_store *s, const struct pl_record_boot *b, uint64_t at_ms,
                    const struct pl_record_host *host, struct pl_record_look *found, struct pl_err *err);
/* The goodbye. */
bool pl_store_end(struct pl_store *s, uint64_t at_ms, int status, struct pl_err *err);
/* Rows that are too old, then the oldest ones while it is too large; a little at a time. */
bool pl_store_thin(struct pl_store *s, uint64_t now_ms, uint64_t max_bytes, uint64_t max_age_ms,
                   struct pl_err *err);
uint64_t pl_store_bytes(struct pl_store *s);
/* Moves all that is in `memory` into the file at `path`, which was opened before and is closed now. */
bool pl_store_move(struct pl_store *memory, const char *path, struct pl_err *err);
int pl_store_copy(struct pl_store *s); /* a memfd with the database, or -1 */
/* For one-off statements with text parameters by ?1... ; NULL is NULL. */
int pl_store_run(struct pl_store *s, const char *sql, const struct pl_value *values, size_t count);
bool pl_store_fail(struct pl_store *s, const char *what, struct pl_err *err); /* false, with SQLite's words */
#endif
