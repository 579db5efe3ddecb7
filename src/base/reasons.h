/* base/reasons.h - the closed list of reasons for not serving a request (base/reasons.def). */
#ifndef PL_BASE_REASONS_H
#define PL_BASE_REASONS_H
#include <stdbool.h>
#include <stdint.h>

enum pl_reason {
    PL_REASON_NONE,
#define REASON(sym, name, status, code, dropped, owner) PL_REASON_##sym,
#include "base/reasons.def"
#undef REASON
    PL_REASON_COUNT
};

struct pl_reason_info {
    const char *name;
    const char *code;
    const char *dropped; /* x-llm-d-request-dropped-reason, "" if none */
    uint16_t status;
    bool load; /* refused (our load) or rejected (the request's own fault) */
};
const struct pl_reason_info *pl_reason_info(enum pl_reason r);
#endif
