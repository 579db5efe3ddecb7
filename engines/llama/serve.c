#include "llama/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "llama/serve_inside.h"

enum { SERIES = 1000, REQUEST_LINE = 65536, HEAD_BYTES = 262144, HEADERS = 1000, SPARE_FDS = 4 };

/* --- requests */

static void on_request(void *ctx, struct pl_conn *c) { pl_llm_request(ctx, c); }

static void on_body(void *ctx, struct pl_conn *c, const char *bytes, size_t len) {
    (void)ctx;
    struct pl_llm_reply *r = pl_conn_user(c);
    if (r == NULL || pl_buf_add(&r->body, bytes, len)) return;
    struct pl_llm_fault f = { .status = 413 };
    snprintf(f.message, sizeof f.message, "a body has at most %zu MiB", r->body.cap >> 20);
    pl_llm_drop(r, f.status, true);
    pl_llm_fail(c, &f, 0);
}

static void on_body_end(void *ctx, struct pl_conn *c) {
    (void)ctx;
    if (pl_conn_user(c) != NULL) pl_llm_act(pl_conn_user(c));
}

static void on_gone(void *ctx, struct pl_conn *c) {
    (void)ctx;
    if (pl_conn_user(c) != NULL)
        pl_llm_drop(pl_conn_user(c), 0, false); /* its cells are free before the next step */
}

static const struct pl_server_calls calls = {
    .request = on_request, .body = on_body, .body_end = on_body_end, .gone = on_gone
};

/* --- loading */

static void load(uv_work_t *work) {
    struct pl_llm_server *s = work->data;
    bool gpu;
    uint64_t available = pl_llm_available(&gpu);
    if (s->o->memory_limit != 0) available = s->o->memory_limit;
    s->loaded = pl_llm_fit(s->o, available, gpu, &s->fit, &s->problem) &&
                pl_llm_open(&s->model, s->o, s->fit.cells, s->fit.parallel, &s->progress, &s->problem) &&
                (!s->o->embeddings || pl_llm_embedder_open(&s->embedder, &s->model, s->o, &s->problem));
    if (s->loaded) pl_llm_chat_open(&s->chat, &s->model, s->o);
}

static void drained(void *ctx) {
    struct pl_llm_server *s = ctx;
    s->state = PL_LLM_BROKEN;
    uv_stop(s->loop);
}

static void loaded(uv_work_t *work, int status) {
    struct pl_llm_server *s = work->data;
    (void)status;
    s->load.data = NULL;
    if (s->loaded) s->loaded = pl_llm_warm_up(&s->model, &s->problem);
    if (s->loaded) s->sched = pl_llm_sched_create(&s->model, s->o, s->fit.parallel, &pl_llm_reply_calls);
    if (s->sched == NULL) {
        const char *hint =
            s->loaded ? "" : s->problem.hint; /* in one line: the last one explains the death */
        fprintf(stderr, "plimsoll-llama: %s%s%s\n", s->loaded ? "out of memory" : s->problem.msg,
                hint[0] != '\0' ? "; " : "", hint);
        s->status = 3;
        s->state = PL_LLM_BROKEN;
        uv_stop(s->loop);
        return;
    }
    const struct pl_llm_bytes *b = &s->model.bytes;
    fprintf(stderr,
            "plimsoll-llama: %s: %u cells for %u sequences; weights %.1f MiB, KV %.1f MiB, compute %.1f MiB, "
            "output %.1f MiB\n",
            s->model.description, s->model.cells, s->fit.parallel, (double)b->weights / 1048576,
            (double)(b->kv + b->state) / 1048576, (double)b->compute / 1048576, (double)b->output / 1048576);
    if (s->chat.name == NULL) fprintf(stderr, "plimsoll-llama: no chat: %s\n", s->chat.why_not);
    if (s->state == PL_LLM_LOADING) s->state = PL_LLM_READY;
    pl_llm_page_loaded(&s->page, pl_now_us() / 1000);
}

/* --- the end */

static void on_signal(uv_signal_t *signal, int number) {
    struct pl_llm_server *s = signal->data;
    (void)number;
    if (s->state == PL_LLM_LOADING) { /* loading cannot be interrupted in order, and nothing would be lost */
        fflush(stderr);
        _Exit(0);
    }
    if (s->state != PL_LLM_READY) return;
    s->state = PL_LLM_DRAINING;
    pl_server_drain(s->server, drained, s);
}

/* --- names */

static bool read_names(struct pl_llm_server *s) {
    const char *file = strrchr(s->o->model, '/');
    s->name_text = strdup(s->o->aliases != NULL ? s->o->aliases : file != NULL ? file + 1 : s->o->model);
    if (s->name_text == NULL) return false;
    char *dot = s->o->aliases == NULL ? strstr(s->name_text, ".gguf") : NULL;
    if (dot != NULL) *dot = '\0';
    char *rest = NULL;
    for (char *word = strtok_r(s->name_text, ",", &rest);
         word != NULL && s->name_count < sizeof s->names / sizeof *s->names;
         word = strtok_r(NULL, ",", &rest))
        s->names[s->name_count++] = word;
    if (s->name_count == 0) s->names[s->name_count++] = "model";
    return true;
}

/* --- the loop */

static double now_s(void) { return (double)pl_now_us() / 1e6; }

/* What the page says of the engine, anew. */
static void tell(struct pl_llm_server *s) {
    const struct pl_llm_stats *t = pl_llm_stats(s->sched);
    const struct pl_llm_bytes *b = &s->model.bytes;
    pl_llm_page_engine(&s->page,
                       &(struct pl_llm_page_engine){ .cells = s->model.cells,
                                                     .used = t->cells_used,
                                                     .reserved = t->cells_reserved,
                                                     .cached = t->cells_kept,
                                                     .parked = t->cells_parked,
                                                     .weights = b->weights,
                                                     .kv = b->kv + b->state,
                                                     .compute = b->compute,
                                                     .output = b->output,
                                                     .tokens_in = t->prompt_tokens + t->cached_tokens,
                                                     .tokens_out = t->out_tokens,
                                                     .preemptions = t->parked_ever,
                                                     .steps = s->steps,
                                                     .steps_s = s->steps_s },
                       pl_now_us());
}

static void turn(struct pl_llm_server *s, double *took) {
    if (s->sched == NULL || pl_llm_idle(s->sched)) {
        *took = 0;
        uv_run(s->loop, UV_RUN_ONCE);
        if (s->sched != NULL) tell(s);
        return;
    }
    double began = now_s();
    uint64_t before = pl_llm_stats(s->sched)->steps;
    if (!pl_llm_step(s->sched, began, *took)) {
        fprintf(stderr, "plimsoll-llama: llama.cpp cannot compute any more; ending\n");
        s->status = 1;
        s->state = PL_LLM_BROKEN;
    }
    *took = now_s() - began;
    if (pl_llm_stats(s->sched)->steps != before) {
        s->steps[pl_metric_second_bucket(*took)]++;
        s->steps_s += *took;
    }
    pl_llm_page_progress(&s->page);
    tell(s);
    uv_run(s->loop, UV_RUN_NOWAIT);
}

static void close_handle(uv_handle_t *h, void *ctx) {
    (void)ctx;
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

int pl_llm_serve(struct pl_llm_options *o) {
    static struct pl_llm_server s;
    static uv_loop_t loop;
    static uv_signal_t term, interrupt;
    struct pl_err err;
    s = (struct pl_llm_server){ .o = o, .loop = &loop, .boot = pl_wall_ms(&pl_clock_system) / 1000 };
    s.limits = (struct pl_server_limits){ .http = { REQUEST_LINE, HEAD_BYTES, HEADERS },
                                          .head_timeout_ms = 60000,
                                          .write_timeout_ms = 60000 };
    signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&loop) != 0) return 1;
    const char *page = getenv("PLIMSOLL_PAGE_FD");
    if (!pl_llm_page_open(&s.page, page != NULL ? atoi(page) : -1, getenv("PLIMSOLL_GENERATION"), &err)) {
        fprintf(stderr, "plimsoll-llama: %s\n", err.msg);
        return 1;
    }
    s.timers = pl_timers_create(&loop, &pl_clock_system);
    s.metrics = pl_metrics_create(SERIES);
    if (s.timers == NULL || s.metrics == NULL || !read_names(&s)) return 1;
    const struct pl_server_options options = { .loop = &loop,
                                               .timers = s.timers,
                                               .metrics = s.metrics,
                                               .limits = &s.limits,
                                               .calls = &calls,
                                               .ctx = &s,
                                               .spare_fds = SPARE_FDS };
    s.server = pl_server_create(&options);
    if (s.server == NULL || !pl_server_listen(s.server, o->listener, "worker", &err)) {
        fprintf(stderr, "plimsoll-llama: %s\n", s.server != NULL ? err.msg : "out of memory");
        return 1;
    }
    for (uv_signal_t *h = &term; h != NULL; h = h == &term ? &interrupt : NULL) {
        uv_signal_init(&loop, h);
        h->data = &s;
        uv_signal_start(h, on_signal, h == &term ? SIGTERM : SIGINT);
    }
    if (o->threads == 0) o->threads = pl_llm_threads();
    pl_llm_start(o->verbose);
    s.load.data = &s;
    if (uv_queue_work(&loop, &s.load, load, loaded) != 0) return 1;
    for (double took = 0; s.state != PL_LLM_BROKEN;) turn(&s, &took);

    pl_server_cut(s.server);
    pl_server_unlisten(s.server);
    uv_run(&loop, UV_RUN_NOWAIT);
    pl_llm_sched_free(s.sched);
    pl_llm_chat_close(&s.chat);
    pl_llm_embedder_close(&s.embedder);
    pl_llm_close(&s.model);
    pl_server_destroy(s.server);
    pl_timers_destroy(s.timers);
    uv_walk(&loop, close_handle, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    pl_metrics_destroy(s.metrics);
    free(s.name_text);
    pl_llm_page_close(&s.page);
    return s.status;
}
