/* tests/support/snapshots.h - the recorded files in tests/data/snapshots, and small pickles made by hand. */
#ifndef PL_TESTS_SNAPSHOTS_H
#define PL_TESTS_SNAPSHOTS_H
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "snapshot/reader.h"
#include "unit.h"

struct bytes {
    unsigned char *at;
    size_t len;
};

static inline struct bytes file_bytes(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct bytes b = { malloc(1 << 20), 0 };
    b.len = fread(b.at, 1, 1 << 20, f);
    assert_true(b.len < 1 << 20);
    fclose(f);
    return b;
}

/* Fed in pieces of `piece` bytes. */
static inline struct pl_snap *snap_of(const void *bytes, size_t len, size_t piece, struct pl_err *err) {
    const struct pl_snap_limits limits = { .memory_bytes = 64 << 20, .seed = 7 };
    struct pl_snap_reader *r = pl_snap_reader_create(&limits);
    assert_non_null(r);
    const unsigned char *p = bytes;
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        if (pl_snap_reader_feed(r, p + at, n, err)) continue;
        pl_snap_reader_destroy(r);
        return NULL;
    }
    return pl_snap_reader_finish(r, err);
}

static inline struct pl_snap *snap_file(const char *path) {
    struct pl_err err = { 0 };
    struct bytes b = file_bytes(path);
    struct pl_snap *s = snap_of(b.at, b.len, 4096, &err);
    if (s == NULL) fail_msg("%s: %s", path, err.msg);
    free(b.at);
    return s;
}

static inline struct json *snap_facts(const char *pickle) {
    char path[600];
    snprintf(path, sizeof path, "%.*s.json", (int)(strlen(pickle) - strlen(".pickle")), pickle);
    struct bytes b = file_bytes(path);
    b.at[b.len] = '\0';
    const char *at = (const char *)b.at;
    struct json *j = json_value(&at);
    free(b.at);
    return j;
}

/* Calls for each file that matches; at least one must. */
static inline void each_snapshot(const char *pattern, void (*each)(const char *path, const char *name)) {
    char full[600];
    glob_t found;
    snprintf(full, sizeof full, "%s/snapshots/%s.pickle", PL_TEST_DATA, pattern);
    assert_int_equal(glob(full, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[100];
        const char *base = strrchr(found.gl_pathv[i], '/') + 1;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(base) - strlen(".pickle")), base);
        each(found.gl_pathv[i], name);
    }
    globfree(&found);
}
#endif
