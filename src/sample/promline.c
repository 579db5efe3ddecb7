#include "sample/promline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_BYTES = 64 };

struct cursor {
    const char *at, *end;
};

static size_t left(const struct cursor *c) { return (size_t)(c->end - c->at); }

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t')) c->at++;
}

static bool eat(struct cursor *c, char wanted) {
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static size_t name_length(const char *s, size_t len, bool colons) {
    size_t n = 0;
    while (n < len && (starts_name(s[n]) || (colons && s[n] == ':') || (n > 0 && s[n] >= '0' && s[n] <= '9')))
        n++;
    return n <= PL_PROMTEXT_NAME ? n : 0;
}

size_t pl_prom_name_length(const char *s, size_t len) { return name_length(s, len, true); }

bool pl_promword_is(struct pl_promword w, const char *text) {
    return strlen(text) == w.len && memcmp(w.at, text, w.len) == 0;
}

const struct pl_promlabel *pl_promline_label(const struct pl_promline *l, const char *name, size_t len) {
    for (size_t i = 0; i < l->label_count; i++)
        if (l->labels[i].name.len == len && memcmp(l->labels[i].name.at, name, len) == 0)
            return &l->labels[i];
    return NULL;
}

/* Up to the closing quote, which is eaten too. */
static bool read_quoted(struct cursor *c, struct pl_promword *out) {
    if (!eat(c, '"')) return false;
    out->at = c->at;
    while (c->at < c->end && *c->at != '"') {
        unsigned char byte = (unsigned char)*c->at;
        size_t n = byte < 0x80 ? 1 : pl_utf8_length((const unsigned char *)c->at, left(c));
        if (n == 0) return false;
        if (byte == '\\') {
            if (left(c) < 2 || memchr("\\\"n", c->at[1], 3) == NULL) return false;
            n = 2;
        }
        c->at += n;
    }
    out->len = (size_t)(c->at - out->at);
    return eat(c, '"');
}

static bool read_label(struct cursor *c, struct pl_promline *l) {
    struct pl_promlabel label;
    label.name = (struct pl_promword){ c->at, name_length(c->at, left(c), false) };
    if (label.name.len == 0 || l->label_count == PL_PROMTEXT_LABELS) return false;
    c->at += label.name.len;
    skip_blanks(c);
    if (!eat(c, '=')) return false;
    skip_blanks(c);
    if (!read_quoted(c, &label.value)) return false;
    if (pl_promline_label(l, label.name.at, label.name.len) != NULL) return false;
    l->labels[l->label_count++] = label;
    return true;
}

/* After the opening brace. A comma before the closing one is allowed. */
static bool read_labels(struct cursor *c, struct pl_promline *l) {
    for (;;) {
        skip_blanks(c);
        if (eat(c, '}')) return true;
        if (!read_label(c, l)) return false;
        skip_blanks(c);
        if (!eat(c, ',') && (c->at == c->end || *c->at != '}')) return false;
    }
}

static struct pl_promword read_word(struct cursor *c) {
    skip_blanks(c);
    struct pl_promword w = { c->at, 0 };
    while (c->at < c->end && *c->at != ' ' && *c->at != '\t') c->at++;
    w.len = (size_t)(c->at - w.at);
    return w;
}

/* As Go's ParseFloat reads it, but without underscores and hexadecimal: nobody's client library writes those.
 */
static bool is_number(struct pl_promword w) {
    static const char *const words[] = { "nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity" };
    char text[NUMBER_BYTES], *end;
    if (w.len == 0 || w.len >= sizeof text) return false;
    memcpy(text, w.at, w.len);
    text[w.len] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0) return true;
    /* too large for a double is an error there, and not infinity */
    return strspn(text, "0123456789+-.eE") == w.len && !isinf(strtod(text, &end)) && *end == '\0';
}

static bool is_whole(struct pl_promword w) {
    size_t i = w.len > 1 && w.at[0] == '-' ? 1 : 0;
    if (w.len - i < 1 || w.len - i > 18) return false;
    for (; i < w.len; i++)
        if (w.at[i] < '0' || w.at[i] > '9') return false;
    return true;
}

bool pl_promline_parse(struct pl_promline *out, const char *line, size_t len) {
    struct cursor c = { line, line + len };
    out->label_count = 0;
    skip_blanks(&c);
    out->name = (struct pl_promword){ c.at, pl_prom_name_length(c.at, left(&c)) };
    if (out->name.len == 0) return false;
    c.at += out->name.len;
    bool blank = c.at < c.end && (*c.at == ' ' || *c.at == '\t');
    skip_blanks(&c);
    bool braces = eat(&c, '{');
    if (!blank && !braces) return false;
    if (braces && !read_labels(&c, out)) return false;
    out->value = read_word(&c);
    if (!is_number(out->value)) return false;
    struct pl_promword next = read_word(&c);
    bool exemplar = next.len > 0 && next.at[0] == '#';
    out->timestamp = (struct pl_promword){ 0 };
    if (next.len == 0 || exemplar) return true;
    if (is_whole(next)) out->timestamp = next;
    if (!is_number(next)) return false;
    next = read_word(&c);
    return next.len == 0 || next.at[0] == '#';
}
