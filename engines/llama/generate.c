/* generate.c - a chat or a completion: from the request to jobs, from tokens to what the client gets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "llama/serve_inside.h"

enum { TEXT_BYTES = 16 << 20, DOCUMENT_BYTES = 64 << 20 };

/* --- towards the client */

/* The head of a stream goes out with its first piece: until then the request can be given to another worker,
 * and what goes wrong still has a status of its own. */
static void send_piece(struct pl_llm_reply *r, const struct pl_buf *b) {
    if (b->len == 0) return;
    if (!r->started) pl_conn_start(r->c, 200, "text/event-stream", "Cache-Control: no-store\r\n");
    r->started = true;
    pl_conn_piece(r->c, b->data, b->len);
}

static void flush(struct pl_llm_choice *c, const char *why) {
    struct pl_llm_reply *r = c->reply;
    struct pl_buf event;
    if (c->out.len == 0 && c->begun && why == NULL) return;
    pl_buf_init(&event, DOCUMENT_BYTES);
    bool first = !c->begun && r->answer.chat;
    int index = (int)(c - r->choices);
    if (first && c->out.len == 0 && why == NULL) return;
    pl_llm_add_chunk(&event, &r->answer, index, first, c->out.len > 0 ? c->out.data : "", c->out.len,
                     &c->logprobs, NULL);
    c->begun = true;
    c->out.len = c->logprobs.len = 0;
    if (why != NULL) pl_llm_add_chunk(&event, &r->answer, index, false, "", 0, NULL, why);
    send_piece(r, &event);
    pl_buf_free(&event);
}

static bool went_wrong(const struct pl_llm_reply *r) {
    return r->worst != PL_LLM_END_STOP && r->worst != PL_LLM_END_LENGTH;
}

static struct pl_llm_fault fault_of_end(const struct pl_llm_reply *r) {
    struct pl_llm_fault f = { .status = 503 };
    if (r->worst == PL_LLM_END_DEAD_END) {
        f = (struct pl_llm_fault){ .status = 400, .code = "invalid_value" };
        snprintf(f.message, sizeof f.message, "the grammar allows no token of this model here");
    } else if (r->worst == PL_LLM_END_LATE) {
        f = (struct pl_llm_fault){ .status = 429, .reason = PL_REASON_WAITED_TOO_LONG };
        snprintf(f.message, sizeof f.message, "Too many requests: waited %.0f s for free cells",
                 r->s->o->max_wait_s);
    } else {
        snprintf(f.message, sizeof f.message, "computing failed");
    }
    return f;
}

static void finish_stream(struct pl_llm_reply *r) {
    struct pl_buf event;
    struct pl_conn *c = r->c;
    pl_buf_init(&event, DOCUMENT_BYTES);
    bool whole = !went_wrong(r);
    if (whole) {
        if (r->ask.include_usage) pl_llm_add_usage_chunk(&event, &r->answer, &r->usage);
        pl_buf_adds(&event, "data: [DONE]\n\n");
    } else {
        pl_http_error_event(&event, 502, NULL, fault_of_end(r).message);
    }
    send_piece(r, &event);
    pl_buf_free(&event);
    pl_llm_drop(r, 200, whole);
    if (whole)
        pl_conn_finish(c);
    else
        pl_conn_cut(c); /* a stream cut short must not look complete */
}

static void finish_document(struct pl_llm_reply *r) {
    struct pl_conn *c = r->c;
    struct pl_llm_choice_text texts[PL_LLM_CHOICES];
    struct pl_buf document;
    if (went_wrong(r)) {
        struct pl_llm_fault f = fault_of_end(r);
        unsigned again = f.reason != PL_REASON_NONE ? pl_llm_retry_after(r->s->sched) : 0;
        pl_llm_drop(r, f.status, true);
        pl_llm_fail(c, &f, again);
        return;
    }
    for (size_t i = 0; i < r->count; i++)
        texts[i] =
            (struct pl_llm_choice_text){ &r->choices[i].out, &r->choices[i].logprobs, r->choices[i].why };
    pl_buf_init(&document, DOCUMENT_BYTES);
    pl_llm_add_document(&document, &r->answer, texts, r->count, &r->usage);
    pl_llm_drop(r, 200, true);
    const struct pl_http_reply reply = { .status = 200, .body = document.data, .body_len = document.len };
    pl_conn_reply(c, &reply);
    pl_buf_free(&document);
}

static void finish_reply(struct pl_llm_reply *r) {
    if (r->ask.stream && (r->started || !went_wrong(r)))
        finish_stream(r);
    else
        finish_document(r);
}

/* --- from the scheduler */

static bool on_token(void *user, llama_token t, const struct pl_llm_chances *chances) {
    struct pl_llm_choice *c = user;
    struct pl_llm_reply *r = c->reply;
    const struct llama_vocab *v = r->s->model.vocab;
    char piece[512];
    uint64_t now = pl_now_us();
    if (c->last_us == 0)
        pl_llm_observe(&r->s->first, (double)(now - r->begun_us) / 1e6);
    else
        pl_llm_observe(&r->s->gaps, (double)(now - c->last_us) / 1e6);
    c->last_us = now;
    if (chances != NULL) pl_llm_add_chances(&c->logprobs, v, chances);
    int32_t n = llama_vocab_is_eog(v, t) ? 0 : llama_token_to_piece(v, t, piece, sizeof piece, 0, false);
    bool stop = n > 0 && pl_llm_text_push(&c->text, piece, (size_t)n, &c->out);
    if (r->ask.stream && !stop) flush(c, NULL);
    return stop;
}

static void on_done(void *user, enum pl_llm_end why, int prompt, int cached, int out) {
    struct pl_llm_choice *c = user;
    struct pl_llm_reply *r = c->reply;
    c->job = NULL;
    c->why = pl_llm_end_word(why);
    if (why > r->worst) r->worst = why;
    pl_llm_text_end(&c->text, &c->out);
    if ((c - r->choices) % r->ask.n == 0) { /* the answers to one prompt share it */
        r->usage.prompt += prompt;
        r->usage.cached += cached;
    }
    r->usage.out += out;
    if (r->ask.stream && (why == PL_LLM_END_STOP || why == PL_LLM_END_LENGTH)) flush(c, c->why);
    if (--r->open == 0) finish_reply(r);
}

const struct pl_llm_calls pl_llm_reply_calls = { on_token, on_done };

/* --- from the request */

static llama_token *prompt_tokens(struct pl_llm_reply *r, size_t at, int *count, struct pl_llm_fault *f) {
    const struct llama_vocab *v = r->s->model.vocab;
    llama_token *out;
    if (r->route == PL_LLM_CHAT) {
        size_t len = 0;
        char *text = pl_llm_chat_text(&r->s->chat, &r->ask, &len, f);
        if (text == NULL) return NULL;
        out = pl_llm_tokens(v, text, len, true, true, count);
        free(text);
    } else {
        out = pl_llm_input_tokens(v, &r->ask.inputs[at], count);
    }
    if (out != NULL && *count > 0) return out;
    f->status = out == NULL ? 503 : 400;
    f->code = out == NULL ? NULL : "invalid_value";
    snprintf(f->message, sizeof f->message,
             out == NULL ? "the prompt could not be made into tokens" : "the prompt is empty");
    free(out);
    return NULL;
}

static bool echo(struct pl_llm_reply *r, struct pl_llm_choice *c, const llama_token *tokens, int count) {
    char piece[512];
    for (int i = 0; i < count; i++) {
        int32_t n = llama_token_to_piece(r->s->model.vocab, tokens[i], piece, sizeof piece, 0, false);
        if (n > 0 && !pl_buf_add(&c->out, piece, (size_t)n)) return false;
    }
    return true;
}

static bool fault_of(struct pl_llm_reply *r, enum pl_llm_submitted why, int prompt, int most,
                     struct pl_llm_fault *f) {
    switch (why) {
    case PL_LLM_TAKEN:
        return true;
    case PL_LLM_TOO_LONG:
        *f = (struct pl_llm_fault){ .status = 400, .code = "context_length_exceeded" };
        snprintf(f->message, sizeof f->message,
                 "the prompt has %d tokens and the answer may have %d: together more than the %u that "
                 "this model's context holds",
                 prompt, most, r->s->model.cells);
        return false;
    case PL_LLM_QUEUE_FULL:
        *f = (struct pl_llm_fault){ .status = 429, .reason = PL_REASON_QUEUE_FULL };
        snprintf(f->message, sizeof f->message, "Too many requests: %u wait already", r->s->o->queue);
        return false;
    case PL_LLM_TOO_SLOW:
        *f = (struct pl_llm_fault){ .status = 429, .reason = PL_REASON_PREDICTED_WAIT };
        snprintf(f->message, sizeof f->message, "Too many requests: the wait would be longer than %.0f s",
                 r->s->o->max_wait_s);
        return false;
    default:
        *f = (struct pl_llm_fault){ .status = 503 };
        snprintf(f->message, sizeof f->message, "out of memory");
        return false;
    }
}

/* One job for one choice. */
static bool submit(struct pl_llm_reply *r, size_t at, struct pl_llm_fault *f) {
    struct pl_llm_choice *c = &r->choices[at];
    struct pl_llm_server *s = r->s;
    int count = 0;
    llama_token *tokens = prompt_tokens(r, r->route == PL_LLM_CHAT ? 0 : at / (size_t)r->ask.n, &count, f);
    if (tokens == NULL) return false;
    int left = (int)s->model.cells - count;
    int most = r->ask.max_tokens != 0  ? r->ask.max_tokens
               : s->o->max_tokens != 0 ? (int)s->o->max_tokens
                                       : left;
    if (r->ask.max_tokens == 0 && most > left && left > 0) most = left;
    if (r->ask.max_tokens == 0 && s->model.trained != 0 && most > (int)s->model.trained - count &&
        (int)s->model.trained > count)
        most = (int)s->model.trained - count; /* past it a model says nonsense */
    if (most < 1) most = 1;
    struct pl_llm_sampling sampling = r->ask.sampling;
    sampling.seed = sampling.seed == LLAMA_DEFAULT_SEED ? sampling.seed
                                                        : sampling.seed + (uint32_t)(at % (size_t)r->ask.n);
    struct pl_llm_sampler *sampler = pl_llm_sampler_make(s->model.model, &sampling, r->ask.grammar);
    if (sampler == NULL || (r->ask.echo && !echo(r, c, tokens, count))) {
        free(tokens);
        pl_llm_sampler_free(sampler);
        *f = (struct pl_llm_fault){ .status = 400, .code = "invalid_value" };
        snprintf(f->message, sizeof f->message,
                 r->ask.grammar != NULL ? "the grammar does not parse as GBNF" : "out of memory");
        return false;
    }
    const struct pl_llm_job_options o = { .prompt = tokens,
                                          .prompt_count = count,
                                          .max_tokens = most,
                                          .ignore_eos = r->ask.ignore_eos,
                                          .logprobs = r->ask.logprobs,
                                          .sampler = sampler,
                                          .user = c };
    return fault_of(r, pl_llm_submit(s->sched, &o, (double)pl_now_us() / 1e6, &c->job), count, most, f);
}

static bool prepare(struct pl_llm_reply *r, struct pl_llm_choice *c) {
    c->reply = r;
    pl_llm_text_init(&c->text);
    pl_buf_init(&c->out, TEXT_BYTES);
    pl_buf_init(&c->logprobs, TEXT_BYTES);
    for (size_t i = 0; i < r->ask.stop_count; i++)
        if (!pl_llm_text_stop(&c->text, r->ask.stops[i], r->ask.stop_lens[i])) return false;
    return true;
}

void pl_llm_generate(struct pl_llm_reply *r) {
    struct pl_llm_server *s = r->s;
    struct pl_conn *c = r->c;
    struct pl_llm_fault f = { .status = 503 };
    size_t want = r->route == PL_LLM_CHAT ? (size_t)r->ask.n : r->ask.input_count * (size_t)r->ask.n;
    r->answer.chat = r->route == PL_LLM_CHAT;
    snprintf(r->answer.id, sizeof r->answer.id, "%s-%08llx%08llx", r->answer.chat ? "chatcmpl" : "cmpl",
             (unsigned long long)s->boot, (unsigned long long)++s->next_id);
    r->answer.created = pl_wall_ms(&pl_clock_system) / 1000;
    bool ok = true;
    if (r->ask.stream &&
        pl_conn_head(c)->minor == 0) { /* it has no chunks, and would take a cut for the end */
        f.status = 505;
        snprintf(f.message, sizeof f.message, "a stream needs HTTP/1.1");
        ok = false;
    }
    for (; r->count < want && ok; r->count++) {
        ok = prepare(r, &r->choices[r->count]) && submit(r, r->count, &f);
        if (!ok) r->choices[r->count].job = NULL;
    }
    if (!ok) {
        if (f.message[0] == '\0')
            snprintf(f.message, sizeof f.message, "stop: a text that cannot be looked for");
        unsigned again = f.reason != PL_REASON_NONE ? pl_llm_retry_after(s->sched) : 0;
        pl_llm_drop(r, f.status, true);
        pl_llm_fail(c, &f, again);
        return;
    }
    r->open = r->count;
}
