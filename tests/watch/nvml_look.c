/* nvml_look.c - one look through watch/nvml.h at the driver that LD_LIBRARY_PATH holds; says whether it saw
 * what the word of the command line means. Status 0: it did. */
#include <stdio.h>
#include <string.h>

#include "watch/nvml.h"

static struct pl_watch_gpu gpus[PL_WATCH_GPUS];
static struct pl_nvml *n; /* for good */
static const uint64_t gib = UINT64_C(1) << 30;

/* 77 is a worker's. */
static uint32_t leader(void *ctx, uint32_t pid) {
    (void)ctx;
    return pid == 77 ? 77 : 0;
}

static int failed(const char *why) {
    fprintf(stderr, "%s\n", why);
    return 1;
}
#define CHECK(what) \
    if (!(what)) return failed(#what)

static int mig(const struct pl_watch_driver *d) {
    CHECK(d->gpus == 3);
    CHECK((gpus[0].flags & PL_WATCH_GPU_HAS_MIG) != 0 && gpus[0].parent == UINT32_MAX);
    CHECK((gpus[1].flags & PL_WATCH_GPU_MIG) != 0 && gpus[1].parent == 0 && gpus[1].total == 20 * gib);
    CHECK(strcmp(gpus[0].uuid, "GPU-odd") == 0 && strcmp(gpus[1].uuid, "MIG-odd-0") == 0);
    CHECK(strcmp(gpus[2].uuid, "MIG-odd-3") == 0 && gpus[2].used == 5 * gib);
    CHECK(gpus[1].utilization == PL_WATCH_UNKNOWN && gpus[1].celsius == PL_WATCH_UNKNOWN);
    return 0;
}

static int old(const struct pl_watch_driver *d) {
    CHECK(d->gpus == 1 && gpus[0].total == 40 * gib && gpus[0].used == 10 * gib);
    CHECK(gpus[0].process_count == 1 && gpus[0].processes[0].pid == 77 && gpus[0].processes[0].bytes == gib);
    CHECK(gpus[0].processes[0].leader == 77 && (gpus[0].flags & PL_WATCH_GPU_PROCESSES) != 0);
    return 0;
}

static int many(const struct pl_watch_driver *d) {
    CHECK(d->gpus == 1 && gpus[0].total == 40 * gib);
    CHECK(gpus[0].process_count == 0 && (gpus[0].flags & PL_WATCH_GPU_PROCESSES) == 0 && gpus[0].error == 7);
    return 0;
}

static int garbage(const struct pl_watch_driver *d) {
    CHECK(d->gpus == 1 && gpus[0].process_count == 0 && strlen(gpus[0].name) == sizeof gpus[0].name - 1);
    CHECK((gpus[0].flags & PL_WATCH_GPU_PROCESSES) == 0);
    return 0;
}

static int fails(const struct pl_watch_driver *d) {
    CHECK(d->state == PL_WATCH_DRIVER_FAILS && d->error == 18 && d->gpus == 0);
    CHECK(strcmp(d->text, "nvmlInit: Driver/library version mismatch") == 0);
    return 0;
}

static int half(const struct pl_watch_driver *d) {
    CHECK(d->state == PL_WATCH_DRIVER_FAILS && d->error == 0 && strstr(d->text, "lacks") != NULL);
    return 0;
}

static int none(const struct pl_watch_driver *d) {
    CHECK(d->state == PL_WATCH_DRIVER_NONE && d->gpus == 0);
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*check)(const struct pl_watch_driver *d);
        bool runs;
    } cases[] = { { "mig", mig, true },         { "old", old, true },      { "many", many, true },
                  { "garbage", garbage, true }, { "fails", fails, false }, { "half", half, false },
                  { "none", none, false } };
    struct pl_watch_beat beat = { 0 };
    struct pl_watch_driver d = { 0 };
    n = pl_nvml_create(&beat, leader, NULL);
    for (uint64_t now = 1000; now < 4000; now += 1000) pl_nvml_look(n, now, &d, gpus);
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0) continue;
        if (cases[i].runs && (d.state != PL_WATCH_DRIVER_RUNS || d.samples != 3))
            return failed("it does not run");
        if (beat.asked_ms != 0 || beat.asked != PL_WATCH_CALL_NOTHING) return failed("a call is under way");
        return cases[i].check(&d);
    }
    return failed("which case?");
}
