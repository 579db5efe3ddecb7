/* keep.c - beginnings that stay: which prompts share cells, and which are given up. */
#include <stdlib.h>
#include <string.h>

#include "llama/sched_inside.h"

enum { WORTH = 32 }; /* tokens; less is not worth a sequence */

static int common(const llama_token *a, int an, const llama_token *b, int bn) {
    int n = 0;
    while (n < an && n < bn && a[n] == b[n]) n++;
    return n;
}

void pl_llm_forget(struct pl_llm_sched *s, struct pl_llm_kept *k) {
    llama_memory_seq_rm(s->m->memory, k->seq, -1, -1);
    s->held -= (uint32_t)k->count;
    free(k->tokens);
    *k = (struct pl_llm_kept){ 0 };
}

void pl_llm_forget_all(struct pl_llm_sched *s) {
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++)
        if (s->kept[i].used && s->kept[i].pins == 0) pl_llm_forget(s, &s->kept[i]);
}

static struct pl_llm_kept *oldest(struct pl_llm_sched *s) {
    struct pl_llm_kept *out = NULL;
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++) {
        struct pl_llm_kept *k = &s->kept[i];
        if (k->used && k->pins == 0 && (out == NULL || k->age < out->age)) out = k;
    }
    return out;
}

/* What no running job shares of a beginning in use. */
static void trim_pinned(struct pl_llm_sched *s) {
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++) {
        struct pl_llm_kept *k = &s->kept[i];
        int most = 0;
        if (!k->used || k->pins == 0) continue;
        for (uint32_t q = 0; q < s->m->sequences; q++)
            if (s->run[q] != NULL && s->run[q]->kept == k && s->run[q]->shared > most)
                most = s->run[q]->shared;
        if (most >= k->count || !llama_memory_seq_rm(s->m->memory, k->seq, most, -1)) continue;
        s->held -= (uint32_t)(k->count - most);
        k->count = most;
    }
}

bool pl_llm_make_room(struct pl_llm_sched *s, uint32_t cells, uint32_t promised) {
    struct pl_llm_kept *k;
    while (pl_llm_free_cells(s, promised) < cells && (k = oldest(s)) != NULL) pl_llm_forget(s, k);
    if (pl_llm_free_cells(s, promised) < cells) trim_pinned(s);
    return pl_llm_free_cells(s, promised) >= cells;
}

llama_seq_id pl_llm_free_sequence(struct pl_llm_sched *s) {
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t q = 0; q < s->m->sequences; q++) {
            bool free_one = s->run[q] == NULL;
            for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES && free_one; i++)
                free_one = !s->kept[i].used || s->kept[i].seq != (llama_seq_id)q;
            if (free_one) return (llama_seq_id)q;
        }
        struct pl_llm_kept *k = oldest(s);
        if (k == NULL) return -1;
        pl_llm_forget(s, k);
    }
    return -1;
}

static struct pl_llm_kept *empty_slot(struct pl_llm_sched *s) {
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++)
        if (!s->kept[i].used) return &s->kept[i];
    struct pl_llm_kept *k = oldest(s);
    if (k != NULL) pl_llm_forget(s, k);
    return k;
}

/* A beginning out of a job that still runs: `count` of its prompt's tokens get a sequence of their own. Its
 * cells are then counted twice, as the job's and as kept: never too few. */
static struct pl_llm_kept *split_off(struct pl_llm_sched *s, const struct pl_llm_job *from, int count) {
    struct pl_llm_kept *k;
    llama_seq_id seq;
    if (!pl_llm_make_room(s, (uint32_t)count, s->reserved) || (k = empty_slot(s)) == NULL ||
        (seq = pl_llm_free_sequence(s)) == -1)
        return NULL;
    llama_token *tokens = malloc((size_t)count * sizeof *tokens);
    if (tokens == NULL) return NULL;
    memcpy(tokens, from->o.prompt, (size_t)count * sizeof *tokens);
    llama_memory_seq_cp(s->m->memory, from->seq, seq, 0, count);
    *k = (struct pl_llm_kept){ .used = true, .seq = seq, .tokens = tokens, .count = count };
    s->held += (uint32_t)count;
    return k;
}

void pl_llm_share(struct pl_llm_sched *s, struct pl_llm_job *j) {
    struct pl_llm_kept *best = NULL;
    int most = WORTH - 1;
    if (!s->m->shares) return;
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++) {
        struct pl_llm_kept *k = &s->kept[i];
        int n = k->used ? common(k->tokens, k->count, j->o.prompt, j->o.prompt_count - 1) : 0;
        if (n > most) most = n, best = k;
    }
    const struct pl_llm_job *from = NULL;
    for (uint32_t q = 0; q < s->m->sequences; q++) {
        const struct pl_llm_job *r = s->run[q];
        if (r == NULL || r == j || r->seq == -1) continue;
        int done = r->past < r->o.prompt_count ? r->past : r->o.prompt_count;
        int n = common(r->o.prompt, done, j->o.prompt, j->o.prompt_count - 1);
        if (n > most + WORTH) most = n, from = r;
    }
    if (from != NULL) {
        struct pl_llm_kept *k = split_off(s, from, most);
        if (k != NULL) best = k;
    }
    if (best == NULL) return;
    most = common(best->tokens, best->count, j->o.prompt, j->o.prompt_count - 1);
    llama_memory_seq_cp(s->m->memory, best->seq, j->seq, 0, most);
    best->pins++;
    best->age = ++s->clock;
    j->kept = best;
    j->shared = j->past = j->cached = most;
    s->reserved -= (uint32_t)most; /* they are counted as kept */
    s->stats.cached_tokens += (uint64_t)most;
}

void pl_llm_unshare(struct pl_llm_sched *s, struct pl_llm_job *j) {
    if (j->kept == NULL) return;
    j->kept->pins--;
    j->kept->age = ++s->clock;
    j->kept = NULL;
    j->shared = 0;
}

/* The tokens whose cells the sequence holds: prompt, then what was said and computed. */
bool pl_llm_keep(struct pl_llm_sched *s, struct pl_llm_job *j) {
    if (!s->m->shares || j->past < WORTH || j->past - j->shared < WORTH / 2) return false;
    llama_token *tokens = malloc((size_t)j->past * sizeof *tokens);
    struct pl_llm_kept *slot = tokens != NULL ? empty_slot(s) : NULL;
    if (slot == NULL) {
        free(tokens);
        return false;
    }
    int prompt = j->past < j->o.prompt_count ? j->past : j->o.prompt_count;
    memcpy(tokens, j->o.prompt, (size_t)prompt * sizeof *tokens);
    if (j->past > prompt) memcpy(tokens + prompt, j->said, (size_t)(j->past - prompt) * sizeof *tokens);
    *slot = (struct pl_llm_kept){
        .used = true, .seq = j->seq, .tokens = tokens, .count = j->past, .age = ++s->clock
    };
    s->held += (uint32_t)j->past;
    return true;
}
