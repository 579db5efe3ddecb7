/* config_support.h - what the tests of this room share. */
#ifndef PL_TESTS_CONFIG_SUPPORT_H
#define PL_TESTS_CONFIG_SUPPORT_H
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/inside.h"
#include "unit.h"

#define FILE_NAME "plimsoll.yaml"

static char *const no_env[] __attribute__((unused)) = { NULL };

/* Reads `text` with the environment given; a failure that nobody expects shows its message. */
static inline struct pl_config *read_text(const char *text, char *const *env) {
    struct pl_err err;
    struct pl_config *cfg = pl_config_create();
    assert_non_null(cfg);
    if (!pl_config_read_yaml(cfg, FILE_NAME, text, strlen(text), env, &err)) fail_msg("%s", err.msg);
    return cfg;
}

/* The text must be refused with exactly this message and hint. */
static inline void refused_env(const char *text, char *const *env, const char *message, const char *hint) {
    struct pl_err err = { 0 };
    struct pl_config *cfg = pl_config_create();
    assert_non_null(cfg);
    bool ok =
        pl_config_read_yaml(cfg, FILE_NAME, text, strlen(text), env, &err) && pl_config_check(cfg, &err);
    if (ok) fail_msg("accepted: %s", text);
    assert_string_equal(err.msg, message);
    assert_string_equal(err.hint, hint);
    assert_int_equal(pl_err_exit_status(err.code), 3);
    pl_config_destroy(cfg);
}
static inline void refused(const char *text, const char *message, const char *hint) {
    refused_env(text, no_env, message, hint);
}

/* A configuration with one service, "chat". */
static inline struct pl_config *with_chat(void) {
    return read_text("services: {chat: {run: 's:C'}}\n", no_env);
}
#endif
