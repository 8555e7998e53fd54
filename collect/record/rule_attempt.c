/* Rules of scope attempt: whether it is whole, and whether the machine was what the numbers claim. */
#include "collect/record/rule_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rule_incomplete(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    if (attempt->error_code && rule_find(attempt->error_code) >= 0)
        return; /* that rule says more */
    if (attempt->end_status && !attempt->complete)
        verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN,
                     "ended as \"%s\" after %d samples%s%.300s", attempt->end_status, attempt->sample_count,
                     attempt->error_message ? ": " : "", attempt->error_message ? attempt->error_message : "");
    else if (!attempt->complete)
        verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "no end line after %d samples%s",
                     attempt->sample_count, attempt->torn_bytes ? " and a torn line" : "");
    for (int i = 0; attempt->complete && !attempt_is_stated(attempt) && i < attempt->workload_count; i++)
        if (!rule_tally(attempt, attempt->workloads[i].name, rule_any, rule_any).seen)
            verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, attempt->workloads[i].name, 0, NAN,
                         "no measured sample");
}

/* The most tokens that a round of this arm can commit. */
static int accepted_limit(const struct attempt *attempt)
{
    json_int_t block_size = json_integer_value(rule_source_value(attempt, "drafter", "block_size"));
    bool known = block_size >= 1 && block_size <= INT32_MAX;
    int depth = known ? (int)block_size - 1 : INT32_MAX - 1; /* drafted tokens on a path, at most */
    if (attempt->arm.method == METHOD_AUTO)
        return 1;
    if (method_has_budget(attempt->arm.method) && attempt->arm.budget < depth)
        depth = attempt->arm.budget;
    return depth + 1;
}

/* How far outside 1 to `limit` the value lies; 0 where it does not. */
static int distance_outside(int accepted, int limit)
{
    if (accepted < 1)
        return 1 - accepted;
    return accepted > limit ? accepted - limit : 0;
}

/* Of a sample that says how many rounds it took, and not what each committed: the tokens a round on average, give or
 * take one token; NaN where that is not so. */
static double mean_accepted(const struct sample *sample)
{
    const bool counted = sample->ok && !sample->warmup && !sample->accepted && sample->rounds > 0;
    return counted && sample->tokens >= 0 && sample->first_tokens >= 0
               ? (double)(sample->tokens - sample->first_tokens - 1) / sample->rounds
               : NAN;
}

static void judge_means(const struct attempt *attempt, int limit, struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->sample_count; i++) {
        const double mean = mean_accepted(&attempt->samples[i]);
        if (mean > limit) {
            verdicts_add(verdicts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, NULL, mean, limit,
                         "%s, %s: rounds committed more than %d tokens on average", attempt->samples[i].workload,
                         attempt->samples[i].prompt, limit);
            return;
        }
    }
}

/* Of all requests together, as the file states it or as counters grew: the tokens a round on average, without the first
 * of each answer; NaN where unknown. */
static double mean_of_all(const struct attempt *attempt)
{
    const struct observed *observed = &attempt->observed;
    const double drafts = observed_growth(observed, "drafts");
    if (!attempt_is_stated(attempt))
        return drafts > 0 ? 1 + observed_growth(observed, "accepted_tokens") / drafts : NAN;
    return observed->completed > 0 && observed->tokens > 0
               ? observed->accept_length * (1 - (double)observed->completed / (double)observed->tokens)
               : NAN;
}

/* A baseline that drafts is none, whether drafts are accepted or not. */
static void judge_all(const struct attempt *attempt, int limit, struct verdicts *verdicts)
{
    const double drafts = observed_growth(&attempt->observed, "drafts"), mean = mean_of_all(attempt);
    if (attempt->arm.method == METHOD_AUTO && drafts > 0)
        verdicts_add(verdicts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, NULL, drafts, 0,
                     "the source counted %g drafts while plain decoding was measured", drafts);
    else if (mean > limit)
        verdicts_add(verdicts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, NULL, mean, limit,
                     "rounds committed %.4g tokens on average, and at most %d are possible", mean, limit);
}

void rule_accept_out_of_range(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const int before = verdicts->count;
    const int limit = accepted_limit(attempt);
    const struct sample *worst = NULL;
    int found = 0, worst_round = 0;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (sample->warmup || !sample->ok || !sample->accepted)
            continue;
        for (int round = 0; round < sample->rounds; round++) {
            int distance = distance_outside(sample->accepted[round], limit);
            found += distance > 0;
            if (distance > (worst ? distance_outside(worst->accepted[worst_round], limit) : 0)) {
                worst = sample;
                worst_round = round;
            }
        }
    }
    if (found)
        verdicts_add(verdicts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, NULL, worst->accepted[worst_round], limit,
                     "%d rounds committed fewer than 1 or more than %d tokens; worst: %s, %s, round %d: %d", found,
                     limit, worst->workload, worst->prompt, worst_round + 1, worst->accepted[worst_round]);
    else
        judge_means(attempt, limit, verdicts);
    if (verdicts->count == before)
        judge_all(attempt, limit, verdicts);
}

void rule_audit_regret(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const double limit = rule_regret_limits(attempt).invalid;
    const double regret = attempt->audit.regret_max;
    if (attempt->audit.done && isnan(regret))
        verdicts_add(verdicts, RULE_AUDIT_REGRET, RULE_INVALID, NULL, NAN, limit, "the regret is not a finite number");
    else if (attempt->audit.done && regret > limit)
        verdicts_add(verdicts, RULE_AUDIT_REGRET, RULE_INVALID, NULL, regret, limit,
                     "a chosen token lies %.3g below the best of plain decoding", regret);
}

void rule_synthetic_acceptance(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    if (json_is_true(rule_source_value(attempt, NULL, "synthetic_acceptance")))
        verdicts_add(verdicts, RULE_SYNTHETIC_ACCEPTANCE, RULE_INVALID, NULL, NAN, NAN,
                     "the source makes acceptance up, instead of verifying drafts");
}

/* --- what was shared, and by how many ----------------------------------------------------------------------------- */

/* A device that stands twice in source.devices; NULL where there is none. */
static const json_t *find_repeated_device(const struct attempt *attempt)
{
    const json_t *devices = rule_source_value(attempt, NULL, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++)
        for (size_t j = 0; j < i; j++)
            if (json_equal(json_array_get(devices, i), json_array_get(devices, j)))
                return json_array_get(devices, i);
    return NULL;
}

/* Cores of the machine, or else usable processors, which are no fewer; 0 where neither is known. */
static json_int_t core_count(const struct attempt *attempt)
{
    const json_t *machine = json_object_get(attempt->header, "machine");
    const json_t *cores = json_object_get(machine, "physical_cores");
    return json_integer_value(json_is_integer(cores) ? cores : json_object_get(machine, "cores"));
}

void rule_shared_device(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const int ranks = attempt->arm.tensor_parallel;
    const json_int_t cores = rule_source_is(attempt, "device", "cpu") ? core_count(attempt) : 0;
    if (cores > 0 && ranks > cores)
        verdicts_add(verdicts, RULE_SHARED_DEVICE, RULE_INVALID, NULL, ranks, (double)cores,
                     "%d ranks share %lld cores", ranks, (long long)cores);
    else if (find_repeated_device(attempt))
        verdicts_add(verdicts, RULE_SHARED_DEVICE, RULE_INVALID, NULL, NAN, NAN, "ranks share a device");
}

enum { REQUESTS_A_SLOT_MINIMUM = 2 }; /* below, the slots are hardly ever all filled */

void rule_too_few_requests(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const int slots = attempt->arm.concurrency, requests = rule_count_measured(attempt);
    const bool invalid = requests < REQUESTS_A_SLOT_MINIMUM * slots;
    const double limit = slots * (invalid ? REQUESTS_A_SLOT_MINIMUM : threshold);
    if (slots > 1 && requests > 0 && requests < limit)
        verdicts_add(verdicts, RULE_TOO_FEW_REQUESTS, invalid ? RULE_INVALID : RULE_SUSPECT, NULL, requests, limit,
                     "%d requests for %d at a time", requests, slots);
}

/* One's own runs say how long they are by the plan; who imports may have been given a try-out. */
void rule_short_run(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const struct rule_span span = rule_measured_span(attempt);
    const int64_t stated_ns = attempt->observed.duration_ns;
    const double seconds = (stated_ns >= 0 ? (double)stated_ns : span.last_ns - span.first_ns) / 1e9;
    const int requests = rule_count_measured(attempt);
    const bool few = requests > 0 && requests < threshold;
    char time[32] = "an unknown time";
    if (!isnan(seconds))
        snprintf(time, sizeof time, "%.3g s", seconds);
    if (attempt_is_imported(attempt) && (few || seconds < threshold))
        verdicts_add(verdicts, RULE_SHORT_RUN, RULE_SUSPECT, NULL, few ? requests : seconds, threshold,
                     "%d requests in %s", requests, time);
}

/* --- clocks and warmth -------------------------------------------------------------------------------------------- */

#define CONTEXT_TOLERANCE 0.25
enum { LIKE_MINIMUM = 5 }; /* samples that a median needs to mean something */

static double round_ns(const struct sample *sample)
{
    const int64_t stall = sample->stall_ns > 0 ? sample->stall_ns : 0;
    return sample->ok && sample->rounds > 0 && sample->decode_ns > 0
               ? (double)(sample->decode_ns - stall) / sample->rounds
               : NAN;
}

/* On average over the rounds. */
static double context_tokens(const struct sample *sample)
{
    return sample->prompt_tokens >= 0 && sample->tokens >= 0 ? sample->prompt_tokens + sample->tokens / 2.0 : NAN;
}

static bool is_alike(const struct sample *a, const struct sample *b)
{
    return fabs(context_tokens(a) - context_tokens(b)) <= CONTEXT_TOLERANCE * context_tokens(a);
}

/* The median time a round of other measured samples at like context; NaN where they are too few. */
static double usual_round_ns(const struct attempt *attempt, const struct sample *first)
{
    double *times = xcalloc((size_t)attempt->sample_count, sizeof *times);
    int count = 0;
    for (const struct sample *sample = first + 1; sample < attempt->samples + attempt->sample_count; sample++)
        if (!sample->warmup && !isnan(round_ns(sample)) && is_alike(first, sample))
            times[count++] = round_ns(sample);
    const double usual = count < LIKE_MINIMUM ? NAN : rule_median(times, count);
    free(times);
    return usual;
}

/* Whether a warm-up request at like context was no slower than this: then nothing was cold any more. */
static bool was_warm(const struct attempt *attempt, const struct sample *first, double limit_ns)
{
    for (const struct sample *sample = attempt->samples; sample < first; sample++)
        if (sample->warmup && is_alike(first, sample) && round_ns(sample) <= limit_ns)
            return true;
    return false;
}

void rule_cold_first(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    int at = 0;
    while (at < attempt->sample_count && (attempt->samples[at].warmup || isnan(round_ns(&attempt->samples[at]))))
        at++;
    if (at == attempt->sample_count)
        return;
    const struct sample *first = &attempt->samples[at];
    const double usual = usual_round_ns(attempt, first), slowness = round_ns(first) / usual;
    if (slowness > threshold && !was_warm(attempt, first, threshold * usual))
        verdicts_add(verdicts, RULE_COLD_FIRST, RULE_SUSPECT, first->workload, slowness, threshold,
                     "the first sample, %s, took %.3g times as long a round as later ones", first->prompt, slowness);
}
