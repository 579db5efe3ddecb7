#include "llama/text.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_BYTES = 1 << 20 };

void pl_llm_text_init(struct pl_llm_text *t) {
    *t = (struct pl_llm_text){ 0 };
    pl_buf_init(&t->held, HELD_BYTES);
}

bool pl_llm_text_stop(struct pl_llm_text *t, const char *stop, size_t len) {
    if (t->stop_count == PL_LLM_STOPS || len == 0 || len > PL_LLM_STOP_BYTES ||
        memchr(stop, '\0', len) != NULL)
        return false;
    char *copy = strndup(stop, len);
    if (copy == NULL) return false;
    t->stops[t->stop_count++] = copy;
    return true;
}

/* Length of the sequence that begins with `lead`, 1 for what begins none. */
static size_t wanted(unsigned char lead) {
    return lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
}

/* Copies whole characters of the first `len` held bytes; the rest of an unfinished one stays. Returns how
 * many bytes of the input are done. */
static size_t show(const char *bytes, size_t len, bool last, struct pl_buf *out) {
    size_t at = 0;
    while (at < len) {
        const unsigned char *s = (const unsigned char *)bytes + at;
        size_t n = *s < 0x80 ? 1 : pl_utf8_length(s, len - at);
        if (n > 0) {
            pl_buf_add(out, s, n);
            at += n;
            continue;
        }
        if (!last && len - at < wanted(*s)) {
            bool could = true; /* only continuation bytes so far: the rest may come */
            for (size_t i = 1; i < len - at; i++) could = could && (s[i] & 0xc0) == 0x80;
            if (could) return at;
        }
        pl_buf_adds(out, "\xef\xbf\xbd");
        at++;
    }
    return at;
}

/* How many bytes at the end may be the beginning of a stop string. */
static size_t suspicious(const struct pl_llm_text *t) {
    size_t most = 0;
    for (size_t i = 0; i < t->stop_count; i++) {
        size_t n = strlen(t->stops[i]) - 1;
        for (n = n < t->held.len ? n : t->held.len; n > most; n--)
            if (memcmp(t->held.data + t->held.len - n, t->stops[i], n) == 0) most = n;
    }
    return most;
}

bool pl_llm_text_push(struct pl_llm_text *t, const char *bytes, size_t len, struct pl_buf *out) {
    if (t->stopped || !pl_buf_add(&t->held, bytes, len)) return t->stopped;
    const char *first = NULL;
    for (size_t i = 0; i < t->stop_count; i++) {
        const char *at =
            t->held.len > 0 ? memmem(t->held.data, t->held.len, t->stops[i], strlen(t->stops[i])) : NULL;
        if (at != NULL && (first == NULL || at < first)) first = at;
    }
    if (first != NULL) {
        show(t->held.data, (size_t)(first - t->held.data), true, out);
        t->held.len = 0;
        t->stopped = true;
        return true;
    }
    size_t free_bytes = t->held.len - suspicious(t);
    pl_buf_drop(&t->held, show(t->held.data, free_bytes, false, out));
    return false;
}

void pl_llm_text_end(struct pl_llm_text *t, struct pl_buf *out) {
    if (!t->stopped) show(t->held.data, t->held.len, true, out);
    t->held.len = 0;
}

void pl_llm_text_free(struct pl_llm_text *t) {
    for (size_t i = 0; i < t->stop_count; i++) free(t->stops[i]);
    pl_buf_free(&t->held);
    t->stop_count = 0;
}
