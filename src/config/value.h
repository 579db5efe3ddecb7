/* config/value.h - inside the room: one value, from text to its member. */
#ifndef PL_CONFIG_VALUE_H
#define PL_CONFIG_VALUE_H
#include <jansson.h>

#include "base/arena.h"
#include "config/config.h"
#include "config/table.h"

/* Reads `text` as the option's type into `member` (as in the struct; untouched on failure), with what it
 * points to in the arena. NULL text = not set. The message names neither key nor place. */
bool pl_value_parse(const struct pl_option *o, const char *text, struct pl_arena *a, void *member,
                    struct pl_err *err);
/* What `config show` may show of it: the text, or with secrets hidden. NULL without memory. */
const char *pl_value_shown(const struct pl_option *o, const char *text, struct pl_arena *a);

/* The range as texts, "" where there is none. */
void pl_value_limits(const struct pl_option *o, char lo[32], char hi[32]);

/* The types that are made of others (compound.c). */
bool pl_parse_list(const char *text, struct pl_arena *a, struct pl_strings *out, struct pl_err *err);
bool pl_parse_map(const char *text, bool variables, struct pl_arena *a, struct pl_pairs *out,
                  struct pl_err *err);
bool pl_parse_gpus(const char *text, struct pl_arena *a, struct pl_gpus *out, struct pl_err *err);
/* The list of warm-up requests (warmup.c). */
bool pl_parse_warmup(const char *text, struct pl_arena *a, struct pl_warmup_requests *out,
                     struct pl_err *err);

/* Copies a JSON scalar as text; containers as JSON text when `nested`. NULL and err: null, a container, no
 * memory. */
const char *pl_json_text(const json_t *value, bool nested, struct pl_arena *a, struct pl_err *err);
/* Loads JSON; NULL and err when it is not. The caller drops the reference. */
json_t *pl_json_load(const char *text, size_t len, struct pl_err *err);
/* A copy in the arena that fails as err. */
char *pl_keep(struct pl_arena *a, const char *text, size_t len, struct pl_err *err);
bool pl_is_id(const char *text);
bool pl_parse_route(const char *text, struct pl_arena *a, const char **out, struct pl_err *err);
bool pl_parse_address(const char *text, struct pl_arena *a, struct pl_address *out, struct pl_err *err);
bool pl_parse_addresses(const char *text, struct pl_arena *a, struct pl_addresses *out, struct pl_err *err);
bool pl_parse_switch(const char *text, bool *out);
#endif
