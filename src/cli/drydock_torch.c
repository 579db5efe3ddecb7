/* drydock_torch.c - which Python a command will run, and where its PyTorch lies. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/child.h"
#include "cli/drydock_stubs.h"

enum { PYTHON_LIMIT_MS = 20000, LINE_BYTES = 512 };

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_python(const char *program) { return strncmp(base_name(program), "python", 6) == 0; }

/* The interpreter of a script's first line, such as a console script of a virtual environment. */
static bool shebang(const char *program, char out[PL_PATH_BYTES]) {
    struct pl_err ignored;
    char line[LINE_BYTES] = "", *words[3] = { NULL }, *rest = line + 2;
    PL_AUTO_FD int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd == -1 || read(fd, line, sizeof line - 1) < 2 || strncmp(line, "#!", 2) != 0) return false;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < 3; i++) words[i] = strtok_r(NULL, " \t", &rest);
    const char *name = words[0];
    if (name != NULL && strcmp(base_name(name), "env") == 0) name = words[1];
    return name != NULL && is_python(name) && pl_path_python(name, out, &ignored);
}

/* The value of `--python` among the words, as `plimsoll serve` takes it. */
static const char *named(const struct pl_strings *words) {
    for (size_t i = 1; i < words->count; i++) {
        if (strncmp(words->at[i], "--python=", 9) == 0) return words->at[i] + 9;
        if (strcmp(words->at[i], "--python") == 0 && i + 1 < words->count) return words->at[i + 1];
    }
    return NULL;
}

/* A python that is named anywhere: `timeout 60 python x.py`, `sh -c 'python x.py'`. */
static bool mentioned(const struct pl_strings *words, char out[PL_PATH_BYTES]) {
    struct pl_err ignored;
    char token[PL_PATH_BYTES];
    for (size_t i = 1; i < words->count; i++) {
        for (const char *at = words->at[i]; *at != '\0';) {
            size_t n = strcspn(at, " \t\n;&|()'\"");
            if (n > 0 && n < sizeof token) {
                snprintf(token, sizeof token, "%.*s", (int)n, at);
                if (is_python(token) && pl_path_python(token, out, &ignored)) return true;
            }
            at += n + (at[n] != '\0');
        }
    }
    return false;
}

static void find_python(const struct pl_strings *words, struct pl_torch *t) {
    struct pl_err ignored;
    const char *program = words->at[0], *flag = named(words);
    t->named = true;
    if (is_python(program) && pl_path_python(program, t->python, &ignored)) return;
    if (shebang(program, t->python) || (flag != NULL && pl_path_python(flag, t->python, &ignored))) return;
    if (mentioned(words, t->python)) return;
    t->named = false;
    if (!pl_path_python(NULL, t->python, &ignored)) t->python[0] = '\0';
}

/* The folder of its PyTorch; "" if it has none. The module is found, not imported: that would take seconds.
 */
static void ask(const char *python, char out[PL_PATH_BYTES]) {
    static const char code[] =
        "import importlib.util as u\ns=u.find_spec('torch')\n"
        "print(s.submodule_search_locations[0] if s and s.submodule_search_locations else '')";
    const char *words[] = { python, "-c", code, NULL };
    const struct pl_child question = { .argv = words, .limit_ms = PYTHON_LIMIT_MS };
    struct pl_buf text;
    pl_buf_init(&text, PL_PATH_BYTES);
    bool answered = pl_child_ask(&question, &text) == 0;
    snprintf(out, PL_PATH_BYTES, "%.*s", answered ? (int)strcspn(pl_buf_text(&text), "\n") : 0,
             pl_buf_text(&text));
    pl_buf_free(&text);
}

/* The text between quotes on the line of version.py that begins with `key`; false: None, or no such line. */
static bool quoted(const char *text, const char *key, char *out, size_t room) {
    size_t len = strlen(key);
    for (const char *at = text; at != NULL && *at != '\0';
         at = strchr(at, '\n'), at = at != NULL ? at + 1 : NULL) {
        if (strncmp(at, key, len) != 0 || strchr(" :=", at[len]) == NULL) continue;
        const char *open = at + strcspn(at, "'\"\n");
        if (*open != '\'' && *open != '"') return false;
        snprintf(out, room, "%.*s", (int)strcspn(open + 1, "'\"\n"), open + 1);
        return true;
    }
    return false;
}

static bool check_build(struct pl_torch *t, struct pl_err *err) {
    char path[PL_PATH_BYTES], text[4096] = "", build[64];
    snprintf(path, sizeof path, "%s/version.py", t->folder);
    PL_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, text, sizeof text - 1) : -1;
    if (n <= 0) return PL_FAIL_SYS(err, errno, "read %s", path);
    text[n] = '\0';
    if (!quoted(text, "__version__", t->version, sizeof t->version))
        snprintf(t->version, sizeof t->version, "?");
    if (quoted(text, "cuda", build, sizeof build)) return true;
    if (quoted(text, "hip", build, sizeof build)) {
        PL_FAIL(err, PL_E_CONFIG, "torch %s in %s is built for ROCm: the dry dock serves CUDA 12 and 13",
                t->version, t->folder);
        return pl_err_hint(err, "use an environment with PyTorch's plain wheel from PyPI");
    }
    PL_FAIL(err, PL_E_CONFIG, "torch %s in %s is built without CUDA and will never look for a GPU",
            t->version, t->folder);
    return pl_err_hint(
        err, "%.80s -m pip install --no-deps torch (the plain wheel; no nvidia-* package is needed)",
        t->python);
}

bool pl_torch_find(const struct pl_strings *words, struct pl_torch *out, struct pl_err *err) {
    *out = (struct pl_torch){ 0 };
    find_python(words, out);
    if (out->python[0] != '\0') ask(out->python, out->folder);
    return out->folder[0] == '\0' || check_build(out, err);
}
