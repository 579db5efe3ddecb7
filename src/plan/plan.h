/* plan/plan.h - what fits on which card: a model, its weights and a wish in; a budget, a capacity and the way
 * to more out.
 *
 * Pure. A plan borrows model and weights and lives in the arena given. Bytes are of ONE card, the one with
 * least room ("the smallest rank rules"). Before a boot, activation, graphs and what is not PyTorch's are
 * estimates; each term says where it is from. */
#ifndef PL_PLAN_PLAN_H
#define PL_PLAN_PLAN_H
#include "base/buf.h"
#include "plan/gpus.h"
#include "plan/kv.h"
#include "plan/llama.h"

enum pl_engine { PL_ENGINE_VLLM, PL_ENGINE_SGLANG, PL_ENGINE_LLAMA, PL_ENGINE_TORCH, PL_ENGINES };
const char *pl_plan_engine_name(enum pl_engine e); /* "vllm", "sglang", "llama.cpp", "torch" */
bool pl_engine_parse(const char *text, enum pl_engine *out, struct pl_err *err);

enum { PL_EXPECTS = 8, PL_STAGES = 64, PL_SHARES = 1000 };
struct pl_expect {
    uint64_t in, out; /* tokens */
    uint32_t share;   /* of PL_SHARES */
};
/* "2000+500", or with shares: "300+100:70%,2000+500:30%". */
bool pl_expect_parse(const char *text, struct pl_expect out[PL_EXPECTS], size_t *count, struct pl_err *err);

struct pl_ask {
    enum pl_engine engine;
    struct pl_gpu gpu;
    uint64_t max_len; /* 0: the model's */
    bool longest;     /* --max-len auto: what fits */
    struct pl_expect expect[PL_EXPECTS];
    size_t expect_count;  /* 0: assumed */
    uint64_t concurrency; /* wanted; 0: as many as fit */
    const char *kv;       /* NULL: the engine's own */
    uint32_t tp, pp, dp;  /* 0: TP over all cards, PP 1, DP 1 */
    uint32_t utilization; /* of PL_SHARES; 0: 850 */
    uint64_t batched;     /* tokens of one step; 0: the engine's default for the card */
    bool eager;
    uint32_t weight_bits; /* 8, 4: as if the matrices were; 0: as stored */
    const char *target;   /* as the user named the model; in the command lines */
};

enum pl_component {
    PL_PART_WEIGHTS,
    PL_PART_ACTIVATION, /* llama.cpp: compute and output buffers */
    PL_PART_GRAPHS,
    PL_PART_NON_TORCH,
    PL_PART_FOREIGN,
    PL_PART_MARGIN,
    PL_PART_KV, /* what is left */
    PL_PARTS
};
const char *pl_component_name(enum pl_component c); /* as in plimsoll_plan_bytes{component} */
struct pl_term {
    uint64_t bytes;
    const char *source; /* "header", "formula", "guess", "rule" */
    const char *note;
};
struct pl_rank {
    uint32_t from, to; /* layers */
    uint64_t weights, avail, block_bytes;
    bool short_of_weights;       /* not even the fixed part fits */
    const struct pl_model *part; /* llama.cpp: its layers as a model */
};
/* llama.cpp's own sizes, from a dry run that read no weight. */
struct pl_measured {
    const char *why_not;                          /* there was none: why; NULL: there was */
    uint64_t cells, parallel;                     /* that it was of */
    uint64_t weights, kv, state, compute, output; /* bytes, of all devices together */
    const char *version;                          /* of llama.cpp */
};
struct pl_plan {
    struct pl_ask ask; /* with every default filled in */
    const struct pl_model *model;
    const struct pl_weights *weights;
    const struct pl_kv_type *kv_type; /* not llama.cpp */
    struct pl_kv_groups groups;       /* vLLM */
    uint64_t block, in_flight;        /* tokens */
    struct pl_rank ranks[PL_STAGES];
    size_t rank_count, least; /* least: index of the rank that rules */
    struct pl_term terms[PL_PARTS];
    uint64_t max_len, need; /* bytes of one request of that length */
    uint64_t longest;       /* length that fits, up to the model's context or max_len */
    uint64_t capacity;      /* requests at the expected lengths */
    uint64_t capacity_max;  /* at max_len */
    uint64_t expect_len;    /* mean tokens of an expected request */
    bool fits, expect_assumed, provisional;
    uint64_t ctx, parallel; /* llama.cpp: what to start it with */
    bool has_measured;      /* pl_plan_measured was called */
    struct pl_measured measured;
    uint64_t measured_kv;  /* what the formula says of the same cells, recurrent state included */
    uint32_t measured_off; /* of PL_SHARES: how far the formula is off */
    const char *binds;     /* "weights", "kv", "length" or "concurrency": what says no, or what would first */
    uint32_t cards;        /* used: tp * pp * dp */
};
bool pl_plan_make(const struct pl_ask *ask, const struct pl_model *m, const struct pl_weights *w,
                  struct pl_arena *arena, struct pl_plan *out, struct pl_err *err);
/* Puts a dry run beside a plan for llama.cpp on one card. Where the formula is off, the dry run decides about
 * cells and fit. */
void pl_plan_measured(struct pl_plan *p, const struct pl_measured *m);
/* Requests of this length at a time. */
uint64_t pl_plan_capacity(const struct pl_plan *p, uint64_t len);
/* Bytes of one request on the card that rules. */
uint64_t pl_plan_request_bytes(const struct pl_plan *p, uint64_t len);
/* Bytes one token more costs a long request on the card that rules: what admission charges by. */
uint64_t pl_plan_token_bytes(const struct pl_plan *p);

/* --- what would fit, or fit more */
enum { PL_CHANGES = 10 };
struct pl_change {
    char what[64], flag[64], price[96];
    bool fits;
    uint64_t capacity, capacity_max, longest; /* at the expected lengths; at the longest allowed */
    uint32_t cards;
};
size_t pl_plan_changes(const struct pl_plan *p, struct pl_arena *arena, struct pl_change out[PL_CHANGES]);

/* --- serving strategies for the same traffic on the same card (docs/plan.md has the hand computation) */
enum { PL_STRATEGIES = 7 };
struct pl_strategy {
    const char *name, *price;
    uint64_t pool;        /* bytes for KV */
    uint64_t concurrency; /* requests at a time */
    uint64_t wasted;      /* bytes a request holds and does not use when it is at its longest */
    uint32_t busy;        /* of PL_SHARES: steps of a slot that make a token */
};
size_t pl_plan_strategies(const struct pl_plan *p, struct pl_arena *arena,
                          struct pl_strategy out[PL_STRATEGIES]);

/* --- engine flags */
enum { PL_FLAGS = 24 };
struct pl_engine_flag {
    const char *flag; /* "--max-model-len" */
    char value[64];   /* "" for a switch */
    const char *rule; /* why, and what default it replaces */
};
struct pl_command {
    const char *program[4]; /* "vllm", "serve"; NULL-ended */
    const char *model_flag; /* "--model-path"; NULL: the model stands alone */
    struct pl_engine_flag flags[PL_FLAGS];
    size_t count;
    const char *env[4]; /* "NAME=value", NULL-ended */
};
void pl_plan_command(const struct pl_plan *p, struct pl_command *out);

/* --- texts; false: no memory */
bool pl_plan_show(const struct pl_plan *p, bool explain, struct pl_arena *arena, struct pl_buf *out);
bool pl_plan_show_json(const struct pl_plan *p, bool strategies, struct pl_arena *arena, struct pl_buf *out);
bool pl_plan_show_strategies(const struct pl_plan *p, struct pl_arena *arena, struct pl_buf *out);
bool pl_plan_show_flags(const struct pl_plan *p, struct pl_buf *out);
bool pl_plan_show_yaml(const struct pl_plan *p, struct pl_buf *out);
bool pl_plan_show_k8s(const struct pl_plan *p, struct pl_buf *out);
/* 1 when it does not fit, else 0. */
int pl_plan_status(const struct pl_plan *p);
/* "12.50 MiB", "3.125 GiB" */
const char *pl_bytes_text(char text[24], uint64_t bytes);
#endif
