#include "config/diff.h"

#include <string.h>

#include "config/inside.h"

const char *pl_change_class_name(enum pl_change_class c) {
    static const char *const names[] = { "live", "generation", "restart" };
    return names[c];
}

static void add(struct pl_changes *out, const struct pl_change *c) {
    if (out->count == PL_CHANGES_MOST)
        out->more = true;
    else
        out->at[out->count++] = *c;
}

static bool said_by_people(const struct pl_config_entry *e) {
    return e->origin != PL_FROM_DECORATOR && e->origin != PL_FROM_BENTOML_CONFIG;
}

static enum pl_change_class class_of(const struct pl_option *o) {
    return o->reload == PL_CLASS_LIVE         ? PL_CHANGE_LIVE
           : o->reload == PL_CLASS_GENERATION ? PL_CHANGE_GENERATION
                                              : PL_CHANGE_RESTART;
}

static void compare(const struct pl_config *old, size_t i, const struct pl_config *new, size_t j,
                    struct pl_changes *out) {
    struct pl_options all = pl_options_of(pl_scope_of(i));
    const char *service = i == PL_CFG_INSTANCE ? NULL : new->services[j].id;
    for (size_t n = 0; n < all.count; n++) {
        const struct pl_option *o = &all.at[n];
        const struct pl_config_entry *a = pl_config_entry(old, i, o), *b = pl_config_entry(new, j, o);
        const char *was = said_by_people(a) ? a->now.text : o->def,
                   *is = said_by_people(b) ? b->now.text : o->def;
        if (strcmp(was, is) == 0) continue;
        add(out, &(struct pl_change){ .service = service,
                                      .key = o->key,
                                      .from = said_by_people(a) ? a->now.shown : o->def,
                                      .to = said_by_people(b) ? b->now.shown : o->def,
                                      .place = b->now.place,
                                      .class = class_of(o) });
    }
}

static void compare_services(const struct pl_config *old, const struct pl_config *new,
                             struct pl_changes *out) {
    for (size_t i = 0; i < old->service_count; i++) {
        size_t j = pl_config_find(new, old->services[i].id);
        if (j != SIZE_MAX) {
            compare(old, i, new, j, out);
            continue;
        }
        add(out, &(struct pl_change){ .service = old->services[i].id,
                                      .key = "services",
                                      .from = old->services[i].id,
                                      .to = "",
                                      .place = "",
                                      .class = PL_CHANGE_RESTART });
    }
    for (size_t j = 0; j < new->service_count; j++)
        if (pl_config_find(old, new->services[j].id) == SIZE_MAX)
            add(out, &(struct pl_change){ .service = new->services[j].id,
                                          .key = "services",
                                          .from = "",
                                          .to = new->services[j].id,
                                          .place = new->services[j].place,
                                          .class = PL_CHANGE_RESTART });
}

void pl_config_diff(const struct pl_config *old, const struct pl_config *new, struct pl_changes *out) {
    out->count = 0;
    out->more = false;
    compare(old, PL_CFG_INSTANCE, new, PL_CFG_INSTANCE, out);
    compare_services(old, new, out);
}

bool pl_config_align(const struct pl_config *old, struct pl_config *new) {
    if (old->service_count != new->service_count) return false;
    for (size_t i = 0; i < old->service_count; i++) {
        size_t j = pl_config_find(new, old->services[i].id);
        if (j == SIZE_MAX) return false;
        struct pl_service_config moved = new->services[j];
        new->services[j] = new->services[i];
        new->services[i] = moved;
    }
    return true;
}
