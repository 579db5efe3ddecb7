#include "base/reasons.h"

enum { LOAD = 1, FAULT = 0 };
static const struct pl_reason_info infos[PL_REASON_COUNT] = {
    [PL_REASON_NONE] = { "none", "", "", 200, false },
#define REASON(sym, name, status, code, dropped, owner) \
    [PL_REASON_##sym] = { name, code, dropped, status, owner },
#include "base/reasons.def"
#undef REASON
};

const struct pl_reason_info *pl_reason_info(enum pl_reason r) { return &infos[r < PL_REASON_COUNT ? r : 0]; }
