#include "ledger/trend.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define Z_99           2.576
#define CYCLE_TURNS    1.75
#define CYCLE_GRID     0.25
#define CYCLE_EXPLAINS 0.9 /* of the variance that a line leaves */

enum { PAIRS_MAX = PL_TREND_MAX * (PL_TREND_MAX - 1) / 2 };

/* Hoare's selection: a[k] as if sorted. Reorders. */
static double nth(double *a, size_t n, size_t k) {
    size_t lo = 0, hi = n - 1;
    while (lo < hi) {
        double pivot = a[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i >= j) break;
            double t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
        /* a[lo..j] <= pivot <= a[j+1..hi] */
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return a[k];
}

static size_t slopes_of(const double *v, uint32_t n, double *out) {
    size_t count = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        for (uint32_t j = i + 1; j < n; j++) out[count++] = (v[j] - v[i]) / (double)(j - i);
    return count;
}

/* Z, and the variance of the score. */
static double mann_kendall(const double *v, uint32_t n, double *variance) {
    int64_t score = 0, tied = 0;
    bool counted[PL_TREND_MAX] = { false };
    for (uint32_t i = 0; i < n; i++) {
        int64_t same = 1;
        for (uint32_t j = i + 1; j < n; j++) {
            score += (v[j] > v[i]) - (v[j] < v[i]);
            if (v[j] == v[i] && !counted[i]) {
                counted[j] = true;
                same++;
            }
        }
        if (!counted[i]) tied += same * (same - 1) * (2 * same + 5);
    }
    int64_t m = n;
    *variance = (double)(m * (m - 1) * (2 * m + 5) - tied) / 18;
    if (*variance <= 0) return 0;
    return (double)(score - (score > 0) + (score < 0)) / sqrt(*variance);
}

static struct pl_slope slope_of(const double *v, uint32_t n) {
    struct pl_slope out = { 0 };
    double slopes[PAIRS_MAX], variance;
    out.z = mann_kendall(v, n, &variance);
    size_t count = slopes_of(v, n, slopes);
    if (count == 0) return out;
    double reach = Z_99 * sqrt(variance > 0 ? variance : 0), pairs = (double)count;
    double under = (pairs - reach) / 2, over = (pairs + reach) / 2;
    out.low = nth(slopes, count, under > 0 ? (size_t)under : 0);
    out.high = nth(slopes, count, over < pairs - 1 ? (size_t)over : count - 1);
    out.mid = nth(slopes, count, count / 2);
    return out;
}

static double quarter(const double *v, uint32_t n, uint32_t i) {
    uint32_t from = i * n / 4, to = (i + 1) * n / 4;
    double slopes[PAIRS_MAX];
    size_t count = slopes_of(v + from, to - from, slopes);
    return count == 0 ? 0 : nth(slopes, count, count / 2);
}

static void steps_and_falls(const double *v, struct pl_trend *t) {
    double sum = 0, squares = 0, top = v[0];
    for (uint32_t i = 1; i < t->n; i++) {
        double rise = v[i] - v[i - 1];
        if (rise > 0) {
            sum += rise;
            squares += rise * rise;
        }
        if (v[i] > top) top = v[i];
        if (top - v[i] > t->fall) t->fall = top - v[i];
    }
    t->rises = squares > 0 ? sum * sum / squares : 0;
    t->growth = v[t->n - 1] - v[0];
}

static void wander(const double *v, struct pl_trend *t) {
    double rest[PL_TREND_MAX];
    for (uint32_t i = 0; i < t->n; i++) rest[i] = v[i] - t->all.mid * (double)i;
    double at = nth(rest, t->n, t->n / 2);
    for (uint32_t i = 0; i < t->n; i++) {
        double off = fabs(v[i] - t->all.mid * (double)i - at);
        if (off > t->wander) t->wander = off;
    }
}

void pl_trend_of(const double *v, uint32_t n, struct pl_trend *out) {
    memset(out, 0, sizeof *out);
    if (n > PL_TREND_MAX) n = PL_TREND_MAX;
    out->n = n;
    if (n < 4) return;
    out->all = slope_of(v, n);
    out->early = slope_of(v, n / 2);
    out->late = slope_of(v + n / 2, n - n / 2);
    out->first_quarters = fmax(fmax(quarter(v, n, 0), quarter(v, n, 1)), quarter(v, n, 2));
    out->last_quarter = quarter(v, n, 3);
    steps_and_falls(v, out);
    wander(v, out);
}

/* --- a cycle */

/* Solves the 4x4 normal equations in place by elimination with pivots; false when they are singular. */
static bool solve(double a[4][5]) {
    for (int c = 0; c < 4; c++) {
        int best = c;
        for (int r = c + 1; r < 4; r++)
            if (fabs(a[r][c]) > fabs(a[best][c])) best = r;
        if (fabs(a[best][c]) < 1e-9) return false;
        for (int k = 0; k < 5; k++) {
            double t = a[c][k];
            a[c][k] = a[best][k];
            a[best][k] = t;
        }
        for (int r = 0; r < 4; r++) {
            if (r == c) continue;
            double f = a[r][c] / a[c][c];
            for (int k = c; k < 5; k++) a[r][k] -= f * a[c][k];
        }
    }
    for (int c = 0; c < 4; c++) a[c][4] /= a[c][c];
    return true;
}

/* What line plus harmonic of `turns` leaves over (sum of squares); `fit`: a, b, cos, sin. */
static double harmonic(const double *v, uint32_t n, double turns, double fit[4]) {
    double a[4][5] = { { 0 } };
    double step = 2 * M_PI * turns / n, mid = ((double)n - 1) / 2;
    double cs = 1, sn = 0, cd = cos(step), sd = sin(step);
    double x[PL_TREND_MAX][4];
    for (uint32_t i = 0; i < n; i++) {
        x[i][0] = 1, x[i][1] = ((double)i - mid) / mid, x[i][2] = cs, x[i][3] = sn;
        for (int r = 0; r < 4; r++) {
            for (int c = 0; c < 4; c++) a[r][c] += x[i][r] * x[i][c];
            a[r][4] += x[i][r] * v[i];
        }
        double next = cs * cd - sn * sd;
        sn = sn * cd + cs * sd;
        cs = next;
    }
    if (!solve(a)) return HUGE_VAL;
    double left = 0;
    for (int k = 0; k < 4; k++) fit[k] = a[k][4];
    for (uint32_t i = 0; i < n; i++) {
        double y = v[i];
        for (int k = 0; k < 4; k++) y -= fit[k] * x[i][k];
        left += y * y;
    }
    return left;
}

static double line_leaves(const double *v, uint32_t n) {
    double sy = 0, sxy = 0, sxx = 0, mid = ((double)n - 1) / 2, left = 0;
    for (uint32_t i = 0; i < n; i++) {
        sy += v[i];
        sxy += ((double)i - mid) * v[i];
        sxx += ((double)i - mid) * ((double)i - mid);
    }
    double b = sxy / sxx, a = sy / n;
    for (uint32_t i = 0; i < n; i++) {
        double off = v[i] - a - b * ((double)i - mid);
        left += off * off;
    }
    return left;
}

double pl_trend_take_cycle(double *v, uint32_t n) {
    if (n < 16 || n > PL_TREND_MAX) return 0;
    double y[PL_TREND_MAX], base = v[0], fit[4], best_fit[4] = { 0 }, best_turns = 0;
    for (uint32_t i = 0; i < n; i++) y[i] = v[i] - base;
    double whole = line_leaves(y, n), best = whole;
    for (double turns = CYCLE_TURNS; turns <= n / 4.0; turns += CYCLE_GRID) {
        double left = harmonic(y, n, turns, fit);
        if (left >= best) continue;
        best = left;
        best_turns = turns;
        memcpy(best_fit, fit, sizeof best_fit);
    }
    if (whole <= 0 || best > (1 - CYCLE_EXPLAINS) * whole) return 0;
    for (uint32_t i = 0; i < n; i++) {
        double phase = 2 * M_PI * best_turns * i / n;
        v[i] -= best_fit[2] * cos(phase) + best_fit[3] * sin(phase);
    }
    return sqrt(best_fit[2] * best_fit[2] + best_fit[3] * best_fit[3]); /* hypot() would ask for glibc 2.35 */
}
