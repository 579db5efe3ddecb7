/* config show, the reference page, the editors' schema. */
#include "config_support.h"

#include <jansson.h>

static struct pl_buf page;

static const char *shown(const struct pl_config *cfg, const char *service, bool json) {
    pl_buf_free(&page);
    pl_buf_init(&page, 0);
    assert_true(pl_config_show(cfg, service, json, &page));
    return pl_buf_text(&page);
}

static struct pl_config *sample(void) {
    struct pl_err err;
    struct pl_config *cfg = read_text("services:\n"
                                      "  chat:\n"
                                      "    run: s:C\n"
                                      "    env: {HF_TOKEN: hunter2}\n"
                                      "    memory: {margin: 12.5%}\n"
                                      "    cors: {allow_origins: [a, b]}\n"
                                      "    args: {t: \"two\\nlines\"}\n",
                                      no_env);
    assert_true(pl_config_set(cfg, 0, "traffic.timeout", "30s", PL_FROM_DECORATOR, "decorator", &err));
    assert_true(pl_config_set(cfg, PL_CFG_INSTANCE, "http.port", "4000", PL_FROM_FLAG, "--port", &err));
    return cfg;
}

TEST(show_prints_one_line_a_key_with_value_unit_origin_and_place) {
    struct pl_config *cfg = sample();
    const char *text = shown(cfg, NULL, false);
    static const char *const lines[] = {
        "listen                                        0.0.0.0:4000  -  flag  --port\n",
        "services.chat.traffic.timeout                 30s  -  decorator  decorator\n",
        "services.chat.threads                         1  threads  default  -\n",
        "services.chat.run                             s:C  -  file  plimsoll.yaml:3:10\n",
        "services.chat.memory.margin                   12.5%  -  file  plimsoll.yaml:5:22\n",
        "services.chat.env                             HF_TOKEN=(set)  -  file  plimsoll.yaml:4:10\n",
        "run_dir                                       -  -  default  -\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (strstr(text, lines[i]) == NULL) fail_msg("no line: %s in\n%s", lines[i], text);
    assert_non_null(strstr(text, " {\"t\":\"two\\nlines\"}  -  file  plimsoll.yaml:7:11\n"));
    assert_null(strstr(text, "hunter2"));
    assert_null(strstr(text, "plan.expect")); /* does nothing yet, and nobody set it */
    assert_null(strstr(text, "http.port"));
    pl_config_destroy(cfg);
}

TEST(show_can_be_asked_for_one_service) {
    struct pl_config *cfg = sample();
    const char *text = shown(cfg, "chat", false);
    assert_null(strstr(text, "\nlisten"));
    assert_non_null(strstr(text, "services.chat.workers"));
    assert_false(pl_config_show(cfg, "nobody", false, &page));
    pl_config_destroy(cfg);
}

static const json_t *value_of(const json_t *root, const char *key) {
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(root, "values"), i, value) {
        if (strcmp(json_string_value(json_object_get(value, "key")), key) == 0) return value;
    }
    fail_msg("%s is not there", key);
    return NULL;
}

TEST(show_as_json_has_numbers_with_units_and_no_secrets) {
    struct pl_config *cfg = sample();
    const char *text = shown(cfg, NULL, true);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "v")), 1);
    assert_string_equal(json_string_value(json_object_get(root, "kind")), "config");
    const json_t *timeout = value_of(root, "services.chat.traffic.timeout");
    assert_int_equal(json_integer_value(json_object_get(timeout, "value")), 30000);
    assert_string_equal(json_string_value(json_object_get(timeout, "unit")), "ms");
    assert_string_equal(json_string_value(json_object_get(timeout, "text")), "30s");
    assert_string_equal(json_string_value(json_object_get(timeout, "origin")), "decorator");
    assert_true(json_real_value(json_object_get(value_of(root, "services.chat.memory.margin"), "value")) ==
                12.5);
    assert_true(json_is_true(json_object_get(value_of(root, "services.chat.required"), "value")));
    assert_int_equal(
        json_array_size(json_object_get(value_of(root, "services.chat.cors.allow_origins"), "value")), 2);
    assert_string_equal(json_string_value(json_object_get(value_of(root, "drain_timeout"), "value")), "auto");
    assert_null(json_object_get(value_of(root, "run_dir"), "value")); /* not known: absent */
    assert_null(strstr(text, "hunter2"));
    json_decref(root);
    pl_config_destroy(cfg);
}

TEST(show_fails_when_the_page_is_full) {
    struct pl_config *cfg = sample();
    struct pl_buf small;
    pl_buf_init(&small, 300);
    assert_false(pl_config_show(cfg, NULL, false, &small));
    small.len = 0;
    assert_false(pl_config_show(cfg, NULL, true, &small));
    pl_buf_free(&small);
    pl_config_destroy(cfg);
}

TEST(the_reference_has_a_row_for_every_key) {
    pl_buf_free(&page);
    pl_buf_init(&page, 0);
    assert_true(pl_config_write_reference(&page));
    const char *text = pl_buf_text(&page);
    for (int scope = 0; scope < 2; scope++) {
        struct pl_options all = pl_options_of((enum pl_scope)scope);
        for (size_t i = 0; i < all.count; i++) {
            char row[100];
            snprintf(row, sizeof row, "\n| `%s` | ", all.at[i].key);
            if ((strstr(text, row) != NULL) == (all.at[i].when == PL_WHEN_INNER))
                fail_msg("%s", all.at[i].key);
            if (strstr(text, all.at[i].help) == NULL && all.at[i].when != PL_WHEN_INNER)
                fail_msg("%s", all.at[i].help);
        }
    }
    assert_non_null(strstr(text, "| `traffic.timeout` | a duration, 1ms to 7d | `60s` | at once | "));
    assert_non_null(strstr(text, "| `mode` | `observe` `guard` `enforce` | `guard` | at once | "));
    assert_non_null(
        strstr(text, "| `workers` | a whole number, 1 to 256, or `cpu_count` | `1` | new generation | "));
    assert_non_null(strstr(text, "| `run_dir` | a path | not set | restart | "));
}

static const json_t *at_path(const json_t *node, const char *key) {
    char part[64];
    for (; node != NULL && *key != '\0'; key += strcspn(key, ".")) {
        key += *key == '.';
        snprintf(part, sizeof part, "%.*s", (int)strcspn(key, "."), key);
        node = json_object_get(json_object_get(node, "properties"), part);
    }
    return node;
}

/* Every "$ref" leads somewhere. */
static void check_references(const json_t *node, const json_t *defs) {
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_array(node)) json_array_foreach(node, i, value) check_references(value, defs);
    if (!json_is_object(node)) return;
    json_object_foreach((json_t *)(uintptr_t)node, key, value) {
        const char *prefix = "#/$defs/";
        if (strcmp(key, "$ref") == 0) {
            assert_memory_equal(json_string_value(value), prefix, strlen(prefix));
            assert_non_null(json_object_get(defs, json_string_value(value) + strlen(prefix)));
        }
        check_references(value, defs);
    }
}

TEST(the_schema_has_every_key_at_its_place) {
    pl_buf_free(&page);
    pl_buf_init(&page, 0);
    assert_true(pl_config_write_schema(&page));
    json_t *root = json_loadb(page.data, page.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    const json_t *services = json_object_get(json_object_get(root, "properties"), "services");
    const json_t *service =
        json_object_get(json_object_get(services, "patternProperties"), "^[a-z0-9-]{1,40}$");
    assert_non_null(service);
    for (int scope = 0; scope < 2; scope++) {
        struct pl_options all = pl_options_of((enum pl_scope)scope);
        for (size_t i = 0; i < all.count; i++) {
            const json_t *node = at_path(scope == PL_SCOPE_SERVICE ? service : root, all.at[i].key);
            if ((node != NULL) == (all.at[i].when == PL_WHEN_INNER)) fail_msg("%s", all.at[i].key);
            if (node == NULL) continue;
            assert_string_equal(json_string_value(json_object_get(node, "description")), all.at[i].help);
            assert_true(json_array_size(json_object_get(node, "anyOf")) >= 2);
        }
    }
    assert_non_null(json_object_get(root, "$defs"));
    check_references(root, json_object_get(root, "$defs"));
    json_decref(root);
}

static int free_page(void **state) {
    (void)state;
    pl_buf_free(&page);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(show_prints_one_line_a_key_with_value_unit_origin_and_place),
        cmocka_unit_test(show_can_be_asked_for_one_service),
        cmocka_unit_test(show_as_json_has_numbers_with_units_and_no_secrets),
        cmocka_unit_test(show_fails_when_the_page_is_full),
        cmocka_unit_test(the_reference_has_a_row_for_every_key),
        cmocka_unit_test(the_schema_has_every_key_at_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, free_page);
}
