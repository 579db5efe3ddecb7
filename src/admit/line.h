/* admit/line.h - the queue: everybody in order of arrival, and whose turn it is among flows.
 *
 * A flow is whatever shares must be even between: a key, an address. Start-time fair queuing (Goyal, Vin and
 * Cheng, 1996): a request begins where its flow's last one ends in virtual time, and the smallest begin goes
 * first; so each flow that waits gets an equal share of the work, and within a flow who came first goes
 * first. Work is a request's cost in bytes, or one. With a single flow this is a plain queue. Of a higher
 * rank everybody goes before those of a lower one, and shares are even within a rank. Not for other rooms.
 */
#ifndef PL_ADMIT_LINE_H
#define PL_ADMIT_LINE_H
#include "admit/admit.h"

/* Its turn, and its flow's next; for everybody who is let in, also without waiting. */
void pl_line_stamp(struct pl_admit *a, struct pl_admit_entry *e);
/* Virtual time goes on to the one that runs now. */
void pl_line_served(struct pl_admit *a, const struct pl_admit_entry *e);
/* To its place by arrival: usually the end. */
void pl_line_put(struct pl_admit *a, struct pl_admit_entry *e);
void pl_line_take(struct pl_admit *a, struct pl_admit_entry *e);
/* Whose turn it is, or NULL. */
struct pl_admit_entry *pl_line_first(const struct pl_admit *a);
#endif
