/* cli/helm.h - which of two mains is at the helm: an upgrade, from both sides (docs/upgrade.md).
 *
 *   old main                                  new main, the candidate
 *   ordered: nothing of long breath begins     HELLO, reads and makes everything that can fail
 *   STAND DOWN: stops accepting, at rest       TAKE, waits
 *   HELM has moved: finishes what is open      LIST, adopts, accepts
 *   nothing is left, or upgrade.drain is over: BYE
 *
 * Whatever goes wrong before the helm has moved (no such program, one that ends, hangs, or does not know the
 * configuration) leaves the old main at the helm, as it was: it is told UPGRADED with an error.
 */
#ifndef PL_CLI_HELM_H
#define PL_CLI_HELM_H
#include "admin/admin.h"
#include "crew/link.h"

struct pl_helm_options {
    struct pl_app *app;
    struct pl_link *link;
    struct pl_crew *crew;
    struct pl_gateway *gateway;
    struct pl_admin *admin;
    struct pl_timers *timers;
    const char *program; /* ours, absolute; "": not known */
    void (*action_done)(const char *action, int exit_status, const char *message);
    void (*left)(size_t cut); /* the helm is another's, and nothing of ours is left: the process ends */
};
void pl_helm_init(const struct pl_helm_options *o);

/* The candidate's side: TAKE, and until the helm is ours; `alive` is called meanwhile, a few times a second.
 * The link must not run yet. */
bool pl_helm_take(struct pl_link *l, void (*alive)(void), struct pl_err *err);
/* Why it does not take the helm: the old main hears it. */
void pl_helm_decline(struct pl_link *l, int status, const char *words);

/* The old main's side. False: not now, with the reason; nothing has changed. */
bool pl_helm_order(const struct pl_upgrade_wish *wish, const char *action, struct pl_err *err);
/* News of the keeper: HELM, STAND_DOWN, UPGRADED. */
void pl_helm_news(const struct pl_wire_message *m);
/* The instance stops, and we have left: idle connections close now. */
void pl_helm_hurry(void);
bool pl_helm_ours(void);      /* until it has moved */
bool pl_helm_under_way(void); /* an upgrade was ordered and is not decided */
#endif
