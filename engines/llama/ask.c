#include "llama/ask.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama/grammar.h"
#include "llama/schema.h"

static bool wrong(struct pl_llm_fault *f, uint16_t status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static bool wrong(struct pl_llm_fault *f, uint16_t status, const char *code, const char *fmt, ...) {
    va_list ap;
    f->status = status;
    f->code = code;
    va_start(ap, fmt);
    vsnprintf(f->message, sizeof f->message, fmt, ap);
    va_end(ap);
    return false;
}

static const json_t *get(const struct pl_llm_ask *a, const char *key) {
    const json_t *v = json_object_get(a->root, key);
    return json_is_null(v) ? NULL : v; /* null is how clients say "not given" */
}

/* --- numbers and switches */

static bool number(const struct pl_llm_ask *a, const char *key, double low, double high, float *out,
                   struct pl_llm_fault *f) {
    const json_t *v = get(a, key);
    if (v == NULL) return true;
    double n = json_number_value(v);
    if (!json_is_number(v) || !isfinite(n) || n < low || n > high)
        return wrong(f, 400, "invalid_value", "%s: a number from %g to %g", key, low, high);
    *out = (float)n;
    return true;
}

static bool integer(const struct pl_llm_ask *a, const char *key, long long low, long long high,
                    long long *out, struct pl_llm_fault *f) {
    const json_t *v = get(a, key);
    if (v == NULL) return true;
    long long n = json_integer_value(v);
    if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 1e15)
        n = (long long)json_real_value(v); /* 16.0, as some clients print */
    else if (!json_is_integer(v))
        return wrong(f, 400, "invalid_value", "%s: a whole number from %lld to %lld", key, low, high);
    if (n < low || n > high)
        return wrong(f, 400, "invalid_value", "%s %lld: a whole number from %lld to %lld", key, n, low, high);
    *out = n;
    return true;
}

static bool integer32(const struct pl_llm_ask *a, const char *key, long long low, long long high,
                      int32_t *out, struct pl_llm_fault *f) {
    long long n = *out;
    if (!integer(a, key, low, high, &n, f)) return false;
    *out = (int32_t)n;
    return true;
}

static bool flag(const struct pl_llm_ask *a, const char *key, bool *out, struct pl_llm_fault *f) {
    const json_t *v = get(a, key);
    if (v == NULL) return true;
    if (!json_is_boolean(v)) return wrong(f, 400, "invalid_value", "%s: true or false", key);
    *out = json_is_true(v);
    return true;
}

/* {"50256": -100} or [[50256, -100], …]; `false` means never. */
static bool add_bias(struct pl_llm_sampling *s, int32_t vocabulary, long long token, const json_t *v,
                     struct pl_llm_fault *f) {
    double bias = json_is_false(v) ? -HUGE_VAL : json_number_value(v);
    if (token < 0 || token >= vocabulary)
        return wrong(f, 400, "invalid_value", "logit_bias: token %lld: the vocabulary has %d", token,
                     vocabulary);
    if ((!json_is_number(v) && !json_is_false(v)) || fabs(bias) > 1e6) {
        if (!json_is_false(v))
            return wrong(f, 400, "invalid_value", "logit_bias: token %lld: a number", token);
    }
    s->biases[s->bias_count++] = (llama_logit_bias){ (llama_token)token, (float)bias };
    return true;
}

static bool biases(struct pl_llm_ask *a, int32_t vocabulary, struct pl_llm_fault *f) {
    const json_t *v = get(a, "logit_bias");
    size_t count = json_is_object(v) ? json_object_size(v) : json_array_size(v);
    if (v == NULL || count == 0) return true;
    if (count > PL_LLM_BIASES)
        return wrong(f, 400, "invalid_value", "logit_bias: more than %d tokens", PL_LLM_BIASES);
    a->sampling.biases = calloc(count, sizeof *a->sampling.biases);
    if (a->sampling.biases == NULL) return wrong(f, 503, NULL, "out of memory");
    for (void *i = json_object_iter((json_t *)(uintptr_t)v); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)v, i)) {
        char *end;
        long long token = strtoll(json_object_iter_key(i), &end, 10);
        if (*end != '\0' || end == json_object_iter_key(i))
            return wrong(f, 400, "invalid_value", "logit_bias: %.40s: names are token numbers",
                         json_object_iter_key(i));
        if (!add_bias(&a->sampling, vocabulary, token, json_object_iter_value(i), f)) return false;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *pair = json_array_get(v, i), *token = json_array_get(pair, 0);
        if (json_array_size(pair) != 2 || !json_is_integer(token))
            return wrong(f, 400, "invalid_value", "logit_bias[%zu]: [token, bias]", i);
        if (!add_bias(&a->sampling, vocabulary, json_integer_value(token), json_array_get(pair, 1), f))
            return false;
    }
    return true;
}

static bool sampling(struct pl_llm_ask *a, int32_t vocabulary, struct pl_llm_fault *f) {
    struct pl_llm_sampling *s = &a->sampling;
    long long seed = -1;
    bool ok = number(a, "temperature", 0, 100, &s->temperature, f) &&
              number(a, "top_p", 0, 1, &s->top_p, f) && number(a, "min_p", 0, 1, &s->min_p, f) &&
              number(a, "typical_p", 0, 1, &s->typical_p, f) &&
              number(a, "top_n_sigma", -1, 100, &s->top_n_sigma, f) &&
              integer32(a, "top_k", 0, 1000000, &s->top_k, f) &&
              number(a, "repeat_penalty", 0.01, 10, &s->repeat_penalty, f) &&
              number(a, "frequency_penalty", -2, 2, &s->frequency_penalty, f) &&
              number(a, "presence_penalty", -2, 2, &s->presence_penalty, f) &&
              integer32(a, "repeat_last_n", -1, 1000000, &s->repeat_last_n, f) &&
              number(a, "dry_multiplier", 0, 100, &s->dry_multiplier, f) &&
              number(a, "dry_base", 1, 100, &s->dry_base, f) &&
              integer32(a, "dry_allowed_length", 1, 1000, &s->dry_allowed_length, f) &&
              integer32(a, "dry_penalty_last_n", -1, 1000000, &s->dry_penalty_last_n, f) &&
              number(a, "xtc_probability", 0, 1, &s->xtc_probability, f) &&
              number(a, "xtc_threshold", 0, 1, &s->xtc_threshold, f) &&
              integer32(a, "mirostat", 0, 2, &s->mirostat, f) &&
              number(a, "mirostat_tau", 0, 100, &s->mirostat_tau, f) &&
              number(a, "mirostat_eta", 0, 100, &s->mirostat_eta, f) &&
              integer(a, "seed", -1, 4294967295, &seed, f) && biases(a, vocabulary, f);
    if (seed >= 0) s->seed = (uint32_t)seed;
    return ok;
}

/* --- texts */

static bool stops(struct pl_llm_ask *a, struct pl_llm_fault *f) {
    const json_t *v = get(a, "stop");
    size_t count = json_is_array(v) ? json_array_size(v) : v != NULL;
    if (count > PL_LLM_STOPS) return wrong(f, 400, "invalid_value", "stop: at most %d texts", PL_LLM_STOPS);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        size_t n = json_string_length(one);
        if (!json_is_string(one) || n == 0 || n > PL_LLM_STOP_BYTES)
            return wrong(f, 400, "invalid_value", "stop: texts of 1 to %d bytes", PL_LLM_STOP_BYTES);
        a->stops[a->stop_count] = json_string_value(one);
        a->stop_lens[a->stop_count++] = n;
    }
    return true;
}

/* Content in parts: [{"type": "text", "text": "…"}, …]. Other kinds of parts need another server. */
static bool join_parts(struct pl_llm_ask *a, size_t at, const json_t *parts, struct pl_llm_fault *f) {
    size_t room = 1, len = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (type != NULL && strcmp(type, "text") != 0)
            return wrong(f, 501, NULL,
                         "messages[%zu].content[%zu]: parts of type %.32s: this worker reads text only; "
                         "llama-server as a `command` worker reads more",
                         at, i, type);
        if (!json_is_string(text))
            return wrong(f, 400, "invalid_value", "messages[%zu].content[%zu].text: a string", at, i);
        room += json_string_length(text);
    }
    char *all = malloc(room);
    if (all == NULL) return wrong(f, 503, NULL, "out of memory");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        memcpy(all + len, json_string_value(text), json_string_length(text));
        len += json_string_length(text);
    }
    all[len] = '\0';
    a->joined[at] = all;
    a->messages[at].content = all;
    return true;
}

static bool messages(struct pl_llm_ask *a, struct pl_llm_fault *f) {
    const json_t *list = get(a, "messages");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return wrong(f, 400, "invalid_value", "messages: a list of {\"role\", \"content\"}, at least one");
    if (json_array_size(list) > PL_LLM_MESSAGES)
        return wrong(f, 413, NULL, "messages: more than %d", PL_LLM_MESSAGES);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role == NULL || role[0] == '\0')
            return wrong(f, 400, "invalid_value", "messages[%zu].role: a string", i);
        if (strcmp(role, "developer") == 0) role = "system"; /* OpenAI's new name for it */
        if (json_array_size(json_object_get(m, "tool_calls")) > 0 || strcmp(role, "tool") == 0)
            return wrong(
                f, 501, NULL,
                "messages[%zu]: tools: this worker knows none; llama-server as a `command` worker does", i);
        a->messages[i] = (struct llama_chat_message){ role, json_string_value(content) };
        a->message_count = i + 1;
        if (json_is_array(content) && !join_parts(a, i, content, f)) return false;
        if (a->messages[i].content == NULL)
            return wrong(f, 400, "invalid_value", "messages[%zu].content: a string, or a list of text parts",
                         i);
    }
    return true;
}

static bool is_tokens(const json_t *v, int32_t vocabulary) {
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *t = json_array_get(v, i);
        if (!json_is_integer(t) || json_integer_value(t) < 0 || json_integer_value(t) >= vocabulary)
            return false;
    }
    return json_array_size(v) > 0;
}

static bool add_input(struct pl_llm_ask *a, const char *key, const json_t *v, int32_t vocabulary,
                      struct pl_llm_fault *f) {
    if (a->input_count == PL_LLM_INPUTS) return wrong(f, 413, NULL, "%s: more than %d", key, PL_LLM_INPUTS);
    struct pl_llm_input *in = &a->inputs[a->input_count];
    if (json_is_string(v))
        *in = (struct pl_llm_input){ .text = json_string_value(v), .text_len = json_string_length(v) };
    else if (json_is_array(v) && is_tokens(v, vocabulary))
        *in = (struct pl_llm_input){ .tokens = v };
    else
        return wrong(f, 400, "invalid_value", "%s: a string, or token numbers below %d, or a list of these",
                     key, vocabulary);
    a->input_count++;
    return true;
}

/* A string, a list of strings, token numbers, or lists of token numbers. */
static bool inputs(struct pl_llm_ask *a, const char *key, int32_t vocabulary, struct pl_llm_fault *f) {
    const json_t *v = get(a, key);
    if (v == NULL) return wrong(f, 400, "invalid_value", "%s is missing", key);
    if (!json_is_array(v) || is_tokens(v, vocabulary)) return add_input(a, key, v, vocabulary, f);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_input(a, key, json_array_get(v, i), vocabulary, f)) return false;
    return a->input_count > 0 || wrong(f, 400, "invalid_value", "%s: empty", key);
}

/* --- grammars */

static bool take_grammar(struct pl_llm_ask *a, const char *gbnf, size_t len, bool ours, const char *key,
                         struct pl_llm_fault *f) {
    const char *fault = pl_llm_grammar_fault(gbnf, len, ours);
    if (fault != NULL) return wrong(f, 400, "invalid_value", "%s: the grammar is refused: %s", key, fault);
    a->grammar = strndup(gbnf, len);
    return a->grammar != NULL || wrong(f, 503, NULL, "out of memory");
}

static bool schema_grammar(struct pl_llm_ask *a, const json_t *schema, const char *key,
                           struct pl_llm_fault *f) {
    struct pl_buf gbnf;
    char fault[200];
    pl_buf_init(&gbnf, PL_LLM_GRAMMAR_BYTES);
    bool ok = pl_llm_schema(schema, &gbnf, fault, sizeof fault);
    if (!ok) wrong(f, 400, "invalid_value", "%s: %s", key, fault);
    ok = ok && take_grammar(a, gbnf.data, gbnf.len, true, key, f);
    pl_buf_free(&gbnf);
    return ok;
}

static bool grammar(struct pl_llm_ask *a, struct pl_llm_fault *f) {
    const json_t *text = get(a, "grammar"), *format = get(a, "response_format"),
                 *plain = get(a, "json_schema");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && type == NULL)
        return wrong(f, 400, "invalid_value", "response_format.type is missing");
    bool wants_json = type != NULL && strcmp(type, "json_object") == 0;
    bool wants_schema = type != NULL && strcmp(type, "json_schema") == 0;
    if (type != NULL && !wants_json && !wants_schema && strcmp(type, "text") != 0)
        return wrong(f, 400, "invalid_value", "response_format.type %.40s: text, json_object or json_schema",
                     type);
    if ((text != NULL) + (plain != NULL) + wants_json + wants_schema > 1)
        return wrong(f, 400, "invalid_value", "grammar, json_schema and response_format: one of them");
    bool ok = true;
    if (text != NULL)
        ok = json_is_string(text)
                 ? take_grammar(a, json_string_value(text), json_string_length(text), false, "grammar", f)
                 : wrong(f, 400, "invalid_value", "grammar: a string of GBNF");
    if (plain != NULL) ok = schema_grammar(a, plain, "json_schema", f);
    if (wants_json) {
        const json_t *inner = json_object_get(format, "schema"); /* llama-server's older way */
        json_t *any = inner == NULL ? json_pack("{s:s}", "type", "object") : NULL;
        ok = schema_grammar(a, inner != NULL ? inner : any, "response_format.schema", f);
        json_decref(any);
    }
    if (wants_schema) {
        const json_t *inner = json_object_get(json_object_get(format, "json_schema"), "schema");
        ok = inner != NULL ? schema_grammar(a, inner, "response_format.json_schema.schema", f)
                           : wrong(f, 400, "invalid_value", "response_format.json_schema.schema is missing");
    }
    if (ok && a->grammar != NULL && a->ignore_eos)
        return wrong(f, 400, "invalid_value",
                     "ignore_eos with a grammar: the grammar decides where the answer ends");
    return ok;
}

/* --- the whole */

static bool logprobs(enum pl_llm_route route, struct pl_llm_ask *a, struct pl_llm_fault *f) {
    bool on = false;
    int32_t top = 0;
    a->logprobs = -1;
    if (route == PL_LLM_COMPLETION) {
        int32_t n = -1;
        if (!integer32(a, "logprobs", 0, PL_LLM_TOP, &n, f)) return false;
        a->logprobs = n;
        return true;
    }
    if (!flag(a, "logprobs", &on, f) || !integer32(a, "top_logprobs", 0, PL_LLM_TOP, &top, f)) return false;
    if (top > 0 && !on) return wrong(f, 400, "invalid_value", "top_logprobs needs logprobs: true");
    if (on) a->logprobs = top;
    return true;
}

static bool generation(enum pl_llm_route route, struct pl_llm_ask *a, int32_t vocabulary,
                       struct pl_llm_fault *f) {
    int32_t most = 0, n = 1;
    static const char *const others[] = { "tools", "functions" };
    for (size_t i = 0; i < 2; i++)
        if (json_array_size(get(a, others[i])) > 0)
            return wrong(f, 501, NULL, "%s: this worker knows none; llama-server as a `command` worker does",
                         others[i]);
    if (!integer32(a, "max_tokens", 1, 1000000000, &most, f) ||
        !integer32(a, "max_completion_tokens", 1, 1000000000, &most, f) ||
        !integer32(a, "n", 1, PL_LLM_CHOICES, &n, f) || !flag(a, "stream", &a->stream, f) ||
        !flag(a, "ignore_eos", &a->ignore_eos, f) || !flag(a, "echo", &a->echo, f))
        return false;
    a->max_tokens = most;
    a->n = n;
    a->include_usage = json_is_true(json_object_get(get(a, "stream_options"), "include_usage"));
    return sampling(a, vocabulary, f) && stops(a, f) && logprobs(route, a, f) && grammar(a, f);
}

bool pl_llm_ask_read(enum pl_llm_route route, const char *body, size_t len, int32_t vocabulary,
                     struct pl_llm_ask *a, struct pl_llm_fault *f) {
    json_error_t at;
    *a = (struct pl_llm_ask){ .n = 1, .logprobs = -1, .add_special = false };
    pl_llm_sampling_default(&a->sampling);
    a->root = json_loadb(body, len, JSON_REJECT_DUPLICATES, &at);
    if (a->root == NULL) return wrong(f, 400, "invalid_json", "byte %d: %s", at.position, at.text);
    if (!json_is_object(a->root)) return wrong(f, 400, "invalid_json", "the body is no JSON object");
    a->model = json_string_value(get(a, "model"));
    switch (route) {
    case PL_LLM_CHAT:
        return messages(a, f) && generation(route, a, vocabulary, f);
    case PL_LLM_COMPLETION:
        if (!inputs(a, "prompt", vocabulary, f) || !generation(route, a, vocabulary, f)) return false;
        if (a->input_count * (size_t)a->n > PL_LLM_CHOICES)
            return wrong(f, 400, "invalid_value", "prompt and n: at most %d answers to one request",
                         PL_LLM_CHOICES);
        return true;
    case PL_LLM_EMBEDDING: {
        const char *format = json_string_value(get(a, "encoding_format"));
        a->base64 = format != NULL && strcmp(format, "base64") == 0;
        if (format != NULL && !a->base64 && strcmp(format, "float") != 0)
            return wrong(f, 400, "invalid_value", "encoding_format %.20s: float or base64", format);
        return inputs(a, "input", vocabulary, f);
    }
    case PL_LLM_TOKENIZE:
        return inputs(a, "content", vocabulary, f) && flag(a, "add_special", &a->add_special, f) &&
               flag(a, "with_pieces", &a->with_pieces, f) &&
               (a->inputs[0].tokens == NULL || wrong(f, 400, "invalid_value", "content: a string"));
    case PL_LLM_DETOKENIZE:
        return inputs(a, "tokens", vocabulary, f) &&
               (a->inputs[0].tokens != NULL || wrong(f, 400, "invalid_value", "tokens: token numbers"));
    }
    return false;
}

void pl_llm_ask_free(struct pl_llm_ask *a) {
    for (size_t i = 0; i < a->message_count; i++) free(a->joined[i]);
    free(a->sampling.biases);
    free(a->grammar);
    json_decref(a->root);
    *a = (struct pl_llm_ask){ 0 };
}
