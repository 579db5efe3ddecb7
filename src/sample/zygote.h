/* sample/zygote.h - the page of a zygote (python/plimsoll/zygote.py), as foreign bytes: how far it has come
 * and why it would not. Everything is copied out and bounded; a page that is none reads as nothing yet.
 */
#ifndef PL_SAMPLE_ZYGOTE_H
#define PL_SAMPLE_ZYGOTE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_ZYGOTE_PAGE_BYTES = 4096 };
enum pl_zygote_state { PL_ZYGOTE_NOTHING, PL_ZYGOTE_LOADING, PL_ZYGOTE_READY, PL_ZYGOTE_REFUSED };

struct pl_zygote_page {
    enum pl_zygote_state state;
    uint32_t standby; /* pid of the child that waits */
    uint32_t modules;
    uint64_t took_ms;
    char reason[240]; /* printable; "" unless REFUSED */
    char module[120]; /* whose fault it is; "" */
};

/* False: nothing has been written, or it is not such a page. */
bool pl_zygote_read(const void *page, size_t bytes, struct pl_zygote_page *out);
#endif
