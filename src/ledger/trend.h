/* ledger/trend.h - what the shape of a short series says: rank test for a trend, robust slope with bounds, a
 * cycle, steps, falls.
 *
 * Mann-Kendall with the correction for ties; Sen's slope (median of all pairwise slopes) with the bounds of
 * its 99 % interval at the sorted slopes (N -+ 2.576 sqrt(var)) / 2 (Gilbert, Statistical Methods for
 * Environmental Pollution Monitoring, 1987, 16.4 and 17.3). A cycle is the one harmonic that explains most of
 * what a line leaves over, by least squares over a grid of frequencies.
 */
#ifndef PL_LEDGER_TREND_H
#define PL_LEDGER_TREND_H
#include <stdint.h>

enum { PL_TREND_MAX = 64 };

/* Bytes per bucket. */
struct pl_slope {
    double low, mid, high; /* Sen's, 99 % */
    double z;              /* Mann-Kendall; 0 when nothing varies */
};

struct pl_trend {
    uint32_t n;
    struct pl_slope all, early, late; /* whole, first and second half */
    double first_quarters;            /* largest Sen slope of the first three quarters */
    double last_quarter;
    double growth; /* last less first value */
    double fall;   /* largest fall from a running maximum */
    double rises;  /* how many equal rises would make this growth: (sum)^2 / sum of squares */
    double wander; /* largest distance from the Sen line */
};

/* `v`: n <= 64 finite values; fewer than 4 give zeros. */
void pl_trend_of(const double *v, uint32_t n, struct pl_trend *out);

/* Takes a cycle out of `v` if one harmonic of nearly two turns or more explains nine tenths of what a line
 * leaves over. Returns its amplitude in bytes; 0 when there is none and v is as it was. */
double pl_trend_take_cycle(double *v, uint32_t n);
#endif
