/* Requests to an LLM engine, charged in bytes of the KV cache that it tells of. */
#include "world.h"

enum { KIB = 1024 };

static void engine_tells(void) { W.hooks.engine_told(W.hooks.ctx, &W.workers[0]); }

static int engine_begins(void **state) {
    int rc = world_begins(state);
    W.service.kind = PL_KIND_COMMAND;
    set("engine", "vllm");
    set("traffic.queue.max_wait", "60s");
    world_engine = (struct pl_engine_facts){ .context_tokens = 4000,
                                             .kv_tokens = 10000,
                                             .kv_bytes = 10000 * KIB,
                                             .block_tokens = 1,
                                             .step_tokens = 4000,
                                             .kv_used_ratio = 0.5,
                                             .told_ms = 1 };
    worker_starts(1);
    page_counts(&W.pages[0])->features = 0;
    engine_tells();
    return rc;
}

/* A prompt of `ids` tokens, which are counted exactly, and the rest of the body. */
static int ask_ids(unsigned ids, const char *more) {
    static char body[65536], text[65536 + 256];
    size_t n = (size_t)snprintf(body, sizeof body, "{\"prompt\":[7");
    for (unsigned i = 1; i < ids; i++) n += (size_t)snprintf(body + n, sizeof body - n, ",7");
    snprintf(body + n, sizeof body - n, "]%s}", more);
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "
             "%zu\r\n\r\n%s",
             strlen(body), body);
    int c = client();
    put(c, text);
    turn();
    return c;
}

static double charged(void) {
    return pl_series_value(pl_metrics_get(W.app.metrics, PL_M_BUDGET_CHARGED_BYTES,
                                          (const char *const[]){ W.service.config->id, "host" }, 2));
}
static double budget(void) {
    return pl_series_value(pl_metrics_get(W.app.metrics, PL_M_BUDGET_BYTES,
                                          (const char *const[]){ W.service.config->id, "host" }, 2));
}

static void answer(int c, int w, unsigned tokens) {
    char body[256], text[512];
    snprintf(body, sizeof body,
             "{\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":10,"
             "\"completion_tokens\":%u}}",
             tokens);
    snprintf(text, sizeof text,
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    put(w, text);
    read_until(c, "completion_tokens");
}

TEST(prompt_and_the_expected_answer_are_charged_and_what_does_not_fit_waits) {
    assert_true(budget() == 10000.0 * KIB);
    int a = ask_ids(1000, ""), w = worker_takes(1); /* 512 more until something is known */
    read_until(w, "]}");
    assert_true(charged() == 1512.0 * KIB);
    int b = ask_ids(2000, ",\"max_tokens\":100,\"n\":4"), v = worker_takes(1);
    read_until(v, "\"n\":4}");
    assert_true(charged() == (1512.0 + 2400) * KIB);
    int c = ask_ids(3000, ",\"max_tokens\":1000,\"n\":8");
    assert_true(worker_idle(1));
    answer(a, w, 30);
    assert_true(charged() == (2400.0 + 3000 + 8 * 512) * KIB);
    assert_false(is_silent(w)); /* it came */
    answer(b, v, 30);
    close(a);
    close(b);
    close(c);
    close(w);
    close(v);
}

TEST(how_long_answers_are_is_learnt) {
    for (int i = 0; i < 20; i++) {
        int c = ask_ids(10, ""), w = worker_takes(1);
        read_until(w, "]}");
        answer(c, w, 40);
        close(c);
        close(w);
    }
    int c = ask_ids(100, ""), w = worker_takes(1);
    read_until(w, "]}");
    assert_true(charged() == 140.0 * KIB);
    answer(c, w, 40);
    close(c);
    close(w);
}

TEST(where_a_full_cache_kills_the_longest_answer_is_charged) {
    set("memory.charge", "worst");
    int a = ask_ids(1000, ""), w = worker_takes(1);
    read_until(w, "]}");
    assert_true(charged() == 4000.0 * KIB);
    int b = ask_ids(1000, ",\"max_tokens\":500"), v = worker_takes(1);
    read_until(v, "500}");
    assert_true(charged() == 5500.0 * KIB);
    int c = ask_ids(1000, ",\"max_tokens\":3000,\"n\":4");
    read_until(c, "HTTP/1.1 400");
    assert_true(has("context_length_exceeded")); /* more than the whole cache */
    answer(a, w, 1);
    answer(b, v, 1);
    close(a);
    close(b);
    close(c);
    close(w);
    close(v);
}

TEST(what_is_over_the_context_is_refused_in_openais_words) {
    int c = ask_ids(4000, "");
    read_until(c, "HTTP/1.1 400");
    assert_true(has("\"code\":\"context_length_exceeded\"") && has("maximum context length is 4000 tokens"));
    close(c);
    c = ask_ids(3000, ",\"max_tokens\":1001");
    read_until(c, "HTTP/1.1 400");
    assert_true(has("max_tokens is 1001"));
    close(c);
    set("openai.over_limit", "clamp");
    c = ask_ids(3000, ",\"max_tokens\":1001");
    int w = worker_takes(1);
    read_until(w, "\"max_tokens\":1000}");
    answer(c, w, 5);
    assert_true(has("x-plimsoll-max-tokens-clamped: 1000"));
    close(c);
    close(w);
    set("mode", "observe");
    c = ask_ids(4001, "");
    w = worker_takes(1);
    read_until(w, "]}");
    assert_string_equal(W.would, "refuse context_length");
    answer(c, w, 5);
    close(c);
    close(w);
}

TEST(prompts_in_work_are_bounded_apart_from_the_cache) {
    world_engine.step_tokens = 500; /* four steps are less than the context: 4000 */
    world_engine.kv_tokens = 100000;
    world_engine.kv_bytes = 100000 * KIB;
    world_engine.waiting = 1;
    engine_tells();
    int a = ask_ids(3000, ",\"stream\":true"), w = worker_takes(1);
    read_until(w, "true}");
    int b = ask_ids(2000, "");
    assert_true(worker_idle(1));
    put(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_true(worker_idle(1)); /* a head is no answer */
    put(w, "e\r\ndata: {\"x\":1}\n\r\n");
    int v = worker_takes(1); /* it has been computed */
    read_until(v, "]}");
    int c = ask_ids(3000, "");
    assert_true(worker_idle(1));
    pass(200);
    engine_tells();
    assert_true(worker_idle(1)); /* somebody waits in the engine: it may be this one */
    world_engine.waiting = 0;
    engine_tells();
    int u = worker_takes(1);
    read_until(u, "]}");
    answer(b, v, 5);
    answer(c, u, 5);
    close(a);
    close(b);
    close(c);
    close(w);
    close(v);
    close(u);
}

TEST(an_answer_longer_than_charged_is_charged_more_while_it_streams) {
    for (int i = 0; i < 20; i++) {
        int c = ask_ids(10, ""), w = worker_takes(1);
        read_until(w, "]}");
        answer(c, w, 2);
        close(c);
        close(w);
    }
    int c = ask_ids(100, ",\"stream\":true"), w = worker_takes(1);
    read_until(w, "true}");
    assert_true(charged() == 102.0 * KIB);
    put(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 9; i++) put(w, "2c\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n\r\n");
    read_until(c, "data");
    int d = ask_ids(1, ""), v = worker_takes(1);
    read_until(v, "]}");
    assert_true(charged() >= (109.0 + 3) * KIB && charged() < 130.0 * KIB);
    answer(d, v, 2);
    close(c);
    close(d);
    close(w);
    close(v);
}

TEST(the_budget_follows_what_the_engine_does_with_it) {
    int waiting[2], a = ask_ids(3000, ",\"max_tokens\":1000"), w = worker_takes(1);
    read_until(w, "1000}");
    set("memory.charge", "auto");
    world_engine.kv_tokens = 3600;
    world_engine.kv_bytes = 3600 * KIB;
    world_engine.step_tokens = 100000;
    engine_tells();
    for (int i = 0; i < 2; i++) waiting[i] = ask_ids(500, ",\"max_tokens\":100");
    assert_true(worker_idle(1));
    for (int i = 0; i < 6 && budget() < 4200.0 * KIB; i++) {
        pass(250);
        engine_tells();
    }
    int v = worker_takes(1); /* nobody waits in the engine: more may be charged than it holds */
    read_until(v, "100}");
    assert_true(counted(PL_M_REQUESTS_REFUSED_TOTAL, "budget") == 0);
    double high = budget();
    world_engine.preemptions = 50;
    world_engine.running = 10;
    pass(250);
    engine_tells();
    assert_true(budget() < high);
    answer(a, w, 3);
    for (int i = 0; i < 2; i++) leave(waiting[i]);
    close(a);
    close(w);
    close(v);
}

static void engine_started(uint64_t generation, uint64_t kv_bytes) {
    W.workers[0].generation = generation;
    world_engine.kv_bytes = kv_bytes;
    world_engine.boot.now.kv_tokens = world_engine.kv_tokens;
    world_engine.boot.now.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = true, .bytes = kv_bytes };
    engine_tells();
}

static double drift(void) {
    return pl_series_value(pl_series(W.app.metrics, PL_M_PLAN_DRIFT_RATIO, W.service.config->id));
}

static double planned_bytes(const char *part, const char *state) {
    return pl_series_value(pl_series(W.app.metrics, PL_M_PLAN_BYTES, W.service.config->id, part, state));
}

TEST(a_cache_that_differs_from_plan_or_last_boot_is_drift) {
    engine_started(6, 10000 * KIB);
    assert_true(drift() == 0);
    assert_true(pl_series_value(pl_series(W.app.metrics, PL_M_PLAN_CAPACITY_REQUESTS, W.service.config->id,
                                          "4000")) == 2);
    world_engine.kv_tokens = 9000;
    engine_started(7, 9000 * KIB); /* the next boot has less */
    assert_true(drift() < -0.099 && drift() > -0.101);
    assert_true(planned_bytes("kv", "last") == 10000.0 * KIB);
    world_engine.command_hash = 5; /* with another command it is another thing */
    engine_started(8, 4000 * KIB);
    assert_true(drift() == 0);
    assert_true(planned_bytes("kv", "last") == 0); /* and nothing is left of the other one */
    world_engine.boot.asked_kv_bytes = 8000 * KIB;
    engine_started(9, 4000 * KIB);
    assert_true(drift() == -0.5);
    assert_true(planned_bytes("kv", "planned") == 8000.0 * KIB);
}

TEST(a_start_is_not_judged_before_its_plan_is_there) {
    static struct pl_boot_plan plan = { .made = true };
    plan.side.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = true, .bytes = 20000 * KIB };
    plan.side.part[PL_BOOT_WEIGHTS] = (struct pl_boot_bytes){ .known = true, .bytes = 700 * KIB };
    world_engine.plan_waits = true;
    world_engine.command_hash = 77;
    engine_started(20, 10000 * KIB);
    assert_true(drift() == 0);
    world_engine.plan_waits = false;
    world_engine.boot.plan = &plan;
    engine_tells();
    assert_true(drift() == -0.5);
    assert_true(planned_bytes("weights", "planned") == 700.0 * KIB);
    engine_started(21,
                   10000 * KIB); /* it has been measured since: that is what the next one is held against */
    assert_true(drift() == 0);
    engine_started(21, 1000 * KIB); /* once a generation */
    assert_true(drift() == 0);
}

TEST(routes_without_an_answer_and_an_engine_that_tells_nothing) {
    int c = client();
    put(c, "POST /v1/embeddings HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "
           "17\r\n\r\n{\"input\":[7,7,7]}");
    int w = worker_takes(1);
    read_until(w, "7]}");
    assert_true(charged() == 3.0 * KIB);
    answer(c, w, 1);
    close(c);
    close(w);
    world_engine = (struct pl_engine_facts){ .kv_used_ratio = -1 };
    engine_tells();
    c = ask_ids(20000, "");
    w = worker_takes(1);
    read_until(w, "]}");
    assert_true(charged() == 0);
    answer(c, w, 1);
    close(c);
    close(w);
}

#define IN_FRONT_OF_VLLM(test) cmocka_unit_test_setup_teardown(test, engine_begins, world_ends)
RUN(IN_FRONT_OF_VLLM(prompt_and_the_expected_answer_are_charged_and_what_does_not_fit_waits),
    IN_FRONT_OF_VLLM(how_long_answers_are_is_learnt),
    IN_FRONT_OF_VLLM(where_a_full_cache_kills_the_longest_answer_is_charged),
    IN_FRONT_OF_VLLM(what_is_over_the_context_is_refused_in_openais_words),
    IN_FRONT_OF_VLLM(prompts_in_work_are_bounded_apart_from_the_cache),
    IN_FRONT_OF_VLLM(an_answer_longer_than_charged_is_charged_more_while_it_streams),
    IN_FRONT_OF_VLLM(the_budget_follows_what_the_engine_does_with_it),
    IN_FRONT_OF_VLLM(a_cache_that_differs_from_plan_or_last_boot_is_drift),
    IN_FRONT_OF_VLLM(a_start_is_not_judged_before_its_plan_is_there),
    IN_FRONT_OF_VLLM(routes_without_an_answer_and_an_engine_that_tells_nothing))
