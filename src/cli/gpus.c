#include "cli/gpus.h"

#include <stdlib.h>

#include "cli/child.h"
#include "worker/devices.h"

enum { TEXT_BYTES = 65536, LIMIT_MS = 10000 };

/* What `nvidia-smi -L` prints; nothing when it is not there, fails or takes too long. */
static void list_devices(char listed[PL_DEVICES_TEXT]) {
    static const char *const words[] = { "nvidia-smi", "-L", NULL };
    const struct pl_child ask = { .argv = words, .limit_ms = LIMIT_MS };
    struct pl_buf text;
    pl_buf_init(&text, TEXT_BYTES);
    bool answered = pl_child_ask(&ask, &text) == 0;
    pl_devices_listed(pl_buf_text(&text), answered ? text.len : 0, listed);
    pl_buf_free(&text);
}

bool pl_seen_gpus(struct pl_config *c, size_t service, struct pl_err *err) {
    static char listed[PL_DEVICES_TEXT], list[PL_DEVICES_TEXT];
    static bool asked;
    const struct pl_service_config *s = &c->services[service];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *place;
    bool told;
    if (s->gpus.all && s->gpus_per_worker <= 0) return true;
    if (!asked) list_devices(listed); /* only where somebody has chosen among them */
    asked = true;
    if (pl_devices_by_uuid(s, listed, visible, list)) {
        enum pl_origin origin = pl_config_origin(c, service, "gpus", &place);
        if (!pl_config_set(c, service, "gpus", list, origin == PL_FROM_DEFAULT ? PL_FROM_PRESET : origin,
                           place, err))
            return false;
    }
    pl_config_origin(c, service, "gpus", &place);
    return pl_devices_of(s, visible, 1, list, &told, err) ||
           (place[0] != '\0' ? pl_err_wrap(err, "%s", place) : false);
}
