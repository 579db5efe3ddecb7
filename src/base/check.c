#include "base/check.h"

static uint64_t failed;

_Noreturn void pl_assert_failed(const char *what, const char *file, int line) {
    fprintf(stderr, "plimsoll: internal error: %s at %s:%d\n", what, file, line);
    abort();
}

bool pl_check_failed(const char *what, const char *file, int line) {
    failed++;
    fprintf(stderr, "plimsoll: internal check: %s at %s:%d\n", what, file, line);
    return false;
}

uint64_t pl_checks_failed(void) { return failed; }
