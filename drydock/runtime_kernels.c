/* runtime_kernels.c - libcudart: kernels are registered, described, counted, never run; entries are looked up
 * by name. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static __thread struct {
    struct rt_dim3 grid, block;
    size_t shared;
    void *stream;
} launch;

DD_API void **__cudaRegisterFatBinary(void *image) {
    dd_ask_python(true); /* PyTorch is being imported just now */
    return calloc(1, 8);
}

DD_API char __cudaInitModule(void **handle) { return 1; }

DD_API unsigned __cudaPushCallConfiguration(struct rt_dim3 grid, struct rt_dim3 block, size_t shared,
                                            void *stream) {
    launch.grid = grid;
    launch.block = block;
    launch.shared = shared;
    launch.stream = stream;
    return 0;
}

DD_API int __cudaPopCallConfiguration(struct rt_dim3 *grid, struct rt_dim3 *block, size_t *shared,
                                      void *stream) {
    *grid = launch.grid;
    *block = launch.block;
    *shared = launch.shared;
    *(void **)stream = launch.stream;
    return DD_OK;
}

DD_API int __cudaGetKernel(void **kernel, void *function) {
    *kernel = function;
    return DD_OK;
}

static int count_launch(void) {
    dd_ask_python(false);
    dd_count_launch(dd_card(dd_current()));
    return dd_fail(dd_answer(dd_current()));
}

DD_API int __cudaLaunchKernel(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **args,
                              size_t shared, void *stream) {
    return count_launch();
}

DD_API int cudaLaunchKernel(const void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **args,
                            size_t shared, void *stream) {
    return count_launch();
}

DD_API int cudaLaunchKernelExC(const void *config, const void *function, void **args) {
    return count_launch();
}

DD_API int cudaFuncGetAttributes(struct rt_function *a, const void *function) {
    const struct dd_table *t = dd_table();
    memset(a, 0, sizeof *a);
    a->max_threads = 1024;
    a->registers = 32;
    a->ptx_version = a->binary_version = t->major * 10 + t->minor;
    a->max_dynamic_shared = 49152;
    return DD_OK;
}

DD_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                         size_t shared) {
    int n = threads > 0 ? 2048 / threads : 8;
    *blocks = n > 32 ? 32 : n < 1 ? 1 : n;
    return DD_OK;
}

DD_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function,
                                                                  int threads, size_t shared,
                                                                  unsigned flags) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

DD_API int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                            unsigned long long flags, int *status) {
    *function = dd_driver_symbol(name);
    if (status != NULL) *status = *function != NULL ? 0 : 1;
    return DD_OK;
}

DD_API int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

DD_API int cudaLibraryLoadData(void **library, const void *code, void *jit, void **jit_values,
                               unsigned jit_count, void *options, void **values, unsigned count) {
    *library = calloc(1, 8);
    return DD_OK;
}

DD_API int cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
    *kernel = calloc(1, 8);
    return DD_OK;
}
