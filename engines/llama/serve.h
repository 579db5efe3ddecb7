/* serve.h - plimsoll-llama as an HTTP server on the socket it was given: one loop, one thread, steps between
 * its turns.
 *
 * While the model loads, on a thread of its own, the loop answers: /livez 200, everything else 503 with what
 * is missing. Never ready unless a step can be made now. On SIGTERM nothing new is taken, what runs is
 * finished, and the process ends.
 */
#ifndef PL_LLAMA_SERVE_H
#define PL_LLAMA_SERVE_H
#include "llama/options.h"

/* Exit status: 0 ended in order, 3 the model could not be loaded (stderr says why), 1 the context failed. */
int pl_llm_serve(struct pl_llm_options *o);
#endif
