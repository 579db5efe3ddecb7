/* hold.c - names kept by the keeper, so that they outlive main. What main makes it holds before it uses it.
 */
#include <string.h>
#include <unistd.h>

#include "crew/more.h"

void pl_hold(struct pl_crew *c, const char *name, int fd) {
    struct pl_wire_message m;
    pl_wire_init(&m, PL_WIRE_HOLD, sizeof m.hold, 0);
    strncpy(m.hold.name, name, sizeof m.hold.name - 1);
    m.fds[0] = fd;
    m.fd_count = fd == -1 ? 0 : 1;
    pl_link_order(c->link, &m, NULL, NULL);
}

void pl_hold_text(struct pl_crew *c, const char *name, const char *text, size_t len) {
    int fd = pl_memfd_of(name, text, len);
    if (fd == -1) return; /* the next main has to ask again */
    pl_hold(c, name, fd);
    close(fd);
}
