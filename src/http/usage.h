/* http/usage.h - what a reply says it used and whether it is whole, read in passing: `usage`, `choices` and
 * `error` of a JSON body or of any event of a stream of events.
 *
 * Events are read as the HTML standard says (9.2.6): data lines of one event belong together, whatever ends
 * the lines. Nothing is kept; pieces may be cut anywhere.
 */
#ifndef PL_HTTP_USAGE_H
#define PL_HTTP_USAGE_H
#include "http/json_scan.h"

struct pl_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens; /* the largest that was told */
    bool told;                                                /* there was a usage */
    bool error;                                               /* the reply says that it failed */
    /* Whether the answer is whole, as OpenAI's completions tell it. */
    uint64_t pieces;            /* events, or documents, with something of an answer: fewer than its tokens */
    uint64_t answers, finished; /* answers that have begun; those that came to their end */
    bool aborted;               /* the engine gave one up */
    bool done;                  /* data: [DONE] */
    uint64_t ended;             /* events */
    bool only_usage;            /* the last of them tells what was used, and nothing else */
    char message[PL_JSON_ERROR_MOST + 1]; /* of the error; "" = none */
    /* inside */
    struct pl_json_scan *scan; /* borrowed; NULL: not begun */
    bool events, has_data, skip_feed;
    uint8_t field; /* bytes of "data:" matched; past it, in the value or in another field */
    uint8_t end;   /* bytes of "[DONE]" matched by the event's data; past it, it is another */
};

/* `scan` is reset and used until the end. `events`: text/event-stream. */
void pl_usage_begin(struct pl_usage *u, struct pl_json_scan *scan, bool events);
void pl_usage_feed(struct pl_usage *u, const char *bytes, size_t len);
void pl_usage_end(struct pl_usage *u); /* no more comes */

/* What comes next begins an event. */
bool pl_usage_between_events(const struct pl_usage *u);
/* So far nothing says that the answer failed: no error, nothing given up, no [DONE] before every answer had
 * its end. */
bool pl_usage_is_good(const struct pl_usage *u);
/* After the last byte: every answer that began has its end, and a stream has said [DONE]. */
bool pl_usage_is_whole(const struct pl_usage *u);
#endif
