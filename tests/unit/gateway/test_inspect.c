/* Bodies against the limits of a service: what is over one is answered before a worker sees a byte of it. */
#include "world.h"

#define PNG_HEAD "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x13\x88\0\0\x13\x88\x08\2\0\0\0" /* 5000 x 5000 */

static void post_bytes(int fd, const char *path, const char *type, const char *more, const char *body,
                       size_t len) {
    char head[512];
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", path, type,
             more, len);
    put(fd, head);
    put_bytes(fd, body, len);
}

static void post(int fd, const char *path, const char *body) {
    post_bytes(fd, path, "application/json", "", body, strlen(body));
}

/* It is answered with these words, and nobody came to the worker. */
static void refused(int fd, const char *status, const char *words, const char *code) {
    read_until(fd, status);
    read_until_more(fd, words);
    if (!has(code)) fail_msg("no %s in %s", code, seen);
    assert_true(worker_idle(1));
    close(fd);
    turn();
}

/* It goes to the worker as it came. */
static void passes(int fd, const char *end) {
    int w = worker_takes(1);
    read_ends(w, end);
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(fd, "ok");
    close(w);
    close(fd);
    turn();
}

TEST(too_deep_a_body_is_400_on_json_and_on_openai_routes) {
    char body[400] = "{\"a\":";
    worker_starts(1);
    memset(body + 5, '[', 100);
    memset(body + 105, ']', 100);
    body[205] = '}';
    int fd = client();
    post(fd, "/predict", body);
    refused(fd, "HTTP/1.1 400", "limits.json_depth, 64", "invalid_value");
    fd = client();
    post_bytes(fd, "/v1/chat/completions", "text/plain", "", body, 206);
    refused(fd, "HTTP/1.1 400", "limits.json_depth, 64", "invalid_value");
    assert_int_equal(counted(PL_M_REQUESTS_REJECTED_TOTAL, "invalid"), 2);
    /* nobody reads text as JSON elsewhere */
    fd = client();
    post_bytes(fd, "/predict", "text/plain", "", body, 206);
    passes(fd, "]}");
    set("limits.json_depth", "101");
    fd = client();
    post(fd, "/predict", body);
    passes(fd, "]}");
}

TEST(malformed_json_is_the_workers_to_judge_unless_a_limit_hangs_on_it) {
    worker_starts(1);
    int fd = client();
    post(fd, "/predict", "{\"a\":[1,]}");
    passes(fd, "{\"a\":[1,]}");
    set("limits.array_items", "3");
    fd = client();
    post(fd, "/predict", "{\"a\":[1,]}");
    refused(fd, "HTTP/1.1 400", "byte 9", "invalid_json");
    fd = client();
    post(fd, "/predict", "{\"a\":[1");
    refused(fd, "HTTP/1.1 400", "no JSON", "invalid_json");
    fd = client();
    post_bytes(fd, "/predict", "text/plain", "", "{no json", 8);
    passes(fd, "{no json");
}

TEST(too_long_an_array_is_413_with_its_limit) {
    worker_starts(1);
    set("limits.array_items", "3");
    int fd = client();
    post(fd, "/predict", "{\"a\":[1,2,3]}");
    passes(fd, "[1,2,3]}");
    fd = client();
    post(fd, "/predict", "{\"a\":[[1],[2],[3],[4]]}");
    refused(fd, "HTTP/1.1 413", "limits.array_items, 3", "request_too_large");
    /* whatever its type says: servers read it all the same */
    fd = client();
    post_bytes(fd, "/predict", "text/plain", "", "  [1,2,3,4]", 11);
    refused(fd, "HTTP/1.1 413", "limits.array_items, 3", "request_too_large");
    /* and a long body is read to its end before anybody gets it */
    set("limits.replay", "64");
    fd = client();
    put(fd, "POST /p HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: "
            "chunked\r\n\r\n");
    for (int i = 0; i < 50; i++) put(fd, "a\r\n          \r\n");
    assert_true(worker_idle(1));
    put(fd, "9\r\n[1,2,3,4]\r\n0\r\n\r\n");
    refused(fd, "HTTP/1.1 413", "limits.array_items, 3", "request_too_large");
}

TEST(a_large_image_is_413_before_a_worker_sees_a_byte) {
    static const char form[] = "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"x.png\"\r\n"
                               "Content-Type: image/png\r\n\r\n" PNG_HEAD "\r\n--b--\r\n";
    static const char json[] =
        "{\"image\":\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAE4gAABOICAIAAAA=\"}";
    worker_starts(1);
    set("limits.image_pixels", "16000000");
    int fd = client();
    post_bytes(fd, "/p", "image/png", "", PNG_HEAD, sizeof PNG_HEAD - 1);
    refused(fd, "HTTP/1.1 413", "25000000 pixels is larger than limits.image_pixels, 16000000",
            "request_too_large");
    fd = client();
    post_bytes(fd, "/p", "multipart/form-data; boundary=b", "", form, sizeof form - 1);
    refused(fd, "HTTP/1.1 413", "limits.image_pixels, 16000000", "request_too_large");
    fd = client();
    post(fd, "/p", json);
    refused(fd, "HTTP/1.1 413", "limits.image_pixels, 16000000", "request_too_large");
    fd = client();
    post_bytes(fd, "/p", "application/octet-stream", "", PNG_HEAD, sizeof PNG_HEAD - 1);
    refused(fd, "HTTP/1.1 413", "limits.image_pixels, 16000000", "request_too_large");
    fd = client();
    post_bytes(fd, "/p", "image/tiff", "", "II*\0....", 8);
    refused(fd, "HTTP/1.1 400", "cannot be read", "invalid_value");
    set("limits.image_pixels", "25000000");
    fd = client();
    post(fd, "/p", json);
    passes(fd, json);
}

TEST(a_large_upload_flows_as_soon_as_its_image_is_measured) {
    static const char png[] = PNG_HEAD;
    worker_starts(1);
    set("limits.image_pixels", "25000000");
    set("limits.replay", "64");
    int fd = client();
    put(fd, "POST /p HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\nContent-Length: 129\r\n\r\n");
    put_bytes(fd, png, 20);
    assert_true(worker_idle(1));
    put_bytes(fd, &png[20], sizeof png - 1 - 20);
    int w = worker_takes(1);
    put(fd, "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
            "6789");
    for (int i = 0; i < 100; i++) turn();
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(fd, "ok");
    close(w);
    close(fd);
    turn();
}

TEST(compressed_bodies_are_refused_where_limits_hold) {
    worker_starts(1);
    int fd = client();
    post_bytes(fd, "/p", "application/json", "Content-Encoding: gzip\r\n", "\x1f\x8b{}", 4);
    passes(fd, "{}");
    set("limits.array_items", "3");
    fd = client();
    post_bytes(fd, "/p", "application/json", "Content-Encoding: gzip\r\n", "\x1f\x8b{}", 4);
    refused(fd, "HTTP/1.1 400", "Content-Encoding", "invalid_value");
    fd = client();
    post_bytes(fd, "/p", "application/json", "Content-Encoding: identity\r\n", "{}", 2);
    passes(fd, "{}");
}

TEST(max_tokens_over_the_limit_is_refused_or_lowered_in_its_place) {
    worker_starts(1);
    set("limits.output_tokens", "64");
    int fd = client();
    post(fd, "/v1/completions", "{\"max_tokens\": 4096, \"zz\": 1}");
    refused(fd, "HTTP/1.1 400", "limits.output_tokens, 64", "invalid_value");
    fd = client();
    post(fd, "/v1/completions", "{\"max_tokens\": 64, \"zz\": 1}");
    passes(fd, "{\"max_tokens\": 64, \"zz\": 1}");
    set("openai.over_limit", "clamp");
    fd = client();
    post(fd, "/v1/completions", "{\"max_tokens\": 4096, \"zz\": 1}");
    int w = worker_takes(1);
    read_ends(w, "{\"max_tokens\": 64  , \"zz\": 1}");
    put(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    read_ends(fd, "ok");
    assert_true(has("x-plimsoll-max-tokens-clamped: 64"));
    close(w);
    close(fd);
    turn();
    /* what cannot be lowered in place is refused: twice, no plain number, not bounded at all */
    static const char *const no[] = { "{\"max_tokens\":4096,\"max_tokens\":1}", "{\"max_tokens\":1e9}",
                                      "{\"max_tokens\":-1}", "{\"max_tokens\":\"4096\"}" };
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        fd = client();
        post(fd, "/v1/completions", no[i]);
        refused(fd, "HTTP/1.1 400", "limits.output_tokens, 64", "invalid_value");
    }
}

TEST(a_service_that_is_only_observed_takes_it_and_tells) {
    worker_starts(1);
    set("mode", "observe");
    set("limits.array_items", "1");
    set("limits.output_tokens", "5");
    int fd = client();
    post(fd, "/p", "{\"a\":[1,2],\"max_tokens\":9}");
    passes(fd, "{\"a\":[1,2],\"max_tokens\":9}");
    assert_string_equal(W.would, "refuse too_large");
    fd = client();
    post(fd, "/p", "{\"max_tokens\":9}");
    passes(fd, "{\"max_tokens\":9}");
    assert_string_equal(W.would, "refuse invalid");
}

RUN(IN_WORLD(too_deep_a_body_is_400_on_json_and_on_openai_routes),
    IN_WORLD(malformed_json_is_the_workers_to_judge_unless_a_limit_hangs_on_it),
    IN_WORLD(too_long_an_array_is_413_with_its_limit),
    IN_WORLD(a_large_image_is_413_before_a_worker_sees_a_byte),
    IN_WORLD(a_large_upload_flows_as_soon_as_its_image_is_measured),
    IN_WORLD(compressed_bodies_are_refused_where_limits_hold),
    IN_WORLD(max_tokens_over_the_limit_is_refused_or_lowered_in_its_place),
    IN_WORLD(a_service_that_is_only_observed_takes_it_and_tells))
