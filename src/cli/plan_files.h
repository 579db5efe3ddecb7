/* cli/plan_files.h - finds what a person calls a model, reads configuration and headers, and nothing else of
 * it. */
#ifndef PL_CLI_PLAN_FILES_H
#define PL_CLI_PLAN_FILES_H
#include "model/weights.h"
#include "plan/gpus.h"
#include "plan/plan.h"

struct pl_plan_files {
    struct pl_model model;
    struct pl_weights weights;
    const char *target; /* what an engine would be started with */
    bool gguf;
};
/* A folder, config.json, .gguf, .safetensors, a model tag or bento of BentoML's store, or org/model that a
 * hub client already fetched. Nothing is downloaded. */
bool pl_plan_read(const char *target, struct pl_arena *arena, struct pl_plan_files *out, struct pl_err *err);
/* The cards of this machine, by NVML. false: there is none that can be asked. */
bool pl_plan_cards(struct pl_gpu *out, struct pl_err *err);
/* llama.cpp's dry run of the planned context, in a child: at most half a minute. Always an answer; it may be
 * why there is none. */
void pl_plan_measure(const char *gguf, const struct pl_plan *p, struct pl_arena *arena,
                     struct pl_measured *out);
/* What lengths the requests in a flight record had. `too_few`: nothing can be said (exit status 4). */
bool pl_plan_record(const char *file, struct pl_expect out[PL_EXPECTS], size_t *found, bool *too_few,
                    struct pl_err *err);
#endif
