/* A start of an engine against plan, command and last start; and the words that make its plan. */
#include "worker/boot.h"

#include <string.h>

#include "command.h"
#include "unit.h"
#include "worker/boot_plan.h"
#include "worker/flags.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* A side in MiB; 0: not known. */
static struct pl_boot_side side(uint64_t weights, uint64_t kv, uint64_t activation, uint64_t graphs,
                                uint64_t non_torch) {
    const uint64_t mib[PL_BOOT_PARTS] = { weights, kv, activation, graphs, non_torch };
    struct pl_boot_side s = { .kv_tokens = 0 };
    for (int i = 0; i < PL_BOOT_PARTS; i++)
        if (mib[i] != 0)
            s.part[i] = (struct pl_boot_bytes){ .known = true, .bytes = mib[i] * MIB, .off = 5 * MIB };
    return s;
}

static struct pl_boot_plan plan_of(struct pl_boot_side s) {
    for (int i = 0; i < PL_BOOT_PARTS; i++) s.part[i].off = 0;
    return (struct pl_boot_plan){ .made = true, .side = s };
}

static struct pl_boot_verdict v;

static void is_drift(unsigned i, enum pl_boot_part part, enum pl_boot_against against, double ratio,
                     const char *likely) {
    if (v.count <= i) fail_msg("%u drifts", v.count);
    if (v.drifts[i].part != part) fail_msg("%s: %s", pl_boot_part_name(v.drifts[i].part), v.drifts[i].likely);
    assert_int_equal(v.drifts[i].against, against);
    if (v.drifts[i].ratio < ratio - 0.001 || v.drifts[i].ratio > ratio + 0.001)
        fail_msg("%f", v.drifts[i].ratio);
    if (strstr(v.drifts[i].likely, likely) == NULL) fail_msg("%s", v.drifts[i].likely);
}

TEST(a_first_start_as_planned_is_no_drift) {
    struct pl_boot_plan plan = plan_of(side(15000, 50000, 1500, 1024, 512));
    struct pl_boot_start s = { .now = side(15100, 49000, 2800, 614, 360), .plan = &plan };
    pl_boot_judge(&s, &v); /* estimates may be wrong as long as the cache is about what was said */
    assert_int_equal(v.count, 0);
    assert_int_equal(v.against, PL_BOOT_PLAN);
    assert_true(v.kv_ratio < -0.019 && v.kv_ratio > -0.021);
}

TEST(weights_that_are_more_than_their_files_are_named) {
    struct pl_boot_plan plan = plan_of(side(7000, 12000, 1500, 1024, 512));
    struct pl_boot_start s = { .now = side(13100, 5900, 1500, 1024, 512), .plan = &plan };
    pl_boot_judge(&s, &v); /* granite-switch#128 */
    assert_int_equal(v.count, 1);
    is_drift(0, PL_BOOT_WEIGHTS, PL_BOOT_PLAN, 0.871, "repacks or widens");
    assert_true(v.drifts[0].from == 7000 * MIB && v.drifts[0].to == 13100 * MIB);
    assert_true(v.kv_ratio < -0.5);
    s.now = side(3500, 15500, 1500, 1024, 512);
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_WEIGHTS, PL_BOOT_PLAN, -0.5, "quantises");
}

TEST(the_part_that_explains_the_cache_is_named_else_the_neighbour) {
    struct pl_boot_plan plan = plan_of(side(15000, 12000, 1500, 1024, 512));
    struct pl_boot_start s = { .now = side(15000, 4000, 9500, 1024, 512), .plan = &plan };
    pl_boot_judge(&s, &v); /* vllm#21489: images */
    assert_int_equal(v.count, 1);
    is_drift(0, PL_BOOT_ACTIVATION, PL_BOOT_PLAN, 5.333, "--max-num-batched-tokens");
    s.now = side(15000, 8000, 1500, 5000, 512);
    s.graphs_estimated = (struct pl_boot_bytes){ .known = true, .bytes = 2 * GIB };
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_GRAPHS, PL_BOOT_PLAN, 3.883, "more than the engine itself had kept free");
    s.now = side(15000, 8000, 1500, 1024, 4500);
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_NON_TORCH, PL_BOOT_PLAN, 7.789, "NCCL");
    s.now = side(15000, 8000, 1500, 1024, 512);
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_PLAN, -0.333, "another process");
}

TEST(a_start_is_held_against_the_last_one_rather_than_the_plan) {
    struct pl_boot_plan plan = plan_of(side(15000, 20000, 1500, 1024, 512));
    struct pl_boot_side last = side(15000, 10000, 2800, 614, 360);
    struct pl_boot_start s = { .now = side(15000, 10030, 2800, 614, 360), .plan = &plan, .last = &last };
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 0); /* 0.3 % is noise, and the plan's guess was corrected by the last start */
    assert_int_equal(v.against, PL_BOOT_LAST);
    s.now = side(15000, 9000, 2800, 614, 360);
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_LAST, -0.1, "another process");
    s.cold = true;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_LAST, -0.1, "compile cache was empty");
    s.cold = false;
    s.persisted_bytes = 9 * GIB;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_LAST, -0.1, "remove its stored plan");
    s = (struct pl_boot_start){ .now = side(15000, 9000, 3800, 614, 360), .last = &last };
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 1);
    is_drift(0, PL_BOOT_ACTIVATION, PL_BOOT_LAST, 0.357, "full step");
    strcpy(s.now.version, "0.33.0");
    strcpy(last.version, "0.32.0");
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_ACTIVATION, PL_BOOT_LAST, 0.357, "another version");
}

TEST(other_parts_count_when_the_cache_would_show_them) {
    struct pl_boot_side last = side(15000, 40000, 2800, 100, 360);
    struct pl_boot_start s = { .now = side(15000, 39900, 2800, 200, 360), .last = &last };
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 0); /* twice as much, and nothing of the cache */
    s.now = side(17000, 40000, 2800, 400, 360);
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 2);
    is_drift(0, PL_BOOT_WEIGHTS, PL_BOOT_LAST, 0.133, "files have changed");
    is_drift(1, PL_BOOT_GRAPHS, PL_BOOT_LAST, 3, "--enforce-eager");
}

TEST(what_rounding_hides_is_no_drift) {
    struct pl_boot_start s = { .asked_kv_bytes = 16 * MIB, .now = side(0, 20, 0, 0, 0) };
    pl_boot_judge(&s, &v); /* "0.02 GiB" for 16 MiB */
    assert_int_equal(v.count, 0);
    assert_int_equal(v.against, PL_BOOT_COMMAND);
    s.now.part[PL_BOOT_KV].off = 0;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_COMMAND, 0.25, "its own lines");
    s.now.part[PL_BOOT_KV].bytes = 8 * MIB;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_COMMAND, -0.5, "--kv-cache-memory-bytes");
}

TEST(tokens_are_compared_where_bytes_are_not_told) {
    struct pl_boot_side last = { .kv_tokens = 100000 };
    struct pl_boot_start s = { .now = { .kv_tokens = 90000 }, .last = &last };
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_LAST, -0.1, "less was free");
    assert_true(v.drifts[0].from == 0 && v.drifts[0].to == 0);
    s.last = NULL;
    pl_boot_judge(&s, &v);
    assert_true(v.count == 0 && v.against == PL_BOOT_NOTHING && v.kv_ratio == 0);
}

TEST(a_model_that_the_planner_counts_in_another_way_is_told) {
    struct pl_boot_plan plan = {
        .made = true, .token_bytes = 2048, .block_tokens = 16, .block_bytes = 32768
    };
    struct pl_boot_start s = {
        .now = { .kv_tokens = 8192 }, .block_tokens = 128, .kv_blocks = 64, .plan = &plan
    };
    s.now.part[PL_BOOT_KV] = (struct pl_boot_bytes){ .known = true, .bytes = 16 * MIB };
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 0);
    plan.token_bytes = 1024;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_PLAN, 1, "counts this model's cache in another way");
    plan.token_bytes = 0; /* a hybrid: its blocks are counted, when they are as long as planned */
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 0);
    plan.block_tokens = 128;
    pl_boot_judge(&s, &v);
    is_drift(0, PL_BOOT_KV, PL_BOOT_PLAN, 7, "counts this model's cache in another way");
    plan.token_bytes = UINT64_MAX / 2;
    pl_boot_judge(&s, &v);
    assert_int_equal(v.count, 0);
}

/* --- words */

static char joined[1024];

static const char *words_of(struct pl_config *c, struct pl_boot_device d) {
    struct pl_arena arena;
    const char *words[PL_BOOT_PLAN_WORDS];
    pl_arena_init(&arena, 1 << 16);
    joined[0] = '\0';
    if (!pl_boot_plan_words(&c->services[0], "M", &d, &arena, words)) strcpy(joined, "no");
    for (size_t i = 0; joined[0] != 'n' && words[i] != NULL; i++) {
        if (i > 0) strcat(joined, " ");
        strcat(joined, words[i]);
    }
    pl_arena_free(&arena);
    return joined;
}

TEST(a_command_becomes_the_words_of_a_plan) {
    static const struct pl_boot_device l4 = { "NVIDIA L4", 24 * GIB }, host = { NULL, 8 * GIB };
    static const struct {
        const char *command, *model, *words;
        const struct pl_boot_device *on;
    } rows[] = {
        { "vllm serve /models/a", "/models/a",
          "plan M --json --engine vllm --gpu NVIDIA L4:25165824KiBx1 --tp 1 --pp 1 --dp 1 --utilization "
          "0.920",
          &l4 },
        { "vllm serve a --max-model-len 32K --tensor_parallel_size=2 -pp 2 --gpu-memory-utilization 0.85 "
          "--kv-cache-dtype fp8 --max-num-batched-tokens 4096 --enforce-eager",
          "a",
          "plan M --json --engine vllm --gpu NVIDIA L4:25165824KiBx4 --tp 2 --pp 2 --dp 1 --max-len 32768 "
          "--kv fp8 "
          "--utilization 0.850 --batched-tokens 4096 --eager",
          &l4 },
        { "vllm serve --model=x --max-model-len auto --kv-cache-dtype bfloat16 --gpu-memory-utilization 9",
          "x",
          "plan M --json --engine vllm --gpu host:8388608KiBx1 --tp 1 --pp 1 --dp 1 --max-len auto --kv bf16 "
          "--utilization 0.920",
          &host },
        { "python3 -m sglang.launch_server --model-path /m --tp 2 --mem-fraction-static 0.8 --context-length "
          "4096 "
          "--disable-cuda-graph",
          "/m",
          "plan M --json --engine sglang --gpu NVIDIA L4:25165824KiBx2 --tp 2 --pp 1 --dp 1 --max-len 4096 "
          "--utilization 0.800 --eager",
          &l4 },
        { "llama-server -m /m.gguf -c 8192 -ctk q8_0", "/m.gguf",
          "plan M --json --engine llama.cpp --gpu NVIDIA L4:25165824KiBx1 --tp 1 --pp 1 --dp 1 --max-len "
          "8192 --kv "
          "q8_0",
          &l4 },
        { "vllm serve a --tensor-parallel-size 100000", "a", "no", &l4 },
        { "vllm serve --port 80", NULL, NULL, NULL },
        { "text-generation-launcher --model-id a", NULL, NULL, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_config *c = with(rows[i].command);
        const char *model = pl_boot_plan_model(&c->services[0]);
        if (rows[i].model == NULL)
            assert_null(model);
        else
            assert_string_equal(model, rows[i].model);
        if (rows[i].words != NULL) assert_string_equal(words_of(c, *rows[i].on), rows[i].words);
        pl_config_destroy(c);
    }
    struct pl_config *c = with("vllm serve a");
    assert_string_equal(words_of(c, (struct pl_boot_device){ "L4", 0 }), "no");
    pl_config_destroy(c);
}

TEST(flags_are_read_as_engines_read_them) {
    struct pl_config *c =
        with("vllm serve a --x 1 --x=2 --max_num_seqs 16M --y 16m --z 1.5 --w 99999999999G --eager "
             "-tp 3");
    const struct pl_service_config *s = &c->services[0];
    assert_string_equal(pl_flag_text(s, "--x"), "2");
    assert_true(pl_flag_number(s, "--max-num-seqs") == 16 << 20 && pl_flag_number(s, "--y") == 16000000);
    assert_true(pl_flag_number(s, "--z") == 0 && pl_flag_number(s, "--w") == 0 &&
                pl_flag_number(s, "--no") == 0);
    assert_true(pl_flag_number(s, "--tensor-parallel-size|-tp") == 3);
    assert_true(pl_flag_switch(s, "--eager") && !pl_flag_switch(s, "--eage") && !pl_flag_switch(s, "--no"));
    static const char args[] = "{\"max_num_seqs\": \"5\", \"eager\": \"false\"}";
    assert_true(pl_config_set(c, 0, "engine_args", args, PL_FROM_FLAG, "here", &err));
    assert_true(pl_flag_number(s, "--max-num-seqs") == 5 && !pl_flag_switch(s, "--eager"));
    pl_config_destroy(c);
}

RUN(cmocka_unit_test(a_first_start_as_planned_is_no_drift),
    cmocka_unit_test(weights_that_are_more_than_their_files_are_named),
    cmocka_unit_test(the_part_that_explains_the_cache_is_named_else_the_neighbour),
    cmocka_unit_test(a_start_is_held_against_the_last_one_rather_than_the_plan),
    cmocka_unit_test(other_parts_count_when_the_cache_would_show_them),
    cmocka_unit_test(what_rounding_hides_is_no_drift),
    cmocka_unit_test(tokens_are_compared_where_bytes_are_not_told),
    cmocka_unit_test(a_model_that_the_planner_counts_in_another_way_is_told),
    cmocka_unit_test(a_command_becomes_the_words_of_a_plan),
    cmocka_unit_test(flags_are_read_as_engines_read_them))
