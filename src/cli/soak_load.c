#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/soak.h"
#include "net/ask.h"

enum {
    REPLY_BYTES = 64 << 20,
    BROKEN_MOST = 50,      /* in a row: nobody is there */
    REFUSED_PAUSE_MS = 20, /* before the next request, when one was refused */
};
#define HEADERS "Content-Type: application/json\r\nAccept: */*\r\n"

struct flight {
    struct run *run;
    struct pl_ask *ask;
    bool leaving;
};

/* One call of pl_soak_send. */
struct run {
    uv_loop_t loop;
    uv_timer_t timer;
    struct pl_soak_load *load;
    uint64_t left, under_way, broken, began_us, started;
    bool dead, timer_closed;
};

static void go_on(struct run *r);

static bool done_with(const struct run *r) {
    return (r->left == 0 || r->dead || pl_soak_signal != 0) && r->under_way == 0;
}

/* Every k-th is kept; when there is no more room, every other one goes and k doubles. */
static void time_it(struct pl_soak_counts *c, uint64_t us) {
    enum { ROOM = sizeof c->us / sizeof *c->us };
    if (c->every == 0) c->every = 1;
    if (c->sent % c->every != 0) return;
    if (c->timed == ROOM) {
        for (size_t i = 0; i < ROOM / 2; i++) c->us[i] = c->us[2 * i];
        c->timed = ROOM / 2;
        c->every *= 2;
    }
    c->us[c->timed++] = us;
}

static void count(struct run *r, const struct pl_ask_reply *reply, bool leaving) {
    struct pl_soak_counts *c = &r->load->counts;
    c->sent++;
    if (!reply->answered && leaving) {
        c->left++;
        return;
    }
    if (!reply->answered) {
        c->broken++;
        r->broken = strcmp(reply->problem, "timeout") == 0 ? 0 : r->broken + 1;
        if (r->broken >= BROKEN_MOST) r->dead = true;
        return;
    }
    r->broken = 0;
    c->last_status = reply->status;
    if (reply->status == 429 || reply->status == 503)
        c->refused++;
    else if (reply->status >= 500)
        c->server_errors++;
    else if (reply->status >= 400)
        c->client_errors++;
    else
        c->ok++;
    time_it(c, reply->took_us);
}

static void close_timer(struct run *r) {
    if (r->timer_closed) return;
    r->timer_closed = true;
    uv_close((uv_handle_t *)&r->timer, NULL);
}

static void on_timer(uv_timer_t *t) { go_on(t->data); }

static void on_done(void *ctx, const struct pl_ask_reply *reply) {
    struct flight *f = ctx;
    struct run *r = f->run;
    bool refused = reply->answered && (reply->status == 429 || reply->status == 503);
    bool leaving = f->leaving && (reply->problem == NULL || strcmp(reply->problem, "connect") != 0);
    r->under_way--;
    count(r, reply, leaving);
    free(f);
    if (done_with(r))
        close_timer(r);
    else if (refused && r->load->rate <= 0)
        uv_timer_start(&r->timer, on_timer, REFUSED_PAUSE_MS, 0);
    else
        go_on(r);
}

static bool enough(void *ctx, const char *bytes, size_t len) {
    const struct flight *f = ctx;
    (void)bytes;
    return !(f->leaving && len > 0);
}

static bool start_one(struct run *r) {
    struct pl_soak_load *l = r->load;
    struct flight *f = calloc(1, sizeof *f);
    size_t len = 0;
    if (f == NULL) return false;
    f->run = r;
    f->leaving = l->leave != PL_SOAK_STAYS;
    const char *body = l->body(l->ctx, l->n, &len);
    const struct pl_ask_question q = { .to = &l->place->to,
                                       .host = l->place->host,
                                       .method = "POST",
                                       .target = l->target,
                                       .headers = HEADERS,
                                       .body = body,
                                       .body_len = len,
                                       .reply_cap = REPLY_BYTES,
                                       .piece = enough,
                                       /* gone before anything can have been answered */
                                       .timeout_ms = l->leave == PL_SOAK_LEAVES_AT_ONCE ? 1 : l->timeout_ms };
    l->n++;
    r->left--;
    r->started++;
    struct pl_ask *ask = pl_ask_start(&r->loop, &q, on_done, f);
    if (ask == NULL) {
        free(f);
        return false;
    }
    f->ask = ask;
    r->under_way++;
    return true;
}

/* Closed loop: as many as may be at a time. Open loop: as many as should have begun by now. */
static void go_on(struct run *r) {
    const struct pl_soak_load *l = r->load;
    if (l->rate > 0) {
        uint64_t due = (uint64_t)((double)(pl_now_us() - r->began_us) * l->rate / 1e6) + 1;
        while (r->left > 0 && r->started < due && r->under_way < 4096 && !r->dead && pl_soak_signal == 0)
            if (!start_one(r)) break;
        if (r->left > 0 && !r->dead)
            uv_timer_start(&r->timer, on_timer, l->rate > 500 ? 1 : (uint64_t)(1000 / l->rate), 0);
    } else {
        while (r->left > 0 && r->under_way < l->concurrency && !r->dead && pl_soak_signal == 0)
            if (!start_one(r)) break;
    }
    if (done_with(r)) close_timer(r);
}

bool pl_soak_send(struct pl_soak_load *l, uint64_t count, struct pl_err *err) {
    struct run r = { .load = l, .left = count };
    if (count == 0) return true;
    if (uv_loop_init(&r.loop) != 0) return PL_FAIL(err, PL_E_NOMEM, "no memory for a loop");
    uv_timer_init(&r.loop, &r.timer);
    r.timer.data = &r;
    r.began_us = pl_now_us();
    go_on(&r);
    uv_run(&r.loop, UV_RUN_DEFAULT);
    close_timer(&r);
    uv_run(&r.loop, UV_RUN_DEFAULT);
    uv_loop_close(&r.loop);
    l->counts.busy_us += pl_now_us() - r.began_us;
    return !r.dead || PL_FAIL(err, PL_E_SYS, "%s does not answer any more", l->place->host);
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t pl_soak_us(const struct pl_soak_counts *c, double share) {
    static uint64_t sorted[sizeof c->us / sizeof *c->us];
    if (c->timed == 0) return 0;
    memcpy(sorted, c->us, c->timed * sizeof *sorted);
    qsort(sorted, c->timed, sizeof *sorted, by_size);
    uint64_t at = (uint64_t)(share * (double)c->timed);
    return sorted[at < c->timed ? at : c->timed - 1];
}

/* --- one */

struct one {
    struct pl_buf *reply;
    uint16_t status;
};

static void on_one(void *ctx, const struct pl_ask_reply *reply) {
    struct one *o = ctx;
    o->status = reply->answered ? reply->status : 0;
    if (o->reply != NULL && reply->answered) pl_buf_add(o->reply, reply->body, reply->body_len);
}

uint16_t pl_soak_one(const struct pl_soak_place *p, const char *method, const char *target, const char *body,
                     size_t len, struct pl_buf *reply) {
    uv_loop_t loop;
    struct one o = { .reply = reply };
    const struct pl_ask_question q = { .to = &p->to,
                                       .host = p->host,
                                       .method = method,
                                       .target = target,
                                       .headers = HEADERS,
                                       .body = body,
                                       .body_len = len,
                                       .reply_cap = REPLY_BYTES,
                                       .timeout_ms = 120000 };
    if (uv_loop_init(&loop) != 0) return 0;
    pl_ask_start(&loop, &q, on_one, &o);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return o.status;
}
