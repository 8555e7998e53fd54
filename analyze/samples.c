#include "analyze/samples.h"

#include "collect/base/name.h"
#include "collect/record/repetition.h"
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
    int64_t sum = 0;
    if (sample->committed >= 0)
        return (double)sample->committed;
    for (int i = 0; i < sample->rounds; i++)
        sum += sample->accepted[i];
    return (double)sum;
}

static double emitted_tokens(const struct sample *sample)
{
    return sample->tokens >= 0 && sample->first_tokens >= 0 ? (double)(sample->tokens - sample->first_tokens) : NAN;
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
    return sample->decode_ns > 0 && emitted_tokens(sample) > 0;
}

static bool has_first(const struct sample *sample)
{
    return sample->ttft_ns > 0 && sample->first_tokens >= 0;
}

const struct sample *samples_next(const struct attempt *attempt, const char *workload, int *at)
{
    while (*at < attempt->sample_count)
        if (is_answered(&attempt->samples[(*at)++], workload))
            return &attempt->samples[*at - 1];
    return NULL;
}

/* The search goes on behind the last find, *at: the arms of a block answer prompts in the same order. */
static const struct sample *find_answer(const struct attempt *attempt, const char *workload, const char *prompt,
                                        int *at)
{
    for (int i = 0; i < attempt->sample_count; i++) {
        const int index = (*at + i) % attempt->sample_count;
        const struct sample *sample = &attempt->samples[index];
        if (is_answered(sample, workload) && name_compare(sample->prompt, prompt) == 0) {
            *at = index + 1;
            return sample;
        }
    }
    return NULL;
}

static bool goes_in_circles(const struct sample *sample)
{
    return sample->token_ids && repetition_found(sample->token_ids, sample->tokens);
}

static bool are_identical(const struct sample *a, const struct sample *b)
{
    return a->token_ids && b->token_ids && a->tokens == b->tokens &&
           memcmp(a->token_ids, b->token_ids, (size_t)a->tokens * sizeof *a->token_ids) == 0;
}

static bool is_kept(const struct sample *sample, const struct sample *other, enum samples_kept kept)
{
    return kept == SAMPLES_ALL || (kept == SAMPLES_IDENTICAL && are_identical(sample, other)) ||
           (kept == SAMPLES_VARIED && !goes_in_circles(sample) && !goes_in_circles(other));
}

static void add_sample(const struct sample *sample, const struct sample *other, struct sample_sums *sums)
{
    if (has_decode(sample) && has_decode(other)) {
        sums->prompts++;
        sums->decode_ns += sample->decode_ns;
        sums->tokens += decoded_tokens(sample);
        sums->rounds += sample->rounds > 0 ? (double)sample->rounds : NAN;
    }
    if (has_first(sample) && has_first(other)) {
        sums->first_prompts++;
        sums->first_ns += sample->ttft_ns;
        sums->first_tokens += sample->first_tokens;
    }
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
        sums.first_tokens =
            attempt->observed.tokens > 0 ? (double)requests : NAN; /* beside mean times, without weight */
    }
    return sums;
}

struct sample_sums samples_sum_kept(const struct attempt *attempt, const char *workload, const struct attempt *beside,
                                    enum samples_kept kept)
{
    struct sample_sums sums = {0};
    const struct sample *sample;
    if (attempt_is_stated(attempt) && kept == SAMPLES_ALL)
        return sum_stated(attempt);
    for (int at = 0, at_other = 0; (sample = samples_next(attempt, workload, &at));) {
        const struct sample *other = beside ? find_answer(beside, workload, sample->prompt, &at_other) : sample;
        if (other && is_kept(sample, other, kept))
            add_sample(sample, other, &sums);
    }
    return sums;
}

struct sample_sums samples_sum(const struct attempt *attempt, const char *workload, const struct attempt *beside)
{
    return samples_sum_kept(attempt, workload, beside, SAMPLES_ALL);
}

struct sample_times samples_times(const struct sample *sample)
{
    const bool first = has_first(sample), decode = has_decode(sample);
    return (struct sample_times){
        .tpot_ns = decode ? sample->decode_ns / decoded_tokens(sample) : NAN,
        .ttft_ns = first ? (double)sample->ttft_ns : NAN,
        .end_to_end_ns = first && decode ? (double)sample->ttft_ns + sample->decode_ns : NAN,
    };
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

/* --- all requests in flight --------------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* When all places are filled for the first time, and the last admission: -1 where that is not known. */
struct window {
    int64_t from_ns, to_ns;
};

static struct window find_window(const struct attempt *attempt, const char *workload)
{
    struct window window = {-1, -1};
    int64_t *starts = xcalloc((size_t)attempt->sample_count + 1, sizeof *starts);
    int count = 0;
    bool known = true;
    const struct sample *sample;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
        starts[count++] = sample->start_ns;
        known &= sample->start_ns >= 0;
    }
    if (known && count > attempt->arm.concurrency) {
        qsort(starts, (size_t)count, sizeof *starts, compare_times);
        window = (struct window){starts[attempt->arm.concurrency - 1], starts[count - 1]};
    }
    free(starts);
    return window;
}

/* Of the tokens that come evenly from `from_ns` to `to_ns`, those in the window. */
static double tokens_in(const struct window *window, double tokens, double from_ns, double to_ns)
{
    const double first = fmax(from_ns, (double)window->from_ns), last = fmin(to_ns, (double)window->to_ns);
    return last > first ? tokens * (last - first) / (to_ns - from_ns) : 0;
}

double samples_aggregate_tokens_per_s(const struct attempt *attempt, const char *workload)
{
    if (attempt->arm.concurrency == 1) {
        const struct sample_sums sums = samples_sum(attempt, workload, NULL);
        return 1e9 / samples_end_to_end_ns(&sums);
    }
    const struct window window = find_window(attempt, workload);
    if (window.to_ns <= window.from_ns)
        return NAN;
    double tokens = 0;
    const struct sample *sample;
    for (int at = 0; (sample = samples_next(attempt, workload, &at));) {
        if (!has_first(sample) || !has_decode(sample))
            return NAN;
        const double first_ns = (double)sample->start_ns + sample->ttft_ns;
        if (first_ns >= window.from_ns && first_ns < window.to_ns)
            tokens += sample->first_tokens;
        tokens += tokens_in(&window, decoded_tokens(sample), first_ns, first_ns + sample->decode_ns);
    }
    return 1e9 * tokens / (double)(window.to_ns - window.from_ns);
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static struct prompt_rounds *find_prompt(struct round_sums *sums, const char *prompt)
{
    for (int i = 0; i < sums->prompt_count; i++)
        if (name_compare(sums->prompts[i].prompt, prompt) == 0)
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
}

/* A source that counts rounds and not what each of them committed is taken at what it emitted. */
void samples_add_rounds(const struct attempt *attempt, const char *workload, enum samples_kept kept,
                        struct round_sums *sums)
{
    const struct sample *sample;
    for (int at = 0; (sample = samples_next(attempt, workload, &at));) {
        if (sample->rounds < 1 || !is_kept(sample, sample, kept))
            continue;
        struct prompt_rounds *prompt = find_prompt(sums, sample->prompt);
        prompt->attempts++;
        prompt->accepted += sample->accepted ? sum_accepted(sample) : emitted_tokens(sample);
        prompt->rounds += sample->rounds;
        prompt->emitted += emitted_tokens(sample);
        sums->rounds += sample->rounds;
        for (int j = 0; sample->accepted && j < sample->rounds; j++)
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

/* With one request at a time nobody waits for another. */
static double stalled_ns(const struct attempt *attempt, const struct sample *sample)
{
    return sample->stall_ns >= 0 ? (double)sample->stall_ns : attempt->arm.concurrency == 1 ? 0 : NAN;
}

/* NAN is a float: an integer beside it would become one, with 24 bits of its own. */
static double known(int64_t value)
{
    return value >= 0 ? (double)value : NAN;
}

void samples_add_stages(const struct attempt *attempt, const char *workload, const struct attempt *beside,
                        struct stage_sums *sums)
{
    const struct sample *sample;
    for (int at = 0, at_other = 0; (sample = samples_next(attempt, workload, &at));) {
        const struct sample *other = beside ? find_answer(beside, workload, sample->prompt, &at_other) : sample;
        if (!other || !has_decode(sample) || !has_decode(other) || sample->rounds < 1)
            continue;
        sums->rounds += sample->rounds;
        sums->decode_ns += sample->decode_ns;
        sums->stall_ns += stalled_ns(attempt, sample);
        sums->communicate_ns += known(sample->communicate_ns);
        sums->context += sample->rounds * (known(sample->prompt_tokens) + sample->tokens / 2.0);
        for (int stage = 0; stage < STAGE_COUNT; stage++)
            sums->stage_ns[stage] += known(sample->stages_ns[stage]);
    }
}

double samples_round_ns(const struct stage_sums *sums)
{
    return sums->rounds > 0 ? (sums->decode_ns - sums->stall_ns) / sums->rounds : NAN;
}
