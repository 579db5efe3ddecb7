/* test_vectors.c - what vLLM's own classes return, byte for byte; the same from config.json files; published
 * numbers of real runs. Prints the table of the latter. */
#include "unit.h"

#include "model/num.h"
#include "plan/llama.h"
#include "plan_data.h"

#define DATA PL_TEST_DATA "/plan/"
enum { LAYERS = 512, ARENA = 8 << 20 };

static struct pl_kv_groups group(const struct pl_kv_layer *l, size_t n, uint64_t block, struct pl_arena *a) {
    struct pl_kv_groups g;
    struct pl_err err = { 0 };
    if (!pl_kv_group(l, n, block, a, &g, &err)) fail_msg("%s", err.msg);
    return g;
}
static struct pl_kv_plan plan(const struct pl_kv_groups *g, uint64_t len, uint64_t in_flight,
                              uint64_t avail) {
    struct pl_kv_load l = { .max_len = len, .in_flight = in_flight, .dcp = 1 };
    return pl_kv_plan(pl_kv_block_bytes(g, 0, UINT32_MAX), pl_kv_blocks(g, l), len, avail);
}

static int by_size(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}
static void same_groups(const struct pl_kv_groups *g, const struct json *list) {
    size_t mine[64], theirs[64], n = 0;
    for (struct json *j = list->first; j != NULL; j = j->next) theirs[n++] = (size_t)j->number;
    assert_int_equal(g->count, n);
    for (size_t i = 0; i < n; i++) mine[i] = g->at[i].count;
    qsort(mine, n, sizeof *mine, by_size);
    qsort(theirs, n, sizeof *theirs, by_size);
    assert_memory_equal(mine, theirs, n * sizeof *mine);
}

static size_t run_vectors(const char *name) {
    struct json *models = plan_data(DATA "kv_models.json"), *vectors = plan_data(name);
    size_t count = 0;
    for (struct json *v = vectors->first; v != NULL; v = v->next, count++) {
        struct pl_kv_layer layers[LAYERS];
        struct pl_arena a;
        pl_arena_init(&a, ARENA);
        size_t n = plan_model(json_get(models, json_str(v, "model")), layers);
        struct pl_kv_groups g = group(layers, n, plan_count(v, "block_size"), &a);
        uint64_t len = plan_count(v, "max_model_len");
        struct pl_kv_plan p = plan(&g, len, plan_count(v, "max_in_flight_tokens"), plan_count(v, "avail"));
        same_groups(&g, json_get(v, "groups"));
        assert_int_equal(p.bytes_per_block, plan_count(v, "bytes_per_block"));
        assert_int_equal(p.blocks_per_request, plan_count(v, "blocks_per_req"));
        assert_int_equal(p.need, plan_count(v, "need"));
        assert_int_equal(p.blocks, plan_count(v, "num_blocks"));
        assert_int_equal(p.tokens, plan_count(v, "tokens"));
        assert_int_equal(p.fits, json_flag(v, "fits"));
        assert_true(p.concurrency - plan_number(v, "max_concurrency", 0) < 0.00006 &&
                    plan_number(v, "max_concurrency", 0) - p.concurrency < 0.00006);
        for (struct json *page = json_first(v, "page"); page != NULL && g.count > 1; page = page->next)
            assert_int_equal(g.at[0].members[0].page,
                             (uint64_t)page->number); /* all equal after unification */
        pl_arena_free(&a);
    }
    json_free(models);
    json_free(vectors);
    return count;
}
TEST(uniform_models_are_planned_as_vllm_plans_them) {
    assert_int_equal(run_vectors(DATA "kv_vectors.json"), 100);
}
TEST(hybrids_are_planned_as_vllm_plans_them) {
    assert_int_equal(run_vectors(DATA "kv_vectors_hybrid.json"), 30);
}

TEST(config_files_lead_to_the_same_plans) {
    struct json *models = plan_data(DATA "kv_models.json"), *cases = plan_data(DATA "hf_configs.json");
    size_t count = 0;
    for (struct json *c = cases->first; c != NULL; c = c->next, count++) {
        char *text = NULL;
        size_t len = 0, n;
        FILE *f = open_memstream(&text, &len);
        plan_write(json_get(c, "config"), f);
        fclose(f);
        struct pl_arena a;
        struct pl_err err = { 0 };
        struct pl_model m;
        struct pl_kv_layer *mine, theirs[LAYERS];
        uint64_t block;
        pl_arena_init(&a, ARENA);
        if (!pl_model_read_config(text, len, &a, &m, &err)) fail_msg("%s: %s", json_str(c, "model"), err.msg);
        struct pl_kv_options o = { .tp = (uint32_t)plan_count(c, "tp"),
                                   .type = pl_kv_type(json_str(c, "kv"), &err),
                                   .prefix_caching = json_flag(c, "prefix_caching") != 0 };
        assert_true(pl_kv_layers(&m, &o, &a, &mine, &n, &block, &err));
        struct json *model = json_get(models, json_str(c, "model"));
        assert_int_equal(block, plan_count(model, "block_size"));
        struct pl_kv_groups ours = group(mine, n, block, &a);
        struct pl_kv_groups want = group(theirs, plan_model(model, theirs), block, &a);
        struct pl_kv_plan p = plan(&ours, 32768, 8192, 10 * PL_GIB),
                          q = plan(&want, 32768, 8192, 10 * PL_GIB);
        assert_int_equal(p.need, q.need);
        assert_int_equal(p.blocks, q.blocks);
        assert_int_equal(p.tokens, q.tokens);
        assert_int_equal(ours.count, want.count);
        for (size_t i = 0; i < ours.count; i++) assert_int_equal(ours.at[i].count, want.at[i].count);
        pl_arena_free(&a);
        free(text);
    }
    assert_int_equal(count, 16);
    json_free(models);
    json_free(cases);
}

/* --- published numbers */

static double uniform(const struct json *i) {
    uint64_t tp = plan_count(i, "tp"), block = plan_count(i, "block"), blocks = plan_count(i, "blocks");
    struct pl_kv_layer l = { .kind = PL_KV_FULL, .heads = 1, .cell_bytes = plan_count(i, "row_bytes") };
    if (l.cell_bytes == 0) {
        l.heads = pl_max(1, plan_count(i, "kv_heads") / tp);
        l.cell_bytes = 2 * plan_count(i, "head_dim") * plan_count(i, "kv_bytes");
    }
    struct pl_kv_layer layers[LAYERS];
    struct pl_arena a;
    size_t n = plan_count(i, "layers");
    for (size_t k = 0; k < n; k++) layers[k] = l;
    pl_arena_init(&a, ARENA);
    struct pl_kv_groups g = group(layers, n, block, &a);
    uint64_t page = pl_kv_block_bytes(&g, 0, UINT32_MAX),
             avail = (uint64_t)(plan_number(i, "avail_gib", 0) * (double)PL_GIB);
    const char *want = json_str(i, "want");
    double out = -1;
    if (strcmp(want, "bytes_gib") == 0) out = (double)(blocks * page) / (double)PL_GIB;
    if (strcmp(want, "tokens") == 0) out = (double)(avail / page * block);
    if (strcmp(want, "tokens_of_blocks") == 0) out = (double)(blocks * block);
    if (strcmp(want, "need_gib") == 0)
        out = (double)plan(&g, plan_count(i, "tokens"), 0, 0).need / (double)PL_GIB;
    if (strcmp(want, "concurrency") == 0)
        out = plan(&g, plan_count(i, "max_len"), 0, blocks * page).concurrency;
    pl_arena_free(&a);
    return out;
}

static double hybrid(const struct json *i) {
    const struct json *d = json_get(i, "gdn");
    struct pl_state s = { .kind = PL_STATE_GDN,
                          .conv = (uint32_t)plan_count(d, "conv"),
                          .heads = (uint32_t)plan_count(d, "v_heads"),
                          .groups = (uint32_t)plan_count(d, "k_heads"),
                          .state = (uint32_t)plan_count(d, "k_dim"),
                          .head_dim = (uint32_t)plan_count(d, "v_dim"),
                          .conv_bytes = 2,
                          .state_bytes = 4 };
    struct pl_model m;
    struct pl_arena a;
    struct pl_err err = { 0 };
    struct pl_kv_layer *layers;
    size_t n;
    uint64_t block;
    s.inner = s.heads * s.head_dim;
    pl_arena_init(&a, ARENA);
    pl_model_init(&m, &a);
    m.state = s;
    for (uint64_t k = 0; k < plan_count(i, "attn_layers"); k++) {
        uint32_t head = (uint32_t)plan_count(i, "head_dim");
        pl_model_add_cache(&m,
                           (struct pl_cache){ .kv_heads = (uint32_t)plan_count(i, "kv_heads"),
                                              .head_k = head,
                                              .head_v = head },
                           &err);
    }
    for (uint64_t k = 0; k < plan_count(i, "gdn_layers"); k++)
        pl_model_add_cache(&m, (struct pl_cache){ .kind = PL_CACHE_STATE }, &err);
    struct pl_kv_options o = { .tp = (uint32_t)plan_count(i, "tp"),
                               .prefix_caching = true,
                               .type = pl_kv_type(plan_count(i, "kv_bytes") == 1 ? "fp8" : "bf16", &err) };
    assert_true(pl_kv_layers(&m, &o, &a, &layers, &n, &block, &err));
    struct pl_kv_groups g = group(layers, n, block, &a);
    double out = (double)plan(&g, plan_count(i, "max_len"), 0,
                              (uint64_t)(plan_number(i, "avail_gib", 0) * (double)PL_GIB))
                     .tokens;
    pl_arena_free(&a);
    return out;
}

static double llama(const struct json *i) {
    uint64_t row = pl_ggml_row(json_str(i, "type"), plan_count(i, "kv_heads") * plan_count(i, "head_dim"));
    uint64_t half = plan_count(i, "layers") * row * plan_count(i, "cells");
    return (double)(strcmp(json_str(i, "want"), "k_mib") == 0 ? half : 2 * half) / (double)PL_MIB;
}

static double predict(const struct json *i) {
    const char *form = json_str(i, "form");
    if (strcmp(form, "uniform") == 0) return uniform(i);
    if (strcmp(form, "hybrid") == 0) return hybrid(i);
    if (strcmp(form, "llama.cpp") == 0) return llama(i);
    if (strcmp(form, "requested") == 0)
        return plan_number(i, "total_gib", 0) * plan_number(i, "utilization", 0);
    double left = plan_number(i, "requested_gib", 0); /* budget */
    for (struct json *j = json_first(i, "minus_gib"); j != NULL; j = j->next) left -= j->number;
    return left;
}

TEST(published_numbers_of_real_runs_come_out) {
    struct json *cases = plan_data(DATA "planner_lines.json");
    size_t count = 0, wrong = 0;
    for (struct json *c = cases->first; c != NULL; c = c->next, count++) {
        double got = predict(json_get(c, "inputs")), logged = plan_number(c, "log", 0),
               err = 100 * (got - logged) / logged;
        double limit = plan_number(c, "tol_pct", 0);
        bool ok = err <= limit && err >= -limit;
        print_message("%-4s %-26.26s %-34.34s logged %12.2f planned %14.4f %+7.3f %% (limit %.2f) %s\n",
                      json_str(c, "id"), json_str(c, "source"), json_str(c, "quantity"), logged, got, err,
                      limit, ok ? "ok" : "WRONG");
        wrong += !ok;
    }
    assert_int_equal(count, 24);
    assert_int_equal(wrong, 0);
    json_free(cases);
}

/* The recurrent state of llama.cpp, in two logs: 598.5 MiB for 4 sequences (lmstudio-bug-tracker#1862), 72.98
 * MiB for one (genie-claw#410). */
TEST(recurrent_state_of_llama_cpp_as_logged) {
    struct pl_state qwen = { .kind = PL_STATE_MAMBA2, .conv = 4, .inner = 6144, .groups = 16, .state = 128 };
    struct pl_state falcon = { .kind = PL_STATE_MAMBA2, .conv = 4, .inner = 3072, .groups = 1, .state = 256 };
    assert_int_equal(4 * 48 * pl_llama_state_bytes(&qwen), (uint64_t)(598.5 * (double)PL_MIB));
    uint64_t bytes = 24 * pl_llama_state_bytes(&falcon);
    assert_int_equal((bytes * 100 + PL_MIB / 2) / PL_MIB, 7298);
}

/* A real server: 4 layers, 2 KV heads of 64, blocks of 128. 16 MiB gave "8,192 tokens", "4.00x"; with 4 MiB
 * it refused 2048 and told 1920. */
TEST(a_real_server_said_the_same) {
    struct pl_kv_layer layers[4];
    struct pl_arena a;
    for (int i = 0; i < 4; i++)
        layers[i] = (struct pl_kv_layer){ .kind = PL_KV_FULL, .heads = 2, .cell_bytes = 256 };
    pl_arena_init(&a, ARENA);
    struct pl_kv_groups g = group(layers, 4, 128, &a);
    struct pl_kv_plan p = plan(&g, 2048, 0, 16 * PL_MIB);
    assert_int_equal(p.blocks, 64);
    assert_int_equal(p.tokens, 8192);
    assert_true(p.concurrency == 4);
    assert_int_equal(p.capacity, 3); /* one block is never given out */
    assert_false(plan(&g, 2048, 0, 4 * PL_MIB).fits);
    assert_int_equal(pl_kv_longest(&g, p.bytes_per_block, (struct pl_kv_load){ .dcp = 1 }, 4 * PL_MIB, 2048),
                     1920);
    pl_arena_free(&a);
}

RUN(cmocka_unit_test(uniform_models_are_planned_as_vllm_plans_them),
    cmocka_unit_test(hybrids_are_planned_as_vllm_plans_them),
    cmocka_unit_test(config_files_lead_to_the_same_plans),
    cmocka_unit_test(published_numbers_of_real_runs_come_out),
    cmocka_unit_test(recurrent_state_of_llama_cpp_as_logged), cmocka_unit_test(a_real_server_said_the_same))
