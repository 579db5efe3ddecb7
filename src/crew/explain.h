/* crew/explain.h - who holds a worker's memory: asked over its control socket (python/plimsoll/explain.py),
 * by an operator or on a verdict.
 *
 * One explanation is two looks, so that growth is told from a full cache: the second comes after `again_ms`,
 * or after PL_EXPLAIN_REQUESTS requests, whatever is first. An idle worker is preferred, and one that is on
 * its way out before all others. The report is kept in state_dir/explain, snapshots in state_dir/snapshots.
 */
#ifndef PL_CREW_EXPLAIN_H
#define PL_CREW_EXPLAIN_H
#include "crew/crew.h"

enum { PL_EXPLAIN_REQUESTS = 300, PL_EXPLAIN_AGAIN_MS = 60000, PL_EXPLAIN_DEADLINE_MS = 10000 };

enum pl_explain_history { PL_HISTORY_AS_IS, PL_HISTORY_OFF, PL_HISTORY_ON };

/* Strings are borrowed during the call. */
struct pl_explain_wish {
    uint32_t slot;    /* 0: chosen */
    const char *mode; /* "auto", "fork", "inline"; NULL: as configured */
    uint64_t deadline_ms;
    uint64_t again_ms; /* 0: one look */
    bool force;        /* beside running requests, and over the limit of looks */
    enum pl_explain_history history;
    const char *action; /* names it for on_report; NULL: nobody waits */
    const char *why;    /* "operator", or the verdict */
};
/* False: no such worker, none that can be asked, or one is under way. */
bool pl_service_explain(struct pl_service *s, const struct pl_explain_wish *wish, struct pl_err *err);
/* Saves a memory snapshot of a worker (0: the one that explain would choose). on_report tells where. */
bool pl_service_snapshot(struct pl_service *s, uint32_t slot, const char *action, struct pl_err *err);

/* A verdict asks who it is: looked at once, with the memory history on for the time in between, when the
 * worker has a quiet moment. Called again for the same verdict it does nothing, until pl_explain_settled. */
void pl_explain_propose(struct pl_worker *w, const char *why);
/* That verdict is over. Another's is left alone. */
void pl_explain_settled(struct pl_worker *w, const char *why);
#endif
