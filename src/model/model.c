#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *st, *hf;
    unsigned bits;
} dtypes[PL_DTYPE_COUNT] = {
#define X(sym, st, hf, bits) [PL_DTYPE_##sym] = { st, hf, bits },
    PL_DTYPES(X)
#undef X
};

static bool same(const char *a, const char *name, size_t len) {
    return strlen(a) == len && strncasecmp(a, name, len) == 0;
}

enum pl_dtype pl_dtype_of(const char *name, size_t len) {
    static const char prefix[] = "torch.";
    if (len > sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0) {
        name += sizeof prefix - 1;
        len -= sizeof prefix - 1;
    }
    if (same("half", name, len)) return PL_DTYPE_F16;
    for (int i = 1; i < PL_DTYPE_PACKED; i++)
        if (same(dtypes[i].st, name, len) || same(dtypes[i].hf, name, len)) return (enum pl_dtype)i;
    return PL_DTYPE_UNKNOWN;
}
unsigned pl_dtype_bits(enum pl_dtype d) { return dtypes[d].bits; }

const char *pl_cache_name(enum pl_cache_kind k) {
    static const char *const names[PL_CACHE_KINDS] = {
        [PL_CACHE_FULL] = "full",   [PL_CACHE_SLIDING] = "sliding", [PL_CACHE_CHUNKED] = "chunked",
        [PL_CACHE_MLA] = "latent",  [PL_CACHE_INDEX] = "index",     [PL_CACHE_STATE] = "recurrent",
        [PL_CACHE_CROSS] = "cross",
    };
    return names[k];
}

void pl_model_init(struct pl_model *m, struct pl_arena *arena) {
    *m = (struct pl_model){ .arch = "", .origin = "", .arena = arena, .gated = true };
    m->notes_end = &m->notes;
}

const char *pl_model_word(struct pl_arena *arena, const char *text, size_t len) {
    char *copy = pl_arena_strndup(arena, text, len < 64 ? len : 64);
    for (char *s = copy; s != NULL && *s != '\0'; s++)
        if (*s < 0x20 || *s > 0x7e) *s = '?';
    return copy;
}

void pl_model_note(struct pl_model *m, const char *fmt, ...) {
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct pl_note *note = pl_arena_alloc(m->arena, sizeof *note);
    if (n < 0 || note == NULL) return;
    note->text = pl_arena_strndup(m->arena, text, strlen(text));
    if (note->text == NULL) return;
    *m->notes_end = note;
    m->notes_end = &note->next;
}

bool pl_model_add_cache(struct pl_model *m, struct pl_cache c, struct pl_err *err) {
    enum { MOST = 2 * PL_MODEL_LAYERS };
    if (m->caches == NULL && (m->caches = pl_arena_alloc(m->arena, MOST * sizeof *m->caches)) == NULL)
        return PL_FAIL(err, PL_E_NOMEM, "no memory for the layers");
    if (m->cache_count == MOST) return PL_FAIL(err, PL_E_CONFIG, "more than %d caches", MOST);
    m->caches[m->cache_count++] = c;
    return true;
}

size_t pl_model_count(const struct pl_model *m, enum pl_cache_kind k) {
    size_t n = 0;
    for (size_t i = 0; i < m->cache_count; i++) n += m->caches[i].kind == k;
    return n;
}
