/* look.c - reads the cards through NVML found by dlopen, as a watcher does. One line for each card:
 *
 *     0 NVIDIA A100-SXM4-40GB used 1900 of 40442 MiB pid 812 1900      with `-x`: waits a second for a Xid
 * too
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static void *library;
static void *must(const char *name) {
    void *p = dlsym(library, name);
    if (p != NULL) return p;
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(2);
}

static void look(unsigned index) {
    int (*handle)(unsigned, void **), (*name)(void *, char *, unsigned), (*memory)(void *, struct memory *);
    int (*processes)(void *, unsigned *, struct process *);
    const char *(*text)(int);
    *(void **)&handle = must("nvmlDeviceGetHandleByIndex_v2");
    *(void **)&name = must("nvmlDeviceGetName");
    *(void **)&memory = must("nvmlDeviceGetMemoryInfo");
    *(void **)&processes = must("nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&text = must("nvmlErrorString");
    void *card;
    char label[96];
    struct memory m;
    struct process rows[64];
    unsigned count = 64;
    int error = handle(index, &card);
    if (error == 0) error = name(card, label, sizeof label);
    if (error == 0) error = memory(card, &m);
    if (error == 0) error = processes(card, &count, rows);
    if (error != 0) {
        printf("%u error %d %s\n", index, error, text(error));
        return;
    }
    printf("%u %s used %llu of %llu MiB", index, label, m.used >> 20, m.total >> 20);
    for (unsigned i = 0; i < count; i++)
        if (rows[i].used == ~0ull)
            printf(" pid %u unknown", rows[i].pid);
        else
            printf(" pid %u %llu", rows[i].pid, rows[i].used >> 20);
    printf("\n");
}

static void wait_for_xid(void) {
    int (*create)(void **), (*listen)(void *, unsigned long long, void *),
        (*next)(void *, struct event *, unsigned);
    int (*handle)(unsigned, void **);
    *(void **)&create = must("nvmlEventSetCreate");
    *(void **)&listen = must("nvmlDeviceRegisterEvents");
    *(void **)&next = must("nvmlEventSetWait_v2");
    *(void **)&handle = must("nvmlDeviceGetHandleByIndex_v2");
    void *set, *card;
    struct event e;
    if (create(&set) != 0 || handle(0, &card) != 0 || listen(card, 8, set) != 0) return;
    int error = next(set, &e, 1000);
    if (error == 0)
        printf("xid %llu\n", e.data);
    else
        printf("no xid: %d\n", error);
}

int main(int argc, char **argv) {
    int (*init)(void), (*count)(unsigned *);
    unsigned cards = 0;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    *(void **)&init = must("nvmlInit_v2");
    *(void **)&count = must("nvmlDeviceGetCount_v2");
    if (init() != 0 || count(&cards) != 0) return 2;
    for (unsigned i = 0; i < cards; i++) look(i);
    if (argc > 1 && strcmp(argv[1], "-x") == 0) wait_for_xid();
    return 0;
}
