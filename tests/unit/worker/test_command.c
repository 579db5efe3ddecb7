/* Commands: which engine it is, where it will listen, and the words that are executed in the end. */
#include <string.h>

#include "command.h"
#include "unit.h"
#include "worker/engine.h"
#include "worker/recipe.h"

static void set(struct pl_config *c, const char *key, const char *text) {
    if (!pl_config_set(c, 0, key, text, PL_FROM_FLAG, "here", &err)) fail_msg("%s", err.msg);
}

static char joined[2048];
static struct pl_arena arena;
static struct pl_recipe recipe;
static void cook(struct pl_config *c, const struct pl_recipe_facts *f) {
    char *none[] = { NULL };
    pl_arena_free(&arena);
    pl_arena_init(&arena, (size_t)1 << 20);
    if (!pl_recipe_command(c, &c->services[0], f, none, &arena, &recipe, &err)) fail_msg("%s", err.msg);
    joined[0] = '\0';
    for (uint32_t i = 0; i < recipe.argc; i++) {
        if (i > 0) strcat(joined, " ");
        strcat(joined, recipe.argv[i]);
    }
    assert_null(recipe.argv[recipe.argc]);
    assert_null(recipe.envp[recipe.envc]);
}
static const char *variable(const char *name) {
    size_t n = strlen(name);
    for (uint32_t i = 0; i < recipe.envc; i++)
        if (strncmp(recipe.envp[i], name, n) == 0 && recipe.envp[i][n] == '=') return recipe.envp[i] + n + 1;
    return NULL;
}
static const struct pl_recipe_facts facts = { .folder = "/srv",
                                              .prom_dir = "/run/p/prom/1",
                                              .socket = "/run/p/w/1-1",
                                              .port = 10001,
                                              .gpus = "2,3",
                                              .worker = 1 };

TEST(engines_are_known_by_their_first_words) {
    static const struct {
        const char *command, *engine;
    } rows[] = {
        { "vllm serve M", "vllm" },
        { "/venv/bin/vllm serve M --port 8000", "vllm" },
        { "vllm bench", "generic" },
        { "vllm", "generic" },
        { "python -m vllm.entrypoints.openai.api_server --model M", "vllm" },
        { "/usr/bin/python3.11 -m sglang.launch_server --model M", "sglang" },
        { "sglang serve M", "sglang" },
        { "llama-server -m a.gguf", "llama-server" },
        { "text-generation-launcher --model-id M", "tgi" },
        { "bentoml serve service:C", "bentoml" },
        { "bentoml build", "generic" },
        { "ollama serve", "ollama" },
        { "python3 -m bentoml serve .", "bentoml" },
        { "python3 server.py", "generic" },
        { "pythonista -m bentoml serve", "generic" },
        { "xvllm serve", "generic" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_config *c = with(rows[i].command);
        if (strcmp(pl_engine_name(pl_engine_of(&c->services[0])), rows[i].engine) != 0)
            fail_msg("%s", rows[i].command);
        assert_int_equal(pl_kind_of(&c->services[0]), PL_KIND_COMMAND);
        pl_config_destroy(c);
    }
    struct pl_config *c = with("./run.sh --port {port}"); /* a wrapper says what it starts */
    set(c, "engine", "vllm");
    assert_string_equal(pl_engine_name(pl_engine_of(&c->services[0])), "vllm");
    pl_config_destroy(c);
}

TEST(the_words_that_are_executed) {
    static const struct {
        const char *command, *engine_args, *want;
    } rows[] = {
        { "serve --port {port}", "", "serve --port 10001" },
        { "serve --at unix:{socket} --gpus={gpus}", "", "serve --at unix:/run/p/w/1-1 --gpus=2,3" },
        { "serve {port}{port} x{port}", "", "serve 1000110001 x10001" },
        { "serve {Port} {port}", "", "serve {Port} 10001" },
        { "vllm serve M", "",
          "vllm serve M --uds /run/p/w/1-1 --shutdown-timeout 30 --enable-server-load-tracking" },
        { "vllm serve M --host 0.0.0.0 --port 8000 --x", "",
          "vllm serve M --x --uds /run/p/w/1-1 --shutdown-timeout 30 --enable-server-load-tracking" },
        { "vllm serve M --port=8000 --portal 1", "",
          "vllm serve M --portal 1 --uds /run/p/w/1-1 --shutdown-timeout 30 --enable-server-load-tracking" },
        { "vllm serve M --uds {socket} --shutdown-timeout 60", "",
          "vllm serve M --uds /run/p/w/1-1 --shutdown-timeout 60 --enable-server-load-tracking" },
        { "vllm serve M --port {port} --enable-server-load-tracking", "",
          "vllm serve M --port 10001 --enable-server-load-tracking --host 127.0.0.1 --shutdown-timeout 30" },
        { "vllm serve M",
          "{\"shutdown_timeout\": 90, \"enforce_eager\": true, \"enable_server_load_tracking\": false}",
          "vllm serve M --uds /run/p/w/1-1 --shutdown-timeout 90 --enforce-eager" },
        { "vllm serve M", "{\"max_model_len\": 4096}",
          "vllm serve M --uds /run/p/w/1-1 --max-model-len 4096 --shutdown-timeout 30 "
          "--enable-server-load-tracking" },
        { "bentoml serve s:C -p 3000", "", "bentoml serve s:C --host 127.0.0.1 --port 10001" },
        { "bentoml serve s:C --port {port}", "", "bentoml serve s:C --port 10001 --host 127.0.0.1" },
        { "bentoml serve s:C --port {port} --host ::1", "", "bentoml serve s:C --port 10001 --host ::1" },
        { "text-generation-launcher --port", "",
          "text-generation-launcher --hostname 127.0.0.1 --port 10001" },
        { "llama-server -m a.gguf", "", "llama-server -m a.gguf --host 127.0.0.1 --port 10001 --metrics" },
        { "sglang serve M", "", "sglang serve M --host 127.0.0.1 --port 10001 --enable-metrics" },
        { "ollama serve", "", "ollama serve" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_config *c = with(rows[i].command);
        if (rows[i].engine_args[0] != '\0') set(c, "engine_args", rows[i].engine_args);
        assert_true(pl_command_check(&c->services[0], "here", &err));
        cook(c, &facts);
        assert_string_equal(joined, rows[i].want);
        pl_config_destroy(c);
    }
}

TEST(what_stands_in_a_value_that_was_filled_in_is_not_looked_at_again) {
    struct pl_config *c = with("serve --a {socket}");
    struct pl_recipe_facts f = facts;
    f.socket = "/run/{port}/{socket}";
    cook(c, &f);
    assert_non_null(strstr(joined, "--a /run/"));
    pl_config_destroy(c);
}

TEST(a_command_that_nobody_could_find_is_refused_with_the_remedy) {
    static const struct {
        const char *command, *worker_port, *workers, *message, *hint;
    } rows[] = {
        { "/opt/serve --port 8000", "", "1",
          "here: serve is a program that Plimsoll does not know how to tell where to listen",
          "write {port} or {socket} where it takes its port or socket, as in --port {port}; or say "
          "--worker-port N "
          "if it always listens on that one" },
        { "serve {socket} {port}", "", "1", "here: the command of service c has {socket} as well as {port}",
          NULL },
        { "serve", "8000", "2", "here: workers of service c cannot all listen on port 8000",
          "write {port} in the command, so that each worker gets one of its own" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_config *c = with(rows[i].command);
        set(c, "workers", rows[i].workers);
        if (rows[i].worker_port[0] != '\0') set(c, "worker_port", rows[i].worker_port);
        assert_false(pl_command_check(&c->services[0], "here", &err));
        assert_string_equal(err.msg, rows[i].message);
        if (rows[i].hint != NULL) assert_string_equal(err.hint, rows[i].hint);
        pl_config_destroy(c);
    }
    struct pl_config *c = with("serve");
    set(c, "worker_port", "8000");
    assert_true(pl_command_check(&c->services[0], "here", &err));
    assert_int_equal(pl_place_of(&c->services[0]), PL_PLACE_FIXED);
    set(c, "command", "[]");
    assert_false(pl_command_check(&c->services[0], "here", &err));
    assert_string_equal(err.msg, "here: the command of service c is empty");
    pl_config_destroy(c);
}

TEST(a_port_that_is_replaced_is_named) {
    static const struct {
        const char *command, *flag;
    } rows[] = { { "vllm serve M", NULL },
                 { "vllm serve M --port 1", "--port" },
                 { "vllm serve M --port=1", "--port" },
                 { "bentoml serve s:C -p 1", "-p" },
                 { "bentoml serve s:C -p {port}", NULL },
                 { "other --port 1", NULL } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct pl_config *c = with(rows[i].command);
        const char *flag = pl_command_own_port(&c->services[0]);
        assert_true(flag == rows[i].flag || (flag != NULL && strcmp(flag, rows[i].flag) == 0));
        pl_config_destroy(c);
    }
}

TEST(what_is_executed_is_told_without_secrets) {
    char text[200];
    struct pl_config *c = with("vllm serve M --api-key sk-1 --hf-token=hf_2 --max-num-batched-tokens 5 --x");
    set(c, "engine_args", "{\"chat_template\": \"{{ it's }}\", \"ssl_keyfile_password\": \"p\"}");
    cook(c, &facts);
    pl_recipe_say(&recipe, text, sizeof text);
    assert_string_equal(text,
                        "vllm serve M --api-key (set) --hf-token=(set) --max-num-batched-tokens 5 --x --uds "
                        "/run/p/w/1-1 --chat-template '{{ it'\\''s }}' --ssl-keyfile-password (set) "
                        "--shutdown-timeout 30 --enable-server-load");
    pl_config_destroy(c);
}

TEST(an_engine_without_flags_is_told_by_its_variable) {
    struct pl_config *c = with("/usr/local/bin/ollama serve");
    set(c, "env",
        "{\"OLLAMA_HOST\": \"0.0.0.0:11434\"}"); /* a worker that others can reach is not admitted to */
    assert_true(pl_command_check(&c->services[0], "here", &err));
    assert_int_equal(pl_place_of(&c->services[0]), PL_PLACE_VARIABLE);
    cook(c, &facts);
    assert_string_equal(variable("OLLAMA_HOST"), "127.0.0.1:10001");
    pl_config_destroy(c);
}

TEST(an_engine_brings_settings_that_a_file_beats) {
    struct pl_config *c = with("vllm serve M");
    assert_true(pl_config_set(c, 0, "traffic.timeout", "30s", PL_FROM_FILE, "here", &err));
    assert_true(pl_engine_presets(c, 0, &err));
    assert_int_equal(c->services[0].traffic_timeout_ms, 30000);
    assert_int_equal(c->services[0].replace_drain_ms, 600000);
    assert_string_equal(pl_ready_path(c, 0, 0), "/health");
    assert_int_equal(c->metrics_refresh_ms, 250);
    assert_int_equal(pl_config_origin(c, 0, "replace.drain", NULL), PL_FROM_PRESET);
    assert_true(pl_engine_of(&c->services[0])->llm);
    pl_config_destroy(c);

    c = with("vllm serve M");
    assert_true(pl_engine_presets(c, 0, &err));
    assert_int_equal(c->services[0].traffic_timeout_ms, 300000);
    pl_config_destroy(c);

    c = with("serve {port}");
    assert_true(pl_engine_presets(c, 0, &err));
    assert_int_equal(c->services[0].traffic_timeout_ms, 60000);
    assert_int_equal(pl_ready_paths(c, 0), 2); /* the usual places, in turn */
    assert_string_equal(pl_ready_path(c, 0, 0), "/readyz");
    assert_string_equal(pl_ready_path(c, 0, 1), "/health");
    assert_string_equal(pl_ready_path(c, 0, 2), "/readyz");
    set(c, "probe.ready_path", "/up");
    assert_int_equal(pl_ready_paths(c, 0), 1);
    assert_string_equal(pl_ready_path(c, 0, 5), "/up");
    pl_config_destroy(c);

    c = pl_config_create();
    assert_true(pl_config_add_target(c, "s:C", "c", false, &err));
    assert_true(pl_engine_presets(c, 0, &err));
    assert_string_equal(pl_ready_path(c, 0, 1), "/readyz"); /* BentoML's own */
    pl_config_destroy(c);
}

TEST(the_environment_of_a_command) {
    struct pl_config *c = with("bentoml serve s:C");
    set(c, "env", "{\"WHERE\": \"127.0.0.1:{port}\"}");
    cook(c, &facts);
    assert_string_equal(variable("BENTOML_CONTAINERIZED"), "true");
    assert_string_equal(variable("WHERE"), "127.0.0.1:10001");
    assert_string_equal(variable("CUDA_VISIBLE_DEVICES"), "2,3");
    assert_string_equal(variable("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    assert_string_equal(variable("PROMETHEUS_MULTIPROC_DIR"), "/run/p/prom/1");
    assert_string_equal(variable("PLIMSOLL_WORKER"), "1");
    assert_string_equal(variable("PLIMSOLL_PAGE_FD"), "4");
    assert_null(variable("PLIMSOLL_CONTROL_FD"));
    assert_null(variable("PYTHONPATH"));
    assert_null(variable("PLIMSOLL_AGENTS"));
    assert_null(variable("OLLAMA_HOST"));
    const struct pl_recipe_facts watched = { .folder = "/srv",
                                             .prom_dir = "/run/p/prom/1",
                                             .port = 1,
                                             .python_path = "/usr/share/plimsoll/python-1",
                                             .agents = "/run/p/agents.sock" };
    cook(c, &watched);
    assert_string_equal(variable("PYTHONPATH"), "/usr/share/plimsoll/python-1");
    assert_string_equal(variable("PLIMSOLL_AGENTS"), "/run/p/agents.sock");
    pl_config_destroy(c);

    c = with("llama-server -m a.gguf");
    cook(c, &facts);
    assert_string_equal(variable("OMP_WAIT_POLICY"), "passive");
    assert_string_equal(variable("GOMP_SPINCOUNT"), "0");
    pl_config_destroy(c);

    c = with("vllm serve M");
    cook(c, &facts);
    assert_null(variable("OMP_WAIT_POLICY"));
    assert_string_equal(variable("VLLM_NO_USAGE_STATS"), "1");
    assert_null(variable("PROMETHEUS_MULTIPROC_DIR")); /* vLLM has a folder of its own when it needs one */
    assert_null(variable("BENTOML_CONTAINERIZED"));
    set(c, "env", "{\"PLIMSOLL_X\": \"1\"}");
    char *none[] = { NULL };
    assert_false(pl_recipe_command(c, &c->services[0], &facts, none, &arena, &recipe, &err));
    pl_config_destroy(c);
}

TEST(a_legacy_service_is_bentomls_own_server) {
    struct pl_config *c = pl_config_create();
    struct pl_recipe_facts f = facts;
    assert_true(pl_config_add_target(c, "service:svc", "c", false, &err));
    set(c, "args", "{\"a\": \"1\"}");
    f.legacy_ident = "service:svc";
    f.python = "/venv/bin/python";
    f.python_path = "/usr/share/plimsoll/python-1";
    cook(c, &f);
    assert_string_equal(joined,
                        "/venv/bin/python -m plimsoll.whole serve service:svc --host 127.0.0.1 --port 10001 "
                        "--arg a=1");
    assert_string_equal(variable("PYTHONPATH"), "/usr/share/plimsoll/python-1");
    assert_string_equal(variable("BENTOML_CONTAINERIZED"), "true");
    assert_string_equal(variable("PROMETHEUS_MULTIPROC_DIR"), "/run/p/prom/1");
    f.python = NULL;
    char *none[] = { NULL };
    assert_false(pl_recipe_command(c, &c->services[0], &f, none, &arena, &recipe, &err));
    pl_config_destroy(c);
}

TEST(every_length_of_arena_fails_cleanly_or_cooks) {
    struct pl_config *c = with("vllm serve M --port 1");
    char *none[] = { NULL };
    bool cooked = false;
    for (size_t cap = 1; cap < 1 << 14; cap += 97) {
        struct pl_arena small;
        pl_arena_init(&small, cap);
        if (pl_recipe_command(c, &c->services[0], &facts, none, &small, &recipe, &err))
            cooked = true;
        else
            assert_int_equal(err.code, PL_E_NOMEM);
        pl_arena_free(&small);
    }
    assert_true(cooked);
    pl_config_destroy(c);
    pl_arena_free(&arena);
}

RUN(cmocka_unit_test(engines_are_known_by_their_first_words), cmocka_unit_test(the_words_that_are_executed),
    cmocka_unit_test(what_stands_in_a_value_that_was_filled_in_is_not_looked_at_again),
    cmocka_unit_test(a_command_that_nobody_could_find_is_refused_with_the_remedy),
    cmocka_unit_test(a_port_that_is_replaced_is_named),
    cmocka_unit_test(what_is_executed_is_told_without_secrets),
    cmocka_unit_test(an_engine_without_flags_is_told_by_its_variable),
    cmocka_unit_test(an_engine_brings_settings_that_a_file_beats),
    cmocka_unit_test(the_environment_of_a_command), cmocka_unit_test(a_legacy_service_is_bentomls_own_server),
    cmocka_unit_test(every_length_of_arena_fails_cleanly_or_cooks))
