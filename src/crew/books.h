/* crew/books.h - keeps a worker's ledger (room `ledger`) from what its page says, tells its verdict, and acts
 * on it: alarm, empty_cache, reasons to replace.
 *
 * Rows come with the end records (accounts.c), the rest once a second. About 60 KiB for each worker that has
 * a page. A main that adopts a worker begins its books anew.
 */
#ifndef PL_CREW_BOOKS_H
#define PL_CREW_BOOKS_H
#include "crew/crew.h"
#include "ledger/policy.h"

struct pl_books; /* of one worker */

/* Whether a successor would find room beside this worker on each of the devices that its page names, by what
 * the driver says and by what our pages say; true too when nobody can tell. */
bool pl_books_room(struct pl_worker *w);

void pl_books_row(struct pl_worker *w, const struct pl_page_record *r, uint64_t now_ms);
void pl_books_lost(struct pl_worker *w, uint64_t records);
void pl_books_second(struct pl_worker *w, uint64_t now_ms); /* of a READY one */
void pl_books_free(struct pl_worker *w);                    /* its series leave the page */
#endif
