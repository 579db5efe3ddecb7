#include "worker/host_room.h"

enum { SPARE_PARTS = 10 };
static const uint64_t step = UINT64_C(64) << 20;

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

enum pl_start_verdict pl_start_judge(const struct pl_start_room *r) {
    if (r->limit == 0 || r->peak == 0) return PL_START_NOW;
    if (r->peak > r->limit) return PL_START_NEVER;
    bool fits = sum(sum(r->used, r->coming), r->peak) <= r->limit;
    return fits || r->running == 0 ? PL_START_NOW : PL_START_LATER;
}

uint64_t pl_start_limit(uint64_t base, uint64_t settled, uint64_t peak) {
    uint64_t all = sum(sum(base, settled), peak);
    if (peak == 0) return 0;
    all = sum(all, all / SPARE_PARTS);
    return all > UINT64_MAX - step ? UINT64_MAX : (all + step - 1) / step * step;
}
