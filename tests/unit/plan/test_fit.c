/* test_fit.c - whole plans: the worked example, parallel ranks, what binds, what would give more, wishes that
 * cannot be. */
#include "unit.h"

#include <string.h>

#include "model/num.h"
#include "plan/inside.h"
#include "plan_data.h"

static struct pl_arena arena;
static struct pl_model m;
static struct pl_weights w;
static struct pl_err err;
static struct pl_plan p;

static void model(const char *name) {
    char path[512];
    static char text[1 << 16];
    snprintf(path, sizeof path, PL_TEST_DATA "/plan/configs/%s/config.json", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    pl_arena_free(&arena);
    pl_arena_init(&arena, 64 << 20);
    if (!pl_model_read_config(text, n, &arena, &m, &err) || !pl_weights_from_model(&w, &m, &err))
        fail_msg("%s", err.msg);
}
static struct pl_ask ask(const char *gpu, enum pl_engine engine) {
    struct pl_ask a = { .engine = engine, .target = "model" };
    if (!pl_gpu_parse(gpu, &a.gpu, &err)) fail_msg("%s", err.msg);
    return a;
}
static void plan(struct pl_ask a) {
    if (!pl_plan_make(&a, &m, &w, &arena, &p, &err)) fail_msg("%s", err.msg);
}

TEST(the_worked_example_holds) {
    struct json *all = plan_data(PL_TEST_DATA "/plan/kv_figures.json");
    model("llama-2-13b");
    assert_int_equal(w.total, plan_count(plan_get(all, "weights"), "bytes"));
    for (struct json *c = json_first(all, "capacity"); c != NULL; c = c->next) {
        char gpu[64];
        snprintf(gpu, sizeof gpu, "card:%.9fGiB", plan_number(c, "total_bytes", 0) / (double)PL_GIB);
        struct pl_ask a = ask(gpu, PL_ENGINE_TORCH);
        a.gpu.total_bytes = plan_count(c, "total_bytes");
        a.utilization = (uint32_t)(1000 - plan_number(c, "keep", 0) * 1000 + 0.5);
        plan(a);
        assert_int_equal(p.capacity_max, plan_count(c, "requests_of_4096"));
        assert_int_equal(p.max_len, 4096);
        if (plan_number(c, "free_bytes", 0) > 0) {
            assert_int_equal(p.terms[PL_PART_KV].bytes, plan_count(c, "free_bytes"));
            assert_true(p.fits);
        } else {
            assert_int_equal(pl_plan_status(&p), 1);
            assert_string_equal(p.binds, "weights");
        }
    }
    for (struct json *c = json_first(all, "kv_cases"); c != NULL; c = c->next)
        if (plan_count(c, "layers") == 40 && plan_count(c, "dtype_bytes") == 2 && plan_count(c, "batch") == 1)
            assert_int_equal(pl_piece_bytes(&p, &p.ranks[0], plan_count(c, "tokens")),
                             plan_count(c, "bytes"));
    json_free(all);
}

TEST(budgets_add_up_to_the_card) {
    static const char *const names[] = { "llama-2-13b", "llama-3.1-8b", "gemma-3-12b", "qwen3-next-80b-a3b" };
    static const char *const gpus[] = { "h200x4", "b200x2", "h100x4" };
    for (size_t i = 0; i < 4; i++)
        for (size_t g = 0; g < 3; g++)
            for (int e = 0; e < PL_ENGINE_TORCH; e++) {
                model(names[i]);
                struct pl_ask a = ask(gpus[g], (enum pl_engine)e);
                a.max_len = 4096;
                plan(a);
                uint64_t sum = 0;
                for (int k = 0; k < PL_PARTS; k++)
                    if (e != PL_ENGINE_SGLANG ||
                        (k != PL_PART_ACTIVATION && k != PL_PART_GRAPHS && k != PL_PART_NON_TORCH))
                        sum += p.terms[k].bytes;
                assert_true(p.fits);
                assert_int_equal(sum, p.ask.gpu.total_bytes);
                assert_true(p.capacity_max >= 1 && p.longest >= 4096);
            }
}

TEST(stages_share_layers_as_vllm_shares_them) {
    static const struct {
        uint32_t layers, n, sizes[4];
    } cases[] = { { 61, 4, { 15, 15, 16, 15 } },
                  { 63, 4, { 16, 16, 16, 15 } },
                  { 80, 2, { 40, 40, 0, 0 } },
                  { 5, 3, { 2, 2, 1, 0 } },
                  { 7, 1, { 7, 0, 0, 0 } } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (uint32_t i = 0, at = 0; i < cases[c].n; i++) {
            uint32_t from, to;
            pl_stage(cases[c].layers, cases[c].n, i, &from, &to);
            assert_int_equal(from, at);
            assert_int_equal(to - from, cases[c].sizes[i]);
            at = to;
        }
}

TEST(parallel_ranks_divide_what_can_be_divided) {
    model("llama-3.1-70b");
    struct pl_ask a = ask("h100x8", PL_ENGINE_VLLM);
    a.max_len = 32768;
    plan(a);
    uint64_t eight = p.ranks[0].weights, need8 = p.need;
    assert_true(eight > w.total / 8 && eight < w.total / 8 + PL_GIB / 8);
    a.tp = 4;
    a.pp = 2;
    plan(a);
    assert_int_equal(p.rank_count, 2);
    assert_int_equal(p.need, need8); /* 2 heads of 40 layers are 1 head of 80 */
    assert_int_equal(p.in_flight, 3 * p.ask.batched);
    a.tp = 16;
    a.pp = 1;
    a.gpu.count = 16;
    plan(a);
    assert_int_equal(p.need, need8); /* beyond 8 KV heads they are repeated */
    model("deepseek-v3");
    a = ask("h200x8", PL_ENGINE_VLLM);
    a.max_len = 32768;
    plan(a);
    need8 = p.need;
    assert_int_equal(need8, UINT64_C(61) * 1152 * 32768); /* a latent row is never divided */
    a.tp = 1;
    a.dp = 8;
    plan(a);
    assert_int_equal(p.need, need8);
    assert_true(p.ranks[0].weights < w.total / 4); /* experts are spread over the copies */
}

TEST(the_rank_with_least_room_rules) {
    model(
        "gemma-3-12b"); /* a large vocabulary on the first and the last stage, a vision tower on the first */
    struct pl_ask a = ask("l4x3", PL_ENGINE_VLLM);
    a.tp = 1;
    a.pp = 3;
    a.max_len = 8192;
    plan(a);
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < p.rank_count; i++)
        least =
            pl_min(least, pl_kv_plan(p.ranks[i].block_bytes,
                                     pl_kv_blocks(&p.groups, (struct pl_kv_load){ .max_len = 8192,
                                                                                  .in_flight = p.in_flight,
                                                                                  .dcp = 1 }),
                                     8192, p.ranks[i].avail)
                              .capacity);
    assert_int_equal(p.capacity_max, least);
    assert_true(p.least != 1);
}

TEST(what_does_not_fit_is_told_with_what_would) {
    struct pl_change c[PL_CHANGES];
    model("llama-2-13b");
    plan(ask("rtx4090", PL_ENGINE_VLLM));
    assert_false(p.fits);
    assert_string_equal(p.binds, "weights");
    size_t n = pl_plan_changes(&p, &arena, c), fitting = 0;
    for (size_t i = 0; i < n; i++) fitting += c[i].fits;
    assert_true(n >= 5 && fitting >= 3); /* 4 bits, two cards, another card */
    model("llama-3.1-8b");
    plan(ask("rtx4090", PL_ENGINE_VLLM));
    assert_string_equal(p.binds, "length");
    assert_true(p.longest > 1000 && p.longest < 131072);
    struct pl_ask a = ask("rtx4090", PL_ENGINE_VLLM);
    a.longest = true;
    plan(a);
    assert_true(p.fits);
    assert_int_equal(p.max_len, p.longest);
    a.max_len = p.longest + 16;
    a.longest = false;
    plan(a);
    assert_false(p.fits);
    a.max_len = 8192;
    a.concurrency = 100000;
    plan(a);
    assert_string_equal(p.binds, "concurrency");
    assert_false(p.fits);
}

TEST(fp8_halves_attention_but_not_state) {
    model("llama-3.1-8b");
    struct pl_ask a = ask("h100", PL_ENGINE_VLLM);
    plan(a);
    uint64_t whole = p.need;
    a.kv = "fp8";
    plan(a);
    assert_int_equal(2 * p.need, whole);
    model("qwen3-next-80b-a3b");
    a = ask("h100x4", PL_ENGINE_VLLM);
    a.max_len = 4096;
    plan(a);
    whole = p.need;
    a.kv = "fp8";
    plan(a);
    assert_true(2 * p.need > whole + whole / 4);
}

TEST(flags_always_bound_length_utilization_and_shutdown) {
    static const char *const names[] = { "llama-2-13b", "llama-3.1-8b", "gemma-3-12b", "qwen3-next-80b-a3b",
                                         "deepseek-v3" };
    for (size_t i = 0; i < 5; i++) {
        struct pl_command c;
        bool shutdown = false, length = false;
        model(names[i]);
        struct pl_ask a = ask("b200x8", PL_ENGINE_VLLM);
        plan(a);
        pl_plan_command(&p, &c);
        for (size_t k = 0; k < c.count; k++) {
            double value = strtod(c.flags[k].value, NULL);
            if (strcmp(c.flags[k].flag, "--gpu-memory-utilization") == 0)
                assert_true(value >= 0.85 && value <= 0.90);
            shutdown |= strcmp(c.flags[k].flag, "--shutdown-timeout") == 0 && value >= 30 && value <= 120;
            length |= strcmp(c.flags[k].flag, "--max-model-len") == 0 && value > 0;
            assert_true(c.flags[k].rule[0] != '\0');
        }
        assert_true(shutdown && length);
    }
}

/* docs/plan.md has these numbers by hand. */
TEST(strategies_for_the_worked_example_equal_the_hand_computation) {
    static const struct {
        const char *name;
        uint64_t pool, concurrency, wasted;
        uint32_t busy;
    } want[] = {
        { "static batching", UINT64_C(10475493376), 3, UINT64_C(2234777600), 360 },
        { "continuous batching", UINT64_C(10475493376), 3, UINT64_C(2234777600), 1000 },
        { "paged KV", UINT64_C(10475493376), 9, 1310720, 1000 },
        { "paged KV in fp8", UINT64_C(10475493376), 18, 655360, 1000 },
        { "paged KV, INT8 weights", UINT64_C(23163262976), 20, 1310720, 1000 },
        { "paged KV, INT4 weights", UINT64_C(29259339776), 26, 1310720, 1000 },
    };
    struct pl_strategy s[PL_STRATEGIES];
    model("llama-2-13b");
    struct pl_ask a = ask("card:40GiB", PL_ENGINE_VLLM);
    assert_true(pl_expect_parse("600+200:80%,2640+1000:20%", a.expect, &a.expect_count, &err));
    plan(a);
    size_t n = pl_plan_strategies(&p, &arena, s);
    assert_int_equal(n, sizeof want / sizeof *want);
    for (size_t i = 0; i < n; i++) {
        print_message("%-24s pool %11llu concurrency %3llu wasted %10llu busy %4u\n", s[i].name,
                      (unsigned long long)s[i].pool, (unsigned long long)s[i].concurrency,
                      (unsigned long long)s[i].wasted, s[i].busy);
    }
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(s[i].name, want[i].name);
        assert_int_equal(s[i].pool, want[i].pool);
        assert_int_equal(s[i].concurrency, want[i].concurrency);
        assert_int_equal(s[i].wasted, want[i].wasted);
        assert_int_equal(s[i].busy, want[i].busy);
    }
}

TEST(wishes_that_cannot_be_are_usage_errors) {
    struct pl_gpu g;
    struct pl_expect e[PL_EXPECTS];
    size_t n;
    static const char *const gpus[] = { "",
                                        "t5",
                                        "h100x0",
                                        "h100x",
                                        "x:",
                                        "x:24",
                                        "x:24GB",
                                        "x:-1GiB",
                                        ":24GiB",
                                        "x:1e400GiB",
                                        "h100x99999999999999999999" };
    static const char *const expects[] = {
        "",        "2000",         "2000+",           "+5",      "0+0",
        "1+1:50%", "1+1:50%,2+2",  "1+1:50%,2+2:60%", "1+1,2+2", "1+1:0%,2+2:100%",
        "1+1;",    "99999999999+1"
    };
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        if (pl_gpu_parse(gpus[i], &g, &err)) fail_msg("'%s' passed", gpus[i]);
        assert_int_equal(err.code, PL_E_USAGE);
    }
    for (size_t i = 0; i < sizeof expects / sizeof *expects; i++)
        if (pl_expect_parse(expects[i], e, &n, &err)) fail_msg("'%s' passed", expects[i]);
    assert_true(pl_gpu_parse("H100x2", &g, &err));
    assert_int_equal(g.count, 2);
    assert_true(pl_gpu_parse("rtx4090", &g, &err));
    assert_int_equal(g.count, 1);
    assert_true(pl_gpu_parse("NVIDIA H100 80GB HBM3:83491840KiBx1", &g, &err)); /* as the driver says it */
    assert_true(g.count == 1 && g.class == PL_GPU_HOPPER && g.total_bytes == UINT64_C(81081) << 20);
    assert_true(pl_gpu_parse("NVIDIA GeForce RTX 4090:20GiBx2", &g, &err)); /* less than such a card has */
    assert_true(g.count == 2 && g.total_bytes == UINT64_C(20) << 30);
    assert_true(pl_gpu_parse("mine:79.25GiBx3", &g, &err));
    assert_int_equal(g.total_bytes, 317 * PL_GIB / 4);
    assert_int_equal(g.count, 3);
    model("llama-3.1-8b");
    static const struct {
        uint32_t count, tp, pp, dp;
        const char *kv, *says;
    } asks[] = { { 3, 3, 0, 0, NULL, "32 attention heads" },
                 { 2, 4, 1, 1, NULL, "needs 4 cards" },
                 { 1, 1, 40, 1, NULL, "--pp 40" },
                 { 1, 1, 1, 1, "q8_0", "--kv" } };
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        struct pl_ask a = ask("h100", PL_ENGINE_VLLM);
        a.gpu.count = asks[i].count;
        a.tp = asks[i].tp;
        a.pp = asks[i].pp;
        a.dp = asks[i].dp;
        a.kv = asks[i].kv;
        assert_false(pl_plan_make(&a, &m, &w, &arena, &p, &err));
        assert_int_equal(err.code, PL_E_USAGE);
        if (strstr(err.msg, asks[i].says) == NULL) fail_msg("%zu says: %s", i, err.msg);
    }
}

/* A dry run that takes `times` (of 1000) what the formula says. */
static struct pl_measured dry_run(uint64_t cells, uint64_t times) {
    struct pl_llama o = {
        .n_ctx = cells, .n_seq = 4, .n_ubatch = 512, .n_outputs = 512, .type_k = "f16", .type_v = "f16"
    };
    return (struct pl_measured){ .cells = cells,
                                 .parallel = 4,
                                 .kv = pl_llama_bytes(p.ranks[0].part, &o).kv / 1000 * times,
                                 .compute = 100 * PL_MIB,
                                 .output = PL_MIB,
                                 .version = "0.5" };
}

TEST(a_dry_run_that_agrees_changes_nothing) {
    model("llama-3.1-8b");
    struct pl_ask a = ask("card:24GiB", PL_ENGINE_LLAMA);
    a.max_len = 8192;
    plan(a);
    uint64_t ctx = p.ctx;
    struct pl_measured d = dry_run(4096, 1010);
    assert_true(p.fits);
    pl_plan_measured(&p, &d);
    assert_true(p.fits && !p.provisional && p.has_measured);
    assert_int_equal(p.ctx, ctx);
    assert_in_range(p.measured_off, 9, 10);
}

TEST(where_the_formula_is_off_the_dry_run_decides) {
    model("llama-3.1-8b");
    struct pl_ask a = ask("card:24GiB", PL_ENGINE_LLAMA);
    a.max_len = 8192;
    plan(a);
    uint64_t ctx = p.ctx;
    struct pl_measured d = dry_run(4096, 2000);
    pl_plan_measured(&p, &d);
    assert_true(p.fits && p.provisional);
    assert_true(p.ctx < ctx * 6 / 10 && p.ctx > ctx * 4 / 10);
    /* so much that not even one request is left */
    plan(a);
    d = dry_run(4096, 30000);
    pl_plan_measured(&p, &d);
    assert_false(p.fits);
    assert_string_equal(p.binds, "length");
    assert_true(p.longest < 8192);
    assert_int_equal(pl_plan_status(&p), 1);
    /* smaller than planned: nobody is told more than the formula allows */
    plan(a);
    d = dry_run(4096, 500);
    pl_plan_measured(&p, &d);
    assert_int_equal(p.ctx, ctx);
}

TEST(without_a_dry_run_the_reason_is_shown) {
    struct pl_buf b;
    model("llama-3.1-8b");
    plan(ask("card:40GiB", PL_ENGINE_LLAMA));
    pl_plan_measured(&p, &(struct pl_measured){ .why_not = "this build is without it" });
    pl_buf_init(&b, 0);
    assert_true(p.fits && pl_plan_show(&p, false, &arena, &b));
    assert_non_null(strstr(pl_buf_text(&b), "no dry run, sizes are the formula's: this build is without it"));
    pl_buf_free(&b);
}

TEST(every_card_of_the_table_has_a_source) {
    const char *name;
    for (size_t i = 0; (name = pl_gpu_name(i, NULL)) != NULL; i++) {
        struct pl_gpu g;
        assert_true(pl_gpu_parse(name, &g, &err));
        assert_string_equal(g.name, name);
        assert_true(strlen(g.source) > 8 && g.product[0] != '\0' && g.total_bytes > PL_GIB);
        assert_int_equal(g.count, 1);
        if (strstr(name, "gb") == NULL) assert_int_equal(g.class, pl_gpu_class_of(g.product, g.total_bytes));
    }
}

static int end(void **state) {
    (void)state;
    pl_arena_free(&arena);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_example_holds),
        cmocka_unit_test(budgets_add_up_to_the_card),
        cmocka_unit_test(stages_share_layers_as_vllm_shares_them),
        cmocka_unit_test(parallel_ranks_divide_what_can_be_divided),
        cmocka_unit_test(the_rank_with_least_room_rules),
        cmocka_unit_test(what_does_not_fit_is_told_with_what_would),
        cmocka_unit_test(fp8_halves_attention_but_not_state),
        cmocka_unit_test(flags_always_bound_length_utilization_and_shutdown),
        cmocka_unit_test(strategies_for_the_worked_example_equal_the_hand_computation),
        cmocka_unit_test(wishes_that_cannot_be_are_usage_errors),
        cmocka_unit_test(a_dry_run_that_agrees_changes_nothing),
        cmocka_unit_test(where_the_formula_is_off_the_dry_run_decides),
        cmocka_unit_test(without_a_dry_run_the_reason_is_shown),
        cmocka_unit_test(every_card_of_the_table_has_a_source),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
