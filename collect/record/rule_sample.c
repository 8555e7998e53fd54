/* Rules of scope sample: a request's times and counts must be possible, and say that something was answered. */
#include "collect/record/rule_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_no_tokens(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->tokens <= 0;
}

void rule_zero_tokens(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_ZERO_TOKENS, rule_ok, has_no_tokens, "that count as ok have no tokens", verdicts);
    if (attempt_is_stated(attempt) && attempt->observed.completed > 0 && attempt->observed.tokens == 0)
        verdicts_add(verdicts, RULE_ZERO_TOKENS, RULE_INVALID, NULL, 0, NAN, "%d requests, and no token in all",
                     attempt->observed.completed);
}

/* What says that it was answered, and at once that nothing came. */
static bool has_no_delivery(const struct attempt *attempt, const struct sample *sample)
{
    const bool unknown = attempt_is_imported(attempt) && sample->ttft_ns < 0;
    return sample->first_tokens == 0 && !unknown;
}

void rule_empty_stream(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_EMPTY_STREAM, rule_ok, has_no_delivery, "that count as ok delivered nothing",
                    verdicts);
}

/* An unknown time is no time of 0; decoding takes none only where the first delivery was the whole output. */
static bool takes_no_time(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    bool decoded = sample->tokens > sample->first_tokens || sample->rounds > 0;
    return sample->ttft_ns == 0 || (sample->decode_ns == 0 && decoded) ||
           (sample->start_ns >= 0 && sample->end_ns == sample->start_ns);
}

void rule_zero_latency(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const struct observed *observed = &attempt->observed;
    rule_judge_each(attempt, RULE_ZERO_LATENCY, rule_ok, takes_no_time, "that count as ok took no time", verdicts);
    if (attempt_is_stated(attempt) && observed->completed > 0 && (observed->ttft_ns == 0 || observed->tpot_ns == 0))
        verdicts_add(verdicts, RULE_ZERO_LATENCY, RULE_INVALID, NULL, 0, NAN, "%d requests took no time on average",
                     observed->completed);
}

/* However the source counted it: a status of 200 is no success where an error came with it. */
static bool holds_error(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    bool refused = sample->error_http_status >= 0 && sample->error_http_status / 100 != 2;
    bool named = sample->error_code && strcmp(sample->error_code, "INBAND_ERROR") == 0;
    return named || (sample->ok && (refused || sample->error_code || sample->error_message));
}

void rule_inband_error(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_INBAND_ERROR, rule_any, holds_error, "bring an error within an answer", verdicts);
}

static bool has_contrary_chunks(const struct sample *sample)
{
    int64_t sum = 0;
    for (int i = 0; sample->chunk_tokens && i < sample->chunks; i++)
        sum += sample->chunk_tokens[i];
    return sample->chunk_tokens && sample->tokens >= 0 && sum != sample->tokens;
}

static bool has_contrary_counts(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return (sample->tokens > 0 && sample->first_tokens > sample->tokens) || has_contrary_chunks(sample) ||
           (sample->prompt_tokens >= 0 && sample->cached_tokens > sample->prompt_tokens);
}

void rule_tokens_mismatch(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_TOKENS_MISMATCH, rule_ok, has_contrary_counts,
                    "count other tokens in all than in parts", verdicts);
    rule_stated_rate(attempt, verdicts);
}

static bool ends_before_it_starts(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->start_ns >= 0 && sample->end_ns >= 0 && sample->end_ns < sample->start_ns;
}

/* The threshold is of starts in the future, which only the ledger shows. */
void rule_clock(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_CLOCK, rule_any, ends_before_it_starts, "end before they start", verdicts);
}

static bool has_rounds(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->ok && sample->tokens > 0 && sample->first_tokens >= 0 && sample->rounds >= 0;
}

/* The last emitted token lies within the last round; other sources than the engine count one token more or less. */
static bool has_wrong_sum(const struct attempt *attempt, const struct sample *sample)
{
    int64_t slack = rule_source_value(attempt, NULL, "kind") && !rule_source_is(attempt, "kind", "engine");
    int64_t decoded = (int64_t)sample->tokens - sample->first_tokens, sum = 0;
    if (!sample->accepted)
        return sample->rounds > decoded + slack || (decoded > slack && sample->rounds == 0);
    for (int round = 0; round < sample->rounds; round++)
        sum += sample->accepted[round];
    int64_t before_last = sample->rounds ? sum - sample->accepted[sample->rounds - 1] : -1;
    return sum + slack < decoded || before_last - slack >= decoded;
}

void rule_accept_sum(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    rule_judge_each(attempt, RULE_ACCEPT_SUM, has_rounds, has_wrong_sum,
                    "have more or fewer tokens than their rounds committed", verdicts);
    rule_stated_acceptance(attempt, verdicts);
}
