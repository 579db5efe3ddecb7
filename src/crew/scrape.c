/* scrape.c - the worker's own metrics, fetched in the background while somebody looks at ours: a scrape of
 * ours never waits for a worker. */
#include "crew/more.h"

enum { TEXT_BYTES = 4 << 20, ASKED_LATELY_MS = 60000, QUIET_MS = 5000 };

static void on_answer(void *ctx, const struct pl_ask_reply *reply) {
    struct pl_worker *w = ctx;
    w->more->scrape = NULL;
    w->more->scrape_at_ms =
        pl_crew_now(w->service->crew) + (uint64_t)w->service->crew->app->config->metrics_refresh_ms;
    w->more->scrape_failed = !reply->answered || reply->status != 200;
    if (w->more->scrape_failed) return;
    w->more->metrics_text.len = 0;
    if (!pl_buf_add(&w->more->metrics_text, reply->body, reply->body_len)) return;
    w->more->scraped_ms = pl_crew_now(w->service->crew);
    pl_engine_scraped(w, reply->body, reply->body_len);
}

/* The first one speaks for all that share its socket. */
static bool speaks(const struct pl_worker *w) {
    const struct pl_worker *first = w->service->workers;
    while (first != NULL && first->state != PL_WORKER_READY) first = first->next;
    return w == first || !pl_depend_is(w->service);
}

void pl_scrape_tick(struct pl_worker *w, uint64_t now) {
    struct pl_crew *c = w->service->crew;
    const struct pl_worker_more *o = w->more;
    if (w->state != PL_WORKER_READY || o->scrape != NULL || !speaks(w)) return;
    /* What an LLM engine says of its cache is what its requests are admitted by. */
    bool wanted = o->scraped_ms == 0 || now - c->metrics_asked_ms < ASKED_LATELY_MS ||
                  (pl_engine_is_llm(w->service) && (w->in_flight > 0 || now >= o->scrape_at_ms + QUIET_MS));
    if (!wanted || now < o->scrape_at_ms) return;
    char path[PL_PROBE_PATH_BYTES];
    const struct pl_ask_question q = {
        .to = &w->to,
        .host = pl_remote_host(w->service),
        .method = "GET",
        .target = pl_probe_path(w, "/metrics", path, sizeof path),
        .headers = "x-plimsoll-warmup: 1\r\n",
        .reply_cap = TEXT_BYTES,
        .timeout_ms = (uint64_t)w->service->config->probe_timeout_ms * 5,
    };
    w->more->scrape = pl_ask_start(c->app->loop, &q, on_answer, w);
}

void pl_scrape_stop(struct pl_worker *w) {
    if (w->more->scrape != NULL) pl_ask_cancel(w->more->scrape);
    w->more->scrape = NULL;
    pl_buf_free(&w->more->metrics_text);
}

/* What it said last is old only when it was asked since and did not answer: while nobody looks it is not
 * asked. */
bool pl_worker_metrics_since(const struct pl_worker *w, uint64_t *scraped_ms) {
    const struct pl_crew *c = w->service->crew;
    *scraped_ms = w->more->scraped_ms;
    if (*scraped_ms == 0) return false;
    return !w->more->scrape_failed ||
           pl_crew_now(c) - *scraped_ms <= (uint64_t)c->app->config->metrics_stale_after_ms;
}

const struct pl_buf *pl_worker_metrics_text(const struct pl_worker *w) {
    uint64_t at;
    return pl_worker_metrics_since(w, &at) ? &w->more->metrics_text : NULL;
}

void pl_crew_metrics_asked(struct pl_crew *c) { c->metrics_asked_ms = pl_crew_now(c); }
