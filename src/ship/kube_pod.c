/* kube_pod.c - the rules on a Deployment and its containers. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ship/kube_inside.h"

enum { TEXT_BYTES = 4096, LEAST_LIVENESS_S = 30 };
#define POD "spec.template.spec"

struct facts {
    struct pl_kube *k;
    const struct pl_kube_object *o;
    const struct pl_node *spec, *pod;
    struct pl_kube_measured m;
};
struct container {
    const struct pl_node *node;
    bool init, sidecar; /* sidecar: an init container that goes on */
    char path[64];
};

static const struct pl_node *either(const struct pl_node *n, const struct pl_node *otherwise) {
    return n != NULL ? n : otherwise;
}

static double annotation(const struct facts *f, const char *key) {
    double x;
    const struct pl_node *n =
        pl_node_get(pl_node_path(f->spec, "template", "metadata", "annotations", NULL), key);
    return pl_node_number(n, &x) && x > 0 ? x : 0;
}

static double known(double measured, double annotated) { return measured > 0 ? measured : annotated; }

/* command and args as one line, cut at TEXT_BYTES */
static void words_of(const struct container *c, char out[TEXT_BYTES]) {
    static const char *const keys[] = { "command", "args" };
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < 2; i++)
        for (const struct pl_node *n = pl_node_first(pl_node_get(c->node, keys[i])); n != NULL; n = n->next) {
            int more = snprintf(out + used, TEXT_BYTES - used, "%s%s", used > 0 ? " " : "", pl_node_text(n));
            if (more < 0 || used + (size_t)more >= TEXT_BYTES) return;
            used += (size_t)more;
        }
}

static bool has_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += n) {
        bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        bool ends = !(isalnum((unsigned char)at[n]) || at[n] == '_');
        if (begins && ends) return true;
    }
    return false;
}

static bool is_gpu(const char *resource) {
    return strncmp(resource, "nvidia.com/", 11) == 0 || strcmp(resource, "amd.com/gpu") == 0 ||
           strncmp(resource, "gpu.intel.com/", 14) == 0;
}

static double gpus_of(const struct pl_node *container) {
    double sum = 0, x;
    for (const struct pl_node *n = pl_node_first(pl_node_path(container, "resources", "limits", NULL));
         n != NULL; n = n->next)
        if (is_gpu(pl_node_text(n->key)) && pl_kube_quantity(pl_node_text(n), &x)) sum += x;
    return sum;
}

/* --- probes */

static double window(const struct pl_node *probe, bool with_delay) {
    double delay = with_delay ? pl_node_number_or(pl_node_get(probe, "initialDelaySeconds"), 0) : 0;
    return delay + pl_node_number_or(pl_node_get(probe, "periodSeconds"), 10) *
                       pl_node_number_or(pl_node_get(probe, "failureThreshold"), 3);
}

static const char *path_of(const struct pl_node *probe) {
    const struct pl_node *path = pl_node_path(probe, "httpGet", "path", NULL);
    return path != NULL ? pl_node_text(path) : "/";
}

/* The number behind a port's name; a number is itself. */
static const char *port_of(const struct pl_node *container, const struct pl_node *probe) {
    const char *port = pl_node_text(pl_node_path(probe, "httpGet", "port", NULL));
    for (const struct pl_node *n = pl_node_first(pl_node_get(container, "ports")); n != NULL; n = n->next)
        if (pl_node_is(pl_node_get(n, "name"), port)) return pl_node_text(pl_node_get(n, "containerPort"));
    return port;
}

static void check_probe(struct facts *f, const struct container *c, const char *name) {
    const struct pl_node *probe = pl_node_get(c->node, name), *n;
    if (probe == NULL) return;
    n = pl_node_get(probe, "initialDelaySeconds");
    if (pl_node_number_or(n, 0) > 0)
        pl_kube_found(f->k, PL_K003, f->o, n, "%s.%s.initialDelaySeconds", c->path, name);
    n = pl_node_get(probe, "timeoutSeconds");
    if (pl_node_number_or(n, 1) <= 1)
        pl_kube_found(f->k, PL_K005, f->o, either(n, probe), "%s.%s.timeoutSeconds", c->path, name);
    n = pl_node_get(probe, "exec");
    if (n != NULL) pl_kube_found(f->k, PL_K026, f->o, n, "%s.%s.exec", c->path, name);
}

static void check_start(struct facts *f, const struct container *c, const struct pl_node *start) {
    double budget = window(start, true), boot = known(f->m.boot_s, annotation(f, "plimsoll/boot-seconds"));
    double deadline = pl_node_number_or(pl_node_get(f->spec, "progressDeadlineSeconds"), 600);
    if (!c->sidecar && budget < 1.5 * boot) {
        struct pl_kube_finding *found = pl_kube_found(f->k, PL_K006, f->o, start, "%s.startupProbe", c->path);
        snprintf(found->detail, sizeof found->detail, "%.0f s, and the slowest boot took %.1f s", budget,
                 boot);
    }
    if (deadline < budget) {
        struct pl_kube_finding *found = pl_kube_found(
            f->k, PL_K029, f->o, either(pl_node_get(f->spec, "progressDeadlineSeconds"), f->spec),
            "spec.progressDeadlineSeconds");
        snprintf(found->detail, sizeof found->detail, "%.0f s, and a start may take %.0f s", deadline,
                 budget);
    }
    bool live = pl_node_get(start, "httpGet") != NULL && strcmp(path_of(start), "/livez") == 0;
    if (c->sidecar && !live) pl_kube_found(f->k, PL_K025, f->o, start, "%s.startupProbe", c->path);
}

static void check_probes(struct facts *f, const struct container *c) {
    const struct pl_node *start = pl_node_get(c->node, "startupProbe"),
                         *ready = pl_node_get(c->node, "readinessProbe"),
                         *live = pl_node_get(c->node, "livenessProbe");
    if ((ready != NULL || live != NULL) && start == NULL)
        pl_kube_found(f->k, PL_K001, f->o, either(ready, live), "%s.startupProbe", c->path);
    if (pl_node_get(live, "httpGet") != NULL && pl_node_get(ready, "httpGet") != NULL &&
        strcmp(path_of(live), path_of(ready)) == 0 &&
        strcmp(port_of(c->node, live), port_of(c->node, ready)) == 0)
        pl_kube_found(f->k, PL_K002, f->o, live, "%s.livenessProbe", c->path);
    check_probe(f, c, "startupProbe");
    check_probe(f, c, "readinessProbe");
    check_probe(f, c, "livenessProbe");
    const struct pl_node *tcp = pl_node_get(ready, "tcpSocket");
    if (tcp != NULL) pl_kube_found(f->k, PL_K027, f->o, tcp, "%s.readinessProbe.tcpSocket", c->path);
    if (live != NULL && ((ready != NULL && window(live, false) < window(ready, false)) ||
                         window(live, false) < LEAST_LIVENESS_S)) {
        struct pl_kube_finding *found = pl_kube_found(f->k, PL_K004, f->o, live, "%s.livenessProbe", c->path);
        snprintf(found->detail, sizeof found->detail, "%.0f s until the container is killed",
                 window(live, false));
    }
    if (start != NULL) check_start(f, c, start);
}

/* --- resources, image, rights */

static void check_gpu(struct facts *f, const struct container *c, const struct pl_node *limits,
                      const struct pl_node *requests) {
    for (const struct pl_node *n = pl_node_first(requests); n != NULL; n = n->next) {
        double asked, limit;
        if (!is_gpu(pl_node_text(n->key)) || !pl_kube_quantity(pl_node_text(n), &asked)) continue;
        const struct pl_node *other = pl_node_get(limits, pl_node_text(n->key));
        if (!pl_kube_quantity(pl_node_text(other), &limit) || limit < asked || limit > asked)
            pl_kube_found(f->k, PL_K014, f->o, n, "%s.resources.requests", c->path);
    }
}

static void check_resources(struct facts *f, const struct container *c, bool first) {
    const struct pl_node *resources = pl_node_get(c->node, "resources");
    const struct pl_node *limits = pl_node_get(resources, "limits"),
                         *requests = pl_node_get(resources, "requests");
    const struct pl_node *limit = pl_node_get(limits, "memory"), *request = pl_node_get(requests, "memory");
    double most = 0, asked;
    if (limit == NULL)
        pl_kube_found(f->k, PL_K012, f->o, either(limits, either(resources, c->node)),
                      "%s.resources.limits.memory", c->path);
    bool readable = limit != NULL && pl_kube_quantity(pl_node_text(limit), &most);
    if (readable && request != NULL && pl_kube_quantity(pl_node_text(request), &asked) &&
        (asked < most || asked > most))
        pl_kube_found(f->k, PL_K011, f->o, request, "%s.resources.requests.memory", c->path);
    double peak = known(f->m.host_peak_bytes, annotation(f, "plimsoll/host-peak-bytes"));
    if (readable && !c->init && (first || gpus_of(c->node) > 0) && most < 1.15 * peak) {
        struct pl_kube_finding *found =
            pl_kube_found(f->k, PL_K013, f->o, limit, "%s.resources.limits.memory", c->path);
        snprintf(found->detail, sizeof found->detail, "%.0f MiB, and the peak was %.0f MiB", most / 0x1p20,
                 peak / 0x1p20);
    }
    check_gpu(f, c, limits, requests);
}

static void check_image(struct facts *f, const struct container *c) {
    const struct pl_node *n = pl_node_get(c->node, "image"),
                         *policy = pl_node_get(c->node, "imagePullPolicy");
    const char *image = pl_node_text(n);
    if (n == NULL || strstr(image, "@sha256:") != NULL) return;
    const char *slash = strrchr(image, '/'), *tag = strchr(slash != NULL ? slash : image, ':');
    if (tag != NULL && tag[1] != '\0' && strcmp(tag, ":latest") != 0) return;
    if (policy != NULL && !pl_node_is(policy, "Always"))
        pl_kube_found(f->k, PL_K015, f->o, policy, "%s.imagePullPolicy", c->path);
    else
        pl_kube_found(f->k, PL_K016, f->o, n, "%s.image", c->path);
}

static void check_rights(struct facts *f, const struct container *c) {
    const struct pl_node *mine = pl_node_get(c->node, "securityContext"),
                         *n = pl_node_get(mine, "privileged");
    const struct pl_node *own = pl_node_get(mine, "runAsNonRoot");
    if (pl_node_true(n)) pl_kube_found(f->k, PL_K032, f->o, n, "%s.securityContext.privileged", c->path);
    bool safe = pl_node_true(either(own, pl_node_path(f->pod, "securityContext", "runAsNonRoot", NULL)));
    if (!safe)
        pl_kube_found(f->k, PL_K021, f->o, either(own, either(mine, c->node)),
                      "%s.securityContext.runAsNonRoot", c->path);
}

/* --- end of the pod */

static bool is_shell(const char *word) {
    const char *slash = strrchr(word, '/');
    if (slash != NULL) word = slash + 1;
    return strcmp(word, "sh") == 0 || strcmp(word, "bash") == 0 || strcmp(word, "ash") == 0 ||
           strcmp(word, "dash") == 0;
}

static void check_shell(struct facts *f, const struct container *c) {
    const struct pl_node *command = pl_node_get(c->node, "command"), *word = pl_node_first(command);
    if (word == NULL || !is_shell(pl_node_text(word))) return;
    const struct pl_node *flag = word->next;
    if (flag == NULL) flag = pl_node_first(pl_node_get(c->node, "args"));
    const char *letters = pl_node_text(flag);
    if (letters[0] != '-' || strchr(letters, 'c') == NULL) return;
    const struct pl_node *script = flag->next;
    if (script == NULL) script = pl_node_first(pl_node_get(c->node, "args"));
    const char *text = pl_node_text(script);
    /* its last command is what goes on: "prepare && exec serve" hands SIGTERM over too */
    const char *last = strstr(text, "exec ");
    while (last != NULL && strstr(last + 1, "exec ") != NULL) last = strstr(last + 1, "exec ");
    const char *begin = last;
    while (begin != NULL && begin > text && (begin[-1] == ' ' || begin[-1] == '\t')) begin--;
    bool first = begin != NULL && (begin == text || strchr(";&|\n", begin[-1]) != NULL);
    if (!first || strpbrk(last, ";|\n") != NULL)
        pl_kube_found(f->k, PL_K028, f->o, command, "%s.command", c->path);
}

/* Seconds that a preStop hook takes, as far as it can be read: sleep, or a command that is one. */
static double sleep_of(const struct pl_node *hook) {
    double seconds = pl_node_number_or(pl_node_path(hook, "sleep", "seconds", NULL), 0);
    for (const struct pl_node *n = pl_node_first(pl_node_path(hook, "exec", "command", NULL)); n != NULL;
         n = n->next) {
        const char *text = pl_node_text(n), *at = strstr(text, "sleep ");
        int whole;
        if (strcmp(text, "sleep") == 0 && n->next != NULL) seconds = pl_node_number_or(n->next, seconds);
        if (at != NULL && sscanf(at, "sleep %d", &whole) == 1) seconds = whole;
    }
    return seconds;
}

static bool drains_itself(const struct facts *f, const struct container *c) {
    char words[TEXT_BYTES];
    words_of(c, words);
    if (f->k->drain_delay || strstr(words, "drain-delay") != NULL || strstr(words, "drain_delay") != NULL)
        return true;
    for (const struct pl_node *n = pl_node_first(pl_node_get(c->node, "env")); n != NULL; n = n->next)
        if (pl_node_is(pl_node_get(n, "name"), "PLIMSOLL__DRAIN_DELAY")) return true;
    return false;
}

static void check_end(struct facts *f, const struct container *c, bool alone) {
    const struct pl_node *hook = pl_node_path(c->node, "lifecycle", "preStop", NULL);
    const struct pl_node *grace = pl_node_get(f->pod, "terminationGracePeriodSeconds");
    bool serves = alone || pl_node_get(c->node, "readinessProbe") != NULL ||
                  pl_node_get(c->node, "livenessProbe") != NULL ||
                  pl_node_get(c->node, "startupProbe") != NULL ||
                  pl_node_first(pl_node_get(c->node, "ports")) != NULL;
    if (serves && hook == NULL && !drains_itself(f, c))
        pl_kube_found(f->k, PL_K007, f->o, either(pl_node_get(c->node, "lifecycle"), c->node),
                      "%s.lifecycle.preStop", c->path);
    check_shell(f, c);
    double before = sleep_of(hook), drain = known(f->m.drain_s, annotation(f, "plimsoll/drain-seconds"));
    double stop = known(f->m.worker_stop_s, annotation(f, "plimsoll/worker-stop-seconds"));
    double given = pl_node_number_or(grace, 30);
    if (before > drain) drain = 0; /* it drains in the hook, as beside a sidecar */
    if (given < before + drain + stop) {
        struct pl_kube_finding *found =
            pl_kube_found(f->k, PL_K008, f->o, either(grace, f->pod), POD ".terminationGracePeriodSeconds");
        snprintf(found->detail, sizeof found->detail,
                 "%.0f s for preStop %.0f + drain %.0f + worker stop %.0f", given, before, drain, stop);
    }
}

/* --- models and volumes */

static void check_downloads(struct facts *f, const struct container *c) {
    static const char *const tools[] = { "huggingface-cli", "hf download", "snapshot_download",
                                         "wget ",           "curl ",       "aws s3",
                                         "gsutil",          "git lfs",     "bentoml models pull" };
    char words[TEXT_BYTES];
    words_of(c, words);
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        if (strstr(words, tools[i]) == NULL) continue;
        struct pl_kube_finding *found = pl_kube_found(
            f->k, PL_K018, f->o, either(pl_node_get(c->node, "command"), c->node), "%s.command", c->path);
        snprintf(found->detail, sizeof found->detail, "%s", tools[i]);
        break;
    }
    if (c->init || pl_node_first(pl_node_get(c->node, "envFrom")) != NULL) return;
    const struct pl_node *env = pl_node_get(c->node, "env");
    for (const struct pl_node *n = pl_node_first(env); n != NULL; n = n->next)
        if (pl_node_is(pl_node_get(n, "name"), "HF_HUB_OFFLINE") ||
            pl_node_is(pl_node_get(n, "name"), "TRANSFORMERS_OFFLINE"))
            return;
    pl_kube_found(f->k, PL_K018, f->o, either(env, c->node), "%s.env", c->path);
}

static const struct pl_node *memory_volume(const struct facts *f, const char *name) {
    for (const struct pl_node *n = pl_node_first(pl_node_get(f->pod, "volumes")); n != NULL; n = n->next)
        if (pl_node_is(pl_node_get(n, "name"), name) &&
            pl_node_is(pl_node_path(n, "emptyDir", "medium", NULL), "Memory"))
            return n;
    return NULL;
}

static void check_shm(struct facts *f, const struct container *c) {
    char words[TEXT_BYTES];
    words_of(c, words);
    const char *image = pl_node_text(pl_node_get(c->node, "image"));
    bool engine = has_word(words, "vllm") || has_word(words, "sglang") || has_word(image, "vllm") ||
                  has_word(image, "sglang");
    if (gpus_of(c->node) <= 1 && !engine) return;
    const struct pl_node *mounts = pl_node_get(c->node, "volumeMounts");
    for (const struct pl_node *n = pl_node_first(mounts); n != NULL; n = n->next)
        if (pl_node_is(pl_node_get(n, "mountPath"), "/dev/shm") &&
            memory_volume(f, pl_node_text(pl_node_get(n, "name"))) != NULL)
            return;
    pl_kube_found(f->k, PL_K019, f->o, either(mounts, c->node), "%s.volumeMounts", c->path);
}

static void check_volumes(struct facts *f) {
    size_t i = 0;
    for (const struct pl_node *n = pl_node_first(pl_node_get(f->pod, "volumes")); n != NULL;
         n = n->next, i++) {
        const struct pl_node *host = pl_node_get(n, "hostPath"), *empty = pl_node_get(n, "emptyDir");
        if (host != NULL) pl_kube_found(f->k, PL_K017, f->o, host, POD ".volumes[%zu].hostPath", i);
        if (pl_node_is(pl_node_get(empty, "medium"), "Memory") && pl_node_get(empty, "sizeLimit") == NULL)
            pl_kube_found(f->k, PL_K020, f->o, empty, POD ".volumes[%zu].emptyDir.sizeLimit", i);
    }
}

/* --- the Deployment */

static void check_strategy(struct facts *f, double least) {
    const struct pl_node *strategy = pl_node_get(f->spec, "strategy"), *type = pl_node_get(strategy, "type");
    double gpus = 0;
    for (const struct pl_node *n = pl_node_first(pl_node_get(f->pod, "containers")); n != NULL; n = n->next)
        gpus += gpus_of(n);
    if (gpus <= 0 || f->m.spare_gpu || (type != NULL && !pl_node_is(type, "RollingUpdate"))) return;
    const struct pl_node *rolling = pl_node_get(strategy, "rollingUpdate"),
                         *n = pl_node_get(rolling, "maxUnavailable");
    double replicas = least > 1 ? least : 1;
    double down = n != NULL ? pl_kube_share(n, 0, replicas, false) : replicas / 4;
    if (down < 1) pl_kube_found(f->k, PL_K009, f->o, either(strategy, f->spec), "spec.strategy");
}

static void each(struct facts *f, const char *key, size_t total, bool init) {
    size_t i = 0;
    for (const struct pl_node *n = pl_node_first(pl_node_get(f->pod, key)); n != NULL; n = n->next, i++) {
        struct container c = { .node = pl_node_see(n), .init = init };
        if (f->k->container_count++ >= PL_KUBE_CONTAINERS) {
            f->k->truncated = true;
            return;
        }
        snprintf(c.path, sizeof c.path, POD ".%s[%zu]", key, i);
        c.sidecar = init && pl_node_is(pl_node_get(n, "restartPolicy"), "Always");
        check_downloads(f, &c);
        if (init && !c.sidecar) continue;
        check_probes(f, &c);
        check_resources(f, &c, !init && i == 0);
        check_image(f, &c);
        check_rights(f, &c);
        if (init) continue;
        check_end(f, &c, total == 1);
        check_shm(f, &c);
    }
}

static bool has_probes(const struct pl_node *list) {
    for (const struct pl_node *n = pl_node_first(list); n != NULL; n = n->next)
        if (pl_node_get(n, "readinessProbe") != NULL || pl_node_get(n, "livenessProbe") != NULL) return true;
    return false;
}

void pl_kube_deployment(struct pl_kube *k, const struct pl_kube_object *o,
                        const struct pl_kube_measured *measured) {
    const struct pl_node *spec = pl_node_get(o->node, "spec"),
                         *pod = pl_node_path(spec, "template", "spec", NULL);
    struct facts f = { .k = k, .o = o, .spec = spec, .pod = pod, .m = *measured };
    double least;
    size_t scalers = pl_kube_scalers(k, o, &least), total = 0;
    const struct pl_node *containers = pl_node_get(pod, "containers"), *n;
    if (pod == NULL) return;
    if (!has_probes(containers) && !has_probes(pl_node_get(pod, "initContainers")) &&
        pl_node_is(pl_node_get(pod, "priorityClassName"), "plimsoll-placeholder"))
        return;
    for (n = pl_node_first(containers); n != NULL; n = n->next) total++;
    n = pl_node_get(spec, "replicas");
    if (n != NULL && scalers > 0) pl_kube_found(k, PL_K010, o, n, "spec.replicas");
    check_strategy(&f, least);
    each(&f, "initContainers", total, true);
    each(&f, "containers", total, false);
    check_volumes(&f);
    n = pl_node_get(pod, "enableServiceLinks");
    if (!pl_node_false(n)) pl_kube_found(k, PL_K030, o, either(n, pod), POD ".enableServiceLinks");
}
