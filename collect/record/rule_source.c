/* Rules of scope attempt on the source: whether it lived through the attempt, had room for it, and states figures that
 * can be. */
#include "collect/record/rule_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- how it ended ------------------------------------------------------------------------------------------------- */

static bool has_code(const char *code, enum rule_id rule)
{
    return code && strcmp(code, rule_table[rule].id) == 0;
}

/* Said of the attempt's end, or of a request: warm-up counts, since what follows ran on what it left. */
static void judge_failure(const struct attempt *attempt, enum rule_id rule, struct verdicts *verdicts)
{
    const struct sample *first = NULL;
    int found = 0;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (sample->ok || !has_code(sample->error_code, rule))
            continue;
        first = first ? first : sample;
        found++;
    }
    if (has_code(attempt->error_code, rule))
        verdicts_add(verdicts, rule, RULE_INVALID, NULL, NAN, NAN, "after %d requests: %.300s", attempt->sample_count,
                     attempt->error_message);
    else if (found)
        verdicts_add(verdicts, rule, RULE_INVALID, NULL, found, NAN, "%d of %d requests; first: %s: %.300s", found,
                     attempt->sample_count, first->prompt, first->error_message ? first->error_message : "no message");
}

void rule_server_died(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_failure(attempt, RULE_SERVER_DIED, verdicts);
}

void rule_out_of_memory(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_failure(attempt, RULE_OUT_OF_MEMORY, verdicts);
}

void rule_silent(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_failure(attempt, RULE_SILENT, verdicts);
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

void rule_counter_reset(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    for (int i = 0; i < attempt->observed.counter_count; i++) {
        const struct observed_counter *counter = &attempt->observed.counters[i];
        if (counter->after < counter->before) {
            verdicts_add(verdicts, RULE_COUNTER_RESET, RULE_INVALID, NULL, counter->after, counter->before,
                         "counter %.100s went from %g to %g", counter->name, counter->before, counter->after);
            return;
        }
    }
}

static bool has_rounds(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->rounds >= 0;
}

void rule_spec_metrics_missing(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    if (attempt->arm.method == METHOD_AUTO || observed_growth(&attempt->observed, "drafts") > 0 ||
        attempt->observed.accept_length > 0)
        return;
    if (attempt_is_stated(attempt))
        verdicts_add(verdicts, RULE_SPEC_METRICS_MISSING, RULE_INVALID, NULL, NAN, NAN,
                     "the file does not say what a round commits");
    for (int i = 0; i < attempt->workload_count; i++) {
        const struct rule_tally tally = rule_tally(attempt, attempt->workloads[i].name, rule_ok, has_rounds);
        if (tally.seen && !tally.found)
            verdicts_add(verdicts, RULE_SPEC_METRICS_MISSING, RULE_INVALID, attempt->workloads[i].name, 0, NAN,
                         "none of %d answers says how many rounds it took, and no counter does", tally.seen);
    }
}

/* --- room --------------------------------------------------------------------------------------------------------- */

void rule_concurrency_capped(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const struct observed *observed = &attempt->observed;
    const int needed = attempt->arm.concurrency;
    if (observed->slots >= 0 && observed->slots < needed)
        verdicts_add(verdicts, RULE_CONCURRENCY_CAPPED, RULE_INVALID, NULL, observed->slots, needed,
                     "room for %d requests at a time, %d were sent", observed->slots, needed);
    else if (observed->running_max >= 0 && observed->running_max < needed && rule_count_measured(attempt) >= needed)
        verdicts_add(verdicts, RULE_CONCURRENCY_CAPPED, RULE_INVALID, NULL, observed->running_max, needed,
                     "%d requests ran at a time at most, %d were sent", observed->running_max, needed);
}

static bool judge_cache(int64_t available, int64_t needed, const char *what, struct verdicts *verdicts)
{
    const bool starved = available >= 0 && available < needed;
    if (starved)
        verdicts_add(verdicts, RULE_CACHE_STARVED, RULE_INVALID, NULL, (double)available, (double)needed,
                     "the cache holds %lld %s, the requests need %lld", (long long)available, what, (long long)needed);
    return starved;
}

void rule_cache_starved(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const struct observed *observed = &attempt->observed;
    if (!judge_cache(observed->cache_slots, observed->cache_slots_needed, "states", verdicts))
        judge_cache(observed->cache_tokens, observed->cache_tokens_needed, "tokens", verdicts);
}

/* --- load --------------------------------------------------------------------------------------------------------- */

#define LOAD_MINIMUM 0.8
enum { REQUESTS_A_SLOT = 2 }; /* below, the slots are hardly ever all filled, and rule TOO_FEW_REQUESTS says so */

/* Nanoseconds that requests were in flight, summed over them, up to `until_ns`. */
static double busy_ns(const struct attempt *attempt, double until_ns)
{
    double sum = 0;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (!sample->warmup && sample->start_ns >= 0 && sample->end_ns >= sample->start_ns)
            sum += fmax(fmin((double)sample->end_ns, until_ns) - (double)sample->start_ns, 0);
    }
    return sum;
}

static double last_start_ns(const struct attempt *attempt)
{
    double last = NAN;
    for (int i = 0; i < attempt->sample_count; i++)
        if (!attempt->samples[i].warmup && attempt->samples[i].start_ns >= 0)
            last = fmax(last, (double)attempt->samples[i].start_ns);
    return last;
}

/* Requests in flight on average: from the samples, else from what the source states; NaN where neither is known. */
static double mean_load(const struct attempt *attempt)
{
    const struct rule_span span = rule_measured_span(attempt);
    const struct observed *observed = &attempt->observed;
    if (span.last_ns > span.first_ns)
        return busy_ns(attempt, span.last_ns) / (span.last_ns - span.first_ns);
    const double rate = observed->completed >= 0 && observed->duration_ns > 0
                            ? observed->completed / ((double)observed->duration_ns / 1e9)
                            : observed->requests_per_s;
    return rate * observed->e2e_ns / 1e9;
}

/* The same while every request that ended made room for another: up to the last start. */
static double filled_load(const struct attempt *attempt)
{
    const double from_ns = rule_measured_span(attempt).first_ns, until_ns = last_start_ns(attempt);
    return until_ns > from_ns ? busy_ns(attempt, until_ns) / (until_ns - from_ns) : NAN;
}

void rule_littles_law(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const int most = attempt->arm.concurrency;
    const double mean = mean_load(attempt), filled = filled_load(attempt);
    if (mean > threshold * most)
        verdicts_add(verdicts, RULE_LITTLES_LAW, RULE_INVALID, NULL, mean, threshold * most,
                     "%.4g requests were in flight on average, of %d at most", mean, most);
    else if (most > 1 && rule_count_measured(attempt) >= REQUESTS_A_SLOT * most && filled < LOAD_MINIMUM * most)
        verdicts_add(verdicts, RULE_LITTLES_LAW, RULE_SUSPECT, NULL, filled, LOAD_MINIMUM * most,
                     "%.4g requests were in flight on average until the last began, of %d", filled, most);
}

/* Tokens by the time from the first start to the last end; NaN where unknown. */
static double mean_tokens_per_s(const struct attempt *attempt)
{
    const struct rule_span span = rule_measured_span(attempt);
    double tokens = 0;
    for (int i = 0; i < attempt->sample_count; i++)
        if (!attempt->samples[i].warmup && attempt->samples[i].ok && attempt->samples[i].tokens > 0)
            tokens += attempt->samples[i].tokens;
    return span.last_ns > span.first_ns ? tokens / (span.last_ns - span.first_ns) * 1e9 : NAN;
}

void rule_peak_lt_mean(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const double stated = attempt->observed.tokens_per_s, peak = attempt->observed.peak_tokens_per_s;
    const double mean = isnan(stated) ? mean_tokens_per_s(attempt) : stated;
    if (peak < mean)
        verdicts_add(verdicts, RULE_PEAK_LT_MEAN, RULE_INVALID, NULL, peak, mean,
                     "the peak is %.4g tokens/s, the mean %.4g", peak, mean);
}
