/* The table itself: what every line of schema.def must keep. */
#include "config_support.h"

#include <strings.h>

#include "config/value.h"

static const enum pl_scope scopes[] = { PL_SCOPE_INSTANCE, PL_SCOPE_SERVICE };

#define EACH_OPTION(o, scope)                                                                          \
    for (size_t si_ = 0; si_ < 2; si_++)                                                               \
        for (size_t oi_ = 0; oi_ < pl_options_of(scopes[si_]).count; oi_++)                            \
            for (const struct pl_option *o = &pl_options_of(scopes[si_]).at[oi_]; o != NULL; o = NULL) \
                for (int scope = (int)scopes[si_], once_ = 1; once_ == 1; once_ = 0)

TEST(no_part_of_a_key_is_a_boolean_or_null_of_yaml) {
    static const char *const taken[] = { "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~" };
    EACH_OPTION(o, scope) {
        (void)scope;
        for (const char *s = o->key; *s != '\0'; s += strcspn(s, ".")) {
            char part[64];
            s += *s == '.';
            snprintf(part, sizeof part, "%.*s", (int)strcspn(s, "."), s);
            for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
                if (strcasecmp(part, taken[i]) == 0) fail_msg("%s", o->key);
        }
    }
}

TEST(keys_are_lower_case_words_and_unlike_each_other) {
    EACH_OPTION(o, scope) {
        assert_int_equal(strspn(o->key, "abcdefghijklmnopqrstuvwxyz0123456789_."), strlen(o->key));
        assert_null(strstr(o->key, "__")); /* separates the parts of variables */
        assert_ptr_equal(pl_option_find((enum pl_scope)scope, o->key), o);
        assert_ptr_equal(pl_option_find_loose((enum pl_scope)scope, o->key), o);
        assert_false(pl_option_section((enum pl_scope)scope, o->key)); /* never a value and a section */
    }
}

TEST(only_listen_is_a_key_of_both_trees) {
    struct pl_options all = pl_options_of(PL_SCOPE_INSTANCE);
    for (size_t i = 0; i < all.count; i++)
        if (pl_option_find(PL_SCOPE_SERVICE, all.at[i].key) != NULL)
            assert_string_equal(all.at[i].key, "listen");
}

TEST(every_key_is_explained_in_a_sentence) {
    EACH_OPTION(o, scope) {
        (void)scope;
        if (strlen(o->help) < 10 || o->help[strlen(o->help) - 1] != '.') fail_msg("%s: %s", o->key, o->help);
        assert_null(strchr(o->help, '|')); /* would end a cell of the reference page */
    }
}

TEST(every_default_can_be_read_and_lies_in_its_range) {
    struct pl_arena arena;
    struct pl_err err;
    union {
        int64_t align;
        char room[128];
    } member;
    pl_arena_init(&arena, 0);
    EACH_OPTION(o, scope) {
        (void)scope;
        if (o->def[0] != '\0' && !pl_value_parse(o, o->def, &arena, &member, &err))
            fail_msg("%s: %s", o->key, err.msg);
    }
    pl_arena_free(&arena);
}

TEST(numbers_have_a_range_and_words_have_lists) {
    EACH_OPTION(o, scope) {
        (void)scope;
        bool number = o->type == PL_OPTION_INT || o->type == PL_OPTION_BYTES ||
                      o->type == PL_OPTION_DURATION || o->type == PL_OPTION_SHARE ||
                      o->type == PL_OPTION_STATUS;
        if (number && (o->lo < 0 || o->lo > o->hi || o->hi == 0)) fail_msg("%s has no range", o->key);
        if ((o->type == PL_OPTION_ENUM) != (o->words != NULL)) fail_msg("%s has no words", o->key);
        if (o->type == PL_OPTION_DURATION) assert_string_equal(o->unit, "ms");
    }
}

TEST(a_new_configuration_holds_the_defaults) {
    struct pl_config *cfg = with_chat();
    const struct pl_service_config *s = &cfg->services[0];
    assert_int_equal(cfg->version, 1);
    assert_string_equal(cfg->name, "default");
    assert_string_equal(cfg->listen.at[0].text, "0.0.0.0:3000");
    assert_string_equal(cfg->admin.text, "127.0.0.1:3001");
    assert_null(cfg->run_dir);
    assert_int_equal(cfg->failed_exit_ms, 60000);
    assert_int_equal(cfg->drain_timeout_ms, PL_CFG_AUTO);
    assert_int_equal(cfg->limits_request_line_bytes, 8192);
    assert_int_equal(cfg->logs_access_skip.count, 4);
    assert_true(cfg->logs_access);
    assert_int_equal(cfg->logs_level, PL_CFG_LOGS_LEVEL_INFO);
    assert_int_equal(cfg->main_hang_after_ms, 10000);
    assert_int_equal(s->mode, PL_CFG_MODE_GUARD);
    assert_int_equal(s->workers, 1);
    assert_int_equal(s->threads, 1);
    assert_true(s->gpus.all);
    assert_string_equal(s->route_path, "/");
    assert_null(s->route_host);
    assert_int_equal(s->traffic_timeout_ms, 60000);
    assert_int_equal(s->traffic_max_stream_ms, PL_CFG_NONE);
    assert_int_equal(s->traffic_max_concurrency, PL_CFG_NONE);
    assert_int_equal(s->traffic_queue_max_requests, 256);
    assert_int_equal(s->traffic_queue_max_wait_ms, 10000);
    assert_int_equal(s->limits_body_bytes, 100 << 20);
    assert_int_equal(s->limits_replay_bytes, 8 << 20);
    assert_true(s->warmup_until_flat);
    assert_int_equal(s->warmup_requests.count, 0);
    assert_int_equal(s->backoff_attempts, 5);
    assert_string_equal(s->metrics_namespace, "bentoml_service");
    assert_int_equal(s->replace_hold_ms, PL_CFG_AUTO);
    pl_config_destroy(cfg);
}

TEST(every_key_that_does_nothing_yet_warns_and_is_never_an_error) {
    EACH_OPTION(o, scope) {
        struct pl_config *cfg = with_chat();
        struct pl_err err;
        const char *text = o->def[0] != '\0' ? o->def : o->type == PL_OPTION_MAP ? "a=1" : "one";
        char warning[160];
        snprintf(warning, sizeof warning, "--flag: '%s' has no effect in this version", o->key);
        size_t service = scope == PL_SCOPE_INSTANCE ? PL_CFG_INSTANCE : 0;
        if (o->when == PL_WHEN_LATER) {
            if (!pl_config_set(cfg, service, o->key, text, PL_FROM_FLAG, "--flag", &err))
                fail_msg("%s", err.msg);
            assert_int_equal(cfg->warnings.count, 1);
            assert_string_equal(cfg->warnings.at[0], warning);
        } else if (o->when == PL_WHEN_NOW && o->def[0] != '\0') {
            if (!pl_config_set(cfg, service, o->key, text, PL_FROM_FLAG, "--flag", &err))
                fail_msg("%s", err.msg);
            assert_int_equal(cfg->warnings.count, 0);
        }
        pl_config_destroy(cfg);
    }
}

TEST(edit_distance_counts_letters_and_forgives_dashes_and_case) {
    assert_int_equal(pl_edit_distance("memroy", "memory"), 1); /* swapped neighbours are one slip */
    assert_int_equal(pl_edit_distance("prot", "port"), 1);
    assert_int_equal(pl_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(pl_edit_distance("abc", ""), 3);
    assert_int_equal(pl_edit_distance("", "abc"), 3);
    assert_int_equal(pl_edit_distance("max-wait", "MAX_WAIT"), 0);
    assert_true(pl_edit_near("memroy", "memory"));
    assert_false(pl_edit_near("cat", "dog"));
    assert_true(pl_same_loosely("Max-Wait", "max_wait"));
    assert_false(pl_same_loosely("max_wait", "max_waits"));
}

RUN(cmocka_unit_test(no_part_of_a_key_is_a_boolean_or_null_of_yaml),
    cmocka_unit_test(keys_are_lower_case_words_and_unlike_each_other),
    cmocka_unit_test(only_listen_is_a_key_of_both_trees),
    cmocka_unit_test(every_key_is_explained_in_a_sentence),
    cmocka_unit_test(every_default_can_be_read_and_lies_in_its_range),
    cmocka_unit_test(numbers_have_a_range_and_words_have_lists),
    cmocka_unit_test(a_new_configuration_holds_the_defaults),
    cmocka_unit_test(every_key_that_does_nothing_yet_warns_and_is_never_an_error),
    cmocka_unit_test(edit_distance_counts_letters_and_forgives_dashes_and_case))
