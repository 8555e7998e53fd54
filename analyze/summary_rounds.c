/* What rounds commit, and where their time goes. */
#include "analyze/summary_parts.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>

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

/* How much a counter grew while the requests of one workload ran; NaN: unknown. */
static double workload_growth(const struct attempt *attempt, const char *workload, const char *counter)
{
    char *name = xformat("%s/%s", workload, counter);
    double growth = observed_growth(&attempt->observed, name);
    free(name);
    return growth;
}

/* By a server's counters: each draft commits what was accepted of it and one token more, and what else was generated,
 * but for the first of each answer, came of rounds without drafts; where accepted tokens are not counted, all of it
 * came of drafts. NaN: unknown. */
static double counted_tau(const struct attempt *attempt, const char *workload)
{
    const double drafts = workload_growth(attempt, workload, "drafts");
    const double accepted = workload_growth(attempt, workload, "accepted_tokens");
    const double generated = workload_growth(attempt, workload, "generation_tokens");
    const struct sample *sample;
    int answers = 0;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));)
        answers += sample->ok;
    if (!(drafts > 0))
        return NAN;
    return isnan(accepted) ? (generated - answers) / drafts
                           : 1 + accepted / fmax(drafts, generated - answers - accepted);
}

/* Of what is known of all requests together alone, as files state it that were imported without them, or as counters
 * grew: the mean over blocks, a point. */
static struct interval stated_tau(const struct cells *cells, const struct cell *cell)
{
    struct interval interval = {0, NAN, NAN, 0};
    for (int block = 1; block <= cells->blocks; block++) {
        const struct attempt *attempt = cell_usable(cell, block, RULE_VOIDS_TAU);
        const double tau = !attempt                     ? NAN
                           : attempt_is_stated(attempt) ? attempt->observed.accept_length
                                                        : counted_tau(attempt, cell->workload->name);
        interval.value += isnan(tau) ? 0 : tau;
        interval.count += !isnan(tau);
    }
    interval.value /= interval.count;
    return interval;
}

/* null unless it holds every round. */
static json_t *make_histogram(const struct round_sums *sums)
{
    int64_t known = 0;
    for (int i = 0; i < sums->histogram_size; i++)
        known += sums->histogram[i];
    if (!known || known != sums->rounds)
        return json_null();
    json_t *array = json_array();
    for (int i = 0; i < sums->histogram_size; i++)
        json_append(array, json_integer(sums->histogram[i]));
    return array;
}

static struct round_sums sum_rounds(const struct cells *cells, const struct cell *cell, const struct suspects *without)
{
    struct round_sums sums = {0};
    for (int block = 1; block <= cells->blocks; block++)
        if (cell_usable(cell, block, RULE_VOIDS_TAU) && !(without && without->left_out[block - 1]))
            samples_add_rounds(cell_usable(cell, block, RULE_VOIDS_TAU), cell->workload->name,
                               without ? without->kept : SAMPLES_ALL, &sums);
    return sums;
}

void summary_set_tau(const struct cells *cells, const struct cell *cell, const struct suspects *without, json_t *object)
{
    struct round_sums sums = sum_rounds(cells, cell, without);
    json_set(object, "tau", summary_make_interval(estimate_tau(cells->plan, &sums), "prompts"));
    samples_free_rounds(&sums);
}

static void set_acceptance(const struct cells *cells, const struct cell *cell, json_t *object)
{
    struct round_sums sums = sum_rounds(cells, cell, NULL);
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

static struct stage_sums sum_stages(const struct cells *cells, const struct cell *cell, unsigned voided_by)
{
    struct stage_sums sums = {0};
    for (int block = 1; block <= cells->blocks; block++)
        if (cell_usable(cell, block, voided_by))
            samples_add_stages(cell_usable(cell, block, voided_by), cell->workload->name, NULL, &sums);
    return sums;
}

static void set_stages(const struct cells *cells, const struct cell *cell, json_t *object)
{
    const struct stage_sums of_rounds = sum_stages(cells, cell, SUMMARY_VOIDS_ROUND);
    const struct stage_sums all = sum_stages(cells, cell, RULE_VOIDS_TIMES);
    json_set(object, "stages_ms", make_stages(&of_rounds, of_rounds.rounds * 1e6));
    json_set(object, "stages_share", make_stages(&all, all.decode_ns));
}

void summary_set_rounds(const struct cells *cells, const struct cell *cell, json_t *object)
{
    set_acceptance(cells, cell, object);
    set_stages(cells, cell, object);
}
