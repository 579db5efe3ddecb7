/* llama.c - the recipe of plimsoll-llama: services.NAME.llama as its flags. */
#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "worker/engine.h"
#include "worker/kitchen.h"

/* At most what is added to argv. */
enum { ARGS_MOST = 64 };

static void text(struct pl_kitchen *k, const char *flag, const char *value) {
    if (value == NULL || value[0] == '\0') return;
    pl_kitchen_arg(k, flag);
    pl_kitchen_arg(k, value);
}

/* A number that is set; auto is below 0 and the engine's own choice. */
static void number(struct pl_kitchen *k, const char *flag, int64_t value) {
    if (value >= 0) pl_kitchen_option(k, flag, (uint64_t)value);
}

static void list(struct pl_kitchen *k, const char *flag, const struct pl_strings *words) {
    const char *all = words->count > 0 ? words->at[0] : NULL;
    for (size_t i = 1; i < words->count && all != NULL; i++)
        all = pl_kitchen_print(k, "%s,%s", all, words->at[i]);
    text(k, flag, all);
}

static void add_argv(struct pl_kitchen *k, const struct pl_service_config *s,
                     const struct pl_recipe_facts *f) {
    pl_kitchen_arg(k, f->engine);
    text(k, "--model", s->model);
    pl_kitchen_option(k, "--fd", PL_WORKER_LISTENER_FD);
    number(k, "--ctx-size", s->llama_ctx_size);
    number(k, "--parallel", s->llama_parallel);
    number(k, "--batch-size", s->llama_batch_size);
    number(k, "--ubatch-size", s->llama_ubatch_size);
    number(k, "--threads", s->llama_threads);
    number(k, "--n-gpu-layers", s->llama_n_gpu_layers);
    text(k, "--split-mode", pl_config_word("llama.split_mode", s->llama_split_mode));
    list(k, "--tensor-split", &s->llama_tensor_split);
    number(k, "--main-gpu", s->llama_main_gpu);
    text(k, "--cache-type-k", s->llama_cache_type_k);
    text(k, "--cache-type-v", s->llama_cache_type_v);
    text(k, "--flash-attn", pl_config_word("llama.flash_attn", s->llama_flash_attn));
    if (s->llama_swa_full) pl_kitchen_arg(k, "--swa-full");
    if (s->llama_embeddings) pl_kitchen_arg(k, "--embeddings");
    text(k, "--template", s->llama_template);
    text(k, "--system-default", s->llama_system_default);
    text(k, "--admission", pl_config_word("llama.admission", s->llama_admission));
    text(k, "--prefix-sharing", s->llama_prefix_sharing ? "on" : "off");
    list(k, "--alias", &s->llama_alias);
    number(k, "--queue", s->traffic_queue_max_requests);
    number(k, "--max-wait-ms", s->traffic_queue_max_wait_ms);
    if (s->limits_output_tokens > 0) number(k, "--max-tokens", s->limits_output_tokens);
}

static void add_environment(struct pl_kitchen *k, const struct pl_config *c,
                            const struct pl_service_config *s, const struct pl_recipe_facts *f,
                            char *const *environ_in) {
    pl_kitchen_inherit(k, c, environ_in);
    pl_kitchen_common(k, s, f);
    pl_kitchen_llama_cpp(k);
    for (size_t i = 0; i < s->env.count; i++) pl_kitchen_set(k, s->env.at[i].key, s->env.at[i].value);
    pl_kitchen_set(k, "PLIMSOLL_WORKER_NAME", s->id);
    pl_kitchen_set_number(k, "PLIMSOLL_WORKER", f->worker);
    pl_kitchen_set_number(k, "PLIMSOLL_PAGE_FD", PL_WORKER_PAGE_FD);
}

bool pl_recipe_llama(const struct pl_config *c, const struct pl_service_config *s,
                     const struct pl_recipe_facts *f, char *const *environ_in, struct pl_arena *a,
                     struct pl_recipe *out, struct pl_err *err) {
    struct pl_kitchen k;
    const char *missing = f->folder == NULL   ? "folder"
                          : f->engine == NULL ? "plimsoll-llama (this build is without it)"
                          : s->model == NULL  ? "model"
                                              : NULL;
    if (!pl_kitchen_open(&k, s, missing, f->folder, ARGS_MOST, environ_in, a, out, err)) return false;
    add_argv(&k, s, f);
    add_environment(&k, c, s, f, environ_in);
    return pl_kitchen_close(&k, s, err);
}
