/* fuzz_config.c - the configuration's inputs: first byte 'y' a YAML file, 'j' the JSON that main gets, 'v' a
 * value for every key, 'p' a path and a value as a flag and as a variable. What is accepted must survive the
 * way to main.
 *
 * USES config base
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *const env[] = { (char[]){ "NAME=value" }, (char[]){ "EMPTY=" }, NULL };

static void must(bool ok) {
    if (!ok) abort();
}

static void use(const struct pl_config *cfg) {
    struct pl_err err;
    struct pl_buf text, again, page;
    char one[17], two[17];
    pl_buf_init(&text, 0);
    pl_buf_init(&again, 0);
    pl_buf_init(&page, 0);
    must(pl_config_to_json(cfg, &text));
    struct pl_config *copy = pl_config_from_json(text.data, text.len, &err);
    must(copy != NULL && pl_config_to_json(copy, &again));
    must(again.len == text.len && memcmp(again.data, text.data, text.len) == 0);
    pl_config_hash(cfg, one);
    pl_config_hash(copy, two);
    must(strcmp(one, two) == 0);
    must(pl_config_show(cfg, NULL, true, &page) && pl_config_show(copy, NULL, false, &page));
    pl_config_check(copy, &err);
    pl_config_destroy(copy);
    pl_buf_free(&text);
    pl_buf_free(&again);
    pl_buf_free(&page);
}

static void set_everything(struct pl_config *cfg, const char *text) {
    struct pl_err err;
    for (int scope = 0; scope < 2; scope++) {
        struct pl_options all = pl_options_of((enum pl_scope)scope);
        for (size_t i = 0; i < all.count; i++)
            pl_config_set(cfg, scope == PL_SCOPE_SERVICE ? 0 : PL_CFG_INSTANCE, all.at[i].key, text,
                          (enum pl_origin)(PL_FROM_DECORATOR + i % 4), "here", &err);
    }
    use(cfg);
    for (int i = PL_FROM_DECORATOR; i <= PL_FROM_FLAG; i++) {
        pl_config_forget(cfg, 0, (enum pl_origin)i);
        pl_config_forget(cfg, PL_CFG_INSTANCE, (enum pl_origin)i);
    }
    use(cfg);
}

static void set_path(struct pl_config *cfg, char *text) {
    struct pl_err err;
    char *equals = strchr(text, '='), variable[300];
    if (equals == NULL) return;
    snprintf(variable, sizeof variable, "PLIMSOLL__%s", text);
    char *const list[] = { variable, NULL };
    pl_config_read_env(cfg, list, &err);
    *equals = '\0';
    pl_config_set_path(cfg, text, equals + 1, PL_FROM_FLAG, "--flag", &err);
    use(cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_err err;
    if (size == 0) return 0;
    char kind = (char)data[0], *text = malloc(size);
    struct pl_config *cfg = kind == 'j' ? NULL : pl_config_create();
    must(text != NULL && (kind == 'j' || cfg != NULL));
    size--;
    memcpy(text, data + 1, size);
    text[size] = '\0';
    if (kind == 'j')
        cfg = pl_config_from_json(text, size, &err);
    else if (kind != 'y')
        must(pl_config_add_target(cfg, "service:Chat", NULL, false, &err));
    if (kind == 'y' ? pl_config_read_yaml(cfg, "f.yaml", text, size, env, &err) : kind == 'j' && cfg != NULL)
        use(cfg);
    if (kind == 'v') set_everything(cfg, text);
    if (kind == 'p') set_path(cfg, text);
    pl_config_destroy(cfg);
    free(text);
    return 0;
}
