/* test_torture_load.c - no memory, at every place of a configuration's way: read, set, checked, handed to
 * main and read there. */
#include "torture.h"

#include "base/err.h"
#include "config/config.h"

static char *const env[] = { (char[]){ "NAME=value" },
                             (char[]){ "PLIMSOLL__SERVICES__CHAT__TRAFFIC__TIMEOUT=7s" },
                             (char[]){ "PLIMSOLL__LISTEN=127.0.0.1:0" }, NULL };

static const char text[] =
    "name: prod\nlisten: ['0.0.0.0:3000', 'unix:/run/x.sock']\nadmin: 127.0.0.1:3001\n"
    "tls: {certfile: c.pem, keyfile: k.pem, keyfile_password: env:SECRET}\nlogs: {access_skip: [/a, /b, "
    "/c]}\n"
    "limits: {connections: 100, buffered: 1GiB}\nx: &shared {memory: {margin: 20%}}\n"
    "services:\n"
    "  chat:\n    run: 'service:${NAME:-Chat}'\n    gpus: [0, GPU-1]\n    env: {A: '1', B: two words, C: "
    "'${NAME}'}\n"
    "    args: {size: 3, nested: text}\n    traffic: {timeout: 30s, max_concurrency: 4, queue: {max_wait: "
    "2s}}\n"
    "    warmup: {requests: [{path: /predict, body: {x: [1, 2]}, headers: {A: b}}, {path: /b, body: "
    "'@f.json'}]}\n"
    "  llm:\n    command: [vllm, serve, m, --port, '{port}']\n    engine_args: {max_model_len: 4096}\n"
    "    memory: {margin: 10%}\n";
/* `x` is none of our keys: the anchor is taken out where the whole must be accepted */
static const char *accepted(void) {
    static char out[sizeof text];
    const char *from = strstr(text, "x: &shared"), *to = strchr(from, '\n') + 1;
    snprintf(out, sizeof out, "%.*s%s", (int)(from - text), text, to);
    return out;
}

static struct pl_config *load(const char *yaml, struct pl_err *err) {
    struct pl_config *c = pl_config_create();
    if (c == NULL) {
        PL_FAIL(err, PL_E_NOMEM, "no configuration");
        return NULL;
    }
    if (pl_config_read_yaml(c, "f.yaml", yaml, strlen(yaml), env, err) &&
        pl_config_add_target(c, "service.py:Digits", NULL, true, err) && pl_config_read_env(c, env, err) &&
        pl_config_set_path(c, "services.chat.memory.margin", "25%", PL_FROM_FLAG,
                           "--services.chat.memory.margin", err) &&
        pl_config_set(c, 0, "threads", "3", PL_FROM_DECORATOR, "service.py", err) && pl_config_check(c, err))
        return c;
    pl_config_destroy(c);
    return NULL;
}

TEST(a_configuration_is_loaded_whole_or_refused_with_a_story) {
    char whole[17] = "", hash[17];
    const char *yaml = accepted();
    for (torture_begin(); torture_goes_on();) {
        struct pl_err err = { 0 };
        struct pl_config *c = load(yaml, &err);
        torture_ends();
        if (c == NULL) {
            torture_failed(&err);
            continue;
        }
        pl_config_hash(c, hash); /* nothing of it was lost on the way */
        if (whole[0] == '\0') memcpy(whole, hash, sizeof hash);
        assert_string_equal(hash, whole);
        pl_config_destroy(c);
    }
}

TEST(a_file_that_is_refused_is_refused_in_words) {
    for (torture_begin(); torture_goes_on();) {
        struct pl_err err = { 0 };
        struct pl_config *c = load(text, &err);
        torture_ends();
        assert_null(c);
        assert_true(err.code != PL_OK && err.msg[0] != '\0');
    }
}

TEST(what_main_is_handed_arrives_whole_or_not_at_all) {
    struct pl_err err = { 0 };
    struct pl_config *c = load(accepted(), &err);
    char whole[17], hash[17];
    if (c == NULL) fail_msg("%s", err.msg);
    pl_config_hash(c, whole);
    torture_begin();
    torture_spares_jansson(); /* a value that cannot be read is another version's, and left at its default */
    while (torture_goes_on()) {
        struct pl_buf json;
        struct pl_config *copy = NULL;
        err = (struct pl_err){ 0 };
        pl_buf_init(&json, 0);
        bool written = pl_config_to_json(c, &json);
        if (written) copy = pl_config_from_json(json.data, json.len, &err);
        torture_ends();
        if (!written) assert_true(torture_hit());
        if (written && copy == NULL) torture_failed(&err);
        if (copy != NULL) {
            pl_config_hash(copy, hash);
            assert_string_equal(hash, whole);
        }
        pl_config_destroy(copy);
        pl_buf_free(&json);
    }
    pl_config_destroy(c);
}

TEST(it_is_shown_whole_or_not_at_all) {
    struct pl_err err = { 0 };
    struct pl_config *c = load(accepted(), &err);
    size_t whole[2] = { 0 };
    if (c == NULL) fail_msg("%s", err.msg);
    for (torture_begin(); torture_goes_on();) {
        struct pl_buf page[2];
        bool shown[2];
        for (int json = 0; json < 2; json++) {
            pl_buf_init(&page[json], 0);
            shown[json] = pl_config_show(c, NULL, json, &page[json]);
        }
        torture_ends();
        for (int json = 0; json < 2; json++) {
            if (!shown[json]) assert_true(torture_hit());
            if (whole[json] == 0) whole[json] = page[json].len;
            if (shown[json]) assert_int_equal(page[json].len, whole[json]);
            pl_buf_free(&page[json]);
        }
    }
    pl_config_destroy(c);
}

RUN(cmocka_unit_test(a_configuration_is_loaded_whole_or_refused_with_a_story),
    cmocka_unit_test(a_file_that_is_refused_is_refused_in_words),
    cmocka_unit_test(what_main_is_handed_arrives_whole_or_not_at_all),
    cmocka_unit_test(it_is_shown_whole_or_not_at_all))
