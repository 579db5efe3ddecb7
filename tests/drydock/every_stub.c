/* every_stub.c - opens written libraries and calls each function that a library itself defines, with
 * out-parameters that hold garbage: every_stub LIBRARY...     The names come from the library's own symbol
 * table. Prints how many were called.
 *
 * Stubs with out-parameters must have written to them what a caller may trust: 0, or an address. The
 * arguments are all the address of one block of garbage, so that whatever argument is written can be seen. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

typedef long any_function(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                          void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

static unsigned char block[64];

static int call(void *function) {
    any_function *f;
    *(void **)&f = function;
    memset(block, 0xa5, sizeof block);
    void *p = block;
    return f(p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p) == 0;
}

int main(int argc, char **argv) {
    int called = 0, wrote = 0;
    for (int i = 1; i < argc; i++) {
        struct link_map *map;
        void *library = dlopen(argv[i], RTLD_NOW);
        if (library == NULL || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        const Elf64_Sym *symbols = NULL;
        const char *strings = NULL;
        const unsigned *hash = NULL;
        for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_SYMTAB) symbols = (const void *)d->d_un.d_ptr;
            if (d->d_tag == DT_STRTAB) strings = (const void *)d->d_un.d_ptr;
            if (d->d_tag == DT_HASH) hash = (const void *)d->d_un.d_ptr;
        }
        for (unsigned k = 1; k < hash[1]; k++) {
            if (symbols[k].st_shndx == SHN_UNDEF) continue;
            if (!call((void *)(map->l_addr + symbols[k].st_value))) {
                printf("%s of %s did not report success\n", strings + symbols[k].st_name, argv[i]);
                return 1;
            }
            called++;
            wrote += block[0] != 0xa5;
        }
    }
    printf("%d called, %d wrote\n", called, wrote);
    return 0;
}
