#include "analyze/samples.h"

#include "collect/record/stated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_answered(const struct sample *sample, const char *workload)
{
    return sample->ok && !sample->warmup && strcmp(sample->workload, workload) == 0;
}

static double sum_accepted(const struct sample *sample)
{
    double sum = 0;
    for (int i = 0; i < sample->rounds; i++)
        sum += sample->accepted[i];
    return sum;
}

static double emitted_tokens(const struct sample *sample)
{
    return sample->tokens >= 0 && sample->first_tokens >= 0 ? sample->tokens - sample->first_tokens : NAN;
}

/* Where what the rounds committed does not end within the last of them, only what was emitted is believed. */
static double decoded_tokens(const struct sample *sample)
{
    double emitted = emitted_tokens(sample);
    if (!sample->accepted || sample->rounds < 1 || sample->finish != FINISH_LENGTH)
        return emitted;
    double committed = sum_accepted(sample);
    bool ends_in_last = committed >= emitted && committed - sample->accepted[sample->rounds - 1] < emitted;
    return ends_in_last ? committed : emitted;
}

static bool has_decode(const struct sample *sample)
{
    return sample->decode_ns > 0 && decoded_tokens(sample) > 0;
}

static bool has_first(const struct sample *sample)
{
    return sample->ttft_ns > 0 && sample->first_tokens >= 0;
}

static const struct sample *find_answer(const struct attempt *attempt, const char *workload, const char *prompt)
{
    for (int i = 0; i < attempt->sample_count; i++)
        if (is_answered(&attempt->samples[i], workload) && strcmp(attempt->samples[i].prompt, prompt) == 0)
            return &attempt->samples[i];
    return NULL;
}

/* Of an attempt that was imported without its requests: which prompts they were is unknown. */
static struct sample_sums sum_stated(const struct attempt *attempt)
{
    const struct stated_times times = stated_times(attempt);
    const int requests = attempt->observed.completed > 0 ? attempt->observed.completed : 1;
    struct sample_sums sums = {0};
    if (times.decode_ns > 0) {
        sums.prompts = requests;
        sums.decode_ns = times.decode_ns;
        sums.tokens = times.tokens;
        sums.rounds = times.tokens / attempt->observed.accept_length;
    }
    if (times.ttft_ns > 0) {
        sums.first_prompts = requests;
        sums.first_ns = requests * times.ttft_ns;
        sums.first_tokens = requests;
    }
    return sums;
}

struct sample_sums samples_sum(const struct attempt *attempt, const char *workload, const struct attempt *beside)
{
    struct sample_sums sums = {0};
    if (attempt_is_stated(attempt))
        return sum_stated(attempt);
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        const struct sample *other = sample;
        if (!is_answered(sample, workload) || (beside && !(other = find_answer(beside, workload, sample->prompt))))
            continue;
        if (has_decode(sample) && has_decode(other)) {
            sums.prompts++;
            sums.decode_ns += sample->decode_ns;
            sums.tokens += decoded_tokens(sample);
            sums.rounds += sample->rounds > 0 ? sample->rounds : NAN;
        }
        if (has_first(sample) && has_first(other)) {
            sums.first_prompts++;
            sums.first_ns += sample->ttft_ns;
            sums.first_tokens += sample->first_tokens;
        }
    }
    return sums;
}

double samples_tpot_ns(const struct sample_sums *sums)
{
    return sums->prompts ? sums->decode_ns / sums->tokens : NAN;
}

double samples_ttft_ns(const struct sample_sums *sums)
{
    return sums->first_prompts ? sums->first_ns / sums->first_prompts : NAN;
}

double samples_end_to_end_ns(const struct sample_sums *sums)
{
    return sums->prompts && sums->prompts == sums->first_prompts
               ? (sums->decode_ns + sums->first_ns) / (sums->tokens + sums->first_tokens)
               : NAN;
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static struct prompt_rounds *find_prompt(struct round_sums *sums, const char *prompt)
{
    for (int i = 0; i < sums->prompt_count; i++)
        if (strcmp(sums->prompts[i].prompt, prompt) == 0)
            return &sums->prompts[i];
    sums->prompts = xrealloc(sums->prompts, (size_t)sums->prompt_count + 1, sizeof *sums->prompts);
    sums->prompts[sums->prompt_count] = (struct prompt_rounds){.prompt = prompt};
    return &sums->prompts[sums->prompt_count++];
}

static void count_round(struct round_sums *sums, int accepted)
{
    if (accepted >= sums->histogram_size) {
        sums->histogram = xrealloc(sums->histogram, (size_t)accepted + 1, sizeof *sums->histogram);
        while (sums->histogram_size <= accepted)
            sums->histogram[sums->histogram_size++] = 0;
    }
    sums->histogram[accepted]++;
    sums->rounds++;
}

void samples_add_rounds(const struct attempt *attempt, const char *workload, struct round_sums *sums)
{
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (!is_answered(sample, workload) || !sample->accepted || sample->rounds < 1)
            continue;
        struct prompt_rounds *prompt = find_prompt(sums, sample->prompt);
        prompt->attempts++;
        prompt->accepted += sum_accepted(sample);
        prompt->rounds += sample->rounds;
        prompt->emitted += emitted_tokens(sample);
        for (int j = 0; j < sample->rounds; j++)
            count_round(sums, sample->accepted[j]);
    }
}

void samples_free_rounds(struct round_sums *sums)
{
    free(sums->prompts);
    free(sums->histogram);
    *sums = (struct round_sums){0};
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

void samples_add_stages(const struct attempt *attempt, const char *workload, struct stage_sums *sums)
{
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (!is_answered(sample, workload) || !has_decode(sample) || sample->rounds < 1)
            continue;
        sums->rounds += sample->rounds;
        sums->decode_ns += sample->decode_ns;
        for (int stage = 0; stage < STAGE_COUNT; stage++)
            sums->stage_ns[stage] += sample->stages_ns[stage] >= 0 ? sample->stages_ns[stage] : NAN;
    }
}
