#include "llama/sched.h"

#include <stdlib.h>
#include <string.h>

#include "llama/sched_inside.h"

enum {
    HEADROOM = 16,    /* optimistic: cells that each running job may still take before somebody is parked */
    CHUNK_LEAST = 32, /* prompt tokens of a step; see set_chunk */
    KNOWN_JOBS = 8,   /* before so many are done nobody knows how long one takes */
};
/* A step in which others wait for their next token should not take longer. */
static const double STEP_S = 0.1;

static bool in_prompt(const struct pl_llm_job *j) { return j->past < j->o.prompt_count; }
static uint32_t worst(const struct pl_llm_job *j) { return (uint32_t)(j->o.prompt_count + j->o.max_tokens); }
/* Cells it has, or will have as soon as its prompt is in. */
static uint32_t near(const struct pl_llm_job *j) {
    return (uint32_t)((j->past > j->o.prompt_count ? j->past : j->o.prompt_count) - j->shared);
}

uint32_t pl_llm_free_cells(const struct pl_llm_sched *s, uint32_t promised) {
    uint32_t taken = promised + s->held;
    return taken < s->m->cells ? s->m->cells - taken : 0;
}

struct pl_llm_sched *pl_llm_sched_create(struct pl_llm_model *m, const struct pl_llm_options *o,
                                         uint32_t parallel, const struct pl_llm_calls *calls) {
    struct pl_llm_sched *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    *s = (struct pl_llm_sched){
        .m = m, .o = o, .calls = *calls, .parallel = parallel, .chunk = m->batch_most, .job_s = 1
    };
    s->run = calloc(m->sequences, sizeof *s->run);
    s->room = calloc((size_t)llama_vocab_n_tokens(m->vocab), sizeof *s->room);
    if (s->run != NULL && s->room != NULL) return s;
    pl_llm_sched_free(s);
    return NULL;
}

static void destroy(struct pl_llm_job *j) {
    pl_llm_sampler_free(j->o.sampler);
    free(j->o.prompt);
    free(j->said);
    free(j->parked);
    free(j);
}

void pl_llm_sched_free(struct pl_llm_sched *s) {
    if (s == NULL) return;
    for (uint32_t q = 0; s->run != NULL && q < s->m->sequences; q++)
        if (s->run[q] != NULL) destroy(s->run[q]);
    for (struct pl_llm_job *lists[] = { s->head, s->parked }, **l = lists; l < lists + 2; l++)
        for (struct pl_llm_job *j = *l, *n; j != NULL; j = n) {
            n = j->next;
            destroy(j);
        }
    for (size_t i = 0; i < PL_LLM_SPARE_SEQUENCES; i++) free(s->kept[i].tokens);
    free(s->run);
    free(s->room);
    free(s);
}

bool pl_llm_idle(const struct pl_llm_sched *s) {
    return s->stats.running == 0 && s->head == NULL && s->parked == NULL;
}

/* --- sequences and cells */

static void attach(struct pl_llm_sched *s, struct pl_llm_job *j, llama_seq_id seq) {
    j->seq = seq;
    j->next = NULL;
    s->run[seq] = j;
    s->stats.running++;
    s->own += (uint32_t)(j->past - j->shared);
    s->reserved += worst(j) - (uint32_t)j->shared;
}

/* The job's sequence is not its any more; `stays` when it became a kept one. */
static void detach(struct pl_llm_sched *s, struct pl_llm_job *j, bool stays) {
    s->run[j->seq] = NULL;
    s->stats.running--;
    s->own -= (uint32_t)(j->past - j->shared);
    s->reserved -= worst(j) - (uint32_t)j->shared;
    if (!stays) llama_memory_seq_rm(s->m->memory, j->seq, -1, -1); /* a whole sequence: never fails */
    pl_llm_unshare(s, j);
    j->seq = -1;
}

/* It is over. What it computed may stay; a beginning that it grew out of says nothing more then. */
static void release(struct pl_llm_sched *s, struct pl_llm_job *j, bool sound) {
    struct pl_llm_kept *before = j->kept;
    int shared = j->shared;
    bool stays = sound && pl_llm_keep(s, j);
    detach(s, j, stays);
    if (stays && before != NULL && before->used && before->pins == 0 && before->count == shared)
        pl_llm_forget(s, before);
}

static void finish(struct pl_llm_sched *s, struct pl_llm_job *j, enum pl_llm_end why) {
    release(s, j, why != PL_LLM_END_FAILED);
    s->stats.done++;
    s->job_s += (s->now - j->began - s->job_s) * 0.1;
    s->calls.done(j->o.user, why, j->o.prompt_count, j->cached, j->out);
    destroy(j);
}

/* What running jobs may take without asking: under `worst` everything they were promised. */
static uint32_t promised(const struct pl_llm_sched *s) {
    if (!s->o->optimistic) return s->reserved;
    uint32_t cells = HEADROOM * s->stats.running;
    for (uint32_t q = 0; q < s->m->sequences; q++) cells += s->run[q] != NULL ? near(s->run[q]) : 0;
    return cells;
}

static bool fits(struct pl_llm_sched *s, const struct pl_llm_job *j) {
    uint32_t cells = s->o->optimistic ? near(j) + HEADROOM : worst(j);
    if (s->o->optimistic && cells > s->m->cells)
        cells = s->m->cells; /* the head room is not owed to a last one */
    return pl_llm_make_room(s, cells, promised(s));
}

/* Moves the youngest running job's cells to host memory. The oldest is never parked, so somebody always
 * advances. */
static bool park_youngest(struct pl_llm_sched *s) {
    struct pl_llm_job *young = NULL;
    for (uint32_t q = 0; q < s->m->sequences; q++)
        if (s->run[q] != NULL && (young == NULL || s->run[q]->id > young->id)) young = s->run[q];
    if (young == NULL || s->stats.running < 2) return false;
    if (young->past > 0) {
        size_t bytes = llama_state_seq_get_size(s->m->ctx, young->seq);
        young->parked = malloc(bytes);
        if (young->parked == NULL) return false;
        young->parked_bytes = llama_state_seq_get_data(s->m->ctx, young->parked, bytes, young->seq);
    }
    detach(s, young, false);
    struct pl_llm_job **at = &s->parked;
    while (*at != NULL && (*at)->id < young->id) at = &(*at)->next;
    young->next = *at;
    *at = young;
    s->stats.parked++;
    s->stats.parked_ever++;
    s->stats.parked_bytes += young->parked_bytes;
    s->stats.cells_parked += (uint32_t)young->past;
    return true;
}

static void resume(struct pl_llm_sched *s) {
    while (s->parked != NULL && s->stats.running < s->parallel) {
        struct pl_llm_job *j = s->parked;
        llama_seq_id seq = fits(s, j) ? pl_llm_free_sequence(s) : -1;
        if (seq == -1) return;
        if (j->parked != NULL && llama_state_seq_set_data(s->m->ctx, j->parked, j->parked_bytes, seq) == 0) {
            llama_memory_seq_rm(s->m->memory, seq, -1, -1);
            return;
        }
        s->parked = j->next;
        s->stats.parked--;
        s->stats.parked_bytes -= j->parked_bytes;
        s->stats.cells_parked -= (uint32_t)j->past;
        free(j->parked);
        j->parked = NULL;
        j->parked_bytes = 0;
        attach(s, j, seq);
    }
}

static void admit(struct pl_llm_sched *s) {
    resume(s);
    while (s->head != NULL && s->parked == NULL && s->stats.running < s->parallel) {
        struct pl_llm_job *j = s->head;
        if (!fits(s, j)) return; /* nobody overtakes the first one */
        llama_seq_id seq = pl_llm_free_sequence(s);
        if (seq == -1) return;
        s->head = j->next;
        if (s->head == NULL) s->tail = NULL;
        s->stats.waiting--;
        j->began = s->now;
        attach(s, j, seq);
        pl_llm_share(s, j);
    }
}

/* Seconds that one more would wait: it comes after those that wait, and as many at a time as run now. */
static double wait_of_next(const struct pl_llm_sched *s) {
    uint32_t at_once = s->stats.waiting > 0 && s->stats.running > 0 ? s->stats.running : s->parallel;
    return s->job_s * (double)(s->stats.waiting + 1) / (double)at_once;
}

static bool too_slow(const struct pl_llm_sched *s) {
    bool waits = s->stats.waiting > 0 || s->stats.running >= s->parallel;
    return s->o->max_wait_s > 0 && waits && s->stats.done >= KNOWN_JOBS && wait_of_next(s) > s->o->max_wait_s;
}

/* Those that have waited longer than they may; who came first is the head. */
static void give_up_late(struct pl_llm_sched *s) {
    while (s->o->max_wait_s > 0 && s->head != NULL && s->now - s->head->came > s->o->max_wait_s) {
        struct pl_llm_job *j = s->head;
        s->head = j->next;
        if (s->head == NULL) s->tail = NULL;
        s->stats.waiting--;
        s->stats.refused++;
        s->calls.done(j->o.user, PL_LLM_END_LATE, j->o.prompt_count, 0, 0);
        destroy(j);
    }
}

enum pl_llm_submitted pl_llm_submit(struct pl_llm_sched *s, const struct pl_llm_job_options *o, double now,
                                    struct pl_llm_job **out) {
    enum pl_llm_submitted why = PL_LLM_TAKEN;
    s->now = now;
    if (s->stats.waiting > 0) admit(s); /* who came since the last step may have a place */
    if ((uint64_t)o->prompt_count + (uint64_t)o->max_tokens > s->m->cells)
        why = PL_LLM_TOO_LONG;
    else if (s->stats.waiting >= s->o->queue && (s->stats.waiting > 0 || s->stats.running >= s->parallel))
        why = PL_LLM_QUEUE_FULL;
    else if (too_slow(s))
        why = PL_LLM_TOO_SLOW;
    struct pl_llm_job *j = why == PL_LLM_TAKEN ? calloc(1, sizeof *j) : NULL;
    llama_token *said = j != NULL ? malloc(((size_t)o->max_tokens + 1) * sizeof *said) : NULL;
    if (said == NULL) {
        if (why == PL_LLM_TAKEN) why = PL_LLM_NO_MEMORY;
        s->stats.refused++;
        free(j);
        free(o->prompt);
        pl_llm_sampler_free(o->sampler);
        return why;
    }
    *j = (struct pl_llm_job){ .o = *o, .id = s->next_id++, .seq = -1, .row = -1, .said = said, .came = now };
    *(s->tail != NULL ? &s->tail->next : &s->head) = j;
    s->tail = j;
    s->stats.waiting++;
    *out = j;
    return PL_LLM_TAKEN;
}

/* --- a step */

static void add_generating(struct pl_llm_sched *s) {
    for (uint32_t q = 0; q < s->m->sequences; q++) {
        struct pl_llm_job *j = s->run[q];
        if (j == NULL || in_prompt(j)) continue;
        j->row = s->m->batch.n_tokens;
        pl_llm_add(s->m, j->last, j->past, j->seq, true);
    }
}

static void add_prompt(struct pl_llm_sched *s, struct pl_llm_job *j, int count) {
    for (int i = 0; i < count; i++, j->past++) {
        bool last = j->past == j->o.prompt_count - 1;
        if (last) j->row = s->m->batch.n_tokens;
        pl_llm_add(s->m, j->o.prompt[j->past], j->past, j->seq, last);
    }
    s->own += (uint32_t)count;
    s->stats.prompt_tokens += (uint64_t)count;
}

/* Prompts share what is left of the step, the shortest first: a long one does not hold up short ones, and
 * gets what they do not need. */
static void add_prompts(struct pl_llm_sched *s, bool others) {
    int left = (int)(others ? s->chunk : s->m->batch_most),
        room = (int)s->m->batch_most - s->m->batch.n_tokens;
    int cells = (int)pl_llm_free_cells(s, s->own) - s->m->batch.n_tokens;
    if (left > room) left = room;
    if (s->o->optimistic && left > cells) left = cells;
    struct pl_llm_job *todo[256];
    int count = 0;
    for (uint32_t q = 0; q < s->m->sequences && count < 256; q++) {
        struct pl_llm_job *j = s->run[q];
        if (j == NULL || !in_prompt(j)) continue;
        int at = count++;
        for (; at > 0 && todo[at - 1]->o.prompt_count - todo[at - 1]->past > j->o.prompt_count - j->past;
             at--)
            todo[at] = todo[at - 1];
        todo[at] = j;
    }
    for (int i = 0; i < count && left > 0; i++) {
        int want = todo[i]->o.prompt_count - todo[i]->past, share = left / (count - i);
        if (share == 0) share = 1;
        int n = want < share ? want : share;
        add_prompt(s, todo[i], n);
        left -= n;
    }
}

/* Others wait for their next token while prompts are computed: fewer prompt tokens when that takes long. */
static void set_chunk(struct pl_llm_sched *s, double took) {
    if (took > 2 * STEP_S && s->chunk > CHUNK_LEAST)
        s->chunk = s->chunk / 2 > CHUNK_LEAST ? s->chunk / 2 : CHUNK_LEAST;
    else if (took < STEP_S && s->chunk < s->m->batch_most)
        s->chunk += s->chunk / 4 + 1;
    if (s->chunk > s->m->batch_most) s->chunk = s->m->batch_most;
}

static void take_row(struct pl_llm_sched *s, struct pl_llm_job *j) {
    struct pl_llm_chances chances = { .top_count = j->o.logprobs };
    bool first = j->out == 0;
    llama_token t =
        pl_llm_sample(j->o.sampler, llama_get_logits_ith(s->m->ctx, j->row),
                      llama_vocab_n_tokens(s->m->vocab), s->room, j->o.logprobs >= 0 ? &chances : NULL);
    j->row = -1;
    if (!first) { /* the token before this one is in a cell now */
        j->past++;
        s->own++;
    }
    if (t == LLAMA_TOKEN_NULL) {
        finish(s, j, PL_LLM_END_DEAD_END);
        return;
    }
    if (llama_vocab_is_eog(s->m->vocab, t) && !j->o.ignore_eos) {
        finish(s, j, PL_LLM_END_STOP);
        return;
    }
    j->last = j->said[j->out++] = t;
    s->stats.out_tokens++;
    if (s->calls.token(j->o.user, t, j->o.logprobs >= 0 ? &chances : NULL))
        finish(s, j, PL_LLM_END_STOP);
    else if (j->out >= j->o.max_tokens)
        finish(s, j, PL_LLM_END_LENGTH);
}

static void fail_all(struct pl_llm_sched *s) {
    for (uint32_t q = 0; q < s->m->sequences; q++)
        if (s->run[q] != NULL) finish(s, s->run[q], PL_LLM_END_FAILED);
    struct pl_llm_job *lists[] = { s->head, s->parked };
    s->head = s->tail = s->parked = NULL;
    s->stats.waiting = s->stats.parked = 0;
    for (size_t i = 0; i < 2; i++)
        for (struct pl_llm_job *j = lists[i], *n; j != NULL; j = n) {
            n = j->next;
            s->calls.done(j->o.user, PL_LLM_END_FAILED, j->o.prompt_count, 0, j->out);
            destroy(j);
        }
}

/* A refused step left the cells as they were, and our counts have run ahead. */
static void undo_rows(struct pl_llm_sched *s) {
    for (uint32_t q = 0; q < s->m->sequences; q++) {
        struct pl_llm_job *j = s->run[q];
        if (j == NULL) continue;
        int has = (int)llama_memory_seq_pos_max(s->m->memory, j->seq) + 1;
        if (in_prompt(j) || j->out == 0) {
            s->own -= (uint32_t)(j->past - has);
            j->past = has;
        }
        j->row = -1;
    }
}

bool pl_llm_step(struct pl_llm_sched *s, double now, double took) {
    struct pl_llm_model *m = s->m;
    s->now = now;
    admit(s);
    give_up_late(s);
    while (s->o->optimistic && !pl_llm_make_room(s, s->stats.running, s->own) && park_youngest(s)) continue;
    m->batch.n_tokens = 0;
    add_generating(s);
    bool others = m->batch.n_tokens > 0;
    if (others) set_chunk(s, took);
    add_prompts(s, others);
    if (m->batch.n_tokens == 0) return true;
    int rc = llama_decode(m->ctx, m->batch);
    if (rc == 1) { /* no room although we counted it: give up what is kept, then park, and try again */
        s->stats.no_cell++;
        undo_rows(s);
        pl_llm_forget_all(s);
        if (s->stats.no_cell > 1 && park_youngest(s)) return true;
        return s->stats.no_cell < 1000;
    }
    if (rc != 0) {
        fail_all(s);
        return false;
    }
    s->stats.steps++;
    for (uint32_t q = 0; q < m->sequences; q++)
        if (s->run[q] != NULL && s->run[q]->row >= 0) take_row(s, s->run[q]);
    return true;
}

void pl_llm_cancel(struct pl_llm_sched *s, struct pl_llm_job *j) {
    s->stats.cancelled++;
    if (j->seq != -1) {
        release(s, j, true);
        destroy(j);
        return;
    }
    struct pl_llm_job *before = NULL;
    for (struct pl_llm_job **at = &s->head; *at != NULL; before = *at, at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            if (s->tail == j) s->tail = before;
            s->stats.waiting--;
            destroy(j);
            return;
        }
    for (struct pl_llm_job **at = &s->parked; *at != NULL; at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            s->stats.parked--;
            s->stats.parked_bytes -= j->parked_bytes;
            s->stats.cells_parked -= (uint32_t)j->past;
            destroy(j);
            return;
        }
}

const struct pl_llm_stats *pl_llm_stats(struct pl_llm_sched *s) {
    s->stats.cells_used = s->own;
    s->stats.cells_reserved = s->reserved;
    s->stats.cells_kept = s->held;
    return &s->stats;
}

unsigned pl_llm_retry_after(const struct pl_llm_sched *s) {
    double wait = wait_of_next(s);
    return wait < 1 ? 1 : wait > 300 ? 300 : (unsigned)(wait + 0.5);
}
