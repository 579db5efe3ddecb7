/* sample/span.h - inside the room: reading fixed phrases and numbers out of a line of foreign text. */
#ifndef PL_SAMPLE_SPAN_H
#define PL_SAMPLE_SPAN_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct pl_span {
    const char *at; /* NULL: what was looked for is not there */
    size_t len;
};

static inline void pl_span_skip(struct pl_span *s, size_t n) {
    s->at += n;
    s->len -= n;
}

/* What begins with `word`; at NULL: nowhere. */
static inline struct pl_span pl_span_find(struct pl_span s, const char *word) {
    const char *p = s.at != NULL ? memmem(s.at, s.len, word, strlen(word)) : NULL;
    return p != NULL ? (struct pl_span){ p, s.len - (size_t)(p - s.at) } : (struct pl_span){ 0 };
}

/* Eats `word`. False: something else stands there, and nothing was eaten. */
static inline bool pl_span_eat(struct pl_span *s, const char *word) {
    size_t n = strlen(word);
    if (s->at == NULL || s->len < n || memcmp(s->at, word, n) != 0) return false;
    pl_span_skip(s, n);
    return true;
}

static inline size_t pl_span_digits(struct pl_span s) {
    size_t n = 0;
    while (n < s.len && s.at[n] >= '0' && s.at[n] <= '9') n++;
    return n;
}

/* Eats digits as a whole number that is not UINT64_MAX. */
static inline bool pl_span_number(struct pl_span *s, uint64_t *out) {
    uint64_t value = 0;
    size_t n = s->at != NULL ? pl_span_digits(*s) : 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s->at[i] - '0'), &value))
            return false;
    if (n == 0 || value == UINT64_MAX) return false;
    pl_span_skip(s, n);
    *out = value;
    return true;
}

/* Eats "12.34"; a minus in front where `sign` allows it. */
static inline bool pl_span_decimal(struct pl_span *s, bool sign, double *out) {
    char text[32];
    size_t n = 0;
    if (s->at == NULL) return false;
    if (sign && s->len > 0 && s->at[0] == '-') n++;
    while (n < s->len && n < sizeof text - 1 && ((s->at[n] >= '0' && s->at[n] <= '9') || s->at[n] == '.'))
        n++;
    if (n == 0 || n > 24) return false;
    memcpy(text, s->at, n);
    text[n] = '\0';
    char *end;
    *out = strtod(text, &end);
    if (end == text) return false;
    pl_span_skip(s, (size_t)(end - text));
    return true;
}

/* Bytes from a number and its unit's size. False when they are not believable: 1 PB and more. */
static inline bool pl_span_bytes(double number, double unit, uint64_t *out) {
    double bytes = number * unit + 0.5;
    if (!(bytes >= 0 && bytes < 1e15)) return false;
    *out = (uint64_t)bytes;
    return true;
}

/* Eats "12.34 GiB", "0 bytes". */
static inline bool pl_span_size(struct pl_span *s, uint64_t *out) {
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { " bytes", 1 }, { " KiB", 1 << 10 }, { " MiB", 1 << 20 }, { " GiB", 1 << 30 } };
    struct pl_span t = *s;
    double number;
    if (!pl_span_decimal(&t, false, &number)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!pl_span_eat(&t, units[i].name)) continue;
        if (!pl_span_bytes(number, units[i].bytes, out)) return false;
        *s = t;
        return true;
    }
    return false;
}
#endif
