/* The words plimsoll-llama is started with: services.NAME.llama as flags, and only what is set. */
#include <string.h>

#include "unit.h"
#include "worker/engine.h"
#include "worker/recipe.h"

static struct pl_err err;
static struct pl_arena arena;
static struct pl_recipe recipe;
static char joined[4096];

static void cook(struct pl_config *c, char *const *environment) {
    const struct pl_recipe_facts facts = { .folder = "/srv",
                                           .engine = "/usr/libexec/plimsoll/llama",
                                           .worker = 2 };
    pl_arena_free(&arena);
    pl_arena_init(&arena, (size_t)1 << 20);
    if (!pl_recipe_llama(c, &c->services[0], &facts, environment, &arena, &recipe, &err))
        fail_msg("%s", err.msg);
    joined[0] = '\0';
    for (uint32_t i = 0; i < recipe.argc; i++) {
        strcat(joined, recipe.argv[i]);
        strcat(joined, " ");
    }
}

static void set(struct pl_config *c, const char *key, const char *text) {
    if (!pl_config_set(c, 0, key, text, PL_FROM_FLAG, "here", &err)) fail_msg("%s", err.msg);
}

static struct pl_config *of_file(void) {
    struct pl_config *c = pl_config_create();
    if (!pl_config_add_target(c, "models/Tiny.Q4.gguf", NULL, true, &err)) fail_msg("%s", err.msg);
    return c;
}

static bool has_variable(const char *text) {
    for (uint32_t i = 0; i < recipe.envc; i++)
        if (strcmp(recipe.envp[i], text) == 0) return true;
    return false;
}

TEST(a_gguf_file_is_a_service) {
    struct pl_config *c = of_file();
    const struct pl_service_config *s = &c->services[0];
    assert_string_equal(s->id, "tiny-q4");
    assert_string_equal(s->model, "models/Tiny.Q4.gguf");
    assert_int_equal(pl_kind_of(s), PL_KIND_LLAMA);
    assert_string_equal(pl_engine_name(pl_engine_of(s)), "llama");
    assert_true(pl_engine_of(s)->llm);
    pl_config_destroy(c);
    c = pl_config_create();
    assert_false(pl_config_add_target(c, "gone.gguf", NULL, false, &err));
    assert_non_null(strstr(err.msg, "no such file"));
    pl_config_destroy(c);
}

TEST(what_is_not_set_is_left_to_what_fits) {
    struct pl_config *c = of_file();
    char *none[] = { NULL };
    cook(c, none);
    assert_non_null(strstr(joined, "/usr/libexec/plimsoll/llama --model models/Tiny.Q4.gguf --fd 3 "));
    assert_null(strstr(joined, "--ctx-size"));
    assert_null(strstr(joined, "--threads"));
    assert_null(strstr(joined, "--template"));
    assert_non_null(strstr(joined, "--admission worst "));
    assert_non_null(strstr(joined, "--split-mode layer "));
    assert_non_null(strstr(joined, "--flash-attn auto "));
    assert_true(has_variable("OMP_WAIT_POLICY=passive") && has_variable("GOMP_SPINCOUNT=0"));
    assert_true(has_variable("GGML_NO_BACKTRACE=1") && has_variable("PLIMSOLL_WORKER=2"));
    pl_config_destroy(c);
}

TEST(every_setting_is_a_flag) {
    static const struct {
        const char *key, *text, *words;
    } rows[] = { { "llama.ctx_size", "4096", "--ctx-size 4096 " },
                 { "llama.parallel", "8", "--parallel 8 " },
                 { "llama.batch_size", "64", "--batch-size 64 " },
                 { "llama.ubatch_size", "32", "--ubatch-size 32 " },
                 { "llama.threads", "3", "--threads 3 " },
                 { "llama.n_gpu_layers", "0", "--n-gpu-layers 0 " },
                 { "llama.split_mode", "row", "--split-mode row " },
                 { "llama.tensor_split", "[\"3\",\"1\"]", "--tensor-split 3,1 " },
                 { "llama.main_gpu", "1", "--main-gpu 1 " },
                 { "llama.cache_type_k", "q8_0", "--cache-type-k q8_0 " },
                 { "llama.cache_type_v", "q8_0", "--cache-type-v q8_0 " },
                 { "llama.flash_attn", "on", "--flash-attn on " },
                 { "llama.swa_full", "on", "--swa-full " },
                 { "llama.template", "chatml", "--template chatml " },
                 { "llama.system_default", "Be brief.", "--system-default Be brief. " },
                 { "llama.embeddings", "on", "--embeddings " },
                 { "llama.admission", "optimistic", "--admission optimistic " },
                 { "llama.prefix_sharing", "off", "--prefix-sharing off " },
                 { "llama.alias", "[\"a\",\"b\"]", "--alias a,b " },
                 { "traffic.queue.max_requests", "5", "--queue 5 " },
                 { "traffic.queue.max_wait", "5s", "--max-wait-ms 5000 " },
                 { "limits.output_tokens", "77", "--max-tokens 77 " } };
    struct pl_config *c = of_file();
    char word[] = "OMP_WAIT_POLICY=active", *environment[] = { word, NULL };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) set(c, rows[i].key, rows[i].text);
    cook(c, environment);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(joined, rows[i].words) == NULL) fail_msg("%s: %s", rows[i].words, joined);
    assert_true(has_variable("OMP_WAIT_POLICY=active")); /* the user's word stands */
    pl_config_destroy(c);
}

TEST(a_build_without_the_engine_says_so) {
    struct pl_config *c = of_file();
    const struct pl_recipe_facts facts = { .folder = "/srv", .worker = 1 };
    char *none[] = { NULL };
    assert_false(pl_recipe_llama(c, &c->services[0], &facts, none, &arena, &recipe, &err));
    assert_non_null(strstr(err.msg, "this build is without it"));
    pl_config_destroy(c);
    pl_arena_free(&arena);
}

RUN(cmocka_unit_test(a_gguf_file_is_a_service), cmocka_unit_test(what_is_not_set_is_left_to_what_fits),
    cmocka_unit_test(every_setting_is_a_flag), cmocka_unit_test(a_build_without_the_engine_says_so))
