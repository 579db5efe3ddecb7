/* gateway/judge.c - a worker's connection is gone and the reply is not complete. What now?
 *
 *   nothing of the reply is out     the page says that no handler began, or nothing was sent: again, once
 *                                   else 502 with the cause of death
 *   something of it is out          cut, so that the client can tell
 *
 * The page is final only when the process has been reaped, so a closed connection waits a little for that
 * news. What a dead worker wrote lies in our socket and is read first: a complete answer is an answer.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "crew/look.h"
#include "gateway/inside.h"

static enum pl_page_seen began(const struct pl_request *r) {
    return pl_page_began(&r->berth->worker->page, r->id, r->since_begun);
}

/* An engine may be asked the same again as long as nothing of its answer is out. */
static bool may_replay_unknown(const struct pl_request *r) {
    const struct pl_service_config *c = r->gate->service->config;
    if (c->traffic_idempotent != PL_CFG_TRAFFIC_IDEMPOTENT_AUTO)
        return c->traffic_idempotent == PL_CFG_TRAFFIC_IDEMPOTENT_TRUE;
    return pl_gate_is_llm(r->gate);
}

/* By the method's own promise (RFC 9110, 9.2.2): only for a connection that was closed while it was idle. */
static bool is_idempotent_method(const struct pl_request *r) {
    switch (pl_conn_head(r->conn)->method_id) {
    case HTTP_GET:
    case HTTP_HEAD:
    case HTTP_OPTIONS:
    case HTTP_PUT:
    case HTTP_DELETE:
        return true;
    default:
        return false;
    }
}

/* Can it be sent again, and by which right? */
static bool replay_class(const struct pl_request *r, enum pl_replay_class *class) {
    if (r->head_begun) return false;
    if (!r->sent_any) {
        *class = PL_REPLAY_NOT_SENT;
        return r->unsent < PL_UNSENT_MOST;
    }
    if (r->replayed) return false;
    *class = began(r) == PL_SEEN_NO ? PL_REPLAY_NOT_STARTED : PL_REPLAY_UNKNOWN;
    return r->kept_whole && (*class == PL_REPLAY_NOT_STARTED || may_replay_unknown(r));
}

/* `unread`: the worker closed the connection while it was idle. That costs a try, not the one replay that a
 * death allows: a worker that dies closes all its idle connections before its end is known. */
static void replay(struct pl_request *r, enum pl_replay_class class, bool unread) {
    struct pl_gateway *g = r->g;
    char id[20];
    snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
    pl_series_add(pl_series(g->o.app->metrics, PL_M_REQUESTS_REPLAYED_TOTAL, r->gate->service->config->id,
                            pl_replay_name(class)),
                  1);
    pl_log(g->o.app->log, PL_WARN, "request.replayed", F_STR("service", r->gate->service->config->id),
           F_STR("id", id), F_STR("class", pl_replay_name(class)));
    pl_timer_stop(&r->timer);
    pl_exchange_detach(r, false);
    if (class == PL_REPLAY_NOT_SENT || unread)
        r->unsent++;
    else
        r->replayed = true;
    r->replay_class = (uint8_t) class;
    r->sent_any = r->sent_whole = r->last_words = r->hold_reply = r->gather = r->streamed = r->withheld =
        false;
    r->reply_bytes = 0;
    r->held.len = 0;
    r->first_us = 0;
    pl_queue_return(r);
}

static void lose(struct pl_request *r) {
    struct pl_worker *w = r->berth->worker;
    const char *sentence = "it closed the connection without an answer", *cause = NULL;
    char id[20];
    if (w->exited) {
        cause = pl_look_cause(w, &sentence);
        w->lost_in_handlers++;
        pl_quarantine_death(r, cause);
    }
    if (cause != NULL) {
        const char *service = r->gate->service->config->id;
        const struct pl_http_head *h = pl_conn_head(r->conn);
        struct pl_text path = pl_route_path(pl_http_at(h, h->target), h->target_len);
        char route[128];
        snprintf(route, sizeof route, "%.*s", (int)(path.len < 120 ? path.len : 120), path.at);
        snprintf(id, sizeof id, "%016llx", (unsigned long long)r->id);
        pl_series_add(pl_series(r->g->o.app->metrics, PL_M_REQUESTS_LOST_TOTAL, service, cause), 1);
        pl_log(r->g->o.app->log, PL_WARN, "request.lost", F_STR("service", service), F_STR("id", id),
               F_STR("route", route), F_STR("cause", cause));
    }
    if (r->head_begun)
        pl_reply_cut(r, cause != NULL ? PL_RESULT_WORKER_DIED : PL_RESULT_CUT,
                     cause != NULL ? "worker_died" : "aborted", sentence);
    else
        pl_answer_worker_failed(r, cause, sentence);
}

void pl_judge(struct pl_request *r) {
    enum pl_replay_class class = PL_REPLAY_UNKNOWN;
    /* While the worker lives, its page is not final: what is in its hands may yet begin. */
    bool final = r->berth->worker->exited || !r->sent_any;
    if (!replay_class(r, &class) || !(final || class == PL_REPLAY_UNKNOWN)) {
        lose(r);
        return;
    }
    if (class == PL_REPLAY_UNKNOWN && r->berth->worker->exited) { /* it was in a handler, too */
        const char *sentence, *cause = pl_look_cause(r->berth->worker, &sentence);
        if (cause != NULL) pl_quarantine_death(r, cause);
    }
    replay(r, class, false);
}

static void wait_for_news(struct pl_request *r) {
    r->phase = PL_REQ_JUDGING;
    /* once it is known to be dead: from the loop, when the crew has found out why */
    pl_exchange_wait(r, r->berth->worker->exited ? 0 : PL_JUDGE_MS);
}

void pl_judge_closed(struct pl_request *r) {
    bool idle_race = pl_upstream_reused(r->up) && !pl_upstream_heard(r->up) && !r->replayed &&
                     r->kept_whole && r->unsent < PL_UNSENT_MOST;
    if (r->phase == PL_REQ_TUNNEL) {
        pl_reply_cut(r, PL_RESULT_OK, NULL, NULL); /* a tunnel ends when either end closes */
        return;
    }
    r->may_insert = r->chunk_out || pl_upstream_between_chunks(r->up);
    pl_upstream_close(r->up);
    r->up = NULL;
    /* It closed an idle connection at the moment we used it: what was sent is lost unread. */
    enum pl_page_seen seen = began(r);
    if (idle_race && !r->berth->worker->exited && seen == PL_SEEN_NO)
        replay(r, PL_REPLAY_NOT_STARTED, true);
    else if (idle_race && !r->berth->worker->exited && seen == PL_SEEN_UNKNOWN && is_idempotent_method(r))
        replay(r, PL_REPLAY_UNKNOWN, false);
    else
        wait_for_news(r);
}

void pl_judge_given_up(struct pl_request *r) {
    PL_ASSERT(r->up == NULL && !r->head_begun);
    wait_for_news(r); /* most often its worker is dying, and the next one should not be the same */
}

void pl_judge_failed(void *ctx, struct pl_upstream *u, enum pl_upstream_end end) {
    struct pl_request *r = ctx;
    PL_ASSERT(r->magic == PL_REQUEST_MAGIC && r->up == u);
    if (end == PL_UPSTREAM_REFUSED) {
        pl_upstream_close(r->up);
        r->up = NULL;
        r->sent_any = r->sent_whole = false; /* what was given to it never left */
        pl_judge_refused(r);
    } else if (end == PL_UPSTREAM_CLOSED)
        pl_judge_closed(r);
    else if (r->head_begun)
        pl_reply_cut(r, PL_RESULT_CUT, "error", "the worker's answer is malformed");
    else
        pl_answer_worker_failed(r, NULL, "its answer is no HTTP");
}

/* A process of ours that does not listen is dying, and its end is news worth waiting for. */
void pl_judge_refused(struct pl_request *r) {
    struct pl_worker *w = r->berth->worker;
    pl_worker_refused(w);
    if (w->service->kind == PL_KIND_REMOTE)
        pl_judge(r);
    else
        wait_for_news(r);
}

void pl_judge_exited(struct pl_berth *b) {
    uint64_t now = pl_gateway_now(b->g);
    for (struct pl_request *r = b->exchanges; r != NULL; r = r->next) {
        r->last_words = true;
        r->last_ms = now;
        pl_exchange_wait(r, r->phase == PL_REQ_JUDGING ? 0 : PL_LAST_WORDS_MS);
    }
    pl_zombie_forget(b);
}

void pl_judge_gone(struct pl_berth *b) {
    while (b->exchanges != NULL) {
        struct pl_request *r = b->exchanges;
        if (r->up != NULL) {
            r->may_insert = r->chunk_out || pl_upstream_between_chunks(r->up);
            pl_upstream_close(r->up);
            r->up = NULL;
        }
        r->phase = PL_REQ_JUDGING;
        pl_judge(r); /* it leaves the list in any case */
        PL_ASSERT(b->exchanges != r);
    }
    pl_zombie_forget(b);
}
