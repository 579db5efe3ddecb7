#include "config/similar.h"

#include <stdio.h>
#include <string.h>

/* As flags and variables write it: one case, one dash. */
static int folded(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
    return c == '-' ? '_' : c;
}

bool pl_same_loosely(const char *a, const char *b) {
    for (; *a != '\0' && folded(*a) == folded(*b); a++, b++) continue;
    return *a == '\0' && *b == '\0';
}

size_t pl_edit_distance(const char *a, const char *b) {
    enum { MAX = 64 };
    size_t rows[3][MAX + 1], la = strnlen(a, MAX), lb = strnlen(b, MAX);
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= lb; j++) above[j] = before[j] = j;
    for (size_t i = 1; i <= la; i++) {
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = above[j - 1] + (folded(a[i - 1]) != folded(b[j - 1]));
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                           folded(a[i - 2]) == folded(b[j - 1]);
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[lb];
}

size_t pl_slips_allowed(const char *typed) {
    size_t slips = 1 + strlen(typed) / 6;
    return slips < 3 ? slips : 3;
}

bool pl_edit_near(const char *typed, const char *meant) {
    return pl_edit_distance(typed, meant) <= pl_slips_allowed(typed);
}

struct pl_quoted pl_quote(const char *text) {
    struct pl_quoted q;
    size_t n = strnlen(text, 65), shown = n > 64 ? 64 : n;
    while (n > 64 && shown > 60 && ((unsigned char)text[shown] & 0xc0) == 0x80) shown--; /* no half letter */
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)text[i];
        q.text[i] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    snprintf(q.text + shown, sizeof q.text - shown, "%s", n > 64 ? "..." : "");
    return q;
}
