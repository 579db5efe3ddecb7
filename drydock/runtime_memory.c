/* runtime_memory.c - libcudart: memory, copies, pointers; sharing between processes, which is refused. */
#include <string.h>

#include "runtime.h"

DD_API int cudaMemGetInfo(size_t *free_bytes, size_t *total) { return dd_fail(dd_info(free_bytes, total)); }

DD_API int cudaMalloc(void **p, size_t bytes) {
    int error;
    *p = dd_alloc(bytes, DD_DEVICE, &error);
    return bytes == 0 ? DD_OK : dd_fail(error);
}

DD_API int cudaMallocManaged(void **p, size_t bytes, unsigned flags) { return cudaMalloc(p, bytes); }

DD_API int cudaFree(void *p) {
    if (p == NULL) return dd_fail(dd_context()); /* the usual way to make the context */
    return dd_free(p) == 0 ? DD_OK : dd_fail(DD_INVALID_VALUE);
}

DD_API int cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    int error;
    *p = dd_alloc(bytes != 0 ? bytes : 1, DD_PINNED, &error);
    return dd_fail(error);
}

DD_API int cudaMallocHost(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }

DD_API int cudaFreeHost(void *p) { return dd_free(p) == 0 ? DD_OK : dd_fail(DD_INVALID_VALUE); }

DD_API int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    *device = host;
    return DD_OK;
}

DD_API int cudaPointerGetAttributes(struct rt_pointer *a, const void *p) {
    void *base = NULL;
    int dev = 0;
    enum dd_kind kind = dd_range(p, &base, NULL, &dev);
    void *same = base != NULL ? (char *)base + ((uintptr_t)p - (uintptr_t)base) : NULL;
    *a = (struct rt_pointer){
        .type = kind == DD_NONE     ? 0
                : kind == DD_PINNED ? 1
                                    : 2,
        .dev = kind == DD_NONE ? -2 : dev,
        .device_pointer = same,
        .host_pointer = kind == DD_PINNED ? same : NULL,
    };
    return DD_OK;
}

DD_API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    dd_copy(to, from, bytes);
    dd_ask_python(false);
    return dd_fail(dd_answer(dd_current()));
}

DD_API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return cudaMemcpy(to, from, bytes, kind);
}

DD_API int cudaMemcpyPeerAsync(void *to, int to_dev, const void *from, int from_dev, size_t bytes,
                               void *stream) {
    return cudaMemcpy(to, from, bytes, 0);
}

DD_API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t height, int kind, void *stream) {
    for (size_t i = 0; i < height; i++)
        dd_copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return DD_OK;
}

DD_API int cudaMemset(void *to, int value, size_t bytes) {
    dd_set(to, value, bytes);
    return DD_OK;
}

DD_API int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
    return cudaMemset(to, value, bytes);
}

/* --- between processes: refused as drivers refuse it where IPC is not to be had */

DD_API int cudaIpcGetMemHandle(struct rt_ipc_handle *handle, void *p) { return dd_fail(DD_NOT_SUPPORTED); }

DD_API int cudaIpcOpenMemHandle(void **p, struct rt_ipc_handle handle, unsigned flags) {
    return dd_fail(DD_NOT_SUPPORTED);
}

DD_API int cudaIpcGetEventHandle(struct rt_ipc_handle *handle, void *event) {
    return dd_fail(DD_NOT_SUPPORTED);
}

DD_API int cudaIpcOpenEventHandle(void **event, struct rt_ipc_handle handle) {
    return dd_fail(DD_NOT_SUPPORTED);
}

/* --- device globals: one block stands for all of them */

DD_API int cudaGetSymbolAddress(void **p, const void *symbol) {
    static void *block;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int error = DD_OK;
    pthread_mutex_lock(&mutex);
    if (block == NULL) block = dd_alloc(DD_GRANULE, DD_DEVICE, &error);
    *p = block;
    pthread_mutex_unlock(&mutex);
    return dd_fail(error);
}

DD_API int cudaGetSymbolSize(size_t *bytes, const void *symbol) {
    *bytes = 65536;
    return DD_OK;
}
