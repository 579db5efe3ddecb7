/* gateway/inspect.h - a request's body held against the service's limits while it comes, before a worker sees
 * a byte of it. */
#ifndef PL_GATEWAY_INSPECT_H
#define PL_GATEWAY_INSPECT_H
#include "admit/tokens.h"
#include "gateway/inside.h"
#include "http/json_scan.h"
#include "http/multipart.h"
#include "http/usage.h"

enum pl_inspect_kind {
    PL_INSPECT_OPEN, /* its first byte will tell */
    PL_INSPECT_JSON,
    PL_INSPECT_IMAGE,
    PL_INSPECT_FORM,
    PL_INSPECT_DONE /* nothing more to find; the facts stay */
};

struct pl_inspect {
    struct pl_inspect *next; /* of those that are unused */
    uint8_t kind;            /* enum pl_inspect_kind */
    bool said_json;          /* by its content type or its route */
    bool said_image;         /* by its content type */
    bool strict;             /* what cannot be read cannot be held against a limit: refused */
    bool told;               /* only observed: it has been told */
    bool json;               /* the body was JSON from its begin to its end */
    bool counts;             /* its tokens matter */
    uint64_t out_charged;    /* tokens of its answers that are charged; 0: none */
    bool whole;              /* its reply must say that it is complete: whole.c */
    bool reading;            /* `usage` reads the reply */
    /* within one read of the reply */
    const char *good_to;               /* end of the last piece that is good */
    const char *strip_from, *strip_to; /* a chunk that the client did not ask for; NULL: there is none */
    bool injected;                     /* usage was asked for in the client's place */
    bool piece_begins_event;
    uint64_t ended_before;       /* events before the piece */
    uint64_t clamped;            /* max_tokens was lowered to it; 0: it was not */
    struct pl_json_scan *scan;   /* of the body, then of the reply */
    struct pl_json_facts asked;  /* of a JSON body that is whole */
    struct pl_token_count input; /* of it, if `counts` */
    struct pl_usage usage;       /* of the reply */
    union {
        struct pl_image image;
        struct pl_multipart form;
    } at;
};

/* The head is here. False: it was refused, and the request is gone. */
bool pl_inspect_begin(struct pl_request *r);
/* A piece of the body, or its end. False: as above. */
bool pl_inspect_piece(struct pl_request *r, const char *bytes, size_t len);
bool pl_inspect_end(struct pl_request *r);
void pl_inspect_moved(struct pl_request *r); /* it has another gate now */
/* What is still to come cannot change the judgement: the body need not be kept for it. */
bool pl_inspect_settled(const struct pl_request *r);
void pl_inspect_free(struct pl_request *r);
/* Gives back what requests have left for those to come. */
void pl_inspects_free(struct pl_gateway *g);
/* Writes `limit` over the digits of max_tokens. False: they cannot be changed in place. */
bool pl_inspect_clamp(struct pl_request *r, uint64_t limit);
/* False: refused. A service that is only observed takes it, and is not looked at any further. */
bool pl_inspect_judge(struct pl_request *r, enum pl_reason reason, const char *code, const char *text);

/* tokens.c: what a prompt will be in tokens, learnt from what replies say */
bool pl_tokens_wanted(const struct pl_gate *gate, const struct pl_http_head *h);
bool pl_tokens_arrive(struct pl_request *r); /* false: over limits.input_tokens, and gone */
void pl_tokens_expect(struct pl_request *r); /* it goes to a worker: its reply will be read */
void pl_tokens_reply(struct pl_request *r, const char *bytes, size_t len);
void pl_tokens_read_end(struct pl_request *r); /* its last byte was read; may come again */
void pl_tokens_done(struct pl_request *r);     /* the reply is complete */

/* dialect.c: openai.usage: inject. Asks for the usage of a stream where the client has not. */
void pl_dialect_inject(struct pl_request *r);
/* The chunk of `p` with the usage that was asked for so, and its place in the raw bytes. False: none. */
bool pl_dialect_strip(const struct pl_request *r, const struct pl_upstream_part *p, size_t *from, size_t *to);

/* whole.c: does the reply say that it is complete? */
enum pl_whole {
    PL_WHOLE_SO_FAR,   /* nothing speaks against it */
    PL_WHOLE_ERROR,    /* the engine tells of an error */
    PL_WHOLE_DEAD,     /* of its own end */
    PL_WHOLE_GIVEN_UP, /* it ends, or goes on, without having been finished */
};
bool pl_whole_wanted(const struct pl_gate *gate, const struct pl_http_head *h);
bool pl_whole_watches(const struct pl_request *r);
void pl_whole_before(struct pl_request *r);                               /* a piece will be read */
void pl_whole_piece(struct pl_request *r, const char *bytes, size_t len); /* was read */
void pl_whole_read_over(struct pl_request *r); /* the bytes of the pieces are no more */
enum pl_whole pl_whole_judge(struct pl_request *r, bool end);
bool pl_whole_is_dead(const struct pl_request *r, const char *reply, size_t len); /* a 500 of a dead engine */
const char *pl_whole_words(const struct pl_request *r, enum pl_whole w);
/* The request is over, or will be sent again. `p`: what was just read; NULL: nothing of it may go out. */
void pl_whole_fail(struct pl_request *r, const struct pl_upstream_part *p, enum pl_whole w);
#endif
