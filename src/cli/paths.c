#include "cli/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/similar.h"

enum { SOCKET_ROOM = 16, SOCKET_PATH = 107 };

static bool is_ours(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* True if the folder is there and ours, or could be made. */
static bool have_folder(const char *path, bool make) {
    if (is_ours(path)) return access(path, W_OK | X_OK) == 0;
    return make && mkdir(path, 0700) == 0;
}

static bool candidate(const char *parent, const char *name, bool make, char out[PL_PATH_BYTES]) {
    if ((size_t)snprintf(out, PL_PATH_BYTES, "%s/%s", parent, name) >= PL_PATH_BYTES) return false;
    if (is_ours(out)) return true;
    return have_folder(parent, make);
}

static bool fits(const char *path, struct pl_err *err) {
    if (strlen(path) + SOCKET_ROOM <= SOCKET_PATH) return true;
    PL_FAIL(err, PL_E_SYS, "run_dir %s is too long: socket paths in it would be over %d bytes", path,
            SOCKET_PATH);
    return pl_err_hint(err, "set a shorter run_dir, at most %d bytes", SOCKET_PATH - SOCKET_ROOM);
}

static bool absolute(const char *path, char out[PL_PATH_BYTES], struct pl_err *err) {
    char folder[PATH_MAX];
    if (path[0] == '/') {
        snprintf(out, PL_PATH_BYTES, "%s", path);
        return true;
    }
    if (getcwd(folder, sizeof folder) == NULL) return PL_FAIL_SYS(err, errno, "current folder");
    if ((size_t)snprintf(out, PL_PATH_BYTES, "%s/%s", folder, path) >= PL_PATH_BYTES)
        return PL_FAIL(err, PL_E_SYS, "path %s is too long", path);
    return true;
}

bool pl_path_run_dir(const struct pl_config *c, bool make, char out[PL_PATH_BYTES], struct pl_err *err) {
    char parent[PL_PATH_BYTES];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (c->run_dir != NULL) return absolute(c->run_dir, out, err) && fits(out, err);
    if (candidate("/run/plimsoll", c->name, make, out)) return fits(out, err);
    if (runtime != NULL && runtime[0] == '/') {
        snprintf(parent, sizeof parent, "%s/plimsoll", runtime);
        if (candidate(parent, c->name, make, out)) return fits(out, err);
    }
    snprintf(parent, sizeof parent, "/tmp/plimsoll-%u", (unsigned)geteuid());
    if (candidate(parent, c->name, make, out)) return fits(out, err);
    PL_FAIL(err, PL_E_SYS, "no run folder can be had: neither /run/plimsoll nor %s is ours or can be made",
            parent);
    return pl_err_hint(err, "set run_dir to a folder of your own");
}

static bool make_all(const char *path) {
    char text[PL_PATH_BYTES];
    snprintf(text, sizeof text, "%s", path);
    for (char *at = text + 1; *at != '\0'; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(text, 0700) == -1 && errno != EEXIST) return false;
        *at = '/';
    }
    return mkdir(text, 0700) == 0 || errno == EEXIST;
}

void pl_path_state_dir(const struct pl_config *c, char out[PL_PATH_BYTES]) {
    struct pl_err err;
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    out[0] = '\0';
    if (c->state_dir != NULL) {
        if (!absolute(c->state_dir, out, &err) || !make_all(out)) out[0] = '\0';
        return;
    }
    snprintf(out, PL_PATH_BYTES, "/var/lib/plimsoll/%s", c->name);
    bool room = is_ours("/var/lib/plimsoll") || access("/var/lib", W_OK) == 0;
    if (is_ours(out) || (room && make_all(out))) return;
    if (state != NULL && state[0] == '/')
        snprintf(out, PL_PATH_BYTES, "%s/plimsoll/%s", state, c->name);
    else if (home != NULL && home[0] == '/')
        snprintf(out, PL_PATH_BYTES, "%s/.local/state/plimsoll/%s", home, c->name);
    else
        out[0] = '\0';
    if (out[0] != '\0' && !make_all(out)) out[0] = '\0';
}

bool pl_path_cache_dir(char out[PL_PATH_BYTES], struct pl_err *err) {
    const char *set = getenv("PLIMSOLL_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (set != NULL && set[0] != '\0') {
        if (!absolute(set, out, err)) return false;
    } else if (geteuid() == 0) {
        snprintf(out, PL_PATH_BYTES, "/var/cache/plimsoll");
    } else if (cache != NULL && cache[0] == '/') {
        snprintf(out, PL_PATH_BYTES, "%s/plimsoll", cache);
    } else {
        snprintf(out, PL_PATH_BYTES, "%s/.cache/plimsoll", home != NULL && home[0] == '/' ? home : "");
    }
    if (make_all(out)) return true;
    PL_FAIL_SYS(err, errno, "make the cache folder %s", out);
    return pl_err_hint(err, "set PLIMSOLL_CACHE to a folder of your own");
}

bool pl_path_program(char out[PL_PATH_BYTES], struct pl_err *err) {
    static const char gone[] = " (deleted)";
    ssize_t n = readlink("/proc/self/exe", out, PL_PATH_BYTES - 1);
    if (n <= 0) return PL_FAIL_SYS(err, errno, "find our own program in /proc/self/exe");
    out[n] = '\0';
    /* Replaced on the disk since it was started; its parts lie where they lay. */
    size_t end = (size_t)n - strlen(gone);
    if ((size_t)n > strlen(gone) && strcmp(out + end, gone) == 0) out[end] = '\0';
    return true;
}

/* PREFIX/bin/plimsoll -> PREFIX/REST */
static bool beside(const char *rest, char out[PL_PATH_BYTES], struct pl_err *err) {
    char program[PL_PATH_BYTES];
    if (!pl_path_program(program, err)) return false;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (slash == NULL) return PL_FAIL(err, PL_E_SYS, "our own program has no folder: %s", program);
        *slash = '\0';
    }
    if ((size_t)snprintf(out, PL_PATH_BYTES, "%s/%s", program, rest) >= PL_PATH_BYTES)
        return PL_FAIL(err, PL_E_SYS, "the path of our own program is too long");
    if (access(out, F_OK) == 0) return true;
    PL_FAIL_SYS(err, errno, "%s is missing", out);
    return pl_err_hint(err, "the installation is not whole: install it again");
}

bool pl_path_keeper(char out[PL_PATH_BYTES], struct pl_err *err) {
    return beside("libexec/plimsoll/keeper", out, err);
}

bool pl_path_watch(char out[PL_PATH_BYTES], struct pl_err *err) {
    return beside("libexec/plimsoll/watch", out, err);
}

bool pl_path_llama(char out[PL_PATH_BYTES], struct pl_err *err) {
    if (beside("libexec/plimsoll/llama", out, err)) return true;
    PL_FAIL(err, PL_E_SYS, "plimsoll-llama is not installed: this build is without it");
    return pl_err_hint(err,
                       "build with -DPL_LLAMA_DIR=PREFIX of libllama, or run llama-server: plimsoll serve -- "
                       "llama-server -m FILE.gguf");
}

bool pl_path_python_side(char out[PL_PATH_BYTES], struct pl_err *err) {
    return beside("share/plimsoll/python-" PL_VERSION, out, err);
}

bool pl_path_drydock(char out[PL_PATH_BYTES], struct pl_err *err) {
    return beside("share/plimsoll/drydock", out, err);
}

bool pl_path_caches(const struct pl_config *c, char out[PL_PATH_BYTES]) {
    struct pl_err err;
    if (c->cache_dir == NULL) return pl_path_cache_dir(out, &err);
    return absolute(c->cache_dir, out, &err) && make_all(out);
}

static bool usable(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

bool pl_path_search(const char *name, char out[PL_PATH_BYTES]) {
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        if (n > 0 && (size_t)snprintf(out, PL_PATH_BYTES, "%.*s/%s", (int)n, path, name) < PL_PATH_BYTES &&
            out[0] == '/' && usable(out))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

bool pl_path_python(const char *wanted, char out[PL_PATH_BYTES], struct pl_err *err) {
    const char *venv = getenv("VIRTUAL_ENV");
    if (wanted != NULL && strchr(wanted, '/') == NULL) {
        if (pl_path_search(wanted, out)) return true;
        PL_FAIL(err, PL_E_SYS, "python: %s is not on PATH", wanted);
        return pl_err_hint(err, "give the interpreter's full path");
    }
    if (wanted != NULL) {
        if (!absolute(wanted, out, err)) return false;
        if (usable(out)) return true;
        PL_FAIL(err, PL_E_SYS, "python: %s is not a program", out);
        return pl_err_hint(err, "give the interpreter of the environment that BentoML is installed in");
    }
    if (venv != NULL && snprintf(out, PL_PATH_BYTES, "%s/bin/python", venv) > 0 && usable(out)) return true;
    if (pl_path_search("python3", out) || pl_path_search("python", out)) return true;
    PL_FAIL(err, PL_E_SYS, "no python3 was found");
    return pl_err_hint(err, "activate the service's environment, or give --python PATH");
}

static bool no_command(const char *word, struct pl_err *err) {
    PL_FAIL(err, PL_E_SYS, "%s: no such program", pl_quote(word).text);
    return pl_err_hint(err, strchr(word, '/') == NULL
                                ? "it is not on PATH: give its full path, or --python of the "
                                  "environment that has it"
                                : "check the first word of the command");
}

bool pl_path_command(const char *word, const char *folder, const char *python, char out[PL_PATH_BYTES],
                     struct pl_err *err) {
    const char *slash = python != NULL ? strrchr(python, '/') : NULL;
    int n;
    if (strchr(word, '/') == NULL) {
        if (pl_path_search(word, out)) return true;
        n = slash != NULL ? snprintf(out, PL_PATH_BYTES, "%.*s/%s", (int)(slash - python), python, word) : -1;
    } else if (word[0] == '/') {
        n = snprintf(out, PL_PATH_BYTES, "%s", word);
    } else {
        n = snprintf(out, PL_PATH_BYTES, "%s/%s", folder, word);
    }
    return (n > 0 && n < PL_PATH_BYTES && out[0] == '/' && usable(out)) || no_command(word, err);
}
