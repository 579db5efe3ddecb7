/* admit/board.h - charges on memory that outlives main: which requests a worker has in hand, and what they
 * are charged.
 *
 * A memfd that the keeper holds. Main writes a slot when a request goes to a worker and frees it when the
 * worker is really done; the next main finds what a dead one left: its orphans. Two mains may have it at once
 * (an upgrade), so a slot is taken by compare and exchange, and each frees only its own or an orphan that it
 * has adopted. A slot is written before its state says so: a main that dies in between leaves it taken for
 * good, and has sent nothing. What is on it is read as foreign bytes.
 *
 * Layout: a header of 64 bytes, then slots of 64 bytes, little-endian. Another major: the board is made anew,
 * and its charges are lost. When it is full, charges go unwritten and are counted.
 */
#ifndef PL_ADMIT_BOARD_H
#define PL_ADMIT_BOARD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_BOARD_MAGIC 0x44424c50u /* "PLBD" */
enum { PL_BOARD_MAJOR = 1, PL_BOARD_SLOTS = 8191, PL_BOARD_BYTES = (PL_BOARD_SLOTS + 1) * 64 };
#define PL_BOARD_NONE UINT32_MAX

enum pl_board_state { PL_BOARD_FREE, PL_BOARD_TAKEN, PL_BOARD_CHARGED, PL_BOARD_ORPHAN };
struct pl_charge {
    uint64_t main;        /* nonce of the main that wrote it */
    uint64_t generation;  /* of the worker */
    uint64_t id;          /* x-plimsoll-id */
    uint64_t bytes;       /* 0: only counted */
    uint64_t deadline_ms; /* monotonic: after it, it holds nothing that anybody can tell */
    uint64_t since_ended; /* where the worker's end ring stood */
};
struct pl_board {
    uint8_t *at;   /* PL_BOARD_BYTES, borrowed; NULL: there is none */
    uint64_t main; /* ours */
    uint32_t next; /* where to look for a free slot first */
    uint64_t unwritten;
};

/* Zeroed memory becomes a board. False: it is another one's, of a kind that we do not know. */
bool pl_board_open(struct pl_board *b, void *at, uint64_t main);
/* The slot, or PL_BOARD_NONE when it is full. */
uint32_t pl_board_put(struct pl_board *b, const struct pl_charge *c);
void pl_board_drop(struct pl_board *b, uint32_t slot); /* NONE is allowed */
/* The next charge of another main from slot *from on; *from then is behind it. False: no more. */
bool pl_board_next(const struct pl_board *b, uint32_t *from, uint32_t *slot, struct pl_charge *out);
/* Another main has something with a worker of that generation; or may have: the board is full. */
bool pl_board_has(const struct pl_board *b, uint64_t generation);
/* Ours to free from now on. False: its own main has freed it meanwhile. */
bool pl_board_adopt(struct pl_board *b, uint32_t slot);
/* Its own main, which still lives, has freed it; or somebody else has it by now. */
bool pl_board_is_gone(const struct pl_board *b, uint32_t slot, const struct pl_charge *c);
#endif
