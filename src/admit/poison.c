#include "admit/poison.h"

#include <string.h>

/* FNV-1a, 64 bits (Fowler, Noll, Vo). */
static uint64_t mix(uint64_t h, const void *bytes, size_t len) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < len; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t pl_poison_fingerprint(unsigned method, const char *target, size_t target_len, const void *body,
                               size_t body_len) {
    uint64_t h = mix(UINT64_C(0xcbf29ce484222325), &method, sizeof method);
    h = mix(h, target, target_len);
    h = mix(h, "", 1); /* "/a" + "b" is not "/ab" */
    return mix(h, body, body_len);
}

static size_t index_of(const struct pl_poison *p, uint64_t fingerprint) {
    size_t i = 0;
    while (i < PL_POISON_ENTRIES && (p->at[i].deaths == 0 || p->at[i].fingerprint != fingerprint)) i++;
    return i;
}

static const struct pl_suspect *find(const struct pl_poison *p, uint64_t fingerprint) {
    size_t i = index_of(p, fingerprint);
    return i < PL_POISON_ENTRIES ? &p->at[i] : NULL;
}

/* A free place, else that of whoever was seen longest ago. */
static struct pl_suspect *place_for(struct pl_poison *p, uint64_t fingerprint) {
    struct pl_suspect *oldest = &p->at[0];
    for (size_t i = 0; i < PL_POISON_ENTRIES; i++) {
        struct pl_suspect *s = &p->at[i];
        if (s->deaths > 0 && s->fingerprint == fingerprint) return s;
        if (oldest->deaths > 0 && (s->deaths == 0 || s->last_ms < oldest->last_ms)) oldest = s;
    }
    p->count += oldest->deaths == 0;
    *oldest = (struct pl_suspect){ .fingerprint = fingerprint };
    return oldest;
}

bool pl_poison_death(struct pl_poison *p, uint64_t fingerprint, uint64_t generation, uint64_t now_ms) {
    struct pl_suspect *s = place_for(p, fingerprint);
    if (s->deaths > 0 && now_ms - s->first_ms > PL_POISON_WINDOW_MS) s->deaths = 0;
    if (s->deaths > 0 && s->generation == generation) return false;
    if (s->deaths == 0) s->first_ms = now_ms;
    s->deaths++;
    s->generation = generation;
    s->last_ms = now_ms;
    return s->deaths == PL_POISON_DEATHS;
}

void pl_poison_answered(struct pl_poison *p, uint64_t fingerprint) {
    size_t i = p->count > 0 ? index_of(p, fingerprint) : PL_POISON_ENTRIES;
    if (i == PL_POISON_ENTRIES) return;
    p->at[i] = (struct pl_suspect){ 0 };
    p->count--;
}

uint64_t pl_poison_left_ms(const struct pl_poison *p, uint64_t fingerprint, uint64_t now_ms) {
    const struct pl_suspect *s = p->count > 0 ? find(p, fingerprint) : NULL;
    if (s == NULL || s->deaths < PL_POISON_DEATHS) return 0;
    uint64_t until = s->last_ms + PL_POISON_WINDOW_MS;
    return until > now_ms ? until - now_ms : 0;
}

uint32_t pl_poison_deaths(const struct pl_poison *p, uint64_t fingerprint) {
    const struct pl_suspect *s = find(p, fingerprint);
    return s != NULL ? s->deaths : 0;
}

void pl_poison_forget(struct pl_poison *p) { memset(p, 0, sizeof *p); }
