/* crew/last_life.h - an end that nobody was left to tell, told by the next start.
 *
 * When everything is killed at once (a container over its limit, a machine without power) the story is lost
 * with whoever would tell it. So main leaves a few lines in state_dir/last-life.json: who is there, how much
 * memory the group has, how much is in flight; at an orderly end it adds a goodbye. A start that finds the
 * file of another life without one tells what was known last: event instance.died, `last_life` of /status.
 *
 * The file is replaced whole and synced, on libuv's pool: one second after a worker changed, else every five
 * seconds if anything did. It is ours alone (0600) and foreign all the same when read: at most 64 KiB, every
 * field is checked. Times in it are RFC 3339 UTC, sizes bytes. A state_dir whose file belongs to a keeper
 * that still lives is left alone.
 */
#ifndef PL_CREW_LAST_LIFE_H
#define PL_CREW_LAST_LIFE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"

struct pl_crew;

enum { PL_LIFE_BYTES = 65536, PL_LIFE_MACHINE = 40 };

/* One life as the file has it. UINT64_MAX: not known. */
struct pl_life {
    uint64_t boot;                     /* of the keeper */
    uint64_t keeper_pid, keeper_start; /* start in ticks since the machine's boot */
    char machine[PL_LIFE_MACHINE];     /* boot_id of the kernel */
    char group[256];                   /* memory group of the keeper */
    char seen[PL_TIME_TEXT];           /* last written */
    bool goodbye;
    uint32_t services, workers, ready, in_flight;
    uint64_t current, limit, kills;
};
/* False: it is none of ours, or damaged. */
bool pl_life_read(const char *text, size_t len, struct pl_life *out);

/* What ended a life without a goodbye, from what is known of it and what is so now; `now` needs machine,
 * group and kills. Returns the cause's name; *scope as in worker.death, or NULL. One sentence of at most
 * `room`. */
const char *pl_life_judge(const struct pl_life *last, const struct pl_life *now, const char **scope,
                          char *sentence, size_t room);

/* Reads what the last life left, tells of it, and begins this one. Blocks for a small file. */
void pl_last_life_begin(struct pl_crew *c);
void pl_last_life_tick(struct pl_crew *c, uint64_t now);
/* Nothing more is written after it. Blocks for a small file. */
void pl_last_life_goodbye(struct pl_crew *c, int status);

/* What was told at this start; false: nothing had to be. Borrowed from the crew. */
struct pl_look_life {
    const char *seen, *cause, *scope, *sentence;
};
bool pl_look_last_life(const struct pl_crew *c, struct pl_look_life *out);
#endif
