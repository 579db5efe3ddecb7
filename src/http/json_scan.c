/* The grammar. A state for where we are, a level for every bracket that is open; strings go by in spans
 * between their escapes. */
#include "http/json_scan.h"

#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "http/json_inside.h"

enum state {
    VALUE,
    VALUE_OR_END, /* after [ */
    KEY_OR_END,   /* after { */
    KEY,
    COLON,
    AFTER, /* a value of a container */
    STRING,
    ESCAPE,
    UNICODE,
    NUMBER,
    WORD,
    MARK, /* inside a byte order mark */
    DONE,
    MALFORMED,
    TOO_DEEP,
};

struct pl_json_scan *pl_json_scan_create(uint32_t depth, bool text) {
    if (depth < 1) depth = 1;
    if (depth > PL_JSON_DEPTH_MOST) depth = PL_JSON_DEPTH_MOST;
    struct pl_json_scan *s = malloc(sizeof *s + (depth + 1) * sizeof s->levels[0]);
    if (s == NULL) return NULL;
    s->depth_most = depth;
    s->count_text = text;
    pl_json_scan_reset(s);
    return s;
}

bool pl_json_scan_again(struct pl_json_scan *s, uint32_t depth, bool text) {
    if (depth < 1 || depth > PL_JSON_DEPTH_MOST || s->depth_most != depth) return false;
    s->count_text = text;
    pl_json_scan_reset(s);
    return true;
}

void pl_json_scan_destroy(struct pl_json_scan *s) { free(s); }

void pl_json_scan_reset(struct pl_json_scan *s) {
    s->facts = (struct pl_json_facts){ 0 };
    s->state = VALUE;
    s->key = s->top = PL_KEY_OTHER;
    s->raw = false;
    s->depth = 0;
    s->offset = 0;
    s->levels[0] = (struct pl_json_level){ 0 };
}

const struct pl_json_facts *pl_json_scan_facts(const struct pl_json_scan *s) { return &s->facts; }
uint64_t pl_json_scan_offset(const struct pl_json_scan *s) { return s->offset; }

static void fail(struct pl_json_scan *s) { s->state = MALFORMED; }

/* --- containers */

static void open_container(struct pl_json_scan *s, bool object) {
    pl_json_scan_value_begins(s);
    if (s->depth == s->depth_most) {
        s->facts.depth = s->depth + 1;
        s->state = TOO_DEEP;
        return;
    }
    s->depth++;
    if (s->depth > s->facts.depth) s->facts.depth = s->depth;
    *pl_json_top(s) = (struct pl_json_level){ .key = s->key, .object = object };
    s->state = object ? KEY_OR_END : VALUE_OR_END;
}

static void value_ended(struct pl_json_scan *s) { s->state = s->depth == 0 ? DONE : AFTER; }

static void close_container(struct pl_json_scan *s, bool object) {
    if (s->depth == 0 || pl_json_top(s)->object != object) {
        fail(s);
        return;
    }
    s->key = pl_json_top(s)->key;
    s->depth--;
    if (s->depth == 0) {
        s->top = PL_KEY_OTHER;
        s->raw = false;
    }
    value_ended(s);
}

/* --- strings */

static void begin_string(struct pl_json_scan *s, bool key) {
    pl_json_scan_raw(s, "\"", 1);
    s->in_key = key;
    s->token_whole = 0;
    s->sniff = PL_SNIFF_OPEN;
    s->high = 0;
    s->utf8_need = 0;
    s->state = STRING;
}

static void deliver(struct pl_json_scan *s, const char *bytes, size_t len) {
    if (s->in_key) {
        size_t room = s->token_whole < PL_JSON_TOKEN ? PL_JSON_TOKEN - (size_t)s->token_whole : 0;
        memcpy(s->token + (PL_JSON_TOKEN - room), bytes, len < room ? len : room);
        s->token_whole += len;
        pl_json_scan_raw(s, bytes, len);
    } else {
        pl_json_scan_text(s, bytes, len);
    }
}

static void flush_surrogate(struct pl_json_scan *s) {
    if (s->high == 0) return;
    s->high = 0;
    deliver(s, "\xef\xbf\xbd", 3);
}

static void end_string(struct pl_json_scan *s) {
    flush_surrogate(s);
    if (s->utf8_need != 0) s->facts.bad_utf8 = true;
    if (!s->in_key) {
        pl_json_scan_text_end(s);
        pl_json_scan_raw(s, "\"", 1);
        value_ended(s);
        return;
    }
    pl_json_scan_raw(s, "\"", 1);
    s->key = s->token_whole <= PL_JSON_TOKEN ? (uint8_t)pl_json_key_of(s->token, (size_t)s->token_whole)
                                             : PL_KEY_OTHER;
    if (s->depth == 1) {
        s->top = s->key;
        s->raw = pl_json_scan_is_raw(s);
    }
    s->state = COLON;
}

/* RFC 3629 by what the next byte may be; anything else is noted, and the worker's to judge. */
static void check_utf8(struct pl_json_scan *s, const char *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)bytes[i];
        if (s->utf8_need != 0) {
            if (b < s->utf8_low || b > s->utf8_high) {
                s->facts.bad_utf8 = true;
                s->utf8_need = 0;
                continue;
            }
            s->utf8_need--;
            s->utf8_low = 0x80;
            s->utf8_high = 0xbf;
        } else if (b >= 0x80) {
            if (b < 0xc2 || b > 0xf4) {
                s->facts.bad_utf8 = true;
                continue;
            }
            s->utf8_need = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : 1;
            s->utf8_low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
            s->utf8_high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
        }
    }
}

static bool is_special(char c) { return c == '"' || c == '\\' || (unsigned char)c < 0x20; }

/* First byte that is not plain content of a string, or `end`; *high: there are bytes beyond ASCII before it.
 */
static const char *span_end(const char *p, const char *end, bool *high) {
    *high = false;
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, control), x);
        __m128i hits = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash)), low);
        unsigned hit = (unsigned)_mm_movemask_epi8(hits), beyond = (unsigned)_mm_movemask_epi8(x);
        if (hit != 0) {
            unsigned at = (unsigned)__builtin_ctz(hit);
            if ((beyond & ((1u << at) - 1)) != 0) *high = true;
            return p + at;
        }
        if (beyond != 0) *high = true;
    }
#endif
    for (; p < end && !is_special(*p); p++)
        if ((unsigned char)*p >= 0x80) *high = true;
    return p;
}

/* Returns how many bytes it took. */
static size_t in_string(struct pl_json_scan *s, const char *p, const char *end) {
    bool high;
    const char *stop = span_end(p, end, &high);
    if (stop > p) {
        flush_surrogate(s);
        if (high || s->utf8_need != 0) check_utf8(s, p, (size_t)(stop - p));
        deliver(s, p, (size_t)(stop - p));
    }
    if (stop == end) return (size_t)(stop - p);
    if (*stop == '"') {
        end_string(s);
    } else if (*stop == '\\') {
        if (s->utf8_need != 0) {
            s->facts.bad_utf8 = true;
            s->utf8_need = 0;
        }
        s->state = ESCAPE;
    } else {
        fail(s);
    }
    return (size_t)(stop - p) + 1;
}

static void in_escape(struct pl_json_scan *s, char c) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
        s->unit = 0;
        s->unit_digits = 0;
        s->state = UNICODE;
        return;
    }
    const char *at = c != '\0' ? strchr(from, c) : NULL;
    if (at == NULL) {
        fail(s);
        return;
    }
    flush_surrogate(s);
    s->state = STRING;
    deliver(s, &to[at - from], 1);
}

static void deliver_point(struct pl_json_scan *s, uint32_t point) {
    char out[4];
    size_t len = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = len; i-- > 1; point >>= 6) out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(lead[len] | point);
    deliver(s, out, len);
}

static void in_unicode(struct pl_json_scan *s, char c) {
    unsigned digit = (unsigned char)c - (unsigned)'0';
    if (digit > 9) {
        digit = ((unsigned char)c | 32u) - (unsigned)'a' + 10;
        if (digit < 10 || digit > 15) {
            fail(s);
            return;
        }
    }
    s->unit = (uint16_t)((unsigned)s->unit << 4 | digit);
    if (++s->unit_digits < 4) return;
    s->state = STRING;
    bool high = s->unit >= 0xd800 && s->unit < 0xdc00, low = s->unit >= 0xdc00 && s->unit < 0xe000;
    if (low && s->high != 0) {
        uint32_t point = 0x10000 + ((uint32_t)(s->high - 0xd800) << 10) + (s->unit - 0xdc00u);
        s->high = 0;
        deliver_point(s, point);
        return;
    }
    flush_surrogate(s);
    if (high)
        s->high = s->unit;
    else
        deliver_point(s, low ? 0xfffd : s->unit);
}

/* --- numbers and words */

static void begin_scalar(struct pl_json_scan *s, char c) {
    pl_json_scan_value_begins(s);
    s->token_whole = 0;
    if (c == '-' || (c >= '0' && c <= '9')) {
        s->state = NUMBER;
        s->number_at = s->offset - 1;
        s->number_len = 1;
        s->number = (struct pl_json_number){ 0 };
        pl_json_number_char(&s->number, c);
    } else {
        s->state = WORD;
    }
    s->token[s->token_whole++] = c;
    pl_json_scan_raw(s, &c, 1);
}

static bool ends_scalar(char c) {
    return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void end_scalar(struct pl_json_scan *s) {
    static const char *const words[] = { "true", "false", "null", "NaN", "Infinity", "-Infinity" };
    if (s->state == NUMBER) {
        if (!pl_json_number_ends(&s->number)) {
            fail(s);
            return;
        }
        pl_json_scan_number_end(s);
        value_ended(s);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i]) != s->token_whole || memcmp(words[i], s->token, (size_t)s->token_whole) != 0)
            continue;
        pl_json_scan_word(s);
        value_ended(s);
        return;
    }
    fail(s);
}

static void in_scalar(struct pl_json_scan *s, char c) {
    pl_json_scan_raw(s, &c, 1);
    if (s->state == NUMBER) {
        if (c != 'I' || !pl_json_number_is_sign(&s->number)) {
            if (!pl_json_number_char(&s->number, c)) fail(s);
            if (s->number_len < UINT32_MAX) s->number_len++;
            return;
        }
        s->state = WORD; /* -Infinity; the sign is in `token` */
    }
    if (s->token_whole >= 9) {
        fail(s);
        return;
    }
    s->token[s->token_whole++] = c;
}

/* --- between the values */

static void begin_value(struct pl_json_scan *s, char c) {
    switch (c) {
    case '{':
    case '[':
        pl_json_scan_raw(s, &c, 1);
        open_container(s, c == '{');
        break;
    case '"':
        pl_json_scan_value_begins(s);
        begin_string(s, false);
        break;
    default:
        if (ends_scalar(c) || is_special(c) || c == ':')
            fail(s);
        else
            begin_scalar(s, c);
    }
}

static void after_value(struct pl_json_scan *s, char c) {
    pl_json_scan_raw(s, &c, 1);
    if (c == ',')
        s->state = pl_json_top(s)->object ? KEY : VALUE;
    else if (c == '}' || c == ']')
        close_container(s, c == '}');
    else
        fail(s);
    if (s->state == VALUE) s->key = pl_json_top(s)->key;
}

static void between(struct pl_json_scan *s, char c) {
    switch ((enum state)s->state) {
    case VALUE_OR_END:
        if (c == ']') {
            pl_json_scan_raw(s, &c, 1);
            close_container(s, false);
            return;
        }
        begin_value(s, c);
        return;
    case VALUE:
        if (s->offset == 1 && c == '\xef')
            s->state = MARK;
        else
            begin_value(s, c);
        return;
    case KEY_OR_END:
    case KEY:
        if (c == '}' && s->state == KEY_OR_END) {
            pl_json_scan_raw(s, &c, 1);
            close_container(s, true);
        } else if (c == '"') {
            begin_string(s, true);
        } else {
            fail(s);
        }
        return;
    case COLON:
        pl_json_scan_raw(s, &c, 1);
        s->state = VALUE;
        if (c != ':') fail(s);
        return;
    case AFTER:
        after_value(s, c);
        return;
    default:
        fail(s);
    }
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static void one(struct pl_json_scan *s, char c) {
    switch ((enum state)s->state) {
    case ESCAPE:
        in_escape(s, c);
        break;
    case UNICODE:
        in_unicode(s, c);
        break;
    case NUMBER:
    case WORD:
        if (!ends_scalar(c)) {
            in_scalar(s, c);
            break;
        }
        end_scalar(s);
        if (s->state == MALFORMED || is_space(c)) break;
        between(s, c);
        break;
    case MARK:
        if (c != (s->offset == 2 ? '\xbb' : '\xbf'))
            fail(s);
        else if (s->offset == 3)
            s->state = VALUE;
        break;
    default:
        if (!is_space(c)) between(s, c);
    }
}

/* As many of its characters as there are. */
static size_t in_number(struct pl_json_scan *s, const char *p, const char *end) {
    const char *from = p;
    while (p < end && pl_json_number_char(&s->number, *p)) {
        p++;
        /* The value of most is nobody's business: their digits are only passed over. */
        if (s->key == PL_KEY_OTHER && pl_json_number_takes_digits(&s->number))
            while (p < end && *p >= '0' && *p <= '9') p++;
    }
    size_t n = (size_t)(p - from);
    s->number_len = n < UINT32_MAX - s->number_len ? s->number_len + (uint32_t)n : UINT32_MAX;
    if (n > 0) pl_json_scan_raw(s, from, n);
    return n;
}

enum pl_json_state pl_json_scan_feed(struct pl_json_scan *s, const char *bytes, size_t len) {
    const char *p = bytes, *end = bytes + len;
    while (p < end && s->state < MALFORMED) {
        if (s->state == STRING) {
            size_t n = in_string(s, p, end);
            s->offset += n;
            p += n;
            continue;
        }
        if (s->state == NUMBER) {
            size_t n = in_number(s, p, end);
            s->offset += n;
            p += n;
        }
        if (p < end) {
            s->offset++;
            one(s, *p++);
        }
    }
    return s->state == MALFORMED ? PL_JSON_MALFORMED : s->state == TOO_DEEP ? PL_JSON_TOO_DEEP : PL_JSON_MORE;
}

enum pl_json_state pl_json_scan_end(struct pl_json_scan *s) {
    if ((s->state == NUMBER || s->state == WORD) && s->depth == 0) end_scalar(s);
    if (s->state == TOO_DEEP) return PL_JSON_TOO_DEEP;
    return s->state == DONE ? PL_JSON_WHOLE : PL_JSON_MALFORMED;
}
