/* base/buf.h - a byte buffer that grows up to a cap fixed at init.
 *
 * Used for what has no natural size: heads, texts, bodies. `cap` bounds what a peer can make us hold; past it
 * pl_buf_add returns false and the content stays as it was. The content is never NUL-ended unless
 * pl_buf_text is called.
 */
#ifndef PL_BASE_BUF_H
#define PL_BASE_BUF_H
#include <stdbool.h>
#include <stddef.h>

struct pl_buf {
    char *data;
    size_t len;
    size_t size; /* allocated */
    size_t cap;  /* bytes; 0 = no cap (own texts only, never for input) */
};

void pl_buf_init(struct pl_buf *b, size_t cap);
bool pl_buf_reserve(struct pl_buf *b, size_t more); /* room for `more` bytes beyond len */
bool pl_buf_add(struct pl_buf *b, const void *bytes, size_t count);
bool pl_buf_adds(struct pl_buf *b, const char *text);
bool pl_buf_addf(struct pl_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Length of the UTF-8 sequence of two to four bytes at `s`, or 0 if it is not one (RFC 3629: no overlong
 * forms, no surrogates). */
size_t pl_utf8_length(const unsigned char *s, size_t left);
/* Appends `text` as a JSON string with its quotes; control characters (C1 too: terminals obey them) and
 * invalid UTF-8 are escaped. */
bool pl_buf_add_json(struct pl_buf *b, const char *text, size_t len);
void pl_buf_drop(struct pl_buf *b, size_t count); /* forgets the first `count` bytes */
const char *pl_buf_text(struct pl_buf *b); /* NUL-ended; "" if it cannot be; borrowed until the next change */
void pl_buf_free(struct pl_buf *b);        /* gives the memory back; the cap stays */
#endif
