/* cli/wait.h - an order to the server, and the wait for its end. */
#ifndef PL_CLI_WAIT_H
#define PL_CLI_WAIT_H
#include <jansson.h>

#include "cli/client.h"

struct pl_wait {
    const char *path;          /* "/restart" */
    const char *what;          /* what it is about, for messages: the service */
    const char *done, *failed; /* words before the server's own message; NULL: that alone */
    const char *late;          /* the wait ran out */
    /* NULL, or tells of the server's first reply; not with --json or --quiet */
    void (*accepted)(const struct pl_wait *w, const json_t *reply);
    /* NULL: the server's message is printed, or with --json the whole reply. Else this shows what came of it.
     */
    void (*show)(struct pl_cli *cli, const struct pl_wait *w, const json_t *action);
    void *ctx;    /* for show */
    bool no_wait; /* print the action's id and leave */
};
/* 0: done. 1: it failed, or --wait is over (15 minutes unless given). Else the exit status of an error that
 * was printed. */
int pl_wait_action(struct pl_cli *cli, struct pl_client *c, const struct pl_wait *w, json_t *order);
#endif
