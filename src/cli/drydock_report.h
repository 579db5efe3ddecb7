/* cli/drydock_report.h - what the card table knew at the end of a run, as text and as JSON. */
#ifndef PL_CLI_DRYDOCK_REPORT_H
#define PL_CLI_DRYDOCK_REPORT_H
#include "base/buf.h"
#include "drydock/table.h"

#define PL_DRYDOCK_LABEL "dry run: values not computed, library workspaces not counted"

/* `status`: how the command ended, 128+N for signal N. `torch`: its version, "" = none. */
struct pl_drydock_run {
    const struct dd_table *table;
    const char *command, *torch, *gpu;
    int status;
    double seconds;
};
void pl_drydock_text(const struct pl_drydock_run *run, struct pl_buf *out);
void pl_drydock_json(const struct pl_drydock_run *run, struct pl_buf *out);
/* "1.5 GiB", "400 MiB", "512 B". */
struct pl_size_text {
    char text[24];
};
struct pl_size_text pl_size(uint64_t bytes);
#endif
