/* device.c - the device: memory, contexts, and which cards this process sees.
 *
 * Device memory is host address space: one mmap(MAP_NORESERVE) per allocation, so that a full 40 GiB card
 * costs nothing until somebody writes. Only the charge against the card table makes an allocation succeed or
 * fail.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "inside.h"

enum { PAGE = 4096 };

struct range {
    uintptr_t start;
    size_t bytes, charged;
    int dev;
    enum dd_kind kind;
};

static struct range *ranges; /* sorted by start */
static size_t range_count, range_room;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int current_dev;
static char context_made[DD_CARDS];
static int visible[DD_CARDS];
static int visible_count = -1;

/* --- which cards */

/* The card that an entry of CUDA_VISIBLE_DEVICES names: an index, or the beginning of a UUID. -1: none, the
 * list ends here. */
static int card_of(const char *word, size_t len, int cards) {
    char text[64], uuid[64], *end;
    if (len == 0 || len >= sizeof text) return -1;
    memcpy(text, word, len);
    text[len] = '\0';
    for (int i = 0; strncasecmp(text, "GPU-", 4) == 0 && i < cards; i++) {
        snprintf(uuid, sizeof uuid, "GPU-44525944-4f43-4b2d-4445-564943452d%02x", (unsigned)i);
        if (strncasecmp(uuid, text, len) == 0) return i;
    }
    long index = strtol(text, &end, 10);
    return *end == '\0' && index >= 0 && index < cards ? (int)index : -1;
}

static void read_visible(void) {
    int cards = dd_table()->cards, n = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    while (list == NULL && n < cards) {
        visible[n] = n;
        n++;
    }
    while (list != NULL && *list != '\0' && n < DD_CARDS) {
        size_t len = strcspn(list, ",");
        int card = card_of(list, len, cards);
        if (card == -1) break;
        visible[n++] = card;
        list += len + (list[len] == ',');
    }
    visible_count = n;
}

int dd_count(void) {
    pthread_mutex_lock(&mutex);
    if (visible_count < 0) read_visible();
    int n = visible_count;
    pthread_mutex_unlock(&mutex);
    return n;
}

int dd_card(int dev) { return dev >= 0 && dev < dd_count() ? visible[dev] : 0; }

int dd_current(void) { return current_dev; }

int dd_set_current(int dev) {
    if (dev < 0 || dev >= dd_count()) return -1;
    current_dev = dev;
    return 0;
}

int dd_answer(int dev) { return dd_gate(dd_card(dev)) == 0 ? DD_OK : DD_UNKNOWN; }

/* --- ranges; the caller holds the mutex */

static bool add_range(struct range r) {
    if (range_count == range_room) {
        size_t room = range_room != 0 ? range_room * 2 : 256;
        struct range *bigger = realloc(ranges, room * sizeof *ranges);
        if (bigger == NULL) return false;
        ranges = bigger;
        range_room = room;
    }
    size_t at = range_count;
    for (; at > 0 && ranges[at - 1].start > r.start; at--) ranges[at] = ranges[at - 1];
    ranges[at] = r;
    range_count++;
    return true;
}

static struct range *find_range(uintptr_t address) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || address >= ranges[low - 1].start + ranges[low - 1].bytes) return NULL;
    return &ranges[low - 1];
}

void dd_range_add(void *start, size_t bytes, enum dd_kind kind) {
    pthread_mutex_lock(&mutex);
    add_range((struct range){ (uintptr_t)start, bytes, 0, current_dev, kind });
    pthread_mutex_unlock(&mutex);
}

/* --- contexts */

/* Never active by accident: without `plimsoll drydock` around it, which prints the label at the end, the
 * first use says so. */
static void greet(void) {
    static int told;
    if (dd_table()->owner != 0 || __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) != 0) return;
    fprintf(stderr,
            "plimsoll drydock: stand-in %s: dry run: values not computed, library workspaces not counted\n",
            dd_table()->name);
}

bool dd_has_context(int dev) {
    return dev >= 0 && dev < DD_CARDS && __atomic_load_n(&context_made[dev], __ATOMIC_ACQUIRE) != 0;
}

int dd_context(void) {
    int dev = current_dev, result = DD_OK;
    if (dev >= dd_count()) return DD_NO_DEVICE;
    if (dd_answer(dev) != DD_OK) return DD_UNKNOWN;
    if (dd_has_context(dev)) return DD_OK;
    pthread_mutex_lock(&mutex);
    if (context_made[dev] == 0) {
        result = dd_charge_context(visible[dev]) == 0 ? DD_OK : DD_OUT_OF_MEMORY;
        if (result == DD_OK) __atomic_store_n(&context_made[dev], 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
    greet();
    dd_ask_python(true);
    return result;
}

/* --- memory */

/* The host could not give the addresses: nothing that the card's size explains, so it is said. */
static void blame_host(size_t bytes) {
    static int told;
    if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) != 0) return;
    fprintf(stderr,
            "plimsoll drydock: this host refused %zu bytes of address space (vm.overcommit_memory=2, or a "
            "limit such as "
            "ulimit -v): the out-of-memory error that follows is the host's, not the card's\n",
            bytes);
}

void *dd_alloc(size_t bytes, enum dd_kind kind, int *error) {
    bool on_device = kind == DD_DEVICE;
    size_t unit = on_device ? DD_GRANULE : PAGE;
    *error = DD_INVALID_VALUE;
    if (bytes == 0) return NULL;
    *error = DD_OUT_OF_MEMORY;
    if (bytes > SIZE_MAX - unit) return NULL;
    size_t length = (bytes + unit - 1) & ~(unit - 1);
    if (on_device) {
        int made = dd_context();
        if (made != DD_OK) {
            *error = made;
            return NULL;
        }
        int refused = dd_charge(dd_card(current_dev), length);
        dd_ask_python(true);
        if (refused != 0) return NULL;
    }
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        if (on_device) dd_uncharge(dd_card(current_dev), length);
        blame_host(length);
        return NULL;
    }
    if (on_device)
        madvise(p, length, MADV_NOHUGEPAGE); /* a 4-byte write must not cost 2 MiB of host memory */
    pthread_mutex_lock(&mutex);
    add_range((struct range){ (uintptr_t)p, length, on_device ? length : 0, current_dev, kind });
    pthread_mutex_unlock(&mutex);
    *error = DD_OK;
    return p;
}

int dd_free(void *p) {
    if (p == NULL) return 0;
    pthread_mutex_lock(&mutex);
    struct range *r = find_range((uintptr_t)p);
    if (r == NULL || r->start != (uintptr_t)p) {
        pthread_mutex_unlock(&mutex);
        return -1;
    }
    struct range copy = *r;
    memmove(r, r + 1, (size_t)(ranges + range_count - r - 1) * sizeof *r);
    range_count--;
    pthread_mutex_unlock(&mutex);
    munmap((void *)copy.start, copy.bytes);
    if (copy.charged != 0) dd_uncharge(dd_card(copy.dev), copy.charged);
    return 0;
}

enum dd_kind dd_range(const void *p, void **base, size_t *bytes, int *dev) {
    enum dd_kind kind = DD_NONE;
    pthread_mutex_lock(&mutex);
    struct range *r = find_range((uintptr_t)p);
    if (r != NULL) {
        kind = r->kind;
        if (base != NULL) *base = (void *)r->start;
        if (bytes != NULL) *bytes = r->bytes;
        if (dev != NULL) *dev = r->dev;
    }
    pthread_mutex_unlock(&mutex);
    return kind;
}

/* Big writes to the device are not carried out: the pages stay untouched and the host pays nothing. */
void dd_copy(void *to, const void *from, size_t bytes) {
    if (bytes == 0 || to == from) return;
    if (bytes > dd_settings()->copy_max) {
        enum dd_kind kind = dd_range(to, NULL, NULL, NULL);
        if (kind == DD_DEVICE || kind == DD_RESERVED) return;
    }
    memmove(to, from, bytes);
}

void dd_set(void *to, int value, size_t bytes) {
    uintptr_t start = (uintptr_t)to;
    uintptr_t first = (start + PAGE - 1) & ~(uintptr_t)(PAGE - 1),
              end = (start + bytes) & ~(uintptr_t)(PAGE - 1);
    if (value == 0 && bytes >= 65536 && end > first) { /* whole pages are given back: they read as zeros */
        memset(to, 0, first - start);
        memset((void *)end, 0, start + bytes - end);
        madvise((void *)first, end - first, MADV_DONTNEED);
    } else if (bytes <= dd_settings()->copy_max) {
        memset(to, value, bytes);
    }
}

int dd_info(size_t *free_bytes, size_t *total) {
    int made = dd_context();
    if (made == DD_NO_DEVICE || made == DD_UNKNOWN) return made;
    int card = dd_card(current_dev);
    uint64_t all = dd_table()->card[card].total, used = dd_used(card);
    *free_bytes = all > used ? all - used : 0;
    *total = all;
    return DD_OK;
}

/* --- attributes: CUDA's numbers */

static const struct {
    int number, value;
} attributes[] = {
    { 1, 1024 },        /* max threads per block */
    { 2, 1024 },        /* max block dim x */
    { 3, 1024 },        /* max block dim y */
    { 4, 64 },          /* max block dim z */
    { 5, 2147483647 },  /* max grid dim x */
    { 6, 65535 },       /* max grid dim y */
    { 7, 65535 },       /* max grid dim z */
    { 8, 49152 },       /* shared memory per block */
    { 9, 65536 },       /* constant memory */
    { 10, 32 },         /* warp size */
    { 11, 2147483647 }, /* max pitch */
    { 12, 65536 },      /* registers per block */
    { 13, 1410000 },    /* clock, kHz */
    { 14, 512 },        /* texture alignment */
    { 19, 1 },          /* can map host memory */
    { 31, 1 },          /* concurrent kernels */
    { 32, 1 },          /* ECC */
    { 36, 1215000 },    /* memory clock, kHz */
    { 37, 5120 },       /* memory bus width */
    { 38, 41943040 },   /* L2 */
    { 39, 2048 },       /* threads per multiprocessor */
    { 40, 3 },          /* async engines */
    { 41, 1 },          /* unified addressing */
    { 78, 1 },          /* stream priorities */
    { 79, 1 },          /* L1 caches globals */
    { 80, 1 },          /* L1 caches locals */
    { 81, 167936 },     /* shared memory per multiprocessor */
    { 82, 65536 },      /* registers per multiprocessor */
    { 83, 1 },          /* managed memory */
    { 95, 1 },          /* cooperative launch */
    { 97, 166912 },     /* shared memory per block, opt-in */
    { 99, 1 },          /* host register */
    { 102, 1 },         /* virtual memory management */
    { 103, 1 },         /* handle type: file descriptor */
    { 106, 32 },        /* blocks per multiprocessor */
    { 111, 1024 },      /* reserved shared memory per block */
    { 115, 1 },         /* memory pools */
};

int dd_attribute(int number, int dev) {
    const struct dd_table *t = dd_table();
    switch (number) {
    case 16:
        return t->sms;
    case 33:
        return dd_card(dev) + 1; /* PCI bus */
    case 75:
        return t->major;
    case 76:
        return t->minor;
    case 120:
        return t->major >= 9; /* cluster launch */
    default:
        break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].number == number) return attributes[i].value;
    return 0;
}
