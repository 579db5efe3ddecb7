/* base/access.h - the access line: the fields BentoML logs, then ours (request id, queue time, outcome).
 *
 * On a terminal it is a one-liner that reads like BentoML's; elsewhere it is the event `access` with typed
 * fields. Never a query, a body or a header value that could be a secret: of the target only the path is
 * written.
 */
#ifndef PL_BASE_ACCESS_H
#define PL_BASE_ACCESS_H
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

/* Bytes of a head, borrowed for the call; at = NULL: the message did not have it. */
struct pl_access_text {
    const char *at;
    size_t len;
};

/* What is not known is left out of the line: NULL texts, negative lengths and times, worker, generation,
 * id, tokens and bytes 0. */
struct pl_access {
    const char *remote; /* "10.0.0.7:51234", "unix" */
    const char *scheme; /* "http", "https" */
    struct pl_access_text method;
    struct pl_access_text target; /* as sent; cut at its query here */
    struct pl_access_text request_type, response_type;
    int64_t request_length, response_length; /* payload bytes that went through */
    struct pl_access_text trace_id, span_id; /* hexadecimal, out of traceparent */
    struct pl_access_text request_id;        /* x-request-id, kept or made */
    uint64_t id;                             /* ours, 16 hex digits */
    unsigned status;                         /* 0: the client left before one was sent */
    int64_t duration_us, queue_us, first_byte_us;
    const char *service;
    const char *outcome; /* ok client_error server_error refused rejected timeout stalled worker_died cut
                            client_gone */
    const char *reason;  /* why, when outcome is not ok: a reason of reasons.def or a cause of death */
    const char *replay;  /* not_sent, not_started: it went to a second worker */
    uint32_t worker;     /* slot */
    uint64_t generation;
    const char *key;                      /* name of the API key */
    const char *model;                    /* as the request named it */
    uint64_t input_tokens, output_tokens; /* input: as told by the reply, else as estimated */
    uint64_t charged_bytes;               /* of memory.budget */
};

void pl_log_access(struct pl_logger *l, const struct pl_access *a);
/* The terminal's one-liner alone, pure. Ends with a newline. */
void pl_access_format(struct pl_buf *out, bool color, uint64_t wall_ms, const struct pl_access *a);
#endif
