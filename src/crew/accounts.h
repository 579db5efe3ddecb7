/* crew/accounts.h - what a worker's page says of memory, as metrics and for people.
 *
 * End records are taken twenty times a second, so that a ring of 1024 holds 20,000 requests a second. Memory
 * is bounded: sixteen devices, a minute of peaks each. All bytes; what was never sampled is absent.
 */
#ifndef PL_CREW_ACCOUNTS_H
#define PL_CREW_ACCOUNTS_H
#include <stdbool.h>
#include <stdint.h>

#include "crew/crew.h"

struct pl_accounts; /* of one worker */

void pl_accounts_take(struct pl_worker *w, uint64_t now_ms);   /* each turn of the crew's clock */
void pl_accounts_second(struct pl_worker *w, uint64_t now_ms); /* gauges, of a READY one */
void pl_accounts_free(struct pl_worker *w);                    /* its series leave the page */
#endif
