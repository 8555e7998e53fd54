#include "collect/record/rule_parts.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <string.h>

const json_t *rule_source_value(const struct attempt *attempt, const char *object, const char *key)
{
    const json_t *source = json_object_get(attempt->header, "source");
    return json_object_get(object ? json_object_get(source, object) : source, key);
}

bool rule_source_is(const struct attempt *attempt, const char *key, const char *text)
{
    const char *value = json_string_value(rule_source_value(attempt, NULL, key));
    return value && strcmp(value, text) == 0;
}

struct rule_regret_limits rule_regret_limits(const struct attempt *attempt)
{
    return rule_source_is(attempt, "dtype", "float32") ? (struct rule_regret_limits){1e-3, 1e-3}
                                                       : (struct rule_regret_limits){.25, .5};
}

bool rule_any(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt, (void)sample;
    return true;
}

bool rule_ok(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->ok;
}

struct rule_tally rule_tally(const struct attempt *attempt, const char *workload, rule_sample_test *counts,
                             rule_sample_test *test)
{
    struct rule_tally tally = {0};
    const struct sample *sample;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
        if (!counts(attempt, sample))
            continue;
        tally.seen++;
        if (!test(attempt, sample))
            continue;
        tally.first = tally.first ? tally.first : sample;
        tally.found++;
    }
    return tally;
}

void rule_judge_each(const struct attempt *attempt, enum rule_id rule, rule_sample_test *counts, rule_sample_test *test,
                     const char *what, struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct rule_tally tally = rule_tally(attempt, workload, counts, test);
        if (tally.found)
            verdicts_add(verdicts, rule, rule_table[rule].level, workload, tally.found, NAN,
                         "%d of %d samples %s; first: %s", tally.found, tally.seen, what, tally.first->prompt);
    }
}

int rule_count_measured(const struct attempt *attempt)
{
    int count = 0;
    if (attempt_is_stated(attempt))
        return attempt->observed.completed > 0 ? attempt->observed.completed : 0;
    for (int i = 0; i < attempt->sample_count; i++)
        count += !attempt->samples[i].warmup;
    return count;
}

struct rule_span rule_measured_span(const struct attempt *attempt)
{
    struct rule_span span = {NAN, NAN};
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (sample->warmup || sample->start_ns < 0 || sample->end_ns < sample->start_ns)
            continue;
        span.first_ns = fmin(span.first_ns, (double)sample->start_ns);
        span.last_ns = fmax(span.last_ns, (double)sample->end_ns);
    }
    return span;
}

double rule_median(double *values, int count)
{
    if (count == 0)
        return NAN;
    gsl_sort(values, 1, (size_t)count);
    return gsl_stats_median_from_sorted_data(values, 1, (size_t)count);
}
