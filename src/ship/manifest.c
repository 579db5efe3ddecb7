/* manifest.c - the objects around the Deployment, and which of them there are. */
#include "ship/manifest.h"

#include <stdio.h>
#include <string.h>

#include "ship/manifest_inside.h"

static void selector(const struct pl_manifest *m, struct pl_buf *b, unsigned depth, const char *key) {
    pl_line(b, depth, NULL, "%s:", key);
    pl_line(b, depth + 1, NULL, "matchLabels:");
    pl_line(b, depth + 2, NULL, "app.kubernetes.io/name: %s", m->name);
}

static void service(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "v1", "Service", m->name);
    pl_line(b, 1, NULL, "labels:");
    pl_line(b, 2, NULL, "app.kubernetes.io/name: %s", m->name);
    pl_line(b, 0, NULL, "spec:");
    if (m->ask.front == PL_FRONT_LOADBALANCER) pl_line(b, 1, NULL, "type: LoadBalancer");
    pl_line(b, 1, NULL, "selector:");
    pl_line(b, 2, NULL, "app.kubernetes.io/name: %s", m->name);
    pl_line(b, 1, NULL, "ports:");
    pl_line(b, 2, NULL, "- name: http");
    pl_line(b, 3, NULL, "port: 80");
    pl_line(b, 3, NULL, "targetPort: http");
}

static void network_policy(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "networking.k8s.io/v1", "NetworkPolicy", m->name);
    pl_line(b, 0, NULL, "spec:");
    selector(m, b, 1, "podSelector");
    pl_line(b, 1, NULL, "policyTypes: [Ingress, Egress]");
    pl_line(b, 1, NULL, "ingress:");
    pl_line(b, 2, NULL, "- ports:");
    pl_line(b, 4, NULL, "- port: http");
    pl_line(b, 2, NULL, "- from:");
    pl_line(b, 4, NULL, "- namespaceSelector:");
    pl_line(b, 6, NULL, "matchLabels:");
    pl_line(b, 7, "where Prometheus runs", "kubernetes.io/metadata.name: monitoring");
    pl_line(b, 3, NULL, "ports:");
    pl_line(b, 4, NULL, "- port: admin");
    pl_line(b, 1, "no run-time download can work, so none can be forgotten", "egress: []");
}

static void budget(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "policy/v1", "PodDisruptionBudget", m->name);
    pl_line(b, 0, NULL, "spec:");
    pl_line(b, 1, NULL, "maxUnavailable: 1");
    pl_line(b, 1, "a pod that never became ready must not block the drain of its node",
            "unhealthyPodEvictionPolicy: AlwaysAllow");
    selector(m, b, 1, "selector");
}

/* Two to a GPU, three to a CPU pod: the next person knows better. */
static uint32_t most_replicas(const struct pl_manifest *m) {
    return m->ask.replicas * (m->ask.gpus > 0 ? 2 : 3);
}

static void behavior(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    const struct pl_size *s = &m->size;
    struct pl_why up, down;
    pl_why(&up, s->boot_known, "boot %g s + schedule; the last pod must count first", s->boot_s);
    pl_why(&down, s->boot_known, "10 x boot, from 300 to 3600");
    pl_line(b, depth, NULL, "behavior:");
    pl_line(b, depth + 1, NULL, "scaleUp:");
    pl_line(b, depth + 2, NULL, "stabilizationWindowSeconds: 0");
    pl_line(b, depth + 2, NULL, "policies:");
    pl_line(b, depth + 3, up.text, "- { type: Pods, value: 1, periodSeconds: %u }", s->scale_up_s);
    pl_line(b, depth + 1, NULL, "scaleDown:");
    pl_line(b, depth + 2, down.text, "stabilizationWindowSeconds: %u", s->scale_down_s);
    pl_line(b, depth + 2, NULL, "policies:");
    pl_line(b, depth + 3, NULL, "- { type: Pods, value: 1, periodSeconds: %u }", s->scale_down_period_s);
}

static void hpa_metric(struct pl_buf *b, const char *name, const char *value) {
    pl_line(b, 2, NULL, "- type: Pods");
    pl_line(b, 3, NULL, "pods:");
    pl_line(b, 4, NULL, "metric:");
    pl_line(b, 5, NULL, "name: %s", name);
    pl_line(b, 4, NULL, "target:");
    pl_line(b, 5, NULL, "type: AverageValue");
    pl_line(b, 5, NULL, "averageValue: %s", value);
}

static void hpa(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "autoscaling/v2", "HorizontalPodAutoscaler", m->name);
    pl_line(b, 0, NULL, "spec:");
    pl_line(b, 1, NULL, "scaleTargetRef:");
    pl_line(b, 2, NULL, "apiVersion: apps/v1");
    pl_line(b, 2, NULL, "kind: Deployment");
    pl_line(b, 2, NULL, "name: %s", m->name);
    pl_line(b, 1, NULL, "minReplicas: %u", m->ask.replicas);
    pl_line(b, 1, "guessed: what you can pay for", "maxReplicas: %u", most_replicas(m));
    pl_line(b, 1, NULL, "metrics:");
    hpa_metric(b, "plimsoll_budget_used_ratio", "700m");
    if (m->ask.gpus > 0) hpa_metric(b, "plimsoll_queue_requests", "\"5\"");
    behavior(m, 1, b);
}

static void scaled_object(const struct pl_manifest *m, struct pl_buf *b) {
    uint32_t most = most_replicas(m);
    pl_object_head(b, "keda.sh/v1alpha1", "ScaledObject", m->name);
    pl_line(b, 0, NULL, "spec:");
    pl_line(b, 1, NULL, "scaleTargetRef:");
    pl_line(b, 2, NULL, "name: %s", m->name);
    pl_line(b, 1, "KEDA's own default is 0", "minReplicaCount: %u", m->ask.replicas);
    pl_line(b, 1, "guessed: what you can pay for", "maxReplicaCount: %u", most);
    pl_line(b, 1, NULL, "pollingInterval: 15");
    pl_line(b, 1, NULL, "cooldownPeriod: %u", m->size.scale_down_s);
    pl_line(b, 1, NULL, "fallback:");
    pl_line(b, 2, NULL, "failureThreshold: 4");
    pl_line(b, 2, NULL, "replicas: %u", (m->ask.replicas + most + 1) / 2);
    pl_line(b, 2, NULL, "behavior: currentReplicasIfHigher");
    pl_line(b, 1, NULL, "advanced:");
    pl_line(b, 2, NULL, "horizontalPodAutoscalerConfig:");
    behavior(m, 3, b);
    pl_line(b, 1, NULL, "triggers:");
    pl_line(b, 2, NULL, "- type: prometheus");
    pl_line(b, 3, NULL, "metricType: AverageValue");
    pl_line(b, 3, NULL, "metadata:");
    pl_line(b, 4, "where yours is", "serverAddress: http://prometheus.monitoring.svc:9090");
    pl_line(b, 4, "a sum: an average would be divided again",
            "query: sum(plimsoll_budget_used_ratio{namespace=\"default\",service=\"%s\"})", m->service);
    pl_line(b, 4, NULL, "threshold: \"0.7\"");
    pl_line(b, 4, "no data is an error (fallback), not a reason to scale in", "ignoreNullValues: \"false\"");
}

static void pod_monitor(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "monitoring.coreos.com/v1", "PodMonitor", m->name);
    pl_line(b, 0, NULL, "spec:");
    selector(m, b, 1, "selector");
    pl_line(b, 1, "pods, not the Service: those that are not ready too", "podMetricsEndpoints:");
    pl_line(b, 2, NULL, "- port: admin");
    pl_line(b, 3, NULL, "path: /metrics");
    pl_line(b, 3, NULL, "interval: 15s");
    pl_line(b, 3, NULL, "scrapeTimeout: 5s");
    if (m->tls && !m->sidecar) {
        pl_line(b, 3, NULL, "scheme: https");
        pl_line(b, 3, "pods are asked by address, which no certificate names",
                "tlsConfig: { insecureSkipVerify: true }");
    }
}

static void rule_object(const struct pl_manifest *m, struct pl_buf *b) {
    char name[96];
    snprintf(name, sizeof name, "%s-plimsoll", m->name);
    pl_object_head(b, "monitoring.coreos.com/v1", "PrometheusRule", name);
    pl_line(b, 1, NULL, "labels:");
    pl_line(b, 2, NULL, "app.kubernetes.io/name: %s", m->name);
    pl_line(b, 0, NULL, "spec:");
    pl_write_rules(m, 1, b);
}

static void plain_rules(const struct pl_manifest *m, struct pl_buf *b) { pl_write_rules(m, 0, b); }

static void priority(const struct pl_manifest *m, struct pl_buf *b) {
    (void)m;
    pl_object_head(b, "scheduling.k8s.io/v1", "PriorityClass", "plimsoll-serving");
    pl_line(b, 0, NULL, "value: 100000");
    pl_line(b, 0, NULL, "globalDefault: false");
    pl_line(b, 0, NULL, "description: Model services that hold a GPU; they displace placeholders.");
    pl_line(b, 0, NULL, "---");
    pl_object_head(b, "scheduling.k8s.io/v1", "PriorityClass", "plimsoll-placeholder");
    pl_line(b, 0, "not lower: the cluster autoscaler ignores pods below its cutoff", "value: -10");
    pl_line(b, 0, NULL, "globalDefault: false");
    pl_line(b, 0, NULL, "preemptionPolicy: Never");
    pl_line(b, 0, NULL, "description: Holds a warm GPU node for the next serving pod.");
}

static void claim(struct pl_buf *b, const char *name, const char *suffix, const char *mode,
                  const char *size) {
    char full[96];
    snprintf(full, sizeof full, "%s-%s", name, suffix);
    pl_object_head(b, "v1", "PersistentVolumeClaim", full);
    pl_line(b, 0, NULL, "spec:");
    pl_line(b, 1, NULL, "accessModes: [%s]", mode);
    pl_line(b, 1, NULL, "resources:");
    pl_line(b, 2, NULL, "requests:");
    pl_line(b, 3, NULL, "storage: %s", size);
}

static bool wants_model_claim(const struct pl_manifest *m) { return m->model_dir != NULL && m->kube < 31; }

static void claims(const struct pl_manifest *m, struct pl_buf *b) {
    char size[24];
    if (pl_wants_cache_claim(m) && !m->sidecar) claim(b, m->name, "compile-cache", "ReadWriteMany", "10Gi");
    if (!wants_model_claim(m)) return;
    if (b->len > 0) pl_line(b, 0, NULL, "---");
    uint64_t gib = (m->measured->weights_bytes + ((uint64_t)1 << 30) - 1) >> 30;
    snprintf(size, sizeof size, "%lluGi", (unsigned long long)(gib > 0 ? gib + gib / 10 + 1 : 100));
    claim(b, m->name, "model", "ReadOnlyMany", size);
}

static void pool(const struct pl_manifest *m, struct pl_buf *b) {
    pl_object_head(b, "inference.networking.k8s.io/v1", "InferencePool", m->name);
    pl_line(b, 0, NULL, "spec:");
    selector(m, b, 1, "selector");
    pl_line(b, 1, NULL, "targetPorts:");
    pl_line(b, 2, NULL, "- number: %u", m->port);
    pl_line(b, 1, NULL, "endpointPickerRef:");
    pl_line(b, 2, NULL, "name: %s-epp", m->name);
    pl_line(b, 2, NULL, "port:");
    pl_line(b, 3, NULL, "number: 9002");
    pl_line(b, 2, "a dead picker must not be an outage: every pod still has its own line",
            "failureMode: FailOpen");
}

typedef void writer(const struct pl_manifest *m, struct pl_buf *b);

static void add(struct pl_manifest_set *set, const struct pl_manifest *m, const char *name, bool resource,
                writer *write) {
    struct pl_manifest_file *f = &set->files[set->count++];
    *f = (struct pl_manifest_file){ .name = name, .resource = resource };
    pl_buf_init(&f->text, 0);
    write(m, &f->text);
}

static void kustomization(const struct pl_manifest *m, struct pl_manifest_set *set) {
    struct pl_manifest_file *f = &set->files[set->count];
    *f = (struct pl_manifest_file){ .name = "kustomization.yaml" };
    pl_buf_init(&f->text, 0);
    pl_line(&f->text, 0, NULL, "apiVersion: kustomize.config.k8s.io/v1beta1");
    pl_line(&f->text, 0, NULL, "kind: Kustomization");
    pl_line(&f->text, 0, NULL, "resources:");
    for (size_t i = 0; i < set->count; i++)
        if (set->files[i].resource) pl_line(&f->text, 1, NULL, "- %s", set->files[i].name);
    if (!m->sidecar) {
        if (pl_size_strategy(&m->ask) == PL_STRATEGY_RECREATE) {
            pl_line(&f->text, 0, NULL, "generatorOptions:");
            pl_line(&f->text, 1, "a change of it is reloaded inside the pod (handover), not rolled out",
                    "disableNameSuffixHash: true");
        }
        pl_line(&f->text, 0, NULL, "configMapGenerator:");
        pl_line(&f->text, 1, NULL, "- name: %s-plimsoll", m->name);
        pl_line(&f->text, 2, NULL, "files:");
        pl_line(&f->text, 3, NULL, "- plimsoll.yaml");
        for (size_t i = 0; i < m->beside_count; i++) pl_line(&f->text, 3, NULL, "- %s", m->beside[i]);
    }
    set->count++;
}

void pl_manifest_objects(const struct pl_manifest *m, struct pl_manifest_set *out) {
    *out = (struct pl_manifest_set){ 0 };
    add(out, m, "deployment.yaml", true, pl_write_deployment);
    add(out, m, "service.yaml", true, service);
    add(out, m, "networkpolicy.yaml", true, network_policy);
    if ((pl_wants_cache_claim(m) && !m->sidecar) || wants_model_claim(m))
        add(out, m, "pvc.yaml", true, claims);
    if (m->ask.replicas > 1) add(out, m, "pdb.yaml", true, budget);
    if (m->scaler == PL_SCALER_HPA) add(out, m, "hpa.yaml", true, hpa);
    if (m->scaler == PL_SCALER_KEDA) add(out, m, "scaledobject.yaml", true, scaled_object);
    if (m->prewarm > 0) {
        add(out, m, "priorityclass.yaml", true, priority);
        add(out, m, "prewarm.yaml", true, pl_write_prewarm);
    }
    if (m->plain_rules) {
        add(out, m, "rules.yaml", false, plain_rules);
    } else {
        add(out, m, "podmonitor.yaml", true, pod_monitor);
        add(out, m, "prometheusrule.yaml", true, rule_object);
    }
    if (m->ask.front == PL_FRONT_PICKER) add(out, m, "inferencepool.yaml", true, pool);
    kustomization(m, out);
}

void pl_manifest_free(struct pl_manifest_set *set) {
    for (size_t i = 0; i < set->count; i++) pl_buf_free(&set->files[i].text);
    set->count = 0;
}
