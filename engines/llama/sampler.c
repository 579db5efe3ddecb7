#include "sampler.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

struct pl_llm_sampler {
    struct llama_sampler *chain;
    struct llama_sampler *grammar; /* apart from the chain, see pl_llm_sample */
    size_t shortlist;              /* the chain begins by keeping so many of the likeliest; 0: it does not */
};

/* Some grammars take llama.cpp longer than anybody waits, and it cannot be interrupted in order. So the
 * worker ends: who is asked again meets another one, and the request that ends two of them is quarantined.
 * CPU time of this process, so that a busy machine is not taken for it. */
enum { GRAMMAR_CPU_S = 2 };

static void too_long(int number) {
    static const char words[] =
        "plimsoll-llama: a client's grammar took more than 2 s of CPU for one token\n";
    (void)number;
    if (write(STDERR_FILENO, words, sizeof words - 1) < 0) _exit(1);
    abort();
}

static void limit_time(bool on) {
    static bool ready;
    const struct itimerval t = { .it_value = { .tv_sec = on ? GRAMMAR_CPU_S : 0 } };
    if (!ready) signal(SIGVTALRM, too_long);
    ready = true;
    setitimer(ITIMER_VIRTUAL, &t, NULL);
}

void pl_llm_sampling_default(struct pl_llm_sampling *s) {
    *s = (struct pl_llm_sampling){ .temperature = 0.8F,
                                   .top_k = 40,
                                   .top_p = 0.95F,
                                   .min_p = 0.05F,
                                   .typical_p = 1,
                                   .top_n_sigma = -1,
                                   .repeat_penalty = 1,
                                   .repeat_last_n = 64,
                                   .dry_base = 1.75F,
                                   .dry_allowed_length = 2,
                                   .dry_penalty_last_n = -1,
                                   .xtc_threshold = 0.1F,
                                   .mirostat_tau = 5,
                                   .mirostat_eta = 0.1F,
                                   .seed = LLAMA_DEFAULT_SEED };
}

enum { SHORTLIST_MOST = 128 };

static void add(struct llama_sampler *chain, struct llama_sampler *one) {
    if (one != NULL) llama_sampler_chain_add(chain, one);
}

/* -1 is the whole context, as in llama-server. */
static int32_t last_n(const struct llama_model *m, int32_t n) {
    return n < 0 ? llama_model_n_ctx_train(m) : n;
}

/* Order and defaults are llama-server's. */
static struct llama_sampler *make_chain(const struct llama_model *m, const struct pl_llm_sampling *s) {
    static const char *breakers[] = { "\n", ":", "\"", "*" };
    const struct llama_vocab *v = llama_model_get_vocab(m);
    int32_t words = llama_vocab_n_tokens(v);
    struct llama_sampler *c = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (c == NULL) return NULL;
    if (s->bias_count > 0) add(c, llama_sampler_init_logit_bias(words, s->bias_count, s->biases));
    if (s->repeat_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0)
        add(c, llama_sampler_init_penalties(words, last_n(m, s->repeat_last_n), s->repeat_penalty,
                                            s->frequency_penalty, s->presence_penalty));
    if (s->temperature <= 0) {
        add(c, llama_sampler_init_greedy());
        return c;
    }
    if (s->mirostat != 0) {
        add(c, llama_sampler_init_temp(s->temperature));
        add(c, s->mirostat == 1
                   ? llama_sampler_init_mirostat(words, s->seed, s->mirostat_tau, s->mirostat_eta, 100)
                   : llama_sampler_init_mirostat_v2(s->seed, s->mirostat_tau, s->mirostat_eta));
        return c;
    }
    if (s->dry_multiplier > 0)
        add(c, llama_sampler_init_dry(v, s->dry_multiplier, s->dry_base, s->dry_allowed_length,
                                      last_n(m, s->dry_penalty_last_n), breakers,
                                      sizeof breakers / sizeof breakers[0]));
    if (s->top_n_sigma > 0) add(c, llama_sampler_init_top_n_sigma(s->top_n_sigma));
    if (s->top_k > 0) add(c, llama_sampler_init_top_k(s->top_k));
    if (s->typical_p < 1) add(c, llama_sampler_init_typical(s->typical_p, 1));
    if (s->top_p < 1) add(c, llama_sampler_init_top_p(s->top_p, 1));
    if (s->min_p > 0) add(c, llama_sampler_init_min_p(s->min_p, 1));
    if (s->xtc_probability > 0)
        add(c, llama_sampler_init_xtc(s->xtc_probability, s->xtc_threshold, 1, s->seed));
    add(c, llama_sampler_init_temp(s->temperature));
    add(c, llama_sampler_init_dist(s->seed));
    return c;
}

/* What the chain looks at first: with biases, penalties or a sampler that sums over all, every token. */
static size_t shortlist_of(const struct pl_llm_sampling *s) {
    bool all =
        s->bias_count > 0 || s->repeat_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0;
    if (s->temperature <= 0) return all ? 0 : 1;
    if (all || s->mirostat != 0 || s->dry_multiplier > 0 || s->top_n_sigma > 0) return 0;
    return s->top_k > 0 && s->top_k <= SHORTLIST_MOST ? (size_t)s->top_k : 0;
}

struct pl_llm_sampler *pl_llm_sampler_make(const struct llama_model *m, const struct pl_llm_sampling *s,
                                           const char *grammar) {
    struct pl_llm_sampler *out = calloc(1, sizeof *out);
    if (out == NULL) return NULL;
    out->chain = make_chain(m, s);
    out->shortlist = grammar == NULL ? shortlist_of(s) : 0;
    if (grammar != NULL) {
        limit_time(true);
        out->grammar = llama_sampler_init_grammar(llama_model_get_vocab(m), grammar, "root");
        limit_time(false);
    }
    if (out->chain != NULL && (grammar == NULL || out->grammar != NULL)) return out;
    pl_llm_sampler_free(out);
    return NULL;
}

void pl_llm_sampler_free(struct pl_llm_sampler *s) {
    if (s == NULL) return;
    if (s->chain != NULL) llama_sampler_free(s->chain);
    if (s->grammar != NULL) llama_sampler_free(s->grammar);
    free(s);
}

/* Chances of the model itself: a softmax over the raw logits. */
static double log_sum(const float *logits, int32_t n) {
    float top = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) top = logits[i] > top ? logits[i] : top;
    for (int32_t i = 0; i < n; i++) sum += (double)expf(logits[i] - top);
    return (double)top + log(sum);
}

static void find_top(const float *logits, int32_t n, double norm, struct pl_llm_chances *c) {
    int want = c->top_count, have = 0;
    for (int32_t i = 0; i < n && want > 0; i++) {
        if (have == want && (double)logits[i] - norm <= (double)c->top[have - 1].logprob) continue;
        int at = have < want ? have++ : have - 1;
        float logprob = (float)((double)logits[i] - norm);
        for (; at > 0 && c->top[at - 1].logprob < logprob; at--) c->top[at] = c->top[at - 1];
        c->top[at] = (struct pl_llm_chance){ i, logprob };
    }
    c->top_count = have;
}

size_t pl_llm_shortlist(const float *logits, int32_t n, size_t k, llama_token_data *out) {
    size_t have = 0;
    for (int32_t i = 0; i < n; i++) {
        if (have == k && !(logits[i] > out[k - 1].logit)) continue;
        if (isnan(logits[i])) continue;
        size_t at = have < k ? have++ : k - 1;
        for (; at > 0 && out[at - 1].logit < logits[i]; at--) out[at] = out[at - 1];
        out[at] = (llama_token_data){ i, logits[i], 0 };
    }
    return have;
}

/* Never llama_sampler_sample with a grammar that a client sent: to accept a token that the grammar forbids is
 * a C++ exception, and through C that ends the process. So: what does the grammar leave, and only then
 * choose. */
llama_token pl_llm_sample(struct pl_llm_sampler *s, const float *logits, int32_t vocabulary,
                          llama_token_data *room, struct pl_llm_chances *chances) {
    llama_token_data_array row = { room, (size_t)vocabulary, -1, false };
    if (s->shortlist > 0) {
        row.size = pl_llm_shortlist(logits, vocabulary, s->shortlist, room);
        row.sorted = true;
        if (row.size == 0) return LLAMA_TOKEN_NULL; /* not one of them is a number */
    } else {
        for (int32_t i = 0; i < vocabulary; i++) room[i] = (llama_token_data){ i, logits[i], 0 };
    }
    if (s->grammar != NULL) {
        bool any = false;
        limit_time(true);
        llama_sampler_apply(s->grammar, &row);
        limit_time(false);
        for (size_t i = 0; i < row.size && !any; i++) any = row.data[i].logit > -INFINITY;
        if (!any) return LLAMA_TOKEN_NULL;
    }
    llama_sampler_apply(s->chain, &row);
    if (row.selected < 0 || (size_t)row.selected >= row.size || !(row.data[row.selected].logit > -INFINITY))
        return LLAMA_TOKEN_NULL;
    llama_token token = row.data[row.selected].id;
    llama_sampler_accept(s->chain, token);
    if (s->grammar != NULL) {
        limit_time(true);
        llama_sampler_accept(s->grammar, token);
        limit_time(false);
    }
    if (chances != NULL) {
        double norm = log_sum(logits, vocabulary);
        chances->chosen = (struct pl_llm_chance){ token, (float)((double)logits[token] - norm) };
        find_top(logits, vocabulary, norm, chances);
    }
    return token;
}
