/* ship/kube_inside.h - inside the room: what kube.c (scalers, budgets) and kube_pod.c (Deployments) share. */
#ifndef PL_SHIP_KUBE_INSIDE_H
#define PL_SHIP_KUBE_INSIDE_H
#include <stdarg.h>

#include "ship/kube.h"

/* A finding at a node, or at the object when the node is not there; the path is formatted. Never NULL. */
struct pl_kube_finding *pl_kube_found(struct pl_kube *k, enum pl_kube_rule rule,
                                      const struct pl_kube_object *o, const struct pl_node *at,
                                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* How many autoscalers act on a Deployment; the least number of its pods, theirs or its own. */
size_t pl_kube_scalers(const struct pl_kube *k, const struct pl_kube_object *deployment, double *least);
/* A number, or a percentage of the replicas rounded up or down. */
double pl_kube_share(const struct pl_node *n, double fallback, double replicas, bool up);
void pl_kube_deployment(struct pl_kube *k, const struct pl_kube_object *o,
                        const struct pl_kube_measured *measured);
#endif
