#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "keeper/child.h"
#include "sample/oom.h"
#include "sample/proc.h"
#include "unit.h"
#include "worker/death.h"

#define EXIT(status) ((status) << 8)

static const char python[] = "/srv/venv/bin/python", folder[] = "/srv/app";

static enum pl_cause explain(struct pl_death d, char sentence[512]) {
    if (d.program == NULL) d.program = python;
    if (d.folder == NULL) d.folder = folder;
    struct pl_oom oom;
    char line[512];
    snprintf(line, sizeof line, "%s", d.last_line != NULL ? d.last_line : "");
    if (d.oom == NULL && pl_death_oom("", 0, line, sizeof line, &oom)) d.oom = &oom;
    return pl_death_explain(&d, sentence, 512);
}

static void assert_sentence(size_t row, struct pl_death d, enum pl_cause cause, const char *want) {
    char got[512];
    enum pl_cause c = explain(d, got);
    if (c != cause || strcmp(got, want) != 0) fail_msg("row %zu: %s: %s", row, pl_cause_name(c), got);
}

TEST(what_never_ran_is_explained_by_its_step) {
    static const struct {
        struct pl_death d;
        const char *sentence;
    } rows[] = {
        { { .exec_step = PL_STEP_EXEC, .exec_errno = ENOENT, .program = "/x/python" },
          "could not run /x/python: No such file or directory; set python: or activate the environment" },
        { { .exec_step = PL_STEP_EXEC, .exec_errno = EACCES },
          "could not run /srv/venv/bin/python: Permission denied; make it executable for this user" },
        { { .exec_step = PL_STEP_FOLDER, .exec_errno = ENOENT, .folder = "/srv/gone" },
          "could not enter /srv/gone: No such file or directory; check working_dir" },
        { { .exec_step = PL_STEP_USER, .exec_errno = EPERM },
          "could not become the user it should run as: Operation not permitted; check user and group" },
        { { .exec_step = PL_STEP_LIMITS, .exec_errno = EACCES },
          "could not be started: Permission denied (limits)" },
        { { .exec_step = PL_STEP_SESSION, .exec_errno = EPERM },
          "could not be started: Operation not permitted (session)" },
        { { .exec_errno = ENOMEM }, "could not be started: Cannot allocate memory" },
        { { .exec_step = 77, .exec_errno = ENOMEM }, "could not be started: Cannot allocate memory" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_sentence(i, rows[i].d, PL_CAUSE_EXEC_FAILED, rows[i].sentence);
}

TEST(the_cause_follows_from_status_flags_and_words) {
    static const char oom[] =
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 39.49 GiB of which 1.00 GiB is free. Of the allocated memory 0 bytes is "
        "allocated by PyTorch (service.py:8)";
    static const struct {
        struct pl_death d;
        enum pl_cause cause;
        const char *sentence;
    } rows[] = {
        /* before READY */
        { { .wait_status = EXIT(1), .last_line = "SyntaxError: expected ':' (service.py:3)" },
          PL_CAUSE_IMPORT_FAILED,
          "could not import the service: SyntaxError: expected ':' (service.py:3)" },
        { { .wait_status = EXIT(1) }, PL_CAUSE_IMPORT_FAILED, "could not import the service" },
        { { .wait_status = EXIT(3), .last_line = "ValueError: no (service.py:9)" },
          PL_CAUSE_INIT_FAILED,
          "the service did not start: ValueError: no (service.py:9)" },
        { { .wait_status = EXIT(5), .last_line = "bye" },
          PL_CAUSE_EXITED,
          "exited with status 5 before it was ready: bye" },
        { { .wait_status = EXIT(127) },
          PL_CAUSE_EXEC_FAILED,
          "could not be started: the command was not found (exit status 127)" },
        { { .wait_status = EXIT(126), .last_line = "sh: x: Permission denied" },
          PL_CAUSE_EXEC_FAILED,
          "could not be started: the command cannot be run (exit status 126): sh: x: Permission denied" },
        { { .wait_status = EXIT(3), .last_line = oom },
          PL_CAUSE_GPU_OUT_OF_MEMORY,
          "the GPU had no memory left while it was starting: torch.OutOfMemoryError: CUDA out of memory. "
          "Tried to "
          "allocate 2.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 1.00 GiB is free "
          "(service.py:8)" },
        { { .wait_status = SIGTERM,
            .timed_out = true,
            .ordered = true,
            .lived_ms = 61200,
            .last_line = "loading 3/9" },
          PL_CAUSE_START_TIMEOUT,
          "was not ready after 61 s and has been stopped; last words: loading 3/9; raise start_timeout if it "
          "needs "
          "longer" },
        { { .wait_status = SIGKILL, .timed_out = true },
          PL_CAUSE_START_TIMEOUT,
          "was not ready in time and has been stopped; raise start_timeout if it needs longer" },
        { { .wait_status = SIGKILL,
            .was_ready = true,
            .ordered = true,
            .silent_ms = 120400,
            .last_line = "waiting for the lock" },
          PL_CAUSE_HANG,
          "was silent for 120 s and has been stopped; last words: waiting for the lock" },
        { { .wait_status = SIGTERM, .ordered = true, .warmup = "POST /predict was answered 500: broken" },
          PL_CAUSE_INIT_FAILED,
          "the warm-up failed: POST /predict was answered 500: broken" },
        /* after READY */
        { { .wait_status = EXIT(7), .was_ready = true, .last_line = "fatal: cannot go on" },
          PL_CAUSE_EXITED,
          "exited with status 7 while serving; last words: fatal: cannot go on" },
        { { .wait_status = EXIT(1), .was_ready = true, .last_line = "KeyError: 'refund' (service.py:33)" },
          PL_CAUSE_EXITED,
          "exited with status 1 while serving; last words: KeyError: 'refund' (service.py:33)" },
        { { .wait_status = EXIT(3), .was_ready = true },
          PL_CAUSE_EXITED,
          "exited with status 3 while serving" },
        { { .wait_status = EXIT(127), .was_ready = true },
          PL_CAUSE_EXITED,
          "exited with status 127 while serving" },
        { { .wait_status = EXIT(0), .was_ready = true },
          PL_CAUSE_EXITED_ZERO,
          "left with status 0, which nobody asked for" },
        { { .wait_status = EXIT(0), .last_line = "done." },
          PL_CAUSE_EXITED_ZERO,
          "left with status 0, which nobody asked for; last words: done" },
        { { .wait_status = EXIT(1), .was_ready = true, .last_line = oom },
          PL_CAUSE_GPU_OUT_OF_MEMORY,
          "the GPU had no memory left: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
          "GiB. GPU 0 "
          "has a total capacity of 39.49 GiB of which 1.00 GiB is free (service.py:8)" },
        { { .wait_status = EXIT(1),
            .was_ready = true,
            .last_line =
                "RuntimeError: CUDA error: an illegal memory access was encountered (service.py:9)" },
          PL_CAUSE_GPU_ERROR,
          "the GPU failed: RuntimeError: CUDA error: an illegal memory access was encountered "
          "(service.py:9)" },
        { { .wait_status = SIGABRT,
            .was_ready = true,
            .xid = 79,
            .last_line = "ggml-cuda.cu:97: CUDA error" },
          PL_CAUSE_GPU_ERROR,
          "the GPU failed: ggml-cuda.cu:97: CUDA error; the driver reported Xid 79: NVIDIA's list of XID "
          "errors says "
          "what it means" },
        { { .wait_status = EXIT(1), .last_line = "KeyError: 'CUDA error: x'" },
          PL_CAUSE_IMPORT_FAILED,
          "could not import the service: KeyError: 'CUDA error: x'" },
        /* signals */
        { { .wait_status = SIGKILL, .was_ready = true, .last_line = oom },
          PL_CAUSE_KILLED,
          "killed by SIGKILL, which Plimsoll did not send; the kernel does that when memory runs out: look "
          "at dmesg" },
        { { .wait_status = SIGTERM, .last_line = oom },
          PL_CAUSE_TERMINATED,
          "stopped by a SIGTERM that Plimsoll did not send" },
        { { .wait_status = SIGSEGV | 0x80,
            .last_line = "Fatal Python error: Segmentation fault (service.py:13)" },
          PL_CAUSE_CRASHED,
          "crashed by SIGSEGV (Segmentation fault) (service.py:13)" },
        { { .wait_status = SIGSEGV, .last_line = "Service Decoder initialized" },
          PL_CAUSE_CRASHED,
          "crashed by SIGSEGV (Segmentation fault); env: {PYTHONFAULTHANDLER: \"1\"} shows where" },
        { { .wait_status = SIGABRT, .last_line = "ggml.c:3354: GGML_ASSERT(x) failed" },
          PL_CAUSE_CRASHED,
          "crashed by SIGABRT (Aborted): ggml.c:3354: GGML_ASSERT(x) failed; env: {PYTHONFAULTHANDLER: "
          "\"1\"} shows "
          "where" },
        { { .wait_status = SIGABRT,
            .was_ready = true,
            .last_line = "ggml_cuda_error: CUDA error: out of memory" },
          PL_CAUSE_GPU_OUT_OF_MEMORY,
          "the GPU had no memory left: ggml_cuda_error: CUDA error: out of memory" },
        { { .wait_status = SIGUSR2 },
          PL_CAUSE_UNKNOWN,
          "ended by signal 12 (User defined signal 2), which Plimsoll did not send" },
        /* ordered */
        { { .wait_status = SIGTERM, .was_ready = true, .ordered = true, .last_line = oom },
          PL_CAUSE_NONE,
          "stopped as asked (SIGTERM)" },
        { { .wait_status = EXIT(0), .ordered = true }, PL_CAUSE_NONE, "stopped as asked (exit status 0)" },
        { { .wait_status = SIGKILL, .ordered = true },
          PL_CAUSE_NONE,
          "stopped as asked, by SIGKILL: it did not end in time" },
        /* nothing that wait(2) reports of an end */
        { { .wait_status = 0x137f },
          PL_CAUSE_UNKNOWN,
          "ended, and the cause is not known (wait status 4991)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_sentence(i, rows[i].d, rows[i].cause, rows[i].sentence);
}

TEST(crashes_are_all_five_signals) {
    static const int crashes[] = { SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE };
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) {
        char sentence[512];
        assert_int_equal(explain((struct pl_death){ .wait_status = crashes[i] }, sentence), PL_CAUSE_CRASHED);
    }
}

TEST(known_import_errors_come_with_their_remedy) {
    static const struct {
        const char *line, *sentence;
    } rows[] = {
        { "ModuleNotFoundError: No module named 'bentoml'",
          "BentoML is not installed in /srv/venv/bin/python: /srv/venv/bin/python -m pip install bentoml" },
        { "ModuleNotFoundError: No module named '_bentoml_impl' (service.py:1)",
          "BentoML is not installed in /srv/venv/bin/python: /srv/venv/bin/python -m pip install bentoml" },
        { "/usr/bin/python3: Error while finding module specification for 'plimsoll.worker' "
          "(ModuleNotFoundError: No "
          "module named 'plimsoll')",
          "Plimsoll's own Python files are missing: install it again" },
        { "/usr/bin/python3: No module named plimsoll.worker",
          "Plimsoll's own Python files are missing: install it again" },
        { "Attribute \"Nope\" not found in module \"service\"",
          "no class Nope in service.py: check the name after the colon" },
        { "Attribute \"Nope\" not found in module \"app.models.service\"",
          "no class Nope in app/models/service.py: check the name after the colon" },
        { "Failed to import module \"nomod\": No module named 'nomod'",
          "there is no module nomod in /srv/app: check run and working_dir" },
        { "Failed to import module \"service\": No module named 'no_such_tokenizer' (service.py:2)",
          "could not import the service: No module named 'no_such_tokenizer' (service.py:2); install what is "
          "missing "
          "into /srv/venv/bin/python, or set python:" },
        { "bentoml.exceptions.ImportServiceError: Failed to load bento or import service '.'. The directory "
          "'/srv/x' does "
          "not contain a valid bentofile.yaml or service.py.",
          "neither service.py nor bentofile.yaml in /srv/x: check working_dir, or name the service" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_sentence(i, (struct pl_death){ .wait_status = EXIT(1), .last_line = rows[i].line },
                        PL_CAUSE_IMPORT_FAILED, rows[i].sentence);
}

TEST(words_that_are_only_quoted_are_no_evidence) {
    static const struct {
        const char *line;
        bool oom;
    } rows[] = {
        { "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (service.py:3)", true },
        { "CUDA out of memory", true },
        { "torch.cuda.OutOfMemoryError: allocation failed", true },
        { "torch.OutOfMemoryError (service.py:3)", true },
        { "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", true },
        { "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5 bytes.",
          true },
        { "x: allocating 1 MiB on device 0: cudaMalloc failed: out of memory", true },
        { "summary of ticket 4711: customer says \"CUDA out of memory\" since Tuesday", false },
        { "KeyError: 'CUDA out of memory'", false },
        { "MemoryError", false }, /* the host's memory */
        { "OutOfMemory", false },
        { "", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char sentence[512];
        struct pl_death d = { .wait_status = EXIT(1), .was_ready = true, .last_line = rows[i].line };
        if ((explain(d, sentence) == PL_CAUSE_GPU_OUT_OF_MEMORY) != rows[i].oom)
            fail_msg("row %zu: %s", i, sentence);
    }
}

TEST(a_short_room_cuts_the_words_and_keeps_place_and_remedy) {
    const struct pl_death d = {
        .wait_status = EXIT(1),
        .program = python,
        .last_line =
            "Failed to import module \"service\": No module named "
            "'\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6\xc3\xbc' (service.py:2)",
    };
    for (size_t room = 1; room < 200; room++) {
        char *sentence = malloc(room);
        assert_int_equal(pl_death_explain(&d, sentence, room), PL_CAUSE_IMPORT_FAILED);
        size_t n = strlen(sentence);
        assert_true(n < room);
        assert_int_equal(pl_death_whole_chars(sentence, n), n);
        if (room > 130) {
            assert_non_null(strstr(sentence, "(service.py:2)"));
            assert_non_null(
                strstr(sentence, "; install what is missing into /srv/venv/bin/python, or set python:"));
        }
        free(sentence);
    }
    assert_int_equal(pl_death_explain(&d, NULL, 0), PL_CAUSE_UNKNOWN);
}

TEST(from_a_real_tail_to_the_sentence) {
    static const struct {
        const char *log;
        int status;
        bool was_ready;
        enum pl_cause cause;
    } rows[] = {
        { "bento_import_failed", EXIT(1), false, PL_CAUSE_IMPORT_FAILED },
        { "bento_init_failed", EXIT(3), false, PL_CAUSE_INIT_FAILED },
        { "bento_cuda_oom_load", EXIT(3), false, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "bento_cuda_oom_request", EXIT(1), true, PL_CAUSE_EXITED }, /* it survived that one */
        { "bento_terminated_unasked", SIGTERM, true, PL_CAUSE_TERMINATED },
        { "bento_segfault", SIGSEGV, true, PL_CAUSE_CRASHED },
        { "killed_without_words", SIGKILL, true, PL_CAUSE_KILLED },
        { "handler_exit", EXIT(7), true, PL_CAUSE_EXITED },
        { "user_text_decoy", EXIT(1), true, PL_CAUSE_EXITED },
        { "torch_fragmented", EXIT(1), true, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "llama_assert", SIGABRT, true, PL_CAUSE_CRASHED },
        { "vllm_engine_killed", EXIT(0), true, PL_CAUSE_ENGINE_FAILED },
        { "vllm_start_flag", EXIT(1), false, PL_CAUSE_CONFIG_FAILED },
        { "vllm_start_memory", EXIT(1), false, PL_CAUSE_CONFIG_FAILED },
        { "vllm_start_kv", EXIT(1), false, PL_CAUSE_CONFIG_FAILED },
        { "vllm_kv_none", EXIT(1), false, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "nccl_oom", EXIT(1), false, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "ort_garbage_size", EXIT(1), true, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "llama_cuda_pool_oom", SIGABRT, true, PL_CAUSE_GPU_OUT_OF_MEMORY },
        { "llama_buffer_oom", EXIT(1), false, PL_CAUSE_GPU_OUT_OF_MEMORY },
    };
    static char text[1 << 16];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512], line[512], sentence[512];
        snprintf(path, sizeof path, "%s/logs/%s.log", PL_TEST_DATA, rows[i].log);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        size_t len = fread(text, 1, sizeof text, f);
        fclose(f);
        struct pl_oom oom = { .kind = PL_OOM_NONE };
        pl_death_last_line(text, len, line, sizeof line);
        bool full = pl_death_oom(text, len, line, sizeof line, &oom);
        struct pl_death d = { .oom = full ? &oom : NULL,
                              .wait_status = rows[i].status,
                              .was_ready = rows[i].was_ready,
                              .command = strncmp(rows[i].log, "vllm", 4) == 0,
                              .engine_died = pl_death_engine_died(text, len),
                              .last_line = line };
        if (explain(d, sentence) != rows[i].cause) fail_msg("%s: %s", rows[i].log, sentence);
    }
}

TEST(a_commands_exit_status_is_only_a_number) {
    static const struct {
        int status;
        bool was_ready, engine_died;
        const char *line;
        enum pl_cause cause;
        const char *sentence;
    } rows[] = {
        { EXIT(1), false, false, "no such model", PL_CAUSE_EXITED,
          "exited with status 1 before it was ready: no such model" },
        { EXIT(3), false, false, "", PL_CAUSE_EXITED, "exited with status 3 before it was ready" },
        { EXIT(2), false, false, "vllm: error: unrecognized arguments: --shutdown-timeout 30",
          PL_CAUSE_CONFIG_FAILED,
          "the engine refused its settings: vllm: error: unrecognized arguments: --shutdown-timeout 30" },
        { EXIT(0), true, false, "bye", PL_CAUSE_EXITED_ZERO,
          "left with status 0, which nobody asked for; last words: bye" },
        { EXIT(0), true, true, "", PL_CAUSE_ENGINE_FAILED,
          "its engine process died first; the server then left with status 0, which nobody asked for" },
        { EXIT(0), true, true, "torch.OutOfMemoryError: CUDA out of memory", PL_CAUSE_GPU_OUT_OF_MEMORY,
          "the GPU had no memory left: torch.OutOfMemoryError: CUDA out of memory" },
        { SIGKILL, true, true, "", PL_CAUSE_KILLED, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char sentence[512];
        struct pl_death d = { .wait_status = rows[i].status,
                              .was_ready = rows[i].was_ready,
                              .engine_died = rows[i].engine_died,
                              .command = true,
                              .last_line = rows[i].line };
        assert_int_equal(explain(d, sentence), rows[i].cause);
        if (rows[i].sentence != NULL) assert_string_equal(sentence, rows[i].sentence);
    }
    char sentence[512];
    struct pl_death d = { .exec_step = 8, .exec_errno = ENOENT, .command = true, .program = "/opt/serve" };
    assert_int_equal(explain(d, sentence), PL_CAUSE_EXEC_FAILED);
    assert_non_null(strstr(sentence, "check the first word of command"));
}

/* A start that an engine refused, in its own words; the sentence has the numbers and the way out. */
static void refused(const char *said, enum pl_cause cause, const char *sentence_wanted) {
    char line[512], sentence[512];
    struct pl_oom oom = { .kind = PL_OOM_NONE };
    snprintf(line, sizeof line, "%s", said);
    assert_true(pl_death_oom(said, strlen(said), line, sizeof line, &oom));
    struct pl_death d = { .oom = &oom, .wait_status = EXIT(1), .command = true, .last_line = line };
    if (explain(d, sentence) != cause) fail_msg("%s", sentence);
    assert_string_equal(sentence, sentence_wanted);
}

TEST(what_an_engine_refuses_to_start_with_comes_with_numbers_and_a_way_out) {
    refused(
        "ValueError: Available memory on node 0 (15.53/18.09 GiB) on startup is less than desired CPU memory "
        "utilization (0.92, 16.64 GiB).",
        PL_CAUSE_CONFIG_FAILED,
        "the engine refused its settings: 15.53 of 18.09 GiB were free and gpu_memory_utilization asks for "
        "16.64: lower it to 0.85, or end what else holds memory there");
    refused(
        "ValueError: Free memory on device cuda:0 (0.0/8.0 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 7.36 GiB).",
        PL_CAUSE_CONFIG_FAILED,
        "the engine refused its settings: 0.00 of 8.00 GiB were free and gpu_memory_utilization asks for "
        "7.36: end what else holds memory there");
    refused(
        "AssertionError: Error in memory profiling. Initial free memory 21.5 GiB, current free memory 22.1 "
        "GiB.",
        PL_CAUSE_INIT_FAILED,
        "the service did not start: what is free on the GPU changed while the engine measured it, because "
        "another process took or gave back some; start it again");
    refused(
        "ValueError: To serve at least one request with the model's max seq len (2048), (0.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.0 GiB). Based on the available "
        "memory, "
        "the estimated maximum model length is 1920.",
        PL_CAUSE_CONFIG_FAILED,
        "the engine refused its settings: its KV cache holds 1920 tokens and max_model_len asks for 2048: "
        "lower it to 1920, or give it more memory");
}

/* --- tests/data/proc/deaths.json: what the machine says before and after */

static const struct json *field(const struct json *o, const char *name) {
    for (const struct json *j = o->first; j != NULL; j = j->next)
        if (j->name != NULL && strcmp(j->name, name) == 0) return j;
    fail_msg("no field %s", name);
    return NULL;
}

static size_t read_text(const char *tree, const char *below, char *out, size_t room) {
    char path[512];
    snprintf(path, sizeof path, "%s/proc/trees/%s/%s", PL_TEST_DATA, tree, below);
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    size_t n = fread(out, 1, room, f);
    fclose(f);
    return n;
}

static uint64_t event_of(const char *tree, const char *name) {
    char text[4096], below[512], path[256];
    bool v2 = false;
    size_t n = read_text(tree, "proc/4242/cgroup", text, sizeof text);
    if (!pl_proc_read_cgroup(text, n, &v2, path, sizeof path)) return PL_PROC_UNKNOWN;
    snprintf(below, sizeof below, v2 ? "cgroup%s/memory.events" : "cgroup/memory%s/memory.oom_control", path);
    n = read_text(tree, below, text, sizeof text);
    return pl_proc_read_key(text, n, name);
}

static uint64_t bytes_of(const char *tree, const char *v2_name, const char *v1_name) {
    char text[4096], below[512], path[256];
    bool v2 = false;
    size_t n = read_text(tree, "proc/4242/cgroup", text, sizeof text);
    if (!pl_proc_read_cgroup(text, n, &v2, path, sizeof path)) return PL_PROC_UNKNOWN;
    snprintf(below, sizeof below, "cgroup%s%s/%s", v2 ? "" : "/memory", path, v2 ? v2_name : v1_name);
    n = read_text(tree, below, text, sizeof text);
    return pl_proc_read_limit(text, n);
}

static struct pl_death_group facts(const struct json *d) {
    const char *before = field(d, "before")->text, *after = field(d, "after")->text;
    uint64_t from = event_of(before, "oom_kill"), to = event_of(after, "oom_kill");
    uint64_t groups = event_of(after, "oom_group_kill"), groups_before = event_of(before, "oom_group_kill");
    const struct json *sample = field(d, "last_sample");
    bool sampled = sample->kind == JSON_OBJECT;
    return (struct pl_death_group){
        .known = from != PL_PROC_UNKNOWN && to != PL_PROC_UNKNOWN,
        .oom_kills = to - from,
        .group_kills =
            groups != PL_PROC_UNKNOWN && groups_before != PL_PROC_UNKNOWN ? groups - groups_before : 0,
        .current = sampled ? (uint64_t)field(sample, "current_bytes")->number : PL_PROC_UNKNOWN,
        .max = sampled ? (uint64_t)field(sample, "limit_bytes")->number
                       : bytes_of(after, "memory.max", "memory.limit_in_bytes"),
        .peak = bytes_of(after, "memory.peak", "memory.max_usage_in_bytes"),
    };
}

/* Their labels are older than the closed list of causes. What only the kernel's log tells is not ours to see.
 */
TEST(deaths_by_the_kernel_are_told_from_others) {
    static char text[1 << 17];
    FILE *f = fopen(PL_TEST_DATA "/proc/deaths.json", "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = text;
    struct json *list = json_value(&at);
    unsigned kernel = 0, probable = 0, rows = 0;
    for (const struct json *d = list->first; d != NULL; d = d->next) {
        char sentence[512];
        if (strcmp(field(d, "expect")->first->text, "host_pressure") == 0) continue; /* nobody died */
        rows++;
        const char *id = field(d, "id")->text, *oom = field(field(d, "expect"), "host_oom")->text;
        bool by_log = field(d, "kernel_log")->kind == JSON_TEXT;
        struct pl_death_group g = facts(d);
        const struct json *wait = field(d, "wait_status");
        struct pl_death death = { .wait_status = (int)wait->number,
                                  .was_ready = strcmp(field(d, "phase")->text, "serving") == 0,
                                  .ordered = field(d, "sent_by_us")->kind == JSON_TEXT,
                                  .group = &g };
        enum pl_cause cause = explain(death, sentence);
        bool sure = strcmp(oom, "yes") == 0 && !by_log,
             probably = strstr(sentence, "probably the kernel") != NULL;
        if ((cause == PL_CAUSE_KILLED_BY_KERNEL_OOM) != sure) fail_msg("%s: %s", id, sentence);
        if (probably != (strcmp(oom, "probably") == 0)) fail_msg("%s: %s", id, sentence);
        if (sure && (strstr(sentence, "GPU") != NULL || strstr(sentence, "CUDA") != NULL))
            fail_msg("%s", sentence);
        if (sure && strstr(sentence, "GiB of limit") == NULL) fail_msg("%s: %s", id, sentence);
        kernel += sure;
        probable += probably;
    }
    assert_int_equal(rows, 25);
    assert_int_equal(kernel, 6);
    assert_int_equal(probable, 2);
    json_free(list);
}

TEST(a_full_gpu_is_explained_by_its_message) {
    static char text[1 << 16];
    char line[512], sentence[512];
    struct pl_oom oom;
    FILE *f = fopen(PL_TEST_DATA "/logs/torch_fragmented.log", "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    pl_death_last_line(text, n, line, sizeof line);
    assert_true(pl_death_oom(text, n, line, sizeof line, &oom));
    assert_int_equal(oom.requested, 108 << 20);
    assert_string_equal(pl_oom_verdict_name(pl_oom_judge(&oom)), "fragmentation");
    struct pl_death d = { .wait_status = EXIT(1), .was_ready = true, .last_line = line, .oom = &oom };
    assert_int_equal(explain(d, sentence), PL_CAUSE_GPU_OUT_OF_MEMORY);
    assert_non_null(strstr(sentence, "3.76 GiB are cached but in pieces"));
}

TEST(every_cause_has_a_name_of_its_own) {
    for (unsigned c = 0; c < PL_CAUSE_COUNT; c++)
        for (unsigned other = 0; other < c; other++)
            assert_string_not_equal(pl_cause_name((enum pl_cause)c), pl_cause_name((enum pl_cause)other));
    assert_string_equal(pl_cause_name(PL_CAUSE_GPU_OUT_OF_MEMORY), "gpu_out_of_memory");
    assert_string_equal(pl_cause_name((enum pl_cause)99), "unknown");
}

RUN(cmocka_unit_test(what_never_ran_is_explained_by_its_step),
    cmocka_unit_test(the_cause_follows_from_status_flags_and_words),
    cmocka_unit_test(crashes_are_all_five_signals),
    cmocka_unit_test(known_import_errors_come_with_their_remedy),
    cmocka_unit_test(words_that_are_only_quoted_are_no_evidence),
    cmocka_unit_test(a_short_room_cuts_the_words_and_keeps_place_and_remedy),
    cmocka_unit_test(a_commands_exit_status_is_only_a_number),
    cmocka_unit_test(what_an_engine_refuses_to_start_with_comes_with_numbers_and_a_way_out),
    cmocka_unit_test(deaths_by_the_kernel_are_told_from_others),
    cmocka_unit_test(a_full_gpu_is_explained_by_its_message),
    cmocka_unit_test(from_a_real_tail_to_the_sentence), cmocka_unit_test(every_cause_has_a_name_of_its_own))
