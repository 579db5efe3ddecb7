/* record/schema.h - the tables, their versions, and how a file comes to the newest (docs/record.md tells
 * people). `user_version` counts up; a file of a newer binary is left alone and another one begun beside it.
 */
#ifndef PL_RECORD_SCHEMA_H
#define PL_RECORD_SCHEMA_H
#include <sqlite3.h>
#include <stdbool.h>

enum { PL_RECORD_VERSION = 1 };
/* Every table that ages, and the bytes a look at its columns may list (INSERT needs names, since one is
 * computed). */
struct pl_record_table {
    const char *name, *columns;
    bool bulky; /* its oldest rows go first when the file is too large */
};
extern const struct pl_record_table pl_record_tables[];
extern const unsigned pl_record_table_count;

/* Brings an empty or older database to this version. A SQLite status. */
int pl_schema_migrate(sqlite3 *db);
int pl_schema_version(sqlite3 *db); /* -1: not a database, or unreadable */
#endif
