/* tests/support/leak_series.h - random series of allocated bytes after each request, one generator a pattern.
 *
 * Eight kinds that are no leak and five that are, in MiB around a base of 8,000, with tensors in flight
 * (sigma 60 MiB) in 70 % of the samples. Every seed gives the same series everywhere.
 */
#ifndef PL_TESTS_LEAK_SERIES_H
#define PL_TESTS_LEAK_SERIES_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SERIES_MIB (1024.0 * 1024.0)
/* X(symbol, "name", is it a leak) */
/* clang-format off */
#define SERIES_KINDS(X) \
    X(FLAT,         "flat",              false) \
    X(CACHE,        "cache",             false) \
    X(RECORD,       "record",            false) \
    X(STEPS,        "steps",             false) \
    X(CYCLE,        "cycle",             false) \
    X(AR,           "autoregressive",    false) \
    X(WALK,         "bounded walk",      false) \
    X(SAW,          "sawtooth",          false) \
    X(LEAK_51,      "51 KiB",            true)  \
    X(LEAK_20,      "20 KiB",            true)  \
    X(LEAK_RARE,    "1 % leak 2 MiB",    true)  \
    X(LEAK_CYCLE,   "51 KiB + cycle",    true)  \
    X(LEAK_CACHE,   "51 KiB + cache",    true)
/* clang-format on */
enum series_kind {
#define X(sym, ...) SERIES_##sym,
    SERIES_KINDS(X)
#undef X
        SERIES_KIND_COUNT
};
static const char *const series_names[] = {
#define X(sym, name, leak) name,
    SERIES_KINDS(X)
#undef X
};
static const bool series_leaks[] = {
#define X(sym, name, leak) leak,
    SERIES_KINDS(X)
#undef X
};

struct series {
    enum series_kind kind;
    uint64_t count, i;
    uint64_t s[4]; /* xoshiro256** */
    double record, leaked, state, tau, amplitude, period, phi, tooth, spare;
    bool has_spare;
    uint64_t steps[3], step_count;
};

static inline uint64_t series_bits(struct series *g) {
    uint64_t *s = g->s, out = s[1] * 5, t = s[1] << 17;
    out = ((out << 7) | (out >> 57)) * 9;
    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return out;
}
static inline double series_uniform(struct series *g, double lo, double hi) {
    return lo + (hi - lo) * (double)(series_bits(g) >> 11) * 0x1p-53;
}
static inline double series_gauss(struct series *g, double sigma) {
    if (g->has_spare) return g->has_spare = false, g->spare * sigma;
    double u, v, q;
    do {
        u = series_uniform(g, -1, 1), v = series_uniform(g, -1, 1), q = u * u + v * v;
    } while (q >= 1 || q == 0);
    double f = sqrt(-2 * log(q) / q);
    g->spare = v * f, g->has_spare = true;
    return u * f * sigma;
}

static inline void series_start(struct series *g, enum series_kind kind, uint64_t count, uint64_t seed) {
    memset(g, 0, sizeof *g);
    g->kind = kind, g->count = count;
    uint64_t x = seed * 1000003u + (uint64_t)kind; /* splitmix64 fills the state */
    for (int i = 0; i < 4; i++) {
        uint64_t z = x += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        g->s[i] = z ^ (z >> 31);
    }
    static const double phis[] = { 0.9, 0.97, 0.99 };
    g->tau = series_uniform(g, 200, 1200);
    g->amplitude = series_uniform(g, 200, 2000);
    g->period = series_uniform(g, 1000, 4000);
    g->phi = phis[(int)series_uniform(g, 0, 3)];
    g->step_count = (uint64_t)series_uniform(g, 1, 4);
    for (uint64_t i = 0; i < g->step_count; i++) g->steps[i] = (uint64_t)series_uniform(g, 0, (double)count);
    g->tooth = series_uniform(g, 100, 400);
}

/* The next value, bytes. */
static inline double series_next(struct series *g) {
    double i = (double)g->i, turn = 2 * M_PI * i / g->period, plateau = 1 - exp(-i / g->tau);
    double noise = fabs(series_gauss(g, 60)), busy = series_uniform(g, 0, 1);
    double v = 8000 + (busy < 0.7 ? noise : 0);
    switch (g->kind) {
    case SERIES_CACHE:
        v += g->amplitude * plateau;
        break;
    case SERIES_RECORD:
        g->record = fmax(g->record, 40 * exp(series_gauss(g, 0.8)));
        v += g->record;
        break;
    case SERIES_STEPS:
        for (uint64_t k = 0; k < g->step_count; k++) v += g->i >= g->steps[k] ? 200 : 0;
        break;
    case SERIES_CYCLE:
        v += 150 * sin(turn) + 150;
        break;
    case SERIES_AR:
        g->state = g->phi * g->state + series_gauss(g, 8);
        v += g->state;
        break;
    case SERIES_WALK:
        g->state = fmin(200, fmax(-200, g->state + series_gauss(g, 3)));
        v += g->state;
        break;
    case SERIES_SAW:
        v += 60 * fmod(i, g->tooth) / g->tooth;
        break;
    case SERIES_LEAK_51:
        v += 0.05 * i;
        break;
    case SERIES_LEAK_20:
        v += 0.02 * i;
        break;
    case SERIES_LEAK_RARE:
        g->leaked += series_uniform(g, 0, 1) < 0.01 ? 2 : 0;
        v += g->leaked;
        break;
    case SERIES_LEAK_CYCLE:
        v += 0.05 * i + 60 * sin(turn);
        break;
    case SERIES_LEAK_CACHE:
        v += 0.05 * i + g->amplitude / 4 * plateau;
        break;
    case SERIES_FLAT:
    case SERIES_KIND_COUNT:
        break;
    }
    g->i++;
    return v * SERIES_MIB;
}
#endif
