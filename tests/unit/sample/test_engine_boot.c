/* What engines print while they start: recorded logs, published ones, and lines that lie. */
#include "sample/engine_boot.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define GIB ((double)(1 << 30))
#define MIB ((double)(1 << 20))

static struct pl_engine_boot read_log(const char *name) {
    char path[512], line[8192];
    struct pl_engine_boot b = { .kv_tokens = 0 };
    snprintf(path, sizeof path, PL_TEST_DATA "/vllm/boot/%s.log", name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) pl_engine_boot_line(&b, line, strcspn(line, "\n"));
    fclose(f);
    return b;
}

static bool said(struct pl_engine_boot *b, const char *line) {
    return pl_engine_boot_line(b, line, strlen(line));
}

/* `in` bytes, within two bytes of rounding, with half a unit of its last digit hidden. */
static void is(struct pl_boot_bytes b, double in, double unit, double step) {
    assert_true(b.known);
    double wrong = (double)b.bytes - in * unit, wrong_off = (double)b.off - step / 2 * unit;
    assert_true(wrong > -2 && wrong < 2);
    assert_true(wrong_off > -2 && wrong_off < 2);
}

static void is_gib(struct pl_boot_bytes b, double gib) { is(b, gib, GIB, 0.01); }

TEST(a_recorded_start_on_the_cpu) {
    struct pl_engine_boot b = read_log("cpu_default");
    is_gib(b.part[PL_BOOT_KV], 0.81);
    is_gib(b.free, 18.09);
    assert_false(b.total.known);
    assert_true(b.kv_tokens == 422400 && b.context_tokens == 512 && b.concurrency_pct == 82500);
    assert_true(b.init_ms == 30420);
    assert_true(!b.part[PL_BOOT_WEIGHTS].known && !b.part[PL_BOOT_GRAPHS].known);
    b = read_log("cpu_eager");
    is_gib(b.part[PL_BOOT_KV], 0.02); /* 16 MiB, as it is printed: off by up to 5 MiB */
    assert_true(b.kv_tokens == 8192 && b.context_tokens == 2048 && b.concurrency_pct == 400);
}

TEST(every_term_of_a_start_on_a_gpu) {
    struct pl_engine_boot b = read_log("gpu");
    is_gib(b.part[PL_BOOT_WEIGHTS], 14.99);
    is_gib(b.part[PL_BOOT_KV], 54.06);
    is_gib(b.part[PL_BOOT_ACTIVATION], 2.80);
    is_gib(b.part[PL_BOOT_GRAPHS], 0.60);           /* the pool's own line, not what capturing took */
    is(b.part[PL_BOOT_NON_TORCH], 0.35, GIB, 0.02); /* consumed, less the weights: both are rounded */
    is_gib(b.graphs_estimated, 0.58);
    is_gib(b.consumed, 15.34);
    is_gib(b.free, 78.58);
    is_gib(b.total, 79.11);
    assert_true(b.kv_tokens == 442848 && b.context_tokens == 32768 && b.concurrency_pct == 1351);
    assert_string_equal(b.version, "0.32.0");
    assert_true(b.init_ms == 41030 && b.persisted_bytes == 0 && b.auto_from == 0);
}

TEST(of_several_cards_the_fullest_counts) {
    struct pl_engine_boot b = read_log("gpu_tp2");
    is_gib(b.part[PL_BOOT_WEIGHTS], 9.12);
    is_gib(b.part[PL_BOOT_KV], 10.37);
    is_gib(b.part[PL_BOOT_ACTIVATION], 0.31);
    is_gib(b.part[PL_BOOT_NON_TORCH], 0.2);
    is_gib(b.part[PL_BOOT_GRAPHS], 0.14);
    assert_true(b.kv_tokens == 84976 && b.context_tokens == 117264 && b.concurrency_pct == 72);
    assert_true(b.auto_from == 262144 && b.auto_to == 117264);
    assert_true(b.persisted_bytes == UINT64_C(11134695014));
}

TEST(the_first_vllm) {
    struct pl_engine_boot b = read_log("v0");
    is(b.part[PL_BOOT_WEIGHTS], 8.5107, GIB, 0.0001);
    is_gib(b.part[PL_BOOT_NON_TORCH], 0.26);
    is_gib(b.part[PL_BOOT_ACTIVATION], 0.94);
    is_gib(b.part[PL_BOOT_KV], 2.18);
    assert_true(b.kv_blocks == 715 && b.context_tokens == 2048 && b.concurrency_pct == 559);
}

TEST(sglang_says_gb_and_means_gib) {
    struct pl_engine_boot b = read_log("sglang");
    is_gib(b.part[PL_BOOT_WEIGHTS], 28.79);
    is(b.part[PL_BOOT_KV], 16.46, GIB, 0.02);
    is_gib(b.part[PL_BOOT_GRAPHS], 0.80);
    assert_true(b.kv_tokens == 367404);
    b = read_log("sglang_mla");
    is_gib(b.part[PL_BOOT_WEIGHTS], 107.07);
    is_gib(b.part[PL_BOOT_KV], 17.16);
    assert_true(b.kv_tokens == 524288);
}

TEST(llama_cpp_buffers_of_a_device_are_summed_and_the_host_s_left_out) {
    struct pl_engine_boot b = read_log("llama");
    is(b.part[PL_BOOT_WEIGHTS], 1418.22, MIB, 0.01);
    is(b.part[PL_BOOT_KV], 768.00 + 72.98, MIB, 0.02);
    is(b.part[PL_BOOT_ACTIVATION], 300.75, MIB, 0.01);
    assert_true(b.kv_tokens == 32768);
    struct pl_engine_boot host = { .kv_tokens = 0 };
    assert_true(said(&host, "load_tensors:   CPU_Mapped model buffer size =   102.05 MiB"));
    assert_true(said(&host, "llama_context:        CPU  output buffer size =     0.50 MiB"));
    is(host.part[PL_BOOT_WEIGHTS], 102.05, MIB, 0.01);
    assert_true(said(&host, "load_tensors:        CUDA0 model buffer size =  1000.00 MiB"));
    is(host.part[PL_BOOT_WEIGHTS], 1000, MIB, 0.01);
    assert_true(!host.part[PL_BOOT_ACTIVATION].known);
}

TEST(what_is_no_line_of_an_engine_or_lies_says_nothing) {
    static const char *const lines[] = {
        "",
        "]",
        "] ",
        "a prompt that says Available KV cache memory: 10.0 GiB",
        "Available KV cache memory: -2.77 GiB",
        "Available KV cache memory: 10.0",
        "Available KV cache memory: . GiB",
        "Available KV cache memory: 99999999999 GiB",
        "Model loading took GiB memory",
        "GPU KV cache size: 0 tokens",
        "GPU KV cache size: 99999999999999999999 tokens",
        "GPU KV cache size: 12,3 tokens, Maximum",
        "GPU KV cache size: 1,000,000,000,000,000,000,000 tokens",
        "Maximum concurrency for 2048 tokens per request: nanx",
        "Free memory on device (1/2 GiB) on startup is less than desired GPU memory utilization (1, 2 GiB).",
        "Applying persisted startup plan (fingerprint x): kv_cache_memory_bytes=0",
        "Auto-fit max_model_len: reduced from 262144",
        "KV Cache is allocated. #tokens: 5, K size: 1 GB",
        "load_tensors: model buffer size = 5 MB",
        " model buffer size = 5.00 MiB",
    };
    static const struct pl_engine_boot nothing = { .kv_tokens = 0 };
    struct pl_engine_boot b = nothing;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (said(&b, lines[i])) fail_msg("%s", lines[i]);
        assert_memory_equal(&b, &nothing, sizeof b);
    }
    for (int i = 0; i < 3000; i++) said(&b, "load_tensors: CUDA0 model buffer size = 900000000.00 MiB");
    assert_true(b.part[PL_BOOT_WEIGHTS].bytes <= UINT64_C(1) << 50);
}

RUN(cmocka_unit_test(a_recorded_start_on_the_cpu), cmocka_unit_test(every_term_of_a_start_on_a_gpu),
    cmocka_unit_test(of_several_cards_the_fullest_counts), cmocka_unit_test(the_first_vllm),
    cmocka_unit_test(sglang_says_gb_and_means_gib),
    cmocka_unit_test(llama_cpp_buffers_of_a_device_are_summed_and_the_host_s_left_out),
    cmocka_unit_test(what_is_no_line_of_an_engine_or_lies_says_nothing))
