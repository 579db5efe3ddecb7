/* http/usage.h - what a reply says it used, read in passing: `usage` of a JSON body or of any event of a
 * stream of events.
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
    /* inside */
    struct pl_json_scan *scan; /* borrowed; NULL: not begun */
    bool events, has_data, skip_feed;
    uint8_t field; /* bytes of "data:" matched; past it, in the value or in another field */
};

/* `scan` is reset and used until the end. `events`: text/event-stream. */
void pl_usage_begin(struct pl_usage *u, struct pl_json_scan *scan, bool events);
void pl_usage_feed(struct pl_usage *u, const char *bytes, size_t len);
void pl_usage_end(struct pl_usage *u); /* no more comes */
#endif
