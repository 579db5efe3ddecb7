/* test_torture_plan.c - no memory, at every place between a model's files and the page that says what fits.
 */
#include "torture.h"

#include "plan/plan.h"

enum { ARENA = 64 << 20 };
static struct pl_model m;
static struct pl_weights w;
static struct pl_plan p;

static size_t read_whole(const char *path, char *out, size_t room) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, room, f);
    fclose(f);
    return n;
}

static bool make(const char *config, size_t len, enum pl_engine engine, struct pl_arena *a,
                 struct pl_err *err) {
    struct pl_ask ask = { .engine = engine, .target = "model" };
    memset(&w, 0, sizeof w);
    return pl_gpu_parse("a100-80x2", &ask.gpu, err) && pl_model_read_config(config, len, a, &m, err) &&
           pl_weights_from_model(&w, &m, err) && pl_plan_make(&ask, &m, &w, a, &p, err);
}

static void plans(const char *name, enum pl_engine engine) {
    static char config[1 << 16];
    char path[512];
    size_t whole = 0;
    snprintf(path, sizeof path, PL_TEST_DATA "/plan/configs/%s/config.json", name);
    size_t len = read_whole(path, config, sizeof config);
    for (torture_begin(); torture_goes_on();) {
        struct pl_err err = { 0 };
        struct pl_arena a;
        struct pl_buf text, json, flags;
        pl_arena_init(&a, ARENA);
        pl_buf_init(&text, 0);
        pl_buf_init(&json, 0);
        pl_buf_init(&flags, 0);
        bool made = make(config, len, engine, &a, &err);
        bool shown = made && pl_plan_show(&p, true, &a, &text) && pl_plan_show_json(&p, true, &a, &json) &&
                     pl_plan_show_flags(&p, &flags);
        torture_ends();
        if (!made) torture_failed(&err);
        if (made && !shown) assert_true(torture_hit());
        if (shown && whole == 0) whole = text.len + json.len + flags.len;
        if (shown) assert_int_equal(text.len + json.len + flags.len, whole);
        pl_buf_free(&text);
        pl_buf_free(&json);
        pl_buf_free(&flags);
        pl_arena_free(&a);
    }
}

TEST(a_plan_of_a_dense_model) { plans("llama-3.1-8b", PL_ENGINE_VLLM); }
TEST(a_plan_of_a_model_with_states) { plans("qwen3-next-80b-a3b", PL_ENGINE_VLLM); }
TEST(a_plan_of_a_model_with_latents_and_experts) { plans("deepseek-v3", PL_ENGINE_SGLANG); }

RUN(cmocka_unit_test(a_plan_of_a_dense_model), cmocka_unit_test(a_plan_of_a_model_with_states),
    cmocka_unit_test(a_plan_of_a_model_with_latents_and_experts))
