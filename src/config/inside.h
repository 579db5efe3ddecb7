/* config/inside.h - inside the room: the parts of a configuration that nobody else sees. */
#ifndef PL_CONFIG_INSIDE_H
#define PL_CONFIG_INSIDE_H
#include "base/arena.h"
#include "config/config.h"
#include "config/table.h"

struct pl_config_said {
    const char *text;  /* as written; the default's while nothing is set; "" = not set */
    const char *shown; /* the same, fit for `config show` */
    const char *place;
};
/* What one key was set to. Parallel to the option table of its scope. */
struct pl_config_entry {
    struct pl_config_said now;
    struct pl_config_said
        last; /* what a forgotten origin had said: used again, so that telling it anew costs nothing */
    enum pl_origin origin;
};

struct pl_config_inside {
    struct pl_arena arena;
    size_t all_count, all_room; /* of cfg->services, those set aside included (behind the started ones) */
    size_t warning_room, link_room, not_started_room;
};

/* A service by name, those set aside included, '-' as '_' when `loosely`; SIZE_MAX = none. */
size_t pl_config_find_any(const struct pl_config *cfg, const char *name, bool loosely);
/* SIZE_MAX and err: no room. The name must be an id that is not there yet. */
size_t pl_config_add_service(struct pl_config *cfg, const char *id, const char *place, struct pl_err *err);
struct pl_config_entry *pl_config_entry(const struct pl_config *cfg, size_t service,
                                        const struct pl_option *o);
bool pl_config_set_option(struct pl_config *cfg, size_t service, const struct pl_option *o, const char *text,
                          enum pl_origin origin, const char *place, struct pl_err *err);
/* "unknown key ..." with its hint. */
bool pl_config_unknown(const char *place, enum pl_scope scope, const char *key, enum pl_code code,
                       struct pl_err *err);
/* Appends to one of the lists of texts; a line that is there already is not added. Without memory nothing
 * happens. */
void pl_config_note(struct pl_config *cfg, struct pl_strings *list, size_t *room, const char *line);
void pl_config_warn(struct pl_config *cfg, const char *place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline enum pl_scope pl_scope_of(size_t service) {
    return service == PL_CFG_INSTANCE ? PL_SCOPE_INSTANCE : PL_SCOPE_SERVICE;
}
#endif
