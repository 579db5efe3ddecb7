/* crew/shelf.h - files that are kept in the state folder, the newest PL_SHELF_KEPT of a kind: reports of
 * explain, memory snapshots. Written, or moved there, beside the loop; mode 0600.
 */
#ifndef PL_CREW_SHELF_H
#define PL_CREW_SHELF_H
#include <stdbool.h>
#include <stdint.h>

#include "crew/crew.h"

enum {
    PL_SHELF_KEPT = 10,
    PL_SHELF_PAGES = 256, /* of what is written over: the files written last */
};
#define PL_SHELF_REPORT ".report.json" /* behind a file's name: what is said about it */

/* `problem` NULL: it lies at `path` and has so many bytes. Both are borrowed. */
typedef void pl_shelf_done(void *ctx, const char *path, uint64_t bytes, const char *problem);
/* `kind` is the folder ("explain"), `name` the file's. Takes `ctx` in so far as `done` is called once, always
 * later. Copies the text. False: it could not be begun, `done` is not called. */
bool pl_shelf_keep(struct pl_crew *c, const char *kind, const char *name, const char *text,
                   pl_shelf_done *done, void *ctx);
/* Moves the file `from` there, across file systems too; without a state folder it is removed. */
bool pl_shelf_move(struct pl_crew *c, const char *kind, const char *name, const char *from,
                   pl_shelf_done *done, void *ctx);
/* Writes a file that is there once, and takes the place of the one before; nobody waits for it. Names come
 * and go with what is served: the newest PL_SHELF_PAGES of a kind stay. Without a state folder it is not
 * kept. Copies. */
void pl_shelf_write(struct pl_crew *c, const char *kind, const char *name, const char *text);
#endif
