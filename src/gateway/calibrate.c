/* gateway/calibrate.c - how many tokens a prompt was, asked of the engine itself where the reply did not
 * tell: a stream without usage would teach nothing. Off the path, after the reply, with the body that is
 * still here; one question at a time, few once the estimator is known, and none for large bodies. */
#include <stdlib.h>
#include <string.h>

#include "gateway/inspect.h"
#include "gateway/models.h"
#include "net/ask.h"

enum { BODY_MOST = 65536, REPLY_MOST = 2 << 20, TIMEOUT_MS = 10000, KNOWN_EVERY_MS = 10000 };

struct pl_calibrating {
    struct pl_gate *gate;
    struct pl_ask *ask;
    char model[PL_JSON_MODEL_MOST + 1];
    struct pl_text_counts text;
};

/* {"count":7,…}: it stands first, and the token numbers behind it may be many. 0: not found. */
static uint64_t count_in(const char *reply, size_t len) {
    static const char key[] = "\"count\":";
    const char *at = memmem(reply, len < 200 ? len : 200, key, sizeof key - 1);
    return at != NULL ? strtoull(at + sizeof key - 1, NULL, 10) : 0; /* the reply is NUL-ended */
}

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_calibrating *c = ctx;
    struct pl_gate *gate = c->gate;
    uint64_t count = reply->answered && reply->status == 200 ? count_in(reply->body, reply->body_len) : 0;
    struct pl_model *m = count > 0 ? pl_model_of(gate, c->model) : NULL;
    gate->calibrating = NULL;
    if (m != NULL) pl_model_learn(gate, m, &c->text, count);
    free(c);
}

void pl_calibrate(struct pl_request *r) {
    struct pl_gate *gate = r->gate;
    struct pl_inspect *i = r->inspect;
    const char *route = pl_gate_is_llm(gate) ? pl_engine_of(gate->service->config)->tokenize : NULL;
    const struct pl_model *m = pl_model_find(gate, pl_model_name(r));
    uint64_t now = pl_gateway_now(r->g);
    bool known = m != NULL && m->tokens.seen >= PL_TOKEN_KNOWN;
    if (route == NULL || route[0] == '\0' || gate->calibrating != NULL || !i->whole || r->berth == NULL ||
        r->body_mode != PL_BODY_KEEP || r->body.len == 0 || r->body.len > BODY_MOST ||
        (known && now - gate->calibrated_ms < KNOWN_EVERY_MS))
        return;
    struct pl_calibrating *c = calloc(1, sizeof *c);
    if (c == NULL) return;
    c->gate = gate;
    c->text = i->asked.text;
    memcpy(c->model, pl_model_name(r), strlen(pl_model_name(r)) + 1);
    const struct pl_ask_question q = { .to = &r->berth->worker->to,
                                       .method = "POST",
                                       .target = route,
                                       .headers =
                                           "Content-Type: application/json\r\nx-plimsoll-warmup: 1\r\n",
                                       .body = r->body.data,
                                       .body_len = r->body.len,
                                       .reply_cap = REPLY_MOST,
                                       .timeout_ms = TIMEOUT_MS };
    c->ask = pl_ask_start(r->g->o.app->loop, &q, on_answer, c);
    if (c->ask == NULL) {
        free(c);
        return;
    }
    gate->calibrating = c;
    gate->calibrated_ms = now;
}

void pl_calibrate_stop(struct pl_gate *gate) {
    if (gate->calibrating == NULL) return;
    pl_ask_cancel(gate->calibrating->ask);
    free(gate->calibrating);
    gate->calibrating = NULL;
}
