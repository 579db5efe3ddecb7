/* tests/support/torture.h - fails the n-th allocation, for n = 1, 2, ... until everything passes.
 *
 *     for (torture_begin(); torture_goes_on();) {
 *         bool ok = work(&err);
 *         torture_ends();
 *         ...what must hold: a story when it failed, the whole result when it did not...
 *         free what was made
 *     }
 *
 * In a test whose name begins with torture_ the linker hands over every call for memory of our rooms (--wrap,
 * see cmake/plimsoll.cmake), those of arenas included, since an arena asks malloc once for many. jansson is
 * told to come here. What libuv, libyaml, OpenSSL and libc take for themselves does not fail (libuv ends the
 * process when there is none for its table of descriptors).
 *
 * The first round fails nothing: it fills what is made once, and shows that the work is good. After every
 * other round as many blocks must be there as before it: a leak is found with its number, without a
 * sanitizer. PL_TORTURE=N runs round N alone, for a debugger. */
#ifndef PL_TESTS_TORTURE_H
#define PL_TESTS_TORTURE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "unit.h"

/* jansson.h itself has names that json.h beside us has, too */
void json_set_alloc_funcs(void *(*malloc_fn)(size_t), void (*free_fn)(void *));

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__real_pl_arena_alloc(struct pl_arena *a, size_t size);
char *__real_pl_arena_strndup(struct pl_arena *a, const char *s, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void *__wrap_pl_arena_alloc(struct pl_arena *a, size_t size);
char *__wrap_pl_arena_strndup(struct pl_arena *a, const char *s, size_t n);

static struct {
    atomic_bool on;
    atomic_size_t asked; /* in this round */
    atomic_long alive;   /* blocks */
    size_t fails;        /* the number that does; 0: none */
    size_t last;         /* PL_TORTURE, or 0 */
    long before;
    bool begun;
} torture;

/* In this round an allocation has failed. */
static inline bool torture_hit(void) { return torture.fails != 0 && torture.asked >= torture.fails; }

static bool torture_refuses(void) {
    return torture.on && atomic_fetch_add(&torture.asked, 1) + 1 == torture.fails;
}
static void *torture_count(void *p) {
    if (p != NULL) torture.alive++;
    return p;
}

void *__wrap_malloc(size_t size) { return torture_refuses() ? NULL : torture_count(__real_malloc(size)); }
void *__wrap_calloc(size_t count, size_t size) {
    return torture_refuses() ? NULL : torture_count(__real_calloc(count, size));
}
void *__wrap_realloc(void *p, size_t size) {
    if (torture_refuses()) return NULL;
    void *q = __real_realloc(p, size);
    return p == NULL ? torture_count(q) : q;
}
void __wrap_free(void *p) {
    if (p != NULL) torture.alive--;
    __real_free(p);
}
char *__wrap_strndup(const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *p = __wrap_malloc(len + 1);
    if (p == NULL) return NULL;
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}
char *__wrap_strdup(const char *s) { return __wrap_strndup(s, SIZE_MAX); }
void *__wrap_pl_arena_alloc(struct pl_arena *a, size_t size) {
    if (!torture_refuses()) return __real_pl_arena_alloc(a, size);
    a->refused = true;
    return NULL;
}
char *__wrap_pl_arena_strndup(struct pl_arena *a, const char *s, size_t n) {
    if (!torture_refuses()) return __real_pl_arena_strndup(a, s, n);
    a->refused = true;
    return NULL;
}

/* jansson calls a token that it has no memory for an invalid one: where that may be read as somebody else's
 * mistake, by design, its own allocations do not fail. */
static void *torture_spares(size_t size) { return torture_count(__real_malloc(size)); }
static inline void torture_spares_jansson(void) { json_set_alloc_funcs(torture_spares, __wrap_free); }

static inline void torture_begin(void) {
    const char *one = getenv("PL_TORTURE");
    json_set_alloc_funcs(__wrap_malloc, __wrap_free);
    torture.last = one != NULL ? (size_t)strtoul(one, NULL, 10) : 0;
    torture.fails = 0;
    torture.begun = false;
}

/* From here to torture_ends() allocations are counted, and one of them fails. */
static inline bool torture_goes_on(void) {
    if (torture.begun) {
        bool first = torture.fails == 0;
        if (!first && torture.alive != torture.before)
            fail_msg("allocation %zu failed: %ld blocks were left", torture.fails,
                     torture.alive - torture.before);
        if (!first && (!torture_hit() || torture.fails == torture.last)) {
            print_message("%zu allocations, each failed once\n", torture.asked);
            assert_true(torture.fails > 1 || torture.last == 1); /* something was asked for */
            return false;
        }
        torture.fails = first && torture.last != 0 ? torture.last : torture.fails + 1;
    }
    torture.begun = true;
    torture.asked = 0;
    torture.before = torture.alive;
    torture.on = true;
    return true;
}
static inline void torture_ends(void) { torture.on = false; }
/* What is made around the work does not fail. */
static inline void torture_pauses(void) { torture.on = false; }
static inline void torture_resumes(void) { torture.on = true; }

/* The work says that it failed: only when it had to, and with a story. */
static inline void torture_failed(const struct pl_err *err) {
    if (!torture_hit()) fail_msg("nothing was refused, and yet: %s", err->msg);
    if (err->code == PL_OK || err->msg[0] == '\0')
        fail_msg("allocation %zu failed without a word", torture.fails);
}
#endif
