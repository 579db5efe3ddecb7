/* crew/look.h - reading the crew for people: where a start is, how old a proof is, what a worker printed.
 * Nothing here changes anything. */
#ifndef PL_CREW_LOOK_H
#define PL_CREW_LOOK_H
#include "crew/crew.h"
#include "crew/describe.h"
#include "ledger/ledger.h"
#include "sample/page.h"

/* Where the furthest start of a service is: phase of surface.md 8.7, ms since its spawn, and words. phase
 * NULL: none. */
void pl_look_start(const struct pl_service *s, uint64_t now_ms, const char **phase, uint64_t *since_ms,
                   char *detail, size_t room);
uint32_t pl_look_attempt(const struct pl_service *s); /* 1 = the first */
/* How long no worker of it has shown progress while it should have; 0: it has, or nothing runs. */
uint64_t pl_look_silent_ms(const struct pl_service *s);
uint64_t pl_look_proof_age_ms(const struct pl_service *s, uint64_t now_ms); /* UINT64_MAX: none */
bool pl_look_wanted(const struct pl_service *s); /* a dependency that somebody still wants or uses */
const struct pl_description *pl_look_description(const struct pl_service *s);

/* "service.py:41 CACHE", who holds what a verdict was about; NULL: not known. Borrowed. */
const char *pl_look_holder(const struct pl_worker *w);

/* How it stands with the explanation that a verdict has asked for. False: none was. Texts are borrowed. */
struct pl_look_explained {
    const char
        *state; /* "under_way", "waits" (to be looked at again), "done", "incomplete", "refused", "failed" */
    const char *reason; /* why the last look came to nothing: "incomplete" (its time was over), "silent",
                         * "running", "busy", ...; NULL: it did not */
    uint32_t tries;
};
bool pl_look_explained(const struct pl_worker *w, struct pl_look_explained *out);

/* {route: "sync", "async" or "off: why"} as JSON text: which routes are in the fast lane; NULL: not told.
 * Borrowed. */
const char *pl_look_lane(const struct pl_worker *w);

/* One worker as a table row; times in ms since its spawn, 0 = not reached. */
struct pl_look_worker {
    uint64_t age_ms, imported_ms, loaded_ms, socket_ms, warm_ms, ready_ms, first_request_us, first_us,
        settled_us;
    uint64_t requests; /* a dependency's are counted on its page */
    uint32_t in_flight, zombies, tasks, warmup_requests;
    bool warm;
    const char *source; /* of the warm-up */
    const char *way;    /* "exec", "standby", "fork" */
};
void pl_look_worker(struct pl_worker *w, uint64_t now_ms, struct pl_look_worker *out);

struct pl_look_death {
    char id[32];
    uint64_t wall_ms;
    const char *cause, *sentence;
};
/* Why this worker ended, once it has exited: name of the cause and, in *sentence, words for people. Borrowed
 * from it. */
const char *pl_look_cause(const struct pl_worker *w, const char **sentence);
bool pl_look_last_death(const struct pl_service *s, struct pl_look_death *out);

struct pl_look_replacement {
    const char *mode; /* the next one's, or that of the one under way */
    bool planned;     /* it should be done: `reason`, `slot`, and `held_by` if it is not done now */
    bool under_way;
    const char *reason, *held_by; /* held_by NULL: nothing holds it */
    uint32_t slot;
    bool gap_known;
    uint64_t expected_gap_ms; /* nobody will serve for so long; of one under way: still */
    uint32_t in_hour, max_per_hour;
};
void pl_look_replacement(const struct pl_service *s, uint64_t now_ms, struct pl_look_replacement *out);
bool pl_look_is_silent(const struct pl_worker *w); /* no sign of life for liveness.silent_after */
/* What its last start has taken of host memory, against our memory group's limit and what would be enough for
 * all of us. Bytes; 0: not known. False: none was measured. */
struct pl_look_start_memory {
    uint64_t rss, pss, anon; /* peaks until READY; anon: what cannot be taken back */
    uint64_t limit, suggested;
};
bool pl_look_start_memory(const struct pl_service *s, struct pl_look_start_memory *out);
/* A Python service's zygote; times in ms, texts borrowed. False: it is none that could have one. */
struct pl_look_zygote {
    const char *state; /* "off", "waiting", "starting", "ready", "refused" */
    const char *reason, *module;
    pid_t pid;
    uint32_t modules;
    uint64_t pss, age_ms; /* pss 0: not known; its standby included */
};
bool pl_look_zygote(const struct pl_service *s, uint64_t now_ms, struct pl_look_zygote *out);
struct pl_look_host {
    uint64_t rss, limit; /* limit 0: none */
    uint64_t pss;        /* 0: not known */
};
bool pl_look_host(const struct pl_worker *w, struct pl_look_host *out); /* false: not known */
/* Whether the host memory of such workers is read, one that has just begun included, which has none yet. */
bool pl_look_reads_host(const struct pl_service *s);
enum { PL_LOOK_DEVICES = 16 };
/* Device memory as the worker's page tells it. */
struct pl_look_device {
    char gpu[48];                        /* index of the machine, or UUID */
    char scope[56];                      /* "gpu0", or a UUID */
    uint64_t allocated, reserved, limit; /* limit: of the device; 0: not known */
    uint64_t peak;                       /* largest of the last minute */
    uint64_t stuck;                      /* reserved and free, beside live memory: it cannot be given back */
};
bool pl_look_device(struct pl_worker *w, uint32_t i, uint64_t now_ms, struct pl_look_device *out);

/* The same facts the books are kept from, for whoever keeps books of its own (`plimsoll soak`): end records
 * from number *from on, at most `room` (see pl_page_take_ends), the text of a tag, and what no record says.
 */
size_t pl_look_rows(struct pl_worker *w, uint64_t *from, struct pl_page_record *out, size_t room,
                    uint64_t *lost);
uint64_t pl_look_ended(struct pl_worker *w); /* number of the next end record */
bool pl_look_tag(struct pl_worker *w, uint16_t tag, char text[PL_PAGE_TAG_ROOM]);
void pl_look_sample(struct pl_worker *w, uint64_t now_ms, struct pl_ledger_sample *out);

/* What is said of a worker's memory. Seconds and requests that are not known are HUGE_VAL. */
struct pl_look_verdict {
    const char *word, *text, *shape; /* shape NULL: none */
    bool bad, confirmed;
    char scope[56];
    double bytes_per_request, low, high; /* 0: nothing grows */
    uint64_t since_wall_ms, since_requests, requests, missing;
    double growth_bytes;
    uint32_t copies, again;
    char tag[PL_PAGE_TAG_ROOM]; /* "": nobody is to blame */
    double share, failed_share;
    double forecast_s, forecast_low_s, forecast_high_s, forecast_requests;
};
bool pl_look_verdict(struct pl_worker *w, struct pl_look_verdict *out); /* false: no books */

#define PL_LOOK_UNKNOWN UINT64_MAX
struct pl_look_gpu {
    uint32_t gpu;
    const char *uuid, *name;
    uint64_t total, used, foreign, utilization_pct; /* PL_LOOK_UNKNOWN */
    bool in_service;
    uint64_t sample_age_ms;
};
size_t pl_look_gpus(const struct pl_crew *c, uint64_t now_ms, struct pl_look_gpu *out, size_t room);

struct pl_tail; /* crew/tail.h */
/* Output of a slot's worker (0: of all of them as it came), or of the last generation that is gone. NULL:
 * none. */
struct pl_tail *pl_look_tail(const struct pl_service *s, uint32_t slot, bool previous);
/* What it runs, as people write it: import string, command line (cut to `room`), URL. Borrowed or `out`. */
const char *pl_look_target(const struct pl_service *s, char *out, size_t room);
const char *pl_look_engine(const struct pl_service *s);
#endif
