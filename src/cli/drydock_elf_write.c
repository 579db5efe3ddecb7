/* drydock_elf_write.c - the writer: one small shared object, laid out by hand.
 *
 * Segment R+X: header, 4 program headers, .dynsym, .hash, .gnu.version, .gnu.version_d, .rela.dyn, .dynstr,
 * .text. Segment RW: .dynamic, two slots for the reporters, 4 KiB of zeros whose address serves as a handle.
 * The loader reads only the program headers; a linker that is given the file (triton does that at run time)
 * needs the section headers behind it.
 *
 * A stub is: for each out-parameter `mov rax, argument; test rax, rax; jz; store`, then `lea rdi, [name]; jmp
 * [slot]`.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "cli/drydock_elf.h"

enum {
    PAGE = 4096,
    HANDLE_BYTES = 4096,
    DYNAMIC_ENTRIES = 16,
    SECTIONS_MOST = 12,
    CODE_BYTES = 192,
    REPORTERS = 2
};
static const char *const reporters[REPORTERS] = { "dd_stub", "dd_lacks" };

struct strings {
    char *data;
    size_t len;
};

struct layout {
    size_t symtab, hash, versym, verdef, rela, strtab, text, text_end, dynamic, slots, handle, end;
    size_t section_names, sections, file_end;
    uint32_t symbols, buckets;
};

struct writer {
    const struct pl_stub *stubs;
    size_t count;
    bool has_node;
    struct layout at;
    struct strings strings;
    uint32_t soname, needed, runpath, node;
    uint32_t *names;   /* of the reporters, then of the stubs, in the string table */
    uint32_t *offsets; /* of the stubs, in .text */
    unsigned char *file;
};

static size_t align(size_t n, size_t to) { return (n + to - 1) / to * to; }

static uint32_t add_string(struct strings *s, const char *text) {
    size_t n = strlen(text) + 1, where = s->len;
    memcpy(s->data + s->len, text, n);
    s->len += n;
    return (uint32_t)where;
}

static uint32_t sysv_hash(const char *name) {
    uint32_t h = 0;
    for (; *name != '\0'; name++) {
        h = (h << 4) + (unsigned char)*name;
        uint32_t high = h & 0xf0000000U;
        h ^= high >> 24;
        h &= ~high;
    }
    return h;
}

/* --- code */

struct code {
    unsigned char bytes[CODE_BYTES];
    size_t len;
};

static void emit(struct code *c, const char *bytes, size_t len) {
    memcpy(c->bytes + c->len, bytes, len);
    c->len += len;
}

static void emit32(struct code *c, int64_t value) {
    int32_t v = (int32_t)value;
    emit(c, (const char *)&v, sizeof v);
}

/* Which integer argument of the calling convention it is: floats travel elsewhere. */
static int integer_argument(const char *kinds, int argument) {
    int k = 0;
    for (int i = 0; i < argument; i++) k += kinds[i] == 'i';
    return k;
}

static void emit_load(struct code *c, int k) {
    static const char *const registers[] = {
        "\x48\x89\xf8", "\x48\x89\xf0", "\x48\x89\xd0", "\x48\x89\xc8", "\x4c\x89\xc0", "\x4c\x89\xc8"
    }; /* mov rax, rdi rsi rdx rcx r8 r9 */
    if (k < 6) {
        emit(c, registers[k], 3);
    } else {
        emit(c, "\x48\x8b\x84\x24", 4); /* mov rax, [rsp + ...] */
        emit32(c, 8 + 8 * (k - 6));
    }
}

static void emit_store(struct code *c, enum pl_stub_what what, size_t address, size_t handle) {
    emit(c, "\x48\x85\xc0\x74", 4); /* test rax, rax; jz over the store */
    if (what == PL_STUB_I32)
        emit(c, "\x06\xc7\x00\0\0\0\0", 7);
    else if (what == PL_STUB_I64)
        emit(c, "\x07\x48\xc7\x00\0\0\0\0", 8);
    else {
        emit(c, "\x0a\x4c\x8d\x1d", 4); /* lea r11, [handle] */
        emit32(c, (int64_t)handle - (int64_t)(address + c->len + 4));
        emit(c, "\x4c\x89\x18", 3); /* mov [rax], r11 */
    }
}

static void make_code(const struct writer *w, const struct pl_stub *s, size_t address, size_t name,
                      struct code *c) {
    size_t slot = w->at.slots + (s->lacking ? 8 : 0);
    c->len = 0;
    for (size_t i = 0; i < s->out_count; i++) {
        emit_load(c, integer_argument(s->kinds, s->outs[i].argument));
        emit_store(c, s->outs[i].what, address, w->at.handle);
    }
    emit(c, "\x48\x8d\x3d", 3); /* lea rdi, [name] */
    emit32(c, (int64_t)name - (int64_t)(address + c->len + 4));
    emit(c, "\xff\x25", 2); /* jmp [slot] */
    emit32(c, (int64_t)slot - (int64_t)(address + c->len + 4));
}

/* --- layout: sizes first, so that every address is known before the code is made */

static void lay_out(struct writer *w) {
    struct layout *l = &w->at;
    struct code c;
    l->symbols = (uint32_t)w->count + REPORTERS + 1;
    l->buckets = l->symbols / 2;
    l->symtab = sizeof(Elf64_Ehdr) + 4 * sizeof(Elf64_Phdr);
    l->hash = l->symtab + l->symbols * sizeof(Elf64_Sym);
    l->versym = l->hash + sizeof(uint32_t) * (2 + l->buckets + l->symbols);
    l->verdef = align(l->versym + (w->has_node ? 2 * (size_t)l->symbols : 0), 8);
    l->rela = align(l->verdef + (w->has_node ? 2 * (sizeof(Elf64_Verdef) + sizeof(Elf64_Verdaux)) : 0), 8);
    l->strtab = l->rela + REPORTERS * sizeof(Elf64_Rela);
    l->text = align(l->strtab + w->strings.len, 16);
    size_t length = 0;
    for (size_t i = 0; i < w->count; i++) {
        w->offsets[i] = (uint32_t)length;
        make_code(w, &w->stubs[i], 0, 0, &c);
        length += align(c.len, 16);
    }
    l->text_end = l->text + length;
    l->dynamic = align(l->text_end, PAGE);
    l->slots = l->dynamic + DYNAMIC_ENTRIES * sizeof(Elf64_Dyn);
    l->handle = l->slots + REPORTERS * 8;
    l->end = l->handle + HANDLE_BYTES;
}

/* --- parts */

static void put_symbols(struct writer *w) {
    Elf64_Sym *sym = (Elf64_Sym *)(void *)(w->file + w->at.symtab);
    uint16_t *version = (uint16_t *)(void *)(w->file + w->at.versym);
    for (uint32_t i = 1; i < w->at.symbols; i++) {
        bool own = i > REPORTERS;
        sym[i].st_name = w->names[i - 1];
        sym[i].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
        sym[i].st_shndx = !own ? SHN_UNDEF : w->has_node ? 7 : 5; /* .text */
        sym[i].st_value = own ? w->at.text + w->offsets[i - 1 - REPORTERS] : 0;
        sym[i].st_size = own ? 16 : 0;
        if (w->has_node) version[i] = own && w->stubs[i - 1 - REPORTERS].versioned ? 2 : 1;
    }
}

static void put_hash(struct writer *w) {
    uint32_t *head = (uint32_t *)(void *)(w->file + w->at.hash);
    uint32_t *bucket = head + 2, *chain = bucket + w->at.buckets;
    head[0] = w->at.buckets;
    head[1] = w->at.symbols;
    for (uint32_t i = 1; i < w->at.symbols; i++) {
        const char *name = i <= REPORTERS ? reporters[i - 1] : w->stubs[i - 1 - REPORTERS].name;
        uint32_t b = sysv_hash(name) % w->at.buckets;
        chain[i] = bucket[b];
        bucket[b] = i;
    }
}

static void put_versions(struct writer *w, const char *soname, const char *node) {
    struct {
        Elf64_Verdef def;
        Elf64_Verdaux aux;
    } pair[2] = { { { 1, VER_FLG_BASE, 1, 1, sysv_hash(soname), sizeof(Elf64_Verdef), sizeof *pair },
                    { w->soname, 0 } },
                  { { 1, 0, 2, 1, sysv_hash(node), sizeof(Elf64_Verdef), 0 }, { w->node, 0 } } };
    if (w->has_node) memcpy(w->file + w->at.verdef, pair, sizeof pair);
}

static void put_relocations(struct writer *w) {
    Elf64_Rela *r = (Elf64_Rela *)(void *)(w->file + w->at.rela);
    for (uint32_t i = 0; i < REPORTERS; i++)
        r[i] =
            (Elf64_Rela){ w->at.slots + 8 * (size_t)i, ELF64_R_INFO((uint64_t)i + 1, R_X86_64_GLOB_DAT), 0 };
}

static void put_dynamic(struct writer *w) {
    Elf64_Dyn d[DYNAMIC_ENTRIES] = {
        { DT_NEEDED, { w->needed } },
        { DT_SONAME, { w->soname } },
        { DT_RUNPATH, { w->runpath } },
        { DT_HASH, { w->at.hash } },
        { DT_STRTAB, { w->at.strtab } },
        { DT_SYMTAB, { w->at.symtab } },
        { DT_STRSZ, { w->strings.len } },
        { DT_SYMENT, { sizeof(Elf64_Sym) } },
        { DT_RELA, { w->at.rela } },
        { DT_RELASZ, { REPORTERS * sizeof(Elf64_Rela) } },
        { DT_RELAENT, { sizeof(Elf64_Rela) } },
    };
    if (w->has_node) {
        d[11] = (Elf64_Dyn){ DT_VERSYM, { w->at.versym } };
        d[12] = (Elf64_Dyn){ DT_VERDEF, { w->at.verdef } };
        d[13] = (Elf64_Dyn){ DT_VERDEFNUM, { 2 } };
    }
    memcpy(w->file + w->at.dynamic, d, sizeof d);
}

static void put_text(struct writer *w) {
    struct code c;
    memset(w->file + w->at.text, 0xcc, w->at.text_end - w->at.text);
    for (size_t i = 0; i < w->count; i++) {
        size_t address = w->at.text + w->offsets[i];
        make_code(w, &w->stubs[i], address, w->at.strtab + w->names[REPORTERS + i], &c);
        memcpy(w->file + address, c.bytes, c.len);
    }
}

static void put_program_headers(struct writer *w) {
    size_t rw = w->at.handle - w->at.dynamic, dyn = DYNAMIC_ENTRIES * sizeof(Elf64_Dyn);
    const Elf64_Phdr p[4] = {
        { PT_LOAD, PF_R | PF_X, 0, 0, 0, w->at.text_end, w->at.text_end, PAGE },
        { PT_LOAD, PF_R | PF_W, w->at.dynamic, w->at.dynamic, w->at.dynamic, rw, w->at.end - w->at.dynamic,
          PAGE },
        { PT_DYNAMIC, PF_R | PF_W, w->at.dynamic, w->at.dynamic, w->at.dynamic, dyn, dyn, 8 },
        { PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16 },
    };
    memcpy(w->file + sizeof(Elf64_Ehdr), p, sizeof p);
}

/* --- sections */

struct section {
    const char *name;
    Elf64_Shdr h;
};

static uint16_t list_sections(const struct writer *w, struct section s[SECTIONS_MOST]) {
    const struct layout *l = &w->at;
    size_t n = 0, code = l->text_end - l->text, dyn = DYNAMIC_ENTRIES * sizeof(Elf64_Dyn);
    uint32_t strings = w->has_node ? 6 : 4;
#define ADD(name, type, flags, where, size, link, info, alignment, entry)                               \
    s[n++] = (struct section) {                                                                         \
        name, { 0, type, flags, (flags) != 0 ? (where) : 0, where, size, link, info, alignment, entry } \
    }
    ADD(".dynsym", SHT_DYNSYM, SHF_ALLOC, l->symtab, l->symbols * sizeof(Elf64_Sym), strings, 1, 8,
        sizeof(Elf64_Sym));
    ADD(".hash", SHT_HASH, SHF_ALLOC, l->hash, l->versym - l->hash, 1, 0, 8, 4);
    if (w->has_node) {
        ADD(".gnu.version", SHT_GNU_versym, SHF_ALLOC, l->versym, 2 * (size_t)l->symbols, 1, 0, 2, 2);
        ADD(".gnu.version_d", SHT_GNU_verdef, SHF_ALLOC, l->verdef, 56, strings, 2, 8, 0);
    }
    ADD(".rela.dyn", SHT_RELA, SHF_ALLOC, l->rela, REPORTERS * sizeof(Elf64_Rela), 1, 0, 8,
        sizeof(Elf64_Rela));
    ADD(".dynstr", SHT_STRTAB, SHF_ALLOC, l->strtab, w->strings.len, 0, 0, 1, 0);
    ADD(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, l->text, code, 0, 0, 16, 0);
    ADD(".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, l->dynamic, dyn, strings, 0, 8, sizeof(Elf64_Dyn));
    ADD(".got", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, l->slots, REPORTERS * 8, 0, 0, 8, 8);
    ADD(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, l->handle, HANDLE_BYTES, 0, 0, 8, 0);
    ADD(".shstrtab", SHT_STRTAB, 0, l->section_names, 0, 0, 0, 1, 0);
#undef ADD
    return (uint16_t)n;
}

static const char ident[EI_NIDENT] = {
    ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT
};

static bool put_sections(struct writer *w) {
    struct section s[SECTIONS_MOST];
    struct strings names = { NULL, 1 };
    char text[256] = "";
    names.data = text;
    w->at.section_names = w->at.handle;
    uint16_t n = list_sections(w, s);
    for (uint16_t i = 0; i < n; i++) s[i].h.sh_name = add_string(&names, s[i].name);
    s[n - 1].h.sh_size = names.len;
    w->at.sections = align(w->at.section_names + names.len, 8);
    w->at.file_end = w->at.sections + (n + (size_t)1) * sizeof(Elf64_Shdr);
    w->file = calloc(1, w->at.file_end);
    if (w->file == NULL) return false;
    memcpy(w->file + w->at.section_names, text, names.len);
    for (uint16_t i = 0; i < n; i++)
        memcpy(w->file + w->at.sections + (i + (size_t)1) * sizeof s[i].h, &s[i].h, sizeof s[i].h);
    Elf64_Ehdr h = { .e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_phoff = sizeof h,
                     .e_shoff = w->at.sections,
                     .e_ehsize = sizeof h,
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = 4,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = (uint16_t)(n + 1),
                     .e_shstrndx = n };
    memcpy(h.e_ident, ident, sizeof ident);
    memcpy(w->file, &h, sizeof h);
    return true;
}

/* --- the whole */

static bool sound(const struct pl_stub *s) {
    size_t arguments = strlen(s->kinds);
    if (s->out_count > PL_STUB_OUTS || arguments > PL_STUB_ARGUMENTS) return false;
    for (size_t i = 0; i < s->out_count; i++) {
        int a = s->outs[i].argument;
        if (a < 0 || (size_t)a >= arguments || s->kinds[a] != 'i') return false;
    }
    return true;
}

static bool gather_strings(struct writer *w, const char *soname, const char *needed, const char *node) {
    size_t bytes = 64 + strlen(soname) + strlen(needed) + strlen(node);
    for (size_t i = 0; i < w->count; i++) bytes += strlen(w->stubs[i].name) + 1;
    w->strings.data = calloc(1, bytes);
    w->names = calloc(w->count + REPORTERS, sizeof *w->names);
    w->offsets = calloc(w->count + 1, sizeof *w->offsets);
    if (w->strings.data == NULL || w->names == NULL || w->offsets == NULL) return false;
    w->strings.len = 1;
    w->soname = add_string(&w->strings, soname);
    w->needed = add_string(&w->strings, needed);
    w->runpath = add_string(&w->strings, "$ORIGIN");
    w->node = add_string(&w->strings, node);
    for (size_t i = 0; i < REPORTERS; i++) w->names[i] = add_string(&w->strings, reporters[i]);
    for (size_t i = 0; i < w->count; i++) w->names[REPORTERS + i] = add_string(&w->strings, w->stubs[i].name);
    return true;
}

bool pl_elf_write(struct pl_buf *out, const char *soname, const char *needed, const struct pl_stub *stubs,
                  size_t count, const char *node, struct pl_err *err) {
    struct writer w = { .stubs = stubs, .count = count, .has_node = node[0] != '\0' };
    bool ok = false;
    for (size_t i = 0; i < count; i++)
        if (!sound(&stubs[i]))
            return PL_FAIL(err, PL_E_CONFIG, "out-parameters of %s: an index is no pointer argument",
                           stubs[i].name);
    if (gather_strings(&w, soname, needed, node)) {
        lay_out(&w);
        ok = put_sections(&w);
    }
    if (ok) {
        put_symbols(&w);
        put_hash(&w);
        put_versions(&w, soname, node);
        put_relocations(&w);
        memcpy(w.file + w.at.strtab, w.strings.data, w.strings.len);
        put_text(&w);
        put_dynamic(&w);
        put_program_headers(&w);
        ok = pl_buf_add(out, w.file, w.at.file_end);
    }
    free(w.file);
    free(w.strings.data);
    free(w.names);
    free(w.offsets);
    return ok || PL_FAIL(err, PL_E_NOMEM, "no memory for %s", soname);
}
