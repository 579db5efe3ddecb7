/* config/table.h - inside the room: schema.def as data, and looking keys up in it. */
#ifndef PL_CONFIG_TABLE_H
#define PL_CONFIG_TABLE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/similar.h"

/* X(TYPE, "what a value of it is called in messages and on the reference page") */
/* clang-format off */
#define PL_OPTION_TYPES(X) \
    X(INT, "a whole number") X(STATUS, "429, 503 or 529") X(BYTES, "bytes") X(DURATION, "a duration") \
    X(SHARE, "a share") X(AMOUNT, "a share or bytes") X(SWITCH, "on or off") X(ENUM, "a word") \
    X(STRING, "text") X(PATH, "a path") X(ROUTE, "a URL path") X(ID, "a name of a-z, 0-9 and -") \
    X(METRIC, "a metric name") X(SECRET, "file:PATH or env:NAME") X(ADDRESS, "an address") \
    X(ADDRESSES, "a list of addresses") X(LIST, "a list") X(MAP, "a mapping") X(ENV, "a mapping of variables") \
    X(GPUS, "all, a number or a list") X(WARMUP, "a list of requests")
/* clang-format on */
enum pl_option_type {
#define X(sym, name) PL_OPTION_##sym,
    PL_OPTION_TYPES(X)
#undef X
        PL_OPTION_TYPE_COUNT
};
enum pl_option_class { PL_CLASS_LIVE, PL_CLASS_GENERATION, PL_CLASS_RESTART };
enum pl_option_when { PL_WHEN_NOW, PL_WHEN_LATER, PL_WHEN_INNER };
enum pl_scope { PL_SCOPE_INSTANCE, PL_SCOPE_SERVICE };

struct pl_option {
    const char *key, *word, *def, *unit, *help;
    const char *const *words; /* ENUM: NULL-ended */
    size_t offset;            /* of the member, in struct pl_config or struct pl_service_config */
    int64_t lo, hi;
    enum pl_option_type type;
    enum pl_option_class reload;
    enum pl_option_when when;
};
struct pl_options {
    const struct pl_option *at;
    size_t count;
};

struct pl_options pl_options_of(enum pl_scope scope);
/* Exact, or with '-' as '_' and any case. NULL: not a key. */
const struct pl_option *pl_option_find(enum pl_scope scope, const char *key);
const struct pl_option *pl_option_find_loose(enum pl_scope scope, const char *key);
/* Keys exist below `path` ("traffic"). */
bool pl_option_section(enum pl_scope scope, const char *path);
/* Puts a hint about an unknown `word` below `prefix` ("" or "traffic.") into err, if anything comes to mind.
 */
void pl_option_hint(enum pl_scope scope, const char *prefix, const char *word, struct pl_err *err);

const char *pl_option_type_name(enum pl_option_type type);
/* The value of `word` beside numbers: "auto" -> PL_CFG_AUTO. */
int64_t pl_option_word_value(const char *word);
#endif
