/* cli/watchers.h - folders that are looked at: the configuration's (reload.watch: a ConfigMap is swapped by
 * renaming a link in it) and those of services under development (`watch`, --reload). Changes are gathered
 * for reload.debounce. */
#ifndef PL_CLI_WATCHERS_H
#define PL_CLI_WATCHERS_H
#include "crew/crew.h"

/* After the crew has started. What cannot be watched is logged, and is no error. */
void pl_watchers_start(struct pl_app *app, struct pl_crew *crew);
#endif
