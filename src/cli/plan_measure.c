/* plan_measure.c - what llama.cpp itself would take, asked of plimsoll-llama in a child: a file that ends
 * llama.cpp ends nobody else. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/child.h"
#include "cli/figures.h"
#include "cli/paths.h"
#include "cli/plan_files.h"
#include "model/num.h"

enum {
    LIMIT_MS = 30000,
    CELLS_MOST = 65536,   /* beyond it a dry run takes longer, and KV grows in a line */
    SEQUENCES_MOST = 240, /* see PL_LLM_SPARE_SEQUENCES */
    SAID_BYTES = 65536
};

static const char *keep(struct pl_arena *arena, const char *text) {
    const char *copy = text != NULL ? pl_arena_strndup(arena, text, strlen(text)) : NULL;
    return copy != NULL ? copy : "";
}

static void take(const json_t *doc, struct pl_arena *arena, int status, struct pl_measured *out) {
    char text[64];
    const char *error = json_string_value(json_object_get(doc, "error"));
    if (status == 0 && doc != NULL) {
        *out =
            (struct pl_measured){ .cells = pl_fig_count(doc, "cells"),
                                  .parallel = pl_fig_count(doc, "parallel"),
                                  .weights = pl_fig_count(doc, "weights_bytes"),
                                  .kv = pl_fig_count(doc, "kv_bytes"),
                                  .state = pl_fig_count(doc, "state_bytes"),
                                  .compute = pl_fig_count(doc, "compute_bytes"),
                                  .output = pl_fig_count(doc, "output_bytes"),
                                  .version = keep(arena, json_string_value(json_object_get(doc, "llama"))) };
        return;
    }
    snprintf(text, sizeof text,
             status == -1 ? "it was ended, or took more than %d s" : "it ended with status %d",
             status == -1 ? LIMIT_MS / 1000 : status);
    *out = (struct pl_measured){ .why_not = keep(arena, error != NULL ? error : text) };
}

void pl_plan_measure(const char *gguf, const struct pl_plan *p, struct pl_arena *arena,
                     struct pl_measured *out) {
    char engine[PL_PATH_BYTES], cells[24], parallel[24];
    struct pl_err ignored;
    struct pl_buf said;
    *out = (struct pl_measured){ .why_not = "this build is without plimsoll-llama" };
    if (!pl_path_llama(engine, &ignored)) return;
    snprintf(cells, sizeof cells, "%" PRIu64, pl_min(p->ctx, CELLS_MOST));
    snprintf(parallel, sizeof parallel, "%" PRIu64, pl_min(p->parallel, SEQUENCES_MOST));
    const char *argv[] = { engine,       "--measure",      "--model",
                           gguf,         "--ctx-size",     cells,
                           "--parallel", parallel,         "--cache-type-k",
                           p->ask.kv,    "--cache-type-v", p->ask.kv,
                           NULL };
    const struct pl_child child = { .argv = argv, .limit_ms = LIMIT_MS };
    pl_buf_init(&said, SAID_BYTES);
    int status = pl_child_ask(&child, &said);
    json_t *doc = said.len > 0 ? json_loadb(said.data, said.len, 0, NULL) : NULL;
    take(doc, arena, status, out);
    json_decref(doc);
    pl_buf_free(&said);
}
