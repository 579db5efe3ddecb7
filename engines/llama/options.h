/* options.h - the words plimsoll-llama is started with. Names are llama-server's where it has them. */
#ifndef PL_LLAMA_OPTIONS_H
#define PL_LLAMA_OPTIONS_H
#include <llama.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Sequences beyond `parallel` that may be kept as beginnings of later prompts. */
enum { PL_LLM_SPARE_SEQUENCES = 16 };

struct pl_llm_options {
    const char *model;           /* GGUF; a split model is named by its first part */
    int listener;                /* a listening socket, inherited; -1: none (--measure) */
    uint32_t ctx_size, parallel; /* 0: chosen by what fits */
    uint32_t batch_size, ubatch_size;
    uint32_t threads;     /* 0: by the CPU quota */
    int32_t n_gpu_layers; /* -1: all that fit (llama.cpp's own choice) */
    enum llama_split_mode split_mode;
    float tensor_split[16];
    bool has_tensor_split;
    int32_t main_gpu;
    enum ggml_type cache_type_k, cache_type_v;
    enum llama_flash_attn_type flash_attn;
    bool swa_full, embeddings, optimistic, prefix_sharing, verbose;
    const char *template_name;  /* of llama.cpp's list; NULL: the model's own */
    const char *system_default; /* system message of chats without one; NULL: what the template says */
    const char *aliases;        /* comma-separated; NULL: the file's stem */
    uint32_t queue;             /* requests that may wait */
    double max_wait_s;          /* and how long; 0: for ever */
    uint32_t max_tokens;        /* of requests that do not say; 0: up to the end of the context */
    uint64_t memory_limit;      /* bytes that loading may take; 0: what the machine says */
    bool measure;               /* print the sizes and end */
};

/* False: usage, with the word that is wrong. Borrows from argv. */
bool pl_llm_options(int argc, char **argv, struct pl_llm_options *o, struct pl_err *err);
#endif
