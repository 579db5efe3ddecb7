/* crew/cells.h - the cells of an engine's KV cache, its preemptions and its steps, from the worker's page
 * into our metrics. Nothing without an engine block on the page. */
#ifndef PL_CREW_CELLS_H
#define PL_CREW_CELLS_H
#include "crew/crew.h"

struct pl_cells; /* of one worker */

void pl_cells_second(struct pl_worker *w); /* of a READY one */
void pl_cells_free(struct pl_worker *w);   /* its gauges leave the page */
#endif
