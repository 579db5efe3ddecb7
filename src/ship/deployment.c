/* deployment.c - the Deployment, with Plimsoll as the entry point or as a sidecar in front. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ship/manifest_inside.h"

enum { MIB_BYTES = 1 << 20 };

void pl_line(struct pl_buf *b, unsigned depth, const char *why, const char *fmt, ...) {
    char text[600];
    va_list words;
    va_start(words, fmt);
    vsnprintf(text, sizeof text, fmt, words);
    va_end(words);
    pl_buf_addf(b, "%*s%s", (int)(2 * depth), "", text);
    if (why != NULL) pl_buf_addf(b, "  # %s", why);
    pl_buf_adds(b, "\n");
}

const char *pl_why(struct pl_why *room, bool known, const char *fmt, ...) {
    char text[150];
    va_list words;
    va_start(words, fmt);
    vsnprintf(text, sizeof text, fmt, words);
    va_end(words);
    snprintf(room->text, sizeof room->text, "%s: %s", known ? "computed" : "guessed", text);
    return room->text;
}

void pl_object_head(struct pl_buf *b, const char *version, const char *kind, const char *name) {
    pl_line(b, 0, NULL, "apiVersion: %s", version);
    pl_line(b, 0, NULL, "kind: %s", kind);
    pl_line(b, 0, NULL, "metadata:");
    pl_line(b, 1, NULL, "name: %s", name);
}

bool pl_wants_cache_claim(const struct pl_manifest *m) { return (m->vllm || m->sglang) && m->ask.gpus > 0; }

static const char *gpu_word(const struct pl_manifest *m) {
    return m->gpu_resource != NULL ? m->gpu_resource : "nvidia.com/gpu";
}

static void strategy(const struct pl_manifest *m, struct pl_buf *b) {
    switch (pl_size_strategy(&m->ask)) {
    case PL_STRATEGY_RECREATE:
        pl_line(b, 1, NULL, "strategy:");
        pl_line(b, 2, "no spare GPU: a surge pod would stay Pending for ever", "type: Recreate");
        return;
    case PL_STRATEGY_SURGE:
        pl_line(b, 1, NULL, "minReadySeconds: %d", m->ask.gpus > 0 ? 10 : 5);
        pl_line(b, 1, NULL, "strategy:");
        pl_line(b, 2, NULL, "type: RollingUpdate");
        pl_line(b, 2, NULL, "rollingUpdate:");
        pl_line(b, 3, NULL, "maxSurge: 1");
        pl_line(b, 3,
                m->ask.gpus > 0 ? "a spare GPU: the successor is ready first"
                                : "CPU only: a surge pod always finds room",
                "maxUnavailable: 0");
        return;
    case PL_STRATEGY_ONE_DOWN:
        pl_line(b, 1, NULL, "minReadySeconds: 10");
        pl_line(b, 1, NULL, "strategy:");
        pl_line(b, 2, NULL, "type: RollingUpdate");
        pl_line(b, 2, NULL, "rollingUpdate:");
        pl_line(b, 3, "no spare GPU", "maxSurge: 0");
        pl_line(b, 3, "the others carry the traffic", "maxUnavailable: 1");
        return;
    }
}

static void annotations(const struct pl_manifest *m, struct pl_buf *b) {
    const struct pl_size *s = &m->size;
    struct pl_why why;
    char text[120];
    pl_line(b, 3, NULL, "annotations:");
    pl_line(b, 4, NULL, "kubectl.kubernetes.io/default-container: %s", m->sidecar ? "server" : "plimsoll");
    if (s->boot_known) {
        snprintf(text, sizeof text, "measured: slowest of %u boot%s, %s", m->measured->boot_count,
                 m->measured->boot_count == 1 ? "" : "s",
                 m->measured->cold_boot ? "cold page cache included" : "none of them known to be cold");
        pl_line(b, 4, text, "plimsoll/boot-seconds: \"%g\"", s->boot_s);
    }
    snprintf(text, sizeof text, "computed: longest request %g + queue wait %g", m->longest_s, m->wait_s);
    pl_line(b, 4, text, "plimsoll/drain-seconds: \"%u\"", s->drain_s);
    pl_line(b, 4, s->stop_known ? "measured: SIGTERM to the end" : pl_why(&why, false, "SIGTERM to the end"),
            "plimsoll/worker-stop-seconds: \"%u\"", s->worker_stop_s);
    if (s->host_known)
        pl_line(b, 4, "measured: not reclaimable, during load and one replacement",
                "plimsoll/host-peak-bytes: \"%llu\"", (unsigned long long)s->peak_bytes);
    if (m->measured->gpu_name[0] != '\0')
        pl_line(b, 4, NULL, "plimsoll/measured-on: %s", m->measured->gpu_name);
}

static void spread(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    static const char *const keys[] = { "kubernetes.io/hostname", "topology.kubernetes.io/zone" };
    if (m->ask.replicas < 2) return;
    pl_line(b, depth, NULL, "topologySpreadConstraints:");
    for (size_t i = 0; i < (m->ask.gpus > 0 ? 2 : 1); i++) {
        pl_line(b, depth + 1, NULL, "- maxSkew: 1");
        pl_line(b, depth + 2, NULL, "topologyKey: %s", keys[i]);
        pl_line(b, depth + 2, "DoNotSchedule would strand pods when GPUs are scarce",
                "whenUnsatisfiable: ScheduleAnyway");
        if (m->ask.gpus > 0) pl_line(b, depth + 2, NULL, "nodeTaintsPolicy: Honor");
        pl_line(b, depth + 2, NULL, "matchLabelKeys: [pod-template-hash]");
        pl_line(b, depth + 2, NULL, "labelSelector:");
        pl_line(b, depth + 3, NULL, "matchLabels:");
        pl_line(b, depth + 4, NULL, "app.kubernetes.io/name: %s", m->name);
    }
}

void pl_pod_spec_head(struct pl_buf *b, const struct pl_manifest *m, unsigned depth, bool placeholder) {
    struct pl_why why;
    pl_line(b, depth, NULL, "automountServiceAccountToken: false");
    pl_line(b, depth,
            placeholder ? NULL : "a Service called vllm or plimsoll would set variables of that name",
            "enableServiceLinks: false");
    if (placeholder)
        pl_line(b, depth, "gives the node back at once when a serving pod needs it",
                "terminationGracePeriodSeconds: 0");
    else
        pl_line(b, depth,
                pl_why(&why, m->size.stop_known, "preStop %u + drain %u + worker stop %u + 5",
                       m->size.pre_stop_s, m->size.drain_s, m->size.worker_stop_s),
                "terminationGracePeriodSeconds: %u", m->size.grace_s);
    if (m->prewarm > 0)
        pl_line(b, depth, NULL, "priorityClassName: plimsoll-%s", placeholder ? "placeholder" : "serving");
    if (m->runtime_class != NULL) pl_line(b, depth, NULL, "runtimeClassName: %s", m->runtime_class);
    if (m->ask.gpus > 0 && m->measured->gpu_name[0] != '\0') {
        pl_line(b, depth, NULL, "nodeSelector:");
        pl_line(b, depth + 1, "measured: the numbers in this file hold for this GPU",
                "nvidia.com/gpu.product: %s", m->measured->gpu_name);
    }
    if (m->ask.gpus > 0) {
        pl_line(b, depth, NULL, "tolerations:");
        pl_line(b, depth + 1, NULL, "- key: nvidia.com/gpu");
        pl_line(b, depth + 2, NULL, "operator: Exists");
        pl_line(b, depth + 2, NULL, "effect: NoSchedule");
    }
    if (m->claim != NULL && m->ask.gpus > 0) {
        pl_line(b, depth, NULL, "resourceClaims:");
        pl_line(b, depth + 1, NULL, "- name: gpu");
        pl_line(b, depth + 2, NULL, "resourceClaimTemplateName: %s", m->claim);
    }
    if (!placeholder) spread(m, depth, b);
    pl_line(b, depth, NULL, "securityContext:");
    pl_line(b, depth + 1, NULL, "runAsNonRoot: true");
    pl_line(b, depth + 1, NULL, "runAsUser: 10001");
    if (!placeholder && !m->sidecar) {
        pl_line(b, depth + 1, NULL, "runAsGroup: 10001");
        pl_line(b, depth + 1, NULL, "fsGroup: 10001");
        if (m->ask.gpus > 0) pl_line(b, depth + 1, NULL, "fsGroupChangePolicy: OnRootMismatch");
    }
    pl_line(b, depth + 1, NULL, "seccompProfile:");
    pl_line(b, depth + 2, NULL, "type: RuntimeDefault");
}

static void put_cpu(struct pl_buf *b, unsigned depth, const char *why, uint32_t millis) {
    if (millis % 1000 == 0)
        pl_line(b, depth, why, "cpu: \"%u\"", millis / 1000);
    else
        pl_line(b, depth, why, "cpu: %um", millis);
}

void pl_container_resources(struct pl_buf *b, const struct pl_manifest *m, unsigned depth, bool disk) {
    const struct pl_size *s = &m->size;
    struct pl_why cpu, memory;
    bool gpu = m->ask.gpus > 0;
    pl_why(&cpu, s->cpu_known, "1.5 x p95 while serving, at least 0.5%s",
           gpu ? ", and one a GPU for the load" : "");
    pl_why(&memory, s->host_known, "1.2 x peak%s%s, rounded to 256 MiB",
           m->ask.keep_weights_cached ? " + weights kept in page cache" : "",
           s->shm_guessed ? " + /dev/shm" : "");
    pl_line(b, depth, NULL, "resources:");
    pl_line(b, depth + 1, NULL, "requests:");
    put_cpu(b, depth + 2, cpu.text, s->cpu_millis);
    pl_line(b, depth + 2, NULL, "memory: %uMi", s->memory_mib);
    if (disk) pl_line(b, depth + 2, NULL, "ephemeral-storage: 2Gi");
    pl_line(b, depth + 1, NULL, "limits:");
    if (m->ask.guaranteed)
        put_cpu(b, depth + 2, "guaranteed: whole cores, pinned where the node's CPU manager is static",
                s->cpu_millis);
    if (gpu && m->claim == NULL)
        pl_line(b, depth + 2, m->gpus_guessed ? "guessed: set gpus in plimsoll.yaml" : NULL, "%s: \"%u\"",
                gpu_word(m), m->ask.gpus);
    pl_line(b, depth + 2, memory.text, "memory: %uMi", s->memory_mib);
    if (disk) pl_line(b, depth + 2, NULL, "ephemeral-storage: 8Gi");
    if (gpu && m->claim != NULL) pl_line(b, depth + 1, NULL, "claims: [{ name: gpu }]");
}

/* The last part of a folder's path: the Secret that is mounted there is called so. */
const char *pl_secret_word(const char *folder) {
    const char *slash = strrchr(folder, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : "files";
}

static void probe(const struct pl_manifest *m, struct pl_buf *b, unsigned depth, const char *name,
                  const char *path, const char *port, uint32_t period, uint32_t timeout, uint32_t failures,
                  const char *why) {
    pl_line(b, depth, NULL, "%s:", name);
    pl_line(b, depth + 1, NULL, "httpGet: { path: %s, port: %s%s }", path, port,
            m->tls && !m->sidecar ? ", scheme: HTTPS" : "");
    pl_line(b, depth + 1, NULL, "periodSeconds: %u", period);
    pl_line(b, depth + 1, NULL, "timeoutSeconds: %u", timeout);
    pl_line(b, depth + 1, why, "failureThreshold: %u", failures);
}

static const char *start_why(struct pl_why *why, const struct pl_manifest *m) {
    return pl_why(why, m->size.boot_known, "%u s from boot %g s x %g, at least 60", m->size.start_budget_s,
                  m->size.boot_s, m->size.margin);
}

static void right_probes(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    struct pl_why why;
    probe(m, b, depth, "startupProbe", "/readyz", "http", m->size.start_period_s, 3, m->size.start_failures,
          start_why(&why, m));
    probe(m, b, depth, "readinessProbe", "/readyz", "http", 2, 2, 2, NULL);
    probe(m, b, depth, "livenessProbe", "/livez", "http", 10, 5, 6, NULL);
}

static void rights(struct pl_buf *b, unsigned depth, bool read_only) {
    pl_line(b, depth, NULL, "securityContext:");
    pl_line(b, depth + 1, NULL, "allowPrivilegeEscalation: false");
    if (read_only) pl_line(b, depth + 1, NULL, "readOnlyRootFilesystem: true");
    pl_line(b, depth + 1, NULL, "capabilities:");
    pl_line(b, depth + 2, NULL, "drop: [ALL]");
}

static void variable(struct pl_buf *b, unsigned depth, const char *name, const char *value) {
    pl_line(b, depth, NULL, "- name: %s", name);
    pl_line(b, depth + 1, NULL, "value: %s", value);
}

/* The hub is never asked at run time; caches go where there is room to write. */
static void environment(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    bool gpu = m->ask.gpus > 0;
    pl_line(b, depth, NULL, "env:");
    variable(b, depth + 1, "HF_HUB_OFFLINE", "\"1\"");
    if (gpu) variable(b, depth + 1, "TRANSFORMERS_OFFLINE", "\"1\"");
    if (m->vllm) variable(b, depth + 1, "VLLM_NO_USAGE_STATS", "\"1\"");
    if (m->kind == PL_SHIP_PYTHON) variable(b, depth + 1, "BENTOML_DO_NOT_TRACK", "\"True\"");
    variable(b, depth + 1, "HOME", gpu ? "/cache/home" : "/tmp");
    if (gpu) {
        variable(b, depth + 1, "XDG_CACHE_HOME", "/cache/xdg");
        if (m->vllm) variable(b, depth + 1, "VLLM_CACHE_ROOT", "/cache/vllm");
        variable(b, depth + 1, "TRITON_CACHE_DIR", "/cache/triton");
        variable(b, depth + 1, "TORCHINDUCTOR_CACHE_DIR", "/cache/inductor");
        variable(b, depth + 1, "CUDA_CACHE_PATH", "/cache/cuda");
    }
    if (m->kind == PL_SHIP_PYTHON) variable(b, depth + 1, "PYTHONDONTWRITEBYTECODE", "\"1\"");
    for (size_t i = 0; i < m->secret_env_count; i++) {
        pl_line(b, depth + 1, NULL, "- name: %s", m->secret_env[i]);
        pl_line(b, depth + 2, NULL, "valueFrom:");
        pl_line(b, depth + 3, NULL, "secretKeyRef: { name: %s-env, key: %s }", m->name, m->secret_env[i]);
    }
}

void pl_model_volume(struct pl_buf *b, const struct pl_manifest *m, unsigned depth) {
    pl_line(b, depth, NULL, "- name: model");
    if (m->kube >= 31) {
        pl_line(b, depth + 1, "pulled by the node before the container starts", "image:");
        pl_line(b, depth + 2, NULL, "reference: registry.example/models/%s:1.0.0", m->name);
        pl_line(b, depth + 2, NULL, "pullPolicy: IfNotPresent");
        return;
    }
    pl_line(b, depth + 1, "filled once; many pods read it", "persistentVolumeClaim:");
    pl_line(b, depth + 2, NULL, "claimName: %s-model", m->name);
    pl_line(b, depth + 2, NULL, "readOnly: true");
}

static void mounts(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    pl_line(b, depth, NULL, "volumeMounts:");
    pl_line(b, depth + 1, NULL, "- { name: config, mountPath: /etc/plimsoll, readOnly: true }");
    for (size_t i = 0; i < m->secret_dir_count; i++)
        pl_line(b, depth + 1, NULL, "- { name: secret-%zu, mountPath: %s, readOnly: true }", i + 1,
                m->secret_dirs[i]);
    if (m->model_dir != NULL)
        pl_line(b, depth + 1, NULL, "- { name: model, mountPath: %s, readOnly: true }", m->model_dir);
    if (m->size.shm_mib > 0) pl_line(b, depth + 1, NULL, "- { name: shm, mountPath: /dev/shm }");
    pl_line(b, depth + 1, NULL, "- { name: run, mountPath: %s }", m->run_dir);
    pl_line(b, depth + 1, NULL, "- { name: record, mountPath: %s }", m->state_dir);
    if (m->ask.gpus > 0) pl_line(b, depth + 1, NULL, "- { name: cache, mountPath: /cache }");
    pl_line(b, depth + 1, NULL, "- { name: tmp, mountPath: /tmp }");
}

static void shm_volume(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    struct pl_why why;
    if (m->size.shm_mib == 0) return;
    pl_line(b, depth, NULL, "- name: shm");
    pl_line(b, depth + 1,
            pl_why(&why, !m->size.shm_guessed, m->size.shm_guessed ? "1 GiB a GPU" : "2 x peak"),
            "emptyDir: { medium: Memory, sizeLimit: %uMi }", m->size.shm_mib);
}

static unsigned record_gib(const struct pl_manifest *m) {
    return (unsigned)((2 * m->record_bytes + ((uint64_t)1 << 30) - 1) >> 30) + (m->ask.gpus > 1);
}

static void volumes(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    pl_line(b, depth, NULL, "volumes:");
    pl_line(b, depth + 1, NULL, "- name: config");
    pl_line(b, depth + 2, NULL, "configMap:");
    pl_line(b, depth + 3, NULL, "name: %s-plimsoll", m->name);
    for (size_t i = 0; i < m->secret_dir_count; i++) {
        pl_line(b, depth + 1, NULL, "- name: secret-%zu", i + 1);
        pl_line(b, depth + 2, NULL, "secret:");
        pl_line(b, depth + 3, NULL, "secretName: %s-%s", m->name, pl_secret_word(m->secret_dirs[i]));
        pl_line(b, depth + 3, "not for others to read, or plimsoll refuses it", "defaultMode: 0440");
    }
    if (m->model_dir != NULL) pl_model_volume(b, m, depth + 1);
    shm_volume(m, depth + 1, b);
    pl_line(b, depth + 1, "sockets; also each generation's temp folder and multiprocess metrics",
            "- name: run");
    pl_line(b, depth + 2, NULL, "emptyDir: { sizeLimit: 1Gi }");
    pl_line(b, depth + 1, "the flight record: survives a restart of the container, not the pod",
            "- name: record");
    pl_line(b, depth + 2, NULL, "emptyDir: { sizeLimit: %uGi }", record_gib(m));
    if (pl_wants_cache_claim(m)) {
        pl_line(b, depth + 1, NULL, "- name: cache");
        pl_line(b, depth + 2, NULL, "persistentVolumeClaim:");
        pl_line(b, depth + 3, "survives the pod: the second boot does not compile again",
                "claimName: %s-compile-cache", m->name);
    } else if (m->ask.gpus > 0) {
        pl_line(b, depth + 1, NULL, "- name: cache");
        pl_line(b, depth + 2, NULL, "emptyDir: { sizeLimit: 2Gi }");
    }
    pl_line(b, depth + 1, NULL, "- name: tmp");
    pl_line(b, depth + 2, NULL, "emptyDir: { sizeLimit: 1Gi }");
}

static void lifecycle(const struct pl_manifest *m, unsigned depth, uint32_t seconds, const char *why,
                      struct pl_buf *b) {
    if (m->drain_delay) return;
    pl_line(b, depth, NULL, "lifecycle:");
    pl_line(b, depth + 1, NULL, "preStop:");
    pl_line(b, depth + 2, why, "sleep: { seconds: %u }", seconds);
}

static void ports(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    pl_line(b, depth, NULL, "ports:");
    pl_line(b, depth + 1, NULL, "- name: http");
    pl_line(b, depth + 2, NULL, "containerPort: %u", m->port);
    pl_line(b, depth + 1, NULL, "- name: admin");
    pl_line(b, depth + 2, NULL, "containerPort: %u", m->admin_port);
}

static void entry_point(const struct pl_manifest *m, struct pl_buf *b) {
    pl_line(b, 3, NULL, "containers:");
    pl_line(b, 4, NULL, "- name: plimsoll");
    pl_line(b, 5, "a version tag or a digest, never :latest", "image: %s", m->image);
    pl_line(b, 5, NULL, "imagePullPolicy: IfNotPresent");
    pl_line(b, 5, NULL,
            "command: [\"/usr/bin/plimsoll\", \"serve\", \"--config\", \"/etc/plimsoll/plimsoll.yaml\"]");
    ports(m, 5, b);
    environment(m, 5, b);
    pl_container_resources(b, m, 5, m->ask.gpus > 0);
    right_probes(m, 5, b);
    lifecycle(m, 5, m->size.pre_stop_s, "until everybody has looked away; /readyz stays 200 meanwhile", b);
    pl_line(b, 5, NULL, "terminationMessagePolicy: FallbackToLogsOnError");
    rights(b, 5, true);
    mounts(m, 5, b);
    volumes(m, 3, b);
}

static void guard(const struct pl_manifest *m, struct pl_buf *b) {
    pl_line(b, 3, NULL, "initContainers:");
    pl_line(b, 4, NULL, "- name: plimsoll");
    pl_line(b, 5, "a native sidecar: starts first, goes on, ends last", "restartPolicy: Always");
    pl_line(b, 5, NULL, "image: registry.example/plimsoll:0.1.0");
    pl_line(
        b, 5, NULL,
        "args: [\"serve\", \"--listen\", \"0.0.0.0:%u\", \"--admin\", \"0.0.0.0:%u\", \"--name\", \"%s\", "
        "\"http://127.0.0.1:%u\"]",
        m->port, m->admin_port, m->service, m->guarded_port);
    ports(m, 5, b);
    pl_line(b, 5, NULL, "resources:");
    pl_line(b, 6, NULL, "requests: { cpu: 250m, memory: 256Mi }");
    pl_line(b, 6, NULL,
            m->ask.guaranteed ? "limits: { cpu: 250m, memory: 256Mi }" : "limits: { memory: 256Mi }");
    probe(m, b, 5, "startupProbe", "/livez", "http", 1, 3, 60,
          "never /readyz: the next container starts only when this succeeds");
    probe(m, b, 5, "readinessProbe", "/readyz", "http", 2, 2, 2,
          "counts for the pod: ready when the guarded server really answers");
    probe(m, b, 5, "livenessProbe", "/livez", "http", 10, 5, 6, NULL);
    rights(b, 5, true);
    pl_line(b, 5, NULL, "volumeMounts:");
    pl_line(b, 6, NULL, "- { name: run, mountPath: %s }", m->run_dir);
    pl_line(b, 6, NULL, "- { name: record, mountPath: %s }", m->state_dir);
}

static void guarded(const struct pl_manifest *m, struct pl_buf *b) {
    struct pl_why why;
    char port[8], live[64], text[120];
    snprintf(port, sizeof port, "%u", m->port);
    snprintf(live, sizeof live, "/livez/%s", m->service);
    pl_line(b, 3, NULL, "containers:");
    pl_line(b, 4, NULL, "- name: server");
    pl_line(b, 5, "yours, as it is; it listens on 127.0.0.1", "image: %s", m->image);
    pl_line(b, 5, NULL, "imagePullPolicy: IfNotPresent");
    pl_line(b, 5, NULL, "env:");
    variable(b, 6, "HF_HUB_OFFLINE", "\"1\"");
    pl_container_resources(b, m, 5, false);
    probe(m, b, 5, "startupProbe", "/readyz", port, m->size.start_period_s, 3, m->size.start_failures,
          start_why(&why, m));
    probe(m, b, 5, "livenessProbe", live, port, 10, 5, 6,
          "the sidecar judges progress, the kubelet restarts this container");
    snprintf(text, sizeof text, "%u + drain %u: the sidecar hears of the end only after this container",
             m->size.pre_stop_s, m->size.drain_s);
    lifecycle(m, 5, m->size.pre_stop_s + m->size.drain_s, text, b);
    rights(b, 5, false);
    if (m->model_dir != NULL || m->size.shm_mib > 0) pl_line(b, 5, NULL, "volumeMounts:");
    if (m->model_dir != NULL)
        pl_line(b, 6, NULL, "- { name: model, mountPath: %s, readOnly: true }", m->model_dir);
    if (m->size.shm_mib > 0) pl_line(b, 6, NULL, "- { name: shm, mountPath: /dev/shm }");
    pl_line(b, 3, NULL, "volumes:");
    if (m->model_dir != NULL) pl_model_volume(b, m, 4);
    shm_volume(m, 4, b);
    pl_line(b, 4, NULL, "- name: run");
    pl_line(b, 5, NULL, "emptyDir: { medium: Memory, sizeLimit: 16Mi }");
    pl_line(b, 4, NULL, "- name: record");
    pl_line(b, 5, NULL, "emptyDir: { sizeLimit: %uGi }", record_gib(m));
}

void pl_write_deployment(const struct pl_manifest *m, struct pl_buf *b) {
    struct pl_why why;
    pl_line(b, 0, NULL, "# Written by plimsoll manifest%s%s. What is guessed says so:",
            m->measured->from[0] != '\0' ? " from " : "", m->measured->from);
    pl_line(b, 0, NULL,
            "# run plimsoll manifest --measured after the first boot. Changes belong in an overlay.");
    pl_object_head(b, "apps/v1", "Deployment", m->name);
    pl_line(b, 1, NULL, "labels:");
    pl_line(b, 2, NULL, "app.kubernetes.io/name: %s", m->name);
    pl_line(b, 2, NULL, "app.kubernetes.io/managed-by: plimsoll");
    pl_line(b, 0, NULL, "spec:");
    if (m->scaler == PL_SCALER_NONE)
        pl_line(b, 1, NULL, "replicas: %u", m->ask.replicas);
    else
        pl_line(b, 1, NULL, "# no replicas: the autoscaler owns the count (at least %u)", m->ask.replicas);
    pl_line(b, 1, NULL, "revisionHistoryLimit: 3");
    pl_line(b, 1,
            pl_why(&why, m->size.boot_known, "max(600, 1.5 x (schedule + pull + startup budget %u))",
                   m->size.start_budget_s),
            "progressDeadlineSeconds: %u", m->size.deadline_s);
    strategy(m, b);
    pl_line(b, 1, NULL, "selector:");
    pl_line(b, 2, NULL, "matchLabels:");
    pl_line(b, 3, NULL, "app.kubernetes.io/name: %s", m->name);
    pl_line(b, 1, NULL, "template:");
    pl_line(b, 2, NULL, "metadata:");
    pl_line(b, 3, NULL, "labels:");
    pl_line(b, 4, NULL, "app.kubernetes.io/name: %s", m->name);
    if (m->ask.front == PL_FRONT_PICKER) {
        pl_line(b, 4, "the vllm: names are served for every kind of worker", "llm-d.ai/engine-type: vllm");
        pl_line(b, 4, NULL, "inference.networking.k8s.io/engine-type: vllm");
    }
    annotations(m, b);
    pl_line(b, 2, NULL, "spec:");
    pl_pod_spec_head(b, m, 3, false);
    if (m->sidecar) {
        guard(m, b);
        guarded(m, b);
    } else {
        entry_point(m, b);
    }
}

void pl_write_prewarm(const struct pl_manifest *m, struct pl_buf *b) {
    char name[80];
    snprintf(name, sizeof name, "%s-prewarm", m->name);
    pl_object_head(b, "apps/v1", "Deployment", name);
    pl_line(b, 1, NULL, "labels:");
    pl_line(b, 2, NULL, "app.kubernetes.io/name: %s", name);
    pl_line(b, 0, NULL, "spec:");
    pl_line(b, 1, NULL, "replicas: %u", m->prewarm);
    pl_line(b, 1, NULL, "selector:");
    pl_line(b, 2, NULL, "matchLabels:");
    pl_line(b, 3, NULL, "app.kubernetes.io/name: %s", name);
    pl_line(b, 1, NULL, "template:");
    pl_line(b, 2, NULL, "metadata:");
    pl_line(b, 3, NULL, "labels:");
    pl_line(b, 4, NULL, "app.kubernetes.io/name: %s", name);
    pl_line(b, 2, NULL, "spec:");
    pl_pod_spec_head(b, m, 3, true);
    pl_line(b, 3, NULL, "containers:");
    pl_line(b, 4, NULL, "- name: hold");
    pl_line(b, 5, "the service's own image: the node pulls it now", "image: %s", m->image);
    pl_line(b, 5, NULL, "imagePullPolicy: IfNotPresent");
    pl_line(b, 5, NULL, "command: [\"/usr/bin/plimsoll\", \"hold\", \"%s\"]",
            m->model_dir != NULL ? m->model_dir : "/usr/bin/plimsoll");
    pl_container_resources(b, m, 5, false);
    rights(b, 5, true);
    if (m->model_dir == NULL) return;
    pl_line(b, 5, NULL, "volumeMounts:");
    pl_line(b, 6, NULL, "- { name: model, mountPath: %s, readOnly: true }", m->model_dir);
    pl_line(b, 3, NULL, "volumes:");
    pl_model_volume(b, m, 4);
}
