#include "config/table.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"

#define COUNT  INT64_C(1000000)
#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define DAY    (1440 * MINUTE)
#define KIB    (INT64_C(1) << 10)
#define MIB    (INT64_C(1) << 20)
#define TIB    (INT64_C(1) << 40)

#define W(sym, text)        text,
#define WORDS(field, words) static const char *const words_##field[] = { words NULL };
#include "config/words.def"
#undef WORDS
#undef W

#define OPTION_WORDS_INT(f)       NULL
#define OPTION_WORDS_STATUS(f)    NULL
#define OPTION_WORDS_BYTES(f)     NULL
#define OPTION_WORDS_DURATION(f)  NULL
#define OPTION_WORDS_SHARE(f)     NULL
#define OPTION_WORDS_AMOUNT(f)    NULL
#define OPTION_WORDS_SWITCH(f)    NULL
#define OPTION_WORDS_ENUM(f)      words_##f
#define OPTION_WORDS_STRING(f)    NULL
#define OPTION_WORDS_PATH(f)      NULL
#define OPTION_WORDS_ROUTE(f)     NULL
#define OPTION_WORDS_ID(f)        NULL
#define OPTION_WORDS_METRIC(f)    NULL
#define OPTION_WORDS_SECRET(f)    NULL
#define OPTION_WORDS_ADDRESS(f)   NULL
#define OPTION_WORDS_ADDRESSES(f) NULL
#define OPTION_WORDS_LIST(f)      NULL
#define OPTION_WORDS_MAP(f)       NULL
#define OPTION_WORDS_ENV(f)       NULL
#define OPTION_WORDS_GPUS(f)      NULL
#define OPTION_WORDS_WARMUP(f)    NULL

#define OPTION(of, field, k, t, w, d, low, high, u, c, n, h) \
    { .key = (k),                                            \
      .word = (w),                                           \
      .def = (d),                                            \
      .unit = (u),                                           \
      .help = (h),                                           \
      .words = OPTION_WORDS_##t(field),                      \
      .offset = offsetof(struct of, PL_CFG_NAME_##t(field)), \
      .lo = (low),                                           \
      .hi = (high),                                          \
      .type = PL_OPTION_##t,                                 \
      .reload = PL_CLASS_##c,                                \
      .when = PL_WHEN_##n },

static const struct pl_option instance_options[] = {
#define INSTANCE(f, k, t, w, d, lo, hi, u, c, n, h) OPTION(pl_config, f, k, t, w, d, lo, hi, u, c, n, h)
#define SERVICE(...)
#include "config/schema.def"
#undef SERVICE
#undef INSTANCE
};
static const struct pl_option service_options[] = {
#define INSTANCE(...)
#define SERVICE(f, k, t, w, d, lo, hi, u, c, n, h) \
    OPTION(pl_service_config, f, k, t, w, d, lo, hi, u, c, n, h)
#include "config/schema.def"
#undef SERVICE
#undef INSTANCE
};

struct pl_options pl_options_of(enum pl_scope scope) {
    if (scope == PL_SCOPE_INSTANCE)
        return (struct pl_options){ instance_options, sizeof instance_options / sizeof instance_options[0] };
    return (struct pl_options){ service_options, sizeof service_options / sizeof service_options[0] };
}

const char *pl_option_type_name(enum pl_option_type type) {
    static const char *const names[] = {
#define X(sym, name) [PL_OPTION_##sym] = name,
        PL_OPTION_TYPES(X)
#undef X
    };
    return names[type];
}

int64_t pl_option_word_value(const char *word) {
    if (strcmp(word, "cpu_count") == 0) return PL_CFG_CPU_COUNT;
    return strcmp(word, "auto") == 0 || strcmp(word, "all") == 0 ? PL_CFG_AUTO : PL_CFG_NONE;
}

const struct pl_option *pl_option_find(enum pl_scope scope, const char *key) {
    struct pl_options all = pl_options_of(scope);
    for (size_t i = 0; i < all.count; i++)
        if (strcmp(all.at[i].key, key) == 0) return &all.at[i];
    return NULL;
}

const struct pl_option *pl_option_find_loose(enum pl_scope scope, const char *key) {
    struct pl_options all = pl_options_of(scope);
    for (size_t i = 0; i < all.count; i++)
        if (pl_same_loosely(all.at[i].key, key)) return &all.at[i];
    return NULL;
}

bool pl_option_section(enum pl_scope scope, const char *path) {
    struct pl_options all = pl_options_of(scope);
    size_t n = strlen(path);
    for (size_t i = 0; i < all.count; i++)
        if (strncmp(all.at[i].key, path, n) == 0 && all.at[i].key[n] == '.') return true;
    return false;
}

/* The nearest name at one level of the tree: "memory" for "memroy". */
static bool nearest_at_level(enum pl_scope scope, const char *prefix, const char *word, char *out,
                             size_t room) {
    struct pl_options all = pl_options_of(scope);
    size_t skip = strlen(prefix), best = pl_slips_allowed(word) + 1;
    if (scope == PL_SCOPE_INSTANCE && skip == 0 && pl_edit_distance(word, "services") < best) {
        best = pl_edit_distance(word, "services");
        snprintf(out, room, "services");
    }
    for (size_t i = 0; i < all.count; i++) {
        if (all.at[i].when == PL_WHEN_INNER || strncmp(all.at[i].key, prefix, skip) != 0) continue;
        char name[64];
        size_t n = strcspn(all.at[i].key + skip, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, all.at[i].key + skip);
        size_t distance = pl_edit_distance(word, name);
        if (distance >= best) continue;
        best = distance;
        snprintf(out, room, "%s", name);
    }
    return best <= pl_slips_allowed(word);
}

/* Keys that end in the word: "traffic.timeout" for "timeout". */
static size_t deeper_ones(enum pl_scope scope, const char *word, char *out, size_t room) {
    enum { SHOWN = 3 };
    struct pl_options all = pl_options_of(scope);
    size_t found = 0, used = 0, n = strlen(word);
    for (size_t i = 0; i < all.count && found < SHOWN; i++) {
        size_t length = strlen(all.at[i].key);
        if (all.at[i].when == PL_WHEN_INNER || length <= n || all.at[i].key[length - n - 1] != '.') continue;
        if (!pl_same_loosely(all.at[i].key + length - n, word)) continue;
        int more = snprintf(out + used, room - used, "%s'%s'", found > 0 ? " or " : "", all.at[i].key);
        if (more < 0 || (size_t)more >= room - used) break;
        used += (size_t)more;
        found++;
    }
    return found;
}

void pl_option_hint(enum pl_scope scope, const char *prefix, const char *word, struct pl_err *err) {
    enum pl_scope other = scope == PL_SCOPE_INSTANCE ? PL_SCOPE_SERVICE : PL_SCOPE_INSTANCE;
    char text[128];
    bool root = prefix[0] == '\0';
    bool in_other = root && (pl_option_find_loose(other, word) != NULL || pl_option_section(other, word));
    if (in_other && scope == PL_SCOPE_INSTANCE)
        pl_err_hint(err, "it belongs below services.NAME");
    else if (in_other)
        pl_err_hint(err, "it belongs to the whole instance, at the top of the file");
    else if (nearest_at_level(scope, prefix, word, text, sizeof text))
        pl_err_hint(err, "did you mean '%s%s'?", prefix, text);
    else if (deeper_ones(scope, word, text, sizeof text) > 0)
        pl_err_hint(err, "did you mean %s?", text);
}
