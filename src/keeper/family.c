#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/keeper.h"

/* Of /proc: a list of 8,000 children, or the beginning of an environment; the marker is its first word. */
enum { MOST_TEXT = 65536 };

void pl_keeper_marker(const struct pl_keeper *k, uint64_t generation, char out[PL_KEEPER_MARKER_BYTES]) {
    snprintf(out, PL_KEEPER_MARKER_BYTES, "PLIMSOLL_GENERATION=%llx.%llu", (unsigned long long)k->boot,
             (unsigned long long)generation);
}

/* As much as fits; 0 if it cannot be read. */
static size_t read_text(const char *path, char *text, size_t room) {
    size_t have = 0;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) return 0;
    while (have < room && (n = read(fd, text + have, room - have)) > 0) have += (size_t)n;
    close(fd);
    return have;
}

static bool has_word(const char *text, size_t bytes, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, 0, (size_t)(end - at));
        if (stop == NULL) return false;
        if ((size_t)(stop - at) == length && memcmp(at, word, length) == 0) return true;
        at = stop + 1;
    }
    return false;
}

/* Does the process say that it belongs to this generation, by its session or by its environment? */
static bool belongs(const struct pl_keeper *k, pid_t pid, const struct pl_generation *g) {
    static char text[MOST_TEXT];
    char marker[PL_KEEPER_MARKER_BYTES];
    char path[40];
    if (g->exit.pid != 0 && getsid(pid) == (pid_t)g->exit.pid) return true;
    pl_keeper_marker(k, g->exit.generation, marker);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    return has_word(text, read_text(path, text, sizeof text), marker);
}

bool pl_keeper_knows(const struct pl_keeper *k, pid_t pid) {
    for (int i = 0; i < PL_KEEPER_MAINS; i++)
        if (k->mains[i].pid == pid) return true;
    for (int i = 0; i < PL_KEEPER_GENERATIONS; i++)
        if (pl_keeper_alive(&k->generations[i]) && k->generations[i].exit.pid == (uint32_t)pid) return true;
    return false;
}

/* All kills go to children of ours that are not reaped, so no number can have been given to somebody else. */
unsigned pl_keeper_sweep(struct pl_keeper *k, const struct pl_generation *g) {
    static char text[MOST_TEXT];
    char path[64];
    unsigned left = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    text[read_text(path, text, sizeof text - 1)] = 0;
    for (char *at = text, *end = text;; at = end) {
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (end == at) break;
        if (pl_keeper_knows(k, pid) || (g != NULL && !belongs(k, pid, g))) continue;
        kill(pid, SIGKILL);
        left++;
    }
    return left;
}
