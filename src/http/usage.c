#include "http/usage.h"

#include <string.h>

enum { SEARCH, COLON, OPEN, INSIDE, AFTER_KEY, NUMBER };
enum { TOKENS_MOST = 1000000000 }; /* of one reply; more is no number of tokens */

static const char wanted[] = "\"usage\"";

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void search_on(struct pl_http_usage *u, char c) {
    u->matched = c == wanted[u->matched] ? (uint8_t)(u->matched + 1) : (uint8_t)(c == '"');
    u->state = SEARCH;
    if (u->matched < sizeof wanted - 1) return;
    u->matched = 0;
    u->state = COLON;
}

static void open_object(struct pl_http_usage *u) {
    u->state = INSIDE;
    u->depth = 1;
    u->total = u->parts = 0;
    u->has_total = u->has_parts = u->in_string = u->escaped = false;
}

static void close_object(struct pl_http_usage *u) {
    u->state = SEARCH;
    if (!u->has_total && !u->has_parts) return;
    u->known = true;
    u->tokens = u->has_total ? u->total : u->parts;
}

static bool word_is(const struct pl_http_usage *u, const char *text) {
    return strlen(text) == u->word_len && memcmp(u->word, text, u->word_len) == 0;
}

static void end_number(struct pl_http_usage *u) {
    u->state = INSIDE;
    if (word_is(u, "total_tokens")) {
        u->total = u->value;
        u->has_total = true;
    } else if (word_is(u, "prompt_tokens") || word_is(u, "completion_tokens") || word_is(u, "input_tokens") ||
               word_is(u, "output_tokens")) {
        u->parts += u->value;
        u->has_parts = true;
    }
}

static void string_byte(struct pl_http_usage *u, char c) {
    if (u->escaped) {
        u->escaped = false;
        u->word_len = PL_USAGE_WORD; /* none of the words that are looked for */
    } else if (c == '\\') {
        u->escaped = true;
    } else if (c == '"') {
        u->in_string = false;
        u->state = u->depth == 1 ? AFTER_KEY : INSIDE;
    } else if (u->word_len < PL_USAGE_WORD) {
        u->word[u->word_len++] = c;
    }
}

static void inside(struct pl_http_usage *u, char c) {
    if (u->in_string) {
        string_byte(u, c);
    } else if (c == '"') {
        u->in_string = true;
        u->word_len = 0;
    } else if (c == '{' || c == '[') {
        if (++u->depth > PL_USAGE_DEPTH) u->state = SEARCH;
    } else if ((c == '}' || c == ']') && --u->depth == 0) {
        close_object(u);
    }
}

static void step(struct pl_http_usage *u, char c) {
    switch (u->state) {
    case SEARCH:
        search_on(u, c);
        break;
    case COLON:
        if (c == ':')
            u->state = OPEN;
        else if (!is_space(c))
            search_on(u, c);
        break;
    case OPEN:
        if (c == '{')
            open_object(u);
        else if (!is_space(c))
            search_on(u, c);
        break;
    case AFTER_KEY: /* ": 12", or the string was a value */
        if (c >= '0' && c <= '9') {
            u->state = NUMBER;
            u->value = (uint64_t)(c - '0');
        } else if (c != ':' && !is_space(c)) {
            u->state = INSIDE;
            inside(u, c);
        }
        break;
    case NUMBER:
        if (c >= '0' && c <= '9') {
            if (u->value < TOKENS_MOST) u->value = u->value * 10 + (uint64_t)(c - '0');
            break;
        }
        end_number(u);
        inside(u, c);
        break;
    case INSIDE:
    default:
        inside(u, c);
    }
}

void pl_http_usage_feed(struct pl_http_usage *u, const char *bytes, size_t len) {
    const char *end = bytes + len;
    while (bytes < end) {
        if (u->state == SEARCH && u->matched == 0) {
            bytes = memchr(bytes, '"', (size_t)(end - bytes));
            if (bytes == NULL) return;
        }
        step(u, *bytes++);
    }
}
