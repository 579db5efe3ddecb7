/* plan_gpu.c - the cards at hand, by NVML, loaded when it is there. Layouts: nvml.h (nvmlMemory_t is total,
 * free, used). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cli/plan_files.h"

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml {
    void *library;
    int (*init)(void), (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*memory)(void *, struct nvml_memory *);
};

static bool load(struct nvml *n) {
    static const char *const names[] = { "nvmlInit_v2",           "nvmlShutdown",
                                         "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
                                         "nvmlDeviceGetName",     "nvmlDeviceGetMemoryInfo" };
    void *found[6];
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; n->library != NULL && i < 6; i++)
        if ((found[i] = dlsym(n->library, names[i])) == NULL) return false;
    if (n->library == NULL) return false;
    memcpy(&n->init, &found[0], sizeof n->init); /* ISO C has no cast from object to function pointer */
    memcpy(&n->shutdown, &found[1], sizeof n->shutdown);
    memcpy(&n->count, &found[2], sizeof n->count);
    memcpy(&n->handle, &found[3], sizeof n->handle);
    memcpy(&n->name, &found[4], sizeof n->name);
    memcpy(&n->memory, &found[5], sizeof n->memory);
    return n->init() == 0;
}

/* What a program is told as the total is a little less than NVML's; the table knows by how much for cards in
 * it. */
static uint64_t told_total(const char *product, uint64_t nvml_total, struct pl_gpu *out) {
    const char *name;
    struct pl_gpu card;
    struct pl_err err;
    for (size_t i = 0; (name = pl_gpu_name(i, NULL)) != NULL; i++) {
        if (!pl_gpu_parse(name, &card, &err) || strcmp(card.product, product) != 0 ||
            card.total_bytes > nvml_total)
            continue;
        snprintf(out->name, sizeof out->name, "%s", name);
        return card.total_bytes;
    }
    return nvml_total;
}

bool pl_plan_cards(struct pl_gpu *out, struct pl_err *err) {
    struct nvml n = { .library = NULL };
    unsigned count = 0;
    *out = (struct pl_gpu){ .name = "this card" };
    bool up = load(&n);
    for (unsigned i = 0; up && (i == 0 ? n.count(&count) == 0 : true) && i < count; i++) {
        void *device;
        char product[96] = "";
        struct nvml_memory m;
        if (n.handle(i, &device) != 0 || n.name(device, product, sizeof product) != 0 ||
            n.memory(device, &m) != 0)
            continue;
        if (out->count == 0) {
            snprintf(out->product, sizeof out->product, "%.63s", product);
            out->total_bytes = told_total(out->product, m.total, out);
            snprintf(out->source, sizeof out->source, "NVML, %.60s", out->product);
        }
        if (strncmp(product, out->product, sizeof out->product - 1) != 0)
            continue; /* cards of one kind only */
        if (m.used > out->foreign_bytes) out->foreign_bytes = m.used;
        out->count++;
    }
    if (up) n.shutdown();
    if (n.library != NULL) dlclose(n.library);
    out->class = pl_gpu_class_of(out->product, out->total_bytes);
    if (out->count != 0) return true;
    PL_FAIL(err, PL_E_SYS, "no NVIDIA card can be asked here");
    return pl_err_hint(err, "name one: --gpu h100, --gpu l4x2, --gpu mine:24GiB");
}
