#include "crew/tail.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

struct pl_tail {
    uint32_t refs, room;
    uint64_t count;
    char **lines; /* line n lies at n % room */
};

struct pl_tail *pl_tail_create(uint32_t lines) {
    struct pl_tail *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->lines = calloc(lines, sizeof *t->lines);
    if (t->lines == NULL) {
        free(t);
        return NULL;
    }
    t->refs = 1;
    t->room = lines;
    return t;
}

struct pl_tail *pl_tail_ref(struct pl_tail *t) {
    if (t != NULL) t->refs++;
    return t;
}

void pl_tail_drop(struct pl_tail *t) {
    if (t == NULL || --t->refs > 0) return;
    for (uint32_t i = 0; i < t->room; i++) free(t->lines[i]);
    free(t->lines);
    free(t);
}

void pl_tail_add(struct pl_tail *t, const char *line, size_t len) {
    if (len > LINE_BYTES) len = LINE_BYTES;
    char *copy = strndup(line, len);
    if (copy == NULL) return; /* a diagnosis with a line less */
    char **at = &t->lines[t->count % t->room];
    free(*at);
    *at = copy;
    t->count++;
}

uint64_t pl_tail_count(const struct pl_tail *t) { return t->count; }

uint64_t pl_tail_since(const struct pl_tail *t, uint64_t from, struct pl_buf *out) {
    uint64_t oldest = t->count > t->room ? t->count - t->room : 0;
    for (uint64_t i = from < oldest ? oldest : from; i < t->count; i++) {
        const char *line = t->lines[i % t->room];
        if (!pl_buf_adds(out, line) || !pl_buf_add(out, "\n", 1)) break;
    }
    return t->count;
}

void pl_tail_text(const struct pl_tail *t, uint32_t lines, struct pl_buf *out) {
    uint64_t from = lines > 0 && t->count > lines ? t->count - lines : 0;
    pl_tail_since(t, from, out);
}
