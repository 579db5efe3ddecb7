/* cli/listening.h - what main listens on: data ports, the admin port, run_dir/admin.sock and agents.sock. The
 * keeper holds them all. Of each we keep a second descriptor, so that listening can stop and begin again
 * while the sockets stay open: what knocks meanwhile waits in the backlog, for us or for another main.
 */
#ifndef PL_CLI_LISTENING_H
#define PL_CLI_LISTENING_H
#include "admin/admin.h"
#include "crew/hello.h"
#include "gateway/gateway.h"

enum { PL_LISTENING_TEXT = 128 };
struct pl_listening_options {
    struct pl_gateway *gateway;
    struct pl_admin *admin;
    struct pl_crew *crew;
    const char *run_dir;
    void (*hold)(const char *name, int fd); /* borrowed */
};
/* Everything that is held, and the two sockets in the run folder, made if nobody has yet. */
bool pl_listening_start(const struct pl_listening_options *o, struct pl_held_list *held, struct pl_err *err);
/* The first data port is another one from now on. */
bool pl_listening_move(const struct pl_address *to, struct pl_err *err);
void pl_listening_stop(void);
/* After a stop: the same sockets. Takes the agents' one out for pl_crew_again: owned, or -1. */
bool pl_listening_again(int *agents_fd, struct pl_err *err);
/* What the first data port and the admin port are really bound to; "" before the start. They stay where they
 * are. */
const char *pl_listening_data(void);
const char *pl_listening_admin(void);
#endif
