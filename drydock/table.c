/* table.c - the card table: the file, its lock, charges, and the rows of processes that are gone. */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SILENT_POLL_NS = 20000000 };
#define FOLDER "/dev/shm/"

static struct dd_table *the_table;
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

static void *say(char error[DD_ERROR], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void *say(char error[DD_ERROR], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error, DD_ERROR, fmt, ap);
    va_end(ap);
    return NULL;
}

/* --- the file */

static void make_mutex(struct dd_table *t) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&t->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

static struct dd_table *no_room(const char *path, int error, char text[DD_ERROR]) {
    const char *remedy = error == ENOSPC ? "free some of it, or make it larger (docker run --shm-size=64m)"
                         : error == EROFS || error == EACCES ? "the dry dock needs a writable /dev/shm"
                                                             : "the dry dock keeps its cards there";
    return say(text, "card table %s: %s: %s", path, strerror(error), remedy);
}

/* Maps the table of an open file, whose blocks are made first: a full /dev/shm must be an error here, not a
 * SIGBUS later. */
static struct dd_table *map_new(int fd, const char *path, char error[DD_ERROR]) {
    int failed = posix_fallocate(fd, 0, (off_t)sizeof(struct dd_table));
    if (failed != 0) return no_room(path, failed, error);
    struct dd_table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return t != MAP_FAILED ? t : no_room(path, errno, error);
}

static void finish(struct dd_table *t, int owner) {
    make_mutex(t);
    t->owner = owner;
    t->owner_start = owner != 0 ? dd_start_time(owner) : 0;
    __atomic_store_n(&t->magic, DD_MAGIC, __ATOMIC_RELEASE);
}

struct dd_table *dd_table_make(const char *name, const struct dd_plan *p, char error[DD_ERROR]) {
    char path[DD_NAME];
    snprintf(path, sizeof path, FOLDER "%s", name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1) return no_room(path, errno, error);
    struct dd_table *t = map_new(fd, path, error);
    close(fd);
    if (t != NULL && dd_table_fill(t, p, error)) {
        finish(t, (int)getpid());
        return t;
    }
    if (t != NULL) munmap(t, sizeof *t);
    unlink(path);
    return NULL;
}

static bool number(const char *name, uint64_t *out, char error[DD_ERROR]) {
    const char *text = getenv(name);
    char why[DD_ERROR];
    if (text == NULL || *text == '\0' || dd_bytes_parse(text, out, why)) return true;
    say(error, "%s: %s", name, why);
    return false;
}

bool dd_plan_from_environment(struct dd_plan *p, char error[DD_ERROR]) {
    uint64_t count = 0;
    const char *gpu = getenv("PLIMSOLL_DRYDOCK_GPU"), *faults = getenv("PLIMSOLL_DRYDOCK_FAULT");
    *p = (struct dd_plan){ .gpu = gpu != NULL && *gpu != '\0' ? gpu : "a100-40", .faults = faults };
    if (!number("PLIMSOLL_DRYDOCK_COUNT", &count, error) ||
        !number("PLIMSOLL_DRYDOCK_CONTEXT", &p->context, error) ||
        !number("PLIMSOLL_DRYDOCK_CAP", &p->cap, error) ||
        !number("PLIMSOLL_DRYDOCK_FAIL", &p->fail_at, error))
        return false;
    p->count = count > DD_CARDS ? DD_CARDS + 1 : (int)count;
    return true;
}

/* The first process fills the table, the others wait for its lock on the file. */
static struct dd_table *map_shared(int fd, const char *path, char error[DD_ERROR]) {
    struct stat st;
    struct dd_plan plan;
    struct dd_table *t;
    if (fstat(fd, &st) == -1) return no_room(path, errno, error);
    if (st.st_size != 0 && st.st_size != (off_t)sizeof *t)
        return say(
            error,
            "card table %s is of another version of the dry dock: end what uses it and remove the file",
            path);
    t = map_new(fd, path, error);
    if (t == NULL || t->magic == DD_MAGIC) return t;
    if (dd_plan_from_environment(&plan, error) && dd_table_fill(t, &plan, error)) {
        finish(t, 0);
        return t;
    }
    munmap(t, sizeof *t);
    return NULL;
}

static void forget_own_past(struct dd_table *t);

struct dd_table *dd_table_open(char error[DD_ERROR]) {
    char path[DD_NAME];
    const char *name = getenv("PLIMSOLL_DRYDOCK_SHM");
    if (name != NULL && *name != '\0')
        snprintf(path, sizeof path, FOLDER "%s", name);
    else
        snprintf(path, sizeof path, FOLDER "plimsoll-drydock-uid-%u", (unsigned)geteuid());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1) return no_room(path, errno, error);
    flock(fd, LOCK_EX);
    struct dd_table *t = map_shared(fd, path, error);
    if (t != NULL && (t->version != DD_VERSION || t->bytes != sizeof *t)) {
        munmap(t, sizeof *t);
        t = say(error,
                "card table %s is of another version of the dry dock: end what uses it and remove the file",
                path);
    }
    flock(fd, LOCK_UN);
    close(fd);
    if (t != NULL) forget_own_past(t);
    return t;
}

struct dd_table *dd_table(void) {
    struct dd_table *t = __atomic_load_n(&the_table, __ATOMIC_ACQUIRE);
    if (t != NULL) return t;
    pthread_mutex_lock(&open_mutex);
    if (the_table == NULL) {
        char error[DD_ERROR];
        t = dd_table_open(error);
        if (t == NULL) { /* a program that believes in a card cannot go on without one */
            fprintf(stderr, "plimsoll drydock: %s\n", error);
            _exit(5);
        }
        __atomic_store_n(&the_table, t, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&open_mutex);
    return the_table;
}

void dd_table_use(struct dd_table *t) { __atomic_store_n(&the_table, t, __ATOMIC_RELEASE); }

/* --- rows; the caller holds the lock where `t` is locked */

static void lock(struct dd_table *t) {
    if (pthread_mutex_lock(&t->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&t->mutex); /* rows are plain counters */
}

uint64_t dd_start_time(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

static bool is_gone(const struct dd_row *r) {
    if (kill(r->pid, 0) != 0 && errno == ESRCH) return true;
    uint64_t start = dd_start_time(r->pid);
    return r->start != 0 && start != 0 && start != r->start;
}

static void give_back(struct dd_table *t, struct dd_row *r) {
    for (int i = 0; i < DD_CARDS; i++) {
        if ((t->card[i].faults & DD_KEPT) != 0) t->card[i].foreign += r->use[i].used;
        r->use[i].used = 0;
    }
}

static void reap(struct dd_table *t) {
    for (int i = 0; i < DD_ROWS; i++) {
        struct dd_row *r = &t->row[i];
        if (r->state != DD_LIVE || !is_gone(r)) continue;
        give_back(t, r);
        r->state = DD_GONE;
    }
}

void dd_table_reap(struct dd_table *t) {
    lock(t);
    reap(t);
    pthread_mutex_unlock(&t->mutex);
}

/* The first words of the command line; enough to tell processes apart in a report. */
static void read_command(char out[DD_NAME]) {
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, out, DD_NAME - 1) : 0;
    if (fd != -1) close(fd);
    if (n < 0) n = 0;
    while (n > 0 && out[n - 1] == '\0') n--;
    out[n] = '\0';
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)out[i] < ' ' || (unsigned char)out[i] > '~') out[i] = ' ';
}

static struct dd_row *find_row(struct dd_table *t, int pid) {
    for (int i = 0; i < DD_ROWS; i++)
        if (t->row[i].state == DD_LIVE && t->row[i].pid == pid) return &t->row[i];
    return NULL;
}

/* The kernel gives every program that is started 16 random bytes. Two copies of this code in one program see
 * the same. */
static uint64_t own_image(void) {
    uint64_t image = 0;
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    if (random != NULL) memcpy(&image, random, sizeof image);
    return image;
}

static struct dd_row *new_row(struct dd_table *t, int pid) {
    struct dd_row *best = NULL;
    for (int i = 0; i < DD_ROWS; i++) {
        struct dd_row *r = &t->row[i];
        if (r->state == DD_FREE) {
            best = r;
            break;
        }
        if (r->state == DD_GONE && (best == NULL || r->born < best->born)) best = r;
    }
    if (best == NULL) return NULL;
    memset(best, 0, sizeof *best);
    best->pid = pid;
    best->start = dd_start_time(pid);
    best->image = own_image();
    best->born = ++t->rows_born;
    read_command(best->command);
    best->state = DD_LIVE;
    return best;
}

static struct dd_row *own_row(struct dd_table *t) {
    int pid = (int)getpid();
    struct dd_row *r = find_row(t, pid);
    if (r != NULL && is_gone(r)) { /* the row of an earlier process with our number */
        give_back(t, r);
        r->state = DD_GONE;
        r = NULL;
    }
    if (r == NULL) r = new_row(t, pid);
    if (r == NULL) {
        reap(t);
        r = new_row(t, pid);
    }
    return r;
}

/* After an exec this process is another program with the number and the start time of the old one, whose
 * memory went. */
static void forget_own_past(struct dd_table *t) {
    lock(t);
    struct dd_row *r = find_row(t, (int)getpid());
    if (r != NULL && r->image != own_image()) {
        give_back(t, r);
        r->state = DD_GONE;
    }
    pthread_mutex_unlock(&t->mutex);
}

/* --- charges */

static uint64_t used_by_all(const struct dd_table *t, int card) {
    uint64_t sum = __atomic_load_n(&t->card[card].foreign, __ATOMIC_RELAXED);
    for (int i = 0; i < DD_ROWS; i++)
        if (t->row[i].state == DD_LIVE) sum += t->row[i].use[card].used;
    return sum;
}

static bool fits(struct dd_table *t, int card, uint64_t bytes) {
    const struct dd_card *c = &t->card[card];
    uint64_t limit = c->cap != 0 && c->cap < c->total ? c->cap : c->total;
    uint64_t used = used_by_all(t, card);
    return bytes <= limit && used <= limit - bytes;
}

/* The n-th allocation of the run is refused on request, and so is the retry that allocators make at once:
 * else nobody would see it. */
static bool refused_on_request(struct dd_table *t, uint64_t bytes) {
    int pid = (int)getpid();
    t->asked++;
    if (t->fail_at != 0 && t->asked == t->fail_at) {
        t->fail_pid = pid;
        t->fail_bytes = bytes;
        return true;
    }
    bool again = t->fail_pid == pid && t->fail_bytes == bytes;
    t->fail_pid = 0;
    return again;
}

static bool take(struct dd_table *t, struct dd_row *row, int card, uint64_t bytes) {
    struct dd_use *u = &row->use[card];
    if (!fits(t, card, bytes)) reap(t);
    if (!fits(t, card, bytes)) return false;
    u->used += bytes;
    if (u->used > u->peak) u->peak = u->used;
    uint64_t all = used_by_all(t, card);
    if (all > t->card[card].peak) t->card[card].peak = all;
    return true;
}

int dd_charge(int card, uint64_t bytes) {
    struct dd_table *t = dd_table();
    lock(t);
    bool ordered = refused_on_request(t, bytes);
    struct dd_row *row = own_row(t);
    bool taken = row != NULL && !ordered && take(t, row, card, bytes);
    if (row != NULL && !taken) {
        row->use[card].refused++;
        if (bytes > row->use[card].refused_largest) row->use[card].refused_largest = bytes;
    }
    pthread_mutex_unlock(&t->mutex);
    return taken ? 0 : -1;
}

int dd_charge_context(int card) {
    struct dd_table *t = dd_table();
    lock(t);
    struct dd_row *row = own_row(t);
    bool taken = row != NULL && take(t, row, card, t->context);
    if (taken) row->use[card].context = t->context;
    pthread_mutex_unlock(&t->mutex);
    return taken ? 0 : -1;
}

void dd_uncharge(int card, uint64_t bytes) {
    struct dd_table *t = dd_table();
    lock(t);
    struct dd_row *row = find_row(t, (int)getpid());
    if (row != NULL) row->use[card].used = row->use[card].used > bytes ? row->use[card].used - bytes : 0;
    pthread_mutex_unlock(&t->mutex);
}

uint64_t dd_used(int card) {
    struct dd_table *t = dd_table();
    lock(t);
    reap(t);
    uint64_t sum = used_by_all(t, card);
    pthread_mutex_unlock(&t->mutex);
    return sum < t->card[card].total ? sum : t->card[card].total;
}

int dd_processes(int card, int32_t *pid, uint64_t *used, int most) {
    struct dd_table *t = dd_table();
    int n = 0;
    lock(t);
    reap(t);
    for (int i = 0; i < DD_ROWS; i++) {
        const struct dd_row *r = &t->row[i];
        if (r->state != DD_LIVE || r->use[card].used == 0) continue;
        if (n < most) {
            pid[n] = r->pid;
            used[n] = r->use[card].used;
        }
        n++;
    }
    pthread_mutex_unlock(&t->mutex);
    return n;
}

/* --- small notes */

void dd_count_launch(int card) {
    static __thread struct dd_row *mine;
    static __thread int32_t whose;
    struct dd_table *t = dd_table();
    __atomic_add_fetch(&t->card[card].launches, 1, __ATOMIC_RELAXED);
    if (mine == NULL || whose != (int32_t)getpid()) {
        lock(t);
        mine = own_row(t);
        whose = (int32_t)getpid();
        pthread_mutex_unlock(&t->mutex);
        if (mine == NULL) return;
    }
    __atomic_add_fetch(&mine->use[card].launches, 1, __ATOMIC_RELAXED);
}

void dd_note_lack(const char *name) {
    struct dd_table *t = dd_table();
    lock(t);
    bool known = false;
    for (uint32_t i = 0; i < t->lack_count && !known; i++)
        known = strncmp(t->lack[i], name, DD_NAME - 1) == 0;
    if (!known && t->lack_count < DD_LACKS) snprintf(t->lack[t->lack_count++], DD_NAME, "%s", name);
    pthread_mutex_unlock(&t->mutex);
}

static void fold(uint64_t *peak, uint64_t value) {
    if (value > *peak) *peak = value;
}

void dd_note_torch(int card, const uint64_t figures[5]) {
    struct dd_table *t = dd_table();
    if (card < 0 || card >= t->cards) return;
    lock(t);
    struct dd_row *row = own_row(t);
    if (row != NULL) {
        struct dd_use *u = &row->use[card];
        fold(&u->allocated_peak, figures[0]);
        fold(&u->reserved_peak, figures[1]);
        fold(&u->ooms, figures[2]);
        fold(&u->retries, figures[3]);
        fold(&u->oom_largest, figures[4]);
        u->torch = 1;
    }
    pthread_mutex_unlock(&t->mutex);
}

int dd_gate(int card) {
    const struct dd_table *t = dd_table();
    static const struct timespec pause = { 0, SILENT_POLL_NS };
    uint32_t faults;
    while (((faults = __atomic_load_n(&t->card[card].faults, __ATOMIC_RELAXED)) & DD_SILENT) != 0)
        nanosleep(&pause, NULL);
    return (faults & DD_LOST) != 0 ? -1 : 0;
}
