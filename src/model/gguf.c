/* gguf.c - the head of a GGUF file: bytes to key-values and tensor infos. What the keys mean is
 * gguf_model.c's business.
 *
 * Format (version 2 and 3, little-endian): "GGUF", u32 version, u64 tensors, u64 keys; each key a string (u64
 * length, bytes), u32 type, value; an array is u32 type, u64 count, values; each tensor a name, u32 dims, u64
 * x dims, u32 type, u64 offset; then padding to general.alignment, then data. */
#include <string.h>

#include "model/gguf.h"
#include "model/num.h"

enum { MOST_KEYS = 1 << 16, MOST_TENSORS = 1 << 20, MOST_NAME = 1 << 16, MOST_DIMS = 4 };

static const struct {
    const char *name;
    uint64_t values, bytes;
} types[] = {
#define GGML(id, name, values, bytes) [id] = { name, values, bytes },
#include "model/ggml.def"
#undef GGML
};
enum { TYPES = sizeof types / sizeof *types };

uint64_t pl_ggml_row(const char *type, uint64_t values) {
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].name != NULL && strcmp(types[i].name, type) == 0)
            return pl_mul(pl_cdiv(values, types[i].values), types[i].bytes);
    return UINT64_MAX;
}

static bool wrong(struct pl_gguf *g, const char *what) {
    if (g->state == PL_GGUF_OK) {
        g->state = PL_GGUF_BAD;
        PL_FAIL(g->err, PL_E_CONFIG, "GGUF, byte %zu: %s", g->at, what);
    }
    return false;
}

/* The next `n` bytes, or NULL: too long for the file is a mistake, too long for what we have is MORE. */
static const char *take(struct pl_gguf *g, uint64_t n) {
    if (g->state != PL_GGUF_OK) return NULL;
    if (n > g->file_bytes || g->at > g->file_bytes - n)
        return wrong(g, "the file ends inside its head"), NULL;
    if (n > g->len || g->at > g->len - n) return g->state = PL_GGUF_MORE, NULL;
    const char *p = g->bytes + g->at;
    g->at += (size_t)n;
    return p;
}
static uint64_t whole(struct pl_gguf *g, unsigned width) {
    const unsigned char *p = (const unsigned char *)take(g, width);
    uint64_t n = 0;
    for (unsigned i = width; p != NULL && i > 0; i--) n = n << 8 | p[i - 1];
    return n;
}
static struct pl_gguf_text text(struct pl_gguf *g) {
    struct pl_gguf_text t = { NULL, 0 };
    uint64_t n = whole(g, 8);
    t.at = take(g, n);
    if (t.at != NULL) t.len = (size_t)n;
    return t;
}

static unsigned width_of(uint32_t type) {
    static const unsigned char widths[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return type < sizeof widths ? widths[type] : 0;
}

static double scalar(uint32_t type, uint64_t raw) {
    float f;
    double d;
    uint32_t low = (uint32_t)raw;
    switch (type) {
    case PL_GGUF_INT8:
        return (int8_t)raw;
    case PL_GGUF_INT16:
        return (int16_t)raw;
    case PL_GGUF_INT32:
        return (int32_t)raw;
    case PL_GGUF_INT64:
        return (double)(int64_t)raw;
    case PL_GGUF_FLOAT32:
        memcpy(&f, &low, sizeof f);
        return (double)f;
    case PL_GGUF_FLOAT64:
        memcpy(&d, &raw, sizeof d);
        return d;
    default:
        return (double)raw;
    }
}

/* Keeps the numbers of a list that is no longer than the layers of a model can be; longer ones (vocabularies)
 * are stepped over. */
static bool read_list(struct pl_gguf *g, struct pl_gguf_value *v) {
    uint32_t type = (uint32_t)whole(g, 4);
    uint64_t count = whole(g, 8);
    if (g->state != PL_GGUF_OK) return false;
    v->count = count;
    if (type == PL_GGUF_STRING) {
        for (uint64_t i = 0; i < count && g->state == PL_GGUF_OK; i++) text(g);
        return g->state == PL_GGUF_OK;
    }
    unsigned width = width_of(type);
    if (width == 0) return wrong(g, "a list of an unknown type");
    if (count > PL_MODEL_LAYERS) return take(g, pl_mul(count, width)) != NULL;
    for (uint64_t i = 0; i < count; i++) v->list[i] = scalar(type, whole(g, width));
    v->kind = PL_GGUF_LIST;
    return g->state == PL_GGUF_OK;
}

static bool read_value(struct pl_gguf *g, struct pl_gguf_value *v) {
    uint32_t type = (uint32_t)whole(g, 4);
    v->kind = PL_GGUF_NOTHING;
    v->count = 0;
    if (g->state != PL_GGUF_OK) return false;
    if (type == PL_GGUF_STRING) {
        v->text = text(g);
        v->kind = PL_GGUF_TEXT;
    } else if (type == PL_GGUF_ARRAY) {
        return read_list(g, v);
    } else if (width_of(type) != 0) {
        v->number = scalar(type, whole(g, width_of(type)));
        v->kind = PL_GGUF_NUMBER;
    } else {
        return wrong(g, "a value of an unknown type");
    }
    return g->state == PL_GGUF_OK;
}

static bool read_tensor(struct pl_gguf *g, struct pl_weights *w) {
    struct pl_gguf_text name = text(g);
    uint32_t dims = (uint32_t)whole(g, 4);
    uint64_t values = 1, row = 0;
    if (g->state != PL_GGUF_OK) return false;
    if (name.len > MOST_NAME || dims > MOST_DIMS)
        return wrong(g, "a tensor with too long a name or too many dimensions");
    for (uint32_t i = 0; i < dims; i++) {
        uint64_t n = whole(g, 8);
        if (i == 0) row = n;
        values = pl_mul(values, n);
    }
    uint32_t type = (uint32_t)whole(g, 4);
    uint64_t offset = whole(g, 8);
    if (g->state != PL_GGUF_OK) return false;
    if (type >= TYPES || types[type].name == NULL) {
        wrong(g, "a tensor of a type that is not known");
        return pl_err_hint(g->err, "the file is newer than this program, or damaged");
    }
    if (dims > 0 && row % types[type].values != 0) return wrong(g, "a tensor whose rows are no whole blocks");
    uint64_t bytes = pl_mul(values / types[type].values, types[type].bytes);
    if (values == UINT64_MAX || bytes == UINT64_MAX) return wrong(g, "a tensor of impossible size");
    g->data_end = pl_max(g->data_end, pl_add(offset, bytes));
    static const struct {
        const char *name;
        enum pl_dtype dtype;
    } plain[] = { { "f32", PL_DTYPE_F32 }, { "f16", PL_DTYPE_F16 }, { "bf16", PL_DTYPE_BF16 } };
    enum pl_dtype dtype = PL_DTYPE_PACKED;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].name, types[type].name) == 0) dtype = plain[i].dtype;
    if (w != NULL) pl_weights_add(w, name.at, name.len, dtype, values, bytes, dims);
    return true;
}

static bool read_head(struct pl_gguf *g, struct pl_gguf_keys *keys, struct pl_weights *w) {
    const char *magic = take(g, 4);
    if (magic != NULL && memcmp(magic, "GGUF", 4) != 0) {
        g->at = 0;
        return wrong(g, "not a GGUF file");
    }
    uint32_t version = (uint32_t)whole(g, 4);
    if (g->state == PL_GGUF_OK && (version < 2 || version > 3)) {
        wrong(g, version == 1 || (version & 0xffff) == 0 ? "version 1 or big-endian: not read"
                                                         : "a version that is not known");
        return pl_err_hint(g->err, "version 2 and 3, little-endian, are read; convert the file anew");
    }
    uint64_t tensors = whole(g, 8), count = whole(g, 8), alignment = 32;
    if (g->state != PL_GGUF_OK) return false;
    if (tensors > MOST_TENSORS || count > MOST_KEYS) return wrong(g, "more tensors or keys than a model has");
    for (uint64_t i = 0; i < count; i++) {
        struct pl_gguf_text name = text(g);
        if (g->state == PL_GGUF_OK && name.len > MOST_NAME) return wrong(g, "a key with too long a name");
        if (!read_value(g, keys->value)) return false;
        if (name.len == 17 && memcmp(name.at, "general.alignment", 17) == 0 &&
            keys->value->kind == PL_GGUF_NUMBER) {
            if (!(keys->value->number >= 1 && keys->value->number <= 1 << 20))
                return wrong(g, "an alignment that cannot be");
            alignment = (uint64_t)keys->value->number;
        }
        pl_gguf_key(keys, name, keys->value);
    }
    for (uint64_t i = 0; i < tensors; i++)
        if (!read_tensor(g, w)) return false;
    uint64_t data = pl_round_up(g->at, alignment);
    if (tensors > 0 && pl_add(data, g->data_end) > g->file_bytes) {
        PL_FAIL(g->err, PL_E_CONFIG, "GGUF: the tensors end at byte %llu, the file has %llu: it is cut off",
                (unsigned long long)pl_add(data, g->data_end), (unsigned long long)g->file_bytes);
        g->state = PL_GGUF_BAD;
        return pl_err_hint(g->err, "fetch the file again");
    }
    return true;
}

enum pl_gguf_result pl_gguf_read(const char *bytes, size_t len, uint64_t file_bytes, struct pl_arena *arena,
                                 struct pl_model *m, struct pl_weights *w, struct pl_err *err) {
    struct pl_gguf g = {
        .bytes = bytes, .len = len, .file_bytes = file_bytes, .err = err, .state = PL_GGUF_OK
    };
    struct pl_arena_mark mark = pl_arena_mark(arena);
    struct pl_gguf_keys *keys = pl_arena_alloc(arena, sizeof *keys);
    struct pl_gguf_value *value = pl_arena_alloc(arena, sizeof *value);
    struct pl_weights *mine = w != NULL ? pl_arena_alloc(arena, sizeof *mine) : NULL;
    if (keys == NULL || value == NULL || (w != NULL && mine == NULL)) {
        PL_FAIL(err, PL_E_NOMEM, "no memory for the head of the file");
        return PL_GGUF_BAD;
    }
    keys->value = value;
    if (w != NULL) *mine = *w;
    if (!read_head(&g, keys, mine)) {
        enum pl_gguf_result state = g.state;
        pl_arena_rollback(arena, mark);
        return state;
    }
    if (w != NULL) {
        *w = *mine;
        w->origin = PL_WEIGHTS_HEADER;
        w->files++;
        w->largest_file = pl_max(w->largest_file, file_bytes);
    }
    return m == NULL || pl_gguf_model(keys, m, arena, err) ? PL_GGUF_OK : PL_GGUF_BAD;
}
