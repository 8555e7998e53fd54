#include "analyze/statistics_parts.h"

#include "collect/base/error.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_math.h>
#include <gsl/gsl_multifit.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

/* --- crossed factors ---------------------------------------------------------------------------------------------- */

/* A variance with what Satterthwaite's degrees of freedom need of its terms: the sum of their squares, each over its
 * own degrees. */
struct variance {
    double value, squares;
};

static void add_term(struct variance *variance, double value, double degrees)
{
    variance->value += value;
    variance->squares += gsl_pow_2(value) / degrees;
}

static double degrees_of(const struct variance *variance)
{
    return gsl_pow_2(variance->value) / variance->squares;
}

/* Adds what the rows and the error of one table bring to the variance of the mean over `tables` of them, and its
 * columns' means to theirs. */
static void add_table(const struct statistics_table *table, int tables, int columns, struct variance *rows,
                      struct variance *error, double *column_means)
{
    const int count = table->rows;
    double *means = xmalloc((size_t)count * sizeof *means), *own = xmalloc((size_t)columns * sizeof *own), squares = 0;
    for (int i = 0; i < count; i++)
        means[i] = statistics_mean(table->logs + (size_t)i * columns, columns);
    for (int j = 0; j < columns; j++) {
        own[j] = gsl_stats_mean(table->logs + j, (size_t)columns, (size_t)count);
        column_means[j] += own[j] / tables;
    }
    const double centre = statistics_mean(means, count);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < columns; j++)
            squares += gsl_pow_2(table->logs[(size_t)i * columns + j] - means[i] - own[j] + centre);
    const double degrees = (count - 1.0) * (columns - 1.0), of_all = gsl_pow_2(tables);
    add_term(rows, statistics_mean_variance(means, count) / of_all, count - 1);
    add_term(error, squares / degrees / count / columns / of_all, degrees);
    free(means);
    free(own);
}

struct interval statistics_crossed_log_interval(const struct statistics_table *tables, int count, int columns,
                                                double alpha)
{
    int cells = 0;
    bool enough = count > 0 && columns >= 2;
    double centre = count > 0 ? 0 : NAN;
    for (int i = 0; i < count; i++) {
        cells += tables[i].rows * columns;
        enough &= tables[i].rows >= 2;
        centre += statistics_mean(tables[i].logs, tables[i].rows * columns) / count;
    }
    if (!enough)
        return statistics_exponential(statistics_point(centre, cells));
    struct variance rows = {0}, error = {0}, columns_part = {0};
    double *column_means = xcalloc((size_t)columns, sizeof *column_means);
    for (int i = 0; i < count; i++)
        add_table(&tables[i], count, columns, &rows, &error, column_means);
    add_term(&columns_part, statistics_mean_variance(column_means, columns), columns - 1);
    free(column_means);
    const struct variance *larger = rows.value > columns_part.value ? &rows : &columns_part;
    const struct variance sum = {rows.value + columns_part.value - error.value,
                                 rows.squares + columns_part.squares + error.squares};
    const struct variance *used = sum.value > larger->value ? &sum : larger;
    if (!(used->value > 0))
        return statistics_exponential(statistics_around(centre, 0, cells));
    const double half = statistics_t_critical(degrees_of(used), alpha) * sqrt(used->value);
    return statistics_exponential(statistics_around(centre, half, cells));
}

/* --- least squares ------------------------------------------------------------------------------------------------ */

/* What is left of `column` when the kept ones before it are taken out, over what it was; both weighted. */
static double share_left(gsl_matrix *basis, const bool *kept, size_t column)
{
    gsl_vector_view own = gsl_matrix_column(basis, column);
    const double before = gsl_blas_dnrm2(&own.vector);
    for (size_t i = 0; i < column; i++) {
        double product;
        gsl_vector_view other = gsl_matrix_column(basis, i);
        if (!kept[i])
            continue;
        gsl_blas_ddot(&other.vector, &own.vector, &product);
        gsl_blas_daxpy(-product, &other.vector, &own.vector);
    }
    const double left = gsl_blas_dnrm2(&own.vector);
    if (left > 0)
        gsl_vector_scale(&own.vector, 1 / left);
    return before > 0 ? left / before : 0;
}

void statistics_independent(const double *design, const double *weights, int count, int terms, bool *kept)
{
    const double least = 1e-3; /* of a column: less is rounding, or a term that the others explain */
    gsl_matrix *basis = gsl_matrix_alloc((size_t)count, (size_t)terms);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < terms; j++)
            gsl_matrix_set(basis, (size_t)i, (size_t)j, design[i * terms + j] * sqrt(weights[i]));
    for (int j = 0; j < terms; j++)
        kept[j] = share_left(basis, kept, (size_t)j) > least;
    gsl_matrix_free(basis);
}

bool statistics_fit(const double *design, const double *values, const double *weights, int count, int terms,
                    double *coefficients)
{
    if (count < terms || terms < 1)
        return false;
    gsl_matrix_const_view x = gsl_matrix_const_view_array(design, (size_t)count, (size_t)terms);
    gsl_vector_const_view y = gsl_vector_const_view_array(values, (size_t)count);
    gsl_vector_const_view w = gsl_vector_const_view_array(weights, (size_t)count);
    gsl_vector_view c = gsl_vector_view_array(coefficients, (size_t)terms);
    gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc((size_t)count, (size_t)terms);
    gsl_matrix *covariance = gsl_matrix_alloc((size_t)terms, (size_t)terms);
    double squares;
    const int failed = gsl_multifit_wlinear(&x.matrix, &w.vector, &y.vector, &c.vector, covariance, &squares, work);
    gsl_matrix_free(covariance);
    gsl_multifit_linear_free(work);
    return !failed;
}
