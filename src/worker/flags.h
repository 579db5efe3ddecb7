/* worker/flags.h - what a command says to its engine, read as the engine reads it: "--flag N" and "--flag=N",
 * with - or _ between the words of a flag, and the pairs of engine_args, which stand behind them and win.
 */
#ifndef PL_WORKER_FLAGS_H
#define PL_WORKER_FLAGS_H
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* The last value given; NULL: none is. `names`: spellings of one flag between bars,
 * "--tensor-parallel-size|-tp". Borrowed from the configuration. */
const char *pl_flag_text(const struct pl_service_config *s, const char *names);
/* A whole number as vLLM reads it: 16M is 2^24, 16m 16,000,000. 0: there is none, or it is no number. */
uint64_t pl_flag_number(const struct pl_service_config *s, const char *names);
/* It is there as a switch, and not switched off again ("false" or "0" in engine_args). */
bool pl_flag_switch(const struct pl_service_config *s, const char *names);
#endif
