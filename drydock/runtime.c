/* runtime.c - libcudart: errors, versions, devices. */
#include "runtime.h"

#include <stdio.h>
#include <string.h>

static __thread int last_error;

int dd_fail(int error) {
    if (error != DD_OK && error != DD_NOT_READY) last_error = error;
    return error;
}

/* --- errors */

DD_API int cudaGetLastError(void) {
    int error = last_error;
    last_error = DD_OK;
    return error;
}

DD_API int cudaPeekAtLastError(void) { return last_error; }

struct error_text {
    int error;
    const char *name, *text;
};
static const struct error_text *find_error(int error) {
    static const struct error_text texts[] = {
        { 0, "cudaSuccess", "no error" },
        { 1, "cudaErrorInvalidValue", "invalid argument" },
        { 2, "cudaErrorMemoryAllocation", "out of memory" },
        { 100, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
        { 101, "cudaErrorInvalidDevice", "invalid device ordinal" },
        { 600, "cudaErrorNotReady", "device not ready" },
        { 801, "cudaErrorNotSupported", "operation not supported" },
        { 900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing" },
    };
    static const struct error_text unknown = { 999, "cudaErrorUnknown", "unknown error" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == error) return &texts[i];
    return &unknown;
}

DD_API const char *cudaGetErrorString(int error) { return find_error(error)->text; }

DD_API const char *cudaGetErrorName(int error) { return find_error(error)->name; }

/* --- versions and devices */

DD_API int cudaDriverGetVersion(int *version) {
    *version = dd_settings()->driver;
    return DD_OK;
}

DD_API int cudaRuntimeGetVersion(int *version) {
    *version = dd_settings()->runtime;
    return DD_OK;
}

DD_API int cudaGetDeviceCount(int *count) {
    *count = dd_count();
    return *count > 0 ? DD_OK : dd_fail(DD_NO_DEVICE);
}

DD_API int cudaGetDevice(int *dev) {
    *dev = dd_current();
    return DD_OK;
}

DD_API int cudaSetDevice(int dev) { return dd_set_current(dev) == 0 ? DD_OK : dd_fail(DD_INVALID_DEVICE); }

DD_API int cudaDeviceSynchronize(void) { return dd_fail(dd_answer(dd_current())); }

DD_API int cudaDeviceReset(void) { return DD_OK; }

DD_API int cudaDeviceCanAccessPeer(int *can, int a, int b) {
    *can = a != b;
    return DD_OK;
}

DD_API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return DD_OK;
}

DD_API int cudaDeviceGetAttribute(int *value, int attribute, int dev) {
    *value = dd_attribute(attribute, dev);
    return DD_OK;
}

DD_API int cudaDeviceGetPCIBusId(char *text, int length, int dev) {
    snprintf(text, (size_t)length, "00000000:%02X:00.0", (unsigned)dd_card(dev) + 1);
    return DD_OK;
}

/* Fields that both layouts have, filled by name. */
#define FILL(p, dev)                                                 \
    do {                                                             \
        const struct dd_table *table = dd_table();                   \
        memset((p), 0, sizeof *(p));                                 \
        snprintf((p)->name, sizeof(p)->name, "%s", table->name);     \
        memcpy((p)->uuid, "DRYDOCK-DEVICE-", 15);                    \
        (p)->uuid[15] = (char)dd_card(dev);                          \
        (p)->total_mem = table->card[dd_card(dev)].total;            \
        (p)->shared_per_block = 49152;                               \
        (p)->regs_per_block = 65536;                                 \
        (p)->warp = 32;                                              \
        (p)->pitch = 2147483647;                                     \
        (p)->max_threads = 1024;                                     \
        (p)->block_dim[0] = (p)->block_dim[1] = 1024;                \
        (p)->block_dim[2] = 64;                                      \
        (p)->grid_dim[0] = 2147483647;                               \
        (p)->grid_dim[1] = (p)->grid_dim[2] = 65535;                 \
        (p)->const_mem = 65536;                                      \
        (p)->major = table->major;                                   \
        (p)->minor = table->minor;                                   \
        (p)->texture_align = 512;                                    \
        (p)->sms = table->sms;                                       \
        (p)->can_map_host = (p)->concurrent_kernels = (p)->ecc = 1;  \
        (p)->pci_bus = dd_card(dev) + 1;                             \
        (p)->async_engines = 3;                                      \
        (p)->unified_addressing = 1;                                 \
        (p)->bus_width = 5120;                                       \
        (p)->l2 = 41943040;                                          \
        (p)->threads_per_sm = 2048;                                  \
        (p)->stream_priorities = (p)->global_l1 = (p)->local_l1 = 1; \
        (p)->shared_per_sm = 167936;                                 \
        (p)->regs_per_sm = 65536;                                    \
        (p)->managed = (p)->cooperative = 1;                         \
        (p)->shared_optin = 166912;                                  \
        (p)->blocks_per_sm = 32;                                     \
        (p)->reserved_shared = 1024;                                 \
        (p)->host_register = (p)->memory_pools = 1;                  \
        (p)->cluster_launch = table->major >= 9;                     \
    } while (0)

static bool is_device(int dev) { return dev >= 0 && dev < dd_count(); }

DD_API int cudaGetDeviceProperties(struct rt_prop13 *p, int dev) {
    if (!is_device(dev)) return dd_fail(DD_INVALID_DEVICE);
    FILL(p, dev);
    return DD_OK;
}

/* The name that CUDA 12 programs use: another layout under another name. */
DD_API int cudaGetDeviceProperties_v2(struct rt_prop12 *p, int dev) {
    if (!is_device(dev)) return dd_fail(DD_INVALID_DEVICE);
    FILL(p, dev);
    p->clock_khz = 1410000;
    p->memory_clock_khz = 1215000;
    p->overlap = 1;
    return DD_OK;
}
