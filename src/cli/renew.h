/* cli/renew.h - a reload inside main: SIGHUP, `plimsoll reload`, or the watched folder.
 *
 * All or nothing. File, environment and flags are read again beside the loop, as `plimsoll serve` read them;
 * the difference is judged key by key. A key that needs a restart, or any error, rejects the whole with its
 * lines. Live keys act at once; services with changed generation keys are replaced, and if a successor does
 * not become ready the old configuration comes back, everywhere.
 */
#ifndef PL_CLI_RENEW_H
#define PL_CLI_RENEW_H
#include "crew/crew.h"
#include "gateway/gateway.h"

struct pl_renew_options {
    struct pl_app *app;
    struct pl_crew *crew;
    struct pl_gateway *gateway;
    int argc; /* of the `plimsoll serve` that started it all; borrowed for good */
    char **argv;
    void (*settle)(void); /* app->config is another one: what was worked out from it is stale */
    void (*hold)(const char *name, int fd); /* borrowed */
    void (*action_done)(const char *action, int exit_status, const char *message);
};
void pl_renew_init(const struct pl_renew_options *o);
/* `check`: only tell the difference. `action` or "": who wants to know how it ends. False: one is under way.
 */
bool pl_renew_order(bool check, const char *action, struct pl_err *err);
/* The crew's on_action for a replacement that a reload ordered (its action is PL_RENEW_ACTION). */
#define PL_RENEW_ACTION "reload"
void pl_renew_replaced(bool ok, const char *message);
bool pl_renew_busy(void);     /* one is under way */
bool pl_renew_rejected(void); /* the last one was */
#endif
