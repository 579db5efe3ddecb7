#include "base/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static const struct family_info {
    const char *name, *labels, *help;
    enum pl_metric_type type;
} families[PL_METRIC_COUNT] = {
#define METRIC(id, name, type, labels, help) [PL_M_##id] = { name, labels, help, type },
#include "base/metrics.def"
#undef METRIC
};

/* As numbers, and as the page writes them: it has thousands. */
/* clang-format off */
#define SECONDS(X)                                                                                       \
    X(0.001) X(0.0025) X(0.005) X(0.01) X(0.025) X(0.05) X(0.1) X(0.25) X(0.5) X(1) X(2.5) X(5) X(10)    \
    X(25) X(50) X(100) X(300)
#define BYTES(X) /* 64 KiB * 4^n up to 64 GiB */                                                         \
    X(65536) X(262144) X(1048576) X(4194304) X(16777216) X(67108864) X(268435456) X(1073741824)          \
    X(4294967296) X(17179869184) X(68719476736)
#define NUMBER(bound) bound,
#define TEXT(bound) #bound,
static const double second_bounds[] = { SECONDS(NUMBER) };
static const double byte_bounds[] = { BYTES(NUMBER) };
static const char *const second_texts[] = { SECONDS(TEXT) "+Inf" };
static const char *const byte_texts[] = { BYTES(TEXT) "+Inf" };
/* clang-format on */

enum {
    SECOND_BOUNDS = sizeof second_bounds / sizeof second_bounds[0],
    BYTE_BOUNDS = sizeof byte_bounds / sizeof byte_bounds[0],
    MOST_BOUNDS = SECOND_BOUNDS,
    /* every byte of every value escaped, and names around them */
    LABELS_BYTES = PL_METRIC_MAX_LABELS * (2 * PL_METRIC_LABEL_BYTES + 64)
};
_Static_assert(SECOND_BOUNDS + 1 == (int)PL_METRIC_BUCKETS, "what others count by these bounds");
_Static_assert(MOST_BOUNDS >= (int)BYTE_BOUNDS, "the spare series has room for any histogram");
_Static_assert(MOST_BOUNDS + 1 == (int)PL_METRIC_BUCKETS, "who looks has room for any histogram");

struct pl_series {
    char *labels; /* name="value",…; owned; also the key: series of a family are sorted by it */
    double value; /* of a histogram: the sum */
    uint64_t count;
    enum pl_metric_type type;
    bool *stale;        /* of its family's text; borrowed */
    uint64_t buckets[]; /* histograms: how many fell into each, the last one is +Inf */
};

/* A page is asked for many times a second, and most of it is as it was: each family keeps its text. */
struct family {
    struct pl_series **series;
    size_t count, room;
    struct pl_buf text;
    bool stale; /* something of it has changed since */
};

struct pl_metrics {
    size_t series_count, max_series;
    struct family families[PL_METRIC_COUNT];
    struct pl_series *spare; /* counted on when there is no memory; never on the page */
    bool spare_stale;
};

static bool is_histogram(enum pl_metric_type t) {
    return t == PL_HISTOGRAM_SECONDS || t == PL_HISTOGRAM_BYTES;
}

static const double *bounds_of(enum pl_metric_type t, size_t *count) {
    *count = t == PL_HISTOGRAM_SECONDS ? (size_t)SECOND_BOUNDS : (size_t)BYTE_BOUNDS;
    return t == PL_HISTOGRAM_SECONDS ? second_bounds : byte_bounds;
}

static struct pl_series *series_create(enum pl_metric_type type, size_t buckets, const char *labels,
                                       size_t len) {
    struct pl_series *s = calloc(1, sizeof *s + buckets * sizeof s->buckets[0]);
    if (s == NULL) return NULL;
    s->type = type;
    s->labels = strndup(labels, len);
    if (s->labels != NULL) return s;
    free(s);
    return NULL;
}

static void series_destroy(struct pl_series *s) {
    if (s == NULL) return;
    free(s->labels);
    free(s);
}

struct pl_metrics *pl_metrics_create(size_t max_series) {
    struct pl_metrics *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    m->max_series = max_series;
    m->spare = series_create(PL_HISTOGRAM_SECONDS, MOST_BOUNDS + 1, "", 0);
    if (m->spare != NULL) {
        m->spare->stale = &m->spare_stale;
        return m;
    }
    free(m);
    return NULL;
}

void pl_metrics_destroy(struct pl_metrics *m) {
    if (m == NULL) return;
    for (size_t i = 0; i < PL_METRIC_COUNT; i++) {
        for (size_t k = 0; k < m->families[i].count; k++) series_destroy(m->families[i].series[k]);
        free(m->families[i].series);
        pl_buf_free(&m->families[i].text);
    }
    series_destroy(m->spare);
    free(m);
}

/* Writes one value with \, " and newline escaped; what is not UTF-8 cannot be on the page and becomes '?'. */
static size_t escape(char *out, const char *value) {
    size_t n = 0;
    for (size_t i = 0; value[i] != '\0' && i < PL_METRIC_LABEL_BYTES; i++) {
        char c = value[i];
        if (c == '\\' || c == '"' || c == '\n') {
            out[n++] = '\\';
            if (c == '\n') c = 'n';
        }
        /* our labels are names, reasons and addresses: one that is not plain ASCII is made so */
        if ((unsigned char)c >= 0x80) c = '?';
        out[n++] = c;
    }
    return n;
}

/* name="value",… in the table's order. A value that is missing is empty; `instead` replaces all of them if
 * not NULL. */
static size_t labels_text(char out[LABELS_BYTES], const char *names, const char *const *values, size_t count,
                          const char *instead) {
    size_t n = 0;
    for (size_t i = 0; *names != '\0'; i++) {
        size_t len = strcspn(names, ",");
        const char *value = instead != NULL ? instead : i < count && values[i] != NULL ? values[i] : "";
        if (i > 0) out[n++] = ',';
        memcpy(out + n, names, len);
        n += len;
        out[n++] = '=';
        out[n++] = '"';
        n += escape(out + n, value);
        out[n++] = '"';
        names += names[len] == ',' ? len + 1 : len;
    }
    out[n] = '\0';
    return n;
}

/* Where the series is, or where it would be inserted. */
static bool find(const struct family *f, const char *labels, size_t *at) {
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(f->series[mid]->labels, labels);
        if (order == 0) {
            *at = mid;
            return true;
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    *at = low;
    return false;
}

static struct pl_series *insert(struct pl_metrics *m, enum pl_metric id, const char *labels, size_t len,
                                size_t at) {
    struct family *f = &m->families[id];
    size_t buckets = 0;
    if (is_histogram(families[id].type)) {
        bounds_of(families[id].type, &buckets);
        buckets++;
    }
    if (f->count == f->room) {
        size_t room = f->room == 0 ? 4 : f->room * 2;
        struct pl_series **grown = realloc(f->series, room * sizeof(struct pl_series *));
        if (grown == NULL) return m->spare;
        f->series = grown;
        f->room = room;
    }
    struct pl_series *s = series_create(families[id].type, buckets, labels, len);
    if (s == NULL) return m->spare;
    memmove(f->series + at + 1, f->series + at, (f->count - at) * sizeof(struct pl_series *));
    s->stale = &f->stale;
    f->stale = true;
    f->series[at] = s;
    f->count++;
    m->series_count++;
    return s;
}

struct pl_series *pl_metrics_get(struct pl_metrics *m, enum pl_metric id, const char *const *values,
                                 size_t count) {
    char labels[LABELS_BYTES];
    size_t at, len = labels_text(labels, families[id].labels, values, count, NULL);
    if (find(&m->families[id], labels, &at)) return m->families[id].series[at];
    /* a family without labels has one series whatever the bound: nobody outside can make more of them */
    if (m->series_count >= m->max_series && len > 0) {
        len = labels_text(labels, families[id].labels, values, count, "other");
        if (find(&m->families[id], labels, &at)) return m->families[id].series[at];
    }
    return insert(m, id, labels, len, at);
}

struct pl_series *pl_series0(struct pl_metrics *m, enum pl_metric id) {
    return pl_metrics_get(m, id, NULL, 0);
}

void pl_metrics_drop(struct pl_metrics *m, enum pl_metric id, const char *const *values, size_t count) {
    char labels[LABELS_BYTES];
    size_t at;
    struct family *f = &m->families[id];
    labels_text(labels, families[id].labels, values, count, NULL);
    if (!find(f, labels, &at)) return;
    series_destroy(f->series[at]);
    f->count--;
    f->stale = true;
    m->series_count--;
    memmove(f->series + at, f->series + at + 1, (f->count - at) * sizeof(struct pl_series *));
}

void pl_series_add(struct pl_series *s, double more) {
    PL_DEBUG_ASSERT(s->type != PL_COUNTER || more >= 0);
    s->value += more;
    *s->stale = true;
}

void pl_series_set(struct pl_series *s, double value) {
    if (s->value == value) return;
    s->value = value;
    *s->stale = true;
}

static size_t bucket_of(enum pl_metric_type t, double value) {
    size_t count, i = 0;
    const double *bounds = bounds_of(t, &count);
    while (i < count && value > bounds[i]) i++;
    return i;
}

size_t pl_metric_second_bucket(double seconds) { return bucket_of(PL_HISTOGRAM_SECONDS, seconds); }

void pl_series_merge(struct pl_series *s, const uint64_t buckets[PL_METRIC_BUCKETS], double sum) {
    *s->stale = true;
    PL_DEBUG_ASSERT(s->type == PL_HISTOGRAM_SECONDS);
    for (size_t i = 0; i < PL_METRIC_BUCKETS; i++) {
        s->buckets[i] += buckets[i];
        s->count += buckets[i];
    }
    s->value += sum;
}

void pl_series_observe(struct pl_series *s, double value) {
    size_t i = bucket_of(s->type, value);
    s->buckets[i]++;
    s->value += value;
    s->count++;
    *s->stale = true;
}

double pl_series_value(const struct pl_series *s) {
    return is_histogram(s->type) ? (double)s->count : s->value;
}

void pl_metrics_each(const struct pl_metrics *m, enum pl_metric id, pl_metrics_seen *seen, void *ctx) {
    const struct family *f = &m->families[id];
    for (size_t i = 0; i < f->count; i++) seen(ctx, id, f->series[i]);
}

bool pl_series_label(const struct pl_series *s, const char *name, char *out, size_t room) {
    size_t len = strlen(name);
    out[0] = '\0';
    for (const char *at = s->labels; *at != '\0';) {
        const char *equals = strchr(at, '=');
        bool ours = (size_t)(equals - at) == len && memcmp(at, name, len) == 0;
        size_t n = 0;
        for (at = equals + 2; *at != '"'; at++) {
            bool escaped = *at == '\\';
            if (escaped) at++;
            if (ours && n + 1 < room) out[n++] = escaped && *at == 'n' ? '\n' : *at;
        }
        if (ours) out[n] = '\0';
        if (ours) return true;
        at += at[1] == ',' ? 2 : 1;
    }
    return false;
}

void pl_series_buckets(const struct pl_series *s, uint64_t out[PL_METRIC_BUCKETS]) {
    size_t count;
    bounds_of(s->type, &count);
    memset(out, 0, PL_METRIC_BUCKETS * sizeof *out);
    if (is_histogram(s->type)) memcpy(out, s->buckets, (count + 1) * sizeof *out);
}

double pl_metrics_quantile_seconds(const uint64_t buckets[PL_METRIC_BUCKETS], double q) {
    uint64_t all = 0, below = 0;
    for (size_t i = 0; i <= SECOND_BOUNDS; i++) all += buckets[i];
    if (all == 0) return (double)NAN;
    double rank = q * (double)all;
    for (size_t i = 0; i < SECOND_BOUNDS; i++) {
        if (buckets[i] > 0 && (double)(below + buckets[i]) >= rank) {
            double from = i == 0 ? 0 : second_bounds[i - 1];
            return from + (second_bounds[i] - from) * (rank - (double)below) / (double)buckets[i];
        }
        below += buckets[i];
    }
    return second_bounds[SECOND_BOUNDS - 1];
}

/* The shortest text that reads back as the same number. */
static void add_number(struct pl_buf *out, double v) {
    char text[40];
    if (isnan(v) || isinf(v)) {
        pl_buf_adds(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (v >= 0 && v < 1e15 && v == (double)(uint64_t)v) { /* most are counts, and this is asked for often */
        char *at = text + sizeof text - 1;
        uint64_t n = (uint64_t)v;
        *at = '\0';
        do *--at = (char)('0' + n % 10);
        while ((n /= 10) != 0);
        pl_buf_adds(out, at);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    pl_buf_adds(out, text);
}

static void add_sample(struct pl_buf *out, const char *name, const char *suffix, const char *labels,
                       const char *le, double value) {
    pl_buf_adds(out, name);
    pl_buf_adds(out, suffix);
    if (labels[0] != '\0' || le != NULL) {
        pl_buf_add(out, "{", 1);
        pl_buf_adds(out, labels);
        if (le != NULL) {
            pl_buf_adds(out, labels[0] != '\0' ? ",le=\"" : "le=\"");
            pl_buf_adds(out, le);
            pl_buf_add(out, "\"", 1);
        }
        pl_buf_add(out, "}", 1);
    }
    pl_buf_add(out, " ", 1);
    add_number(out, value);
    pl_buf_add(out, "\n", 1);
}

static void add_histogram(struct pl_buf *out, const char *name, const struct pl_series *s) {
    const char *const *texts = s->type == PL_HISTOGRAM_SECONDS ? second_texts : byte_texts;
    size_t count;
    uint64_t below = 0;
    bounds_of(s->type, &count);
    for (size_t i = 0; i <= count; i++) {
        below += s->buckets[i];
        add_sample(out, name, "_bucket", s->labels, texts[i], (double)below);
    }
    add_sample(out, name, "_sum", s->labels, NULL, s->value);
    add_sample(out, name, "_count", s->labels, NULL, (double)s->count);
}

static const char *type_name(enum pl_metric_type t) {
    return t == PL_COUNTER ? "counter" : t == PL_GAUGE ? "gauge" : "histogram";
}

static void render_family(const struct family *f, const struct family_info *info, struct pl_buf *out) {
    pl_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", info->name, info->help, info->name,
                type_name(info->type));
    for (size_t k = 0; k < f->count; k++) {
        if (is_histogram(info->type)) {
            add_histogram(out, info->name, f->series[k]);
        } else {
            add_sample(out, info->name, "", f->series[k]->labels, NULL, f->series[k]->value);
        }
    }
}

void pl_metrics_render(struct pl_metrics *m, struct pl_buf *out) {
    for (size_t i = 0; i < PL_METRIC_COUNT; i++) {
        struct family *f = &m->families[i];
        if (f->count == 0) continue;
        if (f->stale) {
            f->text.len = 0;
            render_family(f, &families[i], &f->text);
            f->stale = false;
        }
        pl_buf_add(out, f->text.data, f->text.len);
    }
}

/* Also what a histogram of ours is made of: a family of that name could not stand on the same page. */
static bool is_child(const char *rest, size_t len) {
    static const char *const suffixes[] = { "_bucket", "_sum", "_count" };
    for (size_t i = 0; i < 3; i++)
        if (strlen(suffixes[i]) == len && memcmp(rest, suffixes[i], len) == 0) return true;
    return false;
}

bool pl_metrics_is_ours(const char *family, size_t len) {
    for (size_t i = 0; i < PL_METRIC_COUNT; i++) {
        size_t own = strlen(families[i].name);
        if (own > len || memcmp(family, families[i].name, own) != 0) continue;
        if (own == len || (is_histogram(families[i].type) && is_child(family + own, len - own))) return true;
    }
    return false;
}
