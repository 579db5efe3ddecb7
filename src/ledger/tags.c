#include "ledger/tags.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define PRIOR         1e6 /* of each coefficient, over the noise: as good as nothing known */
#define UNKNOWN       1e3 /* what is left of it when the windows said nothing about a tag */
#define DISCOVERY     0.01
#define Z_95          1.96
#define LEAST_SHARE   0.05
#define MOSTLY_QUIET  0.9
#define LEAST_QUIET   30 /* changes of a tag before its mean is told */
#define LEAST_WINDOWS 8  /* more windows than columns, before a regression is told */

void pl_tags_start(struct pl_tags *t) {
    memset(t, 0, sizeof *t);
    t->tag[PL_TAGS_MAX].name = PL_TAG_OTHER;
    for (int i = 0; i < PL_TAGS_FITTED; i++) t->p[i][i] = PRIOR;
}

static uint32_t index_of(struct pl_tags *t, uint16_t name, bool failed) {
    if (t->last < t->count && t->tag[t->last].name == name && t->tag[t->last].failed == failed)
        return t->last;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->tag[i].name == name && t->tag[i].failed == failed) return t->last = i;
    if (t->count == PL_TAGS_MAX) return PL_TAGS_MAX;
    t->tag[t->count].name = name;
    t->tag[t->count].failed = failed;
    return t->last = t->count++;
}

static uint32_t column_of(uint32_t index) { return index < PL_TAGS_FITTED - 1 ? index : PL_TAGS_FITTED - 1; }

/* One equation: counts . per_request = change. */
static void learn(struct pl_tags *t, double change) {
    double x[PL_TAGS_FITTED] = { 0 }, px[PL_TAGS_FITTED], said = 0, scale = 1;
    uint32_t n = t->count < PL_TAGS_FITTED ? t->count : PL_TAGS_FITTED;
    if (t->tag[PL_TAGS_MAX].requests > 0) n = PL_TAGS_FITTED;
    for (uint32_t i = 0; i <= PL_TAGS_MAX; i++) x[column_of(i)] += t->tag[i].at_floor;
    for (uint32_t i = 0; i < n; i++) {
        px[i] = 0;
        for (uint32_t j = 0; j < n; j++) px[i] += t->p[i][j] * x[j];
        said += x[i] * t->per_request[i];
    }
    for (uint32_t i = 0; i < n; i++) scale += x[i] * px[i];
    double off = change - said;
    for (uint32_t i = 0; i < n; i++) {
        t->per_request[i] += px[i] / scale * off;
        for (uint32_t j = 0; j <= i; j++) t->p[i][j] = t->p[j][i] = t->p[i][j] - px[i] * px[j] / scale;
    }
    t->rest += off * off / scale;
    t->fitted = n;
    t->windows++;
}

void pl_tags_broken(struct pl_tags *t) {
    for (uint32_t i = 0; i <= PL_TAGS_MAX; i++) t->tag[i].since_floor = t->tag[i].at_floor = 0;
    t->window_filled = 0;
    t->has_floor = false;
}

/* The floor of a window lies where it was lowest: the next one's counts begin there. */
static void close_window(struct pl_tags *t) {
    if (t->has_floor) learn(t, t->window_floor - t->last_floor);
    t->last_floor = t->window_floor;
    t->has_floor = true;
    for (uint32_t i = 0; i <= PL_TAGS_MAX; i++) t->tag[i].since_floor -= t->tag[i].at_floor;
    t->window_filled = 0;
}

static struct pl_tag *counted(struct pl_tags *t, uint16_t name, bool failed) {
    struct pl_tag *tag = &t->tag[index_of(t, name, failed)];
    tag->requests++;
    tag->since_floor++;
    t->requests++;
    return tag;
}

void pl_tags_count(struct pl_tags *t, uint16_t name, bool failed) { counted(t, name, failed); }

void pl_tags_add(struct pl_tags *t, uint16_t name, bool failed, double bytes, bool quiet, double own,
                 uint64_t peak_bytes) {
    struct pl_tag *tag = counted(t, name, failed);
    if (peak_bytes > tag->peak_bytes) tag->peak_bytes = peak_bytes;
    if (quiet) {
        tag->quiet++;
        tag->sum += own;
        tag->squares += own * own;
        t->quiet++;
    }
    if (t->window_filled == 0 || bytes <= t->window_floor) {
        t->window_floor = bytes;
        for (uint32_t i = 0; i <= PL_TAGS_MAX; i++) t->tag[i].at_floor = t->tag[i].since_floor;
    }
    if (++t->window_filled == PL_TAGS_WINDOW) close_window(t);
}

/* --- report */

struct estimate {
    uint32_t index; /* of tag, the first one of its column */
    uint64_t requests;
    double mid, error, p;
    bool separable, certain;
};

/* One-sided: it leaves nothing behind. */
static double p_of(double mid, double error) {
    if (error <= 0) return mid > 0 ? 0 : 1;
    return erfc(mid / error / sqrt(2)) / 2;
}

static uint32_t exact(const struct pl_tags *t, struct estimate *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i <= PL_TAGS_MAX; i++) {
        const struct pl_tag *tag = &t->tag[i];
        if (tag->quiet < LEAST_QUIET) continue;
        double count = (double)tag->quiet, mean = tag->sum / count;
        double variance = fmax(0, (tag->squares - count * mean * mean) / (count - 1));
        e[n++] = (struct estimate){ .index = i,
                                    .requests = tag->requests,
                                    .mid = mean,
                                    .error = sqrt(variance / count),
                                    .separable = true };
    }
    return n;
}

static uint32_t regressed(const struct pl_tags *t, struct estimate *e) {
    uint32_t n = t->fitted;
    if (t->windows < n + LEAST_WINDOWS) return 0;
    double noise = t->rest / (double)(t->windows - n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = i == PL_TAGS_FITTED - 1 && t->count > PL_TAGS_FITTED ? PL_TAGS_MAX : i;
        e[i] = (struct estimate){ .index = first,
                                  .mid = t->per_request[i],
                                  .error = sqrt(fmax(0, t->p[i][i]) * noise),
                                  .separable = t->p[i][i] < UNKNOWN };
        for (uint32_t k = 0; k <= PL_TAGS_MAX; k++)
            if (column_of(k) == i) e[i].requests += t->tag[k].requests;
    }
    return n;
}

/* Benjamini-Hochberg: the largest k with p(k) <= k / n * rate; all up to it are certain. */
static void test_all(struct estimate *e, uint32_t n) {
    double limit = -1;
    for (uint32_t i = 0; i < n; i++) e[i].p = p_of(e[i].mid, e[i].error);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = 0;
        for (uint32_t k = 0; k < n; k++) rank += e[k].p <= e[i].p;
        if (e[i].p <= DISCOVERY * rank / n && e[i].p > limit) limit = e[i].p;
    }
    for (uint32_t i = 0; i < n; i++) e[i].certain = e[i].p <= limit && e[i].mid > 0;
}

static double grown_by(const struct estimate *e) { return e->certain ? e->mid * (double)e->requests : 0; }

void pl_tags_report(const struct pl_tags *t, double bytes_per_request, struct pl_tag_report *out) {
    struct estimate e[PL_TAGS_MAX + 1];
    memset(out, 0, sizeof *out);
    if (!(bytes_per_request > 0)) return;
    double least = LEAST_SHARE * bytes_per_request * (double)t->requests;
    out->exact = (double)t->quiet >= MOSTLY_QUIET * (double)t->requests;
    uint32_t n = out->exact ? exact(t, e) : regressed(t, e);
    test_all(e, n);
    for (uint32_t i = 0; i < n; i++) e[i].certain = e[i].certain && grown_by(&e[i]) >= least;
    double all = 0, failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        all += grown_by(&e[i]);
        if (t->tag[e[i].index].failed) failed += grown_by(&e[i]);
    }
    if (all <= 0) return;
    out->failed_share = failed / all;
    while (out->count < PL_TAG_SHARES) {
        struct estimate *best = NULL;
        for (uint32_t i = 0; i < n; i++)
            if (grown_by(&e[i]) > 0 && (best == NULL || grown_by(&e[i]) > grown_by(best))) best = &e[i];
        if (best == NULL) return;
        out->of[out->count++] = (struct pl_tag_share){
            .name = t->tag[best->index].name,
            .failed = t->tag[best->index].failed,
            .certain = true,
            .separable = best->separable,
            .bytes_per_request = best->mid,
            .low = best->mid - Z_95 * best->error,
            .high = best->mid + Z_95 * best->error,
            .share = grown_by(best) / all,
        };
        best->certain = false; /* taken */
    }
}
