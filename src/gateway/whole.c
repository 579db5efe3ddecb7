/* gateway/whole.c - a model's answer is complete when it says so, not when its bytes end.
 *
 * An engine that dies under a stream sends an error event and then [DONE]; one that is stopped gives answers
 * up (finish_reason "abort") and ends them cleanly, or with no finish_reason at all; plain answers come back
 * as 200 with half a text. Clients take all of these for success. Here a stream of an LLM preset is complete
 * only when every choice has a finish_reason other than `abort` or `error` and [DONE] came without an error
 * before it. Anything else is held back: as long as nothing is out, the request goes to another worker or is
 * answered 502; else what was good goes out, then an error event, and the connection is cut without the last
 * chunk. Measured: docs/servers.md, tests/data/vllm.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "gateway/inspect.h"

bool pl_whole_wanted(const struct pl_gate *gate, const struct pl_http_head *h) {
    struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
    static const char *const routes[] = { "/v1/completions", "/v1/chat/completions" };
    if (!pl_gate_is_llm(gate)) return false;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i]);
        if (path.len >= n && memcmp(path.at + path.len - n, routes[i], n) == 0) return true;
    }
    return false;
}

bool pl_whole_watches(const struct pl_request *r) {
    return r->inspect != NULL && r->inspect->whole && r->inspect->counts;
}

/* The reply is being read, and what it says of itself is to be believed. */
static struct pl_usage *read_by(const struct pl_request *r) {
    return pl_whole_watches(r) && r->inspect->reading ? &r->inspect->usage : NULL;
}

/* `text` has one of the words, which stand between bars, by which an engine says that it is dead. */
static bool says_dead(const struct pl_request *r, const char *text, size_t len) {
    for (const char *word = pl_engine_of(r->gate->service->config)->dead; word[0] != '\0';) {
        size_t n = strcspn(word, "|");
        if (memmem(text, len, word, n) != NULL) return true;
        word += word[n] == '|' ? n + 1 : n;
    }
    return false;
}

void pl_whole_before(struct pl_request *r) {
    const struct pl_usage *u = read_by(r);
    if (u == NULL) return;
    r->inspect->piece_begins_event = pl_usage_between_events(u);
    r->inspect->ended_before = u->ended;
}

void pl_whole_piece(struct pl_request *r, const char *bytes, size_t len) {
    const struct pl_usage *u = read_by(r);
    struct pl_inspect *i = r->inspect;
    if (u == NULL) return;
    if (i->injected && i->piece_begins_event && u->ended == i->ended_before + 1 && u->only_usage) {
        i->strip_from = i->good_to; /* behind the piece before it, if that is of the same read */
        i->strip_to = bytes + len;
    }
    if (pl_usage_is_good(u)) i->good_to = bytes + len;
}

void pl_whole_read_over(struct pl_request *r) {
    if (r->inspect == NULL) return;
    r->inspect->good_to = r->inspect->strip_from = r->inspect->strip_to = NULL;
}

enum pl_whole pl_whole_judge(struct pl_request *r, bool end) {
    struct pl_usage *u = read_by(r);
    if (u == NULL) return PL_WHOLE_SO_FAR;
    if (end) pl_tokens_read_end(r);
    if (u->error) return says_dead(r, u->message, strlen(u->message)) ? PL_WHOLE_DEAD : PL_WHOLE_ERROR;
    if (!pl_usage_is_good(u)) return PL_WHOLE_GIVEN_UP;
    return end && u->events && !pl_usage_is_whole(u) ? PL_WHOLE_GIVEN_UP : PL_WHOLE_SO_FAR;
}

bool pl_whole_is_dead(const struct pl_request *r, const char *reply, size_t len) {
    return r->status == 500 && r->inspect != NULL && r->inspect->whole && says_dead(r, reply, len);
}

const char *pl_whole_words(const struct pl_request *r, enum pl_whole w) {
    const char *own = r->inspect->usage.message;
    if (w == PL_WHOLE_GIVEN_UP) return "the engine stopped before its answer was complete";
    return own[0] != '\0' ? own : "the engine's answer ended with an error";
}

/* Chunks that were read whole and are good; what came of a chunk that is not is left out. */
static void send_good(struct pl_request *r, const struct pl_upstream_part *p) {
    const char *to = r->inspect->good_to;
    uv_buf_t good = { .len = 0 };
    if (to <= p->raw || to > p->raw + p->raw_len || !r->may_insert || r->chunk_out) return;
    good.len = (size_t)(to - p->raw) + 2; /* and the line end of its chunk */
    if (good.len > p->raw_len) return;
    memcpy(&good.base, &p->raw, sizeof p->raw);
    pl_conn_send(r->conn, &good, 1);
}

void pl_whole_fail(struct pl_request *r, const struct pl_upstream_part *p, enum pl_whole w) {
    char id[20], words[PL_JSON_ERROR_MOST + 1];
    snprintf(words, sizeof words, "%s", pl_whole_words(r, w));
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    pl_log(r->g->o.app->log, PL_WARN, "engine.in_band_error", F_STR("service", r->gate->service->config->id),
           F_INT("worker", r->berth->worker->slot), F_INT("generation", r->berth->worker->generation),
           F_STR("id", id), F_STR("message", words));
    if (r->head_begun && p != NULL) send_good(r, p);
    pl_upstream_close(r->up);
    r->up = NULL;
    if (!r->head_begun && w != PL_WHOLE_ERROR)
        pl_judge_given_up(r);
    else if (!r->head_begun)
        pl_answer_worker_failed(r, NULL, words);
    else
        pl_reply_cut(r, PL_RESULT_CUT, "error", words);
}
