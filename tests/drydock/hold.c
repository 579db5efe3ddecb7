/* hold.c - takes memory on a card through the CUDA runtime, found by dlopen as programs find it, and holds
 * it.
 *
 *     hold MIB [DEVICE] [TIMES]     takes MIB, TIMES times (1); prints "up ..." and waits until stdin closes
 *
 * Status 1 when the card refuses. Own declarations; no torch, no vendor header. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *must(void *library, const char *name) {
    void *p = library != NULL ? dlsym(library, name) : NULL;
    if (p != NULL) return p;
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(2);
}

int main(int argc, char **argv) {
    const char *name = getenv("HOLD_RUNTIME");
    void *library = dlopen(name != NULL ? name : "libcudart.so.13", RTLD_NOW), *memory = NULL;
    int (*take)(void **, size_t), (*give)(void *), (*info)(size_t *, size_t *), (*device)(int), (*sync)(void);
    int (*set)(void *, int, size_t), (*copy)(void *, const void *, size_t, int);
    const char *(*text)(int);
    char back[6] = "", c;
    size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 64, free_bytes = 0, total = 0;
    int times = argc > 3 ? atoi(argv[3]) : 1;
    *(void **)&take = must(library, "cudaMalloc");
    *(void **)&give = must(library, "cudaFree");
    *(void **)&info = must(library, "cudaMemGetInfo");
    *(void **)&device = must(library, "cudaSetDevice");
    *(void **)&sync = must(library, "cudaDeviceSynchronize");
    *(void **)&set = must(library, "cudaMemset");
    *(void **)&copy = must(library, "cudaMemcpy");
    *(void **)&text = must(library, "cudaGetErrorString");
    int error = device(argc > 2 ? atoi(argv[2]) : 0);
    for (int i = 0; i < times && error == 0; i++) error = take(&memory, mib << 20);
    info(&free_bytes, &total);
    if (error != 0) {
        printf("refused %zu MiB: %s; %zu of %zu MiB free\n", mib, text(error), free_bytes >> 20, total >> 20);
        return 1;
    }
    set(memory, 'x', 5);
    copy(back, memory, 5, 2);
    printf("up %zu MiB, %zu of %zu MiB free, read back %s\n", mib, free_bytes >> 20, total >> 20, back);
    fflush(stdout);
    while (read(0, &c, 1) > 0) continue;
    error = sync();
    if (error == 0) error = give(memory);
    if (error != 0) printf("%s\n", text(error));
    return error != 0 || strcmp(back, "xxxxx") != 0;
}
