/* Every type: what is read, what is refused and with which words. */
#include "config_support.h"

static struct pl_config *cfg;
static struct pl_err err;

static int begin(void **state) {
    (void)state;
    cfg = with_chat();
    return 0;
}
static int end(void **state) {
    (void)state;
    pl_config_destroy(cfg);
    return 0;
}

static size_t scope(const char *key) {
    return pl_option_find(PL_SCOPE_INSTANCE, key) != NULL ? PL_CFG_INSTANCE : 0;
}
static void good(const char *key, const char *text) {
    if (!pl_config_set(cfg, scope(key), key, text, PL_FROM_FLAG, "here", &err)) fail_msg("%s", err.msg);
}
static void bad(const char *key, const char *text, const char *message, const char *hint) {
    if (pl_config_set(cfg, scope(key), key, text, PL_FROM_FLAG, "here", &err)) fail_msg("accepted: %s", text);
    assert_string_equal(err.msg, message);
    assert_string_equal(err.hint, hint);
    assert_int_equal(err.code, PL_E_CONFIG);
}
static struct pl_service_config *chat(void) { return &cfg->services[0]; }

TEST(a_whole_number_is_read_and_held_to_its_range) {
    good("threads", "7");
    assert_int_equal(chat()->threads, 7);
    bad("threads", "0", "here: threads: '0' is outside 1 to 1024", "");
    bad("threads", "1025", "here: threads: '1025' is outside 1 to 1024", "");
    bad("threads", "1.5", "here: threads: cannot read '1.5' as a whole number", "");
    bad("threads", "seven", "here: threads: cannot read 'seven' as a whole number", "");
    bad("threads", "", "here: threads: cannot read '' as a whole number", "");
    bad("threads", "-1", "here: threads: cannot read '-1' as a whole number", "");
    bad("threads", "7 ", "here: threads: cannot read '7 ' as a whole number", "");
    bad("threads", "9223372036854775808", "here: threads: '9223372036854775808' is too large", "");
    bad("threads", "99999999999999999999",
        "here: threads: cannot read '99999999999999999999' as a whole number", "");
    assert_int_equal(chat()->threads, 7); /* what is refused changes nothing */
}

TEST(counts_of_tokens_and_pixels_may_be_written_in_thousands) {
    good("limits.image_pixels", "16M");
    assert_int_equal(chat()->limits_image_pixels, 16000000);
    good("limits.input_tokens", "1.5K");
    assert_int_equal(chat()->limits_input_tokens, 1500);
    bad("traffic.max_concurrency", "1K", "here: traffic.max_concurrency: cannot read '1K' as a whole number",
        "or the word none");
}

TEST(words_beside_numbers_have_values_of_their_own) {
    good("workers", "cpu_count");
    assert_int_equal(chat()->workers, PL_CFG_CPU_COUNT);
    good("start_timeout", "auto");
    assert_int_equal(chat()->start_timeout_ms, PL_CFG_AUTO);
    good("traffic.stall", "none");
    assert_int_equal(chat()->traffic_stall_ms, PL_CFG_NONE);
    good("failed_exit", "never");
    assert_int_equal(cfg->failed_exit_ms, PL_CFG_NONE);
    bad("traffic.timeout", "none", "here: traffic.timeout: cannot read 'none' as a duration", "");
    bad("start_timeout", "atuo", "here: start_timeout: cannot read 'atuo' as a duration", "or the word auto");
}

TEST(bytes_have_binary_units) {
    static const struct {
        const char *text;
        int64_t bytes;
    } all[] = { { "0", 0 },
                { "17", 17 },
                { "17B", 17 },
                { "3KiB", 3 << 10 },
                { "1.5MiB", 3 << 19 },
                { "2GiB", INT64_C(2) << 30 },
                { "16TiB", INT64_C(16) << 40 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        good("limits.body", all[i].text);
        assert_int_equal(chat()->limits_body_bytes, all[i].bytes);
    }
    bad("limits.body", "17TiB", "here: limits.body: '17TiB' is outside 0 to 16TiB", "");
    bad("limits.body", "9999999999TiB", "here: limits.body: '9999999999TiB' is too large", "");
    bad("limits.body", "5 MiB", "here: limits.body: cannot read '5 MiB' as bytes",
        "units are KiB, MiB, GiB and TiB");
}

TEST(decimal_looking_bytes_are_an_error_that_names_both_readings) {
    bad("limits.body", "5MB", "here: limits.body: '5MB' may mean 5000000 or 5242880 bytes",
        "write 5MiB, or the bytes");
    bad("limits.body", "1K", "here: limits.body: '1K' may mean 1000 or 1024 bytes",
        "write 1KiB, or the bytes");
    bad("limits.body", "2g", "here: limits.body: '2g' may mean 2000000000 or 2147483648 bytes",
        "write 2GiB, or the bytes");
    bad("limits.body", "1.5kb", "here: limits.body: '1.5kb' may mean 1500 or 1536 bytes",
        "write 1.5KiB, or the bytes");
    bad("limits.body", "1mib", "here: limits.body: '1mib' may mean 1000000 or 1048576 bytes",
        "write 1MiB, or the bytes");
}

TEST(durations_want_a_unit) {
    static const struct {
        const char *text;
        int64_t ms;
    } all[] = { { "250ms", 250 },  { "30s", 30000 },    { "1.5s", 1500 }, { "2m", 120000 },
                { "1h", 3600000 }, { "7d", 604800000 }, { "0.001s", 1 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int64_t ms = 0;
        good("traffic.timeout", all[i].text);
        assert_int_equal(chat()->traffic_timeout_ms, all[i].ms);
        assert_true(pl_config_parse_duration(all[i].text, &ms, &err));
        assert_int_equal(ms, all[i].ms);
    }
    bad("traffic.timeout", "30", "here: traffic.timeout: '30' is a duration without a unit",
        "write 30s if seconds are meant");
    bad("traffic.timeout", "0s", "here: traffic.timeout: '0s' is outside 1ms to 7d", "");
    bad("traffic.timeout", "8d", "here: traffic.timeout: '8d' is outside 1ms to 7d", "");
    bad("traffic.timeout", "5min", "here: traffic.timeout: cannot read '5min' as a duration",
        "units are ms, s, m, h and d");
    bad("traffic.timeout", "1.s", "here: traffic.timeout: cannot read '1.s' as a duration", "");
}

TEST(shares_are_percent_or_a_part_of_one) {
    good("memory.margin", "15%");
    assert_int_equal(chat()->memory_margin_bp, 1500);
    good("memory.margin", "0.15");
    assert_int_equal(chat()->memory_margin_bp, 1500);
    good("memory.margin", "12.5%");
    assert_int_equal(chat()->memory_margin_bp, 1250);
    bad("memory.margin", "15", "here: memory.margin: '15' is more than the whole",
        "write 15% if percent are meant");
    bad("memory.margin", "60%", "here: memory.margin: '60%' is outside 0% to 50%", "");
    bad("memory.margin", "a bit", "here: memory.margin: cannot read 'a bit' as a share", "");
    bad("memory.margin", "1x", "here: memory.margin: cannot read '1x' as a share", "write 15% or 0.15");
    good("empty_cache.reserved_over", "none");
    assert_int_equal(chat()->empty_cache_reserved_over_bp, PL_CFG_NONE);
}

TEST(an_amount_is_a_share_or_bytes) {
    good("replace.host_rss", "2GiB");
    assert_false(chat()->replace_host_rss.share);
    assert_int_equal(chat()->replace_host_rss.value, INT64_C(2) << 30);
    good("replace.host_rss", "0.8");
    assert_true(chat()->replace_host_rss.share);
    assert_int_equal(chat()->replace_host_rss.value, 8000);
    bad("replace.host_rss", "120%", "here: replace.host_rss: cannot read '120%' as a share", "");
}

TEST(switches_have_four_words) {
    static const char *const yes[] = { "on", "true", "True", "ON" }, *const no[] = { "off", "false", "False",
                                                                                     "OFF" };
    for (size_t i = 0; i < 4; i++) {
        good("required", no[i]);
        assert_false(chat()->required);
        good("required", yes[i]);
        assert_true(chat()->required);
    }
    bad("required", "yes", "here: required: 'yes' is neither on nor off", "");
    bad("required", "1", "here: required: '1' is neither on nor off", "");
}

TEST(a_word_of_a_closed_list_is_read_and_a_wrong_one_names_the_list) {
    good("mode", "observe");
    assert_int_equal(chat()->mode, PL_CFG_MODE_OBSERVE);
    bad("mode", "gaurd", "here: mode: 'gaurd' is none of observe, guard, enforce", "did you mean 'guard'?");
    bad("mode", "Guard!!", "here: mode: 'Guard!!' is none of observe, guard, enforce",
        "did you mean 'guard'?");
    bad("mode", "full", "here: mode: 'full' is none of observe, guard, enforce", "");
    assert_string_equal(pl_config_word("mode", PL_CFG_MODE_ENFORCE), "enforce");
    assert_string_equal(pl_config_word("logs.level", PL_CFG_LOGS_LEVEL_WARN), "warn");
    assert_string_equal(pl_config_word("mode", 9), "");
    assert_string_equal(pl_config_word("threads", 0), "");
    assert_string_equal(pl_config_word("nonsense", 0), "");
}

TEST(a_list_with_off_takes_false_and_one_with_false_takes_off) {
    good("fast_lane", "false");
    assert_int_equal(chat()->fast_lane, PL_CFG_FAST_LANE_OFF);
    good("offline", "true");
    assert_int_equal(chat()->offline, PL_CFG_OFFLINE_ON);
    good("traffic.idempotent", "off");
    assert_int_equal(chat()->traffic_idempotent, PL_CFG_TRAFFIC_IDEMPOTENT_FALSE);
    good("traffic.idempotent", "True");
    assert_int_equal(chat()->traffic_idempotent, PL_CFG_TRAFFIC_IDEMPOTENT_TRUE);
    bad("fast_lane", "true", "here: fast_lane: 'true' is none of auto, off", "");
}

TEST(the_status_of_a_refusal_is_one_of_three) {
    good("traffic.contended_status", "529");
    assert_int_equal(chat()->traffic_contended_status, 529);
    bad("traffic.contended_status", "500", "here: traffic.contended_status: '500' is not 429, 503 or 529",
        "");
    bad("traffic.contended_status", "200", "here: traffic.contended_status: '200' is outside 429 to 529", "");
}

TEST(names_and_paths_are_checked_where_they_have_a_form) {
    good("name", "prod-2");
    assert_string_equal(cfg->name, "prod-2");
    bad("name", "Prod", "here: name: 'Prod' is not a name of 1 to 40 letters a-z, digits and '-'", "");
    bad("name", "12345678901234567890123456789012345678901",
        "here: name: '12345678901234567890123456789012345678901' is not a name of 1 to 40 letters a-z, "
        "digits and '-'",
        "");
    bad("python", "", "here: python: is empty", "");
    good("metrics.namespace", "my_ns");
    assert_string_equal(chat()->metrics_namespace, "my_ns");
    bad("metrics.namespace", "my-ns", "here: metrics.namespace: 'my-ns' cannot begin the name of a metric",
        "");
    bad("metrics.namespace", "9ns", "here: metrics.namespace: '9ns' cannot begin the name of a metric", "");
    bad("run_dir",
        "/a/23456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/123456789/",
        "here: run_dir: '/a/23456789/123456789/123456789/123456789/123456789/123456789/12...' is longer than "
        "91 bytes",
        "");
}

TEST(a_route_begins_with_a_slash_and_ends_without) {
    good("route.path", "/chat/");
    assert_string_equal(chat()->route_path, "/chat");
    good("route.path", "/");
    assert_string_equal(chat()->route_path, "/");
    good("route.path", "///");
    assert_string_equal(chat()->route_path, "/");
    bad("route.path", "chat", "here: route.path: 'chat' does not begin with '/'", "write /chat");
    bad("route.path", "/a b", "here: route.path: '/a b' is not the path of a URL", "");
    bad("route.path", "/a?b", "here: route.path: '/a?b' is not the path of a URL", "");
    bad("route.path", "", "here: route.path: '' does not begin with '/'", "write /");
}

TEST(addresses_are_host_and_port_or_a_unix_socket) {
    good("listen", "[::1]:3000, unix:/run/x.sock ,localhost:0");
    assert_int_equal(cfg->listen.count, 3);
    assert_int_equal(cfg->listen.at[0].kind, PL_ADDRESS_TCP);
    assert_string_equal(cfg->listen.at[0].host, "::1");
    assert_int_equal(cfg->listen.at[0].port, 3000);
    assert_string_equal(cfg->listen.at[0].text, "[::1]:3000");
    assert_int_equal(cfg->listen.at[1].kind, PL_ADDRESS_UNIX);
    assert_string_equal(cfg->listen.at[1].path, "/run/x.sock");
    assert_string_equal(cfg->listen.at[2].host, "localhost");
    assert_int_equal(cfg->listen.at[2].port, 0);
    good("listen", "[\"127.0.0.1:1\"]");
    assert_int_equal(cfg->listen.count, 1);
    good("admin", "none");
    assert_int_equal(cfg->admin.kind, PL_ADDRESS_NONE);
    const char *how = "write HOST:PORT, [IPV6]:PORT or unix:PATH";
    bad("listen", "3000", "here: listen: '3000' is not an address", "write 0.0.0.0:3000");
    bad("listen", "localhost", "here: listen: 'localhost' is not an address", how);
    bad("listen", "localhost:", "here: listen: 'localhost:' is not an address", how);
    bad("listen", ":3000", "here: listen: ':3000' is not an address", how);
    bad("listen", "a:65536", "here: listen: 'a:65536' is not an address", how);
    bad("listen", "a:100000", "here: listen: 'a:100000' is not an address", how);
    bad("listen", "::1:3000", "here: listen: '::1:3000' is not an address", how);
    bad("listen", "[::1:3000", "here: listen: '[::1:3000' is not an address", how);
    bad("listen", "[]:3000", "here: listen: '[]:3000' is not an address", how);
    bad("listen", "a b:3000", "here: listen: 'a b:3000' is not an address", how);
    bad("listen", "http://a:3000", "here: listen: 'http://a:3000' is not an address", how);
    bad("listen", "unix:", "here: listen: 'unix:' is not an address", how);
    bad("listen", "[]", "here: listen: is empty", "");
    bad("listen", "", "here: listen: is empty", "");
    char text[160] = "unix:/";
    memset(text + 6, 'x', 107);
    if (pl_config_set(cfg, PL_CFG_INSTANCE, "listen", text, PL_FROM_FLAG, "here", &err)) fail();
    assert_non_null(strstr(err.msg, "longer than a socket's path may be (107 bytes)"));
}

TEST(lists_are_json_or_commas) {
    static const char *const same[] = { "/a,/b", " /a , /b ", "[\"/a\", \"/b\"]", " [\"/a\",\"/b\"]",
                                        "/a,,/b," };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        good("logs.access_skip", same[i]);
        assert_int_equal(cfg->logs_access_skip.count, 2);
        assert_string_equal(cfg->logs_access_skip.at[0], "/a");
        assert_string_equal(cfg->logs_access_skip.at[1], "/b");
    }
    good("logs.access_skip", "");
    assert_int_equal(cfg->logs_access_skip.count, 0);
    good("logs.access_skip", "[1, true, 2.5]");
    assert_string_equal(cfg->logs_access_skip.at[0], "1");
    assert_string_equal(cfg->logs_access_skip.at[1], "true");
    assert_string_equal(cfg->logs_access_skip.at[2], "2.5");
    bad("logs.access_skip", "[1, []]", "here: logs.access_skip: item 2: is nested too deep", "");
    bad("logs.access_skip", "[null]", "here: logs.access_skip: item 1: has no value", "");
    assert_false(pl_config_set(cfg, PL_CFG_INSTANCE, "logs.access_skip", "[1", PL_FROM_FLAG, "here", &err));
    assert_non_null(strstr(err.msg, "here: logs.access_skip: is not JSON at byte 2"));
}

TEST(maps_are_json_or_pairs) {
    good("args", "{\"size\": 3, \"deep\": {\"a\": [1]}, \"on\": true}");
    assert_int_equal(chat()->args.count, 3);
    assert_string_equal(chat()->args.at[0].key, "size");
    assert_string_equal(chat()->args.at[0].value, "3");
    assert_string_equal(chat()->args.at[1].value, "{\"a\":[1]}");
    assert_string_equal(chat()->args.at[2].value, "true");
    good("env", "A=1, B_2=x=y,C=");
    assert_int_equal(chat()->env.count, 3);
    assert_string_equal(chat()->env.at[1].key, "B_2");
    assert_string_equal(chat()->env.at[1].value, "x=y");
    assert_string_equal(chat()->env.at[2].value, "");
    bad("env", "A", "here: env: 'A' is not NAME=VALUE", "write A=1,B=2 or {\"A\": \"1\"}");
    bad("env", "=1", "here: env: '=1' is not NAME=VALUE", "write A=1,B=2 or {\"A\": \"1\"}");
    bad("env", "A=1,A=2", "here: env: 'A' is there twice", "");
    bad("env", "A-B=1", "here: env: 'A-B' is not the name of a variable", "");
    bad("env", "{\"1A\":\"\"}", "here: env: '1A' is not the name of a variable", "");
    bad("env", "{\"A\":{}}", "here: env: 'A': is nested too deep", "");
    bad("args", "{\"a\":null}", "here: args: 'a': has no value", "");
}

TEST(gpus_are_all_a_number_or_a_list) {
    assert_true(chat()->gpus.all);
    good("gpus", "2");
    assert_false(chat()->gpus.all);
    assert_int_equal(chat()->gpus.count, 2);
    assert_int_equal(chat()->gpus.list.count, 0);
    good("gpus", "[2]");
    assert_int_equal(chat()->gpus.count, 0);
    assert_int_equal(chat()->gpus.list.count, 1);
    good("gpus", "0,GPU-123,MIG-7");
    assert_int_equal(chat()->gpus.list.count, 3);
    good("gpus", "all");
    assert_true(chat()->gpus.all);
    const char *how = "write all, how many, or a list of indexes and UUIDs (GPU-..., MIG-...)";
    bad("gpus", "a100", "here: gpus: 'a100' is not a GPU", how);
    bad("gpus", "0,x", "here: gpus: 'x' is not a GPU", how);
    bad("gpus", "99999", "here: gpus: '99999' is too many GPUs", "");
}

TEST(warm_up_requests_are_read_whole) {
    good("warmup.requests",
         "[{\"path\":\"/p?x=1\"},{\"method\":\"PUT\",\"path\":\"/"
         "q\",\"headers\":{\"X-A\":\"b\",\"n\":1},\"content_type\":"
         "\"text/plain\",\"body\":\"@one.json\",\"status\":201,\"canary\":true},{\"path\":\"/"
         "r\",\"body\":{\"a\":[1,2]}}]");
    assert_int_equal(chat()->warmup_requests.count, 3);
    const struct pl_warmup_request *r = chat()->warmup_requests.at;
    assert_string_equal(r[0].method, "POST");
    assert_string_equal(r[0].path, "/p?x=1");
    assert_null(r[0].body);
    assert_null(r[0].content_type);
    assert_int_equal(r[0].status, 0);
    assert_false(r[0].canary);
    assert_string_equal(r[1].method, "PUT");
    assert_int_equal(r[1].headers.count, 2);
    assert_string_equal(r[1].headers.at[1].value, "1");
    assert_string_equal(r[1].body, "@one.json");
    assert_int_equal(r[1].status, 201);
    assert_true(r[1].canary);
    assert_string_equal(r[2].body, "{\"a\":[1,2]}");
}

TEST(a_wrong_warm_up_request_is_named) {
    static const struct {
        const char *text, *message, *hint;
    } all[] = {
        { "{}", "is not a list of requests", "" },
        { "[1]", "request 1: is not a mapping", "write {path: /predict, body: '...'}" },
        { "[{}]", "request 1: has no path", "" },
        { "[{\"path\":\"/a\"},{\"path\":\"a\"}]", "request 2: 'a' is not the path of a URL", "" },
        { "[{\"path\":\"/a b\"}]", "request 1: '/a b' is not the path of a URL", "" },
        { "[{\"path\":\"/\",\"bdy\":\"\"}]", "request 1: unknown key 'bdy'", "did you mean 'body'?" },
        { "[{\"path\":\"/\",\"something\":\"\"}]", "request 1: unknown key 'something'",
          "keys are method, path, headers, content_type, body, status and canary" },
        { "[{\"path\":\"/\",\"method\":\"A B\"}]", "request 1: 'A B' is not a method", "" },
        { "[{\"path\":\"/\",\"method\":\"\"}]", "request 1: '' is not a method", "" },
        { "[{\"path\":\"/\",\"status\":99}]", "request 1: '99' is not an HTTP status", "" },
        { "[{\"path\":\"/\",\"status\":600}]", "request 1: '600' is not an HTTP status", "" },
        { "[{\"path\":\"/\",\"canary\":\"maybe\"}]", "request 1: canary: 'maybe' is neither on nor off", "" },
        { "[{\"path\":\"/\",\"headers\":[]}]", "request 1: headers is not a mapping", "" },
        { "[{\"path\":\"/\",\"headers\":{\"a b\":\"\"}}]", "request 1: 'a b' cannot be sent as a header",
          "" },
        { "[{\"path\":\"/\",\"headers\":{\"a\":\"x\\r\\ny\"}}]", "request 1: 'a' cannot be sent as a header",
          "" },
        { "[{\"path\":\"/\",\"headers\":{\"a\":[]}}]", "request 1: headers: is nested too deep", "" },
        { "[{\"path\":\"/\",\"content_type\":\"a\\nb\"}]", "request 1: 'a?b' is not a media type", "" },
        { "[{\"path\":null}]", "request 1: path: has no value", "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char message[200];
        snprintf(message, sizeof message, "here: warmup.requests: %s", all[i].message);
        bad("warmup.requests", all[i].text, message, all[i].hint);
    }
}

TEST(a_value_that_is_not_utf8_is_refused) {
    bad("python", "/a\xff", "here: python: '/a\xff' is not UTF-8", "");
    bad("name", "\xc3", "here: name: '\xc3' is not UTF-8", "");
}

TEST(messages_show_foreign_text_without_control_characters) {
    bad("threads", "a\x1b[31m\n", "here: threads: cannot read 'a?[31m?' as a whole number", "");
    bad("threads", "0123456789012345678901234567890123456789012345678901234567890123456789",
        "here: threads: cannot read '0123456789012345678901234567890123456789012345678901234567890123...' as "
        "a whole "
        "number",
        "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
RUN(T(a_whole_number_is_read_and_held_to_its_range),
    T(counts_of_tokens_and_pixels_may_be_written_in_thousands),
    T(words_beside_numbers_have_values_of_their_own), T(bytes_have_binary_units),
    T(decimal_looking_bytes_are_an_error_that_names_both_readings), T(durations_want_a_unit),
    T(shares_are_percent_or_a_part_of_one), T(an_amount_is_a_share_or_bytes), T(switches_have_four_words),
    T(a_word_of_a_closed_list_is_read_and_a_wrong_one_names_the_list),
    T(a_list_with_off_takes_false_and_one_with_false_takes_off), T(the_status_of_a_refusal_is_one_of_three),
    T(names_and_paths_are_checked_where_they_have_a_form), T(a_route_begins_with_a_slash_and_ends_without),
    T(addresses_are_host_and_port_or_a_unix_socket), T(lists_are_json_or_commas), T(maps_are_json_or_pairs),
    T(gpus_are_all_a_number_or_a_list), T(warm_up_requests_are_read_whole),
    T(a_wrong_warm_up_request_is_named),

    T(a_value_that_is_not_utf8_is_refused), T(messages_show_foreign_text_without_control_characters))
