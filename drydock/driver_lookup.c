/* driver_lookup.c - libcuda: modules and functions that are never run, and finding an entry by its name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "inside.h"

DD_API int cuModuleLoadData(void **module, const void *image) {
    *module = calloc(1, 8);
    return DD_OK;
}

DD_API int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    return cuModuleLoadData(module, image);
}

DD_API int cuModuleLoad(void **module, const char *file) { return cuModuleLoadData(module, file); }

DD_API int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = calloc(1, 8);
    return DD_OK;
}

/* 0 threads per block, 4 registers, 5 PTX version, 6 binary version */
DD_API int cuFuncGetAttribute(int *value, int attribute, void *function) {
    const struct dd_table *t = dd_table();
    *value = attribute == 0                     ? 1024
             : attribute == 4                   ? 32
             : attribute == 5 || attribute == 6 ? t->major * 10 + t->minor
                                                : 0;
    return DD_OK;
}

DD_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                       size_t shared) {
    *blocks = 8;
    return DD_OK;
}

DD_API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
    dd_count_launch(dd_card(dd_current()));
    return dd_answer(dd_current());
}

DD_API int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
    dd_count_launch(dd_card(dd_current()));
    return dd_answer(dd_current());
}

/* The vendor's libcudart asks for private tables here and cannot start without them: a real libcudart over
 * this driver does not work, and so libcudart is a stand-in too. */
DD_API int cuGetExportTable(const void **table, const void *id) {
    *table = NULL;
    return DD_NOT_FOUND;
}

void *dd_driver_symbol(const char *name) {
    static void *self;
    char versioned[128];
    if (self == NULL) self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *where = self != NULL ? self : RTLD_DEFAULT;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    void *p = dlsym(where, versioned);
    if (p == NULL) p = dlsym(where, name);
    if (dd_settings()->trace)
        fprintf(stderr, "plimsoll drydock: entry %s %s\n", name, p != NULL ? "found" : "missing");
    return p;
}

DD_API int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    *function = dd_driver_symbol(name);
    if (status != NULL) *status = *function != NULL ? 0 : 1;
    return *function != NULL ? DD_OK : DD_NOT_FOUND;
}

DD_API int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
