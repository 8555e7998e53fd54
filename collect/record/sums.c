#include "collect/record/sums.h"

#include "collect/base/json.h"

enum { TOKENS, FIRST_TOKENS, TTFT_NS, DECODE_NS, ROUNDS, ACCEPTED, SUM_COUNT };

static const char *const names[SUM_COUNT] = {"tokens", "first_tokens", "ttft_ns", "decode_ns", "rounds", "accepted"};

static int64_t sum_accepted(const struct sample *sample)
{
    int64_t sum = 0;
    for (int i = 0; sample->accepted && i < sample->rounds; i++)
        sum += sample->accepted[i];
    return sample->accepted ? sum : ATTEMPT_ABSENT;
}

static void add(const struct sample *sample, int64_t *sums)
{
    const int64_t values[SUM_COUNT] = {sample->tokens,    sample->first_tokens, sample->ttft_ns,
                                       sample->decode_ns, sample->rounds,       sum_accepted(sample)};
    for (int i = 0; i < SUM_COUNT; i++)
        sums[i] = sums[i] < 0 || values[i] < 0 ? ATTEMPT_ABSENT : sums[i] + values[i];
}

static json_t *make_workload(const struct attempt *attempt, const struct attempt_workload *workload)
{
    int64_t sums[SUM_COUNT] = {0};
    int samples = 0, failed = 0;
    const struct sample *sample;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload->name, &at)); samples++) {
        failed += !sample->ok;
        if (sample->ok)
            add(sample, sums);
    }
    json_t *object = json_object();
    json_set(object, "cell_hash", json_text(workload->cell_hash));
    json_set(object, "samples", json_integer(samples));
    json_set(object, "failed", json_integer(failed));
    for (int i = 0; i < SUM_COUNT; i++)
        json_set(object, names[i], sums[i] < 0 || samples == failed ? json_null() : json_integer(sums[i]));
    return object;
}

json_t *sums_by_workload(const struct attempt *attempt)
{
    json_t *object = json_object();
    for (int i = 0; i < attempt->workload_count; i++)
        json_set(object, attempt->workloads[i].name, make_workload(attempt, &attempt->workloads[i]));
    return object;
}
