/* expand.c - ${NAME}, ${NAME:-default} and $$ in a text, once and never again in what came out. */
#include <ctype.h>
#include <string.h>

#include "config/yaml.h"

static const char *look_up(char *const *env, const char *name, size_t len) {
    for (; env != NULL && *env != NULL; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') return *env + len + 1;
    return NULL;
}

static size_t name_length(const char *s, const char *end) {
    size_t n = 0;
    if (s < end && isdigit((unsigned char)*s)) return 0;
    while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_')) n++;
    return n;
}

static bool full(struct pl_err *err) { return PL_FAIL(err, PL_E_TOO_LARGE, "the text is too long"); }

/* `s` is behind "${"; *next gets the place behind "}". */
static bool expand_one(const char *s, const char *end, char *const *env, struct pl_buf *out,
                       const char **next, struct pl_err *err) {
    size_t n = name_length(s, end);
    const char *close = memchr(s, '}', (size_t)(end - s)), *rest = s + n;
    if (close == NULL || n == 0 || (rest != close && strncmp(rest, ":-", 2) != 0)) {
        PL_FAIL(err, PL_E_CONFIG, "'${' is not followed by NAME} or NAME:-default}");
        return pl_err_hint(err, "write $$ for a dollar sign");
    }
    const char *value = look_up(env, s, n);
    *next = close + 1;
    if (value != NULL && (rest == close || value[0] != '\0')) return pl_buf_adds(out, value) || full(err);
    if (rest != close) return pl_buf_add(out, rest + 2, (size_t)(close - rest - 2)) || full(err);
    PL_FAIL(err, PL_E_CONFIG, "the variable %.*s is not set", (int)(n < 64 ? n : 64), s);
    return pl_err_hint(err, "set it, or write ${%.*s:-default}", (int)(n < 64 ? n : 64), s);
}

bool pl_expand(const char *text, size_t len, char *const *env, struct pl_buf *out, struct pl_err *err) {
    const char *s = text, *end = text + len;
    while (s < end) {
        const char *dollar = memchr(s, '$', (size_t)(end - s));
        size_t plain = dollar != NULL ? (size_t)(dollar - s) : (size_t)(end - s);
        if (!pl_buf_add(out, s, plain)) return full(err);
        s += plain;
        if (dollar == NULL) break;
        if (end - s >= 2 && s[1] == '{') {
            if (!expand_one(s + 2, end, env, out, &s, err)) return false;
            continue;
        }
        if (!pl_buf_add(out, "$", 1)) return full(err);
        s += end - s >= 2 && s[1] == '$' ? 2 : 1;
    }
    return true;
}
