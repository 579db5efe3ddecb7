/* Two runs side by side. B is worse where a verdict became bad, or a figure of memory rose by a tenth and
 * more than noise; speed is shown, and decides nothing: the machine has other things to do, too. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/figures.h"
#include "cli/soak.h"

#define RISE  1.1
#define NOISE (8.0 * 1024 * 1024)

static const json_t *same_scenario(const json_t *doc, const json_t *of) {
    const json_t *s;
    size_t i;
    json_array_foreach(json_object_get(doc, "scenarios"), i,
                       s) if (strcmp(pl_fig_text(s, "scenario"), pl_fig_text(of, "scenario")) == 0) return s;
    return NULL;
}

struct figure {
    const char *name, *key, *unit;
    bool of_verdict, decides;
    double noise;
};
static const struct figure figures[] = {
    { "bytes a request", "bytes_per_request", "bytes", true, true, 1024 },
    { "device at the end", "device_bytes", "bytes", false, true, NOISE },
    { "reserved at the end", "reserved_bytes", "bytes", false, true, NOISE },
    { "peak of a request", "peak_bytes", "bytes", false, true, NOISE },
    { "host at the end", "host_bytes", "bytes", false, false, NOISE },
    { "requests a second", "per_s", "count", false, false, 0 },
};

static json_t *compare_one(const json_t *a, const json_t *b, bool *worse) {
    const json_t *va = json_object_get(a, "verdict"), *vb = json_object_get(b, "verdict");
    bool bad = json_is_true(json_object_get(vb, "bad")) && !json_is_true(json_object_get(va, "bad"));
    bool failed =
        strcmp(pl_fig_text(b, "result"), "failed") == 0 && strcmp(pl_fig_text(a, "result"), "failed") != 0;
    json_t *rows = json_array();
    if (bad || failed) *worse = true;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const struct figure *f = &figures[i];
        const json_t *oa = f->of_verdict ? va : a, *ob = f->of_verdict ? vb : b;
        double x = pl_fig_number(oa, f->key), y = pl_fig_number(ob, f->key);
        if (x <= 0 && y <= 0) continue;
        bool rose = f->decides && y > RISE * x && y - x > f->noise;
        if (rose) *worse = true;
        json_array_append_new(rows, json_pack("{s:s,s:s,s:f,s:f,s:b}", "figure", f->name, "unit", f->unit,
                                              "a", x, "b", y, "worse", rose));
    }
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "scenario", pl_fig_text(b, "scenario"), "a",
                     pl_fig_text(va, "word"), "b", pl_fig_text(vb, "word"), "result_a",
                     pl_fig_text(a, "result"), "result_b", pl_fig_text(b, "result"), "figures", rows);
}

json_t *pl_soak_compare(const json_t *a, const json_t *b) {
    json_t *list = json_array(), *s;
    size_t i;
    bool worse = false;
    json_array_foreach(json_object_get(b, "scenarios"), i, s) {
        const json_t *other = same_scenario(a, s);
        if (other != NULL) json_array_append_new(list, compare_one(other, s, &worse));
    }
    return json_pack("{s:i,s:s,s:b,s:o,s:O,s:O}", "v", 1, "kind", "soak_compare", "worse", worse, "scenarios",
                     list, "a", a, "b", b);
}

static void name_of(const json_t *side, struct pl_buf *out) {
    const json_t *w;
    size_t i;
    pl_buf_addf(out, "%.200s", pl_fig_text(side, "target"));
    json_array_foreach(json_object_get(side, "with"), i, w)
        pl_buf_addf(out, " with %.120s", json_string_value(w));
}

static void value(char out[24], const json_t *f, const char *key) {
    double v = pl_fig_number(f, key);
    if (strcmp(pl_fig_text(f, "unit"), "bytes") == 0)
        pl_soak_bytes(out, v);
    else
        snprintf(out, 24, "%.1f", v);
}

void pl_soak_compare_text(const json_t *doc, struct pl_buf *out) {
    const json_t *s, *f;
    size_t i, k;
    pl_buf_adds(out, "A  ");
    name_of(json_object_get(doc, "a"), out);
    pl_buf_adds(out, "\nB  ");
    name_of(json_object_get(doc, "b"), out);
    pl_buf_adds(out, "\n");
    json_array_foreach(json_object_get(doc, "scenarios"), i, s) {
        pl_buf_addf(out, "\n%-22s %14s %14s %9s\n%-22s %14s %14s\n", pl_fig_text(s, "scenario"), "A", "B",
                    "B / A", "verdict", pl_fig_text(s, "a"), pl_fig_text(s, "b"));
        json_array_foreach(json_object_get(s, "figures"), k, f) {
            char a[24], b[24], ratio[24] = "";
            value(a, f, "a");
            value(b, f, "b");
            if (pl_fig_number(f, "a") > 0)
                snprintf(ratio, sizeof ratio, "%.2f", pl_fig_number(f, "b") / pl_fig_number(f, "a"));
            pl_buf_addf(out, "%-22s %14s %14s %9s%s\n", pl_fig_text(f, "figure"), a, b, ratio,
                        json_is_true(json_object_get(f, "worse")) ? "  worse" : "");
        }
    }
    pl_buf_addf(out, "\n%s\n",
                json_is_true(json_object_get(doc, "worse")) ? "B is worse than A" : "B is not worse than A");
}
