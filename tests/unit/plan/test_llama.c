/* test_llama.c - KV buffers of recorded llama.cpp load logs, byte for byte: the line that llama.cpp printed
 * is made anew from the plan and must stand in the log. */
#include "unit.h"

#include "model/num.h"
#include "plan/llama.h"
#include "plan_data.h"

#define LOGS PL_TEST_DATA "/llama/"

static char *read_log(const char *name) {
    char path[512];
    snprintf(path, sizeof path, LOGS "%s", name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* "llama.block_count u32 = 30" of the log's list of keys; `none` when it is not there. */
static uint32_t key(const char *log, const char *arch, const char *name, uint32_t none) {
    char whole[96];
    snprintf(whole, sizeof whole, " %s.%s ", arch, name);
    const char *at = strstr(log, whole);
    return at != NULL ? (uint32_t)strtoul(strchr(at, '=') + 1, NULL, 10) : none;
}

static void model_of(const char *log, struct pl_arena *a, struct pl_model *m) {
    const char *arch = strstr(log, " gemma3.block_count ") != NULL ? "gemma3" : "llama";
    struct pl_err err = { 0 };
    pl_model_init(m, a);
    m->layers = key(log, arch, "block_count", 0);
    m->hidden = key(log, arch, "embedding_length", 0);
    m->heads = key(log, arch, "attention.head_count", 0);
    m->intermediate = key(log, arch, "feed_forward_length", 0);
    m->vocab = strcmp(arch, "gemma3") == 0 ? 262144 : key(log, arch, "vocab_size", 0);
    uint32_t head = key(log, arch, "attention.key_length", m->hidden / m->heads),
             window = key(log, arch, "attention.sliding_window", 0);
    for (uint32_t i = 0; i < m->layers; i++) {
        struct pl_cache c = { .layer = i,
                              .kv_heads = key(log, arch, "attention.head_count_kv", 0),
                              .head_k = head,
                              .head_v = head,
                              .window = window };
        c.kind = window != 0 && i % 6 != 5 ? PL_CACHE_SLIDING : PL_CACHE_FULL;
        assert_true(pl_model_add_cache(m, c, &err));
    }
}

static void must_stand(const char *log, const struct pl_llama_cache *c, const struct pl_llama *o) {
    char line[256];
    uint64_t bytes = c->k_bytes + c->v_bytes;
    if (c->layers == 0) return;
    snprintf(line, sizeof line,
             "size = %7.2f MiB (%6u cells, %3d layers, %2u/%u seqs), K (%s): %7.2f MiB, V (%s): %7.2f MiB\n",
             (double)bytes / (double)PL_MIB, (unsigned)c->cells, (int)c->layers, (unsigned)o->n_seq,
             o->split ? (unsigned)o->n_seq : 1, o->type_k, (double)c->k_bytes / (double)PL_MIB, o->type_v,
             (double)c->v_bytes / (double)PL_MIB);
    if (strstr(log, line) == NULL) fail_msg("not in the log: %s", line);
    print_message("%s", line);
}

TEST(kv_buffers_of_recorded_logs_are_planned_to_the_byte) {
    struct json *all = plan_data(LOGS "expected.json");
    size_t count = 0;
    for (struct json *c = json_first(all, "cases"); c != NULL; c = c->next) {
        if (json_get(c, "caches") == NULL) continue; /* logs of failures */
        const struct json *context = json_get(c, "context");
        char *log = read_log(json_str(c, "file"));
        struct pl_arena a;
        struct pl_model m;
        struct pl_llama_cache full, sliding;
        pl_arena_init(&a, 1 << 20);
        model_of(log, &a, &m);
        struct pl_llama o = { .n_ctx = plan_count(context, "n_ctx"),
                              .n_seq = plan_count(context, "n_seq_max"),
                              .n_ubatch = plan_count(context, "n_ubatch"),
                              .n_outputs = plan_count(context, "n_outputs_max"),
                              .split = json_flag(context, "kv_unified") == 0,
                              .swa_full = strstr(json_str(c, "file"), "swa_full") != NULL };
        o.type_k = o.type_v = json_str(json_first(c, "caches"), "type_k");
        pl_llama_caches(&m, &o, &full, &sliding);
        must_stand(log, &full, &o);
        must_stand(log, &sliding, &o);
        uint64_t both = full.k_bytes + full.v_bytes + sliding.k_bytes + sliding.v_bytes;
        assert_int_equal(both, (uint64_t)(plan_number(c, "kv_total_mib", 0) * (double)PL_MIB));
        struct pl_llama_bytes b = pl_llama_bytes(&m, &o);
        assert_int_equal(b.kv, both);
        for (struct json *buffer = json_first(c, "buffers_mib"); buffer != NULL; buffer = buffer->next) {
            double logged = plan_number(buffer, "mib", 0), mine;
            if (strcmp(json_str(buffer, "kind"), "output") == 0)
                mine = (double)b.output / (double)PL_MIB;
            else if (strcmp(json_str(buffer, "kind"), "compute") == 0)
                mine = (double)b.compute / (double)PL_MIB;
            else
                continue;
            print_message("%-32s %-8s logged %8.2f planned %8.2f MiB\n", json_str(c, "file"),
                          json_str(buffer, "kind"), logged, mine);
            assert_true(mine <= logged * 1.05 && mine >= logged * 0.92);
        }
        pl_arena_free(&a);
        free(log);
        count++;
    }
    assert_true(count >= 8);
    json_free(all);
}

TEST(rows_have_the_bytes_of_their_blocks) {
    assert_int_equal(pl_ggml_row("q8_0", 64), 68);
    assert_int_equal(pl_ggml_row("q4_0", 64), 36);
    assert_int_equal(pl_ggml_row("f32", 3), 12);
    assert_int_equal(pl_ggml_row("no such type", 3), UINT64_MAX);
}

RUN(cmocka_unit_test(kv_buffers_of_recorded_logs_are_planned_to_the_byte),
    cmocka_unit_test(rows_have_the_bytes_of_their_blocks))
