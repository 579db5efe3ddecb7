/* model/weights.h - the bytes of a model's tensors, by how a parallel engine spreads them.
 *
 * Filled from safetensors headers, GGUF tensor infos, plain file sizes, or the geometry alone. `origin` says
 * which: only the first two are exact. Classes are told by a tensor's name, as transformers and llama.cpp
 * name them; a name that is not known counts as a sharded matrix of its layer. */
#ifndef PL_MODEL_WEIGHTS_H
#define PL_MODEL_WEIGHTS_H
#include "model/model.h"

enum pl_weight_origin { PL_WEIGHTS_NONE, PL_WEIGHTS_HEADER, PL_WEIGHTS_FILES, PL_WEIGHTS_FORMULA };
enum pl_weight_class {
    PL_WEIGHT_SHARDED,    /* divided by TP */
    PL_WEIGHT_KV,         /* k and v projections: divided, then repeated beyond the number of KV heads */
    PL_WEIGHT_REPLICATED, /* norms, routers, MLA's A-projections */
    PL_WEIGHT_EXPERT,     /* divided by TP, or by TP * DP with expert parallelism */
    PL_WEIGHT_CLASSES
};
struct pl_weight_part {
    uint64_t bytes[PL_WEIGHT_CLASSES];
};
struct pl_weights {
    enum pl_weight_origin origin;
    uint64_t total, tensors, files, largest_file; /* bytes, counts, bytes */
    uint64_t by_dtype[PL_DTYPE_COUNT];
    uint64_t embed, head, vision; /* outside of the layers */
    struct pl_weight_part rest;   /* outside of the layers, anything else */
    struct pl_weight_part layer[PL_MODEL_LAYERS];
    uint32_t layers; /* highest index seen + 1 */
    uint64_t
        matrices; /* bytes of 16- and 32-bit matrices inside layers: what 8- or 4-bit weights would shrink */
    uint64_t matrix_values; /* and how many numbers they are */
};
/* One tensor. */
void pl_weights_add(struct pl_weights *w, const char *name, size_t name_len, enum pl_dtype dtype,
                    uint64_t values, uint64_t bytes, unsigned dims);
/* From the geometry, when no file is at hand. false: the configuration does not say enough; `err` names what
 * is missing. */
bool pl_weights_from_model(struct pl_weights *w, const struct pl_model *m, struct pl_err *err);
/* One file that is not read (pytorch_model.bin): its size stands for its tensors. */
void pl_weights_add_file(struct pl_weights *w, uint64_t file_bytes);

/* A safetensors file: 8 bytes of length, JSON header, data. `bytes` holds the length and the header;
 * `file_bytes` is the size of the file. Nothing but the header is looked at; refuses what does not add up:
 * lengths, overlaps, sizes that differ from dtype and shape, a file shorter than its header says. */
bool pl_safetensors_add(struct pl_weights *w, const char *bytes, size_t len, uint64_t file_bytes,
                        struct pl_err *err);
/* Bytes of the header after the first 8, or 0 with `err` when that cannot be. */
uint64_t pl_safetensors_header(const char first[8], uint64_t file_bytes, struct pl_err *err);

/* model.safetensors.index.json: the files it names, each once. Names that leave the folder are refused. */
struct pl_shards {
    const char **names;
    size_t count;
    uint64_t total_bytes; /* metadata.total_size; 0 = not said */
};
bool pl_safetensors_index(const char *text, size_t len, struct pl_arena *arena, struct pl_shards *out,
                          struct pl_err *err);

/* A GGUF file's head: metadata into `m`, tensors into `w` (either may be NULL: the other parts of a split
 * file have no metadata). `bytes` is the beginning of a file of `file_bytes`. */
enum pl_gguf_result { PL_GGUF_OK, PL_GGUF_MORE, PL_GGUF_BAD }; /* MORE: the head is longer than `len` */
enum pl_gguf_result pl_gguf_read(const char *bytes, size_t len, uint64_t file_bytes, struct pl_arena *arena,
                                 struct pl_model *m, struct pl_weights *w, struct pl_err *err);
/* Bytes of `values` numbers of a row in a ggml type (by its name: "q8_0"), UINT64_MAX when there is no such
 * type. */
uint64_t pl_ggml_row(const char *type, uint64_t values);
#endif
