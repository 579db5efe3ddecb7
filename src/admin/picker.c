/* picker.c - the metrics that endpoint pickers and routers of LLM servers read: vLLM's names, each exactly
 * once a model, whatever the engine is and however many workers serve it.
 *
 * What waits is what waits in the engines and in our queue: a picker that saw only the engine's would send
 * more to whom is full. The rest is the engine's own, else made of what is in flight and of the budget. The
 * older name of the cache's use stands beside the new one, since routers still read it. Contract: Gateway API
 * Inference Extension, model server protocol; docs/servers.md. */
#include <stdio.h>
#include <string.h>

#include "admin/inside.h"
#include "sample/promline.h"

enum { MODELS = 64, BLOCK_TOKENS = 16 };

struct model {
    const char *name;                   /* borrowed of the engine's facts or of the configuration */
    uint64_t running, waiting, workers; /* of all that serve it */
    double kv_used;                     /* sum over its workers */
    uint64_t blocks, block_tokens, kv_tokens;
    const struct pl_worker *only; /* whose own words may stand as they are; NULL: there are several */
};

static const char *const names[] = { "vllm:num_requests_running", "vllm:num_requests_waiting",
                                     "vllm:kv_cache_usage_perc",  "vllm:gpu_cache_usage_perc",
                                     "vllm:cache_config_info",    "vllm:lora_requests_info" };
enum { NAMES = sizeof names / sizeof *names };

bool pl_picker_is_ours(const char *family, size_t len) {
    for (size_t i = 0; i < NAMES; i++)
        if (strlen(names[i]) == len && memcmp(names[i], family, len) == 0) return true;
    return false;
}

static bool publishes(const struct pl_service *s) {
    return s->kind != PL_KIND_PYTHON && pl_engine_of(s->config)->llm && pl_compat_has(s, "vllm");
}

bool pl_picker_claims(const struct pl_admin *a) {
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++)
        if (publishes(pl_crew_service(a->o.crew, i))) return true;
    return false;
}

/* --- what there is */

static struct model *model_of(struct model *all, size_t *count, const char *name) {
    for (size_t i = 0; i < *count; i++)
        if (strcmp(all[i].name, name) == 0) return &all[i];
    if (*count == MODELS) return NULL;
    all[*count] = (struct model){ .name = name };
    return &all[(*count)++];
}

/* The share of the budget that is charged: of the fullest place. */
static double budget_used(const struct pl_admin *a, const struct pl_service *s) {
    struct pl_gateway_budget b;
    double most = 0;
    for (size_t i = 0; pl_gateway_budget(a->o.gateway, s, i, &b); i++) {
        double used = b.budget_bytes > 0 ? (double)b.charged_bytes / (double)b.budget_bytes : 0;
        if (used > most) most = used;
    }
    return most < 1 ? most : 1;
}

static void add_worker(struct model *m, const struct pl_worker *w, double budget) {
    const struct pl_engine_facts *f = pl_worker_engine(w);
    bool told = f != NULL && f->told_ms != 0;
    uint64_t block = told && f->block_tokens > 0 ? f->block_tokens : BLOCK_TOKENS;
    m->only = m->workers == 0 ? w : NULL;
    m->workers++;
    m->running += told ? f->running : w->in_flight;
    m->waiting += told ? f->waiting : 0;
    m->kv_used += told && f->kv_used_ratio >= 0 ? f->kv_used_ratio : budget;
    m->block_tokens = block;
    if (!told) return;
    m->kv_tokens += f->kv_tokens;
    m->blocks += f->kv_tokens / block;
}

static void add_service(const struct pl_admin *a, const struct pl_service *s, struct model *all,
                        size_t *count) {
    struct pl_gateway_numbers n;
    struct model *m = NULL;
    double budget = budget_used(a, s);
    for (const struct pl_worker *w = s->workers; w != NULL; w = w->next) {
        const struct pl_engine_facts *f = pl_worker_engine(w);
        if (!w->routable || f == NULL) continue;
        m = model_of(all, count, f->model_count > 0 ? f->models[0] : pl_service_model(s));
        if (m != NULL) add_worker(m, w, budget);
    }
    /* nobody is there, and yet they may wait */
    if (m == NULL) m = model_of(all, count, pl_service_model(s));
    pl_gateway_numbers(a->o.gateway, s, &n);
    if (m != NULL) m->waiting += n.queued > 0 ? (uint64_t)n.queued : 0;
}

/* --- how it is written */

static void add_label(struct pl_buf *out, const char *value) {
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\\' || *p == '"') pl_buf_add(out, "\\", 1);
        pl_buf_add(out, (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f ? "?" : p, 1);
    }
}

static void add_gauge(struct pl_buf *out, const char *name, const char *help, const struct model *all,
                      size_t count, double (*value)(const struct model *)) {
    pl_buf_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (size_t i = 0; i < count; i++) {
        pl_buf_addf(out, "%s{engine=\"0\",model_name=\"", name);
        add_label(out, all[i].name);
        pl_buf_addf(out, "\"} %.10g\n", value(&all[i]));
    }
}

static double running_of(const struct model *m) { return (double)m->running; }
static double waiting_of(const struct model *m) { return (double)m->waiting; }
static double used_of(const struct model *m) { return m->workers > 0 ? m->kv_used / (double)m->workers : 0; }

/* The engine's own lines of a family, as they stand. False: it has none. */
static bool add_own(struct pl_buf *out, const struct pl_worker *w, const char *name) {
    const struct pl_buf *text = w != NULL ? pl_worker_metrics_text(w) : NULL;
    size_t n = strlen(name);
    bool any = false;
    if (text == NULL || text->len == 0) return false;
    for (const char *at = text->data, *end = at + text->len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct pl_promline line;
        if (stop == NULL) stop = end;
        if ((size_t)(stop - at) > n && memcmp(at, name, n) == 0 && (at[n] == '{' || at[n] == ' ') &&
            (size_t)(stop - at) <= PL_PROMTEXT_LINE && pl_promline_parse(&line, at, (size_t)(stop - at))) {
            pl_buf_add(out, at, (size_t)(stop - at));
            pl_buf_add(out, "\n", 1);
            any = true;
        }
        at = stop + 1;
    }
    return any;
}

/* vLLM's label set when one engine alone is on the page; else what readers look at. */
static void add_caches(struct pl_buf *out, const struct model *all, size_t count) {
    const char *name = names[4];
    pl_buf_addf(out, "# HELP %s Blocks of the KV cache.\n# TYPE %s gauge\n", name, name);
    if (count == 1 && add_own(out, all[0].only, name)) return;
    for (size_t i = 0; i < count; i++) {
        const struct model *m = &all[i];
        pl_buf_addf(out, "%s{engine=\"0\",model_name=\"", name);
        add_label(out, m->name);
        pl_buf_addf(out, "\",block_size=\"%llu\"",
                    (unsigned long long)(m->block_tokens > 0 ? m->block_tokens : BLOCK_TOKENS));
        if (m->blocks > 0)
            pl_buf_addf(out, ",num_gpu_blocks=\"%llu\",kv_cache_size_tokens=\"%llu\"",
                        (unsigned long long)m->blocks, (unsigned long long)m->kv_tokens);
        pl_buf_adds(out, "} 1\n");
    }
}

/* Workers of a model have the same adapters: the first one speaks. */
static void add_loras(const struct pl_admin *a, struct pl_buf *out) {
    bool headed = false;
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        for (const struct pl_worker *w = publishes(s) ? s->workers : NULL; w != NULL; w = w->next) {
            if (!w->routable) continue;
            size_t before = out->len;
            if (!headed)
                pl_buf_addf(out, "# HELP %s LoRA adapters in use.\n# TYPE %s gauge\n", names[5], names[5]);
            if (add_own(out, w, names[5])) {
                headed = true;
                break;
            }
            out->len = before;
        }
    }
}

void pl_picker_add(struct pl_admin *a, struct pl_buf *out) {
    struct model all[MODELS];
    size_t count = 0;
    for (size_t i = 0; i < pl_crew_service_count(a->o.crew); i++) {
        const struct pl_service *s = pl_crew_service(a->o.crew, i);
        if (publishes(s)) add_service(a, s, all, &count);
    }
    if (count == 0) return;
    add_gauge(out, names[0], "Requests that the engine works on.", all, count, running_of);
    add_gauge(out, names[1], "Requests that wait, in the engine and in front of it.", all, count, waiting_of);
    add_gauge(out, names[2], "KV cache in use, 1 is all of it.", all, count, used_of);
    add_gauge(out, names[3], "The same by its name before vLLM 0.9.", all, count, used_of);
    add_caches(out, all, count);
    add_loras(a, out);
}
