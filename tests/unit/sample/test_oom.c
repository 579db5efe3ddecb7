/* tests/data/oom/messages.json: every known form, exact to the byte, and three texts that are none. */
#include "sample/oom.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "unit.h"

#define GIB(x) ((uint64_t)((x)*1024 * 1024 * 1024 + 0.5))
static const uint64_t mib = 1 << 20;

static const struct json *field(const struct json *o, const char *name) {
    for (const struct json *j = o != NULL ? o->first : NULL; j != NULL; j = j->next)
        if (j->name != NULL && strcmp(j->name, name) == 0) return j;
    return NULL;
}

/* null, or not there, is "not known". */
static uint64_t figure(const struct json *o, const char *name) {
    const struct json *j = field(o, name);
    return j != NULL && j->kind == JSON_NUMBER ? (uint64_t)j->number : PL_OOM_UNKNOWN;
}

static struct json *messages(void) {
    static char text[1 << 17];
    FILE *f = fopen(PL_TEST_DATA "/oom/messages.json", "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = text;
    return json_value(&at);
}

static void check_figures(unsigned row, const struct json *want, const struct pl_oom *o) {
    const struct {
        const char *name;
        uint64_t got;
    } figures[] = { { "total", o->total },
                    { "free", o->free },
                    { "this_process", o->this_process },
                    { "allowed", o->allowed },
                    { "allocated", o->allocated },
                    { "private_pools", o->private_pools },
                    { "unallocated", o->unallocated },
                    { "max_seq_len", o->max_seq_len },
                    { "fits_len", o->fits_len },
                    { "needed", o->needed },
                    { "available", o->available },
                    { "reserved", o->reserved } };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (figures[i].got != figure(want, figures[i].name))
            fail_msg("row %u: %s is %llu", row, figures[i].name, (unsigned long long)figures[i].got);
    uint64_t device = figure(want, "device"), pid = figure(want, "pid");
    assert_int_equal(o->device, device != PL_OOM_UNKNOWN ? device : UINT32_MAX);
    assert_int_equal(o->pid, pid != PL_OOM_UNKNOWN ? pid : 0);
    if (field(want, "requested") != NULL) assert_int_equal(o->requested, figure(want, "requested"));
    static const char *const names[] = { "name", "backend", "allocator" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (field(want, names[i]) != NULL) assert_string_equal(o->name, field(want, names[i])->text);
    if (field(want, "expandable_enabled") != NULL)
        assert_int_equal(o->expandable, (int)field(want, "expandable_enabled")->number);
    if (field(want, "available_gib") != NULL)
        assert_true(fabs(o->available_gib - field(want, "available_gib")->number) < 1e-9);
    uint32_t count = 0;
    const struct json *processes = field(want, "processes");
    for (const struct json *p = processes != NULL ? processes->first : NULL; p != NULL;
         p = p->next, count++) {
        assert_int_equal(o->processes[count].pid, figure(p, "pid"));
        assert_int_equal(o->processes[count].bytes, figure(p, "bytes"));
    }
    assert_int_equal(o->process_count, count);
}

TEST(every_message_is_read_to_the_byte) {
    struct json *list = messages();
    unsigned row = 0, negative = 0;
    for (const struct json *m = list->first; m != NULL; m = m->next, row++) {
        const struct json *text = field(m, "text"), *want = field(m, "expect");
        struct pl_oom o, said;
        bool is = pl_oom_parse(text->text, text->len, &o);
        if (want->kind == JSON_NULL) {
            assert_false(is);
            assert_false(pl_oom_in_line(text->text, text->len, &said));
            negative++;
            continue;
        }
        if (!is || strcmp(pl_oom_kind_name(o.kind), field(want, "kind")->text) != 0)
            fail_msg("row %u: %s", row, pl_oom_kind_name(o.kind));
        check_figures(row, want, &o);
        const struct json *verdict = field(m, "verdict");
        const char *got = pl_oom_verdict_name(pl_oom_judge(&o));
        if (verdict->kind == JSON_NULL ? got != NULL : got == NULL || strcmp(got, verdict->text) != 0)
            fail_msg("row %u: verdict %s", row, got != NULL ? got : "none");
        if (!pl_oom_in_line(text->text, text->len, &said) || said.kind != o.kind)
            fail_msg("row %u: not taken as the program's own words", row);
    }
    assert_int_equal(row, 39);
    assert_int_equal(negative, 3);
    json_free(list);
}

TEST(a_rejected_size_and_the_jax_one_are_read_too) {
    static const char rejected[] =
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        "per_process_memory_fraction limit. Requested size: 2.00 GiB";
    static const char jax[] = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes";
    struct pl_oom o;
    assert_true(pl_oom_parse(rejected, strlen(rejected), &o));
    assert_int_equal(o.requested, GIB(2.0));
    assert_true(pl_oom_parse(jax, strlen(jax), &o));
    assert_int_equal(o.requested, GIB(16.0));
}

TEST(rocm_says_it_with_another_word) {
    static const char text[] =
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
        "capacity of 63.98 GiB of which 1.00 GiB is free. Of the allocated memory 60.00 GiB is "
        "allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";
    struct pl_oom o;
    assert_true(pl_oom_in_line(text, strlen(text), &o));
    assert_true(o.kind == PL_OOM_TORCH && o.device == 1 && o.total == GIB(63.98));
}

TEST(words_of_others_are_not_the_programs_own) {
    static const struct {
        const char *line;
        bool said;
    } rows[] = {
        { "RuntimeError: CUDA error: out of memory", true },
        { "ggml_cuda_error: CUDA error: out of memory", true },
        { "CUDA out of memory", true },
        { "torch.OutOfMemoryError (service.py:3)", true },
        { "torch.cuda.OutOfMemoryError: allocation failed", true },
        { "worker-3:912:1044 [3] NCCL WARN Cuda failure 2 'out of memory'", true },
        { "(EngineCore pid=412) ERROR 11-29 16:20:11 [core.py:1510] ValueError: No available memory for the "
          "cache "
          "blocks. Try",
          true },
        { "2026-11-29 [E] [serve] CUDA error: out of memory", true },
        { "{\"error\": \"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; "
          "7.00 GiB "
          "already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\"}",
          true },
        { "customer says \"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; "
          "7.00 GiB "
          "already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\"",
          false },
        { "summary of ticket 4711: customer says \"CUDA out of memory\" since Tuesday", false },
        { "prompt: why do I get CUBLAS_STATUS_ALLOC_FAILED here", false },
        { "KeyError: 'CUDA out of memory'", false },
        { "KeyError: 'CUDA error: out of memory'", false },
        { "MemoryError", false },
        { "OutOfMemory", false },
        { "", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_oom o;
        if (pl_oom_in_line(rows[i].line, strlen(rows[i].line), &o) != rows[i].said) fail_msg("row %zu", i);
    }
}

static bool find(const char *text, struct pl_oom *o) { return pl_oom_last_torch(text, strlen(text), o); }

TEST(what_others_had_follows_from_the_numbers) {
    struct pl_oom o;
    assert_true(find(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 1 has a total "
        "capacity of 1024.00 MiB of which 8.00 MiB is free. Including non-PyTorch memory, this process has "
        "1016.00 MiB memory in use. Of the allocated memory 900.00 MiB is allocated by PyTorch, and 16.00 "
        "MiB is reserved by PyTorch but unallocated. If reserved",
        &o));
    assert_true(o.device == 1 && o.total == GIB(1.0) && o.free == 8 * mib);
    assert_int_equal(pl_oom_reserved(&o), 916 * mib);
    assert_int_equal(pl_oom_other(&o), 100 * mib);
    assert_true(find(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 23.69 GiB of which "
        "1.00 GiB is free. Process 7 has 20.00 GiB memory in use. 20.00 GiB allowed; Of the allocated "
        "memory 18.00 GiB is allocated by PyTorch, with 1.50 GiB allocated in private pools (e.g., CUDA "
        "Graphs), and 500.00 MiB is reserved by PyTorch but unallocated.",
        &o));
    assert_true(o.total == GIB(23.69) && o.allowed == GIB(20.0) && o.process_count == 1);
    assert_int_equal(pl_oom_reserved(&o), GIB(18.0) + 500 * mib);
    assert_true(
        find("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 2; 7.93 GiB total capacity; "
             "6.00 GiB already allocated; 19.00 MiB free; 6.50 GiB reserved in total by PyTorch)",
             &o));
    assert_true(o.device == 2 && o.total == GIB(7.93) && o.free == 19 * mib);
    assert_int_equal(pl_oom_reserved(&o), GIB(6.5));
}

TEST(the_last_message_of_a_log_counts) {
    struct pl_oom o;
    char text[1200];
    int n = 0;
    for (int i = 4; i < 7; i++)
        n += snprintf(
            text + n, sizeof text - (size_t)n,
            "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; %d.00 GiB total capacity; 1.00 GiB "
            "already allocated; 1.00 GiB free; 2.00 GiB reserved in total by PyTorch)\n",
            i);
    assert_true(find(text, &o));
    assert_true(o.total == GIB(6.0) && pl_oom_other(&o) == GIB(3.0));
    assert_false(find("", &o));
    assert_false(find("CUDA out of memory. Tried to allocate ", &o));
    assert_false(
        find("CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of nan GiB of which 1 "
             "GiB is free.",
             &o));
    assert_false(find("CUDA error: out of memory", &o));
}

TEST(last_words_are_those_of_what_cannot_live_on) {
    static const struct {
        const char *log;
        enum pl_oom_kind kind;
    } rows[] = { { "nccl_oom", PL_OOM_NCCL },
                 { "llama_cuda_pool_oom", PL_OOM_CUDA_ERROR },
                 { "llama_buffer_oom", PL_OOM_LLAMA_BUFFER },
                 { "ort_garbage_size", PL_OOM_ONNXRUNTIME },
                 { "vllm_kv_none", PL_OOM_VLLM_NO_BLOCKS },
                 { "vllm_start_kv", PL_OOM_VLLM_LENGTH },
                 { "bento_cuda_oom_request", PL_OOM_NONE }, /* it was survived */
                 { "user_text_decoy", PL_OOM_NONE },
                 { "killed_without_words", PL_OOM_NONE } };
    static char text[1 << 16];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[512];
        struct pl_oom o = { .kind = PL_OOM_NONE };
        snprintf(path, sizeof path, "%s/logs/%s.log", PL_TEST_DATA, rows[i].log);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        bool found = pl_oom_last_words(text, n, &o);
        if (found != (rows[i].kind != PL_OOM_NONE) || o.kind != rows[i].kind)
            fail_msg("%s: %s", rows[i].log, pl_oom_kind_name(o.kind));
    }
}

TEST(every_verdict_is_said_with_its_numbers) {
    struct json *list = messages();
    for (const struct json *m = list->first; m != NULL; m = m->next) {
        struct pl_oom o;
        char words[256];
        pl_oom_parse(field(m, "text")->text, field(m, "text")->len, &o);
        pl_oom_say(&o, words, sizeof words);
        assert_int_equal(words[0] != '\0', field(m, "verdict")->kind == JSON_TEXT);
        if (strstr(words, "in pieces:") != NULL)
            assert_non_null(strstr(words, o.expandable ? "what-if" : "expandable"));
    }
    json_free(list);
}

RUN(cmocka_unit_test(every_message_is_read_to_the_byte),
    cmocka_unit_test(a_rejected_size_and_the_jax_one_are_read_too),
    cmocka_unit_test(rocm_says_it_with_another_word),
    cmocka_unit_test(words_of_others_are_not_the_programs_own),
    cmocka_unit_test(what_others_had_follows_from_the_numbers),
    cmocka_unit_test(the_last_message_of_a_log_counts),
    cmocka_unit_test(last_words_are_those_of_what_cannot_live_on),
    cmocka_unit_test(every_verdict_is_said_with_its_numbers))
