/* Rules on what was read from another tool's file: what it says of itself, and what it leaves open. */
#include "collect/record/rule_parts.h"

#include "collect/record/stated.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const json_t *import_of(const struct attempt *attempt)
{
    return json_object_get(attempt->header, "import");
}

void rule_declared_invalid(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const char *reason = json_string_value(json_object_get(import_of(attempt), "invalid"));
    if (reason)
        verdicts_add(verdicts, RULE_DECLARED_INVALID, RULE_INVALID, NULL, NAN, NAN, "%.400s", reason);
}

/* Numbers that JSON lacks are odd, and harm nothing. */
void rule_source_damaged(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    static const char *const harmless[] = {"not a finite number", "number beyond 64 bits", "not UTF-8"};
    const char *name;
    json_t *oddity;
    json_object_foreach(json_object_get(import_of(attempt), "oddities"), name, oddity)
    {
        enum rule_level level = RULE_SUSPECT;
        const char *example = json_string_value(json_object_get(oddity, "example"));
        const long long count = json_integer_value(json_object_get(oddity, "count"));
        const json_t *offset = json_object_get(oddity, "offset");
        char place[48] = "";
        if (offset)
            snprintf(place, sizeof place, "; the first at byte %lld", (long long)json_integer_value(offset));
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            if (strcmp(name, harmless[i]) == 0)
                level = RULE_NOTE;
        verdicts_add(verdicts, RULE_SOURCE_DAMAGED, level, NULL, (double)count, NAN, "%.60s: %lld%s%s%.60s", name,
                     count, place, example ? ": " : "", example ? example : "");
    }
}

/* --- times -------------------------------------------------------------------------------------------------------- */

static bool has_decode_time(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->decode_ns > 0 && sample->first_tokens >= 0 && sample->tokens > sample->first_tokens;
}

/* All of the time stands for all of the tokens. */
static bool has_prefill_included(const struct attempt *attempt, const struct sample *sample)
{
    return has_decode_time(attempt, sample) && sample->first_tokens == 0 && sample->ttft_ns < 0;
}

void rule_times_unknown(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    for (int i = 0; attempt_is_imported(attempt) && i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        const struct rule_tally tally = rule_tally(attempt, workload, rule_ok, has_decode_time);
        const bool unknown = attempt_is_stated(attempt) ? !(stated_tpot_ns(attempt) > 0) : tally.seen && !tally.found;
        if (unknown)
            verdicts_add(verdicts, RULE_TIMES_UNKNOWN, RULE_INVALID, workload, NAN, NAN,
                         "the file has no time of decoding");
    }
}

void rule_prefill_included(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    for (int i = 0; attempt_is_imported(attempt) && i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        const struct rule_tally tally = rule_tally(attempt, workload, rule_ok, has_prefill_included);
        if (tally.found || (attempt_is_stated(attempt) && stated_times(attempt).with_prefill))
            verdicts_add(verdicts, RULE_PREFILL_INCLUDED, RULE_SUSPECT, workload, NAN, NAN,
                         "the time a token includes the prefill");
    }
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void rule_stated_failures(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const struct observed *observed = &attempt->observed;
    const int cancelled = observed->cancelled > 0 ? observed->cancelled : 0;
    const int failed = observed->requests - observed->completed;
    if (!attempt_is_stated(attempt) || observed->completed < 0 || failed <= 0)
        return;
    const double share = (double)failed / observed->requests;
    if (share > threshold)
        verdicts_add(verdicts, RULE_FAILED_REQUEST, cancelled >= failed ? RULE_SUSPECT : RULE_INVALID, NULL, share,
                     threshold, "%d of %d requests were not answered; %d of them the client cancelled", failed,
                     observed->requests, cancelled);
}

#define ACCEPTANCE_TOLERANCE 0.01
#define RATE_TOLERANCE 1e-3 /* tools print two decimals */

/* The bonus token and the rates at all positions make up what a round commits; counters of one rank of several do not.
 */
void rule_stated_acceptance(const struct attempt *attempt, struct verdicts *verdicts)
{
    const double stated = attempt->observed.accept_length;
    const double summed = json_number_value(rule_source_value(attempt, NULL, "acceptance_by_position"));
    if (attempt_is_stated(attempt) && summed > 0 && fabs(summed / stated - 1) > ACCEPTANCE_TOLERANCE)
        verdicts_add(verdicts, RULE_ACCEPT_SUM, RULE_INVALID, NULL, summed, stated,
                     "positions add up to %.4g tokens a round, %.4g are stated", summed, stated);
}

void rule_stated_rate(const struct attempt *attempt, struct verdicts *verdicts)
{
    const struct observed *observed = &attempt->observed;
    const double made = (double)observed->tokens / ((double)observed->duration_ns / 1e9);
    if (attempt_is_stated(attempt) && observed->tokens > 0 && observed->duration_ns > 0 &&
        fabs(observed->tokens_per_s / made - 1) > RATE_TOLERANCE)
        verdicts_add(verdicts, RULE_TOKENS_MISMATCH, RULE_SUSPECT, NULL, observed->tokens_per_s, made,
                     "%.6g tokens/s are stated, tokens by duration are %.6g", observed->tokens_per_s, made);
}

/* On average; what ended an output, and whether its length was fixed, is not said. */
void rule_stated_short(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const struct observed *observed = &attempt->observed;
    const json_t *workloads = json_object_get(attempt->header, "workloads");
    for (int i = 0; attempt_is_stated(attempt) && observed->completed > 0 && i < attempt->workload_count; i++) {
        const char *name = attempt->workloads[i].name;
        const json_t *asked = json_object_get(json_object_get(workloads, name), "max_new_tokens");
        const double mean = (double)observed->tokens / observed->completed, most = json_number_value(asked);
        if (observed->tokens > 0 && most > 0 && mean / most < threshold)
            verdicts_add(verdicts, RULE_OUTPUT_SHORT, RULE_SUSPECT, name, mean / most, threshold,
                         "outputs have %.4g of %.4g tokens on average, and nothing says why", mean, most);
    }
}
