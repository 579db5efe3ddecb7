/* cards.c - words to cards: GPU names, bytes, faults. Pure. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "table.h"

static const struct dd_gpu known[] = {
#define GPU(name, product, mib, class, source) { name, product, 0, 0, 0, 1, (uint64_t)(mib) << 20 },
#include "plan/gpus.def"
#undef GPU
};
/* What programs ask of the silicon: the first row whose name begins the card's. Public data of the makers. A
 * MIG slice has `slice` multiprocessors for each of its parts (1g, 2g ...). */
static const struct {
    const char *begins;
    int major, minor, sms, slice;
} silicon[] = {
    { "t4", 7, 5, 40, 0 },        { "l4", 8, 9, 58, 0 },      { "a100", 8, 0, 108, 14 },
    { "a10", 8, 6, 72, 0 },       { "rtx3090", 8, 6, 82, 0 }, { "rtx4090", 8, 9, 128, 0 },
    { "rtx5090", 12, 0, 170, 0 }, { "h100", 9, 0, 132, 16 },  { "h200", 9, 0, 132, 16 },
    { "b200", 10, 0, 148, 18 },
};
enum { KNOWN = sizeof known / sizeof *known };

const struct dd_gpu *dd_gpu_known(size_t *count) {
    *count = KNOWN;
    return known;
}

static bool say(char error[DD_ERROR], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool say(char error[DD_ERROR], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error, DD_ERROR, fmt, ap);
    va_end(ap);
    return false;
}

bool dd_bytes_parse(const char *text, uint64_t *out, char error[DD_ERROR]) {
    static const struct {
        const char *word;
        int shift;
    } units[] = { { "", 0 }, { "B", 0 }, { "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "TiB", 40 } };
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value >= 0) || !isdigit((unsigned char)text[0]))
        return say(error, "'%.40s' is not a number of bytes: 24GiB, 400MiB or 1048576", text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].word) != 0) continue;
        value *= (double)(UINT64_C(1) << units[i].shift);
        if (value >= 17592186044416.0) return say(error, "'%.40s' is more than 16 TiB", text);
        *out = (uint64_t)value;
        return true;
    }
    if (strcasecmp(end, "MB") == 0 || strcasecmp(end, "GB") == 0 || strcasecmp(end, "KB") == 0)
        return say(error, "'%.40s' has two readings: write %ciB (powers of 1024), or the bytes in full", text,
                   toupper((unsigned char)*end));
    return say(error, "'%.40s': unknown unit '%.20s'; KiB, MiB, GiB or TiB", text, end);
}

/* "a100-40-1g.5gb" is a slice: the digit before "g.", else 0. */
static int slices(const char *name) {
    const char *at = strstr(name, "g.");
    return at != NULL && at - name >= 2 && at[-2] == '-' && isdigit((unsigned char)at[-1]) ? at[-1] - '0' : 0;
}

static bool unknown_gpu(const char *text, char error[DD_ERROR]) {
    char names[200] = "";
    for (size_t i = 0; i < KNOWN; i++)
        if (slices(known[i].key) == 0)
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s", known[i].key);
    return say(error, "unknown GPU '%.40s'; known:%s, MIG slices (--list), any other as NAME:BYTES", text,
               names);
}

/* A card that is not in the table is taken for an A100 of another name and size. */
static void set_silicon(struct dd_gpu *g) {
    g->major = 8;
    g->minor = 0;
    g->sms = 108;
    for (size_t i = 0; i < sizeof silicon / sizeof *silicon; i++) {
        if (strncmp(g->key, silicon[i].begins, strlen(silicon[i].begins)) != 0) continue;
        g->major = silicon[i].major;
        g->minor = silicon[i].minor;
        g->sms = slices(g->key) != 0 ? slices(g->key) * silicon[i].slice : silicon[i].sms;
        return;
    }
}

static const struct dd_gpu *find_gpu(const char *name) {
    for (size_t i = 0; i < KNOWN; i++)
        if (strcasecmp(known[i].key, name) == 0 || strcasecmp(known[i].product, name) == 0) return &known[i];
    return NULL;
}

/* The N of a trailing xN, 0 if there is none; cuts it off. */
static int cut_count(char *name) {
    char *x = strrchr(name, 'x');
    if (x == NULL || x == name || x[1] == '\0' || strspn(x + 1, "0123456789") != strlen(x + 1)) return 0;
    int n = atoi(x + 1);
    *x = '\0';
    return n;
}

bool dd_gpu_parse(const char *text, struct dd_gpu *out, char error[DD_ERROR]) {
    static __thread char free_name[DD_NAME];
    char name[DD_NAME], *bytes;
    int count = 0;
    if ((size_t)snprintf(name, sizeof name, "%s", text) >= sizeof name || text[0] == '\0' || text[0] == ':')
        return unknown_gpu(text, error);
    bytes = strchr(name, ':');
    if (bytes != NULL) {
        *bytes++ = '\0';
        count = cut_count(bytes);
    }
    const struct dd_gpu *found = find_gpu(name);
    if (found == NULL && count == 0) { /* rtx4090 is a name, a100-40x2 is two of them */
        count = cut_count(name);
        found = find_gpu(name);
    }
    if (found == NULL && bytes == NULL) return unknown_gpu(text, error);
    snprintf(free_name, sizeof free_name, "%s", name);
    *out = found != NULL ? *found : (struct dd_gpu){ .key = "", .product = free_name };
    set_silicon(out);
    if (bytes != NULL && !dd_bytes_parse(bytes, &out->total, error)) return false;
    if (out->total < (uint64_t)64 << 20) return say(error, "'%.40s': a card has at least 64MiB", text);
    out->count = count != 0 ? count : 1;
    return out->count <= DD_CARDS || say(error, "'%.40s': at most %d cards", text, DD_CARDS);
}

/* --- faults */

static bool set_fault(struct dd_card *c, const char *word, char error[DD_ERROR]) {
    static const struct {
        const char *word;
        uint32_t bit;
    } bits[] = { { "silent", DD_SILENT }, { "lost", DD_LOST }, { "kept", DD_KEPT }, { "hidden", DD_HIDDEN } };
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (strcmp(word, bits[i].word) != 0) continue;
        __atomic_or_fetch(&c->faults, bits[i].bit, __ATOMIC_SEQ_CST);
        return true;
    }
    if (strcmp(word, "none") == 0) {
        __atomic_store_n(&c->faults, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&c->foreign, 0, __ATOMIC_SEQ_CST);
        return true;
    }
    if (strncmp(word, "foreign:", 8) == 0) {
        uint64_t bytes;
        if (!dd_bytes_parse(word + 8, &bytes, error)) return false;
        __atomic_store_n(&c->foreign, bytes, __ATOMIC_SEQ_CST);
        return true;
    }
    if (strncmp(word, "xid:", 4) == 0 && word[4] != '\0' &&
        strspn(word + 4, "0123456789") == strlen(word + 4)) {
        __atomic_store_n(&c->xid, (uint32_t)strtoul(word + 4, NULL, 10), __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&c->xids, 1, __ATOMIC_SEQ_CST);
        return true;
    }
    return say(error, "unknown fault '%.40s'; known: silent lost xid:N foreign:BYTES kept hidden none", word);
}

bool dd_faults_parse(struct dd_table *t, const char *text, char error[DD_ERROR]) {
    while (*text != '\0') {
        char word[64], *end;
        size_t len = strcspn(text, ",");
        if (len >= sizeof word) return say(error, "fault '%.40s' is too long", text);
        memcpy(word, text, len);
        word[len] = '\0';
        long card = strtol(word, &end, 10);
        if (end == word || *end != '=')
            return say(error, "fault '%.40s' is not GPU=WHAT, such as 0=lost", word);
        if (card < 0 || card >= t->cards)
            return say(error, "fault '%.40s': there are %d cards, counted from 0", word, t->cards);
        if (!set_fault(&t->card[card], end + 1, error)) return false;
        text += len + (text[len] == ',');
    }
    return true;
}

bool dd_table_fill(struct dd_table *t, const struct dd_plan *p, char error[DD_ERROR]) {
    struct dd_gpu gpu;
    if (!dd_gpu_parse(p->gpu, &gpu, error)) return false;
    if (p->count < 0 || p->count > DD_CARDS) return say(error, "1 to %d cards", DD_CARDS);
    t->bytes = sizeof *t;
    t->version = DD_VERSION;
    snprintf(t->name, sizeof t->name, "%s", gpu.product);
    t->major = gpu.major;
    t->minor = gpu.minor;
    t->sms = gpu.sms;
    t->cards = p->count != 0 ? p->count : gpu.count;
    t->context = p->context;
    t->fail_at = p->fail_at;
    for (int i = 0; i < DD_CARDS; i++) {
        t->card[i].total = gpu.total;
        t->card[i].cap = p->cap;
    }
    return p->faults == NULL || dd_faults_parse(t, p->faults, error);
}
