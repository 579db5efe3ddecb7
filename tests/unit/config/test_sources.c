/* Where values come from: order of origins, environment, flags, targets, what a service brings along. */
#include "config_support.h"

static struct pl_err err;

static void env_refused(struct pl_config *cfg, const char *variable, const char *message, const char *hint) {
    char text[200];
    char *const env[] = { text, NULL };
    snprintf(text, sizeof text, "%s", variable);
    if (pl_config_read_env(cfg, env, &err)) fail_msg("accepted: %s", variable);
    assert_string_equal(err.msg, message);
    assert_string_equal(err.hint, hint);
    assert_int_equal(err.code, PL_E_CONFIG);
}
static void env(struct pl_config *cfg, const char *variable) {
    char text[200];
    char *const list[] = { text, NULL };
    snprintf(text, sizeof text, "%s", variable);
    if (!pl_config_read_env(cfg, list, &err)) fail_msg("%s", err.msg);
}
static void set(struct pl_config *cfg, size_t service, const char *key, const char *text,
                enum pl_origin origin, const char *place) {
    if (!pl_config_set(cfg, service, key, text, origin, place, &err)) fail_msg("%s", err.msg);
}
static void is_from(struct pl_config *cfg, size_t service, const char *key, enum pl_origin origin,
                    const char *where) {
    const char *place;
    assert_int_equal(pl_config_origin(cfg, service, key, &place), origin);
    assert_string_equal(place, where);
}

TEST(a_stronger_origin_is_never_overwritten_whatever_the_order) {
    for (int strong = PL_FROM_PRESET; strong < PL_ORIGIN_COUNT; strong++)
        for (int weak = PL_FROM_PRESET; weak < strong; weak++)
            for (int order = 0; order < 2; order++) {
                struct pl_config *cfg = with_chat();
                enum pl_origin first = (enum pl_origin)(order ? weak : strong);
                enum pl_origin second = (enum pl_origin)(order ? strong : weak);
                set(cfg, 0, "traffic.timeout", first > second ? "9s" : "5s", first, "first");
                set(cfg, 0, "traffic.timeout", first > second ? "5s" : "9s", second, "second");
                assert_int_equal(cfg->services[0].traffic_timeout_ms, 9000);
                is_from(cfg, 0, "traffic.timeout", (enum pl_origin)strong, order ? "second" : "first");
                pl_config_destroy(cfg);
            }
}

TEST(a_weaker_value_that_loses_is_checked_all_the_same) {
    struct pl_config *cfg = with_chat();
    set(cfg, 0, "traffic.timeout", "9s", PL_FROM_FLAG, "--timeout");
    assert_false(pl_config_set(cfg, 0, "traffic.timeout", "soon", PL_FROM_DECORATOR, "decorator", &err));
    assert_string_equal(err.msg, "decorator: traffic.timeout: cannot read 'soon' as a duration");
    assert_int_equal(cfg->services[0].traffic_timeout_ms, 9000);
    pl_config_destroy(cfg);
}

TEST(equal_origins_follow_each_other) {
    struct pl_config *cfg = with_chat();
    set(cfg, 0, "threads", "2", PL_FROM_FLAG, "--threads");
    set(cfg, 0, "threads", "3", PL_FROM_FLAG, "--threads");
    assert_int_equal(cfg->services[0].threads, 3);
    pl_config_destroy(cfg);
}

TEST(origins_have_names) {
    static const char *const names[] = { "default", "preset", "decorator", "bentoml_config",
                                         "file",    "env",    "flag",      "operator" };
    for (int i = 0; i < PL_ORIGIN_COUNT; i++)
        assert_string_equal(pl_origin_name((enum pl_origin)i), names[i]);
}

TEST(what_a_decorator_said_can_be_forgotten_and_told_anew) {
    struct pl_config *cfg = with_chat();
    set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator");
    set(cfg, 0, "workers", "2", PL_FROM_DECORATOR, "decorator");
    set(cfg, 0, "cors.allow_origins", "a,b", PL_FROM_DECORATOR, "decorator");
    set(cfg, 0, "traffic.timeout", "9s", PL_FROM_FLAG, "--timeout");
    pl_config_forget(cfg, 0, PL_FROM_DECORATOR);
    assert_int_equal(cfg->services[0].threads, 1);
    assert_int_equal(cfg->services[0].workers, 1);
    assert_int_equal(cfg->services[0].cors_allow_origins.count, 0);
    is_from(cfg, 0, "threads", PL_FROM_DEFAULT, "");
    assert_string_equal(pl_config_text(cfg, 0, "threads"), "1");
    set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator");
    assert_int_equal(cfg->services[0].threads, 4);
    is_from(cfg, 0, "threads", PL_FROM_DECORATOR, "decorator");
    assert_int_equal(cfg->services[0].workers, 1);
    assert_int_equal(cfg->services[0].traffic_timeout_ms, 9000);
    pl_config_destroy(cfg);
}

TEST(telling_the_same_again_and_again_takes_no_memory) {
    struct pl_config *cfg = with_chat();
    for (int i = 0; i < 3; i++) {
        set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator");
        pl_config_forget(cfg, 0, PL_FROM_DECORATOR);
    }
    size_t used = cfg->inside->arena.used;
    for (int i = 0; i < 100; i++) {
        set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator");
        set(cfg, 0, "threads", "4", PL_FROM_DECORATOR, "decorator");
        pl_config_forget(cfg, 0, PL_FROM_DECORATOR);
    }
    assert_int_equal(cfg->inside->arena.used, used);
    pl_config_destroy(cfg);
}

TEST(a_variable_sets_a_key_in_any_case_and_with_either_dash) {
    struct pl_config *cfg =
        read_text("services: {my-chat: {run: s}, b: {run: t, route: {path: /b}}}", no_env);
    env(cfg, "PLIMSOLL__SERVICES__MY_CHAT__TRAFFIC__QUEUE__MAX_WAIT=3s");
    assert_int_equal(cfg->services[0].traffic_queue_max_wait_ms, 3000);
    is_from(cfg, 0, "traffic.queue.max_wait", PL_FROM_ENV,
            "PLIMSOLL__SERVICES__MY_CHAT__TRAFFIC__QUEUE__MAX_WAIT");
    env(cfg, "plimsoll__services__my-chat__start-timeout=3m");
    assert_int_equal(cfg->services[0].start_timeout_ms, 180000);
    env(cfg, "PLIMSOLL__DRAIN_DELAY=5s");
    assert_int_equal(cfg->drain_delay_ms, 5000);
    env(cfg, "PLIMSOLL__LOGS__ACCESS_SKIP=/a,/b");
    assert_int_equal(cfg->logs_access_skip.count, 2);
    env(cfg, "PLIMSOLL__LISTEN=[\"a:1\"]");
    assert_string_equal(cfg->listen.at[0].text, "a:1");
    env(cfg, "PLIMSOLL_CONFIG=x");
    env(cfg, "OTHER=x");
    env(cfg, "PLIMSOLL__");
    pl_config_destroy(cfg);
}

TEST(a_variable_with_an_unknown_path_or_a_wrong_value_is_an_error) {
    struct pl_config *cfg = read_text("services: {chat: {run: s}, b: {run: t, route: {path: /b}}}", no_env);
    env_refused(cfg, "PLIMSOLL__SERVICES__CHAT__MEMROY__MARGIN=20%",
                "PLIMSOLL__SERVICES__CHAT__MEMROY__MARGIN: unknown key 'services.chat.memroy.margin'",
                "did you mean 'memory.margin'?");
    env_refused(cfg, "PLIMSOLL__SERVICES__CHAR__THREADS=2",
                "PLIMSOLL__SERVICES__CHAR__THREADS: no service 'char'", "did you mean 'chat'?");
    env_refused(cfg, "PLIMSOLL__DRAIN_DELY=2s", "PLIMSOLL__DRAIN_DELY: unknown key 'drain_dely'",
                "did you mean 'drain_delay'?");
    env_refused(cfg, "PLIMSOLL__DRAIN_DELAY=2",
                "PLIMSOLL__DRAIN_DELAY: drain_delay: '2' is a duration without a unit",
                "write 2s if seconds are meant");
    env_refused(cfg, "PLIMSOLL__THREADS=2", "PLIMSOLL__THREADS: there are 2 services to set 'threads' of",
                "name one: services.chat.threads");
    env_refused(cfg, "PLIMSOLL__SERVICES=1", "PLIMSOLL__SERVICES: names no key",
                "keys of a service are services.NAME.KEY");
    env_refused(cfg, "PLIMSOLL__SERVICES__CHAT=1", "PLIMSOLL__SERVICES__CHAT: names no key",
                "keys of a service are services.NAME.KEY");
    env_refused(cfg, "PLIMSOLL__HTTP__PORT=1", "PLIMSOLL__HTTP__PORT: unknown key 'http.port'", "");
    env_refused(cfg, "PLIMSOLL__=1", "PLIMSOLL__: unknown key ''", "");
    pl_config_destroy(cfg);
}

TEST(links_that_kubernetes_makes_are_ignored_and_named) {
    static const char *const links[] = {
        "PLIMSOLL_PORT=tcp://10.0.0.1:3000",
        "PLIMSOLL_SERVICE_HOST=10.0.0.1",
        "PLIMSOLL_SERVICE_PORT=3000",
        "PLIMSOLL_SERVICE_PORT_HTTP=3000",
        "PLIMSOLL_PORT_3000_TCP=tcp://10.0.0.1:1",
        "PLIMSOLL_PORT_3000_TCP_PROTO=tcp",
        "PLIMSOLL_PORT_3000_TCP_ADDR=10.0.0.1",
        "PLIMSOLL__ADMIN_SERVICE_PORT=3001",
        "PLIMSOLL__X_PORT=tcp://[fd00::1]:3001",
        "BENTOML_PORT=tcp://10.0.0.7:3000",
    };
    enum { COUNT = sizeof links / sizeof links[0] };
    struct pl_config *cfg = with_chat();
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < COUNT; i++) env(cfg, links[i]);
    assert_int_equal(cfg->links.count, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_memory_equal(cfg->links.at[i], links[i], strlen(cfg->links.at[i]));
    assert_string_equal(cfg->listen.at[0].text, "0.0.0.0:3000");
    /* looks like one and is a key of ours, or does not look like one */
    env_refused(cfg, "PLIMSOLL__X_PORT=hello", "PLIMSOLL__X_PORT: unknown key 'x_port'", "");
    assert_int_equal(cfg->links.count, COUNT);
    pl_config_destroy(cfg);
}

TEST(bentoml_variables_set_host_port_and_timeout) {
    struct pl_config *cfg = with_chat();
    env(cfg, "BENTOML_HOST=127.0.0.1");
    env(cfg, "BENTOML_PORT=8080");
    env(cfg, "BENTOML_TIMEOUT=90");
    env(cfg, "BENTOML_HOME=/x");
    assert_string_equal(cfg->listen.at[0].text, "127.0.0.1:8080");
    is_from(cfg, PL_CFG_INSTANCE, "listen", PL_FROM_BENTOML_CONFIG, "BENTOML_PORT");
    assert_int_equal(cfg->services[0].traffic_timeout_ms, 90000);
    is_from(cfg, 0, "traffic.timeout", PL_FROM_BENTOML_CONFIG, "BENTOML_TIMEOUT");
    env_refused(cfg, "BENTOML_PORT=http", "BENTOML_PORT: http.port: cannot read 'http' as a whole number",
                "or the word none");
    pl_config_destroy(cfg);
}

TEST(host_and_port_change_the_first_listener_where_they_are_stronger) {
    struct pl_config *cfg = read_text("listen: ['127.0.0.1:4000', 'unix:/run/x']", no_env);
    set(cfg, PL_CFG_INSTANCE, "http.port", "5000", PL_FROM_BENTOML_CONFIG, "BENTOML_PORT");
    assert_string_equal(pl_config_text(cfg, PL_CFG_INSTANCE, "listen"),
                        "[\"127.0.0.1:4000\",\"unix:/run/x\"]");
    set(cfg, PL_CFG_INSTANCE, "http.port", "0", PL_FROM_FLAG, "--port");
    assert_string_equal(pl_config_text(cfg, PL_CFG_INSTANCE, "listen"), "127.0.0.1:0,unix:/run/x");
    is_from(cfg, PL_CFG_INSTANCE, "listen", PL_FROM_FLAG, "--port");
    set(cfg, PL_CFG_INSTANCE, "http.host", "::1", PL_FROM_FLAG, "--host");
    assert_string_equal(cfg->listen.at[0].text, "[::1]:0");
    assert_string_equal(cfg->listen.at[0].host, "::1");
    assert_int_equal(cfg->listen.count, 2);
    pl_config_destroy(cfg);

    cfg = pl_config_create(); /* flags first, file later */
    set(cfg, PL_CFG_INSTANCE, "http.port", "5000", PL_FROM_FLAG, "--port");
    assert_true(pl_config_read_yaml(cfg, FILE_NAME, "listen: 127.0.0.1:1", 19, no_env, &err));
    assert_string_equal(cfg->listen.at[0].text, "127.0.0.1:5000");
    pl_config_destroy(cfg);

    cfg = read_text("listen: unix:/run/x", no_env);
    set(cfg, PL_CFG_INSTANCE, "http.port", "5000", PL_FROM_FLAG, "--port");
    assert_string_equal(cfg->listen.at[0].text, "0.0.0.0:5000");
    assert_false(pl_config_set(cfg, PL_CFG_INSTANCE, "http.host", "a b", PL_FROM_FLAG, "--host", &err));
    assert_string_equal(err.msg, "--host: http.host: 'a b:5000' is not an address");
    assert_string_equal(cfg->listen.at[0].text, "0.0.0.0:5000"); /* as before */
    is_from(cfg, PL_CFG_INSTANCE, "http.host", PL_FROM_DEFAULT, "");
    pl_config_destroy(cfg);
}

TEST(a_path_of_one_service_needs_no_prefix) {
    struct pl_config *cfg = with_chat();
    static const char *const same[] = { "traffic.max_concurrency", "traffic.max-concurrency",
                                        "services.chat.traffic.max_concurrency",
                                        "services.chat.traffic.max-concurrency" };
    for (size_t i = 0; i < 4; i++) {
        char text[8];
        snprintf(text, sizeof text, "%zu", i + 1);
        if (!pl_config_set_path(cfg, same[i], text, PL_FROM_FLAG, "--x", &err)) fail_msg("%s", err.msg);
        assert_int_equal(cfg->services[0].traffic_max_concurrency, i + 1);
    }
    assert_true(
        pl_config_set_path(cfg, "listen", "a:1", PL_FROM_FLAG, "--listen", &err)); /* the instance's */
    assert_string_equal(cfg->listen.at[0].text, "a:1");
    assert_true(pl_config_set_path(cfg, "services.chat.listen", "b:1", PL_FROM_FLAG, "--x", &err));
    assert_string_equal(cfg->services[0].listen.text, "b:1");
    assert_false(pl_config_set_path(cfg, "wrokers", "1", PL_FROM_FLAG, "--wrokers", &err));
    assert_int_equal(err.code, PL_E_USAGE);
    assert_string_equal(err.msg, "--wrokers: unknown key 'wrokers'");
    assert_string_equal(err.hint, "did you mean 'workers'?");
    assert_false(pl_config_set_path(cfg, "workers", "0", PL_FROM_FLAG, "--workers", &err));
    assert_int_equal(err.code, PL_E_CONFIG);
    assert_string_equal(err.msg, "--workers: workers: '0' is outside 1 to 256");
    assert_false(pl_config_set_path(cfg, "services.chat", "0", PL_FROM_FLAG, "--services.chat", &err));
    assert_int_equal(err.code, PL_E_USAGE);
    pl_config_destroy(cfg);
    cfg = pl_config_create();
    assert_false(pl_config_set_path(cfg, "workers", "1", PL_FROM_FLAG, "--workers", &err));
    assert_string_equal(err.msg, "--workers: there is no service yet to set 'workers' of");
    assert_true(pl_config_knows("services.any.traffic.timeout", &err));
    assert_true(pl_config_knows("Drain-Delay", &err));
    assert_false(pl_config_knows("services.any.drain_delay", &err));
    assert_string_equal(err.hint, "it belongs to the whole instance, at the top of the file");
    assert_false(pl_config_knows("services.any", &err));
    pl_config_destroy(cfg);
}

TEST(a_target_is_a_service_named_after_its_class) {
    static const struct {
        const char *target, *id;
    } all[] = {
        { "service:Digits", "digits" },
        { "service:MyService", "myservice" },
        { "service.py:My_Service", "my-service" },
        { "dir/service.py:svc", "svc" },
        { "pkg.mod:svc", "svc" },
        { "digits:latest", "digits" },
        { "digits:qrk5y6xtdo4hqlg7", "digits" },
        { "digits:1.0", "digits" },
        { "digits", "digits" },
        { "examples/digits/", "digits" },
        { "service.py", "service" },
        { ".", "service" },
        { "..", "service" },
        { "/", "service" },
        { "a:B_", "b" },
        { "s:ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ",
          "abcdefghijklmnopqrstuvwxyzabcdefghijklmn" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pl_config *cfg = pl_config_create();
        if (!pl_config_add_target(cfg, all[i].target, NULL, true, &err)) fail_msg("%s", err.msg);
        assert_int_equal(cfg->service_count, 1);
        assert_string_equal(cfg->services[0].id, all[i].id);
        assert_string_equal(cfg->services[0].run, all[i].target);
        is_from(cfg, 0, "run", PL_FROM_FLAG, "command line");
        assert_true(pl_config_check(cfg, &err));
        pl_config_destroy(cfg);
    }
}

TEST(a_target_beside_a_file_is_the_only_one_started) {
    const char *file = "drain_delay: 3s\n"
                       "services:\n"
                       "  a: {run: s:A, threads: 2}\n"
                       "  b: {run: s:B, threads: 3, route: {path: /b}}\n"
                       "  c: {run: s:B, threads: 4, route: {path: /c}}\n";
    struct pl_config *cfg = read_text(file, no_env);
    assert_true(pl_config_add_target(cfg, "s:B", "b", false, &err));
    assert_int_equal(cfg->service_count, 1);
    assert_string_equal(cfg->services[0].id, "b");
    assert_int_equal(cfg->services[0].threads, 3);
    assert_int_equal(cfg->drain_delay_ms, 3000);
    assert_int_equal(cfg->not_started.count, 2);
    assert_string_equal(cfg->not_started.at[0], "a");
    assert_string_equal(cfg->not_started.at[1], "c");
    assert_int_equal(pl_config_find(cfg, "a"), SIZE_MAX);
    env(cfg, "PLIMSOLL__SERVICES__A__THREADS=9"); /* of one that is not started: no error */
    env(cfg, "PLIMSOLL__THREADS=8");
    assert_int_equal(cfg->services[0].threads, 8);
    pl_config_destroy(cfg);

    cfg = read_text(file, no_env);
    assert_true(pl_config_add_target(cfg, "x:New", NULL, false, &err));
    assert_string_equal(cfg->services[0].id, "new");
    assert_int_equal(cfg->services[0].threads, 1);
    assert_int_equal(cfg->not_started.count, 3);
    pl_config_destroy(cfg);

    cfg = read_text(file, no_env);
    assert_false(pl_config_add_target(cfg, "s:B", NULL, false, &err));
    assert_string_equal(err.msg, "'s:B' is run by services 'b' and 'c'");
    assert_string_equal(err.hint, "choose one with --name");
    pl_config_destroy(cfg);

    cfg = read_text(file, no_env);
    assert_false(pl_config_add_target(cfg, "other:A", NULL, false, &err));
    assert_string_equal(err.msg, "plimsoll.yaml:3:3: service 'a' runs 's:A', not 'other:A'");
    assert_int_equal(err.code, PL_E_USAGE);
    pl_config_destroy(cfg);
}

TEST(a_target_that_cannot_be_served_is_a_usage_error) {
    static const struct {
        const char *target, *message, *hint;
    } all[] = {
        { "org/model", "'org/model': no such file or folder",
          "did you mean: plimsoll serve -- vllm serve org/model" },
        { "http://localhost:8000/v1",
          "'http://localhost:8000/v1' has a path, which is not taken away or put before requests",
          "write http://HOST:PORT; route.path says which requests are passed on" },
        { "http://a:b@c:80", "'http://a:b@c:80' is not a server's address", "write http://HOST:PORT" },
        { "http://a:0", "'http://a:0' is not a server's address", "write http://HOST:PORT" },
        { "http://a:70000", "'http://a:70000' is not a server's address", "write http://HOST:PORT" },
        { "http://[::1", "'http://[::1' is not a server's address", "write http://HOST:PORT" },
        { "http://", "'http://' is not a server's address", "write http://HOST:PORT" },
        { "HTTPS://x", "'HTTPS://x': TLS towards a server is not in this version",
          "name its plain port, as in http://127.0.0.1:8000, or put a TLS client such as stunnel between" },
        { "models/chat.GGUF", "'models/chat.GGUF': no such file", "" },
        { "", "the target is empty", "" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct pl_config *cfg = pl_config_create();
        assert_false(pl_config_add_target(cfg, all[i].target, NULL, false, &err));
        assert_string_equal(err.msg, all[i].message);
        assert_string_equal(err.hint, all[i].hint);
        assert_int_equal(err.code, PL_E_USAGE);
        pl_config_destroy(cfg);
    }
    struct pl_config *cfg = pl_config_create();
    assert_true(pl_config_add_target(cfg, "org/model", NULL, true, &err)); /* a folder that is there */
    pl_config_destroy(cfg);
    cfg = pl_config_create();
    assert_false(pl_config_add_target(cfg, "s:C", "My Name", false, &err));
    assert_string_equal(err.msg, "--name: 'My Name' is not 1 to 40 letters a-z, digits and '-'");
    pl_config_destroy(cfg);
}

TEST(a_url_is_a_host_and_a_port) {
    static const struct {
        const char *url, *host;
        unsigned port;
    } all[] = {
        { "http://localhost:8000", "localhost", 8000 },
        { "http://10.0.0.7:80/", "10.0.0.7", 80 },
        { "HTTP://model_server.ns.svc", "model_server.ns.svc", 80 },
        { "http://[::1]:9", "::1", 9 },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char host[PL_CFG_HOST_BYTES];
        uint16_t port = 0;
        assert_true(pl_config_parse_url(all[i].url, host, &port, &err));
        assert_string_equal(host, all[i].host);
        assert_int_equal(port, all[i].port);
    }
    struct pl_config *cfg = pl_config_create();
    assert_true(pl_config_add_target(cfg, "http://localhost:8000", NULL, false, &err));
    assert_string_equal(cfg->services[0].id, "remote");
    assert_string_equal(cfg->services[0].url, "http://localhost:8000");
    assert_true(pl_config_check(cfg, &err));
    pl_config_destroy(cfg);
}

TEST(a_command_is_a_service_named_after_its_program) {
    const char *words[] = { "/opt/bin/My_Server.py", "--say", "a \"b\", c" };
    struct pl_strings command = { words, 3 };
    struct pl_config *cfg = pl_config_create();
    assert_true(pl_config_add_command(cfg, &command, NULL, &err));
    assert_string_equal(cfg->services[0].id, "my-server-py");
    assert_int_equal(cfg->services[0].command.count, 3);
    assert_string_equal(cfg->services[0].command.at[2], words[2]);
    assert_true(pl_config_check(cfg, &err));
    pl_config_destroy(cfg);

    static const char file[] = "services: {a: {command: [serve, --port, '{port}']}, b: {run: 's:B'}}\n";
    const char *same[] = { "serve", "--port", "{port}" };
    command = (struct pl_strings){ same, 3 };
    cfg = pl_config_create();
    assert_true(pl_config_read_yaml(cfg, "plimsoll.yaml", file, sizeof file - 1, no_env, &err));
    assert_true(pl_config_add_command(cfg, &command, NULL, &err));
    assert_int_equal(cfg->service_count, 1);
    assert_string_equal(cfg->services[0].id, "a");
    command.count = 0;
    assert_false(pl_config_add_command(cfg, &command, NULL, &err));
    assert_string_equal(err.msg, "serve --: the command is missing");
    pl_config_destroy(cfg);
}

TEST(what_a_service_brings_along_is_not_warned_of_for_being_of_a_later_version) {
    struct pl_config *cfg = with_chat();
    set(cfg, 0, "memory.margin", "20%", PL_FROM_DECORATOR, "decorator");
    assert_int_equal(cfg->warnings.count, 0);
    pl_config_destroy(cfg);
}

RUN(cmocka_unit_test(a_stronger_origin_is_never_overwritten_whatever_the_order),
    cmocka_unit_test(a_weaker_value_that_loses_is_checked_all_the_same),
    cmocka_unit_test(equal_origins_follow_each_other), cmocka_unit_test(origins_have_names),
    cmocka_unit_test(what_a_decorator_said_can_be_forgotten_and_told_anew),
    cmocka_unit_test(telling_the_same_again_and_again_takes_no_memory),
    cmocka_unit_test(a_variable_sets_a_key_in_any_case_and_with_either_dash),
    cmocka_unit_test(a_variable_with_an_unknown_path_or_a_wrong_value_is_an_error),
    cmocka_unit_test(links_that_kubernetes_makes_are_ignored_and_named),
    cmocka_unit_test(bentoml_variables_set_host_port_and_timeout),
    cmocka_unit_test(host_and_port_change_the_first_listener_where_they_are_stronger),
    cmocka_unit_test(a_path_of_one_service_needs_no_prefix),
    cmocka_unit_test(a_target_is_a_service_named_after_its_class),
    cmocka_unit_test(a_target_beside_a_file_is_the_only_one_started),
    cmocka_unit_test(a_target_that_cannot_be_served_is_a_usage_error),
    cmocka_unit_test(a_url_is_a_host_and_a_port),
    cmocka_unit_test(a_command_is_a_service_named_after_its_program),
    cmocka_unit_test(what_a_service_brings_along_is_not_warned_of_for_being_of_a_later_version))
