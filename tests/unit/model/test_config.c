/* test_config.c - config.json: which caches, what is refused and in which words. */
#include "unit.h"

#include <string.h>

#include "model/model.h"

static struct pl_arena arena;
static struct pl_model m;
static struct pl_err err;

static bool read(const char *text) {
    pl_arena_free(&arena);
    pl_arena_init(&arena, 8 << 20);
    memset(&err, 0, sizeof err);
    return pl_model_read_config(text, strlen(text), &arena, &m, &err);
}
static void must(const char *text) {
    if (!read(text)) fail_msg("%s: %s", text, err.msg);
}
static size_t count(enum pl_cache_kind k) { return pl_model_count(&m, k); }
static bool noted(const char *part) {
    for (const struct pl_note *n = m.notes; n != NULL; n = n->next)
        if (strstr(n->text, part) != NULL) return true;
    return false;
}

TEST(each_family_keeps_the_caches_it_has) {
    static const struct {
        const char *text;
        size_t full, sliding, chunked, mla, index, state;
    } cases[] = {
        { "{\"model_type\":\"llama\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512}",
          4, 0, 0, 0, 0, 0 },
        { "{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_head\":12,\"n_embd\":768,\"n_positions\":1024}", 12, 0,
          0, 0, 0, 0 },
        { "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":12,\"num_attention_heads\":4,\"hidden_"
          "size\":640,\"head_dim\":256,\"sliding_window\":512}",
          2, 10, 0, 0, 0, 0 },
        { "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"sliding_window\":128}",
          2, 2, 0, 0, 0, 0 },
        { "{\"model_type\":\"qwen2\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"sliding_window\":128,\"use_sliding_window\":false}",
          4, 0, 0, 0, 0, 0 },
        { "{\"model_type\":\"llama4_text\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":"
          "512,\"attention_chunk_size\":64}",
          1, 0, 3, 0, 0, 0 },
        { "{\"model_type\":\"deepseek_v32\",\"num_hidden_layers\":3,\"num_attention_heads\":8,\"hidden_"
          "size\":512,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"index_head_dim\":128}",
          0, 0, 0, 3, 3, 0 },
        { "{\"model_type\":\"falcon_h1\",\"num_hidden_layers\":3,\"num_attention_heads\":8,\"hidden_size\":"
          "512,\"mamba_n_heads\":4,\"mamba_d_head\":64,\"mamba_d_ssm\":256,\"mamba_d_state\":16}",
          3, 0, 0, 0, 0, 3 },
        { "{\"model_type\":\"bamba\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"attn_layer_indices\":[1],\"mamba_n_heads\":16,\"mamba_d_head\":\"auto\",\"mamba_d_state\":16}",
          1, 0, 0, 0, 0, 3 },
        { "{\"model_type\":\"nemotron_h\",\"num_hidden_layers\":6,\"num_attention_heads\":8,\"hidden_size\":"
          "512,\"hybrid_override_pattern\":\"M-M*-E\",\"mamba_num_heads\":8,\"mamba_head_dim\":64,\"ssm_"
          "state_size\":16}",
          1, 0, 0, 0, 0, 2 },
        { "{\"model_type\":\"jamba\",\"num_hidden_layers\":8,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"attn_layer_period\":8,\"attn_layer_offset\":4,\"mamba_d_state\":16}",
          1, 0, 0, 0, 0, 7 },
        { "{\"model_type\":\"lfm2\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"full_attn_idxs\":[2],\"conv_L_cache\":3}",
          1, 0, 0, 0, 0, 3 },
        { "{\"model_type\":\"gemma3n_text\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_"
          "size\":512,\"sliding_window\":64,\"num_kv_shared_layers\":2,\"layer_types\":[\"sliding_"
          "attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
          1, 1, 0, 0, 0, 0 },
        { "{\"model_type\":\"qwen2\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512,"
          "\"sliding_window\":64,\"use_sliding_window\":true,\"max_window_layers\":3}",
          3, 1, 0, 0, 0, 0 },
        { "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":"
          "512,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"linear_attn_config\":{\"num_heads\":8,\"head_"
          "dim\":64,\"full_attn_layers\":[4],\"kda_layers\":[1,2,3]}}",
          0, 0, 0, 1, 0, 3 },
        { "{\"model_type\":\"minimax_text_01\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_"
          "size\":512,\"attn_type_list\":[0,0,0,1]}",
          1, 0, 0, 0, 0, 3 },
        { "{\"model_type\":\"bert\",\"num_hidden_layers\":4,\"num_attention_heads\":8,\"hidden_size\":512}",
          0, 0, 0, 0, 0, 0 },
        { "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":2,\"num_attention_heads\":8,\"hidden_size\":"
          "512,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,\"layer_types\":[\"linear_attention\",\"full_"
          "attention\"],\"linear_attn_config\":{\"num_heads\":8,\"head_dim\":64}}",
          0, 0, 0, 1, 0, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(cases[i].text);
        assert_int_equal(count(PL_CACHE_FULL), cases[i].full);
        assert_int_equal(count(PL_CACHE_SLIDING), cases[i].sliding);
        assert_int_equal(count(PL_CACHE_CHUNKED), cases[i].chunked);
        assert_int_equal(count(PL_CACHE_MLA), cases[i].mla);
        assert_int_equal(count(PL_CACHE_INDEX), cases[i].index);
        assert_int_equal(count(PL_CACHE_STATE), cases[i].state);
    }
    assert_int_equal(m.state.kind, PL_STATE_KDA);
}

TEST(bad_configurations_are_refused_by_name) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{\"model_type\":\"mamba2\",\"num_hidden_layers\":2,\"hidden_size\":512}",
          "without attention is not planned" },
        { "{\"model_type\":\"kimi_linear\",\"num_hidden_layers\":2,\"hidden_size\":512,\"linear_attn_"
          "config\":{\"full_attn_layers\":[0]}}",
          "no layer of 1 to 2" },
        { "{\"model_type\":\"minimax\",\"num_hidden_layers\":2,\"hidden_size\":512,\"attn_type_list\":[0]}",
          "attn_type_list has 1 entries" },
        { "", "1:" },
        { "[1]", "an object is expected" },
        { "{\"a\":1,\"a\":2}", "duplicate" },
        { "{\"num_hidden_layers\":4,", "1:" },
        { "{\"hidden_size\":512}", "num_hidden_layers is missing" },
        { "{\"num_hidden_layers\":4}", "hidden_size is missing" },
        { "{\"num_hidden_layers\":4.5,\"hidden_size\":512}", "num_hidden_layers is not a whole number" },
        { "{\"num_hidden_layers\":-1,\"hidden_size\":512}", "num_hidden_layers is not a whole number" },
        { "{\"num_hidden_layers\":5000,\"hidden_size\":512}", "from 0 to 1024" },
        { "{\"num_hidden_layers\":\"4\",\"hidden_size\":512}", "num_hidden_layers is not a whole number" },
        { "{\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8,\"num_key_value_heads\":"
          "16}",
          "num_key_value_heads is 16, but num_attention_heads is 8" },
        { "{\"num_hidden_layers\":4,\"hidden_size\":512,\"num_attention_heads\":8,\"layer_types\":[\"full_"
          "attention\"]}",
          "layer_types has 1 entries, but there are 4 layers" },
        { "{\"num_hidden_layers\":1,\"hidden_size\":512,\"num_attention_heads\":8,\"layer_types\":["
          "\"telepathy\\u001b\"]}",
          "'telepathy?' is no kind of layer" },
        { "{\"num_hidden_layers\":1,\"hidden_size\":512,\"num_attention_heads\":8,\"layer_types\":[\"sliding_"
          "attention\"]}",
          "no sliding_window" },
        { "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"layer_types\":[\"mamba\","
          "\"mamba\"]}",
          "of no kind that is understood" },
        { "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"kv_lora_rank\":512}",
          "kv_lora_rank without qk_rope_head_dim" },
        { "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"hybrid_override_"
          "pattern\":\"MX\"}",
          "letter 2" },
        { "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"num_experts\":4,\"num_"
          "experts_per_tok\":8}",
          "but there are 4 experts" },
        { "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"block_configs\":[]}",
          "block_configs" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(read(cases[i].text));
        if (strstr(err.msg, cases[i].says) == NULL) fail_msg("%s says: %s", cases[i].text, err.msg);
        assert_int_equal(err.code, PL_E_CONFIG);
    }
}

TEST(what_is_missing_is_assumed_aloud) {
    must(
        "{\"model_type\":\"newborn\",\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8}");
    assert_true(m.provisional);
    assert_true(noted("architecture 'newborn' is not known"));
    assert_true(noted("no context length"));
    assert_int_equal(m.kv_heads, 8);
    must("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":500,\"num_attention_heads\":8,"
         "\"max_position_embeddings\":64}");
    assert_true(noted("no multiple of 8 heads"));
    assert_false(m.provisional);
}

TEST(context_heeds_rope_scaling_once) {
#define BASE                                                                                                 \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8,\"max_" \
    "position_embeddings\":"
    must(BASE "131072,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"original_max_position_"
              "embeddings\":8192}}");
    assert_int_equal(m.context, 131072);
    must(BASE "32768,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":"
              "32768}}");
    assert_int_equal(m.context, 131072);
    must(BASE "4096,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}");
    assert_int_equal(m.context, 8192);
    must(BASE "4096,\"model_max_length\":2048}");
    assert_int_equal(m.context, 2048);
}

TEST(neighbouring_files_add_what_they_know) {
    must(BASE "4096}");
    const char *generation = "{\"max_new_tokens\": 300}",
               *quant = "{\"quantization\":{\"quant_algo\":\"FP8\"}}", *broken = "{";
    pl_model_read_generation(&m, generation, strlen(generation));
    assert_int_equal(m.max_new_tokens, 300);
    pl_model_read_quant(&m, quant, strlen(quant));
    assert_string_equal(m.quant, "FP8");
    assert_int_equal(m.quant_bits, 8);
    pl_model_read_generation(&m, broken, 1);
    assert_true(noted("generation_config.json is not used"));
    must(BASE "4096,\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
              "\"group_0\":{\"weights\":{\"num_bits\":4}}}}}");
    assert_int_equal(m.quant_bits, 4);
}

static int end(void **state) {
    (void)state;
    pl_arena_free(&arena);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_keeps_the_caches_it_has),
        cmocka_unit_test(bad_configurations_are_refused_by_name),
        cmocka_unit_test(what_is_missing_is_assumed_aloud),
        cmocka_unit_test(context_heeds_rope_scaling_once),
        cmocka_unit_test(neighbouring_files_add_what_they_know),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
