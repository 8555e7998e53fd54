#include "collect/record/divergence.h"

#include "collect/base/name.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_comparable(const struct sample *sample)
{
    return sample->ok && sample->token_ids;
}

static int compare_prompts(const void *a, const void *b)
{
    return name_compare((*(const struct sample *const *)a)->prompt, (*(const struct sample *const *)b)->prompt);
}

/* The workload's comparable samples, sorted by prompt. free() the array. */
static const struct sample **index_samples(const struct attempt *attempt, const char *workload, size_t *count)
{
    const struct sample **index = xcalloc((size_t)attempt->sample_count, sizeof(*index)), *sample;
    *count = 0;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));)
        if (is_comparable(sample))
            index[(*count)++] = sample;
    qsort(index, *count, sizeof(*index), compare_prompts);
    return index;
}

/* -1 where the shorter output begins the longer. */
static int first_difference(const struct sample *a, const struct sample *b)
{
    for (int i = 0; i < a->tokens && i < b->tokens; i++)
        if (a->token_ids[i] != b->token_ids[i])
            return i;
    return -1;
}

/* The baseline's margin bounds the regret from below: what was chosen instead is its runner-up at best. */
static void compare_outputs(const struct sample *sample, const struct sample *baseline, struct divergence *divergence)
{
    int position = first_difference(sample, baseline);
    divergence->compared++;
    if (position < 0) {
        divergence->cut += sample->tokens != baseline->tokens;
        return;
    }
    divergence->diverged++;
    double regret = baseline->margins ? fabs((double)baseline->margins[position]) : NAN;
    divergence->unjudged += isnan(regret);
    if (!divergence->worst || regret > divergence->regret || (isnan(divergence->regret) && !isnan(regret))) {
        divergence->regret = regret;
        divergence->worst = sample;
        divergence->position = position;
    }
}

void divergence_measure(const struct attempt *attempt, const struct attempt *baseline, const char *workload,
                        struct divergence *divergence)
{
    *divergence = (struct divergence){.regret = NAN};
    size_t count;
    const struct sample **index = index_samples(baseline, workload, &count), *sample;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
        const struct sample **other =
            is_comparable(sample) ? bsearch(&sample, index, count, sizeof(*index), compare_prompts) : NULL;
        if (other)
            compare_outputs(sample, *other, divergence);
    }
    free(index);
}
