/* The file: places of everything, typo hints, bounds, expansion. */
#include "config_support.h"

TEST(a_whole_file_is_read_with_the_place_of_every_value) {
    struct pl_config *cfg = read_text("# comment\n"
                                      "listen: [127.0.0.1:3000, 'unix:/run/a.sock']\n"
                                      "admin: none\n"
                                      "limits:\n"
                                      "  head: 16KiB\n"
                                      "services:\n"
                                      "  chat:\n"
                                      "    run: service:Chat\n"
                                      "    gpus: [0, GPU-1]\n"
                                      "    args: {size: 1.10, deep: {a: 1, b: \"2\", c: true}}\n"
                                      "    env:\n"
                                      "      TOKEN: \"0123\"\n"
                                      "    traffic:\n"
                                      "      timeout: 30s\n"
                                      "      queue: {max_requests: 7, max_wait: 3s}\n"
                                      "    cors.enabled: on\n"
                                      "    warmup:\n"
                                      "      requests:\n"
                                      "        - path: /predict\n"
                                      "          body: {x: [1, 2.50], name: \"1\", flag: false}\n"
                                      "          headers: {X-N: 1.10}\n"
                                      "          status: 200\n"
                                      "          canary: true\n"
                                      "  other:\n"
                                      "    run: other:O\n"
                                      "    route: {path: /other}\n",
                                      no_env);
    const char *place;
    struct pl_err err;
    if (!pl_config_check(cfg, &err)) fail_msg("%s", err.msg);
    assert_string_equal(cfg->file, FILE_NAME);
    assert_int_equal(cfg->listen.count, 2);
    assert_int_equal(cfg->limits_head_bytes, 16384);
    assert_int_equal(cfg->service_count, 2);
    const struct pl_service_config *chat = &cfg->services[0];
    assert_string_equal(chat->id, "chat");
    assert_string_equal(chat->place, "plimsoll.yaml:7:3");
    assert_string_equal(chat->run, "service:Chat");
    assert_int_equal(chat->gpus.list.count, 2);
    assert_string_equal(chat->args.at[0].value, "1.10"); /* as written */
    assert_string_equal(chat->args.at[1].value, "{\"a\":1,\"b\":\"2\",\"c\":true}");
    assert_string_equal(chat->env.at[0].value, "0123");
    assert_int_equal(chat->traffic_timeout_ms, 30000);
    assert_int_equal(chat->traffic_queue_max_requests, 7);
    assert_true(chat->cors_enabled);
    assert_int_equal(chat->warmup_requests.count, 1);
    assert_string_equal(chat->warmup_requests.at[0].body, "{\"x\":[1,2.5],\"name\":\"1\",\"flag\":false}");
    assert_string_equal(chat->warmup_requests.at[0].headers.at[0].value, "1.10");
    assert_int_equal(chat->warmup_requests.at[0].status, 200);
    assert_true(chat->warmup_requests.at[0].canary);
    assert_int_equal(pl_config_origin(cfg, 0, "traffic.timeout", &place), PL_FROM_FILE);
    assert_string_equal(place, "plimsoll.yaml:14:16");
    assert_int_equal(pl_config_origin(cfg, PL_CFG_INSTANCE, "limits.head", &place), PL_FROM_FILE);
    assert_string_equal(place, "plimsoll.yaml:5:9");
    assert_int_equal(pl_config_origin(cfg, 0, "threads", &place), PL_FROM_DEFAULT);
    assert_string_equal(place, "");
    assert_int_equal(pl_config_find(cfg, "other"), 1);
    assert_int_equal(pl_config_find(cfg, "nobody"), SIZE_MAX);
    pl_config_destroy(cfg);
}

TEST(an_empty_file_is_a_configuration_without_services) {
    static const char *const empty[] = { "",      "# nothing\n",
                                         "---\n", "services:\n",
                                         "{}",    "limits:\nservices: {}\n" };
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        struct pl_config *cfg = read_text(empty[i], no_env);
        assert_int_equal(cfg->service_count, 0);
        pl_config_destroy(cfg);
    }
    refused("", "plimsoll.yaml: no services", "name a service: plimsoll serve service:Class");
}

TEST(an_unknown_key_is_named_with_its_place_and_its_nearest_neighbour) {
    static const struct {
        const char *text, *message, *hint;
    } all[] = {
        { "services:\n  chat:\n    run: s:C\n    memroy: {margin: 1%}\n",
          "plimsoll.yaml:4:5: unknown key 'memroy'", "did you mean 'memory'?" },
        { "services:\n  chat:\n    traffic:\n      timout: 1s\n",
          "plimsoll.yaml:4:7: unknown key 'traffic.timout'", "did you mean 'traffic.timeout'?" },
        { "services: {c: {traffic: {queue: {max_rquests: 1}}}}",
          "plimsoll.yaml:1:34: unknown key 'traffic.queue.max_rquests'",
          "did you mean 'traffic.queue.max_requests'?" },
        { "servces: {}\n", "plimsoll.yaml:1:1: unknown key 'servces'", "did you mean 'services'?" },
        { "lisen: a:1\n", "plimsoll.yaml:1:1: unknown key 'lisen'", "did you mean 'listen'?" },
        { "threads: 2\n", "plimsoll.yaml:1:1: unknown key 'threads'", "it belongs below services.NAME" },
        { "workers: 2\n", "plimsoll.yaml:1:10: 'workers' is a section: its keys go below it",
          "a service's workers belongs below services.NAME" },
        { "traffic: {}\n", "plimsoll.yaml:1:1: unknown key 'traffic'", "it belongs below services.NAME" },
        { "services: {c: {drain_timeout: 1s}}\n", "plimsoll.yaml:1:16: unknown key 'drain_timeout'",
          "it belongs to the whole instance, at the top of the file" },
        { "services: {c: {max_concurrency: 1}}\n", "plimsoll.yaml:1:16: unknown key 'max_concurrency'",
          "did you mean 'traffic.max_concurrency'?" },
        { "services: {c: {max_stream: 1s, timeout: 1s}}\n", "plimsoll.yaml:1:16: unknown key 'max_stream'",
          "did you mean 'traffic.max_stream'?" },
        { "services: {c: {timeout: 1s}}\n", "plimsoll.yaml:1:16: unknown key 'timeout'",
          "did you mean 'probe.timeout' or 'canary.timeout' or 'traffic.timeout'?" },
        { "start-timeout: 1s\n", "plimsoll.yaml:1:1: unknown key 'start-timeout'",
          "it belongs below services.NAME" },
        { "services: {c: {max-concurrency: 1}}\n", "plimsoll.yaml:1:16: unknown key 'max-concurrency'",
          "did you mean 'traffic.max_concurrency'?" },
        { "quite_something: 1\n", "plimsoll.yaml:1:1: unknown key 'quite_something'", "" },
        { "http: {port: 1}\n", "plimsoll.yaml:1:8: unknown key 'http.port'", "" },
        { "\"a\\e\\nb\": 1\n", "plimsoll.yaml:1:1: unknown key 'a??b'", "" },
        { "'': 1\n", "plimsoll.yaml:1:1: unknown key ''", "" },
        { "listen.x: 1\n", "plimsoll.yaml:1:1: unknown key 'listen.x'", "" },
        { "services: {c: {<<: {run: a}}}\n", "plimsoll.yaml:1:16: merge keys (<<) are not read", "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) refused(all[i].text, all[i].message, all[i].hint);
}

TEST(a_wrong_value_is_named_with_its_place) {
    static const struct {
        const char *text, *message, *hint;
    } all[] = {
        { "services:\n  c:\n    traffic: {timeout: 30}\n",
          "plimsoll.yaml:3:24: traffic.timeout: '30' is a duration without a unit",
          "write 30s if seconds are meant" },
        { "listen: 3000\n", "plimsoll.yaml:1:9: listen: '3000' is not an address", "write 0.0.0.0:3000" },
        { "listen:\n  - a:1\n  - b\n", "plimsoll.yaml:3:5: listen: 'b' is not an address",
          "write HOST:PORT, [IPV6]:PORT or unix:PATH" },
        { "version: 2\n", "plimsoll.yaml:1:10: version: '2' is outside 1 to 1", "" },
        { "name:\n", "plimsoll.yaml:1:6: name has no value", "leave the key out for its default" },
        { "name: ~\n", "plimsoll.yaml:1:7: name has no value", "leave the key out for its default" },
        { "name: [a]\n", "plimsoll.yaml:1:7: name: a name of a-z, 0-9 and - is wanted, not a list", "" },
        { "drain_delay: {a: 1}\n", "plimsoll.yaml:1:14: drain_delay: a duration is wanted, not a mapping",
          "" },
        { "limits: 5\n", "plimsoll.yaml:1:9: 'limits' is a section: its keys go below it", "" },
        { "services: 5\n", "plimsoll.yaml:1:11: services is a mapping: NAME: {run: ...}", "" },
        { "services: [a]\n", "plimsoll.yaml:1:11: services is a mapping: NAME: {run: ...}", "" },
        { "services: {c: s:C}\n", "plimsoll.yaml:1:15: service 'c' is not a mapping of keys",
          "write c: {run: module:Class}" },
        { "- a\n", "plimsoll.yaml:1:1: the file is not a mapping of keys", "" },
        { "just text\n", "plimsoll.yaml:1:1: the file is not a mapping of keys", "" },
        { "services: {Chat: {run: a}}\n",
          "plimsoll.yaml:1:12: 'Chat' is not a name of 1 to 40 letters a-z, digits and '-'", "" },
        { "services: {c: {logs_skip: 1, env: {A-B: 1}}}\n", "plimsoll.yaml:1:16: unknown key 'logs_skip'",
          "" },
        { "services: {c: {env: {A: 1, B-C: 1}}}\n",
          "plimsoll.yaml:1:28: env: 'B-C' is not the name of a variable", "" },
        { "services: {c: {env: {A: [1]}}}\n", "plimsoll.yaml:1:22: env: 'A': is nested too deep", "" },
        { "services: {c: {env: {A: }}}\n", "plimsoll.yaml:1:22: env: 'A': has no value", "" },
        { "services: {c: {env: [1]}}\n",
          "plimsoll.yaml:1:21: env: a mapping of variables is wanted, not a list", "" },
        { "services: {c: {warmup: {requests: [{path: /a}, {pth: /b}]}}}\n",
          "plimsoll.yaml:1:48: warmup.requests: request 1: unknown key 'pth'", "did you mean 'path'?" },
        { "services: {c: {gpus: [0, a]}}\n", "plimsoll.yaml:1:26: gpus: 'a' is not a GPU",
          "write all, how many, or a list of indexes and UUIDs (GPU-..., MIG-...)" },
        { "services: {c: {command: [a, [b]]}}\n", "plimsoll.yaml:1:29: command: item 1: is nested too deep",
          "" },
        { "admin_token: secret!\n", "plimsoll.yaml:1:14: admin_token: a secret is never written here",
          "write file:PATH or env:NAME" },
        { "name: \"a\\0b\"\n", "plimsoll.yaml:1:7: a zero byte in a value", "" },
        { "? [a]\n: 1\n", "plimsoll.yaml:1:3: one value is wanted here, not a list", "" },
        { "{a: 1}: 1\n", "plimsoll.yaml:1:1: one value is wanted here, not a mapping", "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) refused(all[i].text, all[i].message, all[i].hint);
}

TEST(the_same_key_twice_is_an_error_that_names_both_places) {
    static const struct {
        const char *text, *message;
    } all[] = {
        { "name: a\nname: b\n", "plimsoll.yaml:2:1: 'name' is there already (plimsoll.yaml:1:1)" },
        { "limits: {head: 1KiB}\nlimits: {headers: 1}\n",
          "plimsoll.yaml:2:1: 'limits' is there already (plimsoll.yaml:1:1)" },
        { "limits: {head: 1KiB}\nlimits.head: 2KiB\n",
          "plimsoll.yaml:2:1: 'limits.head' is there already (plimsoll.yaml:1:16)" },
        { "services:\n  c: {run: a}\n  c: {run: b}\n",
          "plimsoll.yaml:3:3: 'c' is there already (plimsoll.yaml:2:3)" },
        { "services: {c: {env: {A: 1,\n  A: 2}}}\n",
          "plimsoll.yaml:2:3: 'A' is there already (plimsoll.yaml:1:22)" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) refused(all[i].text, all[i].message, "");
}

TEST(what_is_not_yaml_is_named_with_its_place) {
    struct pl_err err;
    struct pl_config *cfg = pl_config_create();
    refused(
        "a:\n\tb: 1\n",
        "plimsoll.yaml:2:1: found character that cannot start any token, while scanning for the next token",
        "YAML is indented with spaces, not tabs");
    assert_false(pl_config_read_yaml(cfg, FILE_NAME, "a: [1\n", 6, no_env, &err));
    assert_memory_equal(err.msg, "plimsoll.yaml:2:1: ", 19);
    assert_false(pl_config_read_yaml(cfg, FILE_NAME, "a: \xff\n", 5, no_env, &err));
    assert_string_equal(err.msg, "plimsoll.yaml: byte 3: invalid leading UTF-8 octet");
    assert_false(pl_config_read_yaml(cfg, FILE_NAME, "a: *x\n", 6, no_env, &err));
    assert_string_equal(err.msg, "plimsoll.yaml:1:4: found undefined alias");
    pl_config_destroy(cfg);
    refused("{}\n---\n{}\n", "plimsoll.yaml:2:1: a second document", "");
}

TEST(anchors_are_read_and_cannot_blow_up) {
    struct pl_config *cfg = read_text("services:\n"
                                      "  a: {run: 's:A', traffic: &t {timeout: 5s}}\n"
                                      "  b: {run: 's:B', traffic: *t, route: {path: /b}}\n",
                                      no_env);
    assert_int_equal(cfg->services[1].traffic_timeout_ms, 5000);
    pl_config_destroy(cfg);
    refused("services: {c: {args: {a: &a [x,x,x,x,x,x,x,x,x,x], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a],\n"
            "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], d: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]}}}\n",
            "plimsoll.yaml:1:30: more than 10000 values, aliases counted each time", "");
    refused("services: {c: {args: {a: &a [*a]}}}\n", "plimsoll.yaml:1:26: nested more than 32 deep", "");
    refused("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n", "plimsoll.yaml:1:33: nested more than 32 deep", "");
}

TEST(a_file_is_at_most_a_mebibyte_and_ten_thousand_values) {
    struct pl_err err;
    struct pl_buf text;
    struct pl_config *cfg = pl_config_create();
    pl_buf_init(&text, 0);
    pl_buf_adds(&text, "name: [");
    for (int i = 0; i < 10000; i++) pl_buf_adds(&text, "a,");
    assert_false(pl_config_read_yaml(cfg, FILE_NAME, text.data, text.len, no_env, &err));
    assert_non_null(strstr(err.msg, ": more than 10000 values"));
    while (text.len <= 1 << 20) pl_buf_adds(&text, "# comment\n");
    assert_false(pl_config_read_yaml(cfg, FILE_NAME, text.data, text.len, no_env, &err));
    assert_string_equal(err.msg, "plimsoll.yaml: larger than 1 MiB");
    pl_buf_free(&text);
    pl_config_destroy(cfg);
}

static char *const some_env[] = { (char[]){ "NAME=prod" },      (char[]){ "NAMES=x" },
                                  (char[]){ "EMPTY=" },         (char[]){ "SECONDS_=30" },
                                  (char[]){ "NESTED=${NAME}" }, NULL };

TEST(variables_are_filled_in_once) {
    static const struct {
        const char *text, *value;
    } all[] = {
        { "${NAME}", "prod" },
        { "'a${NAME}b'", "aprodb" },
        { "${NAME}-${NAMES}", "prod-x" },
        { "${NOT:-else}", "else" },
        { "\"${EMPTY:-else}\"", "else" },
        { "x${EMPTY}y", "xy" },
        { "$NAME", "$NAME" },
        { "$$", "$" },
        { "$${NAME}", "${NAME}" },
        { "a$", "a$" },
        { "${NESTED}", "${NAME}" },
        { "${NAME:-else}", "prod" },
        { "a${NOT:-}b", "ab" },
        { "${NOT:-$x}", "$x" },
        { "${NOT:-a:-b}", "a:-b" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "services: {c: {run: s, cors: {allow_origin_regex: %s}}}", all[i].text);
        if (strchr(all[i].text, '{') != NULL && all[i].text[0] != '\'' && all[i].text[0] != '"')
            snprintf(text, sizeof text, "services: {c: {run: s, cors: {allow_origin_regex: '%s'}}}",
                     all[i].text);
        struct pl_config *cfg = read_text(text, some_env);
        assert_string_equal(cfg->services[0].cors_allow_origin_regex, all[i].value);
        pl_config_destroy(cfg);
    }
    struct pl_config *cfg = read_text("services:\n  c:\n    run: s\n    traffic: {timeout: '${SECONDS_}s'}\n"
                                      "    env: {A: '${NAME}', B: '$$x'}\n",
                                      some_env);
    assert_int_equal(cfg->services[0].traffic_timeout_ms, 30000);
    assert_string_equal(cfg->services[0].env.at[0].value, "prod");
    assert_string_equal(cfg->services[0].env.at[1].value, "$x");
    pl_config_destroy(cfg);
}

TEST(a_variable_that_is_not_set_is_an_error_with_its_place) {
    refused_env("name: ${NOT}\n", some_env, "plimsoll.yaml:1:7: the variable NOT is not set",
                "set it, or write ${NOT:-default}");
    static const char *const broken[] = { "name: '${'\n",   "name: '${}'\n",       "name: '${NAME'\n",
                                          "name: '${1}'\n", "name: '${NAME-x}'\n", "name: '${NAME:x}'\n" };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        refused_env(broken[i], some_env, "plimsoll.yaml:1:7: '${' is not followed by NAME} or NAME:-default}",
                    "write $$ for a dollar sign");
}

TEST(keys_without_effect_warn_with_their_place) {
    struct pl_config *cfg =
        read_text("services:\n  c:\n    run: s\n    plan:\n      expect: 1+1\n    mode: enforce\n", no_env);
    assert_int_equal(cfg->warnings.count, 1);
    assert_string_equal(cfg->warnings.at[0],
                        "plimsoll.yaml:5:15: 'plan.expect' has no effect in this version");
    pl_config_destroy(cfg);
}

TEST(what_several_keys_say_together_is_checked) {
    refused("services:\n  c: {threads: 2}\n", "plimsoll.yaml:2:3: service 'c' does not say what to run",
            "add run: module:Class, command: [...] or url: http://HOST:PORT");
    const char *routes = "give each a route: {path: /...}, a route.host or route.models of its own";
    refused("services:\n  a: {run: s}\n  b: {run: t}\n",
            "plimsoll.yaml:3:3: services 'b' and 'a' both answer / (plimsoll.yaml:2:3)", routes);
    refused("services:\n  a: {run: s, route: {path: /x}}\n  b: {run: t, route: {path: /x/}}\n",
            "plimsoll.yaml:3:29: services 'b' and 'a' both answer /x (plimsoll.yaml:2:29)", routes);
    refused("services:\n  a: {run: s, route: {host: X.org}}\n  b: {run: t, route: {host: x.ORG}}\n",
            "plimsoll.yaml:3:3: services 'b' and 'a' both answer x.ORG/ (plimsoll.yaml:2:3)", routes);
    refused("services:\n  a: {run: s, route: {models: [x, y]}}\n  b: {run: t, route: {models: [z, y]}}\n",
            "plimsoll.yaml:3:31: services 'b' and 'a' both answer for model 'y' (plimsoll.yaml:2:31)", "");
    refused("services:\n  a: {run: s, route: {models: [x]}}\n  b: {run: t}\n",
            "plimsoll.yaml:3:3: services 'b' and 'a' both answer / (plimsoll.yaml:2:3)", routes);
    refused("services: {c: {run: s, compat: [vllm, triton]}}\n",
            "plimsoll.yaml:1:32: compat: 'triton' is not known", "compat is a list of vllm, kserve");
    refused("services: {c: {run: s, limits: {body: 1MiB, replay: 2MiB}}}\n",
            "plimsoll.yaml:1:53: limits.replay: 2MiB is more than limits.body, 1MiB", "");
    refused("services: {c: {run: s, replace: {when: [hang, leek]}}}\n",
            "plimsoll.yaml:1:40: replace.when: 'leek' is no reason",
            "reasons are leak, forecast, budget, host_rss, hang");
    struct pl_err err;
    struct pl_config *cfg =
        read_text("services:\n  a: {run: s, limits: {body: 1MiB}}\n  b: {run: t, route: {path: /a}}\n"
                  "  c: {run: u, route: {host: x.org}}\n",
                  no_env);
    if (!pl_config_check(cfg, &err)) fail_msg("%s", err.msg);
    pl_config_destroy(cfg);
}

RUN(cmocka_unit_test(a_whole_file_is_read_with_the_place_of_every_value),
    cmocka_unit_test(an_empty_file_is_a_configuration_without_services),
    cmocka_unit_test(an_unknown_key_is_named_with_its_place_and_its_nearest_neighbour),
    cmocka_unit_test(a_wrong_value_is_named_with_its_place),
    cmocka_unit_test(the_same_key_twice_is_an_error_that_names_both_places),
    cmocka_unit_test(what_is_not_yaml_is_named_with_its_place),
    cmocka_unit_test(anchors_are_read_and_cannot_blow_up),
    cmocka_unit_test(a_file_is_at_most_a_mebibyte_and_ten_thousand_values),
    cmocka_unit_test(variables_are_filled_in_once),
    cmocka_unit_test(a_variable_that_is_not_set_is_an_error_with_its_place),
    cmocka_unit_test(keys_without_effect_warn_with_their_place),
    cmocka_unit_test(what_several_keys_say_together_is_checked))
