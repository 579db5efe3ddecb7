/* manifest_ask.c - flags, a configuration and measurements to what ship/manifest.h wants to know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/accept.h"
#include "cli/manifest.h"
#include "embed/alerts_yaml.h"
#include "worker/engine.h"

extern char **environ;

enum { MOST_REPLICAS = 1000, DEFAULT_KUBE = 31, OLDEST_KUBE = 25, NEWEST_KUBE = 99 };

/* --- flags */

/* One of the words; `out` is its index. */
static bool word_flag(const struct pl_manifest_job *j, const char *name, const char *const *words,
                      size_t count, unsigned *out, struct pl_err *err) {
    const char *text = pl_args_value(&j->cli->args, name);
    for (size_t i = 0; text != NULL && i < count; i++)
        if (strcmp(words[i], text) == 0) {
            *out = (unsigned)i;
            return true;
        }
    if (text == NULL) return true;
    return PL_FAIL(err, PL_E_USAGE, "--%s: '%.40s' is none of %s, %s%s%s", name, text, words[0], words[1],
                   count > 2 ? ", " : "", count > 2 ? words[2] : "");
}

/* A name that goes into YAML as it stands: letters, digits and a few marks. */
static bool plain_flag(const struct pl_manifest_job *j, const char *name, const char **out,
                       struct pl_err *err) {
    const char *text = pl_args_value(&j->cli->args, name);
    *out = text;
    if (text == NULL) return true;
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./");
    if (n > 0 && n < 120 && text[n] == '\0') return true;
    return PL_FAIL(err, PL_E_USAGE, "--%s: '%.40s' is no name that Kubernetes knows", name, text);
}

static bool kube_flag(struct pl_manifest_job *j, struct pl_err *err) {
    const char *text = pl_args_value(&j->cli->args, "kube");
    unsigned minor;
    int used = 0;
    j->m.kube = DEFAULT_KUBE;
    if (text == NULL) return true;
    if (sscanf(text, "1.%u%n", &minor, &used) != 1 || text[used] != '\0' || minor < OLDEST_KUBE ||
        minor > NEWEST_KUBE)
        return PL_FAIL(err, PL_E_USAGE, "--kube: '%.40s' is no version like 1.31 (from 1.%d)", text,
                       OLDEST_KUBE);
    j->m.kube = minor;
    return true;
}

static bool read_flags(struct pl_manifest_job *j, struct pl_err *err) {
    static const char *const fronts[] = { "service", "loadbalancer", "picker" };
    static const char *const scalers[] = { "none", "hpa", "keda" };
    static const char *const modes[] = { "entrypoint", "sidecar" };
    static const char *const classes[] = { "burstable", "guaranteed" };
    unsigned front = 0, scaler = 0, mode = 0, qos = 0;
    struct pl_manifest *m = &j->m;
    uint64_t replicas = 1, prewarm = m->prewarm;
    if (!pl_args_count(&j->cli->args, "replicas", 1, MOST_REPLICAS, &replicas, err) ||
        !pl_args_count(&j->cli->args, "prewarm", 0, MOST_REPLICAS, &prewarm, err) ||
        !word_flag(j, "front", fronts, 3, &front, err) || !word_flag(j, "scaler", scalers, 3, &scaler, err) ||
        !word_flag(j, "mode", modes, 2, &mode, err) || !word_flag(j, "qos", classes, 2, &qos, err) ||
        !plain_flag(j, "runtime-class", &m->runtime_class, err) ||
        !plain_flag(j, "gpu-resource", &m->gpu_resource, err) || !plain_flag(j, "claim", &m->claim, err) ||
        !kube_flag(j, err))
        return false;
    m->ask.replicas = (uint32_t)replicas;
    m->prewarm = (uint32_t)prewarm;
    m->ask.front = (enum pl_front)front;
    m->scaler = (enum pl_scaler)scaler;
    m->sidecar = mode == 1;
    m->ask.guaranteed = qos == 1;
    m->ask.spare_gpu = pl_args_has(&j->cli->args, "spare-gpu");
    m->plain_rules = pl_args_has(&j->cli->args, "no-operator");
    if (m->sidecar && m->kube < 29)
        return PL_FAIL(err, PL_E_USAGE, "--mode sidecar: native sidecars are on from 1.29");
    if (m->claim != NULL && m->gpu_resource != NULL)
        return PL_FAIL(err, PL_E_USAGE, "--claim and --gpu-resource: one of them");
    return true;
}

/* --- configuration */

static bool read_config(struct pl_manifest_job *j, struct pl_err *err) {
    const char *from = pl_args_value(&j->cli->args, "from");
    j->file = from != NULL ? from : pl_accept_file(&j->cli->args);
    if (j->file == NULL) {
        PL_FAIL(err, PL_E_CONFIG, "there is no plimsoll.yaml here");
        return pl_err_hint(
            err, "--from names one; three lines are enough: services: {NAME: {run: service:Class}}");
    }
    if (!pl_manifest_read(j->file, &j->text, err)) {
        err->code = err->code == PL_E_SYS ? PL_E_CONFIG : err->code;
        return false;
    }
    j->config = pl_config_create();
    if (j->config == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory for a configuration");
    if (!pl_config_read_yaml(j->config, j->file, pl_buf_text(&j->text), j->text.len, environ, err))
        return false;
    for (size_t i = 0; i < j->config->service_count; i++)
        if (!pl_engine_presets(j->config, i, err)) return false;
    if (!pl_config_check(j->config, err)) return false;
    if (j->config->service_count == 0) return PL_FAIL(err, PL_E_CONFIG, "%s names no service", j->file);
    return true;
}

static uint16_t port_of(const struct pl_config *c) {
    for (size_t i = 0; i < c->listen.count; i++)
        if (c->listen.at[i].kind == PL_ADDRESS_TCP && c->listen.at[i].port != 0) return c->listen.at[i].port;
    return 3000;
}

/* A path of the container's file system that one word of the command names: the model that it serves. */
static const char *path_word(const struct pl_service_config *s) {
    for (size_t i = 1; i < s->command.count; i++) {
        const char *word = s->command.at[i], *equals = strchr(word, '=');
        if (equals != NULL && word[0] == '-') word = equals + 1;
        if (word[0] == '/' && word[1] != '\0' &&
            strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") ==
                strlen(word))
            return word;
    }
    return NULL;
}

static void find_model(struct pl_manifest_job *j, const struct pl_service_config *s) {
    const char *path = s->model != NULL ? s->model : path_word(s);
    if (path == NULL || path[0] != '/') return;
    snprintf(j->model_dir, sizeof j->model_dir, "%s", path);
    char *slash = strrchr(j->model_dir, '/');
    bool file = s->model != NULL || strstr(path, ".gguf") != NULL;
    if (file && slash > j->model_dir) *slash = '\0';
    j->m.model_dir = j->model_dir;
}

/* Warm-up bodies that will lie beside plimsoll.yaml in the pod: they go into its ConfigMap. */
static void find_beside(struct pl_manifest *m, const struct pl_service_config *s) {
    static const char folder[] = "@/etc/plimsoll/";
    for (size_t i = 0; i < s->warmup_requests.count && m->beside_count < PL_MANIFEST_BESIDE; i++) {
        const char *body = s->warmup_requests.at[i].body;
        if (body == NULL || strncmp(body, folder, sizeof folder - 1) != 0) continue;
        const char *name = body + sizeof folder - 1;
        bool plain =
            name[0] != '\0' && name[0] != '.' &&
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == strlen(name);
        bool known = strcmp(name, "plimsoll.yaml") == 0;
        for (size_t k = 0; k < m->beside_count; k++) known = known || strcmp(m->beside[k], name) == 0;
        if (plain && !known) m->beside[m->beside_count++] = name;
    }
}

/* Where a file of secrets lies, once a folder. A name is copied into the arena. */
static bool secret_file(struct pl_manifest_job *j, const char *path, struct pl_err *err) {
    struct pl_manifest *m = &j->m;
    if (path == NULL || path[0] == '\0') return true;
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || slash == path ||
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") != strlen(path))
        return PL_FAIL(err, PL_E_CONFIG, "%s: in a pod its path must be absolute, in a folder of its own",
                       path);
    char *folder = pl_arena_strndup(j->cli->arena, path, (size_t)(slash - path));
    if (folder == NULL) return PL_FAIL(err, PL_E_NOMEM, "no memory");
    if (strcmp(folder, "/etc/plimsoll") == 0) {
        PL_FAIL(err, PL_E_CONFIG, "%s: /etc/plimsoll is a ConfigMap, which is no place for secrets", path);
        return pl_err_hint(err, "name another folder in the configuration, such as /etc/plimsoll-tls");
    }
    for (size_t i = 0; i < m->secret_dir_count; i++)
        if (strcmp(m->secret_dirs[i], folder) == 0) return true;
    if (m->secret_dir_count == PL_MANIFEST_SECRETS)
        return PL_FAIL(err, PL_E_CONFIG, "%s: secrets in more than %d folders", path, PL_MANIFEST_SECRETS);
    m->secret_dirs[m->secret_dir_count++] = folder;
    return true;
}

/* "file:PATH" or "env:NAME". */
static bool secret(struct pl_manifest_job *j, const char *text, struct pl_err *err) {
    if (text == NULL || text[0] == '\0') return true;
    if (strncmp(text, "file:", 5) == 0) return secret_file(j, text + 5, err);
    if (strncmp(text, "env:", 4) == 0 && j->m.secret_env_count < PL_MANIFEST_SECRETS)
        j->m.secret_env[j->m.secret_env_count++] = text + 4;
    return true;
}

static bool find_secrets(struct pl_manifest_job *j, struct pl_err *err) {
    const struct pl_config *c = j->config;
    if (j->m.sidecar) return true; /* its flags are in the manifest, its configuration is not */
    j->m.tls = c->tls_certfile != NULL && c->tls_certfile[0] != '\0';
    if (j->m.tls && c->tls_cert_reqs == PL_CFG_TLS_CERT_REQS_REQUIRED) {
        PL_FAIL(err, PL_E_CONFIG,
                "tls.cert_reqs is required, and the kubelet's probes have no certificate to show");
        return pl_err_hint(err, "tls.cert_reqs: optional, or end TLS in front of the pod");
    }
    return secret_file(j, c->tls_certfile, err) && secret_file(j, c->tls_keyfile, err) &&
           secret_file(j, c->tls_ca_certs, err) && secret_file(j, c->api_keys_file, err) &&
           secret(j, c->admin_token, err) && secret(j, c->api_keys_key, err) &&
           secret(j, c->tls_keyfile_password, err);
}

static uint32_t gpus_of(const struct pl_manifest_job *j, bool *guessed) {
    uint32_t sum = 0;
    bool asked = false;
    for (size_t i = 0; i < j->config->service_count; i++) {
        const struct pl_service_config *s = &j->config->services[i];
        asked = asked || !s->gpus.all;
        sum += s->gpus.list.count > 0 ? (uint32_t)s->gpus.list.count : (uint32_t)s->gpus.count;
    }
    *guessed = !asked;
    return asked ? sum : j->m.vllm || j->m.sglang || j->m.kind == PL_SHIP_LLAMA ? 1 : 0;
}

static bool read_services(struct pl_manifest_job *j, struct pl_err *err) {
    const struct pl_config *c = j->config;
    struct pl_manifest *m = &j->m;
    double longest = 0, wait = 0, stop = 0;
    for (size_t i = 0; i < c->service_count; i++) {
        const struct pl_service_config *s = &c->services[i];
        const char *engine = s->command.count > 0 ? pl_engine_name(pl_engine_of(s)) : "";
        m->vllm = m->vllm || strcmp(engine, "vllm") == 0;
        m->sglang = m->sglang || strcmp(engine, "sglang") == 0;
        double stream = s->traffic_max_stream_ms > 0 ? (double)s->traffic_max_stream_ms / 1000 : 0;
        double one = (double)s->traffic_timeout_ms / 1000;
        longest = stream > longest ? stream : one > longest ? one : longest;
        if ((double)s->traffic_queue_max_wait_ms / 1000 > wait)
            wait = (double)s->traffic_queue_max_wait_ms / 1000;
        if ((double)s->stop_timeout_ms / 1000 > stop) stop = (double)s->stop_timeout_ms / 1000;
        if (s->workers > 0) m->ask.workers += (uint32_t)s->workers;
        if (m->model_dir == NULL) find_model(j, s);
        find_beside(m, s);
    }
    const struct pl_service_config *first = &c->services[0];
    m->kind = first->run != NULL     ? PL_SHIP_PYTHON
              : first->model != NULL ? PL_SHIP_LLAMA
              : first->url != NULL   ? PL_SHIP_REMOTE
                                     : PL_SHIP_COMMAND;
    m->service = first->id;
    if (m->sidecar) {
        char host[PL_CFG_HOST_BYTES];
        if (first->url == NULL || !pl_config_parse_url(first->url, host, &m->guarded_port, err))
            return PL_FAIL(
                err, PL_E_USAGE,
                "--mode sidecar: the first service needs url: http://127.0.0.1:PORT of the server beside it");
    } else if (m->kind == PL_SHIP_REMOTE) {
        PL_FAIL(err, PL_E_USAGE, "service %s is a url: nothing of it runs in our container", first->id);
        return pl_err_hint(err, "--mode sidecar puts Plimsoll in front of the server's own container");
    }
    m->longest_s = longest;
    m->wait_s = wait;
    if (c->drain_timeout_ms > 0) { /* it is what ends a drain */
        m->longest_s = (double)c->drain_timeout_ms / 1000;
        m->wait_s = 0;
    }
    m->drain_delay = c->drain_delay_ms > 0 || m->kube < 30;
    m->ask.gpus = gpus_of(j, &m->gpus_guessed);
    bool overlap = first->replace_mode == PL_CFG_REPLACE_MODE_OVERLAP;
    m->ask.overlap = overlap || (first->replace_mode != PL_CFG_REPLACE_MODE_HANDOVER && m->ask.gpus == 0);
    snprintf(j->name, sizeof j->name, "%.40s", strcmp(c->name, "default") != 0 ? c->name : first->id);
    snprintf(j->image, sizeof j->image, "registry.example/%s:1.0.0", j->name);
    m->name = j->name;
    m->image = j->image;
    m->port = port_of(c);
    m->admin_port = c->admin.kind == PL_ADDRESS_TCP && c->admin.port != 0 ? c->admin.port : 3001;
    m->run_dir = c->run_dir != NULL ? c->run_dir : "/run/plimsoll";
    m->state_dir = c->state_dir != NULL ? c->state_dir : "/var/lib/plimsoll";
    m->record_bytes = c->record_max_bytes_bytes > 0 ? (uint64_t)c->record_max_bytes_bytes : 0;
    return true;
}

/* The files beside the configuration, as they lie beside it here. */
static bool read_beside(struct pl_manifest_job *j, struct pl_err *err) {
    const char *slash = strrchr(j->file, '/');
    char path[1024];
    for (size_t i = 0; i < j->m.beside_count; i++) {
        pl_buf_init(&j->beside[i], 1 << 20);
        snprintf(path, sizeof path, "%.*s%s", slash != NULL ? (int)(slash - j->file) + 1 : 0, j->file,
                 j->m.beside[i]);
        if (!pl_manifest_read(path, &j->beside[i], err)) {
            err->code = PL_E_CONFIG;
            return pl_err_hint(err, "a warm-up request of %s reads it from /etc/plimsoll", j->file);
        }
    }
    return true;
}

static bool read_measured(struct pl_manifest_job *j, struct pl_err *err) {
    const char *path = pl_args_value(&j->cli->args, "measured");
    struct pl_size_ask ask = j->m.ask;
    j->m.measured = &j->measured;
    if (path == NULL) return true;
    if (!pl_manifest_measured(path, j->m.service, &j->measured, &ask, err)) return false;
    /* what the configuration says decides; the figures say how much of it */
    j->m.ask.keep_weights_cached = ask.keep_weights_cached;
    return true;
}

static void size(struct pl_manifest_job *j) {
    j->measured.longest_request_s = j->m.longest_s;
    j->measured.queue_max_wait_s = j->m.wait_s;
    if (j->m.ask.gpus == 0 && !j->measured.shm_known) j->measured.shm_known = true;
    pl_ship_size(&j->measured, &j->m.ask, &j->m.size);
    j->m.alerts = (const char *)alerts_yaml;
    j->m.alerts_bytes = alerts_yaml_bytes;
}

bool pl_manifest_ask(struct pl_manifest_job *j, struct pl_err *err) {
    if (!read_flags(j, err) || !read_config(j, err) || !read_services(j, err) || !find_secrets(j, err) ||
        !read_beside(j, err) || !read_measured(j, err))
        return false;
    size(j);
    return true;
}

void pl_manifest_job_free(struct pl_manifest_job *j) {
    pl_config_destroy(j->config);
    pl_buf_free(&j->text);
    for (size_t i = 0; i < j->m.beside_count; i++) pl_buf_free(&j->beside[i]);
}
