/* tokens.c - the token estimate against true counts: reads "GROUP TOKENS BYTES\n" and that many bytes, again
 * and again, in order of arrival; each is guessed first and learnt afterwards. Prints one line of figures for
 * each estimator, and the error of each group. Built and fed by tokens.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admit/tokens.h"

enum { MOST = 100000, WARM = 100, GROUPS = 32, METHODS = 3 };
static double ratio[METHODS][MOST], error_of[GROUPS][MOST];
static char names[GROUPS][32];
static size_t counts[GROUPS], group_count;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t group(const char *name) {
    for (size_t i = 0; i < group_count; i++)
        if (strcmp(names[i], name) == 0) return i;
    if (group_count == GROUPS) exit(1);
    snprintf(names[group_count], sizeof names[0], "%s", name);
    return group_count++;
}

static void report(const char *name, double *r, size_t n) {
    double *e = malloc(n * sizeof *e);
    if (e == NULL) exit(1);
    for (size_t i = 0; i < n; i++) e[i] = fabs(r[i] - 1) * 100;
    qsort(e, n, sizeof *e, by_value);
    qsort(r, n, sizeof *r, by_value);
    printf("{\"estimator\": \"%s\", \"median\": %.1f, \"p95\": %.1f, \"p99\": %.1f, \"factor\": %.2f}\n",
           name, e[n / 2], e[n * 95 / 100], e[n * 99 / 100], 1 / r[n / 100]);
    free(e);
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(void) {
    static struct pl_tokens learnt;
    char name[32];
    double tokens, average = 0.25, counting = 0, learning = 0;
    size_t len, seen = 0, kept = 0, little = 0, bytes = 0;
    pl_tokens_init(&learnt);
    while (seen < MOST && scanf("%31s %lf %zu", name, &tokens, &len) == 3 && getchar() == '\n') {
        char *text = malloc(len + 1);
        if (text == NULL || fread(text, 1, len, stdin) != len) return 1;
        struct pl_text_counts c = { 0 };
        double t0 = cpu_s();
        pl_text_count(&c, text, len);
        counting += cpu_s() - t0;
        bytes += len;
        struct pl_token_count e = pl_tokens_estimate(&learnt, &c, 0);
        if (seen++ >= WARM) {
            size_t g = group(name);
            double guess[METHODS] = { (double)len / 4, (double)len * average, (double)e.tokens };
            for (size_t m = 0; m < METHODS; m++) ratio[m][kept] = guess[m] / tokens;
            error_of[g][counts[g]++] = fabs((double)e.tokens / tokens - 1) * 100;
            little += (double)e.most < tokens;
            kept++;
        }
        average = 0.98 * average + 0.02 * tokens / (double)len;
        t0 = cpu_s();
        pl_tokens_learn(&learnt, &c, (uint64_t)tokens);
        learning += cpu_s() - t0;
        free(text);
    }
    if (kept < 100) return fprintf(stderr, "too few texts\n"), 1;
    report("bytes / 4", ratio[0], kept);
    report("running average of bytes a token", ratio[1], kept);
    report("least squares on byte classes", ratio[2], kept);
    printf("{\"requests\": %zu, \"factor_now\": %.2f, \"short_pct\": %.2f, \"count_mb_s\": %.0f, "
           "\"learn_us\": %.2f}\n",
           kept, learnt.factor, 100.0 * (double)little / (double)kept, (double)bytes / counting / 1e6,
           learning / (double)seen * 1e6);
    for (size_t g = 0; g < group_count; g++) {
        qsort(error_of[g], counts[g], sizeof(double), by_value);
        printf("{\"group\": \"%s\", \"requests\": %zu, \"median\": %.1f, \"p95\": %.1f}\n", names[g],
               counts[g], error_of[g][counts[g] / 2], error_of[g][counts[g] * 95 / 100]);
    }
    return 0;
}
