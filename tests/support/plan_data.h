/* tests/support/plan_data.h - the planner's data files as its own structs. */
#ifndef PL_TESTS_PLAN_DATA_H
#define PL_TESTS_PLAN_DATA_H
#include "json.h"
#include "plan/kv.h"

static inline struct json *plan_data(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) json_die("cannot open", path);
    static char text[1 << 20];
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    const char *at = text;
    return json_value(&at);
}
static inline double plan_number(const struct json *o, const char *name, double none) {
    struct json *j = json_get(o, name);
    return j != NULL && j->kind == JSON_NUMBER ? j->number : none;
}
static inline uint64_t plan_count(const struct json *o, const char *name) {
    return (uint64_t)plan_number(o, name, 0);
}

static inline struct pl_kv_layer plan_layer(const struct json *j) {
    static const struct {
        const char *name;
        enum pl_kv_kind kind;
    } kinds[] = { { "full", PL_KV_FULL },
                  { "sw", PL_KV_SLIDING },
                  { "chunk", PL_KV_CHUNKED },
                  { "mla", PL_KV_MLA },
                  { "mamba", PL_KV_STATE } };
    struct pl_kv_layer l = { .heads = 1 };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, json_str(j, "kind")) == 0) l.kind = kinds[i].kind;
    if (l.kind == PL_KV_MLA) {
        l.cell_bytes = plan_count(j, "content");
    } else if (l.kind == PL_KV_STATE) {
        l.state_bytes = plan_count(j, "state");
        l.aligned = strcmp(json_str(j, "mode"), "align") == 0;
        l.spec = plan_count(j, "spec");
    } else {
        l.heads = plan_count(j, "heads");
        l.head_k = l.head_v = plan_count(j, "head");
        l.dtype_bits = 8 * plan_count(j, "dt");
        l.cell_bytes = 2 * l.head_k * plan_count(j, "dt");
        l.window = plan_count(j, l.kind == PL_KV_CHUNKED ? "chunk" : "win");
    }
    return l;
}
/* Appends a list of layers `times` over. */
static inline size_t plan_layers(const struct json *list, int times, struct pl_kv_layer *out, size_t n) {
    for (; times > 0; times--)
        for (struct json *j = list != NULL ? list->first : NULL; j != NULL; j = j->next)
            for (int k = (int)plan_number(j, "n", 1); k > 0; k--, n++) {
                out[n] = plan_layer(j);
                out[n].layer = (uint32_t)n;
            }
    return n;
}
static inline size_t plan_model(const struct json *model, struct pl_kv_layer *out) {
    size_t n = plan_layers(json_get(model, "layers"), (int)plan_number(model, "repeat", 1), out, 0);
    return plan_layers(json_get(model, "tail"), 1, out, n);
}
/* An object of the data as JSON text again. */
static inline void plan_write(const struct json *j, FILE *f) {
    bool first = true;
    switch (j->kind) {
    case JSON_NULL:
        fputs("null", f);
        break;
    case JSON_BOOL:
        fputs(j->number != 0 ? "true" : "false", f);
        break;
    case JSON_NUMBER:
        fprintf(f, "%.17g", j->number);
        break;
    case JSON_TEXT:
        fprintf(f, "\"%s\"", j->text);
        break;
    case JSON_LIST:
    case JSON_OBJECT:
        fputc(j->kind == JSON_LIST ? '[' : '{', f);
        for (struct json *k = j->first; k != NULL; k = k->next, first = false) {
            if (!first) fputc(',', f);
            if (j->kind == JSON_OBJECT) fprintf(f, "\"%s\":", k->name);
            plan_write(k, f);
        }
        fputc(j->kind == JSON_LIST ? ']' : '}', f);
    }
}
#endif
