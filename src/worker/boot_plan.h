/* worker/boot_plan.h - the plan of an engine's memory before it starts: `plimsoll plan` with what the
 * engine's command says, run as a child (crew/planned.c), so that nobody but the child reads the model.
 *
 * Flags and defaults: vLLM 0.32, SGLang 004813e1, llama.cpp 0.5.0, as in docs/plan.md.
 */
#ifndef PL_WORKER_BOOT_PLAN_H
#define PL_WORKER_BOOT_PLAN_H
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/config.h"
#include "worker/boot.h"

/* Where it will run. */
struct pl_boot_device {
    const char *product;  /* NULL: no GPU is known; the machine's own memory is meant then */
    uint64_t total_bytes; /* of one */
};

/* The model that the command names, as it is written there, or NULL: it names none, or an engine of which no
 * plan is made. Whether it is a file or a folder here is the caller's to see. */
const char *pl_boot_plan_model(const struct pl_service_config *s);

enum { PL_BOOT_PLAN_WORDS = 28 };
/* argv of the child behind the program's name, NULL-ended, in the arena; `model` is what it shall read. False
 * without memory, or when the command says something that a plan does not know. */
bool pl_boot_plan_words(const struct pl_service_config *s, const char *model, const struct pl_boot_device *d,
                        struct pl_arena *arena, const char *words[PL_BOOT_PLAN_WORDS]);
#endif
