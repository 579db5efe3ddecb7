/* Bytes at the gateway: charged until the worker is really done, lowered by a death for want of memory. */
#include "admit/budget.h"
#include "world.h"

static int asks(const char *body) {
    char text[512];
    int fd = client();
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
             "%zu\r\n\r\n%s",
             strlen(body), body);
    put(fd, text);
    turn();
    return fd;
}

static struct pl_gateway_budget budget(size_t i) {
    struct pl_gateway_budget b = { 0 };
    assert_true(pl_gateway_budget(W.gateway, &W.service, i, &b));
    return b;
}

TEST(a_request_is_charged_from_its_arrival_to_its_end) {
    worker_starts(1);
    set("memory.budget", "1000");
    set("memory.per_request", "400");
    int a = asks("{\"prompt\":\"a\"}"), wa = worker_takes(1), b = asks("{\"prompt\":\"a\"}"),
        wb = worker_takes(1);
    int c = asks("{\"prompt\":\"a\"}");
    assert_true(worker_idle(1));
    assert_int_equal(budget(0).charged_bytes, 800);
    assert_int_equal(W.hooks.charged_to(W.hooks.ctx, &W.workers[0]), 800);
    assert_int_equal(W.hooks.charged_to(W.hooks.ctx, &W.workers[1]), 0);
    assert_string_equal(budget(0).gpu, "host");
    assert_int_equal(counted(PL_M_BUDGET_CHARGED_BYTES, "host"), 800);
    assert_int_equal(counted(PL_M_BUDGET_FREE_BYTES, "host"), 200);
    read_until(wa, "\"a\"}");
    answers(wa, a);
    int wc = worker_takes(1);
    read_until(wc, "\"a\"}");
    read_until(wb, "\"a\"}");
    answers(wc, c);
    answers(wb, b);
    assert_int_equal(budget(0).charged_bytes, 0);
    assert_int_equal(counted(PL_M_BUDGET_CHARGED_BYTES, "host"), 0);
}

TEST(each_prompt_and_each_answer_is_charged_and_what_never_fits_is_400) {
    worker_starts(1);
    set("memory.budget", "1000");
    set("memory.per_request", "100");
    int fd = asks("{\"prompt\":[\"a\",\"b\"],\"n\":3}"), w = worker_takes(1);
    assert_int_equal(budget(0).charged_bytes, 600);
    read_until(w, "3}");
    answers(w, fd);
    static const char *const never[] = { "{\"prompt\":\"a\",\"n\":11}",
                                         "{\"prompt\":\"a\",\"best_of\":1e12,\"n\":1}",
                                         "{\"prompt\":[[1],[2],[3],[4],[5],[6]],\"n\":2}" };
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        fd = asks(never[i]);
        read_until(fd, "memory.budget");
        assert_true(has("HTTP/1.1 400") && has("context_length_exceeded") &&
                    has("x-plimsoll-reason: context_length"));
        assert_true(worker_idle(1));
        close(fd);
        turn();
    }
}

TEST(a_client_that_left_is_charged_until_its_handler_ends) {
    worker_starts(1);
    set("memory.budget", "1000");
    set("memory.per_request", "1000");
    int a = asks("{\"prompt\":\"a\"}"), w = worker_takes(1);
    read_until(w, "\"a\"}");
    uint64_t id = id_seen();
    page_begin(&W.pages[0], id);
    page_counts(&W.pages[0])->in_flight = 1;
    leave(a);
    read_end(w);
    assert_int_equal(W.zombies[0], 1);
    pass(200);
    assert_int_equal(budget(0).charged_bytes, 1000);
    assert_int_equal(W.hooks.charged_to(W.hooks.ctx, &W.workers[0]), 1000);
    page_end(&W.pages[0], id, PL_OUTCOME_OK, "");
    pass(200);
    assert_int_equal(budget(0).charged_bytes, 0);
    close(w);
}

TEST(a_death_for_want_of_memory_lowers_it) {
    W.cause = "gpu_out_of_memory";
    worker_starts(1);
    worker_starts(2);
    set("memory.budget", "1000");
    set("memory.per_request", "400");
    int a = asks("{\"prompt\":\"a\"}"), wa = worker_takes(2);
    read_until(wa, "\"a\"}");
    page_begin(&W.pages[1], id_seen());
    close(wa);
    worker_dies(2);
    pass(300);
    read_until(a, "HTTP/1.1 502");
    assert_int_equal(budget(0).budget_bytes, 360);
    assert_int_equal(budget(0).full_bytes, 1000);
    assert_int_equal(budget(0).charged_bytes, 0);
    close(a);
    turn();
    /* what was charged then does not fit any more; it would have before */
    int b = asks("{\"prompt\":\"a\"}");
    read_until(b, "HTTP/1.1 429");
    assert_true(has("x-plimsoll-reason: budget") && has("Retry-After"));
    close(b);
    set("memory.per_request", "300");
    int c = asks("{\"prompt\":\"a\"}"), wc = worker_takes(1);
    read_until(wc, "\"a\"}");
    answers(wc, c);
    /* slowly back */
    pass(PL_BUDGET_QUIET_MS + 2 * PL_BUDGET_STEP_MS);
    assert_true(budget(0).budget_bytes > 360 && budget(0).budget_bytes < 500);
}

TEST(another_death_does_not) {
    worker_starts(1);
    set("memory.budget", "1000");
    worker_dies(1);
    assert_false(pl_gateway_budget(W.gateway, &W.service, 1, &(struct pl_gateway_budget){ 0 }));
    assert_int_equal(budget(0).budget_bytes, 1000);
}

TEST(workers_with_gpus_of_their_own_have_budgets_of_their_own) {
    set("workers", "2");
    set("gpus", "0,1");
    set("gpus_per_worker", "1");
    worker_starts(1);
    worker_starts(2);
    set("memory.budget", "1000");
    set("memory.per_request", "1000");
    int a = asks("{\"prompt\":\"a\"}");
    int b = asks("{\"prompt\":\"a\"}");
    int w1 = worker_takes(1), w2 = worker_takes(2), c = asks("{\"prompt\":\"a\"}");
    assert_true(worker_idle(1) && worker_idle(2));
    assert_int_equal(budget(0).charged_bytes, 1000);
    assert_int_equal(budget(1).charged_bytes, 1000);
    assert_string_not_equal(budget(0).gpu, budget(1).gpu);
    read_until(w2, "\"a\"}");
    read_until(w1, "\"a\"}");
    put(w2, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    int w3 = worker_takes(2); /* the third went where room was made */
    read_until(w3, "\"a\"}");
    assert_true(worker_idle(1));
    put(w3, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(c, "ok");
    close(a);
    close(b);
    close(c);
    close(w1);
    close(w2);
    close(w3);
    turn();
}

RUN(IN_WORLD(a_request_is_charged_from_its_arrival_to_its_end),
    IN_WORLD(each_prompt_and_each_answer_is_charged_and_what_never_fits_is_400),
    IN_WORLD(a_client_that_left_is_charged_until_its_handler_ends),
    IN_WORLD(a_death_for_want_of_memory_lowers_it), IN_WORLD(another_death_does_not),
    IN_WORLD(workers_with_gpus_of_their_own_have_budgets_of_their_own))
