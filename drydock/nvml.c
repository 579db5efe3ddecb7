/* nvml.c - the stand-in libnvidia-ml.so.1: what a watcher reads. It carries its own copy of the table's code
 * and needs no other library. Struct sizes and codes as in NVML: asserted below. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "inside.h"

enum {
    NV_OK = 0,
    NV_INVALID_ARGUMENT = 2,
    NV_NOT_SUPPORTED = 3,
    NV_NOT_FOUND = 6,
    NV_INSUFFICIENT_SIZE = 7,
    NV_TIMEOUT = 10,
    NV_GPU_IS_LOST = 15,
};
enum { FIRST_HANDLE = 0x7001, PROCESSES_MOST = DD_ROWS, EVENT_POLL_NS = 20000000, XID_EVENT = 8 };

/* The card behind a handle. Waits while it is silent; -1 when it is lost. */
static int card_of(const void *handle) {
    int card = (int)((uintptr_t)handle - FIRST_HANDLE);
    if (card < 0 || card >= DD_CARDS) card = 0;
    return dd_gate(card) == 0 ? card : -1;
}

/* --- the library and the driver */

DD_API int nvmlInit_v2(void) {
    dd_table();
    return NV_OK;
}

DD_API int nvmlInit(void) { return nvmlInit_v2(); }

DD_API int nvmlInitWithFlags(unsigned flags) { return nvmlInit_v2(); }

DD_API int nvmlShutdown(void) { return NV_OK; }

DD_API const char *nvmlErrorString(int error) {
    switch (error) {
    case NV_OK:
        return "Success";
    case NV_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NV_NOT_SUPPORTED:
        return "Not Supported";
    case NV_NOT_FOUND:
        return "Not Found";
    case NV_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NV_TIMEOUT:
        return "Timeout";
    case NV_GPU_IS_LOST:
        return "GPU is lost";
    default:
        return "Unknown Error";
    }
}

DD_API int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.0.0-drydock");
    return NV_OK;
}

DD_API int nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    snprintf(text, length, "13.580.0-drydock");
    return NV_OK;
}

DD_API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    const char *text = getenv("PLIMSOLL_DRYDOCK_DRIVER");
    *version = text != NULL && atoi(text) > 0 ? atoi(text) : 13020;
    return NV_OK;
}

DD_API int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

/* --- finding cards. NVML counts and numbers physical cards: CUDA_VISIBLE_DEVICES has no effect here. */

DD_API int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)dd_table()->cards;
    return NV_OK;
}

DD_API int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

DD_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= (unsigned)dd_table()->cards) return NV_INVALID_ARGUMENT;
    if (dd_gate((int)index) != 0) return NV_GPU_IS_LOST;
    *handle = (void *)(uintptr_t)(FIRST_HANDLE + index);
    return NV_OK;
}

DD_API int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

DD_API int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
    unsigned domain, bus;
    if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || bus == 0) return NV_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, handle);
}

static void print_uuid(unsigned card, char *text, size_t length) {
    snprintf(text, length, "GPU-44525944-4f43-4b2d-4445-564943452d%02x", card);
}

DD_API int nvmlDeviceGetHandleByUUID(const char *text, void **handle) {
    char uuid[64];
    for (unsigned i = 0; i < (unsigned)dd_table()->cards; i++) {
        print_uuid(i, uuid, sizeof uuid);
        if (strcasecmp(uuid, text) == 0) return nvmlDeviceGetHandleByIndex_v2(i, handle);
    }
    return NV_NOT_FOUND;
}

DD_API int nvmlDeviceGetIndex(void *handle, unsigned *index) {
    *index = (unsigned)((uintptr_t)handle - FIRST_HANDLE);
    return NV_OK;
}

DD_API int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor) {
    return nvmlDeviceGetIndex(handle, minor);
}

/* --- what a card is */

DD_API int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    snprintf(text, length, "%s", dd_table()->name);
    return NV_OK;
}

/* The same 16 bytes that the runtime's device properties give. */
DD_API int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    unsigned index;
    nvmlDeviceGetIndex(handle, &index);
    print_uuid(index, text, length);
    return NV_OK;
}

DD_API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    *major = dd_table()->major;
    *minor = dd_table()->minor;
    return NV_OK;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char text[32];
};
_Static_assert(sizeof(struct pci) == 68, "nvmlPciInfo_t");

DD_API int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *p) {
    unsigned index;
    nvmlDeviceGetIndex(handle, &index);
    memset(p, 0, sizeof *p);
    p->bus = index + 1;
    snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus & 0xff);
    snprintf(p->text, sizeof p->text, "00000000:%02X:00.0", p->bus & 0xff);
    return NV_OK;
}

DD_API int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    return NV_NOT_SUPPORTED;
}

/* --- memory and processes */

struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
_Static_assert(sizeof(struct memory_v1) == 24, "nvmlMemory_t");
_Static_assert(sizeof(struct memory_v2) == 40, "nvmlMemory_v2_t");

DD_API int nvmlDeviceGetMemoryInfo(void *handle, struct memory_v1 *m) {
    int card = card_of(handle);
    if (card == -1) return NV_GPU_IS_LOST;
    m->total = dd_table()->card[card].total;
    m->used = dd_used(card);
    m->free = m->total - m->used;
    return NV_OK;
}

DD_API int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *m) {
    struct memory_v1 plain;
    int error = nvmlDeviceGetMemoryInfo(handle, &plain);
    if (error != NV_OK) return error;
    m->total = plain.total;
    m->reserved = 0;
    m->free = plain.free;
    m->used = plain.used;
    return NV_OK;
}

struct process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct process_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(struct process_v2) == 24, "nvmlProcessInfo_v2_t");

static int list_processes(void *handle, unsigned *count, void *out, int version) {
    int32_t pid[PROCESSES_MOST];
    uint64_t used[PROCESSES_MOST];
    int card = card_of(handle);
    if (card == -1) return NV_GPU_IS_LOST;
    int n = dd_processes(card, pid, used, PROCESSES_MOST);
    bool hidden = (dd_table()->card[card].faults & DD_HIDDEN) != 0;
    unsigned room = *count;
    *count = (unsigned)n;
    if ((unsigned)n > room || (out == NULL && n > 0)) return NV_INSUFFICIENT_SIZE;
    for (int i = 0; i < n; i++) {
        unsigned long long bytes = hidden ? ~0ull : used[i]; /* as some drivers and containers answer */
        if (version == 1)
            ((struct process_v1 *)out)[i] = (struct process_v1){ (unsigned)pid[i], bytes };
        else
            ((struct process_v2 *)out)[i] = (struct process_v2){ (unsigned)pid[i], bytes, ~0u, ~0u };
    }
    return NV_OK;
}

/* PyTorch calls the name without a version: 16-byte rows. _v2 and _v3 share the 24-byte row. */
DD_API int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *out) {
    return list_processes(handle, count, out, 1);
}

DD_API int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, void *out) {
    return list_processes(handle, count, out, 2);
}

DD_API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *out) {
    return list_processes(handle, count, out, 2);
}

DD_API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *out) {
    *count = 0;
    return NV_OK;
}

/* --- signs of life, not measurements */

struct utilization {
    unsigned gpu, memory;
};

/* 50 % when kernels were launched since the last question, else 0. */
DD_API int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *u) {
    static uint64_t seen[DD_CARDS];
    int card = card_of(handle);
    if (card == -1) return NV_GPU_IS_LOST;
    uint64_t now = __atomic_load_n(&dd_table()->card[card].launches, __ATOMIC_RELAXED);
    u->gpu = now != seen[card] ? 50 : 0;
    u->memory = 0;
    seen[card] = now;
    return NV_OK;
}

static int figure(void *handle, unsigned *out, unsigned value) {
    if (card_of(handle) == -1) return NV_GPU_IS_LOST;
    *out = value;
    return NV_OK;
}

DD_API int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    return figure(handle, celsius, 40);
}

DD_API int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    return figure(handle, milliwatts, 60000);
}

DD_API int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    return figure(handle, milliwatts, 400000);
}

DD_API int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    unsigned none;
    *reasons = 0;
    return figure(handle, &none, 0);
}

DD_API int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(handle, reasons);
}

/* --- events: a Xid is told once to each set that asked for it */

struct event_set {
    unsigned seen[DD_CARDS];
    unsigned long long wanted[DD_CARDS];
};
struct event_data {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct event_data) == 32, "nvmlEventData_t");

DD_API int nvmlEventSetCreate(void **set) {
    *set = calloc(1, sizeof(struct event_set));
    return NV_OK;
}

DD_API int nvmlEventSetFree(void *set) {
    free(set);
    return NV_OK;
}

DD_API int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types) {
    *types = XID_EVENT;
    return NV_OK;
}

DD_API int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    unsigned index;
    nvmlDeviceGetIndex(handle, &index);
    if (index >= DD_CARDS) return NV_INVALID_ARGUMENT;
    ((struct event_set *)set)->wanted[index] |= types;
    return NV_OK;
}

DD_API int nvmlEventSetWait_v2(void *which, struct event_data *out, unsigned timeout_ms) {
    static const struct timespec pause = { 0, EVENT_POLL_NS };
    struct event_set *set = which;
    for (unsigned long long waited_ns = 0;; waited_ns += EVENT_POLL_NS) {
        for (int i = 0; i < dd_table()->cards; i++) {
            const struct dd_card *c = &dd_table()->card[i];
            unsigned count = __atomic_load_n(&c->xids, __ATOMIC_ACQUIRE);
            if ((set->wanted[i] & XID_EVENT) == 0 || set->seen[i] == count) continue;
            set->seen[i] = count;
            *out = (struct event_data){ (void *)(uintptr_t)(FIRST_HANDLE + i), XID_EVENT, c->xid, ~0u, ~0u };
            return NV_OK;
        }
        if (waited_ns >= timeout_ms * 1000000ull) return NV_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

DD_API int nvmlEventSetWait(void *set, struct event_data *out, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}

/* --- links between cards: there are none. PyTorch requires that the second name exists. */

DD_API int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *status) {
    *status = 0;
    return NV_OK;
}

DD_API int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type) {
    return NV_NOT_SUPPORTED;
}

DD_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, struct pci *p) {
    return NV_NOT_SUPPORTED;
}

DD_API int nvmlDeviceGetGpuFabricInfoV(void *handle, void *info) { return NV_NOT_SUPPORTED; }
