/* cli/manager.h - what the service manager that started us hears (sd_notify(3)): ready, reloading, and one
 * line of status. The keeper passes it on (PL_WIRE_TELL); where there is no manager it says nothing to
 * anybody. */
#ifndef PL_CLI_MANAGER_H
#define PL_CLI_MANAGER_H
#include "crew/link.h"

/* `link` is borrowed for good. */
void pl_manager_init(struct pl_link *link);
/* Whether all that is required is ready, asked again and again: told when it changes. READY=1 is told the
 * first time. */
void pl_manager_ready(bool ready, const char *listen);
void pl_manager_draining(void);
/* A reload begins, and ends one way or the other. Before the first READY=1 neither is told: the end would be
 * taken for it. */
void pl_manager_reloading(void);
void pl_manager_reloaded(bool accepted);
#endif
