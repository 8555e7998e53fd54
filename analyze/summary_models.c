/* A model of a round: its time by what it does, fitted by weighted least squares in each block, and the acceptance
 * length at which each arm breaks even. */
#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

/* The time of a round is a sum of terms; errors are shares of it. */
enum { TERM_STEP, TERM_DRAFTING, TERM_ROW, TERM_CONTEXT, TERM_SESSION, TERM_COUNT };

static const struct {
    const char *name, *unit;
} terms[TERM_COUNT] = {
    [TERM_STEP] = {"step", "ms"},
    [TERM_DRAFTING] = {"drafting", "ms"},
    [TERM_ROW] = {"row", "ms a row beyond the first"},
    [TERM_CONTEXT] = {"context", "ms per 1000 tokens of all requests"},
    [TERM_SESSION] = {"session", "ms a request beyond the first"},
};

/* A cell in a block. */
struct point {
    const struct cell *cell;
    int block;
    double nodes, context, ms;
    double x[TERM_COUNT];
};

struct points {
    struct point *items;
    int count;
};

/* How many nodes a round verifies for one request; NaN where the header does not say. */
static double count_nodes(const struct attempt *attempt)
{
    if (attempt->arm.method == METHOD_AUTO || method_has_budget(attempt->arm.method))
        return attempt->arm.budget + 1;
    const json_t *drafter = json_object_get(json_object_get(attempt->header, "source"), "drafter");
    const json_t *size = json_object_get(drafter, "block_size");
    return json_is_integer(size) ? (double)json_integer_value(size) : NAN;
}

static bool fill_point(const struct cell *cell, int block, struct point *point)
{
    const struct attempt *attempt = cell_usable(cell, block, SUMMARY_VOIDS_ROUND);
    struct stage_sums sums = {0};
    if (!attempt)
        return false;
    samples_add_stages(attempt, cell->workload->name, NULL, &sums);
    const double requests = cell->arm->concurrency;
    *point =
        (struct point){cell, block, count_nodes(attempt), sums.context / sums.rounds, samples_round_ns(&sums) / 1e6};
    point->x[TERM_STEP] = 1;
    point->x[TERM_DRAFTING] = cell->arm->method != METHOD_AUTO;
    point->x[TERM_ROW] = requests * point->nodes - 1;
    point->x[TERM_CONTEXT] = isnan(point->context) ? 0 : requests * point->context / 1000;
    point->x[TERM_SESSION] = requests - 1;
    return point->ms > 0 && !isnan(point->nodes);
}

static struct points find_points(const struct cells *cells, int tensor_parallel)
{
    struct points points = {xcalloc((size_t)cells->count * (size_t)cells->blocks + 1, sizeof *points.items), 0};
    for (int block = 1; block <= cells->blocks; block++)
        for (int i = 0; i < cells->count; i++)
            if (cells->items[i].arm->tensor_parallel == tensor_parallel &&
                fill_point(&cells->items[i], block, &points.items[points.count]))
                points.count++;
    return points;
}

/* --- fit ---------------------------------------------------------------------------------------------------------- */

struct model {
    int terms[TERM_COUNT], term_count; /* those that the points tell apart */
    double *coefficients[TERM_COUNT];  /* of each term: blocks */
    int blocks;                        /* with a fit */
    double mean[TERM_COUNT];           /* over them */
};

/* The chosen terms of points, row by row, and what weighs them: errors are relative. */
static void fill_design(const struct point *points, int count, const int *chosen, int term_count, double *design,
                        double *values, double *weights)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < term_count; j++)
            design[i * term_count + j] = points[i].x[chosen[j]];
        values[i] = points[i].ms;
        weights[i] = 1 / (points[i].ms * points[i].ms);
    }
}

struct work {
    double *design, *values, *weights;
};

/* The most points of a block, which stand together. */
static int count_in_block(const struct points *points)
{
    int most = 0;
    for (int first = 0, end; first < points->count; first = end) {
        for (end = first; end < points->count && points->items[end].block == points->items[first].block;)
            end++;
        most = end - first > most ? end - first : most;
    }
    return most;
}

/* Fewer terms than points: a line through two of them fits whatever they are. */
static void choose_terms(const struct points *points, const struct work *work, struct model *model)
{
    static const int all[TERM_COUNT] = {TERM_STEP, TERM_DRAFTING, TERM_ROW, TERM_CONTEXT, TERM_SESSION};
    const int most = count_in_block(points) - 1;
    bool kept[TERM_COUNT];
    fill_design(points->items, points->count, all, TERM_COUNT, work->design, work->values, work->weights);
    statistics_independent(work->design, work->weights, points->count, TERM_COUNT, kept);
    for (int term = 0; term < TERM_COUNT; term++)
        if (kept[term] && (term == TERM_STEP || model->term_count < most))
            model->terms[model->term_count++] = term;
}

/* Points of one block stand together. A block that lacks what tells the terms apart has no fit. */
static void fit_block(const struct point *points, int count, const struct work *work, struct model *model)
{
    double coefficients[TERM_COUNT];
    bool kept[TERM_COUNT], all = count >= model->term_count;
    fill_design(points, count, model->terms, model->term_count, work->design, work->values, work->weights);
    if (all)
        statistics_independent(work->design, work->weights, count, model->term_count, kept);
    for (int i = 0; i < model->term_count && all; i++)
        all = kept[i];
    if (!all || !statistics_fit(work->design, work->values, work->weights, count, model->term_count, coefficients))
        return;
    for (int i = 0; i < model->term_count; i++)
        model->coefficients[i][model->blocks] = coefficients[i];
    model->blocks++;
}

static struct model fit(const struct cells *cells, const struct points *points)
{
    struct model model = {0};
    const size_t rows = (size_t)points->count;
    const struct work work = {xcalloc(rows * TERM_COUNT, sizeof(double)), xcalloc(rows, sizeof(double)),
                              xcalloc(rows, sizeof(double))};
    for (int i = 0; i < TERM_COUNT; i++)
        model.coefficients[i] = xcalloc((size_t)cells->blocks, sizeof *model.coefficients[i]);
    choose_terms(points, &work, &model);
    for (int first = 0, end; first < points->count && model.term_count > 1; first = end) {
        for (end = first; end < points->count && points->items[end].block == points->items[first].block; end++)
            ;
        fit_block(&points->items[first], end - first, &work, &model);
    }
    for (int i = 0; i < model.term_count; i++)
        model.mean[i] = statistics_mean_interval(model.coefficients[i], model.blocks, 0.5).value;
    free(work.design);
    free(work.values);
    free(work.weights);
    return model;
}

static void free_model(struct model *model)
{
    for (int i = 0; i < TERM_COUNT; i++)
        free(model->coefficients[i]);
}

static double fitted_ms(const struct model *model, const struct point *point)
{
    double sum = 0;
    for (int i = 0; i < model->term_count; i++)
        sum += model->mean[i] * point->x[model->terms[i]];
    return sum;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *make_terms(const struct cells *cells, const struct model *model)
{
    json_t *array = json_array();
    for (int i = 0; i < model->term_count; i++) {
        struct interval interval = statistics_mean_interval(model->coefficients[i], model->blocks, cells->plan->alpha);
        if (model->blocks < cells->plan->min_blocks)
            interval.low = interval.high = NAN;
        json_t *object = json_object();
        json_set(object, "name", json_string(terms[model->terms[i]].name));
        json_set(object, "unit", json_string(terms[model->terms[i]].unit));
        json_set(object, "estimate", summary_make_interval(interval, "blocks"));
        json_append(array, object);
    }
    return array;
}

/* A cell's points: their geometric mean, and the terms of the first. */
struct fitted {
    const struct point *first;
    double log_sum;
    int count;
};

static struct fitted *find_fitted(const struct cells *cells, const struct points *points)
{
    struct fitted *fitted = xcalloc((size_t)cells->count, sizeof *fitted);
    for (int i = 0; i < points->count; i++) {
        struct fitted *of_cell = &fitted[points->items[i].cell - cells->items];
        if (!of_cell->first)
            of_cell->first = &points->items[i];
        of_cell->log_sum += log(points->items[i].ms);
        of_cell->count++;
    }
    return fitted;
}

static const struct fitted *find_auto(const struct cells *cells, const struct fitted *fitted, const struct cell *cell)
{
    for (int i = 0; i < cells->count; i++) {
        const struct arm *arm = cells->items[i].arm;
        if (fitted[i].first && cells->items[i].workload == cell->workload && arm->method == METHOD_AUTO &&
            arm->tensor_parallel == cell->arm->tensor_parallel && arm->concurrency == cell->arm->concurrency)
            return &fitted[i];
    }
    return NULL;
}

static json_t *make_fits(const struct cells *cells, const struct model *model, const struct fitted *fitted)
{
    json_t *array = json_array();
    for (int i = 0; i < cells->count; i++) {
        if (!fitted[i].first)
            continue;
        const struct cell *cell = &cells->items[i];
        const struct fitted *plain = find_auto(cells, fitted, cell);
        const double ms = fitted_ms(model, fitted[i].first);
        char name[ARM_NAME_SIZE];
        json_t *object = json_object();
        json_set(object, "arm", json_text(arm_name(cell->arm, name)));
        json_set(object, "workload", json_text(cell->workload->name));
        json_set(object, "nodes", json_number(fitted[i].first->nodes));
        json_set(object, "context", json_number(fitted[i].first->context));
        json_set(object, "observed_ms", json_number(exp(fitted[i].log_sum / fitted[i].count)));
        json_set(object, "fitted_ms", json_number(ms));
        json_set(object, "break_even_tau", json_number(plain ? ms / fitted_ms(model, plain->first) : NAN));
        json_append(array, object);
    }
    return array;
}

/* Of the variance of cells' logarithms the share that the model explains, and the largest relative error. */
static void set_quality(const struct cells *cells, const struct model *model, const struct fitted *fitted,
                        json_t *object)
{
    double mean = 0, left = 0, all = 0, worst = 0;
    int count = 0;
    for (int i = 0; i < cells->count; i++)
        if (fitted[i].first) {
            mean += fitted[i].log_sum / fitted[i].count;
            count++;
        }
    for (int i = 0; i < cells->count; i++)
        if (fitted[i].first) {
            const double value = fitted[i].log_sum / fitted[i].count;
            const double error = value - log(fitted_ms(model, fitted[i].first));
            left += error * error;
            all += (value - mean / count) * (value - mean / count);
            worst = fmax(worst, fabs(expm1(error)));
        }
    json_set(object, "r_squared", json_number(all > 0 ? 1 - left / all : NAN));
    json_set(object, "largest_misfit", json_number(worst));
}

static json_t *make_model(const struct cells *cells, int tensor_parallel)
{
    const struct points points = find_points(cells, tensor_parallel);
    json_t *object = NULL;
    if (points.count) {
        struct model model = fit(cells, &points);
        struct fitted *fitted = find_fitted(cells, &points);
        if (model.blocks) {
            object = json_object();
            json_set(object, "tensor_parallel", json_integer(tensor_parallel));
            json_set(object, "blocks", json_integer(model.blocks));
            json_set(object, "points", json_integer(points.count));
            json_set(object, "terms", make_terms(cells, &model));
            set_quality(cells, &model, fitted, object);
            json_set(object, "fits", make_fits(cells, &model, fitted));
        }
        free(fitted);
        free_model(&model);
    }
    free(points.items);
    return object;
}

json_t *summary_make_round_models(const struct cells *cells)
{
    const struct plan *plan = cells->plan;
    json_t *array = json_array();
    for (int i = 0; i < plan->arm_count; i++) {
        int first = 0;
        while (plan->arms[first].tensor_parallel != plan->arms[i].tensor_parallel)
            first++;
        json_t *model = first == i ? make_model(cells, plan->arms[i].tensor_parallel) : NULL;
        if (model)
            json_append(array, model);
    }
    return array;
}
