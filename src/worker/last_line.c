/* The line of a worker's output that says why it died. One pass, no copies: the best line so far is a slice
 * of the tail.
 *
 * Shapes seen: Python tracebacks, chained ("direct cause") and grouped ("  | "), printed more than once;
 * BentoML's import error, whose own last line holds the cause in quotes; faulthandler's dump, whose first
 * frame is the deepest; lines with a logger's prefix before the exception; and after all of them the
 * farewells of uvicorn and friends. */
#include <stdio.h>
#include <string.h>

#include "sample/oom.h"
#include "worker/death.h"

struct slice {
    const char *at;
    size_t len;
};

struct picker {
    struct slice cause; /* exception line, at == NULL: none */
    struct slice last;  /* last line that is not a farewell */
    struct slice any;   /* last line that is not empty */
    struct slice file;  /* of the deepest frame of the user's own code */
    unsigned line;
    bool in_trace, in_dump;
    bool chained; /* the next traceback belongs to the one before */
    bool ignored; /* the next traceback ends nobody */
};

/* Said by every worker that ends, whatever the cause. */
static const char *const farewells[] = {
    "Application startup failed",
    "Application shutdown complete",
    "Service instance cleanup finalized",
    "Shutting down",
    "Waiting for application",
    "Waiting for connections",
    "Waiting for background tasks",
    "Finished server process",
    "See root cause above",
    "See stack trace",
    "[shutdown]",
    "resource_tracker",
    "RuntimeWarning",
    "Enable tracemalloc",
    "Extension modules:",
    "Exception ignored in",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "If you are attempting to import bento by tag",
};
static const char *const library_paths[] = { "/site-packages/",  "/dist-packages/", "/lib/python3",
                                             "<frozen ",         "<string>",        "/python/plimsoll/",
                                             "/plimsoll/python-" };

static bool has(struct slice s, const char *text) { return memmem(s.at, s.len, text, strlen(text)) != NULL; }

static bool begins(struct slice s, const char *text) {
    return s.len >= strlen(text) && memcmp(s.at, text, strlen(text)) == 0;
}

static bool has_any(struct slice s, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (has(s, list[i])) return true;
    return false;
}

static struct slice skip(struct slice s, size_t n) { return (struct slice){ s.at + n, s.len - n }; }

static struct slice trim(struct slice s) {
    while (s.len > 0 && (s.at[0] == ' ' || s.at[0] == '\t')) s = skip(s, 1);
    while (s.len > 0 && memchr(" \t\r", s.at[s.len - 1], 3) != NULL) s.len--;
    return s;
}

static struct slice without_end(struct slice s, const char *end) {
    size_t n = strlen(end);
    if (s.len >= n && memcmp(s.at + s.len - n, end, n) == 0) s.len -= n;
    return s;
}

/* "2026-11-29T17:52:54+0000", "11-29", "16:26:36": more than a number, and no address. */
static bool is_time(struct slice word) {
    size_t marks = 0;
    for (size_t i = 0; i < word.len; i++) {
        char c = word.at[i];
        if (c == '-') marks += 2;
        if (c == ':') marks++;
        if ((c < '0' || c > '9') && memchr("-:.,+TZ", c, 7) == NULL) return false;
    }
    return marks >= 2 && word.at[0] >= '0' && word.at[0] <= '9';
}

/* Before a message: time, level, [logger], (process pid=1). `info` tells that the level was harmless. */
static struct slice without_prefix(struct slice s, bool *info) {
    for (;;) {
        s = trim(s);
        size_t n = 0;
        while (n < s.len && s.at[n] != ' ') n++;
        struct slice word = { s.at, n };
        char close = s.len == 0 ? 0 : s.at[0] == '[' ? ']' : s.at[0] == '(' ? ')' : 0;
        if (close != 0) {
            const char *end = memchr(s.at, close, s.len);
            struct slice group = { s.at, end != NULL ? (size_t)(end - s.at) + 1 : 0 };
            if (end == NULL || (close == ')' && !has(group, "pid="))) return s;
            if (begins(group, "[INFO") || begins(group, "[DEBUG")) *info = true;
            s = skip(s, group.len);
        } else if (begins(word, "INFO") || begins(word, "DEBUG")) {
            *info = true;
            s = skip(s, n);
        } else if (begins(word, "ERROR") || begins(word, "WARN") || begins(word, "CRITICAL")) {
            s = skip(s, n);
        } else if (n > 0 && is_time(word)) {
            s = skip(s, n);
        } else {
            return s;
        }
    }
}

/* "torch.OutOfMemoryError: text", "AssertionError". */
static bool is_exception(struct slice s) {
    static const char *const ends[] = { "Error", "Exception", "SystemExit", "KeyboardInterrupt" };
    const char *colon = memchr(s.at, ':', s.len);
    struct slice name = { s.at, colon != NULL ? (size_t)(colon - s.at) : s.len };
    if (begins(name, "Fatal Python error")) return true;
    if (memchr(name.at, ' ', name.len) != NULL) return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (without_end(name, ends[i]).len < name.len) return true;
    }
    return false;
}

/* `File "/srv/app/service.py", line 10, in load`: remembered when it is not library code. */
static void look_at_frame(struct picker *p, struct slice s) {
    struct slice path = skip(s, strlen("File \""));
    const char *quote = memchr(path.at, '"', path.len);
    if (quote == NULL) return;
    struct slice rest = skip(path, (size_t)(quote - path.at));
    path.len = (size_t)(quote - path.at);
    if (!begins(rest, "\", line ") ||
        has_any(path, library_paths, sizeof library_paths / sizeof library_paths[0]))
        return;
    unsigned line = 0;
    for (rest = skip(rest, strlen("\", line ")); rest.len > 0 && rest.at[0] >= '0' && rest.at[0] <= '9';
         rest = skip(rest, 1)) {
        if (line > 99999999) return;
        line = line * 10 + (unsigned)(rest.at[0] - '0');
    }
    const char *slash = memrchr(path.at, '/', path.len);
    p->file = slash != NULL ? skip(path, (size_t)(slash - path.at) + 1) : path;
    p->line = line;
    p->in_dump = false; /* a dump begins with the deepest frame */
}

/* In a traceback: frames and source lines are indented, the first line that is not is the exception. */
static bool look_in_trace(struct picker *p, struct slice line, struct slice text) {
    if (!p->in_trace || text.len == 0) return p->in_trace;
    if (line.at[0] == ' ' || line.at[0] == '\t') {
        if (begins(text, "File \"") && !p->ignored) look_at_frame(p, text);
        return true;
    }
    p->in_trace = false;
    if (!p->ignored) p->cause = text;
    p->ignored = false;
    return true;
}

static void begin_trace(struct picker *p) {
    p->in_trace = true;
    if (!p->chained && !p->ignored) p->file = (struct slice){ 0 };
    p->chained = false;
}

/* pydantic says how many settings are wrong, and on an indented line below it what is wrong with one of them:
 * "  Value error, TEXT [type=value_error, input_value=...]". */
static bool look_for_reason(struct picker *p, struct slice bare) {
    static const char mark[] = "Value error, ";
    if (p->cause.at == NULL || !has(p->cause, "validation error") || !begins(bare, mark)) return false;
    const char *type = memmem(bare.at, bare.len, " [type=", 7);
    p->cause = (struct slice){ bare.at, type != NULL ? (size_t)(type - bare.at) : bare.len };
    return true;
}

static void look_at_line(struct picker *p, struct slice line) {
    static const char module_path[] = "If you are importing by python module path: '";
    bool info = false;
    /* Members of an exception group hang on a line of their own at the left. */
    struct slice bare = trim(line);
    while (begins(bare, "| ") || begins(bare, "+ ")) line = skip(bare, 2), bare = trim(line);
    if (bare.len > 0) p->any = bare;
    if (has(bare, "Traceback (most recent call last):")) {
        begin_trace(p);
        return;
    }
    if (look_in_trace(p, line, bare) || bare.len == 0) return;
    if (begins(bare, "File \"") && p->in_dump) look_at_frame(p, bare);
    if (begins(bare, "The above exception was") || begins(bare, "During handling of")) p->chained = true;
    p->ignored = begins(bare, "Exception ignored in");
    if (begins(bare, module_path) && p->cause.at != NULL) {
        p->cause = without_end(without_end(skip(bare, sizeof module_path - 1), "'."), ".");
        return;
    }
    if (look_for_reason(p, bare)) return;
    struct slice text = without_prefix(bare, &info);
    if (text.len == 0 || line.at[0] == ' ' || line.at[0] == '\t') return;
    if (has_any(bare, farewells, sizeof farewells / sizeof farewells[0])) return;
    if (is_exception(text)) {
        p->cause = text;
        p->file = (struct slice){ 0 };
        p->in_dump = begins(text, "Fatal Python error");
    } else if (info) {
        p->cause = (struct slice){ 0 }; /* it went on afterwards: that was not the end */
    }
    if (!begins(text, "Current thread 0x") && !begins(text, "Thread 0x")) p->last = text;
}

size_t pl_death_whole_chars(const char *text, size_t len) {
    size_t lead = len;
    while (lead > 0 && ((unsigned char)text[lead - 1] & 0xc0) == 0x80) lead--;
    if (lead == 0 || (unsigned char)text[lead - 1] < 0xc0) return len;
    unsigned char c = (unsigned char)text[lead - 1];
    size_t wanted = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    return len - (lead - 1) < wanted ? lead - 1 : len;
}

/* Copies without control characters and colours, cut between characters. Returns the bytes written. */
static size_t copy_clean(char *out, size_t room, struct slice s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len && n < room; i++) {
        unsigned char c = (unsigned char)s.at[i];
        if (c == 0x1b && i + 1 < s.len && s.at[i + 1] == '[') {
            for (i += 2; i < s.len && (unsigned char)s.at[i] < 0x40; i++) continue;
            continue;
        }
        out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
    }
    return n == room ? pl_death_whole_chars(out, n) : n;
}

void pl_death_last_line(const char *tail, size_t len, char *out, size_t room) {
    struct picker p = { 0 };
    char place[160] = "";
    if (room == 0) return;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(tail + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - (tail + at)) : len - at;
        look_at_line(&p, (struct slice){ tail + at, n });
        at += n + 1;
    }
    struct slice best = p.cause.at != NULL ? p.cause : p.last.at != NULL ? p.last : p.any;
    if (p.cause.at != NULL && p.file.at != NULL) {
        char name[128];
        size_t n = copy_clean(name, sizeof name - 1, p.file);
        name[n] = '\0';
        snprintf(place, sizeof place, " (%s:%u)", name, p.line);
    }
    size_t tail_len = strlen(place) < room / 2 ? strlen(place) : 0;
    size_t n = best.at != NULL ? copy_clean(out, room - 1 - tail_len, best) : 0;
    memcpy(out + n, place, tail_len);
    out[n + tail_len] = '\0';
}

bool pl_death_oom(const char *tail, size_t len, char *line, size_t room, struct pl_oom *out) {
    if (pl_oom_in_line(line, strlen(line), out) && pl_oom_class_of(out->kind) != PL_OOM_CLASS_WARNING)
        return true;
    if (!pl_oom_last_words(tail, len, out)) return false;
    struct slice said = { tail + out->line_at, len - out->line_at };
    const char *end = memchr(said.at, '\n', said.len);
    if (end != NULL) said.len = (size_t)(end - said.at);
    bool info = false;
    struct slice text = without_prefix(trim(said), &info);
    line[copy_clean(line, room - 1, text)] = '\0';
    return true;
}

bool pl_death_engine_died(const char *tail, size_t len) {
    static const char *const signs[] = {
        "engine core exited unexpectedly", /* vLLM, with what follows */
        "EngineDeadError",
        "Engine core proc ",                     /* "... died unexpectedly" */
        "Received sigquit from a child process", /* SGLang */
        "Shard terminated",                      /* TGI; "Shard 0 failed" comes at start */
    };
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (memmem(tail, len, signs[i], strlen(signs[i])) != NULL) return true;
    return false;
}
