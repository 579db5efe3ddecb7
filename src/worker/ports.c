#include "worker/ports.h"

#include <stdio.h>

enum { FIRST = 10000, LAST = 65535, FEWEST = 1000, STRIDE = 997 };

struct pl_port_range pl_ports_parse(const char *text) {
    unsigned low, high;
    if (sscanf(text, "%u %u", &low, &high) != 2 || low == 0 || low > high || high > LAST)
        return (struct pl_port_range){ 32768, 60999 };
    return (struct pl_port_range){ (uint16_t)low, (uint16_t)high };
}

static uint32_t between(uint32_t low, uint32_t high) { return high >= low ? high - low + 1 : 0; }

/* Candidates below and above the range. */
static void count(const struct pl_ports *p, uint32_t *below, uint32_t *above) {
    uint32_t low = p->ephemeral.low, high = p->ephemeral.high;
    *below = low > FIRST ? between(FIRST, low - 1) : 0;
    *above = between(high + 1 > FIRST ? high + 1 : FIRST, LAST);
    if (*below + *above >= FEWEST) return;
    *below = between(FIRST, LAST);
    *above = 0;
}

void pl_ports_init(struct pl_ports *p, struct pl_port_range ephemeral, unsigned seed) {
    *p = (struct pl_ports){ .ephemeral = ephemeral, .cursor = seed * STRIDE };
}

uint16_t pl_ports_next(struct pl_ports *p) {
    uint32_t below, above;
    count(p, &below, &above);
    uint32_t n = p->cursor++ % (below + above);
    return (uint16_t)(n < below ? FIRST + n : LAST + 1 - above + (n - below));
}
