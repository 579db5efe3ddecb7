/* manifest_text.c - what goes beside the objects: alert rules, the configuration, notes, image recipes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ship/manifest_inside.h"
#include "ship/tree.h"

/* --- alert rules: deploy/alerts.yaml with the two figures that depend on this start */

/* The line with every "630" (the start-up budget it was written for) replaced. */
static void put_budget(struct pl_buf *b, const char *line, size_t n, uint32_t budget_s) {
    const char *end = line + n;
    for (const char *at; (at = memmem(line, (size_t)(end - line), "630", 3)) != NULL; line = at + 3) {
        pl_buf_add(b, line, (size_t)(at - line));
        pl_buf_addf(b, "%u", budget_s);
    }
    pl_buf_add(b, line, (size_t)(end - line));
}

void pl_write_rules(const struct pl_manifest *m, unsigned depth, struct pl_buf *b) {
    uint32_t budget = m->size.start_budget_s, minutes = (uint32_t)ceil(1.1 * budget / 60);
    const char *at = m->alerts, *end = m->alerts + m->alerts_bytes;
    bool head = true;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop != NULL ? stop : end) - at);
        head = head && n > 0 && at[0] == '#'; /* its own preamble is about the file as it lies there */
        const char *wait = memmem(at, n, "for: 12m", 8), *computed = memmem(at, n, "# computed", 10);
        if (!head) {
            if (n > 0) pl_buf_addf(b, "%*s", (int)(2 * depth), "");
            if (wait != NULL && computed != NULL)
                pl_buf_addf(b, "%.*sfor: %um  # %s: 1.1 x the start-up budget (%u s), whole minutes",
                            (int)(wait - at), at, minutes, m->size.boot_known ? "computed" : "guessed",
                            budget);
            else
                put_budget(b, at, n, budget);
            pl_buf_adds(b, "\n");
        }
        at += n + 1;
    }
}

/* --- plimsoll.yaml */

/* Where a key of the top level begins and where its value's last line ends; false: it is not there. */
static bool lines_of(const struct pl_node *root, const char *key, uint32_t *from, uint32_t *to) {
    for (const struct pl_node *n = pl_node_first(root); n != NULL; n = n->next) {
        if (!pl_node_is(n->key, key)) continue;
        *from = n->key->line;
        *to = n->next != NULL ? n->next->key->line : UINT32_MAX;
        if (n->kind == PL_NODE_TEXT && n->line == n->key->line) *to = *from + 1;
        return true;
    }
    return false;
}

struct edit {
    uint32_t from, to; /* these lines go; equal: none */
    char text[400];    /* and this comes in their place */
};

static void set_top(struct edit *e, const struct pl_node *root, const char *key, const char *text) {
    if (!lines_of(root, key, &e->from, &e->to))
        e->from = e->to = pl_node_first(root) != NULL ? pl_node_first(root)->key->line : 1;
    snprintf(e->text, sizeof e->text, "%s\n", text);
}

/* A line in front of the first key of a service that is written as a block. */
static bool set_in_service(struct edit *e, const struct pl_node *root, const char *id, const char *key,
                           const char *text) {
    const struct pl_node *service = pl_node_path(root, "services", id, NULL), *first = pl_node_first(service);
    if (first == NULL || first->key == NULL || service->key == NULL ||
        first->key->line == service->key->line || pl_node_get(service, key) != NULL)
        return false;
    e->from = e->to = first->key->line;
    snprintf(e->text, sizeof e->text, "%*s%s\n", (int)first->key->col - 1, "", text);
    return true;
}

/* Listening on loopback only, nobody outside the pod comes in. */
static bool listens_inside(const struct pl_node *root) {
    const struct pl_node *n = pl_node_get(root, "listen");
    const char *text = pl_node_text(n);
    return strncmp(text, "127.", 4) == 0 || strncmp(text, "localhost", 9) == 0 ||
           strncmp(text, "[::1]", 5) == 0;
}

static void apply(const struct edit *edits, size_t count, const char *text, size_t len, struct pl_buf *out) {
    uint32_t line = 1;
    for (size_t at = 0; at < len || line == 1; line++) {
        const char *stop = memchr(text + at, '\n', len - at);
        size_t n = stop != NULL ? (size_t)(stop - (text + at)) + 1 : len - at;
        bool keep = true;
        for (size_t i = 0; i < count; i++) {
            if (edits[i].text[0] != '\0' && edits[i].from == line) pl_buf_adds(out, edits[i].text);
            keep = keep && !(line >= edits[i].from && line < edits[i].to);
        }
        /* comments and blank lines below a value that is replaced belong to what follows */
        if (keep || text[at] == '#' || text[at] == '\n') pl_buf_add(out, text + at, n);
        at += n;
        if (n == 0) break;
    }
    if (out->len > 0 && out->data[out->len - 1] != '\n') pl_buf_adds(out, "\n");
}

bool pl_manifest_config(const struct pl_manifest *m, const char *text, size_t len, const struct pl_node *root,
                        struct pl_buf *out) {
    struct edit edits[6] = { 0 };
    size_t n = 0;
    char line[300];
    const struct pl_node *first = pl_node_first(root);
    if (first != NULL && first->key == NULL) return false; /* a list is no configuration */
    if (first != NULL && first->key->col != pl_node_see(root)->col)
        return false; /* {a: b}: no lines to put in */
    if (listens_inside(root)) {
        snprintf(line, sizeof line,
                 "listen: 0.0.0.0:%u  # written by manifest: the kubelet and clients come from outside",
                 m->port);
        set_top(&edits[n++], root, "listen", line);
    }
    snprintf(
        line, sizeof line,
        "admin: 0.0.0.0:%u  # written by manifest: reading only; acting verbs go over run_dir/admin.sock",
        m->admin_port);
    set_top(&edits[n++], root, "admin", line);
    snprintf(line, sizeof line,
             "replicas: %u  # written by manifest: least number of pods; decides whether /readyz stays 200 "
             "in a handover",
             m->ask.replicas);
    set_top(&edits[n++], root, "replicas", line);
    if (pl_size_strategy(&m->ask) == PL_STRATEGY_RECREATE && pl_node_get(root, "reload") == NULL)
        set_top(
            &edits[n++], root, "reload",
            "reload: { watch: true }  # written by manifest: a ConfigMap is swapped, nobody sends SIGHUP");
    if (m->kube < 30 && pl_node_get(root, "drain_delay") == NULL) {
        snprintf(line, sizeof line,
                 "drain_delay: %us  # written by manifest: before 1.30 there is no preStop.sleep",
                 m->size.pre_stop_s);
        set_top(&edits[n++], root, "drain_delay", line);
    }
    snprintf(
        line, sizeof line,
        "start_timeout: %us  # written by manifest: ten seconds before the kubelet gives up, with the reason",
        m->size.start_timeout_s);
    n += set_in_service(&edits[n], root, m->service, "start_timeout", line);
    apply(edits, n, text, len, out);
    return true;
}

/* --- notes */

static void note(struct pl_buf *b, const char *text) { pl_buf_addf(b, "- %s\n", text); }

static void note_gap(const struct pl_manifest *m, struct pl_buf *b) {
    const struct pl_size *s = &m->size;
    pl_buf_addf(
        b,
        "- One pod, no spare GPU: a new image is a gap of about %.0f s (drain %u + stop %u + boot %.0f%s, "
        "and the pull on a new "
        "node).\n  Changes of plimsoll.yaml are taken inside the pod. No gap: --spare-gpu or --replicas 2.\n",
        s->drain_s + s->worker_stop_s + s->boot_s, s->drain_s, s->worker_stop_s, s->boot_s,
        s->boot_known ? "" : ", guessed");
    note(b, "To empty its node: kubectl cordon NODE, kubectl rollout restart with a GPU free elsewhere, then "
            "drain.\n"
            "  There is no PodDisruptionBudget: with one pod it would block every drain.");
}

void pl_manifest_notes(const struct pl_manifest *m, struct pl_buf *b) {
    const struct pl_size *s = &m->size;
    note(b, "Change image, namespace and where needed node selector and volume sizes in an overlay; the base "
            "is generated.");
    if (!s->boot_known || !s->host_known)
        note(
            b,
            "Guessed: what is marked so in comments. After the first pods ran, copy their flight record out\n"
            "  (kubectl cp POD:/var/lib/plimsoll/.../record.sqlite record.sqlite) and run manifest "
            "--measured record.sqlite again.");
    if (s->boot_known && s->margin > 2)
        note(b, "The start-up budget is 3 x the slowest boot: three boots, one of them with a cold page "
                "cache, would make it 1.5 x.");
    if (m->gpus_guessed) note(b, "How many GPUs it needs is guessed: set gpus in plimsoll.yaml.");
    if (s->grace_s > 600)
        note(b, "The grace period is over 600 s: the cluster autoscaler and spot machines cut sooner.");
    if (pl_size_strategy(&m->ask) == PL_STRATEGY_RECREATE) note_gap(m, b);
    if (m->scaler == PL_SCALER_HPA)
        note(b, "The HPA needs an adapter that serves custom.metrics.k8s.io. prometheus-adapter:\n"
                "  {seriesQuery: 'plimsoll_budget_used_ratio{namespace!=\"\",pod!=\"\"}', resources: "
                "{overrides: {namespace: {resource: namespace},\n"
                "  pod: {resource: pod}}}, metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by "
                "(<<.GroupBy>>)'}, and the same for\n"
                "  plimsoll_queue_requests.");
    if (m->scaler == PL_SCALER_KEDA)
        note(b, "KEDA makes its own HorizontalPodAutoscaler: keep no other beside it.");
    if ((m->vllm || m->sglang) && m->model_dir == NULL && !m->sidecar)
        note(b, "The command names no path of a model. The pod is offline: name a folder, such as "
                "/models/NAME, and it is mounted.");
    if (m->claim != NULL)
        note(b, "GPUs come by the ResourceClaimTemplate: it must ask for as many as plimsoll.yaml uses.");
    if (m->gpu_resource != NULL && strstr(m->gpu_resource, "mig") == NULL &&
        strcmp(m->gpu_resource, "nvidia.com/gpu") != 0)
        note(b, "Shared or time-sliced GPUs share their memory: the budget leaves out what others use, and "
                "cannot hold it back.");
    if (m->sidecar)
        note(b, "As a sidecar Plimsoll cannot replace the server without a loss, and sees no GPU: the entry "
                "point can.");
    for (size_t i = 0; i < m->secret_dir_count; i++)
        pl_buf_addf(b, "- Make the Secret %s-%s: its keys become the files of %s that plimsoll.yaml names.\n",
                    m->name, pl_secret_word(m->secret_dirs[i]), m->secret_dirs[i]);
    for (size_t i = 0; i < m->secret_env_count; i++)
        pl_buf_addf(b,
                    "- Make the Secret %s-env with the key %s: plimsoll.yaml takes it from that variable.\n",
                    m->name, m->secret_env[i]);
    if (m->plain_rules)
        note(b, "rules.yaml belongs under rule_files of Prometheus; scrape port admin of every pod.");
    note(b, "NetworkPolicy: the namespace of Prometheus is taken to be called monitoring; egress is empty, "
            "DNS included.");
}

/* --- images */

void pl_manifest_containerfile(const struct pl_manifest *m, const char *target, struct pl_buf *b) {
    static const char top[] =
        "# Layers from the rarest change to the most frequent one; each that did not change is neither "
        "pushed nor pulled.\n"
        "# registry.example is a placeholder. Written by plimsoll manifest --image.\n"
        "ARG BASE=debian:12-slim\n\n"
        "FROM ${BASE} AS python\n"
        "RUN apt-get update \\\n"
        "    && apt-get install -y --no-install-recommends python3 python3-venv libgomp1 \\\n"
        "    && rm -rf /var/lib/apt/lists/*\n"
        "COPY requirements.lock /build/requirements.lock\n"
        "# The PyTorch wheels carry the CUDA user-space libraries; the driver's libcuda comes from the "
        "node.\n"
        "RUN python3 -m venv /opt/venv \\\n"
        "    && /opt/venv/bin/pip install --no-cache-dir --no-compile --require-hashes -r "
        "/build/requirements.lock \\\n"
        "    && /opt/venv/bin/python -m compileall -q /opt/venv\n\n"
        "FROM ${BASE} AS run\n"
        "RUN apt-get update \\\n"
        "    && apt-get install -y --no-install-recommends \\\n"
        "           python3 libgomp1 libuv1 libssl3 libyaml-0-2 libjansson4 libsqlite3-0 \\\n"
        "    && rm -rf /var/lib/apt/lists/* \\\n"
        "    && useradd --uid 10001 --user-group --no-create-home --home-dir /cache/home plimsoll\n"
        "# 1. largest and rarest: Python packages\n"
        "COPY --link --from=python /opt/venv /opt/venv\n"
        "# 2. plimsoll: main, keeper and watch, and the Python side (a folder with its version in the name)\n"
        "COPY --link --from=registry.example/plimsoll:0.1.0 /usr/bin/plimsoll /usr/bin/plimsoll\n"
        "COPY --link --from=registry.example/plimsoll:0.1.0 /usr/libexec/plimsoll /usr/libexec/plimsoll\n"
        "COPY --link --from=registry.example/plimsoll:0.1.0 /usr/share/plimsoll /usr/share/plimsoll\n";
    pl_buf_adds(b, top);
    if (m->kind == PL_SHIP_PYTHON)
        pl_buf_adds(b, "# 3. the model, in front of the code because it changes less often; one COPY a shard "
                       "is pulled side by side\n"
                       "COPY --link models /opt/bentoml/models\n"
                       "# 4. the code: kilobytes\n"
                       "COPY --link *.py /app/\n\n"
                       "ENV BENTOML_HOME=/opt/bentoml \\\n"
                       "    HF_HUB_OFFLINE=1 \\\n"
                       "    TRANSFORMERS_OFFLINE=1 \\\n"
                       "    BENTOML_DO_NOT_TRACK=True \\\n");
    else
        pl_buf_adds(b, "# The model is no layer of this image: the manifest mounts it.\n\n"
                       "ENV HF_HUB_OFFLINE=1 \\\n"
                       "    TRANSFORMERS_OFFLINE=1 \\\n");
    pl_buf_addf(b, "    PYTHONDONTWRITEBYTECODE=1 \\\n    PATH=/opt/venv/bin:/usr/bin:/bin\nWORKDIR "
                   "/app\nUSER 10001:10001\n"
                   "STOPSIGNAL SIGTERM\nENTRYPOINT [\"/usr/bin/plimsoll\", \"serve\"]\n");
    if (m->kind == PL_SHIP_PYTHON) pl_buf_addf(b, "CMD [\"%s\"]\n", target);
}

void pl_manifest_bento(const struct pl_manifest *m, struct pl_buf *b) {
    static const char *const variables[][2] = { { "HF_HUB_OFFLINE", "1" },
                                                { "TRANSFORMERS_OFFLINE", "1" },
                                                { "BENTOML_DO_NOT_TRACK", "True" } };
    pl_buf_adds(
        b, "# Lines for bentofile.yaml: the bento's image is built on one that has plimsoll inside (below).\n"
           "docker:\n"
           "  base_image: registry.example/python-plimsoll:3.11-0.1.0\n"
           "envs:\n");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        pl_buf_addf(b, "  - name: %s\n    value: \"%s\"\n", variables[i][0], variables[i][1]);
    pl_buf_addf(
        b,
        "---\n"
        "# Containerfile of that base image, built once a version:\n"
        "#   FROM python:3.11-slim-bookworm\n"
        "#   RUN apt-get update \\\n"
        "#       && apt-get install -y --no-install-recommends libuv1 libssl3 libyaml-0-2 libjansson4 "
        "libsqlite3-0 \\\n"
        "#       && rm -rf /var/lib/apt/lists/*\n"
        "#   COPY --from=registry.example/plimsoll:0.1.0 /usr/bin/plimsoll /usr/bin/plimsoll\n"
        "#   COPY --from=registry.example/plimsoll:0.1.0 /usr/libexec/plimsoll /usr/libexec/plimsoll\n"
        "#   COPY --from=registry.example/plimsoll:0.1.0 /usr/share/plimsoll /usr/share/plimsoll\n"
        "#\n"
        "# The entry point, in the container of the pod (BentoML's own script enters its environment and "
        "hands over PID 1):\n"
        "image: %s\n"
        "command: [/home/bentoml/bento/env/docker/entrypoint.sh]\n"
        "args: [/usr/bin/plimsoll, serve, --config, /etc/plimsoll/plimsoll.yaml]\n"
        "# with `run: /home/bentoml/bento` in plimsoll.yaml\n",
        m->image);
}
