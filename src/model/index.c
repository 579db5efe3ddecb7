/* index.c - model.safetensors.index.json: which file holds which tensor. */
#include <jansson.h>
#include <string.h>

#include "model/weights.h"

enum { MOST_SHARDS = 4096 };

static bool safe(const char *name) {
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strlen(name) < 256;
}

static bool collect(json_t *map, struct pl_arena *arena, struct pl_shards *out, struct pl_err *err) {
    const char *tensor;
    json_t *file, *seen = json_object();
    bool ok = seen != NULL && (out->names = pl_arena_alloc(arena, MOST_SHARDS * sizeof *out->names)) != NULL;
    if (!ok) PL_FAIL(err, PL_E_NOMEM, "no memory for the index");
    json_object_foreach(map, tensor, file) {
        const char *name = json_is_string(file) ? json_string_value(file) : "";
        if (!ok || json_object_get(seen, name) != NULL) continue;
        if (!safe(name))
            ok = PL_FAIL(err, PL_E_CONFIG, "a tensor lies in a file whose name is not one of this folder");
        else if (out->count == MOST_SHARDS)
            ok = PL_FAIL(err, PL_E_CONFIG, "more than %d files", MOST_SHARDS);
        else if ((out->names[out->count++] = pl_arena_strndup(arena, name, strlen(name))) == NULL ||
                 json_object_set_new(seen, name, json_true()) != 0)
            ok = PL_FAIL(err, PL_E_NOMEM, "no memory for the index");
    }
    json_decref(seen);
    return ok;
}

bool pl_safetensors_index(const char *text, size_t len, struct pl_arena *arena, struct pl_shards *out,
                          struct pl_err *err) {
    json_error_t at;
    *out = (struct pl_shards){ .names = NULL };
    json_t *root = len <= PL_HEADER_BYTES ? json_loadb(text, len, 0, &at) : NULL;
    if (root == NULL)
        return PL_FAIL(err, PL_E_CONFIG, "%d:%d: %s", len <= PL_HEADER_BYTES ? at.line : 1,
                       len <= PL_HEADER_BYTES ? at.column : 1,
                       len <= PL_HEADER_BYTES ? at.text : "too long for an index");
    json_t *map = json_object_get(root, "weight_map"),
           *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    bool ok = json_is_object(map) && json_object_size(map) > 0;
    if (!ok) PL_FAIL(err, PL_E_CONFIG, "1:1: weight_map is missing");
    if (json_is_number(total) && json_number_value(total) > 0 && json_number_value(total) < 1e18)
        out->total_bytes = (uint64_t)json_number_value(total);
    ok = ok && collect(map, arena, out, err);
    json_decref(root);
    return ok;
}
