#include "sample/zygote.h"

#include <string.h>

#include "base/wire.h"

/* As python/plimsoll/zygote.py packs it: "<IIIIQ240s120s". */
struct layout {
    uint32_t magic, state, standby, modules;
    uint64_t took_ms;
    char reason[240], module[120];
};

static void copy_text(char *out, const char *from, size_t room) {
    size_t n = 0;
    for (; n + 1 < room && from[n] != '\0'; n++)
        out[n] = (unsigned char)from[n] >= ' ' && from[n] != 0x7f ? from[n] : '?';
    out[n] = '\0';
}

bool pl_zygote_read(const void *page, size_t bytes, struct pl_zygote_page *out) {
    struct layout l;
    *out = (struct pl_zygote_page){ .state = PL_ZYGOTE_NOTHING };
    if (page == NULL || bytes < sizeof l) return false;
    memcpy(&l, page, sizeof l);
    if (l.magic != PL_ZYGOTE_MAGIC || l.state < PL_ZYGOTE_LOADING || l.state > PL_ZYGOTE_REFUSED)
        return false;
    out->state = (enum pl_zygote_state)l.state;
    out->standby = l.standby;
    out->modules = l.modules;
    out->took_ms = l.took_ms;
    copy_text(out->reason, l.reason, sizeof out->reason);
    copy_text(out->module, l.module, sizeof out->module);
    return true;
}
