#include "snapshot/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MIB = PL_ALLOC_MIB;
enum { DEFAULT_LARGE_MIB = 20, LONGEST_KEY = 48, LONGEST_VALUE = 200 };

void pl_alloc_conf_init(struct pl_alloc_conf *c) {
    *c = (struct pl_alloc_conf){ .max_split = PL_ALLOC_UNLIMITED,
                                 .large_segment = DEFAULT_LARGE_MIB * MIB,
                                 .non_split_rounding = DEFAULT_LARGE_MIB * MIB,
                                 .fraction = 1.0 };
}

static bool wrong(struct pl_err *err, const char *key, const char *value, const char *want) {
    return PL_FAIL(err, PL_E_CONFIG, "allocator setting %s:%.80s: %s", key, value, want);
}

static bool to_number(const char *text, uint64_t least, uint64_t most, uint64_t *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    unsigned long long n = strtoull(text, &end, 10);
    *out = n;
    return *end == '\0' && n >= least && n <= most;
}

static bool to_share(const char *text, bool open, double *out) {
    char *end;
    if ((text[0] < '0' || text[0] > '9') && text[0] != '.') return false;
    *out = strtod(text, &end);
    return *end == '\0' && *out >= 0 && *out <= 1 && (!open || (*out > 0 && *out < 1));
}

static bool to_switch(const char *text, bool *out) {
    *out = strcmp(text, "True") == 0;
    return *out || strcmp(text, "False") == 0;
}

static bool is_power(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

static unsigned log2_of(uint64_t n) { return 63u - (unsigned)__builtin_clzll(n); }

/* "[256:1,512:2,>:4]": the first entry fills the lower intervals too, '>' what is above the last. */
static bool roundup_list(struct pl_alloc_conf *c, char *text) {
    size_t last = 0;
    bool first = true;
    for (char *save = NULL, *item = strtok_r(text, ",", &save); item != NULL;
         item = strtok_r(NULL, ",", &save)) {
        char *colon = strchr(item, ':');
        uint64_t mib = 0, divisions;
        if (colon == NULL) return false;
        *colon = '\0';
        bool above = strcmp(item, ">") == 0;
        if (!to_number(colon + 1, 0, 1 << 20, &divisions) || (divisions != 0 && !is_power(divisions)))
            return false;
        if (!above && (!to_number(item, 1, UINT64_C(1) << 40, &mib) || !is_power(mib))) return false;
        size_t at = above ? (first ? 0 : last + 1) : log2_of(mib);
        if (at >= PL_SNAP_INTERVALS) at = PL_SNAP_INTERVALS - 1;
        size_t begin = first ? 0 : at, end = above ? PL_SNAP_INTERVALS : at + 1;
        for (size_t i = begin; i < end; i++) c->roundup[i] = (uint32_t)divisions;
        last = at;
        first = false;
    }
    return !first;
}

static bool set_roundup(struct pl_alloc_conf *c, char *value) {
    uint64_t n;
    size_t len = strlen(value);
    if (value[0] == '[') {
        if (value[len - 1] != ']') return false;
        value[len - 1] = '\0';
        return roundup_list(c, value + 1);
    }
    if (!to_number(value, 0, 1 << 20, &n) || (n != 0 && !is_power(n))) return false;
    for (size_t i = 0; i < PL_SNAP_INTERVALS; i++) c->roundup[i] = (uint32_t)n;
    return true;
}

/* Of the host, of captures, of nothing that moves a block. */
static bool changes_no_layout(const char *key) {
    static const char *const keys[] = {
        "release_lock_on_cudamalloc",           "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",    "expandable_segments_reserve",
        "expandable_segments_reserve_by_class",
    };
    if (strncmp(key, "pinned_", 7) == 0) return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool set_key(struct pl_alloc_conf *c, const char *key, char *value, struct pl_err *err) {
    uint64_t n;
    if (strcmp(key, "expandable_segments") == 0)
        return to_switch(value, &c->expandable) || wrong(err, key, value, "it is True or False");
    if (strcmp(key, "max_split_size_mb") == 0) {
        uint64_t least = c->large_segment / MIB;
        if (!to_number(value, least, UINT64_MAX / MIB / 2, &n))
            return wrong(err, key, value, "a number of MiB, at least the large segment (20)");
        c->max_split = n * MIB;
        return true;
    }
    if (strcmp(key, "garbage_collection_threshold") == 0)
        return to_share(value, true, &c->gc) || wrong(err, key, value, "a share above 0 and below 1");
    if (strcmp(key, "per_process_memory_fraction") == 0)
        return to_share(value, false, &c->fraction) || wrong(err, key, value, "a share from 0 to 1");
    if (strcmp(key, "roundup_power2_divisions") == 0)
        return set_roundup(c, value) || wrong(err, key, value, "a power of 2, or [256:1,512:2,>:4] in MiB");
    if (strcmp(key, "large_segment_size_mb") == 0) return true; /* read first */
    if (strcmp(key, "max_non_split_rounding_mb") == 0) {
        if (!to_number(value, c->large_segment / MIB, UINT64_MAX / MIB / 2, &n))
            return wrong(err, key, value, "a number of MiB, at least the large segment (20)");
        c->non_split_rounding = n * MIB;
        return true;
    }
    if (strcmp(key, "throw_on_cudamalloc_oom") == 0)
        return to_switch(value, &c->throw_on_oom) || wrong(err, key, value, "it is True or False");
    if (strcmp(key, "backend") == 0) {
        c->async = strcmp(value, "cudaMallocAsync") == 0;
        return c->async || strcmp(value, "native") == 0 ||
               wrong(err, key, value, "it is native or cudaMallocAsync");
    }
    if (changes_no_layout(key)) return true;
    PL_FAIL(err, PL_E_CONFIG, "allocator setting '%.60s' is not known", key);
    return pl_err_hint(err,
                       "PyTorch would raise ValueError; the keys are in its notes on CUDA memory management");
}

/* The next "key:value" without blanks. 1: there is one, 0: the end, -1: wrong. */
static int next_pair(const char **at, char key[LONGEST_KEY], char value[LONGEST_VALUE]) {
    size_t k = 0, v = 0;
    int depth = 0;
    const char *p = *at;
    while (*p == ' ' || *p == ',') p++;
    if (*p == '\0') return 0;
    for (; *p != '\0' && *p != ':'; p++)
        if (*p != ' ' && k < LONGEST_KEY) key[k++] = *p;
    if (*p == '\0' || k == 0 || k == LONGEST_KEY) return -1;
    for (p++; *p != '\0' && (*p != ',' || depth > 0); p++) {
        depth += (*p == '[') - (*p == ']');
        if (*p != ' ' && v < LONGEST_VALUE) value[v++] = *p;
    }
    if (v == 0 || v == LONGEST_VALUE) return -1;
    key[k] = value[v] = '\0';
    *at = p;
    return 1;
}

bool pl_alloc_conf_parse(struct pl_alloc_conf *c, const char *text, struct pl_err *err) {
    char key[LONGEST_KEY], value[LONGEST_VALUE];
    for (int turn = 0; turn < 2; turn++) { /* the large segment first: others are measured by it */
        const char *at = text;
        int what;
        while ((what = next_pair(&at, key, value)) == 1) {
            uint64_t n;
            if (turn == 1 && !set_key(c, key, value, err)) return false;
            if (turn == 1 || strcmp(key, "large_segment_size_mb") != 0) continue;
            if (!to_number(value, 11, UINT64_C(1) << 20, &n))
                return wrong(err, key, value, "a number of MiB above 10");
            c->large_segment = c->non_split_rounding = n * MIB;
        }
        if (what < 0) {
            PL_FAIL(err, PL_E_CONFIG, "allocator settings '%.100s' are not key:value,key:value", text);
            return pl_err_hint(err, "for example expandable_segments:True");
        }
    }
    return true;
}

void pl_alloc_conf_recorded(const struct pl_snap *s, struct pl_alloc_conf *c) {
    struct pl_err err;
    const struct pl_snap_settings *x = &s->settings;
    pl_alloc_conf_init(c);
    const char *text = pl_snap_conf(s);
    if (text[0] != '\0' && !pl_alloc_conf_parse(c, text, &err)) pl_alloc_conf_init(c);
    c->order_by_age = pl_snap_orders_by_age(s);
    if (!x->present) return;
    c->expandable = x->expandable;
    c->gc = x->gc > 0 && x->gc < 1 ? x->gc : 0;
    c->max_split = x->max_split > 0 ? (uint64_t)x->max_split : PL_ALLOC_UNLIMITED;
    if (x->has_roundup) memcpy(c->roundup, x->roundup, sizeof c->roundup);
}
