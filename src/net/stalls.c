#include "net/stalls.h"

#include "base/clock.h"

const char *pl_stalls_running = "other";

static struct {
    uv_prepare_t prepare; /* before the loop waits: the turn's callbacks are done */
    uv_check_t check;     /* after it has waited */
    uint64_t began_us;
    struct pl_metrics *metrics;
    struct pl_logger *log;
} stalls;

static void on_prepare(uv_prepare_t *p) {
    (void)p;
    uint64_t took_us = stalls.began_us != 0 ? pl_now_us() - stalls.began_us : 0;
    if (took_us >= PL_STALL_MS * 1000) {
        pl_series_add(pl_series(stalls.metrics, PL_M_LOOP_STALLS_TOTAL, pl_stalls_running), 1);
        pl_series_observe(pl_series(stalls.metrics, PL_M_LOOP_STALL_SECONDS, pl_stalls_running),
                          (double)took_us / 1e6);
        pl_log(stalls.log, PL_WARN, "loop.stall", F_STR("callback", pl_stalls_running),
               F_INT("took_ms", took_us / 1000));
    }
    pl_stalls_running = "other";
}

static void on_check(uv_check_t *c) {
    (void)c;
    stalls.began_us = pl_now_us();
}

void pl_stalls_watch(uv_loop_t *loop, struct pl_metrics *metrics, struct pl_logger *log) {
    stalls.metrics = metrics;
    stalls.log = log;
    uv_prepare_init(loop, &stalls.prepare);
    uv_prepare_start(&stalls.prepare, on_prepare);
    uv_check_init(loop, &stalls.check);
    uv_check_start(&stalls.check, on_check);
    uv_unref((uv_handle_t *)&stalls.prepare);
    uv_unref((uv_handle_t *)&stalls.check);
}
