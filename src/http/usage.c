#include "http/usage.h"

#include <string.h>

static const char end_word[] = "[DONE]";
enum { END_WHOLE = sizeof end_word - 1, END_OTHER };

enum { FIELD_WHOLE = 5, IN_VALUE, IN_OTHER }; /* "data:"; then its value, or a line of another field */

void pl_usage_begin(struct pl_usage *u, struct pl_json_scan *scan, bool events) {
    *u = (struct pl_usage){ .scan = scan, .events = events };
    pl_json_scan_reset(scan);
}

static void larger(uint64_t *into, uint64_t value) {
    if (value > *into) *into = value;
}

/* A document is complete. One that is no JSON says nothing: [DONE], or what we do not know. */
static void take(struct pl_usage *u) {
    enum pl_json_state state = pl_json_scan_end(u->scan);
    const struct pl_json_facts *f = pl_json_scan_facts(u->scan);
    u->only_usage = state == PL_JSON_WHOLE && f->has_usage && f->choices == 0 && !f->has_error;
    if (state != PL_JSON_WHOLE) return;
    if (f->has_error && !u->error) memcpy(u->message, f->error_message, sizeof u->message);
    u->error |= f->has_error;
    u->aborted |= f->aborted > 0;
    u->finished += f->finished;
    if (f->choices > 0) {
        u->pieces++;
        larger(&u->answers, f->choice_index + 1 > f->choices ? f->choice_index + 1 : f->choices);
    }
    if (!f->has_usage) return;
    u->told = true;
    larger(&u->prompt_tokens, f->prompt_tokens);
    larger(&u->completion_tokens, f->completion_tokens);
    larger(&u->cached_tokens, f->cached_tokens);
}

static void end_event(struct pl_usage *u) {
    if (!u->has_data) return;
    u->ended++;
    u->only_usage = false;
    if (u->end == END_WHOLE)
        u->done = true;
    else
        take(u);
    pl_json_scan_reset(u->scan);
    u->has_data = false;
    u->end = 0;
}

/* Some of the data of an event. */
static void feed_data(struct pl_usage *u, const char *at, size_t len) {
    for (size_t i = 0; i < len && u->end != END_OTHER; i++)
        u->end = u->end < END_WHOLE && at[i] == end_word[u->end] ? (uint8_t)(u->end + 1) : END_OTHER;
    pl_json_scan_feed(u->scan, at, len);
}

static void end_line(struct pl_usage *u) {
    if (u->field == 0) end_event(u); /* an empty line */
    u->field = 0;
}

/* One byte of a line before its value. */
static void in_name(struct pl_usage *u, char c) {
    if (u->field < FIELD_WHOLE) {
        u->field = c == "data:"[u->field] ? (uint8_t)(u->field + 1) : IN_OTHER;
        if (u->field != FIELD_WHOLE) return;
        if (u->has_data) feed_data(u, "\n", 1);
        u->has_data = true;
        return;
    }
    u->field = IN_VALUE;
    if (c != ' ') feed_data(u, &c, 1);
}

static const char *line_end(const char *p, const char *end) {
    while (p < end && *p != '\n' && *p != '\r') p++;
    return p;
}

static void feed_events(struct pl_usage *u, const char *p, const char *end) {
    while (p < end) {
        if (*p == '\n' && u->skip_feed) { /* of CRLF, whose CR ended the line */
            u->skip_feed = false;
            p++;
            continue;
        }
        u->skip_feed = *p == '\r';
        if (*p == '\n' || *p == '\r') {
            end_line(u);
            p++;
        } else if (u->field <= FIELD_WHOLE) {
            in_name(u, *p++);
        } else {
            const char *stop = line_end(p, end);
            if (u->field == IN_VALUE) feed_data(u, p, (size_t)(stop - p));
            p = stop;
        }
    }
}

void pl_usage_feed(struct pl_usage *u, const char *bytes, size_t len) {
    if (u->events)
        feed_events(u, bytes, bytes + len);
    else
        pl_json_scan_feed(u->scan, bytes, len);
}

void pl_usage_end(struct pl_usage *u) {
    if (u->events) /* an event without its empty line is none (9.2.6), but what it told is no less true */
        end_event(u);
    else
        take(u);
    u->scan = NULL;
}

bool pl_usage_between_events(const struct pl_usage *u) { return !u->has_data && u->field == 0; }

static bool all_ended(const struct pl_usage *u) { return u->answers > 0 && u->finished >= u->answers; }

bool pl_usage_is_good(const struct pl_usage *u) {
    return !u->error && !u->aborted && (!u->done || all_ended(u));
}

bool pl_usage_is_whole(const struct pl_usage *u) {
    return pl_usage_is_good(u) && all_ended(u) && (u->done || !u->events);
}
