/* cli/drydock_elf.h - reads the dynamic symbols of a shared object, and writes a small shared object whose
 * functions report success. 64-bit little-endian ELF; code for x86-64. No compiler and no binutils are needed
 * on the user's machine.
 *
 * Formats: the System V ABI and its GNU extensions (symbol versions, DT_GNU_HASH), by the structures of
 * <elf.h>. The files that are read belong to the user's environment: every offset is checked, nothing is
 * trusted.
 */
#ifndef PL_CLI_DRYDOCK_ELF_H
#define PL_CLI_DRYDOCK_ELF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* What a file tells. Strings are borrowed from its bytes and NUL-ended there. Any function may be NULL. */
struct pl_elf_sink {
    void (*library)(void *ctx, const char *soname);                      /* DT_NEEDED */
    void (*wants)(void *ctx, const char *name, const char *version);     /* undefined; version "" = none */
    void (*has)(void *ctx, const char *name);                            /* global or weak, defined here */
    void (*build_id)(void *ctx, const unsigned char *bytes, size_t len); /* NT_GNU_BUILD_ID */
    void *ctx;
};
/* False with what is wrong and where. A file without a dynamic section tells nothing and is no error. */
bool pl_elf_read(const void *data, size_t len, const struct pl_elf_sink *sink, struct pl_err *err);

/* Where a function writes, and what: so that a caller does not read what was on its stack. */
enum pl_stub_what { PL_STUB_I32, PL_STUB_I64, PL_STUB_HANDLE };
struct pl_stub_out {
    int argument; /* counted from 0, floats included */
    enum pl_stub_what what;
};
enum { PL_STUB_OUTS = 4, PL_STUB_ARGUMENTS = 31 };
struct pl_stub {
    const char *name;
    const char
        *kinds; /* a letter for each argument: i integer or pointer, f float, d double; "" without outs */
    struct pl_stub_out outs[PL_STUB_OUTS];
    size_t out_count;
    bool versioned; /* wanted with the node's version */
    bool lacking;   /* its results matter and are not given: it reports itself as lacking */
};
/* Appends the file. `node`: its version, "" = none. Every function ends in `dd_stub(name)` or
 * `dd_lacks(name)` of the library `needed`. False without memory, or when a stub is not sound. */
bool pl_elf_write(struct pl_buf *out, const char *soname, const char *needed, const struct pl_stub *stubs,
                  size_t count, const char *node, struct pl_err *err);
#endif
