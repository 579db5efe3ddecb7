#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 256 };

void pl_buf_init(struct pl_buf *b, size_t cap) { *b = (struct pl_buf){ .cap = cap }; }

bool pl_buf_reserve(struct pl_buf *b, size_t more) {
    if (more > SIZE_MAX - b->len) return false;
    size_t want = b->len + more;
    if (want <= b->size) return true;
    if (b->cap != 0 && want > b->cap) return false;
    size_t size = b->size < SMALLEST ? (size_t)SMALLEST : b->size;
    while (size < want) size = size > SIZE_MAX / 2 ? want : size * 2;
    if (b->cap != 0 && size > b->cap) size = b->cap;
    char *data = realloc(b->data, size);
    if (data == NULL) return false;
    b->data = data;
    b->size = size;
    return true;
}

bool pl_buf_add(struct pl_buf *b, const void *bytes, size_t count) {
    if (!pl_buf_reserve(b, count)) return false;
    if (count > 0) memcpy(b->data + b->len, bytes, count);
    b->len += count;
    return true;
}

bool pl_buf_adds(struct pl_buf *b, const char *text) { return pl_buf_add(b, text, strlen(text)); }

bool pl_buf_addf(struct pl_buf *b, const char *fmt, ...) {
    char small[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) return false;
    if ((size_t)n < sizeof small) return pl_buf_add(b, small, (size_t)n);
    if (!pl_buf_reserve(b, (size_t)n + 1)) return false;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

size_t pl_utf8_length(const unsigned char *s, size_t left) {
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

static bool add_json_char(struct pl_buf *b, const unsigned char *s, size_t left, size_t *used) {
    *used = 1;
    switch (s[0]) {
    case '"':
        return pl_buf_add(b, "\\\"", 2);
    case '\\':
        return pl_buf_add(b, "\\\\", 2);
    case '\n':
        return pl_buf_add(b, "\\n", 2);
    case '\r':
        return pl_buf_add(b, "\\r", 2);
    case '\t':
        return pl_buf_add(b, "\\t", 2);
    default:
        break;
    }
    if (s[0] < 0x20 || s[0] == 0x7f) return pl_buf_addf(b, "\\u%04x", s[0]);
    if (s[0] < 0x80) return pl_buf_add(b, s, 1);
    size_t n = pl_utf8_length(s, left);
    if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0) {
        *used = 2;
        return pl_buf_addf(b, "\\u%04x", s[1]);
    }
    if (n == 0) return pl_buf_add(b, "\\ufffd", 6);
    *used = n;
    return pl_buf_add(b, s, n);
}

bool pl_buf_add_json(struct pl_buf *b, const char *text, size_t len) {
    const unsigned char *s = (const unsigned char *)text;
    size_t start = b->len, used = 0;
    bool ok = pl_buf_add(b, "\"", 1);
    for (size_t i = 0; ok && i < len; i += used) ok = add_json_char(b, s + i, len - i, &used);
    ok = ok && pl_buf_add(b, "\"", 1);
    if (!ok) b->len = start;
    return ok;
}

void pl_buf_drop(struct pl_buf *b, size_t count) {
    if (count >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + count, b->len - count);
    b->len -= count;
}

const char *pl_buf_text(struct pl_buf *b) {
    if (!pl_buf_reserve(b, 1)) return "";
    b->data[b->len] = '\0';
    return b->data;
}

void pl_buf_free(struct pl_buf *b) {
    free(b->data);
    *b = (struct pl_buf){ .cap = b->cap };
}
