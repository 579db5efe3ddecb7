/* test_gguf.c - GGUF heads: every value type, both versions, cut anywhere, and files that lie. */
#include "unit.h"

#include <stdlib.h>

#include "gguf_writer.h"

static struct pl_arena arena;
static struct pl_model m;
static struct pl_weights w;
static struct pl_err err;

static enum pl_gguf_result read(const struct pl_buf *b, size_t len, uint64_t file) {
    char *exact = malloc(len + 1);
    memcpy(exact, b->data, len);
    pl_arena_free(&arena);
    pl_arena_init(&arena, 8 << 20);
    memset(&w, 0, sizeof w);
    memset(&err, 0, sizeof err);
    /* an exact copy would end at `len`; one byte more keeps malloc(0) out */
    enum pl_gguf_result r = pl_gguf_read(exact, len, file, &arena, &m, &w, &err);
    free(exact);
    return r;
}

static void small_model(struct pl_buf *b, uint32_t version) {
    pl_buf_init(b, 0);
    gguf_head(b, version, 2, 18);
    gguf_str(b, "general.architecture", "gemma3");
    gguf_u32(b, "gemma3.block_count", 6);
    gguf_u32(b, "gemma3.context_length", 8192);
    gguf_u32(b, "gemma3.embedding_length", 640);
    gguf_u32(b, "gemma3.attention.head_count", 4);
    gguf_u32(b, "gemma3.attention.head_count_kv", 1);
    gguf_u32(b, "gemma3.attention.key_length", 256);
    gguf_u32(b, "gemma3.attention.value_length", 256);
    gguf_u32(b, "gemma3.attention.sliding_window", 512);
    static const struct {
        uint32_t type;
        unsigned width;
    } others[] = { { PL_GGUF_UINT8, 1 }, { PL_GGUF_INT8, 1 },    { PL_GGUF_UINT16, 2 },
                   { PL_GGUF_INT64, 8 }, { PL_GGUF_FLOAT32, 4 }, { PL_GGUF_FLOAT64, 8 },
                   { PL_GGUF_BOOL, 1 } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        gguf_text(b, "some.key");
        gguf_int(b, others[i].type, 4);
        gguf_int(b, 1, others[i].width);
    }
    gguf_text(b, "tokenizer.ggml.tokens");
    gguf_int(b, PL_GGUF_ARRAY, 4);
    gguf_int(b, PL_GGUF_STRING, 4);
    gguf_int(b, 3, 8);
    gguf_text(b, "a");
    gguf_text(b, "");
    gguf_text(b, "ccc");
    gguf_text(b, "tokenizer.ggml.scores");
    gguf_int(b, PL_GGUF_ARRAY, 4);
    gguf_int(b, PL_GGUF_FLOAT32, 4);
    gguf_int(b, 2000, 8);
    for (int i = 0; i < 2000; i++) gguf_int(b, 0, 4);
    gguf_tensor(b, "token_embd.weight", 640, 3, 12,
                0); /* q4_K: 3 * 640 is no multiple, but a row is not either */
    gguf_tensor(b, "blk.0.attn_k.weight", 640, 256, 1, 2048); /* f16 */
}

TEST(a_head_says_what_it_holds) {
    for (uint32_t version = 2; version <= 3; version++) {
        struct pl_buf b;
        small_model(&b, version);
        assert_int_equal(read(&b, b.len, b.len + 1000000), PL_GGUF_BAD); /* 640 is no whole number of 256 */
        assert_non_null(strstr(err.msg, "whole blocks"));
        char *type = b.data + b.len - (8 + 4 + 8 + 8 + 4 + 19 + 8) - 8 - 4; /* q4_K becomes q8_0 */
        assert_int_equal(*type, 12);
        *type = 8;
        assert_int_equal(read(&b, b.len, b.len + 1000000), PL_GGUF_OK);
        assert_int_equal(m.layers, 6);
        assert_int_equal(m.vocab, 3);
        assert_int_equal(pl_model_count(&m, PL_CACHE_FULL), 1);
        assert_int_equal(pl_model_count(&m, PL_CACHE_SLIDING), 5);
        assert_int_equal(w.embed, 640 * 3 / 32 * 34);
        assert_int_equal(w.layer[0].bytes[PL_WEIGHT_KV], 640 * 256 * 2);
        assert_int_equal(w.total, 640 * 3 / 32 * 34 + 640 * 256 * 2);
        /* cut anywhere, more is wanted; as a whole file it is refused */
        for (size_t cut = 0; cut < b.len; cut += cut < 600 ? 1 : 97) {
            assert_int_equal(read(&b, cut, b.len + 1000000), PL_GGUF_MORE);
            assert_int_equal(read(&b, cut, cut), PL_GGUF_BAD);
        }
        assert_int_equal(read(&b, b.len, b.len + 1000), PL_GGUF_BAD);
        assert_non_null(strstr(err.msg, "cut off"));
        pl_buf_free(&b);
    }
}

TEST(heads_that_lie_are_refused) {
    struct pl_buf b;
    static const struct {
        uint32_t version;
        uint64_t tensors, keys;
        const char *says;
    } cases[] = { { 1, 0, 0, "version 1" },
                  { 4, 0, 0, "not known" },
                  { 0x03000000, 0, 0, "big-endian" },
                  { 3, UINT64_MAX, 0, "more tensors" },
                  { 3, 0, UINT64_MAX, "more tensors" },
                  { 3, 0, 0, "general.architecture" },
                  { 3, 0, 1, "ends inside" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_buf_init(&b, 0);
        gguf_head(&b, cases[i].version, cases[i].tensors, cases[i].keys);
        assert_int_equal(read(&b, b.len, b.len), PL_GGUF_BAD);
        if (strstr(err.msg, cases[i].says) == NULL) fail_msg("%zu says: %s", i, err.msg);
        pl_buf_free(&b);
    }
    pl_buf_init(&b, 0); /* a name of 2^63 bytes */
    gguf_head(&b, 3, 0, 1);
    gguf_int(&b, UINT64_C(1) << 63, 8);
    assert_int_equal(read(&b, b.len, UINT64_MAX), PL_GGUF_MORE);
    assert_int_equal(read(&b, b.len, 1 << 20), PL_GGUF_BAD);
    pl_buf_free(&b);
    pl_buf_init(&b, 0);
    gguf_head(&b, 3, 0, 2);
    gguf_str(&b, "general.architecture", "llama");
    gguf_u32(&b, "llama.block_count", 100000);
    assert_int_equal(read(&b, b.len, b.len), PL_GGUF_BAD);
    assert_non_null(strstr(err.msg, "block_count"));
    pl_buf_free(&b);
    pl_buf_init(&b, 0);
    pl_buf_adds(&b, "PK\3\4 and so on and on");
    assert_int_equal(read(&b, b.len, b.len), PL_GGUF_BAD);
    assert_non_null(strstr(err.msg, "not a GGUF file"));
    pl_buf_free(&b);
}

TEST(heads_per_layer_make_a_hybrid) {
    struct pl_buf b;
    static const uint32_t heads[] = { 0, 0, 2, 0 };
    pl_buf_init(&b, 0);
    gguf_head(&b, 3, 0, 10);
    gguf_str(&b, "general.architecture", "granitehybrid");
    gguf_u32(&b, "granitehybrid.block_count", 4);
    gguf_u32(&b, "granitehybrid.embedding_length", 512);
    gguf_u32(&b, "granitehybrid.attention.head_count", 8);
    gguf_list(&b, "granitehybrid.attention.head_count_kv", heads, 4);
    gguf_u32(&b, "granitehybrid.ssm.conv_kernel", 4);
    gguf_u32(&b, "granitehybrid.ssm.inner_size", 1024);
    gguf_u32(&b, "granitehybrid.ssm.state_size", 128);
    gguf_u32(&b, "granitehybrid.ssm.group_count", 1);
    gguf_u32(&b, "granitehybrid.ssm.time_step_rank", 16);
    assert_int_equal(read(&b, b.len, b.len), PL_GGUF_OK);
    assert_int_equal(pl_model_count(&m, PL_CACHE_FULL), 1);
    assert_int_equal(pl_model_count(&m, PL_CACHE_STATE), 3);
    assert_int_equal(m.state.inner, 1024);
    pl_buf_free(&b);
}

static int end(void **state) {
    (void)state;
    pl_arena_free(&arena);
    return 0;
}
int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_head_says_what_it_holds),
                                        cmocka_unit_test(heads_that_lie_are_refused),
                                        cmocka_unit_test(heads_per_layer_make_a_hybrid) };
    return cmocka_run_group_tests(tests, NULL, end);
}
