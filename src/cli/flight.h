/* cli/flight.h - reads a flight record (docs/record.md) and tells what is in it as JSON documents: the one
 * source of `plimsoll report`, its page, and /report, /history and /timeline, which a child process answers.
 *
 * The file may be another machine's: it is opened for reading only, its schema is not trusted, and every list
 * has a bound. A figure that is not known is absent.
 */
#ifndef PL_CLI_FLIGHT_H
#define PL_CLI_FLIGHT_H
#include <jansson.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct pl_flight {
    sqlite3 *db;
    char place[512];
    void *image; /* of one that was handed over in memory */
};
/* `place`: a file, or fd:N for a copy of one in memory. Not a record: PL_E_CONFIG. */
bool pl_flight_open(struct pl_flight *f, const char *place, struct pl_err *err);
void pl_flight_close(struct pl_flight *f);

/* What is asked. Wall milliseconds; 0: not given. */
struct pl_flight_wish {
    uint64_t from_ms, to_ms; /* neither: the minute before the last death */
    uint64_t step_ms;        /* history; 0: a few hundred points */
    const char *service;     /* NULL: all */
    uint64_t now_ms;
};
/* Documents, owned by the caller (json_decref). NULL and err: the record cannot be read. A report without a
 * death has no "death". */
json_t *pl_flight_report(struct pl_flight *f, const struct pl_flight_wish *w, struct pl_err *err);
json_t *pl_flight_history(struct pl_flight *f, const struct pl_flight_wish *w, struct pl_err *err);
json_t *pl_flight_timeline(struct pl_flight *f, const struct pl_flight_wish *w, struct pl_err *err);

/* A time as people write it: RFC 3339 (2026-11-30T14:02:11Z, the zone may be left out: UTC), or how long ago
 * (10m). */
bool pl_flight_time(const char *text, uint64_t now_ms, uint64_t *out, struct pl_err *err);
#endif
