/* fuzz_drydock_elf.c - a shared object of the user's environment, whatever is in it: read without harm, and
 * what is told is text.
 *
 * USES base cli
 *
 * Property: every string lies inside the file and ends there; a file is read the same way twice. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/drydock_elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    const char *from, *to;
    uint64_t sum, count;
};

static void look(struct seen *s, const char *name) {
    PL_ASSERT(name >= s->from && name < s->to && memchr(name, '\0', (size_t)(s->to - name)) != NULL);
    for (; *name != '\0'; name++) s->sum = s->sum * 31 + (unsigned char)*name;
    s->count++;
}
static void on_name(void *ctx, const char *name) { look(ctx, name); }
static void on_want(void *ctx, const char *name, const char *version) {
    look(ctx, name);
    if (version[0] != '\0') look(ctx, version);
}
static void on_id(void *ctx, const unsigned char *bytes, size_t len) {
    struct seen *s = ctx;
    for (size_t i = 0; i < len; i++) s->sum = s->sum * 31 + bytes[i];
}

static struct seen read_once(const uint8_t *data, size_t size) {
    struct seen s = { (const char *)data, (const char *)data + size, 0, 0 };
    struct pl_elf_sink sink = { on_name, on_want, on_name, on_id, &s };
    struct pl_err err = { 0 };
    bool ok = pl_elf_read(data, size, &sink, &err);
    PL_ASSERT(ok == (err.msg[0] == '\0'));
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct seen a = read_once(data, size), b = read_once(data, size);
    PL_ASSERT(a.sum == b.sum && a.count == b.count);
    return 0;
}
