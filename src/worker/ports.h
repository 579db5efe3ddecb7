/* worker/ports.h - which loopback port a worker may be told to listen on.
 *
 * Outside the range from which the kernel gives ports to outgoing connections: there, a probe of a port where
 * nobody listens yet could be given that very port and meet itself, and so could anybody's connection take it
 * before the worker does. Source of the range: /proc/sys/net/ipv4/ip_local_port_range, ip(7).
 */
#ifndef PL_WORKER_PORTS_H
#define PL_WORKER_PORTS_H
#include <stdbool.h>
#include <stdint.h>

struct pl_port_range {
    uint16_t low, high; /* both included */
};
/* "32768\t60999\n"; what is none gives that very range, which is Linux's default. */
struct pl_port_range pl_ports_parse(const char *text);

struct pl_ports {
    struct pl_port_range ephemeral;
    uint32_t cursor;
};
/* `seed` spreads instances on one machine. */
void pl_ports_init(struct pl_ports *p, struct pl_port_range ephemeral, unsigned seed);
/* The next candidate, round and round: 10000 and up, outside the range; when the range leaves fewer than a
 * thousand, from all of them. Whether it is free is for the caller to find out. */
uint16_t pl_ports_next(struct pl_ports *p);
#endif
