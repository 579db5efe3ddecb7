/* The accepted configuration: to main and back, also between versions. */
#include "config_support.h"

static const char file_text[] = "drain_delay: 3s\n"
                                "listen: ['127.0.0.1:4000', 'unix:/run/x']\n"
                                "admin: none\n"
                                "services:\n"
                                "  chat:\n"
                                "    run: s:C\n"
                                "    args: {a: 1.10}\n"
                                "    env: {TOKEN: \"quote \\\" and \\u00e9\"}\n"
                                "    gpus: [0, 1]\n"
                                "    memory: {margin: 20%}\n"
                                "    warmup: {requests: [{path: /a, body: {x: [1]}}]}\n"
                                "  other: {run: s:O, route: {path: /o}}\n";

static struct pl_config *through(const struct pl_config *cfg, struct pl_buf *text) {
    struct pl_err err;
    pl_buf_init(text, 0);
    assert_true(pl_config_to_json(cfg, text));
    struct pl_config *copy = pl_config_from_json(text->data, text->len, &err);
    if (copy == NULL) fail_msg("%s", err.msg);
    return copy;
}

TEST(all_values_with_origin_and_place_survive_the_way_to_main) {
    struct pl_err err;
    struct pl_buf first, second;
    struct pl_config *cfg = read_text(file_text, no_env);
    assert_true(pl_config_set(cfg, PL_CFG_INSTANCE, "http.port", "5000", PL_FROM_FLAG, "--port", &err));
    assert_true(pl_config_set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator", &err));
    assert_true(pl_config_set(cfg, 0, "python", "/py", PL_FROM_PRESET, "", &err));
    struct pl_config *copy = through(cfg, &first);
    assert_string_equal(copy->file, FILE_NAME);
    assert_int_equal(copy->service_count, 2);
    for (int which = 0; which < 3; which++) {
        size_t service = which == 2 ? PL_CFG_INSTANCE : (size_t)which;
        struct pl_options all = pl_options_of(which == 2 ? PL_SCOPE_INSTANCE : PL_SCOPE_SERVICE);
        for (size_t i = 0; i < all.count; i++) {
            const char *a, *b;
            const char *key = all.at[i].key;
            assert_int_equal(pl_config_origin(cfg, service, key, &a),
                             pl_config_origin(copy, service, key, &b));
            assert_string_equal(a, b);
            assert_string_equal(pl_config_text(cfg, service, key), pl_config_text(copy, service, key));
        }
    }
    assert_string_equal(copy->listen.at[0].text, "127.0.0.1:5000");
    assert_string_equal(copy->services[0].env.at[0].value, "quote \" and \xc3\xa9");
    assert_string_equal(copy->services[0].args.at[0].value, "1.10");
    assert_string_equal(copy->services[0].warmup_requests.at[0].body, "{\"x\":[1]}");
    assert_string_equal(copy->services[0].place, "plimsoll.yaml:5:3");
    struct pl_config *again = through(copy, &second);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    pl_buf_free(&first);
    pl_buf_free(&second);
    pl_config_destroy(cfg);
    pl_config_destroy(copy);
    pl_config_destroy(again);
}

TEST(services_that_are_not_started_stay_behind) {
    struct pl_err err;
    struct pl_buf text;
    struct pl_config *cfg = read_text(file_text, no_env);
    assert_true(pl_config_add_target(cfg, "s:O", NULL, false, &err));
    struct pl_config *copy = through(cfg, &text);
    assert_int_equal(copy->service_count, 1);
    assert_string_equal(copy->services[0].id, "other");
    pl_buf_free(&text);
    pl_config_destroy(cfg);
    pl_config_destroy(copy);
}

static struct pl_config *from(const char *text) {
    struct pl_err err;
    struct pl_config *cfg = pl_config_from_json(text, strlen(text), &err);
    if (cfg == NULL) fail_msg("%s", err.msg);
    return cfg;
}

TEST(what_another_version_wrote_is_read_as_far_as_it_is_known) {
    struct pl_config *cfg =
        from("{\"v\":1,\"later\":{},\"values\":[{\"path\":\"of.later\",\"text\":\"1\"},"
             "{\"path\":\"drain_delay\",\"text\":\"2s\",\"origin\":\"moon\",\"more\":1},"
             "{\"path\":\"logs.level\",\"text\":\"trace\",\"origin\":\"flag\",\"place\":\"--l\"},"
             "{\"path\":\"name\"},7],\"services\":[{\"id\":\"a\"}]}");
    const char *place;
    assert_int_equal(cfg->drain_delay_ms, 2000);
    assert_int_equal(pl_config_origin(cfg, PL_CFG_INSTANCE, "drain_delay", &place), PL_FROM_FILE);
    assert_string_equal(place, "");
    assert_int_equal(cfg->logs_level, PL_CFG_LOGS_LEVEL_INFO);
    assert_int_equal(cfg->warnings.count, 1);
    assert_string_equal(cfg->warnings.at[0],
                        "accepted configuration: --l: logs.level: 'trace' is none of debug, info, "
                        "warn, error (the default is used)");
    assert_int_equal(cfg->service_count, 1);
    pl_config_destroy(cfg);
}

TEST(what_would_be_lost_is_named_with_its_place_when_nothing_may_be) {
    static const struct {
        const char *text, *message;
    } all[] = {
        { "{\"v\":1,\"values\":[{\"path\":\"of.later\",\"text\":\"1\",\"place\":\"a.yaml:3:5\"}],"
          "\"services\":[]}",
          "a.yaml:3:5: of.later is not known to this version" },
        { "{\"v\":1,\"values\":[],\"services\":[{\"id\":\"a\",\"values\":[{\"path\":\"later\",\"text\":\"1\"}"
          "]}]}",
          "accepted configuration: later is not known to this version" },
        { "{\"v\":1,\"values\":[{\"path\":\"logs.level\",\"text\":\"trace\",\"place\":\"--l\"}],\"services\":"
          "[]}",
          "accepted configuration: --l: logs.level: 'trace' is none of debug, info, warn, error" },
        { "{\"v\":1,\"values\":[7],\"services\":[]}",
          "accepted configuration: ? is not known to this version" },
    };
    struct pl_err err;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_null(pl_config_from_json_whole(all[i].text, strlen(all[i].text), &err));
        assert_string_equal(err.msg, all[i].message);
        assert_int_equal(err.code, PL_E_CONFIG);
        struct pl_config *some = from(all[i].text); /* one that follows a crash takes what it can */
        pl_config_destroy(some);
    }
    static const char well[] = "{\"v\":1,\"later\":1,\"values\":[{\"path\":\"drain_delay\",\"text\":\"2s\"}],"
                               "\"services\":[{\"id\":\"a\"}]}";
    struct pl_config *cfg = pl_config_from_json_whole(well, strlen(well), &err);
    assert_non_null(cfg);
    assert_int_equal(cfg->drain_delay_ms, 2000);
    pl_config_destroy(cfg);
}

TEST(what_is_no_configuration_is_refused) {
    static const struct {
        const char *text, *message;
    } all[] = {
        { "", "accepted configuration: is not JSON at byte 0" },
        { "{", "accepted configuration: is not JSON at byte 1" },
        { "[]", "accepted configuration: not one" },
        { "{}", "accepted configuration: not one" },
        { "{\"services\":[{}]}", "accepted configuration: service 1 has no name of its own" },
        { "{\"services\":[{\"id\":\"A\"}]}", "accepted configuration: service 1 has no name of its own" },
        { "{\"services\":[{\"id\":\"a\"},{\"id\":\"a\"}]}",
          "accepted configuration: service 2 has no name of its own" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pl_err err;
        assert_null(pl_config_from_json(all[i].text, strlen(all[i].text), &err));
        assert_memory_equal(err.msg, all[i].message, strlen(all[i].message));
    }
}

TEST(the_hash_follows_what_was_written_and_not_where) {
    struct pl_err err;
    char a[17], b[17], c[17], d[17];
    struct pl_config *one = read_text("drain_delay: 3s\nservices: {chat: {run: 's:C'}}\n", no_env);
    struct pl_config *two =
        read_text("# moved\n\nservices:\n  chat:\n    run: s:C\ndrain_delay: 3s\n", no_env);
    pl_config_hash(one, a);
    pl_config_hash(two, b);
    assert_string_equal(a, b);
    assert_int_equal(strspn(a, "0123456789abcdef"), 16);
    assert_true(pl_config_set(one, 0, "threads", "4", PL_FROM_DECORATOR, "decorator", &err));
    pl_config_hash(one, c);
    assert_string_equal(a, c);
    assert_true(pl_config_set(one, 0, "threads", "4", PL_FROM_FLAG, "--threads", &err));
    pl_config_hash(one, d);
    assert_string_not_equal(a, d);
    pl_config_destroy(one);
    pl_config_destroy(two);
}

RUN(cmocka_unit_test(all_values_with_origin_and_place_survive_the_way_to_main),
    cmocka_unit_test(services_that_are_not_started_stay_behind),
    cmocka_unit_test(what_another_version_wrote_is_read_as_far_as_it_is_known),
    cmocka_unit_test(what_would_be_lost_is_named_with_its_place_when_nothing_may_be),
    cmocka_unit_test(what_is_no_configuration_is_refused),
    cmocka_unit_test(the_hash_follows_what_was_written_and_not_where))
