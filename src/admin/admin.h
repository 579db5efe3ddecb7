/* admin/admin.h - what people and machines ask main about itself: health, metrics, status, events, logs, and
 * the few verbs that act.
 *
 * Two doors: the data port answers GET and HEAD of /livez, /readyz and /metrics through pl_admin_own; the
 * admin port (TCP) and run_dir/admin.sock answer everything. Who may read and act there: admin/guard.c.
 */
#ifndef PL_ADMIN_ADMIN_H
#define PL_ADMIN_ADMIN_H
#include "crew/crew.h"
#include "door/keys.h"
#include "gateway/gateway.h"
#include "net/server.h"
#include "net/timers.h"

struct pl_admin;
/* An order to put another main at the helm. */
struct pl_upgrade_wish {
    const char *binary; /* absolute; NULL: the one we were started from, as it is on the disk now */
    uint64_t take_ms;   /* it must have taken over by then; 0: as usual */
};
struct pl_admin_options {
    struct pl_app *app;
    struct pl_crew *crew;
    struct pl_gateway *gateway;
    struct pl_timers *timers;
    bool (*reload)(bool check, const char *action, struct pl_err *err);
    bool (*rejected)(void); /* the last reload was refused */
    bool (*upgrade)(const struct pl_upgrade_wish *wish, const char *action, struct pl_err *err);
    const char *version, *start_reason; /* "first", "crash", "hang", "upgrade" */
    const char *listen, *admin;         /* addresses really bound, for /status */
    const char *state_dir;              /* NULL: none */
    const char *program;                /* ours, absolute: what reads the record. NULL: nobody does */
    uint32_t keeper_pid;
    bool dry_run; /* stand-in CUDA libraries are mapped: no answer is a model's answer */
};
/* Room for the log's tap before anything is logged: made first, told the rest by pl_admin_start. */
struct pl_admin *pl_admin_create(struct pl_err *err);
void pl_admin_tap(void *admin, enum pl_level level, const char *event, const char *line, size_t len);
bool pl_admin_start(struct pl_admin *a, const struct pl_admin_options *o, struct pl_err *err);
/* Opens the TCP port to whoever shows it; NULL: to nobody. */
void pl_admin_set_token(struct pl_admin *a, const struct pl_key_digest *token);
/* For the TCP port, connections from now on; NULL: without TLS. From this machine both ways are taken. Keeps
 * a ref. */
void pl_admin_set_tls(struct pl_admin *a, struct pl_tls *tls);
/* Takes a listening socket. */
bool pl_admin_listen(struct pl_admin *a, int fd, const char *name, struct pl_err *err);
/* Answers a request of the data port if it is one of ours: true, and the connection is answered. */
bool pl_admin_own(void *admin, struct pl_conn *c);
/* How an action ended: exit_status is what the verb that ordered it will exit with. */
void pl_admin_action_done(struct pl_admin *a, const char *action, int exit_status, const char *message);
/* The same with a document that the verb prints; NULL: none. */
void pl_admin_action_report(struct pl_admin *a, const char *action, int exit_status, const char *message,
                            const char *json);
/* Another main is asked from now on: ends followers; a connection that is open still gets answers to
 * questions, orders are sent to the other one. */
void pl_admin_leave(struct pl_admin *a);
void pl_admin_unlisten(
    struct pl_admin *a); /* closes the listeners: others take their place, or these again */
/* Ends followers and connections. */
void pl_admin_close(struct pl_admin *a);

/* What the banner says, at most 8 lines, each with a newline. */
void pl_admin_banner(struct pl_admin *a, struct pl_buf *out);
/* Every required service has a routable worker and we are not draining. */
bool pl_admin_ready(const struct pl_admin *a);
#endif
