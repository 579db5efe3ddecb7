/* Real ends of workers (tests/data/logs; paths were made /srv/app and /srv/venv) and what is picked from
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "worker/death.h"

static const struct {
    const char *log, *line; /* a line that ends in "..." is a beginning */
} logs[] = {
    { "bento_import_failed",
      "Failed to import module \"service\": No module named 'no_such_tokenizer' (service.py:2)" },
    { "bento_no_class", "Attribute \"Nope\" not found in module \"service\"" },
    { "bento_no_module", "Failed to import module \"nomod\": No module named 'nomod'" },
    { "bento_no_service_file",
      "bentoml.exceptions.ImportServiceError: Failed to load bento or import service '.'. The "
      "directory '/srv/app' does not contain a valid bentofile.yaml or service.py." },
    { "bento_no_dependency", "bentoml.exceptions.BentoMLException: Service Other not found" },
    { "bento_syntax_error", "SyntaxError: expected ':' (service.py:3)" },
    { "bento_missing_variable", "KeyError: 'MODEL_KEY' (service.py:2)" },
    { "bento_init_failed",
      "FileNotFoundError: no weights at model.pt: run save_model.py first (service.py:10)" },
    { "bento_chained", "RuntimeError: cannot load the model (service.py:6)" },
    { "bento_assertion", "AssertionError (service.py:5)" },
    { "bento_two_lines", "RuntimeError: first line (service.py:5)" },
    { "bento_sys_exit", "SystemExit: no licence (service.py:5)" },
    { "bento_warning_after",
      "RuntimeError: asyncio.run() cannot be called from a running event loop (service.py:10)" },
    { "bento_cuda_oom_load",
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 GiB. GPU 0 has..." },
    { "bento_segfault", "Fatal Python error: Segmentation fault (service.py:13)" },
    { "no_bentoml", "ModuleNotFoundError: No module named 'bentoml'" },
    { "no_plimsoll", "/usr/bin/python3: Error while finding module specification for 'plimsoll.worker' "
                     "(ModuleNotFoundError: No module named 'plimsoll')" },
    { "group", "ValueError: inner broke (service.py:2)" },
    { "ignored_at_exit", "KeyError: 'weights' (service.py:5)" },
    /* no traceback, or one that the worker survived */
    { "bento_cuda_oom_request", "127.0.0.1:57160 (scheme=http,method=POST,path=/predict,..." },
    { "handler_exit", "fatal: cannot go on without a licence" },
    { "segfault_no_dump", "Service Decoder initialized" },
    { "user_text_decoy", "KeyError: 'refund' (service.py:33)" },
    /* other engines */
    { "torch_fragmented",
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 108.00 MiB. GPU 0 has..." },
    { "llama_assert", "/build/llama.cpp/ggml/src/ggml.c:3354: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed" },
    { "llama_buffer_oom",
      "open failed: ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144817.04 MiB on device "
      "0: cudaMalloc failed: out of memory" },
    { "nccl_oom",
      "torch.distributed.DistBackendError: NCCL error: ncclUnhandledCudaError: Call to CUDA function failed. "
      "(service.py:41)" },
    { "vllm_start_kv",
      "ValueError: To serve at least one request with the model's max seq len (2048), (0.0 GiB..." },
    { "vllm_start_memory",
      "ValueError: Available memory on node 0 (15.53/18.09 GiB) on startup is less than desired..." },
};

static char *slurp(const char *log, size_t *len) {
    char path[512];
    snprintf(path, sizeof path, "%s/logs/%s.log", PL_TEST_DATA, log);
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("no %s", path);
    char *text = malloc((size_t)1 << 20);
    *len = fread(text, 1, (size_t)1 << 20, f);
    fclose(f);
    return realloc(text, *len); /* exactly: a sanitizer sees the first byte too many */
}

TEST(real_tails_give_the_line_that_says_why) {
    for (size_t i = 0; i < sizeof logs / sizeof logs[0]; i++) {
        size_t len, want = strlen(logs[i].line);
        char *text = slurp(logs[i].log, &len), line[512];
        pl_death_last_line(text, len, line, sizeof line);
        bool beginning = want > 3 && strcmp(logs[i].line + want - 3, "...") == 0;
        if (beginning ? strncmp(line, logs[i].line, want - 3) != 0 : strcmp(line, logs[i].line) != 0)
            fail_msg("%s: %s", logs[i].log, line);
        free(text);
    }
}

TEST(a_tail_that_begins_anywhere_still_gives_the_end) {
    size_t len;
    char *text = slurp("bento_init_failed", &len), line[512];
    for (size_t from = 0; from + 200 < len; from++) {
        pl_death_last_line(text + from, len - from, line, sizeof line);
        if (strncmp(line, "FileNotFoundError: no weights", 29) != 0) {
            assert_true(from > len - 300); /* the exception itself is cut off */
            break;
        }
    }
    free(text);
}

TEST(every_room_is_respected_and_the_place_stays) {
    static const char tail[] =
        "Traceback (most recent call last):\n  File \"/srv/app/service.py\", line 10, in load\n"
        "ValueError: \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\xa2 and so on and on and on\n";
    for (size_t room = 1; room < 80; room++) {
        char *line = malloc(room);
        pl_death_last_line(tail, sizeof tail - 1, line, room);
        size_t n = strlen(line);
        assert_true(n < room);
        assert_int_equal(pl_death_whole_chars(line, n), n);
        if (room > 40) assert_string_equal(line + n - 16, " (service.py:10)");
        free(line);
    }
    pl_death_last_line(tail, sizeof tail - 1, NULL, 0);
}

TEST(odd_tails_do_no_harm) {
    static const struct {
        const char *tail, *line;
    } rows[] = {
        { "", "" },
        { "\n\n  \n\r\n", "" },
        { "no newline at the end", "no newline at the end" },
        { "one\r\ntwo\r\n\r\n", "two" },
        { "\x1b[31mred\x1b[0m and\ttab\x07\n", "red and tab " },
        { "\x1b[", "" },
        { "Traceback (most recent call last):\n", "Traceback (most recent call last):" },
        { "Traceback (most recent call last):\n  File \"/srv/app/s.py\", line 99999999999, in f\nOops\n",
          "Oops" },
        { "Traceback (most recent call last):\n  File \"/srv/app/s.py\nOops: no\n", "Oops: no" },
        { "Traceback (most recent call last):\n  File \"s.py\", line 7\nmine.Oops\n", "mine.Oops (s.py:7)" },
        { "If you are importing by python module path: 'x'.\n",
          "If you are importing by python module path: 'x'." },
        { "[unclosed (pid=\n", "[unclosed (pid=" },
        { "2026-11-29T17:52:35+0000 [ERROR] [entry_service:C:1] Application startup failed. Exiting.\n",
          "2026-11-29T17:52:35+0000 [ERROR] [entry_service:C:1] Application startup failed. Exiting." },
        { "10.0.0.7:51234 refused\n", "10.0.0.7:51234 refused" },
        { "NoError\nplain words\n", "NoError" },
        { "Exception ignored in: x\nwords\nTraceback (most recent call last):\nOops\n", "Oops" },
        { "| | + | x\n", "x" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = strlen(rows[i].tail);
        char line[128], *exact = malloc(len > 0 ? len : 1);
        memcpy(exact, rows[i].tail, len);
        pl_death_last_line(exact, len, line, sizeof line);
        if (strcmp(line, rows[i].line) != 0) fail_msg("row %zu: %s", i, line);
        free(exact);
    }
    char line[16];
    pl_death_last_line("a\0b\0", 4, line, sizeof line);
    assert_string_equal(line, "a b ");
}

RUN(cmocka_unit_test(real_tails_give_the_line_that_says_why),
    cmocka_unit_test(a_tail_that_begins_anywhere_still_gives_the_end),
    cmocka_unit_test(every_room_is_respected_and_the_place_stays), cmocka_unit_test(odd_tails_do_no_harm))
