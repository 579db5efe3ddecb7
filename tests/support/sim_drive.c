/* sim_drive.c - the allocator model behind a pipe, so that tests/e2e/allocator_model.py can be compared with
 * it step by step.
 *
 *     new TOTAL OTHER BY_AGE FALLING CONF   a new device; CONF as in PYTORCH_CUDA_ALLOC_CONF, "-" = defaults
 *     m SIZE STREAM POOL                    malloc; blocks are numbered from 0 in the order of the calls
 *     f N | p N | c N | r N STREAM          free, free later (pending), complete it, record_stream
 *     e | v 0 or 1                          empty_cache; do pending frees complete at the next malloc?
 *     ? SIZE STREAM POOL                    would malloc release cached memory first?
 *     k                                     what could be released, the largest free block
 * Every line but `new` is answered with one: the result and the statistics.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/sim.h"

enum { MOST_BLOCKS = 1 << 16 };
static struct pl_sim *sim;
static struct pl_sim_block *blocks[MOST_BLOCKS];
static uint64_t tickets[MOST_BLOCKS];
static size_t count;

static void answer(long long what) {
    const struct pl_sim_stats *s = pl_sim_stats(sim);
    const uint64_t all[] = { s->reserved,       s->allocated, s->active, s->requested,     s->peak_reserved,
                             s->peak_allocated, s->retries,   s->ooms,   s->device_allocs, s->device_frees };
    printf("%lld %lld", what, (long long)s->inactive_split_bytes);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) printf(" %llu", (unsigned long long)all[i]);
    putchar('\n');
}

static struct pl_sim_block *block(unsigned long long n) {
    if (n >= count || blocks[n] == NULL) exit(8);
    return blocks[n];
}

static void make(const char *line) {
    unsigned long long total, other;
    int by_age, falling;
    char text[400];
    struct pl_alloc_conf c;
    struct pl_err err;
    pl_alloc_conf_init(&c);
    if (sscanf(line, "new %llu %llu %d %d %399s", &total, &other, &by_age, &falling, text) != 5) exit(2);
    if (strcmp(text, "-") != 0 && !pl_alloc_conf_parse(&c, text, &err)) exit(3);
    c.order_by_age = by_age != 0;
    pl_sim_destroy(sim);
    sim = pl_sim_create(&c, total, other);
    if (sim == NULL) exit(4);
    if (falling) pl_sim_set_falling(sim);
    count = 0;
}

static void act(const char *line) {
    unsigned long long a = 0, b = 0, p = 0;
    int n = sscanf(line + 1, "%llu %llu %llu", &a, &b, &p);
    long long what = 0;
    switch (line[0]) {
    case 'm':
        if (count == MOST_BLOCKS) exit(5);
        blocks[count] = pl_sim_malloc(sim, a, b, (uint16_t)p);
        what = blocks[count] != NULL ? (long long)pl_sim_address(blocks[count]) : -1;
        count++;
        break;
    case 'f':
        tickets[a] = pl_sim_free(sim, block(a), false);
        break;
    case 'p':
        tickets[a] = pl_sim_free(sim, block(a), true);
        break;
    case 'c':
        pl_sim_complete(sim, block(a), tickets[a]);
        break;
    case 'r':
        pl_sim_record_stream(sim, block(a), b);
        break;
    case 'e':
        pl_sim_empty_cache(sim);
        break;
    case 'v':
        pl_sim_set_events_ready(sim, n > 0 && a != 0);
        break;
    case 'k':
        printf("%llu %llu\n", (unsigned long long)pl_sim_releasable(sim),
               (unsigned long long)pl_sim_largest_free(sim));
        return;
    case '?':
        what = pl_sim_would_release(sim, a, b, (uint16_t)p);
        break;
    default:
        exit(6);
    }
    if (!pl_sim_adds_up(sim)) exit(7);
    answer(what);
}

int main(void) {
    char line[600];
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "new", 3) == 0)
            make(line);
        else
            act(line);
    }
    pl_sim_destroy(sim);
    return 0;
}
