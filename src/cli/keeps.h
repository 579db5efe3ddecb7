/* cli/keeps.h - main and its flight record: made, told the events, looked after once a second, closed. */
#ifndef PL_CLI_KEEPS_H
#define PL_CLI_KEEPS_H
#include "crew/app.h"

struct pl_keeps_start {
    const char *state_dir; /* "": none */
    const char *reason;    /* of this start of main */
    uint64_t life;
    int64_t keeper_pid;
};
/* Sets app->record; without one everything goes on. Before the log is made: its tap feeds it. */
void pl_keeps_open(struct pl_app *app, const struct pl_keeps_start *s);
/* For the log's tap. */
void pl_keeps_event(struct pl_app *app, enum pl_level level, const char *event, const char *line, size_t len);
/* What there is to tell of it, and its figures. From the heart. */
void pl_keeps_beat(struct pl_app *app, uint64_t now_ms);
/* The limits are live. */
void pl_keeps_reconfigured(struct pl_app *app);
void pl_keeps_close(struct pl_app *app, int status);
#endif
