/* ledger/tags.h - which kind of request leaves memory behind.
 *
 * A tag is what the caller calls one: endpoint, shape bucket; whether the request failed is kept apart, since
 * the exception path is a common leak. While requests come one by one, the change between two quiet points
 * belongs to the tag that ran between them. When they overlap, the change of the floor from one window of
 * requests to the next is regressed on how many of each tag the window held: recursive least squares over the
 * 32 most frequent tags (Haykin, Adaptive Filter Theory, ch. 10; no forgetting). All tags are tested at once:
 * Benjamini and Hochberg (1995), false discovery rate 1 %. More than 64 tags: the rest is one, `other`.
 */
#ifndef PL_LEDGER_TAGS_H
#define PL_LEDGER_TAGS_H
#include <stdbool.h>
#include <stdint.h>

enum {
    PL_TAGS_MAX = 64,
    PL_TAGS_FITTED = 32,
    PL_TAGS_WINDOW = 16,      /* requests of one equation */
    PL_TAG_OTHER = UINT16_MAX /* what the rest is called */
};

struct pl_tag {
    uint16_t name; /* the caller's, or PL_TAG_OTHER */
    bool failed;
    uint64_t requests;
    uint64_t peak_bytes; /* largest exact peak above what was there before */
    /* one by one */
    uint64_t quiet;       /* changes that were its own */
    double sum, squares;  /* of them */
    uint32_t since_floor; /* requests since the floor of the last window */
    uint32_t at_floor;    /* so many of them up to the lowest of this one */
};

/* Zero it before the first use; pl_tags_start before the first row. About 15 KiB. */
struct pl_tags {
    struct pl_tag tag[PL_TAGS_MAX + 1]; /* the last one is `other` */
    uint32_t count;                     /* without `other` */
    uint32_t last;                      /* index looked up last */
    uint64_t requests, quiet;
    /* regression: tag i < PL_TAGS_FITTED is column i; all others share the last one */
    uint32_t fitted;
    double p[PL_TAGS_FITTED][PL_TAGS_FITTED], per_request[PL_TAGS_FITTED];
    double rest; /* sum of squares that is left over */
    uint64_t windows;
    double window_floor, last_floor; /* bytes */
    uint32_t window_filled;
    bool has_floor;
};

void pl_tags_start(struct pl_tags *t);
/* A request of this tag ended with `bytes` allocated. `own`: the change since the request before it, when
 * both ends were quiet; otherwise pass `quiet` false. `peak_bytes` 0: not known. */
void pl_tags_add(struct pl_tags *t, uint16_t name, bool failed, double bytes, bool quiet, double own,
                 uint64_t peak_bytes);
/* A request that did not tell what it left: it counts among those of the window. */
void pl_tags_count(struct pl_tags *t, uint16_t name, bool failed);
/* Requests were lost, or counters began anew: the window that is open says nothing. */
void pl_tags_broken(struct pl_tags *t);

struct pl_tag_share {
    uint16_t name;
    bool failed;
    bool certain;                        /* significant among all that were tested */
    bool separable;                      /* false: it always ran together with another one */
    double bytes_per_request, low, high; /* 95 % */
    double share;                        /* of the growth, 0...1 */
};
enum { PL_TAG_SHARES = 4 };
struct pl_tag_report {
    bool exact;     /* one by one, not by regression */
    uint32_t count; /* shares, largest first */
    struct pl_tag_share of[PL_TAG_SHARES];
    double failed_share; /* of the growth, that comes from requests that failed */
};
/* `bytes_per_request`: what the whole series grows by. A tag that makes less than a twentieth of it is noise;
 * without growth nobody is named. */
void pl_tags_report(const struct pl_tags *t, double bytes_per_request, struct pl_tag_report *out);
#endif
