/* model.h - one GGUF model through llama.h, its context, and every byte they take.
 *
 * llama.cpp's C API gives NULL and no reason: the reason is in the lines it logs, the first error since the
 * call; so the log is captured here, and sizes are read from it (no other way to them exists in C). The log
 * callback is global: one model in a process, opened by one thread at a time.
 */
#ifndef PL_LLAMA_MODEL_H
#define PL_LLAMA_MODEL_H
#include <llama.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "llama/options.h"

/* Bytes, as llama.cpp logs them: of all devices together. */
struct pl_llm_bytes {
    uint64_t weights, kv, compute, output, state; /* state: of recurrent layers */
};

struct pl_llm_model {
    struct llama_model *model;
    struct llama_context *ctx;
    const struct llama_vocab *vocab;
    llama_memory_t memory;
    struct llama_batch batch;
    uint32_t cells;      /* of the pool: tokens that all sequences together may hold */
    uint32_t sequences;  /* ids 0 ... sequences - 1 */
    uint32_t batch_most; /* tokens of one step */
    uint32_t trained;    /* context the model was trained for; 0: it does not say */
    bool shares;         /* sequences may share cells: no layer forgets what left its window */
    struct pl_llm_bytes bytes;
    char description[128];
};

/* Once, before anything else: captures the log, sets what an abort says last. */
void pl_llm_start(bool verbose);

/* How many bytes a context of so many cells would take, without reading a weight. False: the file is not
 * understood, with llama.cpp's own first words. */
bool pl_llm_measure(const struct pl_llm_options *o, uint32_t cells, uint32_t parallel,
                    struct pl_llm_bytes *out, uint32_t *trained, struct pl_err *err);

/* Loads. `progress` is set in parts of a thousand, for whoever asks meanwhile. Blocks for as long as loading
 * takes; may run on any one thread. */
bool pl_llm_open(struct pl_llm_model *m, const struct pl_llm_options *o, uint32_t cells, uint32_t parallel,
                 atomic_int *progress, struct pl_err *err);
/* The first steps, on the thread that will compute: libgomp keeps threads for each thread that ever did, and
 * on a busy machine a second set of them, though idle, was measured to halve the speed. */
bool pl_llm_warm_up(struct pl_llm_model *m, struct pl_err *err);
void pl_llm_close(struct pl_llm_model *m);

/* Token t of sequence s at position p joins the next step. */
void pl_llm_add(struct pl_llm_model *m, llama_token t, llama_pos p, llama_seq_id s, bool want_logits);

/* Owned tokens of a text, their count in *count; NULL: out of memory or longer than INT32_MAX. `special`:
 * text such as <|im_start|> counts as the token it names (templates), not as characters (what a user wrote).
 */
llama_token *pl_llm_tokens(const struct llama_vocab *v, const char *text, size_t len, bool add_bos,
                           bool special, int *count);
#endif
