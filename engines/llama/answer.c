#include "llama/answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *pl_llm_end_word(enum pl_llm_end why) { return why == PL_LLM_END_LENGTH ? "length" : "stop"; }

static void head(struct pl_buf *b, const struct pl_llm_answer *a, const char *object) {
    pl_buf_addf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%llu,\"model\":", a->id, object,
                (unsigned long long)a->created);
    pl_buf_add_json(b, a->model, strlen(a->model));
}

static void add_usage(struct pl_buf *b, const struct pl_llm_usage *u) {
    pl_buf_addf(b,
                "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
                "\"prompt_tokens_details\":{\"cached_tokens\":%d}}",
                u->prompt, u->out, u->prompt + u->out, u->cached);
}

/* Chat's shape on both routes: a list of entries. llama-server gives it for completions, too. */
static void add_logprobs(struct pl_buf *b, const struct pl_buf *entries) {
    if (entries == NULL || entries->len == 0) {
        pl_buf_adds(b, ",\"logprobs\":null");
        return;
    }
    pl_buf_adds(b, ",\"logprobs\":{\"content\":[");
    pl_buf_add(b, entries->data, entries->len);
    pl_buf_adds(b, "]}");
}

static void end_word(struct pl_buf *b, const char *why) {
    if (why != NULL)
        pl_buf_addf(b, ",\"finish_reason\":\"%s\"}", why);
    else
        pl_buf_adds(b, ",\"finish_reason\":null}");
}

void pl_llm_add_chunk(struct pl_buf *b, const struct pl_llm_answer *a, int index, bool first,
                      const char *text, size_t len, const struct pl_buf *logprobs, const char *why) {
    pl_buf_adds(b, "data: ");
    head(b, a, a->chat ? "chat.completion.chunk" : "text_completion");
    pl_buf_addf(b, ",\"choices\":[{\"index\":%d", index);
    if (a->chat) {
        pl_buf_adds(b, ",\"delta\":{");
        if (first) pl_buf_adds(b, "\"role\":\"assistant\"");
        if (first || why == NULL || len > 0) {
            pl_buf_adds(b, first ? ",\"content\":" : "\"content\":");
            pl_buf_add_json(b, text, len);
        }
        pl_buf_adds(b, "}");
    } else {
        pl_buf_adds(b, ",\"text\":");
        pl_buf_add_json(b, text, len);
    }
    add_logprobs(b, logprobs);
    end_word(b, why);
    pl_buf_adds(b, "]}\n\n");
}

void pl_llm_add_usage_chunk(struct pl_buf *b, const struct pl_llm_answer *a, const struct pl_llm_usage *u) {
    pl_buf_adds(b, "data: ");
    head(b, a, a->chat ? "chat.completion.chunk" : "text_completion");
    pl_buf_adds(b, ",\"choices\":[],");
    add_usage(b, u);
    pl_buf_adds(b, "}\n\n");
}

void pl_llm_add_document(struct pl_buf *b, const struct pl_llm_answer *a,
                         const struct pl_llm_choice_text *choices, size_t count,
                         const struct pl_llm_usage *u) {
    head(b, a, a->chat ? "chat.completion" : "text_completion");
    pl_buf_adds(b, ",\"choices\":[");
    for (size_t i = 0; i < count; i++) {
        const struct pl_llm_choice_text *c = &choices[i];
        pl_buf_addf(b,
                    a->chat ? "%s{\"index\":%zu,\"message\":{\"role\":\"assistant\",\"content\":"
                            : "%s{\"index\":%zu,\"text\":",
                    i > 0 ? "," : "", i);
        pl_buf_add_json(b, c->text->len > 0 ? c->text->data : "", c->text->len);
        if (a->chat) pl_buf_adds(b, "}");
        add_logprobs(b, c->logprobs);
        end_word(b, c->why);
    }
    pl_buf_adds(b, "],");
    add_usage(b, u);
    pl_buf_adds(b, "}");
}

/* --- logprobs */

static void add_chance(struct pl_buf *b, const struct llama_vocab *v, const struct pl_llm_chance *c) {
    char piece[256];
    int32_t n = llama_token_to_piece(v, c->token, piece, sizeof piece, 0, true);
    if (n < 0) n = 0;
    pl_buf_adds(b, "{\"token\":");
    pl_buf_add_json(b, piece, (size_t)n);
    /* JSON knows no infinity; OpenAI says -9999 for what cannot happen */
    pl_buf_addf(b, ",\"logprob\":%.6g,\"bytes\":[", isfinite(c->logprob) ? (double)c->logprob : -9999.0);
    for (int32_t i = 0; i < n; i++) pl_buf_addf(b, "%s%u", i > 0 ? "," : "", (unsigned char)piece[i]);
    pl_buf_adds(b, "]");
}

void pl_llm_add_chances(struct pl_buf *b, const struct llama_vocab *v, const struct pl_llm_chances *c) {
    if (b->len > 0) pl_buf_adds(b, ",");
    add_chance(b, v, &c->chosen);
    pl_buf_adds(b, ",\"top_logprobs\":[");
    for (int i = 0; i < c->top_count; i++) {
        if (i > 0) pl_buf_adds(b, ",");
        add_chance(b, v, &c->top[i]);
        pl_buf_adds(b, "}");
    }
    pl_buf_adds(b, "]}");
}

/* --- embeddings */

static void add_base64(struct pl_buf *b, const unsigned char *bytes, size_t len) {
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        unsigned n = (unsigned)bytes[i] << 16 | (i + 1 < len ? (unsigned)bytes[i + 1] << 8 : 0) |
                     (i + 2 < len ? bytes[i + 2] : 0u);
        char four[4] = { set[n >> 18], set[n >> 12 & 63], i + 1 < len ? set[n >> 6 & 63] : '=',
                         i + 2 < len ? set[n & 63] : '=' };
        pl_buf_add(b, four, 4);
    }
}

void pl_llm_add_embedding(struct pl_buf *b, size_t index, const float *values, int32_t count, bool base64) {
    double sum = 0;
    for (int32_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0; /* length 1, as OpenAI's */
    pl_buf_addf(b, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":%s", index > 0 ? "," : "", index,
                base64 ? "\"" : "[");
    for (int32_t i = 0; i < count; i++) {
        float one = (float)((double)values[i] * scale);
        unsigned char bytes[3 * sizeof one];
        if (!base64) {
            pl_buf_addf(b, "%s%.9g", i > 0 ? "," : "", (double)one);
            continue;
        }
        if (i % 3 != 0) continue; /* three floats are twelve bytes: whole groups, no padding between */
        size_t n = 0;
        for (int32_t k = i; k < count && k < i + 3; k++, n += sizeof one) {
            float scaled = (float)((double)values[k] * scale);
            memcpy(bytes + n, &scaled, sizeof scaled);
        }
        add_base64(b, bytes, n);
    }
    pl_buf_adds(b, base64 ? "\"}" : "]}");
}
