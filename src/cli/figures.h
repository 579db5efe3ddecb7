/* cli/figures.h - figures of a /status document in the words that `status` and `top` share. */
#ifndef PL_CLI_FIGURES_H
#define PL_CLI_FIGURES_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

const char *pl_fig_text(const json_t *o, const char *key); /* "-": not there. Borrowed. */
double pl_fig_number(const json_t *o, const char *key);    /* 0: not there */
bool pl_fig_has(const json_t *o, const char *key);
/* "12s", "3m05s", "2h10m", "1d04h" */
const char *pl_fig_duration(double seconds, char *out, size_t room);
/* "512 bytes", "1.5 GiB" */
const char *pl_fig_size(double bytes, char *out, size_t room);
/* A row of a service's `budget`: "budget of gpu 0: 1.2 GiB of 8.0 GiB charged, 400.0 MiB fixed" */
const char *pl_fig_budget(const json_t *row, char *out, size_t room);
/* An object of counts as "queue_full 12, budget 3", largest first; "" when it is empty. */
const char *pl_fig_counts(json_t *o, char *out, size_t room);
/* Neither stable nor warming: there is something to say of this memory. */
bool pl_fig_is_plain(const json_t *verdict);
#endif
