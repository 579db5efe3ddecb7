/* What `nvidia-smi -L` prints, and CUDA_VISIBLE_DEVICES: names of devices, cut to what fits.
 *
 * Up to the first zero byte it is the variable, behind it the list.
 *
 * USES worker
 */
#include <stdlib.h>
#include <string.h>

#include "worker/devices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char listed[PL_DEVICES_TEXT], out[PL_DEVICES_TEXT];
    const char *zero = memchr(data, 0, size);
    size_t n = zero != NULL ? (size_t)(zero - (const char *)data) : 0;
    char *visible = strndup((const char *)data, n);
    struct pl_service_config s = { .id = "s", .gpus = { .all = true }, .gpus_per_worker = PL_CFG_AUTO };
    struct pl_err err;
    bool told;
    if (visible == NULL) abort();
    const char *list = zero != NULL ? zero + 1 : (const char *)data;
    if (pl_devices_listed(list, size - (size_t)(list - (const char *)data), listed) > PL_DEVICES_MOST)
        abort();
    if (strlen(listed) >= PL_DEVICES_TEXT) abort();
    pl_devices_by_uuid(&s, listed, visible, out);
    for (uint32_t slot = 0; slot < 3; slot++)
        if (pl_devices_of(&s, visible, slot, out, &told, &err) && (!told || strlen(out) >= PL_DEVICES_TEXT))
            abort();
    s.gpus_per_worker = 2;
    if (pl_devices_of(&s, visible, 2, out, &told, &err) && strchr(out, ',') == NULL) abort();
    free(visible);
    return 0;
}
