#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

/* A metric of one attempt, such as its time a token. */
typedef double attempt_metric(const struct sample_sums *sums);

static double tokens_per_s(const struct sample_sums *sums)
{
    return 1e9 / samples_tpot_ns(sums);
}

static double tpot_ms(const struct sample_sums *sums)
{
    return samples_tpot_ns(sums) / 1e6;
}

static double ttft_ms(const struct sample_sums *sums)
{
    return samples_ttft_ns(sums) / 1e6;
}

static struct interval estimate_metric(const struct cells *cells, const struct cell *cell, attempt_metric *metric,
                                       unsigned voided_by)
{
    double *logs = xcalloc((size_t)cells->blocks, sizeof *logs);
    int count = 0;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, voided_by);
        if (!attempt)
            continue;
        struct sample_sums sums = samples_sum(attempt, cell->workload->name, NULL);
        double value = metric(&sums);
        if (!isnan(value))
            logs[count++] = log(value);
    }
    struct interval interval = summary_estimate(cells->plan, logs, count, cells->plan->alpha);
    free(logs);
    return interval;
}

/* --- acceptance --------------------------------------------------------------------------------------------------- */

/* Prompts are the clusters, each averaged over its blocks first: at temperature 0 blocks repeat themselves. */
static struct interval estimate_tau(const struct plan *plan, const struct round_sums *sums)
{
    double *accepted = xcalloc((size_t)sums->prompt_count, sizeof *accepted);
    double *rounds = xcalloc((size_t)sums->prompt_count, sizeof *rounds);
    for (int i = 0; i < sums->prompt_count; i++) {
        accepted[i] = sums->prompts[i].accepted / sums->prompts[i].attempts;
        rounds[i] = sums->prompts[i].rounds / sums->prompts[i].attempts;
    }
    struct interval interval = statistics_ratio_interval(accepted, rounds, sums->prompt_count, 1, plan->alpha);
    if (sums->prompt_count < plan->min_blocks)
        interval.low = interval.high = NAN;
    free(accepted);
    free(rounds);
    return interval;
}

/* As files state it that were imported without requests: the mean over blocks, a point. */
static struct interval stated_tau(const struct cells *cells, const struct cell *cell)
{
    struct interval interval = {0, NAN, NAN, 0};
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, RULE_VOIDS_TAU);
        if (!attempt || !attempt_is_stated(attempt) || isnan(attempt->observed.accept_length))
            continue;
        interval.value += attempt->observed.accept_length;
        interval.count++;
    }
    interval.value /= interval.count;
    return interval;
}

static json_t *make_histogram(const struct round_sums *sums)
{
    if (!sums->rounds)
        return json_null();
    json_t *array = json_array();
    for (int i = 0; i < sums->histogram_size; i++)
        json_append(array, json_integer(sums->histogram[i]));
    return array;
}

static void set_acceptance(const struct cells *cells, const struct cell *cell, json_t *object)
{
    struct round_sums sums = {0};
    for (int block = 1; block <= cells->blocks; block++)
        if (cell_usable(cell, block, RULE_VOIDS_TAU))
            samples_add_rounds(cell_usable(cell, block, RULE_VOIDS_TAU), cell->workload->name, &sums);
    double of_requests = 0, emitted = 0, rounds = 0;
    for (int i = 0; i < sums.prompt_count; i++) {
        const struct prompt_rounds *prompt = &sums.prompts[i];
        of_requests += prompt->accepted / prompt->rounds / sums.prompt_count;
        emitted += prompt->emitted / prompt->attempts;
        rounds += prompt->rounds / prompt->attempts;
    }
    json_set(object, "tau",
             sums.prompt_count ? summary_make_interval(estimate_tau(cells->plan, &sums), "prompts")
                               : summary_make_interval(stated_tau(cells, cell), "blocks"));
    json_set(object, "tau_request_mean", json_number(sums.prompt_count ? of_requests : NAN));
    json_set(object, "tau_emitted", json_number(emitted / rounds));
    json_set(object, "accepted_histogram", make_histogram(&sums));
    json_set(object, "rounds", sums.rounds ? json_integer(sums.rounds) : json_null());
    samples_free_rounds(&sums);
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

/* Stages and what they leave over, each divided by `by`. */
static json_t *make_stages(const struct stage_sums *sums, double by)
{
    if (!(sums->rounds > 0))
        return json_null();
    json_t *object = json_object();
    double known = NAN;
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        json_set(object, stage_names[stage], json_number(sums->stage_ns[stage] / by));
        if (!isnan(sums->stage_ns[stage]))
            known = (isnan(known) ? 0 : known) + sums->stage_ns[stage];
    }
    json_set(object, "other", json_number((sums->decode_ns - known) / by));
    return object;
}

static void set_stages(const struct cells *cells, const struct cell *cell, json_t *object)
{
    struct stage_sums sums = {0};
    for (int block = 1; block <= cells->blocks; block++)
        if (cell_usable(cell, block, RULE_VOIDS_TIMES))
            samples_add_stages(cell_usable(cell, block, RULE_VOIDS_TIMES), cell->workload->name, &sums);
    json_set(object, "stages_ms", make_stages(&sums, sums.rounds * 1e6));
    json_set(object, "stages_share", make_stages(&sums, sums.decode_ns));
}

/* --- counts and reasons ------------------------------------------------------------------------------------------- */

/* The attempt, if any number is made of it. */
static const struct judged *used_in(const struct cell *cell, int block)
{
    const struct cell_block *at = &cell->blocks[block - 1];
    return at->voided == RULE_VOIDS_ALL ? NULL : at->counted;
}

static void set_counts(const struct cells *cells, const struct cell *cell, json_t *object)
{
    int valid = 0, used = 0;
    json_t *attempts = json_array();
    for (int block = 1; block <= cells->blocks; block++) {
        const struct judged *judged = used_in(cell, block);
        valid += cell_usable(cell, block, RULE_VOIDS_TIMES) != NULL;
        used += judged != NULL;
        if (judged)
            json_append(attempts, json_text(judged->attempt.id));
    }
    json_set(object, "blocks_valid", json_integer(valid));
    json_set(object, "blocks_planned", json_integer(cells->plan->blocks));
    json_set(object, "tries", json_integer(cell->tries));
    json_set(object, "excluded", json_integer(cell->tries - used));
    json_set(object, "attempts", attempts);
}

/* Why the cell has no times at all: of its last block that was attempted, or of the first. */
static json_t *make_missing(const struct cells *cells, const struct cell *cell)
{
    const struct reason *reason = &cell->blocks[0].reason;
    for (int block = 1; block <= cells->blocks; block++) {
        const struct reason *other = &cell->blocks[block - 1].reason;
        if (cell_usable(cell, block, RULE_VOIDS_TIMES))
            return json_null();
        if (other->rule != rule_table[RULE_NOT_MEASURED].id)
            reason = other;
    }
    return summary_make_reason(reason);
}

static json_t *make_cell_marks(const struct comparisons *comparisons, const struct cell *cell, int valid)
{
    const struct cells *cells = comparisons->cells;
    bool marks[RULE_COUNT] = {false};
    for (int block = 1; block <= cells->blocks; block++)
        if (used_in(cell, block)) {
            summary_note_marks(&used_in(cell, block)->verdicts, cell->workload->name, marks);
            summary_note_marks(&cell->blocks[block - 1].verdicts, cell->workload->name, marks);
        }
    for (int i = 0; i < comparisons->count; i++) {
        const struct comparison *comparison = &comparisons->items[i];
        if (comparison->arm == cell->arm && comparison->workload == cell->workload &&
            comparison->baseline->method == METHOD_AUTO)
            for (int block = 0; block < cells->blocks; block++)
                summary_note_marks(&comparison->pairs[block].verdicts, cell->workload->name, marks);
    }
    if (valid > 0)
        summary_note_marks(&cells->verdicts, cell->workload->name, marks);
    marks[RULE_MIN_BLOCKS] = valid > 0 && valid < cells->plan->min_blocks;
    return summary_make_marks(marks);
}

static json_t *make_cell(const struct comparisons *comparisons, const struct cell *cell)
{
    const struct cells *cells = comparisons->cells;
    struct interval tpot = estimate_metric(cells, cell, tpot_ms, RULE_VOIDS_TIMES);
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "arm", json_text(arm_name(cell->arm, name)));
    json_set(object, "workload", json_text(cell->workload->name));
    set_counts(cells, cell, object);
    json_set(object, "tokens_per_s",
             summary_make_interval(estimate_metric(cells, cell, tokens_per_s, RULE_VOIDS_TIMES), "blocks"));
    json_set(object, "tpot_ms", summary_make_interval(tpot, "blocks"));
    json_set(object, "ttft_ms",
             summary_make_interval(estimate_metric(cells, cell, ttft_ms, RULE_VOIDS_TTFT), "blocks"));
    set_acceptance(cells, cell, object);
    set_stages(cells, cell, object);
    json_set(object, "missing", make_missing(cells, cell));
    json_set(object, "marks", make_cell_marks(comparisons, cell, tpot.count));
    return object;
}

json_t *summary_make_cells(const struct comparisons *comparisons)
{
    json_t *array = json_array();
    for (int i = 0; i < comparisons->cells->count; i++)
        json_append(array, make_cell(comparisons, &comparisons->cells->items[i]));
    return array;
}
