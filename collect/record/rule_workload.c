/* Rules of scope workload: whether its requests were answered, in full, with text that is worth measuring. */
#include "collect/record/rule_parts.h"

#include "collect/record/repetition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- failures ----------------------------------------------------------------------------------------------------- */

static bool has_failed(const struct attempt *attempt, const struct sample *sample)
{
    return !rule_ok(attempt, sample);
}

/* By the client, as it was told to: whoever answers has refused nothing. */
static bool was_cancelled(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return !sample->ok && sample->error_code && strcmp(sample->error_code, SAMPLE_CANCELLED) == 0;
}

void rule_failed_request(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    rule_stated_failures(attempt, threshold, verdicts);
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct rule_tally tally = rule_tally(attempt, workload, rule_any, has_failed);
        if (!tally.found || (double)tally.found / tally.seen <= threshold)
            continue;
        const struct sample *first = tally.first;
        const int cancelled = rule_tally(attempt, workload, rule_any, was_cancelled).found;
        verdicts_add(verdicts, RULE_FAILED_REQUEST, cancelled == tally.found ? RULE_SUSPECT : RULE_INVALID, workload,
                     (double)tally.found / tally.seen, threshold, "%d of %d requests failed; first: %s: %.40s: %.300s",
                     tally.found, tally.seen, first->prompt, first->error_code ? first->error_code : "no code",
                     first->error_message ? first->error_message : "no message");
    }
}

/* Whatever share of failures a plan allows. */
void rule_all_failed(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const bool stated = attempt_is_stated(attempt) && attempt->observed.completed == 0;
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct rule_tally tally = rule_tally(attempt, workload, rule_any, has_failed);
        if (stated)
            tally.seen = tally.found = attempt->observed.requests > 0 ? attempt->observed.requests : 1;
        if (tally.found && tally.found == tally.seen)
            verdicts_add(verdicts, RULE_ALL_FAILED, RULE_INVALID, workload, tally.found, NAN,
                         "none of %d requests was answered", tally.seen);
    }
}

static bool has_overflowed(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return !sample->ok && sample->error_code && strcmp(sample->error_code, "CONTEXT_OVERFLOW") == 0;
}

void rule_context_overflow(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_CONTEXT_OVERFLOW, rule_any, has_overflowed, "are longer than the model's context",
                    verdicts);
}

/* --- lengths ------------------------------------------------------------------------------------------------------ */

/* Emitted tokens by asked ones; 1 where they are unknown. */
static double output_share(const struct sample *sample)
{
    if (!sample->ok || sample->tokens < 0 || sample->asked_tokens <= 0)
        return 1;
    return (double)sample->tokens / sample->asked_tokens;
}

static bool is_excused(const struct sample *sample)
{
    return sample->finish == FINISH_STOP && !sample->asked_ignore_eos;
}

/* How far the share lies on the wrong side of the threshold: below it where `sign` is -1, above it where it is 1. */
static double excess(const struct sample *sample, int sign, double threshold)
{
    return sign < 0 && is_excused(sample) ? -INFINITY : sign * (output_share(sample) - threshold);
}

static void judge_length(const struct attempt *attempt, enum rule_id rule, int sign, double threshold,
                         struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        const struct sample *sample, *worst = NULL;
        int found = 0;
        for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
            if (!(excess(sample, sign, threshold) > 0))
                continue;
            found++;
            if (!worst || excess(sample, sign, threshold) > excess(worst, sign, threshold))
                worst = sample;
        }
        if (found)
            verdicts_add(verdicts, rule, RULE_INVALID, workload, output_share(worst), threshold,
                         "%d outputs are %s than asked; worst: %s, %d of %d tokens", found,
                         sign < 0 ? "shorter" : "longer", worst->prompt, worst->tokens, worst->asked_tokens);
    }
}

void rule_output_short(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    judge_length(attempt, RULE_OUTPUT_SHORT, -1, threshold, verdicts);
    rule_stated_short(attempt, threshold, verdicts);
}

void rule_output_long(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    judge_length(attempt, RULE_OUTPUT_LONG, 1, threshold, verdicts);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static bool has_token_ids(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->ok && sample->token_ids;
}

static bool is_repetitive(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return repetition_found(sample->token_ids, sample->tokens);
}

/* Judged on plain decoding's output: that a workload runs in circles is not its arms' doing. */
void rule_repetition(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    for (int i = 0; attempt->arm.method == METHOD_AUTO && i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct rule_tally tally = rule_tally(attempt, workload, has_token_ids, is_repetitive);
        if (tally.found && (double)tally.found / tally.seen > threshold)
            verdicts_add(verdicts, RULE_REPETITION, RULE_SUSPECT, workload, (double)tally.found / tally.seen, threshold,
                         "%d of %d outputs repeat themselves over a quarter or more of their tokens; first: %s",
                         tally.found, tally.seen, tally.first->prompt);
    }
}

static bool is_end_token(const json_t *end_tokens, int token)
{
    for (size_t i = 0; i < json_array_size(end_tokens); i++)
        if (json_integer_value(json_array_get(end_tokens, i)) == token)
            return true;
    return false;
}

static int count_past_end(const struct sample *sample, const json_t *end_tokens)
{
    for (int i = 0; i < sample->tokens; i++)
        if (is_end_token(end_tokens, sample->token_ids[i]))
            return sample->tokens - i - 1;
    return 0;
}

/* Behind its end a model writes what it was not trained to write. */
void rule_past_eos(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    const json_t *end_tokens = rule_source_value(attempt, "target", "end_tokens");
    for (int i = 0; json_array_size(end_tokens) && i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        const struct sample *sample;
        double past = 0, all = 0;
        for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
            if (!has_token_ids(attempt, sample))
                continue;
            past += count_past_end(sample, end_tokens);
            all += sample->tokens;
        }
        if (past > threshold * all)
            verdicts_add(verdicts, RULE_PAST_EOS, RULE_SUSPECT, workload, past / all, threshold,
                         "%.0f of %.0f tokens stand behind an end token", past, all);
    }
}

/* --- prompts and deliveries --------------------------------------------------------------------------------------- */

/* Tokens of all prompts, and those that an earlier request's cache had beyond what all begin with. */
struct cached {
    double tokens, beyond;
};

static struct cached count_cached(const struct attempt *attempt, const struct attempt_workload *workload)
{
    const int common = workload->common_tokens > 0 ? workload->common_tokens : 0;
    const struct sample *sample;
    struct cached cached = {0};
    for (int at = 0; (sample = attempt_next_sample(attempt, workload->name, &at));)
        if (sample->ok && sample->prompt_tokens > 0 && sample->cached_tokens >= 0) {
            cached.tokens += sample->prompt_tokens;
            cached.beyond += sample->cached_tokens > common ? sample->cached_tokens - common : 0;
        }
    return cached;
}

/* The same of all workloads together, by a server's counter, where no answer says how much of its prompt was cached. */
static struct cached count_grown(const struct attempt *attempt)
{
    struct cached cached = {0};
    double common = 0;
    for (int i = 0; i < attempt->workload_count; i++) {
        const struct attempt_workload *workload = &attempt->workloads[i];
        const struct sample *sample;
        for (int at = 0; (sample = attempt_next_sample(attempt, workload->name, &at));) {
            if (sample->cached_tokens >= 0)
                return (struct cached){0};
            cached.tokens += sample->prompt_tokens > 0 ? sample->prompt_tokens : 0;
            common += workload->common_tokens > 0 ? workload->common_tokens : 0;
        }
    }
    if (cached.tokens > 0)
        cached.beyond = fmax(observed_growth(&attempt->observed, "cached_tokens") - common, 0);
    return cached;
}

static void judge_cached(struct cached cached, const char *workload, double threshold, struct verdicts *verdicts)
{
    if (cached.beyond > threshold * cached.tokens)
        verdicts_add(verdicts, RULE_PREFIX_CACHE_HIT, RULE_INVALID, workload, cached.beyond / cached.tokens, threshold,
                     "%.0f of %.0f prompt tokens came from the cache", cached.beyond, cached.tokens);
}

void rule_prefix_cache_hit(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    if (attempt_is_stated(attempt) && json_is_true(rule_source_value(attempt, NULL, "prefix_cache")))
        verdicts_add(verdicts, RULE_PREFIX_CACHE_HIT, RULE_NOTE, NULL, NAN, threshold,
                     "the server's prefix cache was on, and nothing says what came from it");
    for (int i = 0; i < attempt->workload_count; i++)
        judge_cached(count_cached(attempt, &attempt->workloads[i]), attempt->workloads[i].name, threshold, verdicts);
    judge_cached(count_grown(attempt), NULL, threshold, verdicts);
}

/* The mean gap between deliveries by the mean time a token, over the same samples; NaN where they are unknown. */
static double chunk_ratio(const struct attempt *attempt, const char *workload)
{
    const struct sample *sample;
    double gaps_ns = 0, gaps = 0, decode_ns = 0, tokens = 0;
    for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
        if (!sample->ok || !sample->chunk_ns || sample->chunks < 2 || sample->decode_ns <= 0 ||
            sample->first_tokens < 0 || sample->tokens <= sample->first_tokens)
            continue;
        gaps_ns += (double)(sample->chunk_ns[sample->chunks - 1] - sample->chunk_ns[0]);
        gaps += sample->chunks - 1;
        decode_ns += (double)sample->decode_ns;
        tokens += sample->tokens - sample->first_tokens;
    }
    return (gaps_ns / gaps) / (decode_ns / tokens);
}

static void judge_ratio(const char *workload, double ratio, double threshold, struct verdicts *verdicts)
{
    if (ratio > threshold)
        verdicts_add(verdicts, RULE_ITL_PER_CHUNK, RULE_INVALID, workload, ratio, threshold,
                     "the mean time between deliveries is %.3g times that of a token", ratio);
}

void rule_itl_per_chunk(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    judge_ratio(NULL, attempt->observed.itl_ns / attempt->observed.tpot_ns, threshold, verdicts);
    for (int i = 0; i < attempt->workload_count; i++)
        judge_ratio(attempt->workloads[i].name, chunk_ratio(attempt, attempt->workloads[i].name), threshold, verdicts);
}
