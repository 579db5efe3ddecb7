/* drydock_elf.c - the reader: DT_NEEDED, undefined and defined names with their versions, the build id. */
#include "cli/drydock_elf.h"

#include <elf.h>
#include <string.h>

enum { LIBRARIES_MOST = 256, SEGMENTS_MOST = 128, VERSIONS_MOST = 1024, SYMBOLS_MOST = 8000000 };

struct elf {
    const unsigned char *data;
    size_t len;
    Elf64_Phdr load[SEGMENTS_MOST];
    size_t loads;
    uint64_t strings, string_bytes; /* offset in the file, and size */
    const char *version[VERSIONS_MOST];
    const struct pl_elf_sink *sink;
    struct pl_err *err;
};

/* What of the dynamic section matters; addresses of the image. 0 = not there. */
struct tags {
    uint64_t strtab, strsz, symtab, hash, gnu_hash, versym, verneed, verneed_count;
    uint64_t needed[LIBRARIES_MOST];
    size_t needed_count;
};

static bool bad(struct elf *e, const char *what) { return PL_FAIL(e->err, PL_E_CONFIG, "%s", what); }

/* A copy of `size` bytes at `offset`; false past the end. Nothing in a file need be aligned. */
static bool get(const struct elf *e, uint64_t offset, void *out, size_t size) {
    if (offset > e->len || e->len - offset < size) return false;
    memcpy(out, e->data + offset, size);
    return true;
}

static uint32_t word(const struct elf *e, uint64_t offset) {
    uint32_t v;
    return get(e, offset, &v, sizeof v) ? v : 0;
}

/* Address of the image to offset in the file; UINT64_MAX: in no segment. */
static uint64_t at(const struct elf *e, uint64_t address) {
    for (size_t i = 0; i < e->loads; i++) {
        const Elf64_Phdr *p = &e->load[i];
        if (address >= p->p_vaddr && address - p->p_vaddr < p->p_filesz)
            return p->p_offset + (address - p->p_vaddr);
    }
    return UINT64_MAX;
}

/* A string of the string table, NULL if it does not end there. */
static const char *text(const struct elf *e, uint64_t index) {
    if (index >= e->string_bytes) return NULL;
    const char *s = (const char *)e->data + e->strings + index;
    return memchr(s, '\0', (size_t)(e->string_bytes - index)) != NULL ? s : NULL;
}

static bool read_dynamic(struct elf *e, const Elf64_Phdr *p, struct tags *t) {
    Elf64_Dyn d;
    for (uint64_t done = 0; done + sizeof d <= p->p_filesz; done += sizeof d) {
        if (!get(e, p->p_offset + done, &d, sizeof d)) return bad(e, "the dynamic section is cut off");
        switch (d.d_tag) {
        case DT_NULL:
            return true;
        case DT_NEEDED:
            if (t->needed_count < LIBRARIES_MOST) t->needed[t->needed_count++] = d.d_un.d_val;
            break;
        case DT_STRTAB:
            t->strtab = d.d_un.d_ptr;
            break;
        case DT_STRSZ:
            t->strsz = d.d_un.d_val;
            break;
        case DT_SYMTAB:
            t->symtab = d.d_un.d_ptr;
            break;
        case DT_HASH:
            t->hash = d.d_un.d_ptr;
            break;
        case DT_GNU_HASH:
            t->gnu_hash = d.d_un.d_ptr;
            break;
        case DT_VERSYM:
            t->versym = d.d_un.d_ptr;
            break;
        case DT_VERNEED:
            t->verneed = d.d_un.d_ptr;
            break;
        case DT_VERNEEDNUM:
            t->verneed_count = d.d_un.d_val;
            break;
        default:
            break;
        }
    }
    return true;
}

static void read_versions(struct elf *e, const struct tags *t) {
    uint64_t need = t->verneed != 0 ? at(e, t->verneed) : UINT64_MAX;
    for (uint64_t i = 0; i < t->verneed_count && i < LIBRARIES_MOST; i++) {
        Elf64_Verneed n;
        if (need == UINT64_MAX || !get(e, need, &n, sizeof n)) return;
        uint64_t aux = need + n.vn_aux;
        for (unsigned k = 0; k < n.vn_cnt; k++) {
            Elf64_Vernaux a;
            if (!get(e, aux, &a, sizeof a)) return;
            if ((a.vna_other & 0x7fff) < VERSIONS_MOST)
                e->version[a.vna_other & 0x7fff] = text(e, a.vna_name);
            if (a.vna_next == 0) break;
            aux += a.vna_next;
        }
        if (n.vn_next == 0) return;
        need += n.vn_next;
    }
}

/* DT_HASH says it. With DT_GNU_HASH alone it is one past the end of the last chain: undefined symbols come
 * first. */
static uint64_t count_symbols(const struct elf *e, const struct tags *t) {
    if (t->hash != 0) {
        uint64_t base = at(e, t->hash);
        return base != UINT64_MAX ? word(e, base + 4) : 0;
    }
    uint64_t base = t->gnu_hash != 0 ? at(e, t->gnu_hash) : UINT64_MAX;
    if (base == UINT64_MAX) return 0;
    uint32_t buckets = word(e, base), first = word(e, base + 4), bloom = word(e, base + 8), last = 0;
    uint64_t start = base + 16 + (uint64_t)8 * bloom;
    for (uint32_t i = 0; i < buckets && i < SYMBOLS_MOST; i++) {
        uint32_t v = word(e, start + (uint64_t)4 * i);
        if (v > last) last = v;
    }
    if (last < first) return first;
    uint64_t chain = start + (uint64_t)4 * buckets, symbol = last;
    while (symbol < SYMBOLS_MOST) {
        uint32_t v;
        if (!get(e, chain + 4 * (symbol - first), &v, sizeof v)) return 0;
        symbol++;
        if ((v & 1) != 0) break;
    }
    return symbol;
}

static void tell_symbol(const struct elf *e, const Elf64_Sym *s, unsigned version) {
    const char *name = s->st_name != 0 ? text(e, s->st_name) : NULL;
    unsigned binding = ELF64_ST_BIND(s->st_info);
    if (name == NULL) return;
    if (s->st_shndx == SHN_UNDEF) {
        const char *v = version < VERSIONS_MOST ? e->version[version] : NULL;
        if (e->sink->wants != NULL) e->sink->wants(e->sink->ctx, name, v != NULL ? v : "");
    } else if ((binding == STB_GLOBAL || binding == STB_WEAK) && e->sink->has != NULL) {
        e->sink->has(e->sink->ctx, name);
    }
}

static bool read_symbols(struct elf *e, const struct tags *t) {
    uint64_t table = at(e, t->symtab), versym = t->versym != 0 ? at(e, t->versym) : UINT64_MAX;
    uint64_t count = count_symbols(e, t);
    if (table == UINT64_MAX) return bad(e, "the symbol table lies in no segment");
    if (count >= SYMBOLS_MOST) return bad(e, "more symbols than any library has");
    for (uint64_t i = 1; i < count; i++) {
        Elf64_Sym s;
        uint16_t version = 0;
        if (!get(e, table + i * sizeof s, &s, sizeof s)) return bad(e, "the symbol table is cut off");
        if (versym != UINT64_MAX) get(e, versym + 2 * i, &version, sizeof version);
        tell_symbol(e, &s, version & 0x7fffU);
    }
    return true;
}

static void read_note(const struct elf *e, const Elf64_Phdr *p) {
    Elf64_Nhdr n;
    if (e->sink->build_id == NULL || p->p_filesz < sizeof n + 4) return;
    for (uint64_t done = 0; done + sizeof n <= p->p_filesz;) {
        if (!get(e, p->p_offset + done, &n, sizeof n)) return;
        uint64_t name = p->p_offset + done + sizeof n,
                 desc = name + ((n.n_namesz + UINT64_C(3)) & ~UINT64_C(3));
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && n.n_descsz <= 64 && desc <= e->len &&
            e->len - desc >= n.n_descsz && memcmp(e->data + name, "GNU", 4) == 0)
            e->sink->build_id(e->sink->ctx, e->data + desc, n.n_descsz);
        done = desc - p->p_offset + ((n.n_descsz + UINT64_C(3)) & ~UINT64_C(3));
    }
}

static bool read_headers(struct elf *e, Elf64_Phdr *dynamic, bool *found) {
    Elf64_Ehdr h;
    if (!get(e, 0, &h, sizeof h) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return bad(e, "not an ELF file");
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
        return bad(e, "not a 64-bit little-endian ELF file");
    for (unsigned i = 0; i < h.e_phnum && i < SEGMENTS_MOST; i++) {
        Elf64_Phdr p;
        if (!get(e, h.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
            return bad(e, "the program headers are cut off");
        if (p.p_type == PT_LOAD) e->load[e->loads++] = p;
        if (p.p_type == PT_NOTE) read_note(e, &p);
        if (p.p_type == PT_DYNAMIC) {
            *dynamic = p;
            *found = true;
        }
    }
    return true;
}

bool pl_elf_read(const void *data, size_t len, const struct pl_elf_sink *sink, struct pl_err *err) {
    struct elf e = { .data = data, .len = len, .sink = sink, .err = err };
    struct tags t = { 0 };
    Elf64_Phdr dynamic;
    bool found = false;
    if (!read_headers(&e, &dynamic, &found)) return false;
    if (!found) return true;
    if (!read_dynamic(&e, &dynamic, &t)) return false;
    e.strings = at(&e, t.strtab);
    if (e.strings == UINT64_MAX || e.strings > len) return bad(&e, "the string table lies in no segment");
    e.string_bytes = t.strsz < len - e.strings ? t.strsz : len - e.strings;
    for (size_t i = 0; i < t.needed_count; i++) {
        const char *name = text(&e, t.needed[i]);
        if (name != NULL && sink->library != NULL) sink->library(sink->ctx, name);
    }
    read_versions(&e, &t);
    return t.symtab == 0 || read_symbols(&e, &t);
}
