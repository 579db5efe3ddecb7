#include "worker/death.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "sample/oom.h"
#include "sample/proc.h"

/* Where between fork and exec it failed: the keeper's numbers (keeper/child.h; a test compares them). */
enum { STEP_USER = 5, STEP_FOLDER = 7, STEP_EXEC = 8 };
static const char *const steps[] = { "",     "session", "recipe", "descriptors", "limits",
                                     "user", "parent",  "folder", "exec" };

static const char *const cause_text[PL_CAUSE_COUNT] = {
#define CAUSE(sym, name, text) [PL_CAUSE_##sym] = text,
#include "worker/causes.def"
#undef CAUSE
};

const char *pl_cause_name(enum pl_cause c) {
    static const char *const names[PL_CAUSE_COUNT] = {
#define CAUSE(sym, name, text) [PL_CAUSE_##sym] = name,
#include "worker/causes.def"
#undef CAUSE
    };
    return (unsigned)c < PL_CAUSE_COUNT ? names[c] : "unknown";
}

/* The sentence in the making. What does not fit is cut by snprintf; the remedy is kept by words(), which
 * takes less. */
struct sentence {
    char *at;
    size_t room, len;
    size_t kept; /* bytes that words() must leave for what follows */
};

static void say(struct sentence *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct sentence *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(s->at + s->len, s->room - s->len, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    size_t left = s->room - s->len;
    s->len += (size_t)n < left ? (size_t)n : pl_death_whole_chars(s->at + s->len, left - 1);
    s->at[s->len] = '\0';
}

/* Length of a last line without its " (FILE:LINE)". */
static size_t place_at(const char *line) {
    size_t len = strlen(line);
    const char *open = strrchr(line, '(');
    if (open == NULL || open - line < 2 || open[-1] != ' ' || line[len - 1] != ')') return len;
    const char *colon = strrchr(open, ':');
    if (colon == NULL || strspn(colon + 1, "0123456789") + 2 != strlen(colon) ||
        memchr(open, ' ', strlen(open)) != NULL)
        return len;
    return (size_t)(open - line) - 1;
}

/* Says the worker's own words: without the advice that PyTorch appends to its numbers, cut in the middle if
 * they are long, so that the place stays. */
static void words(struct sentence *s, const char *before, const char *line) {
    static const char *const tails[] = { " Including non-PyTorch memory", " Of the allocated memory",
                                         " Process ", " If reserved " };
    size_t place = place_at(line), len = place;
    if (line[0] == '\0') return;
    say(s, "%s", before);
    bool oom = memmem(line, len, "out of memory", 13) != NULL;
    for (size_t i = 0; oom && i < sizeof tails / sizeof tails[0]; i++) {
        const char *tail = memmem(line, len, tails[i], strlen(tails[i]));
        if (tail != NULL) len = (size_t)(tail - line);
    }
    while (len > 0 && line[len - 1] == '.') len--;
    size_t after = strlen(line + place) + s->kept, left = s->room - 1 - s->len;
    size_t room = left > after ? left - after : 0;
    if (len > room) {
        len = pl_death_whole_chars(line, room > 3 ? room - 3 : 0);
        say(s, "%.*s...%s", (int)len, line, line + place);
    } else {
        say(s, "%.*s%s", (int)len, line, line + place);
    }
}

/* HEAD: WORDS; REMEDY */
static void head_words_remedy(struct sentence *s, const char *head, const char *line, const char *remedy) {
    say(s, "%s", head);
    s->kept = remedy[0] != '\0' ? strlen(remedy) + 2 : 0;
    words(s, ": ", line);
    if (remedy[0] != '\0') say(s, "; %s", remedy);
}

/* The text between `before` and the next `end`, copied; "" if it is not there. */
static const char *between(const char *line, const char *before, char end, char *out, size_t room) {
    const char *from = strstr(line, before);
    const char *to = from != NULL ? strchr(from + strlen(before), end) : NULL;
    snprintf(out, room, "%.*s", to != NULL ? (int)(to - from) - (int)strlen(before) : 0,
             to != NULL ? from + strlen(before) : "");
    return out;
}

static const char *or_else(const char *text, const char *otherwise) {
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

/* Of the machine's memory, when the kernel has counted a kill that nobody else accounts for. */
static bool kernel_killed(const struct pl_death *d) {
    return d->group != NULL && d->group->known && d->group->oom_kills > 0;
}

static void say_peak(struct sentence *s, const struct pl_death_group *g) {
    if (g->peak != PL_PROC_UNKNOWN && g->max != PL_PROC_UNKNOWN)
        say(s, ": peak %.2f GiB of limit %.2f GiB", gib(g->peak), gib(g->max));
    else if (g->max != PL_PROC_UNKNOWN)
        say(s, ": the limit is %.2f GiB", gib(g->max));
}

static enum pl_cause killed_by_kernel(const struct pl_death *d, const char *before, const char *after,
                                      struct sentence *s) {
    say(s, "%s%s%s", before, cause_text[PL_CAUSE_KILLED_BY_KERNEL_OOM],
        d->was_ready ? "" : " while it was starting");
    say_peak(s, d->group);
    if (d->group->group_kills > 0)
        say(s, "; with it %llu processes", (unsigned long long)d->group->oom_kills);
    say(s, "%s", after);
    return PL_CAUSE_KILLED_BY_KERNEL_OOM;
}

/* It wants a share of the whole device, and others hold too much of it. What would do is rounded down. */
static void too_little_free(const struct pl_oom *o, struct sentence *s) {
    unsigned share =
        o->total > 0 && o->free < o->total ? (unsigned)((double)o->free * 100 / (double)o->total) : 0;
    say(s, "%s: %.2f of %.2f GiB were free and gpu_memory_utilization asks for %.2f",
        cause_text[PL_CAUSE_CONFIG_FAILED], gib(o->free), gib(o->total), gib(o->needed));
    if (share > 0) say(s, ": lower it to 0.%02u, or", share);
    say(s, "%s end what else holds memory there", share > 0 ? "" : ":");
}

/* What an engine says of its own settings, in a sentence with a way out. */
static enum pl_cause does_not_fit(const struct pl_oom *o, const char *line, struct sentence *s) {
    if (o->kind == PL_OOM_VLLM_NO_BLOCKS) {
        say(s, "%s for the KV cache: raise gpu_memory_utilization, or take a smaller model or more GPUs",
            cause_text[PL_CAUSE_GPU_OUT_OF_MEMORY]);
        return PL_CAUSE_GPU_OUT_OF_MEMORY;
    }
    if (o->kind == PL_OOM_VLLM_PROFILING) {
        say(s,
            "%s: what is free on the GPU changed while the engine measured it, because another process took "
            "or gave back some; start it again",
            cause_text[PL_CAUSE_INIT_FAILED]);
        return PL_CAUSE_INIT_FAILED;
    }
    if (o->kind == PL_OOM_VLLM_FREE) {
        too_little_free(o, s);
        return PL_CAUSE_CONFIG_FAILED;
    }
    if (o->fits_len != PL_OOM_UNKNOWN && o->max_seq_len != PL_OOM_UNKNOWN)
        say(s,
            "%s: its KV cache holds %llu tokens and max_model_len asks for %llu: lower it to %llu, or give "
            "it more memory",
            cause_text[PL_CAUSE_CONFIG_FAILED], (unsigned long long)o->fits_len,
            (unsigned long long)o->max_seq_len, (unsigned long long)o->fits_len);
    else
        head_words_remedy(s, cause_text[PL_CAUSE_CONFIG_FAILED], line, "");
    return PL_CAUSE_CONFIG_FAILED;
}

static enum pl_cause gpu_full(const struct pl_death *d, const char *line, struct sentence *s) {
    char verdict[160];
    pl_oom_say(d->oom, verdict, sizeof verdict);
    say(s, "%s%s", cause_text[PL_CAUSE_GPU_OUT_OF_MEMORY], d->was_ready ? "" : " while it was starting");
    head_words_remedy(s, "", line, verdict);
    return PL_CAUSE_GPU_OUT_OF_MEMORY;
}

/* An error of the driver or of its libraries, as the program itself says it. */
static bool is_gpu_error(const char *line) {
    static const char *const phrases[] = { "CUDA error", "HIP error", "CUBLAS_STATUS_", "CUDNN_STATUS_" };
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++) {
        const char *at = strstr(line, phrases[i]);
        if (at == line || (at != NULL && at - line >= 2 && at[-1] == ' ' && at[-2] == ':')) return true;
    }
    return false;
}

static enum pl_cause gpu_failed(const struct pl_death *d, const char *line, struct sentence *s) {
    char xid[80] = "";
    if (d->xid != 0)
        snprintf(xid, sizeof xid,
                 "the driver reported Xid %u: NVIDIA's list of XID errors says what it means", d->xid);
    say(s, "%s%s", cause_text[PL_CAUSE_GPU_ERROR], d->was_ready ? "" : " while it was starting");
    head_words_remedy(s, "", line, xid);
    return PL_CAUSE_GPU_ERROR;
}

static enum pl_cause exec_failed(const struct pl_death *d, struct sentence *s) {
    const char *problem = strerror((int)d->exec_errno), *program = or_else(d->program, "the program");
    switch (d->exec_step) {
    case STEP_EXEC:
        say(s, "could not run %s: %s; ", program, problem);
        say(s, "%s",
            d->exec_errno == EACCES ? "make it executable for this user"
            : d->command            ? "check the first word of command"
                                    : "set python: or activate the environment");
        break;
    case STEP_FOLDER:
        say(s, "could not enter %s: %s; check working_dir", or_else(d->folder, "the service's folder"),
            problem);
        break;
    case STEP_USER:
        say(s, "could not become the user it should run as: %s; check user and group", problem);
        break;
    default:
        say(s, "%s: %s", cause_text[PL_CAUSE_EXEC_FAILED], problem);
        if (d->exec_step > 0 && d->exec_step < sizeof steps / sizeof steps[0])
            say(s, " (%s)", steps[d->exec_step]);
    }
    return PL_CAUSE_EXEC_FAILED;
}

/* What an import error means, where we know it. True if it has been said. */
static bool known_import_error(const struct pl_death *d, const char *line, struct sentence *s) {
    const char *python = or_else(d->program, "this python");
    char missing[80], module[80], name[80], folder[160];
    between(line, "No module named '", '\'', missing, sizeof missing);
    between(line, "Failed to import module \"", '"', module, sizeof module);
    if (strcmp(missing, "bentoml") == 0 || strcmp(missing, "_bentoml_impl") == 0) {
        say(s, "BentoML is not installed in %s: %s -m pip install bentoml", python, python);
        return true;
    }
    if (strncmp(missing, "plimsoll", 8) == 0 || strstr(line, "No module named plimsoll") != NULL) {
        say(s, "Plimsoll's own Python files are missing: install it again");
        return true;
    }
    if (missing[0] != '\0' && strcmp(missing, module) == 0) {
        say(s, "there is no module %s in %s: check run and working_dir", module,
            or_else(d->folder, "the service's folder"));
        return true;
    }
    if (missing[0] != '\0') {
        char remedy[160];
        snprintf(remedy, sizeof remedy, "install what is missing into %.80s, or set python:", python);
        head_words_remedy(s, cause_text[PL_CAUSE_IMPORT_FAILED], strstr(line, "No module named '"), remedy);
        return true;
    }
    between(line, "Attribute \"", '"', name, sizeof name);
    between(line, "not found in module \"", '"', module, sizeof module);
    if (name[0] != '\0' && module[0] != '\0') {
        for (char *dot = module; (dot = strchr(dot, '.')) != NULL;) *dot = '/';
        say(s, "no class %s in %s.py: check the name after the colon", name, module);
        return true;
    }
    if (strstr(line, "does not contain a valid bentofile.yaml or service.py") != NULL) {
        between(line, "The directory '", '\'', folder, sizeof folder);
        say(s, "neither service.py nor bentofile.yaml in %s: check working_dir, or name the service",
            or_else(folder, "the service's folder"));
        return true;
    }
    return false;
}

/* What argument parsers and pydantic say of settings that they do not take. */
static bool is_refused_setting(const char *line) {
    static const char *const signs[] = { "unrecognized arguments:", "invalid choice:", "No such option:",
                                         "Value error, " };
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (strstr(line, signs[i]) != NULL) return true;
    return false;
}

static enum pl_cause failed_command(int status, const char *line, struct sentence *s) {
    if (is_refused_setting(line)) {
        head_words_remedy(s, cause_text[PL_CAUSE_CONFIG_FAILED], line, "");
        return PL_CAUSE_CONFIG_FAILED;
    }
    say(s, "exited with status %d before it was ready", status);
    head_words_remedy(s, "", line, "");
    return PL_CAUSE_EXITED;
}

static enum pl_cause failed_start(const struct pl_death *d, int status, const char *line,
                                  struct sentence *s) {
    enum pl_cause cause = status == 1   ? PL_CAUSE_IMPORT_FAILED
                          : status == 3 ? PL_CAUSE_INIT_FAILED
                                        : PL_CAUSE_EXITED;
    if (status == 126 || status == 127) {
        head_words_remedy(s,
                          status == 127 ? "could not be started: the command was not found (exit status 127)"
                                        : "could not be started: the command cannot be run (exit status 126)",
                          line, "");
        return PL_CAUSE_EXEC_FAILED;
    }
    if (d->command) return failed_command(status, line, s);
    if (cause == PL_CAUSE_EXITED) {
        say(s, "exited with status %d before it was ready", status);
        head_words_remedy(s, "", line, "");
    } else if (cause != PL_CAUSE_IMPORT_FAILED || !known_import_error(d, line, s)) {
        head_words_remedy(s, cause_text[cause], line, "");
    }
    return cause;
}

static enum pl_cause exited(const struct pl_death *d, int status, const char *line, struct sentence *s) {
    if (d->engine_died && d->was_ready) {
        say(s, "%s; the server then left with status %d, which nobody asked for",
            cause_text[PL_CAUSE_ENGINE_FAILED], status);
        words(s, "; last words: ", line);
        return PL_CAUSE_ENGINE_FAILED;
    }
    if (status == 0) {
        head_words_remedy(s, cause_text[PL_CAUSE_EXITED_ZERO], "", "");
        words(s, "; last words: ", line);
        return PL_CAUSE_EXITED_ZERO;
    }
    if (!d->was_ready) return failed_start(d, status, line, s);
    say(s, "exited with status %d while serving", status);
    words(s, "; last words: ", line);
    return PL_CAUSE_EXITED;
}

/* Somebody sent SIGKILL, and it was not us. Nearly full is a hint, no proof. */
static enum pl_cause killed(const struct pl_death *d, struct sentence *s) {
    const struct pl_death_group *g = d->group;
    if (kernel_killed(d)) return killed_by_kernel(d, "", "", s);
    bool measured = g != NULL && g->current != PL_PROC_UNKNOWN && g->max != PL_PROC_UNKNOWN && g->max > 0;
    say(s, "%s", cause_text[PL_CAUSE_KILLED]);
    if (measured && g->current > g->max / 20 * 19)
        say(s, "; probably the kernel, for memory: %.0f %% of the limit were in use in the last sample",
            (double)g->current * 100 / (double)g->max);
    else if (g != NULL && g->known)
        say(s, "; the kernel has counted no kill for memory here: look at dmesg, or for another sender");
    else
        say(s, "; the kernel does that when memory runs out: look at dmesg");
    return PL_CAUSE_KILLED;
}

static enum pl_cause signaled(const struct pl_death *d, int signal, const char *line, struct sentence *s) {
    const char *place = line + place_at(line);
    switch (signal) {
    case SIGKILL:
        return killed(d, s);
    case SIGTERM:
        say(s, "%s", cause_text[PL_CAUSE_TERMINATED]);
        return PL_CAUSE_TERMINATED;
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
        say(s, "crashed by SIG%s (%s)", sigabbrev_np(signal), sigdescr_np(signal));
        if (strncmp(line, "Fatal Python error", 18) == 0)
            say(s, "%s", place);
        else
            head_words_remedy(s, "", signal == SIGABRT ? line : "",
                              "env: {PYTHONFAULTHANDLER: \"1\"} shows where");
        return PL_CAUSE_CRASHED;
    default:
        say(s, "ended by signal %d (%s), which Plimsoll did not send", signal,
            or_else(sigdescr_np(signal), "not a name we know"));
        return PL_CAUSE_UNKNOWN;
    }
}

static enum pl_cause ordered_end(int status, struct sentence *s) {
    say(s, "%s", cause_text[PL_CAUSE_NONE]);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        say(s, ", by SIGKILL: it did not end in time");
    else if (WIFSIGNALED(status))
        say(s, " (SIG%s)", or_else(sigabbrev_np(WTERMSIG(status)), "?"));
    else if (WIFEXITED(status))
        say(s, " (exit status %d)", WEXITSTATUS(status));
    return PL_CAUSE_NONE;
}

enum pl_cause pl_death_explain(const struct pl_death *d, char *sentence, size_t room) {
    struct sentence s = { .at = sentence, .room = room };
    const char *line = or_else(d->last_line, "");
    int status = d->wait_status;
    if (room == 0) return PL_CAUSE_UNKNOWN;
    sentence[0] = '\0';
    if (d->exec_errno != 0) return exec_failed(d, &s);
    if (d->warmup != NULL) {
        head_words_remedy(&s, "the warm-up failed", d->warmup, "");
        return PL_CAUSE_INIT_FAILED;
    }
    if (d->silent_ms != 0) {
        say(&s, "was silent for %.0f s and has been stopped", (double)d->silent_ms / 1000);
        words(&s, "; last words: ", line);
        return PL_CAUSE_HANG;
    }
    if (d->timed_out) {
        if (d->lived_ms != 0)
            say(&s, "was not ready after %.0f s and has been stopped", (double)d->lived_ms / 1000);
        else
            say(&s, "%s and has been stopped", cause_text[PL_CAUSE_START_TIMEOUT]);
        s.kept = strlen("; raise start_timeout if it needs longer");
        words(&s, "; last words: ", line);
        say(&s, "; raise start_timeout if it needs longer");
        return PL_CAUSE_START_TIMEOUT;
    }
    if (d->ordered) return ordered_end(status, &s);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    /* A child that the server cannot live without, or a shell in between, was killed. */
    if (kernel_killed(d) && code == 128 + SIGKILL)
        return killed_by_kernel(d, "", " (a shell in between reports status 137)", &s);
    if (kernel_killed(d) && (code == 0 || (code > 0 && d->engine_died))) {
        char after[80];
        snprintf(after, sizeof after, "; the main process then left with status %d", code);
        return killed_by_kernel(d, "a child of it was ", after, &s);
    }
    bool by_itself =
        WIFEXITED(status) ? code != 0 || d->engine_died : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    enum pl_oom_class class = d->oom != NULL ? pl_oom_class_of(d->oom->kind) : PL_OOM_CLASS_NONE;
    if (by_itself && class == PL_OOM_CLASS_GPU) return gpu_full(d, line, &s);
    if (by_itself && class == PL_OOM_CLASS_SIZING && !d->was_ready) return does_not_fit(d->oom, line, &s);
    if (by_itself && (is_gpu_error(line) || d->xid != 0)) return gpu_failed(d, line, &s);
    if (WIFEXITED(status)) return exited(d, WEXITSTATUS(status), line, &s);
    if (WIFSIGNALED(status)) return signaled(d, WTERMSIG(status), line, &s);
    say(&s, "%s (wait status %d)", cause_text[PL_CAUSE_UNKNOWN], status);
    return PL_CAUSE_UNKNOWN;
}
