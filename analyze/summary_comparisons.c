#include "analyze/summary_parts.h"

#include "collect/base/json.h"
#include "collect/base/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the blocks of a comparison say. */
struct estimate {
    struct interval speedup, simultaneous, end_to_end, fieller;
    double p, p_holm, p_bh, sign_flip_p;
    bool best;
};

static const struct plan *plan_of(const struct comparisons *comparisons)
{
    return comparisons->cells->plan;
}

static struct interval nothing(void)
{
    return (struct interval){NAN, NAN, NAN, 0};
}

/* --- estimates ---------------------------------------------------------------------------------------------------- */

bool summary_is_paired(const struct comparisons *comparisons, const struct comparison *comparison)
{
    int count;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    for (int i = 0; i < count; i++)
        for (int block = 0; block < comparisons->cells->blocks; block++)
            if (parts[i].pairs[block].arm && attempt_is_imported(&parts[i].pairs[block].arm->attempt))
                return false;
    return true;
}

struct interval summary_estimate_pairs(const struct comparisons *comparisons, const struct comparison *comparison,
                                       const double *logs, int count)
{
    const struct plan *plan = plan_of(comparisons);
    struct interval interval = summary_estimate(plan, logs, count, plan->alpha);
    if (!summary_is_paired(comparisons, comparison))
        interval.low = interval.high = NAN;
    return interval;
}

static int gather(const struct comparisons *comparisons, const struct comparison *comparison, double *ratios,
                  double *end_to_end, int *end_to_end_count)
{
    int count = 0;
    *end_to_end_count = 0;
    for (int block = 0; block < comparisons->cells->blocks; block++) {
        const struct pair *pair = &comparison->pairs[block];
        if (isnan(pair->log_ratio))
            continue;
        ratios[count++] = pair->log_ratio;
        if (!isnan(pair->log_end_to_end))
            end_to_end[(*end_to_end_count)++] = pair->log_end_to_end;
    }
    return count;
}

struct interval summary_estimate_speedup(const struct comparisons *comparisons, const struct comparison *comparison,
                                         int family)
{
    const struct plan *plan = plan_of(comparisons);
    double *ratios = xcalloc((size_t)comparisons->cells->blocks, sizeof *ratios);
    int count = 0;
    for (int block = 0; block < comparisons->cells->blocks; block++)
        if (!isnan(comparison->pairs[block].log_ratio))
            ratios[count++] = comparison->pairs[block].log_ratio;
    struct interval interval = summary_estimate(plan, ratios, count, plan->alpha / family);
    if (!summary_is_paired(comparisons, comparison))
        interval.low = interval.high = NAN;
    free(ratios);
    return interval;
}

/* Over workloads there is no one pair of times to take the ratio of. */
static struct interval estimate_fieller(const struct comparisons *comparisons, const struct comparison *comparison)
{
    const struct plan *plan = plan_of(comparisons);
    int blocks = comparisons->cells->blocks, count = 0;
    double *above = xcalloc((size_t)blocks, sizeof *above), *below = xcalloc((size_t)blocks, sizeof *below);
    for (int block = 0; block < blocks && comparison->workload; block++)
        if (!isnan(comparison->pairs[block].log_ratio)) {
            above[count] = comparison->pairs[block].baseline_tpot_ns;
            below[count++] = comparison->pairs[block].arm_tpot_ns;
        }
    struct interval interval =
        count >= plan->min_blocks ? statistics_fieller_interval(above, below, count, plan->alpha) : nothing();
    free(above);
    free(below);
    return interval;
}

static int count_headline(const struct comparisons *comparisons)
{
    int count = 0;
    for (int i = 0; i < comparisons->count; i++)
        count += comparisons->items[i].headline;
    return count;
}

static struct estimate estimate_comparison(const struct comparisons *comparisons, const struct comparison *comparison)
{
    const struct plan *plan = plan_of(comparisons);
    size_t blocks = (size_t)comparisons->cells->blocks;
    double *ratios = xcalloc(blocks, sizeof *ratios), *end_to_end = xcalloc(blocks, sizeof *end_to_end);
    int end_to_end_count, count = gather(comparisons, comparison, ratios, end_to_end, &end_to_end_count);
    bool paired = summary_is_paired(comparisons, comparison), enough = paired && count >= plan->min_blocks;
    struct estimate estimate = {
        .speedup = summary_estimate(plan, ratios, count, plan->alpha),
        .simultaneous = comparison->headline
                            ? summary_estimate(plan, ratios, count, plan->alpha / count_headline(comparisons))
                            : nothing(),
        .end_to_end = summary_estimate(plan, end_to_end, end_to_end_count, plan->alpha),
        .fieller = estimate_fieller(comparisons, comparison),
        .p = enough ? statistics_mean_p(ratios, count) : NAN,
        .p_holm = NAN,
        .p_bh = NAN,
        .sign_flip_p = enough ? statistics_sign_flip_p(ratios, count) : NAN,
    };
    if (!paired) {
        estimate.speedup.low = estimate.speedup.high = estimate.end_to_end.low = estimate.end_to_end.high = NAN;
        estimate.simultaneous = estimate.fieller = nothing();
    }
    free(ratios);
    free(end_to_end);
    return estimate;
}

static void adjust_family(const struct comparisons *comparisons, struct estimate *estimates)
{
    int size = count_headline(comparisons), at = 0;
    double *p = xcalloc((size_t)size, sizeof *p), *adjusted = xcalloc((size_t)size, sizeof *adjusted);
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].headline)
            p[at++] = estimates[i].p;
    statistics_holm(p, size, adjusted);
    at = 0;
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].headline)
            estimates[i].p_holm = adjusted[at++];
    free(p);
    free(adjusted);
}

/* A heat map: single workloads by arms over one baseline. */
static void adjust_map(const struct comparisons *comparisons, const struct arm *baseline, struct estimate *estimates)
{
    const size_t most = (size_t)comparisons->count + 1;
    double *p = xcalloc(most, sizeof *p), *adjusted = xcalloc(most, sizeof *adjusted);
    int *members = xcalloc(most, sizeof *members), count = 0;
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].workload && comparisons->items[i].baseline == baseline)
            members[count++] = i;
    for (int i = 0; i < count; i++)
        p[i] = estimates[members[i]].p;
    statistics_benjamini_hochberg(p, count, adjusted);
    for (int i = 0; i < count; i++)
        estimates[members[i]].p_bh = adjusted[i];
    free(members);
    free(p);
    free(adjusted);
}

/* Of comparisons over the same auto on the same workloads, marks those whose arm is beaten by none, nor by auto, which
 * races with a ratio of 1. */
static void mark_best(const struct comparisons *comparisons, int first, struct estimate *estimates)
{
    const struct comparison *leader = &comparisons->items[first];
    int blocks = comparisons->cells->blocks, count = 0;
    int *members = xcalloc((size_t)comparisons->count, sizeof *members);
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].baseline == leader->baseline && comparisons->items[i].workload == leader->workload)
            members[count++] = i;
    double *logs = xcalloc(((size_t)count + 1) * (size_t)blocks, sizeof *logs);
    bool *unbeaten = xcalloc((size_t)count + 1, sizeof *unbeaten);
    for (int i = 0; i < count; i++)
        for (int block = 0; block < blocks; block++)
            logs[(size_t)i * blocks + block] = comparisons->items[members[i]].pairs[block].log_ratio;
    statistics_unbeaten(logs, count + 1, blocks, plan_of(comparisons)->min_blocks, plan_of(comparisons)->alpha,
                        unbeaten);
    for (int i = 0; i < count; i++)
        estimates[members[i]].best = unbeaten[i];
    free(members);
    free(logs);
    free(unbeaten);
}

static struct estimate *make_estimates(const struct comparisons *comparisons)
{
    struct estimate *estimates = xcalloc((size_t)comparisons->count + 1, sizeof *estimates);
    for (int i = 0; i < comparisons->count; i++)
        estimates[i] = estimate_comparison(comparisons, &comparisons->items[i]);
    adjust_family(comparisons, estimates);
    for (int i = 0; i < plan_of(comparisons)->arm_count; i++)
        adjust_map(comparisons, &plan_of(comparisons)->arms[i], estimates);
    for (int i = 0; i < comparisons->count; i++)
        if (comparisons->items[i].baseline->method == METHOD_AUTO)
            mark_best(comparisons, i, estimates);
    return estimates;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

json_t *summary_make_limits(struct interval interval)
{
    if (!isfinite(interval.low) || !isfinite(interval.high))
        return json_null();
    json_t *object = json_object();
    json_set(object, "low", json_number(interval.low));
    json_set(object, "high", json_number(interval.high));
    return object;
}

void summary_append_once(json_t *array, size_t from, const char *text)
{
    for (size_t i = from; i < json_array_size(array); i++)
        if (strcmp(json_string_value(json_array_get(array, i)), text) == 0)
            return;
    json_append(array, json_text(text));
}

static json_t *make_block(const struct comparisons *comparisons, const struct comparison *comparison, int block)
{
    int count;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    json_t *object = json_object(), *attempts = json_array();
    for (int i = 0; i < count; i++) {
        summary_append_once(attempts, 0, parts[i].pairs[block].arm->attempt.id);
        summary_append_once(attempts, 0, parts[i].pairs[block].baseline->attempt.id);
    }
    json_set(object, "block", json_integer(comparisons->cells->before + block + 1));
    json_set(object, "log_ratio", json_number(comparison->pairs[block].log_ratio));
    json_set(object, "attempts", attempts);
    return object;
}

static json_t *make_dropped(const struct comparisons *comparisons, const struct pair *pair, int block)
{
    json_t *object = json_object(), *reason = summary_make_reason(&pair->reason);
    json_set(object, "block", json_integer(comparisons->cells->before + block + 1));
    json_object_update(object, reason);
    json_decref(reason);
    return object;
}

/* Why nothing is left: of the last block that was attempted, or of the first. */
json_t *summary_make_pairs_missing(const struct comparisons *comparisons, const struct comparison *comparison)
{
    const struct reason *reason = &comparison->pairs[0].reason;
    for (int block = 0; block < comparisons->cells->blocks; block++)
        if (comparison->pairs[block].reason.rule != rule_table[RULE_NOT_MEASURED].id)
            reason = &comparison->pairs[block].reason;
    return summary_make_reason(reason);
}

static json_t *make_comparison_marks(const struct comparisons *comparisons, const struct comparison *comparison,
                                     int blocks_left)
{
    int count;
    const struct comparison *parts = summary_parts_of(comparisons, comparison, &count);
    bool marks[RULE_COUNT] = {false};
    for (int i = 0; i < count; i++)
        for (int block = 0; block < comparisons->cells->blocks; block++) {
            const struct pair *pair = &parts[i].pairs[block];
            if (isnan(comparison->pairs[block].log_ratio))
                continue;
            summary_note_marks(&pair->arm->verdicts, parts[i].workload->name, marks);
            summary_note_marks(&pair->baseline->verdicts, parts[i].workload->name, marks);
            summary_note_marks(&pair->verdicts, parts[i].workload->name, marks);
            summary_note_marks(&comparisons->cells->verdicts, parts[i].workload->name, marks);
            marks[RULE_REPETITION] |=
                suspects_are_repetitive(comparisons->cells, comparison->arm, parts[i].workload, block);
        }
    if (!blocks_left)
        summary_note_unpaired_marks(comparisons, comparison, marks);
    marks[RULE_MIN_BLOCKS] = blocks_left > 0 && blocks_left < plan_of(comparisons)->min_blocks;
    return summary_make_marks(marks);
}

static void set_blocks(const struct comparisons *comparisons, const struct comparison *comparison, json_t *object)
{
    json_t *blocks = json_array(), *dropped = json_array();
    for (int block = 0; block < comparisons->cells->blocks; block++)
        if (isnan(comparison->pairs[block].log_ratio))
            json_append(dropped, make_dropped(comparisons, &comparison->pairs[block], block));
        else
            json_append(blocks, make_block(comparisons, comparison, block));
    bool none = json_array_size(blocks) == 0;
    json_set(object, "blocks", blocks);
    json_set(object, "dropped", dropped);
    json_set(object, "missing", none ? summary_make_pairs_missing(comparisons, comparison) : json_null());
}

void summary_set_verdict(struct interval of, json_t *object)
{
    const double most = 1 + SUMMARY_MARGIN;
    const bool known = !isnan(of.low), within = of.low >= 1 / most && of.high <= most;
    const char *verdict = of.low > 1 ? "faster" : of.high < 1 ? "slower" : within ? "equal" : "no difference shown";
    json_set(object, "verdict", known ? json_string(verdict) : json_null());
    json_set(object, "within_margin", known ? json_boolean(within) : json_null());
}

static json_t *make_comparison(const struct comparisons *comparisons, const struct comparison *comparison,
                               const struct estimate *estimate)
{
    char name[ARM_NAME_SIZE];
    json_t *object = json_object();
    json_set(object, "arm", json_text(arm_name(comparison->arm, name)));
    json_set(object, "baseline", json_text(arm_name(comparison->baseline, name)));
    json_set(object, "workload", comparison->workload ? json_text(comparison->workload->name) : json_null());
    json_set(object, "speedup", summary_make_interval(estimate->speedup, "blocks"));
    json_set(object, "headline", json_boolean(comparison->headline));
    json_set(object, "best", json_boolean(estimate->best && summary_is_paired(comparisons, comparison)));
    json_set(object, "simultaneous", summary_make_limits(estimate->simultaneous));
    json_set(object, "p", json_number(estimate->p));
    json_set(object, "p_holm", json_number(estimate->p_holm));
    json_set(object, "p_bh", json_number(estimate->p_bh));
    json_set(object, "fieller", summary_make_limits(estimate->fieller));
    json_set(object, "sign_flip_p", json_number(estimate->sign_flip_p));
    json_set(object, "speedup_end_to_end", summary_make_interval(estimate->end_to_end, "blocks"));
    summary_set_verdict(comparison->headline ? estimate->simultaneous : estimate->speedup, object);
    summary_set_pairs(comparisons, comparison, object);
    set_blocks(comparisons, comparison, object);
    json_set(object, "marks", make_comparison_marks(comparisons, comparison, estimate->speedup.count));
    return object;
}

/* Whether a plan, or files of both arms, ask for it. */
static bool is_asked(const struct comparisons *comparisons, const struct comparison *comparison)
{
    const char *none = rule_table[RULE_NOT_MEASURED].id;
    bool made = plan_of(comparisons)->source != PLAN_SOURCE_IMPORT;
    for (int block = 0; block < comparisons->cells->blocks && !made; block++) {
        const struct pair *pair = &comparison->pairs[block];
        made =
            comparison->workload ? !pair->reason.rule || strcmp(pair->reason.rule, none) != 0 : !isnan(pair->log_ratio);
    }
    return made;
}

/* What the threads share that make them. */
struct making {
    const struct comparisons *comparisons;
    const struct estimate *estimates;
    json_t **made; /* NULL: not asked for */
};

static void make_one(void *context, int index)
{
    struct making *making = context;
    const struct comparison *comparison = &making->comparisons->items[index];
    if (is_asked(making->comparisons, comparison))
        making->made[index] = make_comparison(making->comparisons, comparison, &making->estimates[index]);
}

json_t *summary_make_comparisons(const struct comparisons *comparisons)
{
    struct estimate *estimates = make_estimates(comparisons);
    json_t *array = json_array(), **made = xcalloc((size_t)comparisons->count, sizeof(json_t *));
    parallel_for(comparisons->count, make_one, &(struct making){comparisons, estimates, made});
    for (int i = 0; i < comparisons->count; i++)
        if (made[i])
            json_append(array, made[i]);
    free(estimates);
    free(made);
    return array;
}
