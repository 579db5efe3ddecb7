/* ship/kube.h - what is wrong with Kubernetes objects that serve a model (kube_rules.def). Pure: trees in,
 * findings out.
 *
 * Looked at: Deployments, with the HorizontalPodAutoscalers, ScaledObjects and PodDisruptionBudgets beside
 * them, in any number of files, documents and List objects. Other kinds are skipped. Measured values come
 * from annotations of the pod template (plimsoll/boot-seconds ...) or from outside. Values that have the
 * wrong type are not there.
 */
#ifndef PL_SHIP_KUBE_H
#define PL_SHIP_KUBE_H
#include "ship/tree.h"

enum pl_kube_rule {
#define KUBE(id, severity, finding, remedy) PL_##id,
#include "ship/kube_rules.def"
#undef KUBE
    PL_KUBE_RULES
};
struct pl_kube_rule_row {
    const char *id;
    bool error; /* else a warning */
    const char *finding, *remedy;
};
extern const struct pl_kube_rule_row pl_kube_rules[PL_KUBE_RULES];

enum {
    PL_KUBE_OBJECTS = 2000, /* of the kinds that are looked at */
    PL_KUBE_FINDINGS = 4000,
    PL_KUBE_CONTAINERS = 4000,
    PL_KUBE_PATH = 160,
    PL_KUBE_DEEP_LISTS = 4
};

struct pl_kube_object {
    const struct pl_node *node;
    const char *file; /* borrowed */
    const char *kind, *name, *space;
};
struct pl_kube_finding {
    enum pl_kube_rule rule;
    const struct pl_kube_object *object;
    uint32_t line, col;
    char path[PL_KUBE_PATH];
    char detail[120]; /* numbers, or "" */
};
/* Seconds and bytes; what is 0 is not known. */
struct pl_kube_measured {
    double boot_s, drain_s, worker_stop_s, host_peak_bytes;
    bool spare_gpu;
};
struct pl_kube {
    struct pl_kube_object *objects;
    size_t object_count;
    struct pl_kube_finding *findings;
    size_t finding_count;
    size_t container_count; /* looked at so far */
    bool drain_delay;       /* a plimsoll.yaml among the files serves on after SIGTERM by itself */
    bool truncated;         /* more than the limits */
};

bool pl_kube_init(struct pl_kube *k, struct pl_arena *arena, struct pl_err *err);
/* Takes the objects of a tree; both must live as long as `k`. */
void pl_kube_add(struct pl_kube *k, const char *file, const struct pl_tree *tree);
/* All findings, ordered by rule, object and path. */
void pl_kube_check(struct pl_kube *k, const struct pl_kube_measured *measured);
/* "5632Mi", "500m", "1e3", "2Gi" as a number. False: no quantity. */
bool pl_kube_quantity(const char *text, double *out);
/* Does a comment on this line of the text silence the rule: "# plimsoll: ignore[K003, K005]"? */
bool pl_kube_ignored(const char *text, size_t len, uint32_t line, const char *rule);
#endif
