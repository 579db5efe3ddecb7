/* A recorded page of vLLM, and the forms of the others. */
#include "sample/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static bool read_text(const char *text, struct pl_engine_load *o) {
    return pl_engine_load_read(text, strlen(text), o);
}
static bool is(double a, double b) { return fabs(a - b) < 1e-9; }

TEST(a_recorded_page_of_vllm) {
    static char text[1 << 20];
    struct pl_engine_load o;
    FILE *f = fopen(PL_TEST_DATA "/metrics/vllm-engine.txt", "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(pl_engine_load_read(text, n, &o));
    assert_true(is(o.kv_used_ratio, 0) && o.running == 0 && o.waiting == 0 && o.preemptions == 0);
    assert_true(o.kv_bytes == 16777216 && o.kv_tokens == 8192 && o.kv_blocks == 64 && o.block_tokens == 128);
}

TEST(two_engines_behind_one_page) {
    struct pl_engine_load o;
    assert_true(read_text(
        "vllm:num_requests_running{engine=\"0\"} 3.0\n"
        "vllm:num_requests_running{engine=\"1\"} 4.0\n"
        "vllm:num_requests_waiting{engine=\"0\"} 1\n"
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
        "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
        "vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\",kv_cache_memory_"
        "bytes=\"None\"} 1.0\n"
        "vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"200\"} 1.0\n",
        &o));
    assert_true(o.running == 7 && o.waiting == 1 && is(o.kv_used_ratio, 0.5));
    assert_true(o.kv_blocks == 300 && o.block_tokens == 16 && o.kv_tokens == 4800);
    assert_true(o.kv_bytes == PL_ENGINE_UNKNOWN && o.preemptions == PL_ENGINE_UNKNOWN);
}

TEST(sglang_and_llama_say_it_with_other_names) {
    struct pl_engine_load o;
    assert_true(read_text(
        "# TYPE sglang:token_usage gauge\nsglang:token_usage{model_name=\"m\"} 0.7\n"
        "sglang:num_running_reqs{model_name=\"m\"} 12.0\nsglang:num_queue_reqs{model_name=\"m\"} 2.0\n"
        "sglang:cache_config_info{page_size=\"64\",num_pages=\"1000\"} 1.0\n",
        &o));
    assert_true(is(o.kv_used_ratio, 0.7) && o.running == 12 && o.waiting == 2 && o.kv_tokens == 64000);
    assert_true(read_text("llamacpp:kv_cache_usage_ratio 0.125\nllamacpp:requests_processing 1\n"
                          "llamacpp:requests_deferred 5\n",
                          &o));
    assert_true(is(o.kv_used_ratio, 0.125) && o.running == 1 && o.waiting == 5 &&
                o.kv_tokens == PL_ENGINE_UNKNOWN);
}

TEST(what_cannot_be_is_not_known) {
    static const char *const bad[] = { "vllm:num_requests_running -1\n",
                                       "vllm:num_requests_running NaN\n",
                                       "vllm:num_requests_running 1e300\n",
                                       "vllm:kv_cache_usage_perc 1.5\n",
                                       "vllm:kv_cache_usage_perc +Inf\n",
                                       "vllm:cache_config_info{num_gpu_blocks=\"-4\",block_size=\"x\"} 1\n" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pl_engine_load o;
        read_text(bad[i], &o);
        if (o.running != PL_ENGINE_UNKNOWN || o.kv_used_ratio >= 0 || o.kv_blocks != PL_ENGINE_UNKNOWN ||
            o.block_tokens != PL_ENGINE_UNKNOWN)
            fail_msg("row %zu", i);
    }
    struct pl_engine_load o;
    assert_false(read_text("", &o));
    assert_false(read_text("bentoml_service_request_total 5\nvllm:num_requests_running_total 7\n", &o));
    assert_false(read_text("vllm:num_requests_running{ 5\n", &o));
}

RUN(cmocka_unit_test(a_recorded_page_of_vllm), cmocka_unit_test(two_engines_behind_one_page),
    cmocka_unit_test(sglang_and_llama_say_it_with_other_names), cmocka_unit_test(what_cannot_be_is_not_known))
