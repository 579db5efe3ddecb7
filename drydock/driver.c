/* driver.c - libcuda: devices, contexts, plain memory, pointers. */
#include <stdio.h>
#include <string.h>

#include "inside.h"

#define CONTEXT(dev) ((void *)(uintptr_t)(0x1000 + (dev)))

static bool is_device(int dev) { return dev >= 0 && dev < dd_count(); }

/* --- devices */

DD_API int cuInit(unsigned flags) {
    dd_table();
    return DD_OK;
}

DD_API int cuDriverGetVersion(int *version) {
    *version = dd_settings()->driver;
    return DD_OK;
}

DD_API int cuDeviceGetCount(int *count) {
    *count = dd_count();
    return DD_OK;
}

DD_API int cuDeviceGet(int *dev, int ordinal) {
    if (!is_device(ordinal)) return DD_INVALID_DEVICE;
    *dev = ordinal;
    return DD_OK;
}

DD_API int cuDeviceGetName(char *name, int length, int dev) {
    snprintf(name, (size_t)length, "%s", dd_table()->name);
    return DD_OK;
}

DD_API int cuDeviceTotalMem_v2(size_t *bytes, int dev) {
    *bytes = dd_table()->card[dd_card(dev)].total;
    return DD_OK;
}

DD_API int cuDeviceGetAttribute(int *value, int attribute, int dev) {
    *value = dd_attribute(attribute, dev);
    return DD_OK;
}

/* The 16 bytes that the runtime and NVML give as UUID. */
DD_API int cuDeviceGetUuid_v2(char uuid[16], int dev) {
    memcpy(uuid, "DRYDOCK-DEVICE-", 15);
    uuid[15] = (char)dd_card(dev);
    return DD_OK;
}

DD_API int cuDeviceGetUuid(char uuid[16], int dev) { return cuDeviceGetUuid_v2(uuid, dev); }

/* --- contexts: one for each device, there when it is asked for */

DD_API int cuDevicePrimaryCtxRetain(void **context, int dev) {
    *context = CONTEXT(dev);
    return DD_OK;
}

DD_API int cuDevicePrimaryCtxGetState(int dev, unsigned *flags, int *active) {
    if (flags != NULL) *flags = 0;
    if (active != NULL) *active = dd_has_context(dev);
    return DD_OK;
}

DD_API int cuCtxGetCurrent(void **context) {
    *context = CONTEXT(dd_current());
    return DD_OK;
}

DD_API int cuCtxSetCurrent(void *context) {
    if (context != NULL) dd_set_current((int)((uintptr_t)context - 0x1000));
    return DD_OK;
}

DD_API int cuCtxGetDevice(int *dev) {
    *dev = dd_current();
    return DD_OK;
}

DD_API int cuCtxPushCurrent_v2(void *context) { return cuCtxSetCurrent(context); }

DD_API int cuCtxPopCurrent_v2(void **context) { return context != NULL ? cuCtxGetCurrent(context) : DD_OK; }

DD_API int cuCtxSynchronize(void) { return dd_answer(dd_current()); }

/* --- memory */

DD_API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return dd_info(free_bytes, total); }

DD_API int cuMemAlloc_v2(uint64_t *p, size_t bytes) {
    int error;
    void *q = dd_alloc(bytes, DD_DEVICE, &error);
    if (q != NULL) *p = (uint64_t)(uintptr_t)q;
    return error;
}

DD_API int cuMemFree_v2(uint64_t p) { return dd_free((void *)(uintptr_t)p) == 0 ? DD_OK : DD_INVALID_VALUE; }

DD_API int cuMemAllocHost_v2(void **p, size_t bytes) {
    int error;
    *p = dd_alloc(bytes, DD_PINNED, &error);
    return error;
}

DD_API int cuMemFreeHost(void *p) { return dd_free(p) == 0 ? DD_OK : DD_INVALID_VALUE; }

DD_API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    dd_copy((void *)(uintptr_t)to, from, bytes);
    return dd_answer(dd_current());
}

DD_API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    dd_copy(to, (const void *)(uintptr_t)from, bytes);
    return dd_answer(dd_current());
}

DD_API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) {
    dd_copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return dd_answer(dd_current());
}

DD_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    return cuMemcpyHtoD_v2(to, from, bytes);
}

DD_API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    return cuMemcpyDtoH_v2(to, from, bytes);
}

DD_API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) {
    dd_set((void *)(uintptr_t)to, value, bytes);
    return DD_OK;
}

DD_API int cuMemsetD32Async(uint64_t to, unsigned value, size_t words, void *stream) {
    unsigned *p = (unsigned *)(uintptr_t)to;
    for (size_t i = 0; i < words && i * 4 < dd_settings()->copy_max; i++) p[i] = value;
    return DD_OK;
}

/* --- pointers */

DD_API int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t p) {
    void *start;
    if (dd_range((void *)(uintptr_t)p, &start, bytes, NULL) == DD_NONE) return DD_INVALID_VALUE;
    *base = (uint64_t)(uintptr_t)start;
    return DD_OK;
}

/* Numbers of CUpointer_attribute. */
DD_API int cuPointerGetAttribute(void *out, int attribute, uint64_t p) {
    void *base;
    size_t bytes;
    int dev;
    enum dd_kind kind = dd_range((void *)(uintptr_t)p, &base, &bytes, &dev);
    if (kind == DD_NONE) return DD_INVALID_VALUE;
    switch (attribute) {
    case 1:
        *(void **)out = CONTEXT(dev);
        break;
    case 2:
        *(int *)out = kind == DD_PINNED ? 1 : 2;
        break; /* memory type: host, device */
    case 3:    /* device pointer */
    case 4:
        *(uint64_t *)out = p;
        break; /* host pointer */
    case 7:    /* buffer id */
    case 11:
        *(uint64_t *)out = (uint64_t)(uintptr_t)base;
        break;
    case 9:
        *(int *)out = dev;
        break;
    case 12:
        *(size_t *)out = bytes;
        break;
    default:
        *(int *)out = 0;
        break;
    }
    return DD_OK;
}

/* Sharing memory with another process is refused as drivers in containers without IPC refuse it. */
DD_API int cuIpcGetMemHandle(void *handle, uint64_t p) { return DD_NOT_SUPPORTED; }

DD_API int cuIpcGetEventHandle(void *handle, void *event) { return DD_NOT_SUPPORTED; }

/* --- errors */

DD_API int cuGetErrorString(int error, const char **text) {
    *text = error == DD_OUT_OF_MEMORY ? "out of memory" : error == DD_OK ? "no error" : "invalid argument";
    return DD_OK;
}

DD_API int cuGetErrorName(int error, const char **text) {
    *text = error == DD_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == DD_OK          ? "CUDA_SUCCESS"
                                      : "CUDA_ERROR_INVALID_VALUE";
    return DD_OK;
}
