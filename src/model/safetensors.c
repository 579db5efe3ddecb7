/* safetensors.c - the header of a safetensors file. A scanner of its own, without a tree: a header may be 100
 * MiB, and what it costs us must not depend on what a stranger wrote there.
 *
 *     {"NAME": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {"format": "pt"}}
 */
#include <string.h>

#include "model/num.h"
#include "model/weights.h"

enum { MOST_DIMS = 16, MOST_DEPTH = 8 };
struct scan {
    const char *at, *end, *start;
    struct pl_err *err;
    bool failed;
};
struct text {
    const char *at;
    size_t len;
};

static bool bad(struct scan *s, const char *what) {
    if (!s->failed)
        PL_FAIL(s->err, PL_E_CONFIG, "safetensors header, byte %zu: %s", (size_t)(s->at - s->start) + 8,
                what);
    s->failed = true;
    return false;
}
static void blank(struct scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}
static bool is(struct scan *s, char c) {
    blank(s);
    if (s->failed || s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}
static bool want(struct scan *s, char c) {
    char what[] = "'?' expected";
    what[1] = c;
    return is(s, c) || bad(s, what);
}
/* Between the quotes, escapes left as they are: names are compared and searched, never shown. */
static struct text string(struct scan *s) {
    struct text t = { s->at, 0 };
    if (!want(s, '"')) return t;
    t.at = s->at;
    while (s->at < s->end && *s->at != '"') {
        if ((unsigned char)*s->at < 0x20) return bad(s, "a control character in a text"), t;
        s->at += *s->at == '\\' ? 2 : 1;
    }
    if (s->at >= s->end) {
        s->at = s->end;
        return bad(s, "a text without an end"), t;
    }
    t.len = (size_t)(s->at - t.at);
    s->at++;
    return t;
}
static bool same(struct text t, const char *word) {
    return t.len == strlen(word) && memcmp(t.at, word, t.len) == 0;
}
static uint64_t number(struct scan *s) {
    uint64_t n = 0;
    blank(s);
    const char *from = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        n = pl_add(pl_mul(n, 10), (uint64_t)(*s->at - '0'));
    if (s->at == from) return bad(s, "a whole number expected"), 0;
    return n;
}
/* At most `most`; the count comes back. */
static size_t numbers(struct scan *s, uint64_t *out, size_t most) {
    size_t n = 0;
    if (!want(s, '[') || is(s, ']')) return 0;
    do {
        if (n == most) return bad(s, "a list that is too long"), 0;
        out[n++] = number(s);
    } while (is(s, ','));
    want(s, ']');
    return n;
}
static void skip(struct scan *s, int depth) {
    blank(s);
    if (s->at == s->end) {
        bad(s, "it ends too early");
    } else if (depth == MOST_DEPTH) {
        bad(s, "nested too deep");
    } else if (*s->at == '"') {
        string(s);
    } else if (*s->at == '{' || *s->at == '[') {
        char close = *s->at == '{' ? '}' : ']';
        s->at++;
        if (is(s, close)) return;
        do {
            if (close == '}') {
                string(s);
                want(s, ':');
            }
            if (!s->failed) skip(s, depth + 1);
        } while (!s->failed && is(s, ','));
        want(s, close);
    } else {
        const char *from = s->at;
        while (s->at < s->end && strchr("+-.0123456789eEtrufalsn", *s->at) != NULL && *s->at != '\0') s->at++;
        if (s->at == from) bad(s, "a value expected");
    }
}

struct tensor {
    struct text name, dtype;
    uint64_t shape[MOST_DIMS], offsets[2];
    size_t dims, offset_count;
    bool has_shape;
};

static void read_tensor(struct scan *s, struct tensor *t) {
    if (!want(s, '{') || is(s, '}')) return;
    do {
        struct text key = string(s);
        want(s, ':');
        if (s->failed) return;
        if (same(key, "dtype")) {
            t->dtype = string(s);
        } else if (same(key, "shape")) {
            t->dims = numbers(s, t->shape, MOST_DIMS);
            t->has_shape = true;
        } else if (same(key, "data_offsets")) {
            t->offset_count = numbers(s, t->offsets, 2);
        } else {
            skip(s, 0);
        }
    } while (is(s, ','));
    want(s, '}');
}

/* What is wrong with it, for "tensor N: ..."; NULL if nothing. */
static const char *check(const struct tensor *t, uint64_t data_bytes, enum pl_dtype *dtype,
                         uint64_t *values) {
    *dtype = pl_dtype_of(t->dtype.at, t->dtype.len);
    *values = 1;
    for (size_t i = 0; i < t->dims; i++) *values = pl_mul(*values, t->shape[i]);
    if (t->dtype.at == NULL || !t->has_shape || t->offset_count != 2)
        return "dtype, shape or data_offsets is missing";
    if (t->offsets[0] > t->offsets[1] || t->offsets[1] > data_bytes)
        return "its data lies outside of the file";
    if (*dtype == PL_DTYPE_UNKNOWN) return NULL; /* a dtype of tomorrow: the offsets still tell its bytes */
    uint64_t bits = pl_mul(*values, pl_dtype_bits(*dtype));
    if (bits == UINT64_MAX || pl_cdiv(bits, 8) != t->offsets[1] - t->offsets[0])
        return "its shape and its bytes differ";
    return NULL;
}

uint64_t pl_safetensors_header(const char first[8], uint64_t file_bytes, struct pl_err *err) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | (unsigned char)first[i];
    if (n >= 2 && n <= PL_HEADER_BYTES && file_bytes >= 8 && n <= file_bytes - 8) return n;
    PL_FAIL(err, PL_E_CONFIG,
            "byte 0: a header of %llu bytes in a file of %llu: no safetensors file, or cut off",
            (unsigned long long)n, (unsigned long long)file_bytes);
    pl_err_hint(err, "fetch the file again and compare its size with the source's");
    return 0;
}

bool pl_safetensors_add(struct pl_weights *w, const char *bytes, size_t len, uint64_t file_bytes,
                        struct pl_err *err) {
    if (len < 8) return PL_FAIL(err, PL_E_CONFIG, "byte 0: %zu bytes are no safetensors file", len);
    uint64_t header = pl_safetensors_header(bytes, file_bytes, err), covered = 0, count = 0;
    if (header == 0) return false;
    if (header > len - 8) return PL_FAIL(err, PL_E_CONFIG, "byte %zu: the header is cut off", len);
    struct scan s = { .at = bytes + 8, .start = bytes + 8, .end = bytes + 8 + header, .err = err };
    uint64_t data_bytes = file_bytes - 8 - header, last = 0;
    if (!want(&s, '{')) return false;
    bool empty = is(&s, '}');
    while (!empty && !s.failed) {
        struct tensor t = { .name = string(&s) };
        want(&s, ':');
        if (s.failed) break;
        if (same(t.name, "__metadata__")) {
            skip(&s, 0);
        } else {
            enum pl_dtype dtype;
            uint64_t values;
            read_tensor(&s, &t);
            if (s.failed) break;
            const char *wrong = check(&t, data_bytes, &dtype, &values);
            if (wrong != NULL && t.offset_count == 2 && t.offsets[0] <= t.offsets[1] &&
                t.offsets[1] > data_bytes) {
                PL_FAIL(err, PL_E_CONFIG,
                        "the file has %llu bytes of data, tensor %llu ends at %llu: it is cut off",
                        (unsigned long long)data_bytes, (unsigned long long)count,
                        (unsigned long long)t.offsets[1]);
                return pl_err_hint(err, "fetch the file again");
            }
            if (wrong != NULL)
                return PL_FAIL(err, PL_E_CONFIG, "safetensors header, tensor %llu: %s",
                               (unsigned long long)count, wrong);
            uint64_t size = t.offsets[1] - t.offsets[0];
            pl_weights_add(w, t.name.at, t.name.len, dtype, values, size, (unsigned)t.dims);
            covered = pl_add(covered, size);
            last = pl_max(last, t.offsets[1]);
            count++;
        }
        if (!is(&s, ',')) {
            want(&s, '}');
            break;
        }
    }
    if (s.failed) return false;
    blank(&s);
    if (s.at != s.end) return bad(&s, "something behind the end");
    if (covered > last) return PL_FAIL(err, PL_E_CONFIG, "safetensors header: tensors overlap");
    w->origin = PL_WEIGHTS_HEADER;
    w->files++;
    w->largest_file = pl_max(w->largest_file, file_bytes);
    return true;
}
