/* What a summary says of a run as a whole: how it scales, its best budgets, models of a round, drift, devices,
 * and how it compares with a run before. */
#include "render/summary_parts.h"

#include <math.h>

#define LIMIT SUMMARY_NUMBER_LIMIT

static int read_place(const struct summary *summary, const char *where, const char *arm, const char *workload,
                      int *arm_index, int *workload_index, struct error *error)
{
    if (summary_read_arm_name(summary, where, arm, arm_index, error))
        return -1;
    *workload_index = SUMMARY_ALL_WORKLOADS;
    return workload ? summary_read_workload_name(summary, where, workload, workload_index, error) : 0;
}

static int read_scaling(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    struct scaling *scaling = to;
    const char *arm, *reference, *workload = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"reference", JSON_FIELD_STRING, &reference, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, false, 0, 0},
        {"pairing", JSON_FIELD_STRING, &scaling->pairing, false, 0, 0},
        {"marks", JSON_FIELD_ARRAY, &scaling->marks, false, 0, 0},
        {0},
    };
    const struct interval_field intervals[] = {
        {"speedup", &scaling->speedup, true},
        {"efficiency", &scaling->efficiency, true},
        {"communicate_share", &scaling->communicate_share, false},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_place(summary, where, arm, workload, &scaling->arm, &scaling->workload, error) ||
        summary_read_arm_name(summary, where, reference, &scaling->reference, error) ||
        summary_read_intervals(object, where, intervals, error) ||
        summary_read_missing(object, where, "missing", &scaling->missing, error))
        return -1;
    return summary_check_strings(scaling->marks, where, "marks", error);
}

static int read_best_budget(const json_t *object, const char *where, struct summary *summary, void *to,
                            struct error *error)
{
    struct best_budget *best = to;
    *best = (struct best_budget){
        .workload = SUMMARY_ALL_WORKLOADS, .arm = -1, .baseline = -1, .tensor_parallel = 1, .concurrency = 1};
    const char *arm = NULL, *baseline = NULL, *workload = NULL;
    const struct json_field fields[] = {
        {"tensor_parallel", JSON_FIELD_INT, &best->tensor_parallel, false, 1, 1e6},
        {"concurrency", JSON_FIELD_INT, &best->concurrency, false, 1, 1e6},
        {"workload", JSON_FIELD_STRING, &workload, false, 0, 0},
        {"budgets", JSON_FIELD_INT, &best->budgets, false, 0, 1e6},
        {"selected_on", JSON_FIELD_STRING, &best->selected_on, false, 0, 0},
        {"arm", JSON_FIELD_STRING, &arm, false, 0, 0},
        {"baseline", JSON_FIELD_STRING, &baseline, false, 0, 0},
        {0},
    };
    const struct interval_field intervals[] = {
        {"tuning_speedup", &best->tuning_speedup, true}, {"speedup", &best->speedup, true}, {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        (arm && summary_read_arm_name(summary, where, arm, &best->arm, error)) ||
        (baseline && summary_read_arm_name(summary, where, baseline, &best->baseline, error)) ||
        (workload && summary_read_workload_name(summary, where, workload, &best->workload, error)) ||
        summary_read_intervals(object, where, intervals, error) ||
        summary_read_limits(object, where, "bound", true, &best->bound, error))
        return -1;
    return summary_read_missing(object, where, "missing", &best->missing, error);
}

static int read_term(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    (void)summary;
    struct model_term *term = to;
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &term->name, true, 0, 0},
        {"unit", JSON_FIELD_STRING, &term->unit, false, 0, 0},
        {0},
    };
    const struct interval_field intervals[] = {{"estimate", &term->estimate, false}, {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    return summary_read_intervals(object, where, intervals, error);
}

static int read_fit(const json_t *object, const char *where, struct summary *summary, void *to, struct error *error)
{
    struct model_fit *fit = to;
    *fit =
        (struct model_fit){.nodes = NAN, .context = NAN, .observed_ms = NAN, .fitted_ms = NAN, .break_even_tau = NAN};
    const char *arm, *workload;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, true, 0, 0},
        {"nodes", JSON_FIELD_DOUBLE, &fit->nodes, false, -LIMIT, LIMIT},
        {"context", JSON_FIELD_DOUBLE, &fit->context, false, -LIMIT, LIMIT},
        {"observed_ms", JSON_FIELD_DOUBLE, &fit->observed_ms, false, -LIMIT, LIMIT},
        {"fitted_ms", JSON_FIELD_DOUBLE, &fit->fitted_ms, false, -LIMIT, LIMIT},
        {"break_even_tau", JSON_FIELD_DOUBLE, &fit->break_even_tau, false, -LIMIT, LIMIT},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    return read_place(summary, where, arm, workload, &fit->arm, &fit->workload, error);
}

static int read_round_model(const json_t *object, const char *where, struct summary *summary, void *to,
                            struct error *error)
{
    struct round_model *model = to;
    *model = (struct round_model){.tensor_parallel = 1, .r_squared = NAN, .largest_misfit = NAN};
    const json_t *terms = NULL, *fits = NULL;
    const struct json_field fields[] = {
        {"tensor_parallel", JSON_FIELD_INT, &model->tensor_parallel, false, 1, 1e6},
        {"points", JSON_FIELD_INT, &model->points, false, 0, 1e9},
        {"r_squared", JSON_FIELD_DOUBLE, &model->r_squared, false, -LIMIT, LIMIT},
        {"largest_misfit", JSON_FIELD_DOUBLE, &model->largest_misfit, false, -LIMIT, LIMIT},
        {"terms", JSON_FIELD_ARRAY, &terms, false, 0, 0},
        {"fits", JSON_FIELD_ARRAY, &fits, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        summary_read_array(terms, where, "terms", sizeof *model->terms, read_term, summary, &model->terms,
                           &model->term_count, error))
        return -1;
    return summary_read_array(fits, where, "fits", sizeof *model->fits, read_fit, summary, &model->fits,
                              &model->fit_count, error);
}

static int read_residual(const json_t *object, const char *where, struct summary *summary, void *to,
                         struct error *error)
{
    struct residual *residual = to;
    const char *arm;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"block", JSON_FIELD_INT, &residual->block, false, 0, 1e6},
        {"residual", JSON_FIELD_DOUBLE, &residual->residual, true, -LIMIT, LIMIT},
        {"outlier", JSON_FIELD_BOOL, &residual->outlier, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    return summary_read_arm_name(summary, where, arm, &residual->arm, error);
}

static int read_drift(const json_t *json, const char *path, struct summary *summary, struct error *error)
{
    struct drift *drift = &summary->drift;
    *drift = (struct drift){.present = json_is_object(json_object_get(json, "drift")), .p = NAN, .change = NAN};
    const json_t *residuals = NULL;
    const struct json_field fields[] = {
        {"p", JSON_FIELD_DOUBLE, &drift->p, false, 0, 1},
        {"change", JSON_FIELD_DOUBLE, &drift->change, false, -LIMIT, LIMIT},
        {"n", JSON_FIELD_INT, &drift->n, false, 0, 1e9},
        {"residuals", JSON_FIELD_ARRAY, &residuals, false, 0, 0},
        {0},
    };
    if (summary_read_inner(json, path, "drift", fields, error))
        return -1;
    return summary_read_array(residuals, path, "residuals", sizeof *drift->residuals, read_residual, summary,
                              &drift->residuals, &drift->residual_count, error);
}

static int read_reading(const json_t *object, const char *where, const char *key, struct reading *reading,
                        struct error *error)
{
    *reading = (struct reading){NAN, NAN, NAN};
    const struct json_field fields[] = {
        {"mean", JSON_FIELD_DOUBLE, &reading->mean, true, -LIMIT, LIMIT},
        {"minimum", JSON_FIELD_DOUBLE, &reading->minimum, true, -LIMIT, LIMIT},
        {"maximum", JSON_FIELD_DOUBLE, &reading->maximum, true, -LIMIT, LIMIT},
        {0},
    };
    return summary_read_inner(object, where, key, fields, error);
}

static int read_telemetry(const json_t *object, const char *where, struct summary *summary, void *to,
                          struct error *error)
{
    struct device_readings *telemetry = to;
    const char *arm;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"device", JSON_FIELD_INT, &telemetry->device, false, 0, 1e6},
        {"start_s", JSON_FIELD_DOUBLE, &telemetry->start_s, true, -LIMIT, LIMIT},
        {"slowdown", JSON_FIELD_BOOL, &telemetry->slowdown, false, 0, 0},
        {"power_cap", JSON_FIELD_BOOL, &telemetry->power_cap, false, 0, 0},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        summary_read_arm_name(summary, where, arm, &telemetry->arm, error) ||
        read_reading(object, where, "clock_mhz", &telemetry->clock_mhz, error) ||
        read_reading(object, where, "temperature_c", &telemetry->temperature_c, error))
        return -1;
    return read_reading(object, where, "power_w", &telemetry->power_w, error);
}

static int read_versus_cell(const json_t *object, const char *where, struct summary *summary, void *to,
                            struct error *error)
{
    struct versus_cell *cell = to;
    const char *arm, *baseline, *workload = NULL;
    const struct json_field fields[] = {
        {"arm", JSON_FIELD_STRING, &arm, true, 0, 0},
        {"baseline", JSON_FIELD_STRING, &baseline, true, 0, 0},
        {"workload", JSON_FIELD_STRING, &workload, false, 0, 0},
        {"verdict", JSON_FIELD_STRING, &cell->verdict, false, 0, 0},
        {"marks", JSON_FIELD_ARRAY, &cell->marks, false, 0, 0},
        {0},
    };
    const struct json_field of_tokens[] = {{"marks", JSON_FIELD_ARRAY, &cell->tokens_marks, false, 0, 0}, {0}};
    const struct interval_field intervals[] = {
        {"before", &cell->before, true}, {"after", &cell->after, true}, {"change", &cell->change, true}, {0}};
    const struct interval_field tokens[] = {
        {"before", &cell->tokens_before, false}, {"after", &cell->tokens_after, false}, {0}};
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_place(summary, where, arm, workload, &cell->arm, &cell->workload, error) ||
        summary_read_arm_name(summary, where, baseline, &cell->baseline, error) ||
        summary_read_intervals(object, where, intervals, error) ||
        summary_read_intervals(json_object_get(object, "tokens_per_s"), where, tokens, error) ||
        summary_read_inner(object, where, "tokens_per_s", of_tokens, error) ||
        summary_check_strings(cell->marks, where, "marks", error) ||
        summary_check_strings(cell->tokens_marks, where, "tokens_per_s", error) ||
        summary_read_limits(object, where, "simultaneous", true, &cell->simultaneous, error))
        return -1;
    return summary_read_missing(object, where, "missing", &cell->missing, error);
}

static int read_versus(const json_t *json, const char *path, struct summary *summary, struct error *error)
{
    struct versus *versus = &summary->versus;
    const json_t *cells = NULL;
    versus->present = json_is_object(json_object_get(json, "versus"));
    const struct json_field fields[] = {
        {"before", JSON_FIELD_STRING, &versus->before, true, 0, 0},
        {"after", JSON_FIELD_STRING, &versus->after, true, 0, 0},
        {"cells", JSON_FIELD_ARRAY, &cells, true, 0, 0},
        {0},
    };
    if (summary_read_inner(json, path, "versus", fields, error))
        return -1;
    return summary_read_array(cells, path, "versus", sizeof *versus->cells, read_versus_cell, summary, &versus->cells,
                              &versus->cell_count, error);
}

int summary_read_whole(const json_t *json, const char *path, struct summary *summary, struct error *error)
{
    const struct {
        const char *key;
        size_t size;
        summary_read_element *read;
        void *items;
        int *count;
    } lists[] = {
        {"scaling", sizeof *summary->scaling, read_scaling, &summary->scaling, &summary->scaling_count},
        {"best_budgets", sizeof *summary->best_budgets, read_best_budget, &summary->best_budgets,
         &summary->best_budget_count},
        {"round_models", sizeof *summary->round_models, read_round_model, &summary->round_models,
         &summary->round_model_count},
        {"telemetry", sizeof *summary->telemetry, read_telemetry, &summary->telemetry, &summary->telemetry_count},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (summary_read_array(json_object_get(json, lists[i].key), path, lists[i].key, lists[i].size, lists[i].read,
                               summary, lists[i].items, lists[i].count, error))
            return -1;
    if (read_drift(json, path, summary, error))
        return -1;
    return read_versus(json, path, summary, error);
}
