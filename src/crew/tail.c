#include "crew/tail.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

struct line {
    char *text;
    uint64_t wall_ms;
};

struct pl_tail {
    uint32_t refs, room;
    uint64_t count;
    struct line *lines; /* line n lies at n % room */
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
    for (uint32_t i = 0; i < t->room; i++) free(t->lines[i].text);
    free(t->lines);
    free(t);
}

void pl_tail_add(struct pl_tail *t, const char *line, size_t len, uint64_t wall_ms) {
    if (len > LINE_BYTES) len = LINE_BYTES;
    char *copy = strndup(line, len);
    if (copy == NULL) return; /* a diagnosis with a line less */
    struct line *at = &t->lines[t->count % t->room];
    free(at->text);
    *at = (struct line){ copy, wall_ms };
    t->count++;
}

uint64_t pl_tail_count(const struct pl_tail *t) { return t->count; }

static uint64_t oldest(const struct pl_tail *t) { return t->count > t->room ? t->count - t->room : 0; }

uint64_t pl_tail_since(const struct pl_tail *t, uint64_t from, struct pl_buf *out) {
    for (uint64_t i = from < oldest(t) ? oldest(t) : from; i < t->count; i++) {
        const char *line = t->lines[i % t->room].text;
        if (!pl_buf_adds(out, line) || !pl_buf_add(out, "\n", 1)) break;
    }
    return t->count;
}

void pl_tail_text(const struct pl_tail *t, uint32_t lines, uint64_t since_wall_ms, struct pl_buf *out) {
    uint64_t from = t->count > lines ? t->count - lines : 0;
    if (from < oldest(t)) from = oldest(t);
    while (from < t->count && t->lines[from % t->room].wall_ms < since_wall_ms) from++;
    pl_tail_since(t, from, out);
}
