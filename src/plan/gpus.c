#include "plan/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *product;
    uint64_t mib;
    enum pl_gpu_class class;
    const char *source;
} cards[] = {
#define GPU(name, product, mib, class, source) { name, product, mib, PL_GPU_##class, source },
#include "plan/gpus.def"
#undef GPU
};
enum { CARDS = sizeof cards / sizeof *cards };

const char *pl_gpu_name(size_t i, uint64_t *mib) {
    if (i >= CARDS) return NULL;
    if (mib != NULL) *mib = cards[i].mib;
    return cards[i].name;
}

bool pl_plan_parse_bytes(const char *text, size_t len, uint64_t *out) {
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
    char number[32], *end;
    size_t digits = strspn(text, "0123456789.");
    if (digits == 0 || digits >= sizeof number || digits > len) return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    double n = strtod(number, &end);
    if (*end != '\0') return false;
    while (digits < len && text[digits] == ' ') digits++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (len - digits != 3 || strncasecmp(text + digits, units[i], 3) != 0) continue;
        double bytes = n * (double)(UINT64_C(1) << (10 * (i + 1)));
        if (!(bytes >= 1 && bytes < (double)(UINT64_C(1) << 50))) return false;
        *out = (uint64_t)bytes;
        return true;
    }
    return false;
}

enum pl_gpu_class pl_gpu_class_of(const char *product, uint64_t total_bytes) {
    if (total_bytes >= UINT64_C(160) << 30) return PL_GPU_BIG;
    if (total_bytes >= UINT64_C(70) << 30 &&
        (strstr(product, "H100") != NULL || strstr(product, "H200") != NULL))
        return PL_GPU_HOPPER;
    return PL_GPU_SMALL;
}

static bool unknown(const char *text, struct pl_err *err) {
    char names[sizeof err->hint - 40] = "";
    for (size_t i = 0; i < CARDS; i++) {
        size_t used = strlen(names);
        if (strchr(cards[i].name, 'g') != NULL && strstr(cards[i].name, "gb") != NULL)
            continue; /* MIG slices: too many to list */
        snprintf(names + used, sizeof names - used, "%s%s", used != 0 ? " " : "", cards[i].name);
    }
    PL_FAIL(err, PL_E_USAGE, "no card is called '%.40s'", text);
    return pl_err_hint(err, "known: %s; or NAME:BYTES, as mine:24GiB", names);
}

/* A name that is a product's, as the driver says it, with the driver's total: a program is told a little
 * less. */
static void take_product(struct pl_gpu *out) {
    for (size_t i = 0; i < CARDS; i++) {
        if (strcmp(cards[i].product, out->name) != 0) continue;
        snprintf(out->product, sizeof out->product, "%s", cards[i].product);
        if (cards[i].mib << 20 > out->total_bytes) return;
        out->total_bytes = cards[i].mib << 20;
        snprintf(out->source, sizeof out->source, "%s", cards[i].source);
    }
}

bool pl_gpu_parse(const char *text, struct pl_gpu *out, struct pl_err *err) {
    const char *colon = strchr(text, ':'), *x = strrchr(text, 'x');
    size_t len = strlen(text);
    *out = (struct pl_gpu){ .count = 1 };
    /* "rtx4090": an x behind which there are digits only is a count, unless the whole is a name */
    size_t card = 0;
    while (card < CARDS && strcasecmp(cards[card].name, text) != 0) card++;
    if (card == CARDS && x != NULL && x > text && x[1] != '\0' &&
        strspn(x + 1, "0123456789") == strlen(x + 1)) {
        unsigned long n = strtoul(x + 1, NULL, 10);
        if (n < 1 || n > 4096) return PL_FAIL(err, PL_E_USAGE, "'%.40s': 1 to 4096 cards", text);
        out->count = (uint32_t)n;
        len = (size_t)(x - text);
    }
    size_t name_len = colon != NULL ? (size_t)(colon - text) : len;
    if (name_len == 0 || name_len >= sizeof out->name || name_len > len) return unknown(text, err);
    memcpy(out->name, text, name_len);
    for (card = 0; card < CARDS && strcasecmp(cards[card].name, out->name) != 0; card++) continue;
    if (colon != NULL) {
        if (!pl_plan_parse_bytes(colon + 1, len - name_len - 1, &out->total_bytes)) {
            PL_FAIL(err, PL_E_USAGE, "'%.40s': no size behind the colon", text);
            return pl_err_hint(err,
                               "write the unit: %s:79.2GiB or %s:24576MiB (GB would be a guess between two)",
                               out->name, out->name);
        }
        snprintf(out->source, sizeof out->source, "as given");
        take_product(out);
        out->class = pl_gpu_class_of(card < CARDS ? cards[card].product : out->product, out->total_bytes);
        return true;
    }
    if (card == CARDS) return unknown(text, err);
    out->total_bytes = cards[card].mib << 20;
    out->class = cards[card].class;
    snprintf(out->name, sizeof out->name, "%s", cards[card].name);
    snprintf(out->product, sizeof out->product, "%s", cards[card].product);
    snprintf(out->source, sizeof out->source, "%s", cards[card].source);
    return true;
}
