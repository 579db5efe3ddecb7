/* odd_nvml.c - a libnvidia-ml.so.1 that behaves as drivers do which the dry dock's does not stand for. ODD
 * says how:
 *
 *     mig           one card split in two; processes have instances; no utilisation
 *     old           only the names of long ago, with the short rows
 *     fails         is there, and nvmlInit says that the kernel module is another version (18)
 *     half          has nothing but nvmlInit
 *     many          600 processes on the card
 *     garbage       more used than there is, a name without an end, a count of processes over the room
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define GIB (1ull << 30)
struct memory {
    unsigned long long total, free, used;
};
struct row {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct short_row {
    unsigned pid;
    unsigned long long used;
};

static int is(const char *how) {
    const char *odd = getenv("ODD");
    return odd != NULL && strcmp(odd, how) == 0;
}

API int nvmlInit(void);
API int nvmlInit(void) { return is("fails") ? 18 : 0; }

#ifndef ODD_HALF
API const char *nvmlErrorString(int e);
API const char *nvmlErrorString(int e) {
    return e == 18 ? "Driver/library version mismatch" : "Unknown Error";
}
API int nvmlDeviceGetCount(unsigned *n);
API int nvmlDeviceGetCount(unsigned *n) { return *n = 1, 0; }
API int nvmlDeviceGetHandleByIndex(unsigned i, void **h);
API int nvmlDeviceGetHandleByIndex(unsigned i, void **h) { return *h = (void *)(uintptr_t)(0x100 + i), 0; }
API int nvmlDeviceGetName(void *h, char *text, unsigned room);
API int nvmlDeviceGetName(void *h, char *text, unsigned room) {
    (void)h;
    memset(text, 'x', room);
    if (!is("garbage")) strcpy(text, "Odd card");
    return 0;
}
API int nvmlDeviceGetUUID(void *h, char *text, unsigned room);
API int nvmlDeviceGetUUID(void *h, char *text, unsigned room) {
    (void)room;
    uintptr_t n = (uintptr_t)h;
    strcpy(text, n >= 0x200 ? "MIG-odd-0" : "GPU-odd");
    if (n >= 0x200) text[8] = (char)('0' + (n - 0x200));
    return 0;
}
API int nvmlDeviceGetMemoryInfo(void *h, struct memory *m);
API int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) {
    uintptr_t n = (uintptr_t)h;
    *m = (struct memory){ 40 * GIB, 30 * GIB, 10 * GIB };
    if (n >= 0x200) *m = (struct memory){ 20 * GIB, 15 * GIB, 5 * GIB };
    if (is("garbage")) *m = (struct memory){ GIB, 0, 1ull << 60 };
    return 0;
}
API int nvmlDeviceGetComputeRunningProcesses(void *h, unsigned *count, struct short_row *rows);
API int nvmlDeviceGetComputeRunningProcesses(void *h, unsigned *count, struct short_row *rows) {
    (void)h;
    if (is("garbage")) return *count = 4000000000u, 0;
    if (*count < 1) return 7;
    rows[0] = (struct short_row){ 77, GIB };
    *count = 1;
    return 0;
}
API int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending);
API int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
    (void)h;
    *current = *pending = (unsigned)is("mig");
    return 0;
}
API int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n);
API int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) {
    (void)h;
    return *n = 7, 0;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **out);
API int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **out) {
    (void)h;
    *out = (void *)(uintptr_t)(0x200 + i);
    return i == 0 || i == 3 ? 0 : 6;
}
#ifndef ODD_OLD
API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct row *rows);
API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, struct row *rows) {
    unsigned n = is("many") ? 600 : 1;
    if (is("garbage")) return nvmlDeviceGetComputeRunningProcesses(h, count, NULL);
    if (*count < n) return *count = n, 7;
    for (unsigned i = 0; i < n; i++) rows[i] = (struct row){ 77 + i, GIB, 1, 0 };
    *count = n;
    return 0;
}
#endif
#endif
