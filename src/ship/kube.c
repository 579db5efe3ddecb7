#include "ship/kube.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ship/kube_inside.h"

#define ERROR   true
#define WARNING false
const struct pl_kube_rule_row pl_kube_rules[PL_KUBE_RULES] = {
#define KUBE(id, severity, finding, remedy) { #id, severity, finding, remedy },
#include "ship/kube_rules.def"
#undef KUBE
};
#undef ERROR
#undef WARNING

bool pl_kube_quantity(const char *text, double *out) {
    static const struct {
        const char *suffix;
        double factor;
    } units[] = { { "", 1 },        { "m", 1e-3 },    { "u", 1e-6 },    { "n", 1e-9 },
                  { "k", 1e3 },     { "M", 1e6 },     { "G", 1e9 },     { "T", 1e12 },
                  { "P", 1e15 },    { "E", 1e18 },    { "Ki", 1024.0 }, { "Mi", 1048576.0 },
                  { "Gi", 0x1p30 }, { "Ti", 0x1p40 }, { "Pi", 0x1p50 }, { "Ei", 0x1p60 } };
    char digits[32];
    size_t n = strspn(text, "0123456789.+-");
    if (n == 0 || n >= sizeof digits) return false;
    /* an exponent is digits behind e or E; "1E" is a unit */
    if ((text[n] == 'e' || text[n] == 'E') &&
        (isdigit((unsigned char)text[n + 1]) || (strchr("+-", text[n + 1]) != NULL && text[n + 1] != '\0')))
        n += 1 + strspn(text + n + 1, "0123456789+-");
    if (n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    char *end;
    double x = strtod(digits, &end);
    if (*end != '\0' || !isfinite(x)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + n, units[i].suffix) == 0) {
            *out = x * units[i].factor;
            return true;
        }
    return false;
}

bool pl_kube_ignored(const char *text, size_t len, uint32_t line, const char *rule) {
    const char *at = text, *end = text + len;
    for (uint32_t i = 1; i < line && at != NULL; i++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at != NULL) at++;
    }
    if (at == NULL || at >= end) return false;
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t n = stop != NULL ? (size_t)(stop - at) : (size_t)(end - at), id = strlen(rule);
    const char *hash = memmem(at, n, "plimsoll: ignore[", 17);
    if (hash == NULL || memchr(at, '#', (size_t)(hash - at)) == NULL) return false;
    const char *close = memchr(hash, ']', (size_t)(at + n - hash));
    if (close == NULL) return false;
    for (const char *one = hash + 17; one + id <= close; one++)
        if (memcmp(one, rule, id) == 0 && strchr(", ]", one[id]) != NULL && strchr("[, ", one[-1]) != NULL)
            return true;
    return false;
}

bool pl_kube_init(struct pl_kube *k, struct pl_arena *arena, struct pl_err *err) {
    *k = (struct pl_kube){ .objects = pl_arena_alloc(arena, PL_KUBE_OBJECTS * sizeof *k->objects),
                           .findings = pl_arena_alloc(arena, PL_KUBE_FINDINGS * sizeof *k->findings) };
    if (k->objects == NULL || k->findings == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for findings");
    return true;
}

static bool is_scaler_kind(const char *kind) {
    return strcmp(kind, "HorizontalPodAutoscaler") == 0 || strcmp(kind, "ScaledObject") == 0;
}

static void add_object(struct pl_kube *k, const char *file, const struct pl_node *n, unsigned depth) {
    const char *kind = pl_node_text(pl_node_get(n, "kind"));
    size_t len = strlen(kind);
    if (kind[0] == '\0') {
        k->drain_delay = k->drain_delay || pl_node_get(n, "drain_delay") != NULL;
        return;
    }
    const struct pl_node *items = pl_node_get(n, "items");
    if (len >= 4 && strcmp(kind + len - 4, "List") == 0 && items != NULL && depth > 0) {
        for (const struct pl_node *one = pl_node_first(items); one != NULL; one = one->next)
            add_object(k, file, pl_node_see(one), depth - 1);
        return;
    }
    if (strcmp(kind, "ConfigMap") == 0)
        for (const struct pl_node *one = pl_node_first(pl_node_get(n, "data")); one != NULL; one = one->next)
            k->drain_delay = k->drain_delay || strstr(pl_node_text(one), "drain_delay:") != NULL;
    if (strcmp(kind, "Deployment") != 0 && !is_scaler_kind(kind) && strcmp(kind, "PodDisruptionBudget") != 0)
        return;
    if (k->object_count == PL_KUBE_OBJECTS) {
        k->truncated = true;
        return;
    }
    k->objects[k->object_count++] =
        (struct pl_kube_object){ .node = n,
                                 .file = file,
                                 .kind = kind,
                                 .name = pl_node_text(pl_node_path(n, "metadata", "name", NULL)),
                                 .space = pl_node_text(pl_node_path(n, "metadata", "namespace", NULL)) };
}

void pl_kube_add(struct pl_kube *k, const char *file, const struct pl_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) add_object(k, file, tree->documents[i], PL_KUBE_DEEP_LISTS);
}

struct pl_kube_finding *pl_kube_found(struct pl_kube *k, enum pl_kube_rule rule,
                                      const struct pl_kube_object *o, const struct pl_node *at,
                                      const char *fmt, ...) {
    va_list words;
    if (k->finding_count == PL_KUBE_FINDINGS) {
        k->truncated = true;
        return &k->findings[PL_KUBE_FINDINGS - 1];
    }
    if (at == NULL) at = o->node;
    const struct pl_node *place = at->key != NULL ? at->key : at;
    struct pl_kube_finding *f = &k->findings[k->finding_count++];
    *f = (struct pl_kube_finding){ .rule = rule, .object = o, .line = place->line, .col = place->col };
    va_start(words, fmt);
    vsnprintf(f->path, sizeof f->path, fmt, words);
    va_end(words);
    return f;
}

/* --- scalers and budgets */

static bool same_space(const struct pl_kube_object *a, const struct pl_kube_object *b) {
    return a->space[0] == '\0' || b->space[0] == '\0' || strcmp(a->space, b->space) == 0;
}

static bool is_scaler(const struct pl_kube_object *o) { return is_scaler_kind(o->kind); }

static double least_of(const struct pl_kube_object *scaler) {
    const struct pl_node *spec = pl_node_get(scaler->node, "spec");
    if (strcmp(scaler->kind, "ScaledObject") == 0)
        return pl_node_number_or(pl_node_get(spec, "minReplicaCount"), 0);
    return pl_node_number_or(pl_node_get(spec, "minReplicas"), 1);
}

size_t pl_kube_scalers(const struct pl_kube *k, const struct pl_kube_object *deployment, double *least) {
    size_t count = 0;
    *least = pl_node_number_or(pl_node_path(deployment->node, "spec", "replicas", NULL), 1);
    for (size_t i = 0; i < k->object_count; i++) {
        const struct pl_kube_object *o = &k->objects[i];
        const struct pl_node *target = pl_node_path(o->node, "spec", "scaleTargetRef", NULL);
        if (!is_scaler(o) || !same_space(o, deployment)) continue;
        const struct pl_node *kind = pl_node_get(target, "kind");
        if (kind != NULL && !pl_node_is(kind, "Deployment")) continue;
        if (!pl_node_is(pl_node_get(target, "name"), deployment->name)) continue;
        double one = least_of(o);
        *least = count == 0 || one < *least ? one : *least;
        count++;
    }
    return count;
}

double pl_kube_share(const struct pl_node *n, double fallback, double replicas, bool up) {
    const char *text = pl_node_text(n);
    size_t len = strlen(text);
    char *end;
    if (len > 1 && text[len - 1] == '%') {
        double x = strtod(text, &end) * replicas / 100;
        return up ? ceil(x) : floor(x);
    }
    return pl_node_number_or(n, fallback);
}

static void check_scaler(struct pl_kube *k, const struct pl_kube_object *o) {
    const struct pl_node *spec = pl_node_get(o->node, "spec"), *n;
    if (strcmp(o->kind, "ScaledObject") == 0) {
        size_t i = 0;
        if (least_of(o) < 1) {
            n = pl_node_get(spec, "minReplicaCount");
            pl_kube_found(k, PL_K022, o, n != NULL ? n : spec, "spec.minReplicaCount");
        }
        for (n = pl_node_first(pl_node_get(spec, "triggers")); n != NULL; n = n->next, i++) {
            const struct pl_node *ignore = pl_node_path(n, "metadata", "ignoreNullValues", NULL);
            if (pl_node_is(pl_node_get(n, "type"), "prometheus") &&
                (ignore == NULL || pl_node_is(ignore, "true")))
                pl_kube_found(k, PL_K033, o, ignore != NULL ? ignore : n,
                              "spec.triggers[%zu].metadata.ignoreNullValues", i);
        }
        return;
    }
    n = pl_node_get(spec, "minReplicas");
    if (n != NULL && least_of(o) < 1) pl_kube_found(k, PL_K022, o, n, "spec.minReplicas");
    const struct pl_node *metrics = pl_node_get(spec, "metrics");
    bool plain = true;
    for (n = pl_node_first(metrics); n != NULL; n = n->next)
        plain = plain && (pl_node_is(pl_node_get(n, "type"), "Resource") ||
                          pl_node_is(pl_node_get(n, "type"), "ContainerResource"));
    if (plain) pl_kube_found(k, PL_K031, o, metrics != NULL ? metrics : spec, "spec.metrics");
}

/* Are all the labels chosen among these? */
static bool chosen(const struct pl_node *labels, const struct pl_node *selector) {
    if (pl_node_first(pl_node_get(selector, "matchExpressions")) != NULL) return false; /* not told apart */
    for (const struct pl_node *n = pl_node_first(pl_node_get(selector, "matchLabels")); n != NULL;
         n = n->next) {
        const struct pl_node *mine = pl_node_get(labels, pl_node_text(n->key));
        if (mine == NULL || strcmp(pl_node_text(mine), pl_node_text(n)) != 0) return false;
    }
    return selector != NULL;
}

static void check_budget(struct pl_kube *k, const struct pl_kube_object *o) {
    const struct pl_node *spec = pl_node_get(o->node, "spec"), *least_up = pl_node_get(spec, "minAvailable"),
                         *most_down = pl_node_get(spec, "maxUnavailable");
    for (size_t i = 0; i < k->object_count; i++) {
        const struct pl_kube_object *d = &k->objects[i];
        double least;
        if (strcmp(d->kind, "Deployment") != 0 || !same_space(d, o)) continue;
        if (!chosen(pl_node_path(d->node, "spec", "template", "metadata", "labels", NULL),
                    pl_node_get(spec, "selector")))
            continue;
        pl_kube_scalers(k, d, &least);
        bool blocked = (least_up != NULL && pl_kube_share(least_up, 0, least, true) >= least) ||
                       (most_down != NULL && pl_kube_share(most_down, 1, least, true) < 1);
        if (blocked)
            pl_kube_found(k, PL_K023, o, spec, "spec");
        else if (!pl_node_is(pl_node_get(spec, "unhealthyPodEvictionPolicy"), "AlwaysAllow"))
            pl_kube_found(k, PL_K024, o, spec, "spec.unhealthyPodEvictionPolicy");
    }
}

static int by_rule(const void *a, const void *b) {
    const struct pl_kube_finding *x = a, *y = b;
    if (x->rule != y->rule) return x->rule < y->rule ? -1 : 1;
    int order = strcmp(x->object->kind, y->object->kind);
    if (order == 0) order = strcmp(x->object->name, y->object->name);
    if (order == 0) order = strcmp(x->path, y->path);
    return order != 0 ? order : x->line < y->line ? -1 : x->line > y->line;
}

void pl_kube_check(struct pl_kube *k, const struct pl_kube_measured *measured) {
    for (size_t i = 0; i < k->object_count; i++) {
        const struct pl_kube_object *o = &k->objects[i];
        if (strcmp(o->kind, "Deployment") == 0)
            pl_kube_deployment(k, o, measured);
        else if (is_scaler(o))
            check_scaler(k, o);
        else if (strcmp(o->kind, "PodDisruptionBudget") == 0)
            check_budget(k, o);
    }
    qsort(k->findings, k->finding_count, sizeof *k->findings, by_rule);
}
