/* A model's answer that ends without having been finished: what vLLM was recorded to send, and what clients
 * see. */
#include "admit/tokens.h"
#include "world.h"

static char recorded[16384];

static int engine_begins(void **state) {
    int rc = world_begins(state);
    W.service.kind = PL_KIND_COMMAND;
    set("engine", "vllm");
    return rc;
}

/* It keeps no records of requests. */
static void engine_starts(unsigned slot) {
    worker_starts(slot);
    page_counts(&W.pages[slot - 1])->features = 0;
}

static void read_recording(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/vllm/sse/%s.sse", PL_TEST_DATA, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    recorded[fread(recorded, 1, sizeof recorded - 1, f)] = '\0';
    fclose(f);
}

static int ask_model(const char *path, const char *body) {
    char text[512];
    int c = client();
    snprintf(text, sizeof text,
             "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    put(c, text);
    return c;
}
static int ask_stream(void) { return ask_model("/v1/completions", "{\"prompt\":[7],\"stream\":true}"); }

static void put_head(int w) {
    put(w, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: "
           "chunked\r\n\r\n");
}

/* Who has seen enough may have closed. */
static void put_if_open(int w, const char *bytes, size_t len) {
    if (send(w, bytes, len, MSG_NOSIGNAL) < 0) assert_true(errno == EPIPE || errno == ECONNRESET);
    turn();
}

/* Event by event, each a chunk of its own as uvicorn writes them; in one piece if `at_once`. */
static void put_events(int w, const char *events, bool at_once) {
    static char all[65536];
    size_t len = 0;
    for (const char *end; (end = strstr(events, "\n\n")) != NULL; events = end + 2) {
        int n = (int)(end + 2 - events);
        len += (size_t)snprintf(all + len, sizeof all - len, "%x\r\n%.*s\r\n", (unsigned)n, n, events);
        if (at_once) continue;
        put_if_open(w, all, len);
        len = 0;
    }
    len += (size_t)snprintf(all + len, sizeof all - len, "0\r\n\r\n");
    put_if_open(w, all, len);
}

TEST(what_vllm_was_recorded_to_send_is_told_apart) {
    static const struct {
        const char *name, *path;
        bool complete;
    } rows[] = {
        { "chat_stream", "/v1/chat/completions", true },
        { "chat_stream_usage", "/v1/chat/completions", true },
        { "chat_stream_continuous_usage", "/v1/chat/completions", true },
        { "completion_stream", "/v1/completions", true },
        { "completion_stream_usage", "/prefix/v1/completions?x=1", true },
        { "engine_died_running", "/v1/completions", false },
        { "sigterm_abort_running", "/v1/completions", false },
        { "engine_died_running", "/v1/other", true }, /* whose streams we do not know */
    };
    engine_starts(1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int at_once = 0; at_once < 2; at_once++) {
            read_recording(rows[i].name);
            int c = ask_model(rows[i].path, "{\"prompt\":[7],\"stream\":true}");
            int w = worker_takes(1);
            read_until(w, "stream\":true}");
            put_head(w);
            char *first = strstr(recorded, "\n\n") + 2, kept = *first;
            *first = '\0'; /* one event goes out in any case */
            char chunk[4096];
            snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(recorded), recorded);
            put(w, chunk);
            read_until(c, "\n\n\r\n");
            *first = kept;
            put_events(w, first, at_once == 1);
            if (rows[i].complete) {
                read_until(c, "\r\n0\r\n\r\n");
                assert_true(has("data: [DONE]"));
            } else {
                read_end(c);
                if (has("[DONE]") || has("\r\n0\r\n") || !has("data: {\"error\":") || has("\"abort\""))
                    fail_msg("%s: %s", rows[i].name, seen);
            }
            close(c);
            close(w);
            turn();
        }
    assert_true(counted(PL_M_STREAMS_TOTAL, "error") == 4);
}

TEST(what_came_before_the_error_reaches_the_client) {
    engine_starts(1);
    int c = ask_stream(), w = worker_takes(1);
    read_until(w, "stream\":true}");
    put_head(w);
    put(w, "3e\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"one\",\"logprobs\":null}]}\n\n\r\n");
    read_until(c, "one");
    put_events(w,
               "data: {\"choices\":[{\"index\":0,\"text\":\"two\"}]}\n\n"
               "data: {\"error\":{\"message\":\"Context size has been exceeded.\"}}\n\ndata: [DONE]\n\n",
               true);
    read_end(c);
    assert_true(has("two") && has("data: {\"error\":") && has("Context size has been exceeded."));
    assert_false(has("[DONE]") || has("\r\n0\r\n"));
    close(c);
    close(w);
}

TEST(an_end_without_a_finish_reason_or_without_done_is_no_end) {
    static const char *const ends[] = {
        "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":\"stop\"}]}\n\n",
        /* two were asked for, one came to its end */
        "data: {\"choices\":[{\"index\":1,\"text\":\"x\"}]}\n\ndata: "
        "{\"choices\":[{\"index\":0,\"text\":\"x\","
        "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n",
    };
    engine_starts(1);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int c = ask_stream(), w = worker_takes(1);
        read_until(w, "stream\":true}");
        put_head(w);
        put(w, "3e\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"one\",\"logprobs\":null}]}\n\n\r\n");
        read_until(c, "one");
        put_events(w, ends[i], true);
        read_end(c);
        if (has("[DONE]") || has("\r\n0\r\n") || !has("data: {\"error\":")) fail_msg("row %zu: %s", i, seen);
        close(c);
        close(w);
        turn();
    }
}

TEST(as_long_as_nothing_is_out_another_worker_is_asked) {
    engine_starts(1);
    int c = ask_stream(), w = worker_takes(1);
    read_until(w, "stream\":true}");
    put_head(w);
    turn();
    assert_true(is_silent(c)); /* it waits in the engine */
    read_recording("engine_died_queued");
    put_events(w, recorded, false);
    turn();
    assert_true(is_silent(c));
    close(w);
    worker_dies(1);
    engine_starts(2);
    pass(20);
    int v = worker_takes(2);
    read_until(v, "stream\":true}");
    put_head(v);
    read_recording("completion_stream");
    put_events(v, recorded, true);
    read_until(c, "\r\n0\r\n\r\n");
    assert_true(has("HTTP/1.1 200 OK") && has("data: [DONE]"));
    assert_false(has("error"));
    assert_true(counted(PL_M_REQUESTS_REPLAYED_TOTAL, "unknown") == 1);
    close(c);
    close(v);
}

TEST(a_plain_answer_that_was_given_up_or_refused_by_a_dead_engine_is_asked_for_again) {
    static const struct {
        const char *status, *body;
    } rows[] = {
        { "200 OK", "{\"choices\":[{\"index\":0,\"text\":\"half\",\"finish_reason\":\"abort\"}]}" },
        { "500 Internal Server Error",
          "{\"error\":{\"message\":\"EngineCore encountered an issue. See stack trace (above) for the root "
          "cause.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}" },
        { "500 Internal Server Error",
          "{\"error\":{\"message\":\"cannot schedule new futures after shutdown\"}}" },
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        engine_starts(1);
        int c = ask_model("/v1/completions", "{\"prompt\":[7]}"), w = worker_takes(1);
        read_until(w, "[7]}");
        snprintf(text, sizeof text,
                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 rows[i].status, strlen(rows[i].body), rows[i].body);
        put(w, text);
        turn();
        assert_true(is_silent(c));
        engine_starts(2);
        W.workers[0].routable = false;
        pass(1100); /* no news of a death came */
        int v = worker_takes(2);
        read_until(v, "[7]}");
        put(v, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 53\r\n\r\n"
               "{\"choices\":[{\"text\":\"whole\",\"finish_reason\":\"stop\"}]}");
        read_until(c, "whole");
        close(c);
        close(w);
        close(v);
        worker_dies(1);
        worker_gone(1);
        worker_dies(2);
        worker_gone(2);
    }
}

TEST(other_errors_of_an_engine_are_its_answer) {
    engine_starts(1);
    int c = ask_model("/v1/completions", "{\"prompt\":[7]}"), w = worker_takes(1);
    read_until(w, "[7]}");
    put(w,
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 29\r\n\r\n"
        "{\"error\":{\"message\":\"other\"}}");
    read_until(c, "other");
    assert_true(has("HTTP/1.1 500"));
    close(c);
    close(w);
}

TEST(while_it_waits_in_the_engine_it_is_the_timeout_that_holds_and_then_the_stall) {
    set("traffic.timeout", "300s");
    set("traffic.stall", "20s");
    engine_starts(1);
    int c = ask_stream(), w = worker_takes(1);
    read_until(w, "stream\":true}");
    put_head(w);
    pass(100000);
    assert_true(is_silent(c));
    put(w, "3e\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"one\",\"logprobs\":null}]}\n\n\r\n");
    read_until(c, "one");
    pass(21000);
    read_end(c);
    assert_true(has("traffic.stall"));
    assert_true(counted(PL_M_STREAMS_TOTAL, "stalled") == 1);
    close(c);
    close(w);

    c = ask_stream();
    w = worker_takes(1);
    read_until(w, "stream\":true}");
    put_head(w);
    turn();
    pass(301000);
    read_until(c, "HTTP/1.1 504");
    close(c);
    close(w);
}

TEST(usage_is_asked_for_in_the_clients_place_only_where_that_is_configured) {
    static const char body[] = " { \"prompt\":[7],\"stream\":true}";
    static const char with[] =
        " {\"stream_options\":{\"include_usage\":true}, \"prompt\":[7],\"stream\":true}";
    static const char own[] = "{\"stream\":true,\"stream_options\":{\"include_usage\":false}}";
    engine_starts(1);
    for (int inject = 0; inject < 2; inject++)
        for (int at_once = 0; at_once < 2; at_once++) {
            if (inject) set("openai.usage", "inject");
            read_recording("completion_stream_usage");
            int c = ask_model("/v1/completions", body), w = worker_takes(1);
            read_until(w, "true}");
            assert_true(has(inject ? with : body) && (inject || !has("stream_options")));
            put_head(w);
            put_events(w, recorded, at_once == 1);
            read_until(c, "\r\n0\r\n\r\n");
            assert_true(has("data: [DONE]") && has("\"finish_reason\":\"length\""));
            assert_true(has("\"choices\":[]") == (inject == 0));
            close(c);
            close(w);
            turn();
        }
    int c = ask_model("/v1/completions", own), w = worker_takes(1); /* it has said what it wants */
    read_until(w, own);
    read_recording("completion_stream_usage");
    put_head(w);
    put_events(w, recorded, true);
    read_until(c, "\r\n0\r\n\r\n");
    assert_true(has("\"choices\":[]"));
    close(c);
    close(w);
}

static double error_ratio_told(void) {
    return pl_series_value(
        pl_metrics_get(W.app.metrics, PL_M_TOKENS_TOTAL,
                       (const char *const[]){ W.service.config->id, "m", "input", "calibrated" }, 4));
}

TEST(a_stream_that_tells_no_usage_has_its_prompt_counted_by_the_engine_afterwards) {
    engine_starts(1);
    for (int i = 0; i < PL_TOKEN_KNOWN; i++) {
        read_recording("completion_stream");
        int c =
            ask_model("/v1/completions", "{\"model\":\"m\",\"prompt\":\"one two three\",\"stream\":true}");
        int w = worker_takes(1);
        read_until(w, "true}");
        put_head(w);
        put_events(w, recorded, true);
        read_until(c, "\r\n0\r\n\r\n");
        close(c);
        close(w);
        int v = worker_takes(1); /* the same body again, to be counted */
        read_until(v, "true}");
        assert_true(has("POST /tokenize ") && has("one two three"));
        put(v, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 67\r\n\r\n"
               "{\"count\":3,\"max_model_len\":512,\"tokens\":[1,2,3],\"token_strs\":null} ");
        turn();
        close(v);
        turn();
    }
    int c = ask_model("/v1/completions", "{\"model\":\"m\",\"prompt\":\"one two three\",\"stream\":true}");
    int w = worker_takes(1);
    read_until(w, "true}");
    put_head(w);
    put_events(w, recorded, true);
    read_until(c, "\r\n0\r\n\r\n");
    assert_true(error_ratio_told() >= 2 &&
                error_ratio_told() <= 6); /* calibrated: about three tokens a prompt */
    assert_true(worker_idle(1));          /* it knows enough for now */
    close(c);
    close(w);
}

#define IN_FRONT_OF_VLLM(test) cmocka_unit_test_setup_teardown(test, engine_begins, world_ends)
RUN(IN_FRONT_OF_VLLM(what_vllm_was_recorded_to_send_is_told_apart),
    IN_FRONT_OF_VLLM(what_came_before_the_error_reaches_the_client),
    IN_FRONT_OF_VLLM(an_end_without_a_finish_reason_or_without_done_is_no_end),
    IN_FRONT_OF_VLLM(as_long_as_nothing_is_out_another_worker_is_asked),
    IN_FRONT_OF_VLLM(a_plain_answer_that_was_given_up_or_refused_by_a_dead_engine_is_asked_for_again),
    IN_FRONT_OF_VLLM(usage_is_asked_for_in_the_clients_place_only_where_that_is_configured),
    IN_FRONT_OF_VLLM(a_stream_that_tells_no_usage_has_its_prompt_counted_by_the_engine_afterwards),
    IN_FRONT_OF_VLLM(other_errors_of_an_engine_are_its_answer),
    IN_FRONT_OF_VLLM(while_it_waits_in_the_engine_it_is_the_timeout_that_holds_and_then_the_stall))
