#include "keeper/options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define SETTINGS(X)                                                    \
    /* option             field            default   least        most */ \
    X("--hello-ms",        hello_ms,        30000,    1,       86400000) \
    X("--hang-ms",         hang_ms,         10000,    0,       86400000) \
    X("--abort-ms",        abort_ms,        2000,     1,       86400000) \
    X("--crash-window-ms", crash_window_ms, 60000,    1,       86400000) \
    X("--crash-limit",     crash_limit,     5,        1,       PL_KEEPER_MOST_CRASHES) \
    X("--take-ms",         take_ms,         60000,    1,       86400000) \
    X("--stand-ms",        stand_ms,        2000,     1,       86400000) \
    X("--leave-ms",        leave_ms,        600000,   1,       604800000) \
    X("--stop-ms",         stop_ms,         30000,    1,       604800000) \
    X("--stuck-ms",        stuck_ms,        30000,    1,       86400000) \
    X("--verbose",         verbose,         0,        0,       1) \
    X("--json",            json,            0,        0,       1)
/* clang-format on */

static const struct {
    const char *name;
    size_t at;
    uint64_t value, least, most;
} settings[] = {
#define X(name, field, value, least, most) \
    { name, offsetof(struct pl_keeper_settings, field), value, least, most },
    SETTINGS(X)
#undef X
};
enum { SETTING_COUNT = sizeof settings / sizeof *settings };

static uint64_t *field(struct pl_keeper_settings *set, size_t i) {
    return (uint64_t *)(void *)((char *)set + settings[i].at);
}

static bool number(const char *text, uint64_t *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}

static bool read_hold(struct pl_keeper_options *o, const char *value, struct pl_err *err) {
    const char *equals = strchr(value, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals - value);
    uint64_t fd = 0;
    if (length == 0 || length >= PL_WIRE_NAME_BYTES || !number(equals + 1, &fd) || fd < 3 || fd > INT_MAX)
        return PL_FAIL(err, PL_E_USAGE,
                       "--hold %s: it takes NAME=FD, with a name of 1 to %d bytes and a descriptor above 2",
                       value, PL_WIRE_NAME_BYTES - 1);
    if (o->hold_count == PL_KEEPER_MOST_HOLDS)
        return PL_FAIL(err, PL_E_USAGE, "--hold %s: at most %d descriptors can be handed over", value,
                       PL_KEEPER_MOST_HOLDS);
    memcpy(o->holds[o->hold_count].name, value, length);
    o->holds[o->hold_count++].fd = (int)fd;
    return true;
}

static bool read_option(struct pl_keeper_options *o, const char *name, const char *value,
                        struct pl_err *err) {
    if (strcmp(name, "--run") == 0) {
        o->run_path = value;
        return true;
    }
    if (strcmp(name, "--hold") == 0) return read_hold(o, value, err);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        uint64_t got;
        if (strcmp(name, settings[i].name) != 0) continue;
        if (!number(value, &got) || got < settings[i].least || got > settings[i].most)
            return PL_FAIL(err, PL_E_USAGE, "%s %s: it takes a number from %llu to %llu", name, value,
                           (unsigned long long)settings[i].least, (unsigned long long)settings[i].most);
        *field(&o->set, i) = got;
        return true;
    }
    return PL_FAIL(err, PL_E_USAGE, "%s: no such option", name);
}

bool pl_keeper_read_options(int argc, char **argv, struct pl_keeper_options *out, struct pl_err *err) {
    static const char usage[] =
        "usage: keeper --run DIR [--hold NAME=FD]... [--hang-ms N]... [--verbose 1] -- MAIN [ARGUMENT...]";
    int i = 1;
    memset(out, 0, sizeof *out);
    for (size_t n = 0; n < SETTING_COUNT; n++) *field(&out->set, n) = settings[n].value;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (i + 1 == argc) return PL_FAIL(err, PL_E_USAGE, "%s: its value is missing; %s", argv[i], usage);
        if (!read_option(out, argv[i], argv[i + 1], err)) return false;
    }
    if (out->run_path == NULL || out->run_path[0] == 0 || i + 1 >= argc)
        return PL_FAIL(err, PL_E_USAGE, "%s", usage);
    out->main_argv = argv + i + 1;
    return true;
}
