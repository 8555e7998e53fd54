#include "analyze/statistics.h"

#include "collect/base/error.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

void statistics_holm(const double *p, int count, double *adjusted)
{
    double *known = xmalloc((size_t)(count + 1) * sizeof *known);
    size_t *order = xmalloc((size_t)(count + 1) * sizeof *order);
    for (int i = 0; i < count; i++)
        known[i] = isnan(p[i]) ? 1 : p[i];
    gsl_sort_index(order, known, 1, (size_t)count);
    double running = 0;
    for (int rank = 0; rank < count; rank++) {
        running = fmax(running, fmin(1, (count - rank) * known[order[rank]]));
        adjusted[order[rank]] = isnan(p[order[rank]]) ? NAN : running;
    }
    free(known);
    free(order);
}

static int count_present(const double *values, int count)
{
    int present = 0;
    for (int i = 0; i < count; i++)
        present += !isnan(values[i]);
    return present;
}

/* p of "b is not better than a" over the blocks that both have; NaN where they share fewer than `minimum`. */
static double paired_above_p(const double *b, const double *a, int blocks, int minimum, double *differences)
{
    int shared = 0;
    for (int i = 0; i < blocks; i++)
        if (!isnan(a[i]) && !isnan(b[i]))
            differences[shared++] = b[i] - a[i];
    return shared >= minimum ? statistics_mean_above_p(differences, shared) : NAN;
}

void statistics_unbeaten(const double *logs, int arms, int blocks, int minimum, double alpha, bool *unbeaten)
{
    double *differences = xmalloc((size_t)(blocks + 1) * sizeof *differences);
    int racing = 0;
    for (int a = 0; a < arms; a++) {
        unbeaten[a] = count_present(logs + (size_t)a * blocks, blocks) >= minimum;
        racing += unbeaten[a];
    }
    for (int a = 0; a < arms; a++)
        for (int b = 0; b < arms && unbeaten[a]; b++)
            if (b != a && count_present(logs + (size_t)b * blocks, blocks) >= minimum &&
                paired_above_p(logs + (size_t)b * blocks, logs + (size_t)a * blocks, blocks, minimum, differences) <
                    alpha / (racing - 1))
                unbeaten[a] = false;
    free(differences);
}

void statistics_benjamini_hochberg(const double *p, int count, double *adjusted)
{
    double *known = xmalloc((size_t)(count + 1) * sizeof *known);
    size_t *order = xmalloc((size_t)(count + 1) * sizeof *order);
    int tested = 0;
    for (int i = 0; i < count; i++) {
        known[i] = isnan(p[i]) ? INFINITY : p[i];
        tested += !isnan(p[i]);
        adjusted[i] = NAN;
    }
    gsl_sort_index(order, known, 1, (size_t)count);
    double running = 1;
    for (int rank = tested; rank >= 1; rank--)
        adjusted[order[rank - 1]] = running = fmin(running, known[order[rank - 1]] * tested / rank);
    free(known);
    free(order);
}

void statistics_outliers(const double *values, int count, bool *outliers)
{
    const int least = 6;
    const double limit = 3.5;
    double *work = xmalloc((size_t)(count + 1) * sizeof *work);
    double centre = NAN, spread = NAN;
    if (count >= least) {
        for (int i = 0; i < count; i++)
            work[i] = values[i];
        centre = gsl_stats_median(work, 1, (size_t)count);
        spread = gsl_stats_mad(values, 1, (size_t)count, work);
    }
    for (int i = 0; i < count; i++)
        outliers[i] = spread > 0 && fabs(values[i] - centre) > limit * spread;
    free(work);
}
