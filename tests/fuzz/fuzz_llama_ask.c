/* fuzz_llama_ask.c - a request's JSON: what is taken is within its bounds, what is not has a status and a
 * reason. llama.cpp reads every grammar that we made of a schema, and lives through every other that we let
 * pass. The first byte is the route.
 *
 * USES llama
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "llama/ask.h"
#include "llama/grammar.h"

enum { VOCABULARY = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sampling(const struct pl_llm_sampling *s) {
    const float numbers[] = { s->temperature,       s->top_p,           s->min_p,          s->typical_p,
                              s->top_n_sigma,       s->repeat_penalty,  s->dry_multiplier, s->dry_base,
                              s->frequency_penalty, s->presence_penalty };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) PL_ASSERT(isfinite(numbers[i]));
    PL_ASSERT(s->temperature >= 0 && s->top_p <= 1 && s->repeat_penalty > 0 && s->top_k >= 0);
    PL_ASSERT(s->bias_count <= PL_LLM_BIASES);
    for (int32_t i = 0; i < s->bias_count; i++)
        PL_ASSERT(s->biases[i].token >= 0 && s->biases[i].token < VOCABULARY && !isnan(s->biases[i].bias));
}

static void check_texts(const struct pl_llm_ask *a) {
    PL_ASSERT(a->message_count <= PL_LLM_MESSAGES && a->input_count <= PL_LLM_INPUTS &&
              a->stop_count <= PL_LLM_STOPS);
    for (size_t i = 0; i < a->message_count; i++)
        PL_ASSERT(a->messages[i].role != NULL && a->messages[i].content != NULL);
    for (size_t i = 0; i < a->input_count; i++)
        PL_ASSERT((a->inputs[i].text != NULL) != (a->inputs[i].tokens != NULL));
    for (size_t i = 0; i < a->stop_count; i++)
        PL_ASSERT(a->stop_lens[i] > 0 && a->stop_lens[i] <= PL_LLM_STOP_BYTES);
}

static void check_grammar(const struct pl_llm_ask *a) {
    if (a->grammar == NULL) return;
    PL_ASSERT(pl_llm_grammar_fault(a->grammar, strlen(a->grammar), true) == NULL);
    PL_ASSERT(!a->ignore_eos);
    struct llama_sampler *s = llama_sampler_init_grammar(NULL, a->grammar, "root"); /* without token names */
    PL_ASSERT(s != NULL || json_is_string(json_object_get(a->root, "grammar")));
    if (s != NULL) llama_sampler_free(s);
}

static void say_nothing(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_llm_ask ask;
    struct pl_llm_fault fault = { 0 };
    llama_log_set(say_nothing, NULL);
    if (size == 0) return 0;
    enum pl_llm_route route = (enum pl_llm_route)(data[0] % (PL_LLM_DETOKENIZE + 1));
    char *exact = malloc(size);
    PL_ASSERT(exact != NULL);
    memcpy(exact, data + 1, size - 1);
    if (pl_llm_ask_read(route, exact, size - 1, VOCABULARY, &ask, &fault)) {
        PL_ASSERT(fault.status == 0);
        PL_ASSERT(ask.n >= 1 && ask.n <= PL_LLM_CHOICES && ask.max_tokens >= 0 && ask.logprobs >= -1);
        PL_ASSERT(route == PL_LLM_CHAT ? ask.message_count > 0 : ask.input_count > 0);
        check_sampling(&ask.sampling);
        check_texts(&ask);
        check_grammar(&ask);
    } else {
        PL_ASSERT(fault.status == 400 || fault.status == 413 || fault.status == 501 || fault.status == 503);
        PL_ASSERT(fault.message[0] != '\0');
    }
    pl_llm_ask_free(&ask);
    free(exact);
    return 0;
}
