/* tests/support/gguf_writer.h - writes GGUF heads for tests. */
#ifndef PL_TESTS_GGUF_WRITER_H
#define PL_TESTS_GGUF_WRITER_H
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "model/gguf.h"

static inline void gguf_int(struct pl_buf *b, uint64_t n, unsigned width) {
    char bytes[8];
    for (unsigned i = 0; i < width; i++) bytes[i] = (char)(n >> (8 * i));
    pl_buf_add(b, bytes, width);
}
static inline void gguf_text(struct pl_buf *b, const char *s) {
    gguf_int(b, strlen(s), 8);
    pl_buf_adds(b, s);
}
static inline void gguf_head(struct pl_buf *b, uint32_t version, uint64_t tensors, uint64_t keys) {
    pl_buf_adds(b, "GGUF");
    gguf_int(b, version, 4);
    gguf_int(b, tensors, 8);
    gguf_int(b, keys, 8);
}
static inline void gguf_u32(struct pl_buf *b, const char *name, uint32_t n) {
    gguf_text(b, name);
    gguf_int(b, PL_GGUF_UINT32, 4);
    gguf_int(b, n, 4);
}
static inline void gguf_str(struct pl_buf *b, const char *name, const char *value) {
    gguf_text(b, name);
    gguf_int(b, PL_GGUF_STRING, 4);
    gguf_text(b, value);
}
static inline void gguf_list(struct pl_buf *b, const char *name, const uint32_t *at, size_t n) {
    gguf_text(b, name);
    gguf_int(b, PL_GGUF_ARRAY, 4);
    gguf_int(b, PL_GGUF_UINT32, 4);
    gguf_int(b, n, 8);
    for (size_t i = 0; i < n; i++) gguf_int(b, at[i], 4);
}
static inline void gguf_tensor(struct pl_buf *b, const char *name, uint64_t x, uint64_t y, uint32_t type,
                               uint64_t offset) {
    gguf_text(b, name);
    gguf_int(b, 2, 4);
    gguf_int(b, x, 8);
    gguf_int(b, y, 8);
    gguf_int(b, type, 4);
    gguf_int(b, offset, 8);
}
#endif
