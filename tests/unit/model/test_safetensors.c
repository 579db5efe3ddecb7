/* test_safetensors.c - headers that add up, and headers that do not; weights told from names and from the
 * geometry. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"

static struct pl_weights w;
static struct pl_err err;

/* The header, copied so that a sanitizer sees a byte too many; `data` bytes of tensors follow it in the file.
 */
static bool add(const char *json, uint64_t data) {
    size_t n = strlen(json);
    char *bytes = malloc(8 + n);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(n >> (8 * i));
    memcpy(bytes + 8, json, n);
    memset(&w, 0, sizeof w);
    memset(&err, 0, sizeof err);
    bool ok = pl_safetensors_add(&w, bytes, 8 + n, 8 + n + data, &err);
    free(bytes);
    return ok;
}

TEST(tensors_are_summed_by_dtype_and_place) {
    assert_true(
        add("{\"__metadata__\":{\"format\":\"pt\",\"x\":[1,{\"y\":null}]},"
            "\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":[10,4],\"data_offsets\":[0,80]},"
            "\"model.layers.0.self_attn.k_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[2,4],\"data_offsets\":"
            "[80,96]},"
            "\"model.layers.1.mlp.experts.7.up_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,4],\"data_"
            "offsets\":[96,112]},"
            "\"model.layers.1.input_layernorm.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":["
            "112,128]},"
            "\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[10,4],\"data_offsets\":[128,208]},"
            "\"empty\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[208,208]}} ",
            208));
    assert_int_equal(w.total, 208);
    assert_int_equal(w.tensors, 6);
    assert_int_equal(w.embed, 80);
    assert_int_equal(w.head, 80);
    assert_int_equal(w.layers, 2);
    assert_int_equal(w.layer[0].bytes[PL_WEIGHT_KV], 16);
    assert_int_equal(w.layer[1].bytes[PL_WEIGHT_EXPERT], 16);
    assert_int_equal(w.layer[1].bytes[PL_WEIGHT_REPLICATED], 16);
    assert_int_equal(w.by_dtype[PL_DTYPE_BF16], 176);
    assert_int_equal(w.matrices, 16);
    assert_int_equal(w.origin, PL_WEIGHTS_HEADER);
}

TEST(headers_that_lie_are_refused) {
    static const struct {
        const char *json;
        uint64_t data;
        const char *says;
    } cases[] = {
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
          "its shape and its bytes differ" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}", 4, "cut off" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[8,0]}}", 8, "outside of the file" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4]}}", 8, "data_offsets is missing" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F16\","
          "\"shape\":[4],\"data_offsets\":[0,8]}}",
          8, "overlap" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
          "differ" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[99999999999999999999999],\"data_offsets\":[0,8]}}", 8,
          "differ" },
        { "{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8,9]}}", 8, "too long" },
        { "{\"a\":1}", 8, "'{' expected" },
        { "{\"a", 8, "without an end" },
        { "{\"a\\", 8, "without an end" },
        { "{}x", 8, "behind the end" },
        { "{,}", 8, "'\"' expected" },
        { "{\"__metadata__\":[[[[[[[[[[[1]]]]]]]]]]]}", 0, "nested too deep" },
        { "nonsense", 8, "'{' expected" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(add(cases[i].json, cases[i].data));
        if (strstr(err.msg, cases[i].says) == NULL) fail_msg("%s says: %s", cases[i].json, err.msg);
    }
    assert_false(pl_safetensors_header("\xff\xff\xff\xff\xff\xff\xff\xff", 1000, &err));
    assert_false(pl_safetensors_header("\x01\0\0\0\0\0\0\0", 1000, &err));
    assert_false(
        pl_safetensors_header("\0\0\0\x7f\0\0\0\0", UINT64_MAX, &err)); /* over the format's 100 MiB */
}

TEST(a_dtype_of_tomorrow_counts_by_its_offsets) {
    assert_true(add("{\"a\":{\"dtype\":\"F3_E1M1\",\"shape\":[8],\"data_offsets\":[0,3]}}", 3));
    assert_int_equal(w.total, 3);
}

TEST(index_names_files_of_its_folder_only) {
    struct pl_arena a;
    struct pl_shards s;
    static const char good[] = "{\"metadata\":{\"total_size\":99},\"weight_map\":{\"a\":\"x-1.safetensors\","
                               "\"b\":\"x-2.safetensors\",\"c\":\"x-1.safetensors\"}}";
    static const char *const bad[] = {
        "{\"weight_map\":{\"a\":\"../x\"}}", "{\"weight_map\":{\"a\":7}}", "{\"weight_map\":{}}", "{}", "[",
        "{\"weight_map\":{\"a\":\".x\"}}"
    };
    pl_arena_init(&a, 1 << 20);
    assert_true(pl_safetensors_index(good, sizeof good - 1, &a, &s, &err));
    assert_int_equal(s.count, 2);
    assert_int_equal(s.total_bytes, 99);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(pl_safetensors_index(bad[i], strlen(bad[i]), &a, &s, &err));
    pl_arena_free(&a);
}

/* 13,015,864,320 parameters, as the file of the real model has. */
TEST(weights_of_a_13b_model_come_from_its_sizes) {
    static const char config[] =
        "{\"model_type\":\"llama\",\"num_hidden_layers\":40,\"num_attention_heads\":40,\"hidden_size\":5120,"
        "\"intermediate_size\":13824,\"vocab_size\":32000,\"torch_dtype\":\"float16\"}";
    struct pl_arena a;
    struct pl_model m;
    pl_arena_init(&a, 8 << 20);
    assert_true(pl_model_read_config(config, sizeof config - 1, &a, &m, &err));
    assert_true(pl_weights_from_model(&w, &m, &err));
    assert_int_equal(w.total, UINT64_C(26031728640));
    assert_int_equal(w.matrix_values, UINT64_C(12687769600));
    m.vocab = 0;
    assert_false(pl_weights_from_model(&w, &m, &err));
    assert_non_null(strstr(err.msg, "vocab_size"));
    m.vocab = m.hidden = m.heads = m.kv_heads = m.intermediate = PL_MODEL_DIM;
    for (size_t i = 0; i < m.cache_count; i++)
        m.caches[i].head_k = m.caches[i].head_v = m.caches[i].kv_heads = PL_MODEL_DIM;
    assert_false(pl_weights_from_model(&w, &m, &err));
    assert_non_null(strstr(err.msg, "too large"));
    pl_arena_free(&a);
}

RUN(cmocka_unit_test(tensors_are_summed_by_dtype_and_place), cmocka_unit_test(headers_that_lie_are_refused),
    cmocka_unit_test(a_dtype_of_tomorrow_counts_by_its_offsets),
    cmocka_unit_test(index_names_files_of_its_folder_only),
    cmocka_unit_test(weights_of_a_13b_model_come_from_its_sizes))
