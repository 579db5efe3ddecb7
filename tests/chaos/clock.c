/* clock.c - the wall clock as the chaos suite wants it: preloaded, it adds the seconds that stand in the file
 * $CHAOS_CLOCK (an int64, mapped and shared) to CLOCK_REALTIME, gettimeofday and time. The monotonic clock is
 * the kernel's word and stays. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t none;
static _Atomic int64_t *offset_s = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd == -1) return;
    void *at = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) offset_s = at;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int done = (int)syscall(SYS_clock_gettime, clock, t);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += atomic_load(offset_s);
    return done;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now = { 0 };
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
