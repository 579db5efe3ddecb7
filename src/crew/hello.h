/* crew/hello.h - the first words with the keeper: who are we, and what did the last main leave with it. */
#ifndef PL_CREW_HELLO_H
#define PL_CREW_HELLO_H
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "crew/link.h"

struct pl_held_entry {
    char name[PL_WIRE_NAME_BYTES];
    int fd; /* -1: taken */
};
struct pl_held_list {
    struct pl_held_entry at[64];
    size_t count;
};

/* HELLO. The heartbeat page comes back mapped; it stays for the process's life. */
bool pl_hello(struct pl_link *l, const char *build, struct pl_wire_welcome *welcome,
              struct pl_wire_beat **beat, struct pl_err *err);
/* All held descriptors; they are the caller's, taken one by one. */
bool pl_held_list(struct pl_link *l, struct pl_held_list *out, struct pl_err *err);
int pl_held_take(struct pl_held_list *held, const char *name);       /* -1: not held */
int pl_held_peek(const struct pl_held_list *held, const char *name); /* borrowed; -1: not held */
/* Reads a held memfd whole, and closes it. */
bool pl_held_read(int fd, struct pl_buf *out);
#endif
