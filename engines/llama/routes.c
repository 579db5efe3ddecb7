/* routes.c - what plimsoll-llama answers, and what it says it does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "llama/serve_inside.h"

enum { BODY_BYTES = 64 << 20, DOCUMENT_BYTES = 64 << 20 };

/* What llama-server answers beside this: a worker of kind `command` has it. */
static const char *const elsewhere[] = { "/infill",
                                         "/v1/responses",
                                         "/v1/messages",
                                         "/v1/audio/transcriptions",
                                         "/apply-template",
                                         "/slots",
                                         "/lora-adapters",
                                         "/models/load",
                                         "/models/unload",
                                         "/v1/rerank",
                                         "/rerank",
                                         "/props",
                                         NULL };

static bool is_path(const struct pl_http_head *h, const char *path) {
    size_t n = strcspn(path, "?");
    const char *target = pl_http_at(h, h->target);
    return h->target_len >= n && memcmp(target, path, n) == 0 && (h->target_len == n || target[n] == '?');
}

static void reply_text(struct pl_conn *c, uint16_t status, const char *type, const struct pl_buf *b,
                       const char *extra) {
    const struct pl_http_reply r = {
        .status = status, .content_type = type, .body = b->data, .body_len = b->len, .extra = extra
    };
    pl_conn_reply(c, &r);
}

void pl_llm_fail(struct pl_conn *c, const struct pl_llm_fault *f, unsigned retry_after) {
    const struct pl_reason_info *why = pl_reason_info(f->reason);
    char extra[192] = "";
    size_t n = 0;
    struct pl_buf b;
    if (retry_after > 0)
        n = (size_t)snprintf(extra, sizeof extra, "Retry-After: %u\r\nretry-after-ms: %u000\r\n", retry_after,
                             retry_after);
    if (f->reason != PL_REASON_NONE)
        snprintf(extra + n, sizeof extra - n,
                 "x-plimsoll-reason: %s\r\nx-llm-d-request-dropped-reason: %s\r\n", why->name, why->dropped);
    pl_buf_init(&b, 65536);
    pl_http_error_body(&b, PL_DIALECT_OPENAI, f->status, f->code, f->message);
    reply_text(c, f->status, NULL, &b, extra[0] != '\0' ? extra : NULL);
    pl_buf_free(&b);
}

static void refuse(struct pl_conn *c, uint16_t status, const char *message) {
    struct pl_llm_fault f = { .status = status };
    snprintf(f.message, sizeof f.message, "%s", message);
    pl_llm_fail(c, &f, status == 503 ? 1 : 0);
}

void pl_llm_drop(struct pl_llm_reply *r, uint16_t status, bool whole) {
    pl_llm_page_end(&r->s->page,
                    &(struct pl_llm_page_end){ .id = r->id,
                                               .begun = r->record,
                                               .begun_us = r->begun_us,
                                               .input_bytes = r->body.len,
                                               .status = status,
                                               .stream = r->ask.stream,
                                               .whole = whole },
                    pl_now_us());
    pl_conn_set_user(r->c, NULL);
    for (size_t i = 0; i < PL_LLM_CHOICES; i++) {
        struct pl_llm_choice *c = &r->choices[i];
        if (c->reply == NULL) continue;
        if (c->job != NULL) pl_llm_cancel(r->s->sched, c->job);
        pl_llm_text_free(&c->text);
        pl_buf_free(&c->out);
        pl_buf_free(&c->logprobs);
    }
    pl_llm_ask_free(&r->ask);
    pl_buf_free(&r->body);
    free(r);
}

/* --- reading */

static void reply_models(struct pl_llm_server *s, struct pl_conn *c) {
    struct pl_buf b;
    pl_buf_init(&b, DOCUMENT_BYTES);
    pl_buf_adds(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < s->name_count; i++) {
        pl_buf_adds(&b, i > 0 ? ",{\"id\":" : "{\"id\":");
        pl_buf_add_json(&b, s->names[i], strlen(s->names[i]));
        pl_buf_addf(&b,
                    ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"plimsoll\",\"max_model_len\":%u,"
                    "\"meta\":{\"n_ctx\":%u,"
                    "\"n_ctx_train\":%u,\"n_vocab\":%d,\"n_embd\":%d,\"size\":%llu,\"chat\":%s}}",
                    (unsigned long long)(s->boot), s->model.cells, s->model.cells, s->model.trained,
                    llama_vocab_n_tokens(s->model.vocab), llama_model_n_embd(s->model.model),
                    (unsigned long long)s->model.bytes.weights, s->chat.name != NULL ? "true" : "false");
    }
    pl_buf_adds(&b, "]}");
    reply_text(c, 200, NULL, &b, NULL);
    pl_buf_free(&b);
}

static void reply_ready(struct pl_llm_server *s, struct pl_conn *c) {
    static const char *const phases[] = { "loading", "ready", "draining", "broken" };
    bool ready = s->state == PL_LLM_READY;
    struct pl_buf b;
    pl_buf_init(&b, 4096);
    pl_buf_addf(&b, "{\"ready\":%s,\"phase\":\"%s\",\"progress\":%.3f}", ready ? "true" : "false",
                phases[s->state], ready ? 1 : atomic_load(&s->progress) / 1000.0);
    reply_text(c, ready ? 200 : 503, NULL, &b, ready ? NULL : "Retry-After: 1\r\n");
    pl_buf_free(&b);
}

static void reply_metrics(struct pl_llm_server *s, struct pl_conn *c) {
    struct pl_buf b;
    pl_buf_init(&b, DOCUMENT_BYTES);
    pl_llm_metrics(s, &b);
    reply_text(c, 200, "text/plain; version=0.0.4; charset=utf-8", &b, NULL);
    pl_buf_free(&b);
}

static void read_request(struct pl_llm_server *s, struct pl_conn *c, const struct pl_http_head *h) {
    if (is_path(h, "/livez")) {
        struct pl_buf b;
        pl_buf_init(&b, 64);
        pl_buf_adds(&b, "{\"live\":true}");
        reply_text(c, 200, NULL, &b, NULL);
        pl_buf_free(&b);
    } else if (is_path(h, "/readyz") || is_path(h, "/health"))
        reply_ready(s, c);
    else if (s->state == PL_LLM_LOADING)
        refuse(c, 503, "the model is loading");
    else if (is_path(h, "/metrics"))
        reply_metrics(s, c);
    else if (is_path(h, "/v1/models") || is_path(h, "/models"))
        reply_models(s, c);
    else
        refuse(c, 404,
               "no such route: /v1/chat/completions /v1/completions /v1/embeddings /v1/models /tokenize "
               "/detokenize");
}

/* --- acting */

llama_token *pl_llm_input_tokens(const struct llama_vocab *v, const struct pl_llm_input *in, int *count) {
    if (in->tokens == NULL) return pl_llm_tokens(v, in->text, in->text_len, true, true, count);
    *count = (int)json_array_size(in->tokens);
    llama_token *out = malloc((size_t)*count * sizeof *out);
    for (int i = 0; out != NULL && i < *count; i++)
        out[i] = (llama_token)json_integer_value(json_array_get(in->tokens, (size_t)i));
    return out;
}

static bool route_of(const struct pl_http_head *h, enum pl_llm_route *out) {
    static const struct {
        const char *path;
        enum pl_llm_route route;
    } table[] = { { "/v1/chat/completions", PL_LLM_CHAT },  { "/chat/completions", PL_LLM_CHAT },
                  { "/v1/completions", PL_LLM_COMPLETION }, { "/completions", PL_LLM_COMPLETION },
                  { "/v1/embeddings", PL_LLM_EMBEDDING },   { "/embeddings", PL_LLM_EMBEDDING },
                  { "/tokenize", PL_LLM_TOKENIZE },         { "/detokenize", PL_LLM_DETOKENIZE } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (is_path(h, table[i].path)) {
            *out = table[i].route;
            return true;
        }
    return false;
}

/* The number that the gateway knows the request by: 16 hex digits. */
static uint64_t id_of(const struct pl_http_head *h) {
    const struct pl_http_header *f = pl_http_find_named(h, "x-plimsoll-id");
    char text[17] = "", *end;
    if (f == NULL || f->value_len != 16) return 0;
    memcpy(text, pl_http_at(h, f->value), 16);
    uint64_t id = strtoull(text, &end, 16);
    return *end == '\0' ? id : 0;
}

void pl_llm_request(struct pl_llm_server *s, struct pl_conn *c) {
    const struct pl_http_head *h = pl_conn_head(c);
    enum pl_llm_route route;
    if (h->method_id == HTTP_GET || h->method_id == HTTP_HEAD) {
        read_request(s, c, h);
        return;
    }
    for (const char *const *p = elsewhere; *p != NULL; p++)
        if (is_path(h, *p)) {
            refuse(c, 501,
                   "not in this worker: run llama-server as a `command` worker for it (plimsoll serve -- "
                   "llama-server -m FILE.gguf)");
            return;
        }
    if (!route_of(h, &route) || h->method_id != HTTP_POST)
        refuse(c, route_of(h, &route) ? 405 : 404, route_of(h, &route) ? "POST it" : "no such route");
    else if (s->state != PL_LLM_READY)
        refuse(c, 503, s->state == PL_LLM_LOADING ? "the model is loading" : "this worker is ending");
    else if (route == PL_LLM_EMBEDDING && !s->o->embeddings)
        refuse(c, 501, "embeddings are off: services.NAME.llama.embeddings turns them on");
    else if (h->framing == PL_HTTP_LENGTH && h->content_length > BODY_BYTES)
        refuse(c, 413, "a body has at most 64 MiB");
    else {
        struct pl_llm_reply *r = calloc(1, sizeof *r);
        if (r == NULL) {
            refuse(c, 503, "out of memory");
            return;
        }
        r->s = s;
        r->c = c;
        r->route = route;
        r->begun_us = pl_now_us();
        r->id = id_of(h);
        pl_buf_init(&r->body, BODY_BYTES);
        pl_conn_set_user(c, r);
    }
}

static void embed(struct pl_llm_reply *r) {
    struct pl_llm_server *s = r->s;
    struct pl_conn *c = r->c;
    struct pl_llm_fault f = { .status = 0 };
    struct pl_buf b;
    int all = 0;
    pl_buf_init(&b, DOCUMENT_BYTES);
    pl_buf_adds(&b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < r->ask.input_count && f.status == 0; i++) {
        const struct pl_llm_input *in = &r->ask.inputs[i];
        int count = 0;
        llama_token *tokens = pl_llm_input_tokens(s->model.vocab, in, &count);
        const float *v = NULL;
        if (tokens == NULL || count == 0 || (uint32_t)count > s->embedder.longest) {
            f = (struct pl_llm_fault){ .status = 400,
                                       .code = count == 0 ? "invalid_value" : "context_length_exceeded" };
            snprintf(f.message, sizeof f.message,
                     count == 0 ? "input[%zu] is empty" : "input[%zu] has %d tokens; at most %u fit", i,
                     count, s->embedder.longest);
        } else if ((v = pl_llm_embed(&s->embedder, tokens, count)) == NULL) {
            f = (struct pl_llm_fault){ .status = 503 };
            snprintf(f.message, sizeof f.message, "computing failed");
        } else {
            pl_llm_add_embedding(&b, i, v, s->embedder.width, r->ask.base64);
            all += count;
        }
        free(tokens);
    }
    pl_buf_adds(&b, "],\"model\":");
    pl_buf_add_json(&b, s->names[0], strlen(s->names[0]));
    pl_buf_addf(&b, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", all, all);
    pl_llm_drop(r, f.status != 0 ? f.status : 200, true);
    if (f.status != 0)
        pl_llm_fail(c, &f, 0);
    else
        reply_text(c, 200, NULL, &b, NULL);
    pl_buf_free(&b);
}

static void add_piece(struct pl_buf *b, const struct llama_vocab *v, llama_token t) {
    char piece[512];
    int32_t n = llama_token_to_piece(v, t, piece, sizeof piece, 0, true);
    pl_buf_add_json(b, piece, n > 0 ? (size_t)n : 0);
}

static void tokenize(struct pl_llm_reply *r) {
    struct pl_llm_server *s = r->s;
    struct pl_conn *c = r->c;
    struct pl_buf b;
    int count = 0;
    const struct pl_llm_input *in = &r->ask.inputs[0];
    llama_token *tokens =
        pl_llm_tokens(s->model.vocab, in->text, in->text_len, r->ask.add_special, true, &count);
    pl_buf_init(&b, DOCUMENT_BYTES);
    pl_buf_adds(&b, "{\"tokens\":[");
    for (int i = 0; i < count; i++) {
        pl_buf_addf(&b, r->ask.with_pieces ? "%s{\"id\":%d,\"piece\":" : "%s%d", i > 0 ? "," : "", tokens[i]);
        if (!r->ask.with_pieces) continue;
        add_piece(&b, s->model.vocab, tokens[i]);
        pl_buf_adds(&b, "}");
    }
    pl_buf_addf(&b, "],\"count\":%d,\"max_model_len\":%u}", count, s->model.cells);
    free(tokens);
    pl_llm_drop(r, 200, true);
    reply_text(c, 200, NULL, &b, NULL);
    pl_buf_free(&b);
}

static void detokenize(struct pl_llm_reply *r) {
    struct pl_llm_server *s = r->s;
    struct pl_conn *c = r->c;
    struct pl_buf b, shown;
    struct pl_llm_text whole;
    pl_buf_init(&b, DOCUMENT_BYTES);
    pl_buf_init(&shown, DOCUMENT_BYTES);
    pl_llm_text_init(&whole);
    for (size_t i = 0; i < json_array_size(r->ask.inputs[0].tokens); i++) {
        char piece[512];
        llama_token t = (llama_token)json_integer_value(json_array_get(r->ask.inputs[0].tokens, i));
        int32_t n = llama_token_to_piece(s->model.vocab, t, piece, sizeof piece, 0, true);
        if (n > 0) pl_llm_text_push(&whole, piece, (size_t)n, &shown);
    }
    pl_llm_text_end(&whole, &shown);
    pl_buf_adds(&b, "{\"content\":");
    pl_buf_add_json(&b, shown.len > 0 ? shown.data : "", shown.len);
    pl_buf_adds(&b, "}");
    pl_llm_drop(r, 200, true);
    reply_text(c, 200, NULL, &b, NULL);
    pl_llm_text_free(&whole);
    pl_buf_free(&shown);
    pl_buf_free(&b);
}

/* The name that was asked for, or the first one; NULL: not ours. A gateway has already chosen by it. */
static const char *name_of(const struct pl_llm_server *s, const char *asked) {
    if (asked == NULL || asked[0] == '\0') return s->names[0];
    for (size_t i = 0; i < s->name_count; i++)
        if (strcmp(s->names[i], asked) == 0) return s->names[i];
    return NULL;
}

void pl_llm_act(struct pl_llm_reply *r) {
    struct pl_llm_server *s = r->s;
    struct pl_conn *c = r->c;
    struct pl_llm_fault f = { .status = 0 };
    if (pl_llm_ask_read(r->route, r->body.data, r->body.len, llama_vocab_n_tokens(s->model.vocab), &r->ask,
                        &f)) {
        r->answer.model = name_of(s, r->ask.model);
        if (r->answer.model == NULL) {
            f = (struct pl_llm_fault){ .status = 404, .code = "model_not_found" };
            snprintf(f.message, sizeof f.message, "model %.80s: this worker has %.80s", r->ask.model,
                     s->names[0]);
        }
    }
    if (f.status != 0) {
        pl_llm_drop(r, f.status, true);
        pl_llm_fail(c, &f, 0);
        return;
    }
    r->record = pl_llm_page_begin(&s->page, r->id, r->ask.stream, pl_now_us());
    switch (r->route) {
    case PL_LLM_CHAT:
    case PL_LLM_COMPLETION:
        pl_llm_generate(r);
        break;
    case PL_LLM_EMBEDDING:
        embed(r);
        break;
    case PL_LLM_TOKENIZE:
        tokenize(r);
        break;
    case PL_LLM_DETOKENIZE:
        detokenize(r);
        break;
    }
}
