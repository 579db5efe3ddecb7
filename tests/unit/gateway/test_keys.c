/* Keys at the gateway while requests are under way: who is known, what is counted, what happens to a key that
 * goes. */
#include "world.h"

static struct pl_keyring *ring_of(const char *text) {
    struct pl_err err = { 0 };
    struct pl_keyring *ring = pl_keyring_read("keys.yaml", text, strlen(text), &err);
    if (ring == NULL) fail_msg("%s", err.msg);
    return ring;
}
#define TEST_KEY  "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define OTHER_KEY "sha256:d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
#define ASK(key)  "GET /x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " key "\r\n\r\n"
#define ANSWER    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static double of_key(enum pl_metric m, const char *key) {
    return pl_series_value(
        pl_metrics_get(W.app.metrics, m, (const char *const[]){ key, W.service.config->id }, 2));
}

TEST(a_key_that_leaves_the_ring_while_its_request_runs_stays_until_it_is_done) {
    worker_starts(1);
    pl_gateway_set_keys(W.gateway, ring_of("- {name: a, hash: '" TEST_KEY "', max_concurrency: 1}\n"));
    int c = client(), d = client();
    put(c, ASK("test"));
    int w = worker_takes(1);
    read_until(w, "\r\n\r\n");
    assert_false(has("uthorization"));
    pl_gateway_set_keys(W.gateway, ring_of("- {name: b, hash: '" OTHER_KEY "'}\n"));
    put(d, ASK("test"));
    read_until(d, "known here");
    assert_true(has("HTTP/1.1 401 "));
    put(w, ANSWER);
    read_ends(c, "ok");
    put(c, ASK("test"));
    read_until(c, "HTTP/1.1 401 ");
    close(c);
    close(d);
    close(w);
}

TEST(a_place_is_taken_once_and_given_back_once_whatever_becomes_of_the_request) {
    worker_starts(1);
    pl_gateway_set_keys(W.gateway, ring_of("- {name: a, hash: '" TEST_KEY "', max_concurrency: 1}\n"));
    for (int i = 0; i < 4; i++) {
        int c = client(), d = client();
        put(c, ASK("test"));
        int w = worker_takes(1);
        read_until(w, "\r\n\r\n");
        put(d, ASK("test"));
        read_until(d, "at a time");
        assert_true(has("HTTP/1.1 429 ") && has("x-plimsoll-reason: key_limit\r\n"));
        if (i % 2 == 0) { /* answered */
            put(w, ANSWER);
            read_ends(c, "ok");
        }
        close(c); /* or the client left */
        turn();
        close(w);
        close(d);
        pass(3000);
    }
}

TEST(tokens_are_counted_on_v1_for_the_key_they_came_with) {
    static const char reply[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        "13\r\n{\"usage\":{\"completi\r\n"
        "23\r\non_tokens\": 5, \"prompt_tokens\": 7}}\r\n0\r\n\r\n";
    worker_starts(1);
    pl_gateway_set_keys(W.gateway, ring_of("- {name: a, hash: '" TEST_KEY "', tokens_per_minute: 10}\n"));
    int c = client();
    put(c, "POST /v1/x HTTP/1.1\r\nHost: h\r\nx-api-key: test\r\nContent-Type: "
           "application/json\r\nContent-Length: 2\r\n\r\n{}");
    int w = worker_takes(1);
    read_ends(w, "{}");
    put(w, reply);
    read_ends(c, "0\r\n\r\n");
    assert_non_null(
        strstr(seen, "13\r\n{\"usage\":{\"completi\r\n23\r\non_tokens\": 5")); /* passed on as it was */
    assert_true(of_key(PL_M_KEY_TOKENS_TOTAL, "a") == 12 && of_key(PL_M_KEY_REQUESTS_TOTAL, "a") == 1);
    put(c, ASK("test"));
    read_until(c, "tokens a minute");
    assert_true(has("HTTP/1.1 429 "));
    pass(13000);
    put(c, ASK("test"));
    read_until(w, "\r\n\r\n");
    put(w, ANSWER);
    read_ends(c, "ok");
    close(c);
    close(w);
}

TEST(without_a_ring_whatever_is_shown_passes) {
    worker_starts(1);
    pl_gateway_set_keys(W.gateway, ring_of("- {name: a, hash: '" TEST_KEY "'}\n"));
    pl_gateway_set_keys(W.gateway, NULL);
    int c = client();
    put(c, ASK("anything"));
    int w = worker_takes(1);
    read_until(w, "\r\n\r\n");
    assert_true(has("Authorization: Bearer anything\r\n"));
    put(w, ANSWER);
    read_ends(c, "ok");
    close(c);
    close(w);
}

RUN(IN_WORLD(a_key_that_leaves_the_ring_while_its_request_runs_stays_until_it_is_done),
    IN_WORLD(a_place_is_taken_once_and_given_back_once_whatever_becomes_of_the_request),
    IN_WORLD(tokens_are_counted_on_v1_for_the_key_they_came_with),
    IN_WORLD(without_a_ring_whatever_is_shown_passes))
