#include "collect/record/rule_run.h"

#include "collect/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct history_entry *entry_of(const struct run *run, const struct attempt *attempt)
{
    const struct attempt_place place = {attempt->arm, attempt->block, attempt->try_number};
    return history_find(&run->history, &place);
}

static bool has_verdict(const struct judged *judged, enum rule_id rule, enum rule_level level, const char *workload)
{
    for (int i = 0; i < judged->verdicts.count; i++) {
        const struct verdict *verdict = &judged->verdicts.items[i];
        if (verdict->rule == rule && verdict->level == level &&
            (!workload || (verdict->workload && strcmp(verdict->workload, workload) == 0)))
            return true;
    }
    return false;
}

/* --- DUPLICATE ---------------------------------------------------------------------------------------------------- */

enum { TIMES_MINIMUM = 3, TIMES_A_SAMPLE = 4 }; /* fewer values may agree by chance */

/* What a workload's requests took in one attempt. */
struct timing {
    const struct run *run;
    struct judged *judged;
    const char *workload;
    int64_t *times; /* of all measured answers in the order of the file; -1 where unknown */
    int count, known;
};

static void read_timing(const struct run *run, struct judged *judged, const char *workload, struct timing *timing)
{
    const struct sample *sample;
    *timing = (struct timing){run, judged, workload};
    timing->times = xcalloc((size_t)judged->attempt.sample_count * TIMES_A_SAMPLE, sizeof *timing->times);
    for (int at = 0; (sample = attempt_next_sample(&judged->attempt, workload, &at));) {
        const int64_t times[TIMES_A_SAMPLE] = {sample->start_ns, sample->ttft_ns, sample->decode_ns, sample->end_ns};
        for (int i = 0; sample->ok && i < TIMES_A_SAMPLE; i++) {
            timing->times[timing->count++] = times[i];
            timing->known += times[i] > 0;
        }
    }
}

static int compare_times(const struct timing *a, const struct timing *b)
{
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (int i = 0; i < a->count; i++)
        if (a->times[i] != b->times[i])
            return a->times[i] < b->times[i] ? -1 : 1;
    return strcmp(a->workload, b->workload);
}

/* What the ledger does not know was begun last. */
static int64_t begun(const struct timing *timing)
{
    const struct history_entry *entry = entry_of(timing->run, &timing->judged->attempt);
    return entry && entry->begun ? entry->begun : INT64_MAX;
}

/* Equal ones stand together, the one that was begun first in front. */
static int compare_timings(const void *first, const void *second)
{
    const struct timing *a = first, *b = second;
    int order = compare_times(a, b);
    if (!order && begun(a) != begun(b))
        order = begun(a) < begun(b) ? -1 : 1;
    return order ? order : (a->judged > b->judged) - (a->judged < b->judged);
}

static void judge_duplicates(const struct timing *timings, int count)
{
    for (int i = 1, original = 0; i < count; i++) {
        if (compare_times(&timings[original], &timings[i]) != 0) {
            original = i;
            continue;
        }
        struct judged *judged = timings[i].judged;
        if (!has_verdict(judged, RULE_DUPLICATE, RULE_INVALID, timings[i].workload))
            verdicts_add(&judged->verdicts, RULE_DUPLICATE, RULE_INVALID, timings[i].workload, timings[i].known, NAN,
                         "all %d times are those of %s, to the nanosecond", timings[i].known,
                         timings[original].judged->attempt.id);
    }
}

static void find_duplicates(struct run *run)
{
    int most = 0, count = 0;
    for (int i = 0; i < run->attempt_count; i++)
        most += run->attempts[i].attempt.workload_count;
    struct timing *timings = xcalloc((size_t)most, sizeof *timings);
    for (int i = 0; i < run->attempt_count; i++) {
        struct judged *judged = &run->attempts[i];
        for (int w = 0; w < judged->attempt.workload_count; w++) {
            read_timing(run, judged, judged->attempt.workloads[w].name, &timings[count]);
            if (timings[count].known >= TIMES_MINIMUM)
                count++;
            else
                free(timings[count].times);
        }
    }
    if (count)
        qsort(timings, (size_t)count, sizeof *timings, compare_timings);
    judge_duplicates(timings, count);
    for (int i = 0; i < count; i++)
        free(timings[i].times);
    free(timings);
}

/* --- CLOCK -------------------------------------------------------------------------------------------------------- */

/* For each line of the ledger the earliest time that it or a later one bears. */
static int64_t *earliest_times(const struct run *run)
{
    const size_t count = json_array_size(run->ledger.lines);
    int64_t *earliest = xcalloc(count, sizeof *earliest);
    for (size_t i = count; i-- > 0;) {
        const char *text = json_string_value(json_object_get(json_array_get(run->ledger.lines, i), "time"));
        const int64_t time = text ? clock_parse_utc(text) : -1;
        earliest[i] = i + 1 < count ? earliest[i + 1] : INT64_MAX;
        if (time >= 0 && time < earliest[i])
            earliest[i] = time;
    }
    return earliest;
}

/* `ahead`: seconds by which an attempt's start lies behind what was recorded after it. */
static void see_future(const void *ahead, double threshold, struct verdicts *verdicts)
{
    const double seconds = *(const double *)ahead;
    if (seconds > threshold)
        verdicts_add(verdicts, RULE_CLOCK, RULE_SUSPECT, NULL, seconds, threshold,
                     "it began %.0f s later by its clock than what the ledger recorded after it", seconds);
}

static void find_futures(struct run *run, const struct rule_settings *settings)
{
    int64_t *earliest = earliest_times(run);
    for (int i = 0; i < run->attempt_count; i++) {
        struct judged *judged = &run->attempts[i];
        const struct history_entry *entry = entry_of(run, &judged->attempt);
        if (!judged->attempt.started || !entry || !entry->begun || has_verdict(judged, RULE_CLOCK, RULE_SUSPECT, NULL))
            continue;
        const double ahead = (double)clock_parse_utc(judged->attempt.started) - (double)earliest[entry->begun - 1];
        rule_judge_by(RULE_CLOCK, settings, see_future, &ahead, &judged->verdicts);
    }
    free(earliest);
}

void rule_run_judge(struct run *run, const struct rule_settings *settings)
{
    find_duplicates(run);
    find_futures(run, settings);
    rule_run_throttled(run, settings);
    rule_run_servers(run);
}
