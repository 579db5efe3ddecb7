#include "watch/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of nvml.h. */
enum {
    NVML_OK = 0,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_GPU_IS_LOST = 15,
    NVML_XID_EVENT = 8,
    NVML_SENSOR_GPU = 0,
    NVML_MIG_ON = 1,
    NVML_MEMORY_V2 = 40 | 2 << 24,
};
enum { AGAIN_MS = 10000, MOST_PROCESSES = 512, MOST_EVENTS = 64 };
static const unsigned long long not_available = ~0ull; /* NVML_VALUE_NOT_AVAILABLE */

struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct process_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct utilization {
    unsigned gpu, memory;
};
struct event_data {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct memory_v1) == 24 && sizeof(struct memory_v2) == 40, "nvmlMemory");
_Static_assert(sizeof(struct process_v1) == 16 && sizeof(struct process_v2) == 24, "nvmlProcessInfo");
_Static_assert(sizeof(struct event_data) == 32, "nvmlEventData_t");

/* X(field, result (arguments), "names, newest first"). */
#define NVML_FUNCTIONS(X)                                                                                \
    X(init, int (*init)(void), "nvmlInit_v2\0nvmlInit\0")                                                \
    X(text, const char *(*text)(int), "nvmlErrorString\0")                                               \
    X(version, int (*version)(char *, unsigned), "nvmlSystemGetDriverVersion\0")                         \
    X(count, int (*count)(unsigned *), "nvmlDeviceGetCount_v2\0nvmlDeviceGetCount\0")                    \
    X(handle, int (*handle)(unsigned, void **),                                                          \
      "nvmlDeviceGetHandleByIndex_v2\0nvmlDeviceGetHandleByIndex\0")                                     \
    X(name, int (*name)(void *, char *, unsigned), "nvmlDeviceGetName\0")                                \
    X(uuid, int (*uuid)(void *, char *, unsigned), "nvmlDeviceGetUUID\0")                                \
    X(memory, int (*memory)(void *, struct memory_v1 *), "nvmlDeviceGetMemoryInfo\0")                    \
    X(memory2, int (*memory2)(void *, struct memory_v2 *), "nvmlDeviceGetMemoryInfo_v2\0")               \
    X(processes1, int (*processes1)(void *, unsigned *, struct process_v1 *),                            \
      "nvmlDeviceGetComputeRunningProcesses\0")                                                          \
    X(processes2, int (*processes2)(void *, unsigned *, struct process_v2 *),                            \
      "nvmlDeviceGetComputeRunningProcesses_v3\0nvmlDeviceGetComputeRunningProcesses_v2\0")              \
    X(utilization, int (*utilization)(void *, struct utilization *), "nvmlDeviceGetUtilizationRates\0")  \
    X(temperature, int (*temperature)(void *, int, unsigned *), "nvmlDeviceGetTemperature\0")            \
    X(power, int (*power)(void *, unsigned *), "nvmlDeviceGetPowerUsage\0")                              \
    X(throttle, int (*throttle)(void *, unsigned long long *),                                           \
      "nvmlDeviceGetCurrentClocksEventReasons\0nvmlDeviceGetCurrentClocksThrottleReasons\0")             \
    X(remapped, int (*remapped)(void *, unsigned *, unsigned *, unsigned *, unsigned *),                 \
      "nvmlDeviceGetRemappedRows\0")                                                                     \
    X(mig_mode, int (*mig_mode)(void *, unsigned *, unsigned *), "nvmlDeviceGetMigMode\0")               \
    X(mig_count, int (*mig_count)(void *, unsigned *), "nvmlDeviceGetMaxMigDeviceCount\0")               \
    X(mig_handle, int (*mig_handle)(void *, unsigned, void **), "nvmlDeviceGetMigDeviceHandleByIndex\0") \
    X(set_create, int (*set_create)(void **), "nvmlEventSetCreate\0")                                    \
    X(listen, int (*listen)(void *, unsigned long long, void *), "nvmlDeviceRegisterEvents\0")           \
    X(next, int (*next)(void *, struct event_data *, unsigned), "nvmlEventSetWait_v2\0nvmlEventSetWait\0")

/* A card or an instance of one. */
struct device {
    void *handle; /* NULL: to be asked for */
    uint32_t index, parent, instance;
    bool mig, listens;
    char uuid[96], name[96];
    struct {
        uint32_t xid, count;
    } xids[PL_WATCH_XIDS];
};

struct pl_nvml {
    struct pl_watch_beat *beat;
    pl_nvml_leader *leader;
    void *ctx;
    void *library, *events;
    bool runs;
    uint64_t tried_ms;
    unsigned cards;
    struct device devices[PL_WATCH_GPUS];
    uint32_t device_count;
    struct pl_watch_driver state; /* as told last */
    struct process_v2 rows[MOST_PROCESSES];
    struct process_v1 old_rows[MOST_PROCESSES];
#define X(field, type, names) type;
    NVML_FUNCTIONS(X)
#undef X
};

struct pl_nvml *pl_nvml_create(struct pl_watch_beat *beat, pl_nvml_leader *leader, void *ctx) {
    struct pl_nvml *n = calloc(1, sizeof *n);
    if (n == NULL) return NULL;
    n->beat = beat;
    n->leader = leader;
    n->ctx = ctx;
    return n;
}

/* --- what is asked now, for whoever wonders why nothing comes */

static void ask(struct pl_nvml *n, enum pl_watch_call call, uint32_t gpu) {
    __atomic_store_n(&n->beat->asked, (uint32_t)call, __ATOMIC_RELEASE);
    __atomic_store_n(&n->beat->asked_gpu, gpu, __ATOMIC_RELEASE);
}

/* --- the library */

static bool fails(struct pl_nvml *n, enum pl_watch_driver_state state, int error, const char *what) {
    n->state.state = state;
    n->state.error = error;
    n->state.gpus = 0;
    const char *words = error != 0 && n->text != NULL ? n->text(error) : NULL;
    snprintf(n->state.text, sizeof n->state.text, "%.50s%s%.40s", what, words != NULL ? ": " : "",
             words != NULL ? words : "");
    n->runs = false;
    return false;
}

static void *find(const struct pl_nvml *n, const char *names) {
    for (void *p; *names != '\0'; names += strlen(names) + 1)
        if ((p = dlsym(n->library, names)) != NULL) return p;
    return NULL;
}

static bool load(struct pl_nvml *n) {
    if (n->library != NULL) return true;
    ask(n, PL_WATCH_CALL_LOAD, UINT32_MAX);
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) return fails(n, PL_WATCH_DRIVER_NONE, 0, "there is no libnvidia-ml.so.1");
    void *p;
#define X(field, type, names) \
    p = find(n, names);       \
    memcpy(&n->field, &p, sizeof p);
    NVML_FUNCTIONS(X)
#undef X
    return true;
}

static bool start(struct pl_nvml *n, uint64_t now_ms) {
    if (n->runs) return true;
    if (n->tried_ms != 0 && now_ms - n->tried_ms < AGAIN_MS) return false;
    n->tried_ms = now_ms;
    if (!load(n)) return false;
    if (n->init == NULL || n->count == NULL || n->handle == NULL || n->memory == NULL)
        return fails(n, PL_WATCH_DRIVER_FAILS, 0,
                     "libnvidia-ml.so.1 lacks nvmlInit or nvmlDeviceGetMemoryInfo");
    ask(n, PL_WATCH_CALL_INIT, UINT32_MAX);
    int error = n->init();
    if (error != NVML_OK) return fails(n, PL_WATCH_DRIVER_FAILS, error, "nvmlInit");
    if (n->version != NULL && n->version(n->state.version, sizeof n->state.version) != NVML_OK)
        n->state.version[0] = '\0';
    if (n->set_create != NULL && n->set_create(&n->events) != NVML_OK) n->events = NULL;
    n->state.state = PL_WATCH_DRIVER_RUNS;
    n->state.error = 0;
    n->state.text[0] = '\0';
    n->cards = 0;
    n->device_count = 0;
    n->runs = true;
    return true;
}

/* --- which devices there are */

static void identify(struct pl_nvml *n, struct device *d) {
    ask(n, PL_WATCH_CALL_IDENTITY, d->index);
    if (n->uuid == NULL || n->uuid(d->handle, d->uuid, sizeof d->uuid) != NVML_OK) d->uuid[0] = '\0';
    if (n->name == NULL || n->name(d->handle, d->name, sizeof d->name) != NVML_OK) d->name[0] = '\0';
    d->uuid[sizeof d->uuid - 1] = d->name[sizeof d->name - 1] = '\0';
}

static struct device *add(struct pl_nvml *n, uint32_t index, uint32_t parent) {
    if (n->device_count == PL_WATCH_GPUS) return NULL;
    struct device *d = &n->devices[n->device_count++];
    *d = (struct device){ .index = index, .parent = parent };
    return d;
}

static void add_instances(struct pl_nvml *n, uint32_t card) {
    unsigned mode = 0, pending = 0, count = 0;
    void *handle = n->devices[card].handle;
    if (n->mig_mode == NULL || n->mig_count == NULL || n->mig_handle == NULL) return;
    if (n->mig_mode(handle, &mode, &pending) != NVML_OK || mode != NVML_MIG_ON) return;
    n->devices[card].mig = true;
    if (n->mig_count(handle, &count) != NVML_OK) return;
    for (unsigned i = 0; i < count; i++) {
        void *instance;
        if (n->mig_handle(handle, i, &instance) != NVML_OK) continue; /* that place is empty */
        struct device *d = add(n, n->devices[card].index, card);
        if (d == NULL) return;
        d->handle = instance;
        d->instance = i;
        d->mig = true;
        identify(n, d);
    }
}

static int get_handle(struct pl_nvml *n, struct device *d) {
    if (d->handle != NULL) return NVML_OK;
    ask(n, PL_WATCH_CALL_HANDLE, d->index);
    int error = n->handle(d->index, &d->handle);
    if (error != NVML_OK) {
        d->handle = NULL;
        return error;
    }
    if (d->uuid[0] == '\0') identify(n, d);
    if (n->events != NULL && n->listen != NULL && !d->listens)
        d->listens = n->listen(d->handle, NVML_XID_EVENT, n->events) == NVML_OK;
    return NVML_OK;
}

/* Anew when their number changes; a card that does not answer keeps its place. */
static bool discover(struct pl_nvml *n) {
    unsigned cards = 0;
    ask(n, PL_WATCH_CALL_COUNT, UINT32_MAX);
    int error = n->count(&cards);
    if (error != NVML_OK) return fails(n, PL_WATCH_DRIVER_FAILS, error, "nvmlDeviceGetCount");
    if (cards == n->cards) return true;
    n->cards = cards;
    n->device_count = 0;
    for (unsigned i = 0; i < cards; i++) {
        struct device *d = add(n, i, UINT32_MAX);
        if (d == NULL) break;
        uint32_t card = n->device_count - 1;
        if (get_handle(n, d) == NVML_OK) add_instances(n, card);
    }
    return true;
}

/* --- one device */

static int read_memory(struct pl_nvml *n, const struct device *d, struct pl_watch_gpu *g) {
    struct memory_v2 v2 = { .version = NVML_MEMORY_V2 };
    struct memory_v1 v1;
    ask(n, PL_WATCH_CALL_MEMORY, d->index);
    /* The second version keeps apart what the driver itself reserves; it is nobody's use. */
    int error = n->memory2 != NULL ? n->memory2(d->handle, &v2) : -1;
    if (error == NVML_OK) {
        g->total = v2.total;
        g->used = v2.used;
        g->free = v2.free;
        return NVML_OK;
    }
    if (error == NVML_GPU_IS_LOST) return error;
    error = n->memory(d->handle, &v1);
    if (error != NVML_OK) return error;
    g->total = v1.total;
    g->used = v1.used;
    g->free = v1.free;
    return NVML_OK;
}

/* Ours first: there may be more than there is room for. */
static void keep(const struct pl_nvml *n, struct pl_watch_gpu *g, unsigned count) {
    bool bytes = true, all = count <= PL_WATCH_PROCESSES;
    for (int ours = 1; ours >= 0; ours--)
        for (unsigned i = 0; i < count; i++) {
            uint32_t leader = n->leader(n->ctx, n->rows[i].pid);
            if ((leader != 0) != (ours == 1) || g->process_count == PL_WATCH_PROCESSES) continue;
            bool told = n->rows[i].used != not_available;
            bytes = bytes && told;
            g->processes[g->process_count++] = (struct pl_watch_process){
                .pid = n->rows[i].pid, .leader = leader, .bytes = told ? n->rows[i].used : PL_WATCH_UNKNOWN
            };
        }
    if (bytes && all) g->flags |= PL_WATCH_GPU_PROCESSES;
}

static void read_processes(struct pl_nvml *n, const struct device *d, struct pl_watch_gpu *g) {
    unsigned count = MOST_PROCESSES;
    int error = -1;
    ask(n, PL_WATCH_CALL_PROCESSES, d->index);
    if (n->processes2 != NULL) {
        error = n->processes2(d->handle, &count, n->rows);
    } else if (n->processes1 != NULL) {
        error = n->processes1(d->handle, &count, n->old_rows);
        for (unsigned i = 0; error == NVML_OK && i < count && i < MOST_PROCESSES; i++)
            n->rows[i] = (struct process_v2){ .pid = n->old_rows[i].pid, .used = n->old_rows[i].used };
    }
    if (error != NVML_OK || count > MOST_PROCESSES) {
        if (error != -1) g->error = error;
        return;
    }
    keep(n, g, count);
}

static void read_figures(struct pl_nvml *n, const struct device *d, struct pl_watch_gpu *g) {
    struct utilization u;
    unsigned value, correctable, uncorrectable, pending, failed;
    unsigned long long bits;
    ask(n, PL_WATCH_CALL_FIGURES, d->index);
    if (n->utilization != NULL && n->utilization(d->handle, &u) == NVML_OK && u.gpu <= 100 &&
        u.memory <= 100) {
        g->utilization = u.gpu;
        g->memory_activity = u.memory;
    }
    if (n->temperature != NULL && n->temperature(d->handle, NVML_SENSOR_GPU, &value) == NVML_OK)
        g->celsius = value;
    if (n->power != NULL && n->power(d->handle, &value) == NVML_OK) g->milliwatts = value;
    if (n->throttle != NULL && n->throttle(d->handle, &bits) == NVML_OK) g->throttle = bits;
    if (n->remapped == NULL ||
        n->remapped(d->handle, &correctable, &uncorrectable, &pending, &failed) != NVML_OK)
        return;
    if (pending != 0) g->flags |= PL_WATCH_GPU_REMAP_PENDING;
    if (failed != 0) g->flags |= PL_WATCH_GPU_REMAP_FAILED;
}

static void look_at(struct pl_nvml *n, struct device *d, uint64_t now_ms, struct pl_watch_gpu *g) {
    *g = (struct pl_watch_gpu){ .at_ms = now_ms,
                                .index = d->index,
                                .parent = d->parent,
                                .total = PL_WATCH_UNKNOWN,
                                .used = PL_WATCH_UNKNOWN,
                                .free = PL_WATCH_UNKNOWN,
                                .utilization = PL_WATCH_UNKNOWN,
                                .memory_activity = PL_WATCH_UNKNOWN,
                                .celsius = PL_WATCH_UNKNOWN,
                                .milliwatts = PL_WATCH_UNKNOWN,
                                .throttle = PL_WATCH_UNKNOWN };
    bool is_card = d->parent == UINT32_MAX;
    if (d->mig) g->flags |= is_card ? PL_WATCH_GPU_HAS_MIG : PL_WATCH_GPU_MIG;
    int error = is_card ? get_handle(n, d) : NVML_OK;
    if (error == NVML_OK) error = read_memory(n, d, g);
    memcpy(g->uuid, d->uuid, sizeof g->uuid);
    memcpy(g->name, d->name, sizeof g->name);
    for (int i = 0; i < PL_WATCH_XIDS; i++) {
        g->xids[i].xid = d->xids[i].xid;
        g->xids[i].count = d->xids[i].count;
    }
    if (error != NVML_OK) {
        g->error = error;
        if (error == NVML_GPU_IS_LOST) g->flags |= PL_WATCH_GPU_LOST;
        if (is_card)
            d->handle = NULL; /* it may come back as another one */
        else
            n->cards = 0; /* the card may be split in another way now: looked for anew */
        return;
    }
    read_processes(n, d, g);
    read_figures(n, d, g);
}

/* --- Xids: counted for each number, the last one first */

static void count_xid(struct device *d, uint32_t xid) {
    uint32_t count = 0;
    size_t at = 0;
    while (at < PL_WATCH_XIDS - 1 && d->xids[at].xid != xid && d->xids[at].xid != 0) at++;
    if (d->xids[at].xid == xid) count = d->xids[at].count;
    memmove(d->xids + 1, d->xids, at * sizeof *d->xids);
    d->xids[0].xid = xid;
    d->xids[0].count = count + 1;
}

static void read_events(struct pl_nvml *n) {
    struct event_data e;
    if (n->events == NULL || n->next == NULL) return;
    ask(n, PL_WATCH_CALL_EVENTS, UINT32_MAX);
    for (int i = 0; i < MOST_EVENTS && n->next(n->events, &e, 0) == NVML_OK; i++)
        for (uint32_t k = 0; k < n->device_count; k++)
            if (n->devices[k].parent == UINT32_MAX && n->devices[k].handle == e.device && e.data != 0 &&
                (e.type & NVML_XID_EVENT) != 0)
                count_xid(&n->devices[k], (uint32_t)e.data);
}

void pl_nvml_look(struct pl_nvml *n, uint64_t now_ms, struct pl_watch_driver *driver,
                  struct pl_watch_gpu *gpus) {
    pl_watch_store(&n->beat->asked_ms, now_ms);
    if (start(n, now_ms) && discover(n)) {
        read_events(n);
        for (uint32_t i = 0; i < n->device_count; i++) look_at(n, &n->devices[i], now_ms, &gpus[i]);
        n->state.gpus = n->device_count;
        n->state.samples++;
    }
    ask(n, PL_WATCH_CALL_NOTHING, UINT32_MAX);
    pl_watch_store(&n->beat->asked_ms, 0);
    n->state.at_ms = now_ms;
    *driver = n->state;
}
