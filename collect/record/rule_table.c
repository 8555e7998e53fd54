/* The rules themselves. A new rule is an entry of enum rule_id, a function here and a row of the table below. */
#include "collect/record/rule.h"

#include "collect/record/divergence.h"
#include "collect/record/repetition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what the rules look at --------------------------------------------------------------------------------------- */

/* A value within the header's "source". */
static const json_t *source_value(const struct attempt *attempt, const char *object, const char *key)
{
    const json_t *source = json_object_get(attempt->header, "source");
    return json_object_get(object ? json_object_get(source, object) : source, key);
}

static bool source_is(const struct attempt *attempt, const char *key, const char *text)
{
    const char *value = json_string_value(source_value(attempt, NULL, key));
    return value && strcmp(value, text) == 0;
}

/* How far below the best logit a chosen token may lie before it is suspect, and before it is wrong. */
struct regret_limits {
    double suspect, invalid;
};

static struct regret_limits regret_limits(const struct attempt *attempt)
{
    return source_is(attempt, "dtype", "float32") ? (struct regret_limits){1e-3, 1e-3}
                                                  : (struct regret_limits){.25, .5};
}

typedef bool sample_test(const struct attempt *attempt, const struct sample *sample);

struct tally {
    int seen, found;
    const struct sample *first; /* of those found */
};

/* Of the workload's measured samples that `counts`, those for which `test` holds. */
static struct tally tally_samples(const struct attempt *attempt, const char *workload, sample_test *counts,
                                  sample_test *test)
{
    struct tally tally = {0};
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

static bool is_any(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt, (void)sample;
    return true;
}

static bool is_ok(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->ok;
}

/* A verdict for each workload that has a sample for which `test` holds. */
static void judge_each(const struct attempt *attempt, enum rule_id rule, sample_test *counts, sample_test *test,
                       const char *what, struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct tally tally = tally_samples(attempt, workload, counts, test);
        if (tally.found)
            verdicts_add(verdicts, rule, rule_table[rule].level, workload, tally.found, NAN,
                         "%d of %d samples %s; first: %s", tally.found, tally.seen, what, tally.first->prompt);
    }
}

/* --- rules of one attempt ----------------------------------------------------------------------------------------- */

static void judge_incomplete(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    if (attempt->end_status && !attempt->complete)
        verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "ended as \"%s\" after %d samples",
                     attempt->end_status, attempt->sample_count);
    else if (!attempt->complete)
        verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "no end line after %d samples%s",
                     attempt->sample_count, attempt->torn_bytes ? " and a torn line" : "");
    for (int i = 0; attempt->complete && i < attempt->workload_count; i++)
        if (!tally_samples(attempt, attempt->workloads[i].name, is_any, is_any).seen)
            verdicts_add(verdicts, RULE_INCOMPLETE, RULE_INVALID, attempt->workloads[i].name, 0, NAN,
                         "no measured sample");
}

static bool has_no_tokens(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->tokens <= 0;
}

static void judge_zero_tokens(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_each(attempt, RULE_ZERO_TOKENS, is_ok, has_no_tokens, "that count as ok have no tokens", verdicts);
}

static bool has_failed(const struct attempt *attempt, const struct sample *sample)
{
    return !is_ok(attempt, sample);
}

/* Where every request failed nothing is left to report, whatever the threshold. */
static void judge_failed_request(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct tally tally = tally_samples(attempt, workload, is_any, has_failed);
        if (!tally.found || (tally.found < tally.seen && (double)tally.found / tally.seen <= threshold))
            continue;
        const struct sample *first = tally.first;
        verdicts_add(verdicts, RULE_FAILED_REQUEST, RULE_INVALID, workload, (double)tally.found / tally.seen, threshold,
                     "%d of %d requests failed; first: %s: %.40s: %.300s", tally.found, tally.seen, first->prompt,
                     first->error_code ? first->error_code : "no code",
                     first->error_message ? first->error_message : "no message");
    }
}

static bool has_overflowed(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return !sample->ok && sample->error_code && strcmp(sample->error_code, "CONTEXT_OVERFLOW") == 0;
}

static void judge_context_overflow(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_each(attempt, RULE_CONTEXT_OVERFLOW, is_any, has_overflowed, "are longer than the model's context", verdicts);
}

/* Emitted tokens by asked ones; 1 where they are unknown or an end token may excuse them. */
static double output_share(const struct sample *sample)
{
    bool excused = sample->finish == FINISH_STOP && !sample->asked_ignore_eos;
    if (!sample->ok || excused || sample->tokens < 0 || sample->asked_tokens <= 0)
        return 1;
    return (double)sample->tokens / sample->asked_tokens;
}

static void judge_output_short(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    for (int i = 0; i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        const struct sample *sample, *worst = NULL;
        int found = 0;
        for (int at = 0; (sample = attempt_next_sample(attempt, workload, &at));) {
            if (output_share(sample) >= threshold)
                continue;
            found++;
            if (!worst || output_share(sample) < output_share(worst))
                worst = sample;
        }
        if (found)
            verdicts_add(verdicts, RULE_OUTPUT_SHORT, RULE_INVALID, workload, output_share(worst), threshold,
                         "%d outputs are shorter than asked; worst: %s, %d of %d tokens", found, worst->prompt,
                         worst->tokens, worst->asked_tokens);
    }
}

/* The most tokens that a round of this arm can commit. */
static int accepted_limit(const struct attempt *attempt)
{
    json_int_t block_size = json_integer_value(source_value(attempt, "drafter", "block_size"));
    bool known = block_size >= 1 && block_size <= INT32_MAX;
    int depth = known ? (int)block_size - 1 : INT32_MAX - 1; /* drafted tokens on a path, at most */
    if (attempt->arm.method == METHOD_AUTO)
        return 1;
    if (attempt->arm.method == METHOD_DDTREE && attempt->arm.budget < depth)
        depth = attempt->arm.budget;
    return depth + 1;
}

/* How far outside 1 to `limit` the value lies; 0 where it does not. */
static int distance_outside(int accepted, int limit)
{
    if (accepted < 1)
        return 1 - accepted;
    return accepted > limit ? accepted - limit : 0;
}

static void judge_accept_out_of_range(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const int limit = accepted_limit(attempt);
    const struct sample *worst = NULL;
    int found = 0, worst_round = 0;
    for (int i = 0; i < attempt->sample_count; i++) {
        const struct sample *sample = &attempt->samples[i];
        if (sample->warmup || !sample->ok || !sample->accepted)
            continue;
        for (int round = 0; round < sample->rounds; round++) {
            int distance = distance_outside(sample->accepted[round], limit);
            found += distance > 0;
            if (distance > (worst ? distance_outside(worst->accepted[worst_round], limit) : 0)) {
                worst = sample;
                worst_round = round;
            }
        }
    }
    if (found)
        verdicts_add(verdicts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, NULL, worst->accepted[worst_round], limit,
                     "%d rounds committed fewer than 1 or more than %d tokens; worst: %s, %s, round %d: %d", found,
                     limit, worst->workload, worst->prompt, worst_round + 1, worst->accepted[worst_round]);
}

static bool has_rounds(const struct attempt *attempt, const struct sample *sample)
{
    (void)attempt;
    return sample->ok && sample->tokens > 0 && sample->first_tokens >= 0 && sample->rounds >= 0;
}

/* The last emitted token lies within the last round; other sources than the engine count one token more or less. */
static bool has_wrong_sum(const struct attempt *attempt, const struct sample *sample)
{
    int64_t slack = source_value(attempt, NULL, "kind") && !source_is(attempt, "kind", "engine");
    int64_t decoded = (int64_t)sample->tokens - sample->first_tokens, sum = 0;
    if (!sample->accepted)
        return sample->rounds > decoded + slack || (decoded > slack && sample->rounds == 0);
    for (int round = 0; round < sample->rounds; round++)
        sum += sample->accepted[round];
    int64_t before_last = sample->rounds ? sum - sample->accepted[sample->rounds - 1] : -1;
    return sum + slack < decoded || before_last - slack >= decoded;
}

static void judge_accept_sum(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    judge_each(attempt, RULE_ACCEPT_SUM, has_rounds, has_wrong_sum,
               "have more or fewer tokens than their rounds committed", verdicts);
}

static void judge_audit_regret(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    (void)threshold;
    const double limit = regret_limits(attempt).invalid;
    const double regret = attempt->audit.regret_max;
    if (attempt->audit.done && isnan(regret))
        verdicts_add(verdicts, RULE_AUDIT_REGRET, RULE_INVALID, NULL, NAN, limit, "the regret is not a finite number");
    else if (attempt->audit.done && regret > limit)
        verdicts_add(verdicts, RULE_AUDIT_REGRET, RULE_INVALID, NULL, regret, limit,
                     "a chosen token lies %.3g below the best of plain decoding", regret);
}

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
static void judge_repetition(const struct attempt *attempt, double threshold, struct verdicts *verdicts)
{
    for (int i = 0; attempt->arm.method == METHOD_AUTO && i < attempt->workload_count; i++) {
        const char *workload = attempt->workloads[i].name;
        struct tally tally = tally_samples(attempt, workload, has_token_ids, is_repetitive);
        if (tally.found && (double)tally.found / tally.seen > threshold)
            verdicts_add(verdicts, RULE_REPETITION, RULE_SUSPECT, workload, (double)tally.found / tally.seen, threshold,
                         "%d of %d outputs repeat themselves over a quarter or more of their tokens; first: %s",
                         tally.found, tally.seen, tally.first->prompt);
    }
}

/* --- rules of an attempt beside its baseline ---------------------------------------------------------------------- */

static void add_divergence(const struct divergence *divergence, const struct regret_limits *limits,
                           const char *workload, struct verdicts *verdicts)
{
    bool wrong = divergence->regret > limits->invalid;
    bool suspect = divergence->regret > limits->suspect || divergence->unjudged;
    enum rule_level level = wrong ? RULE_INVALID : suspect ? RULE_SUSPECT : RULE_NOTE;
    double limit = isnan(divergence->regret) ? NAN : wrong ? limits->invalid : limits->suspect;
    char regret[64] = "without a margin";
    if (!isnan(divergence->regret))
        snprintf(regret, sizeof regret, "at least %.3g below the best", divergence->regret);
    verdicts_add(verdicts, RULE_OUTPUT_DIVERGES, level, workload, divergence->regret, limit,
                 "%d of %d outputs (%.0f %%) differ from auto's; worst: %s, token %d, %s", divergence->diverged,
                 divergence->compared, 100.0 * divergence->diverged / divergence->compared, divergence->worst->prompt,
                 divergence->position + 1, regret);
}

/* The plan's temperature stands in the header; a source that has its own says so itself. */
static bool is_greedy(const struct attempt *attempt)
{
    const json_t *sampling = json_object_get(attempt->header, "sampling");
    return !(json_number_value(json_object_get(sampling, "temperature")) > 0) &&
           !(json_number_value(source_value(attempt, "sampling", "temperature")) > 0);
}

static void judge_output_diverges(const struct attempt *attempt, const struct attempt *baseline, double threshold,
                                  struct verdicts *verdicts)
{
    (void)threshold;
    if (baseline->arm.method != METHOD_AUTO || !is_greedy(attempt) || !is_greedy(baseline))
        return;
    const struct regret_limits limits = regret_limits(attempt);
    for (int i = 0; i < attempt->workload_count; i++) {
        struct divergence divergence;
        divergence_measure(attempt, baseline, attempt->workloads[i].name, &divergence);
        if (divergence.diverged)
            add_divergence(&divergence, &limits, attempt->workloads[i].name, verdicts);
    }
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* id, version, scope, voids, level, threshold, settable to, explanation, judge, judge_pair */
const struct rule rule_table[RULE_COUNT] = {
    [RULE_INCOMPLETE] = {"INCOMPLETE", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                         "The attempt did not run to its end, or its file cannot be read.", judge_incomplete, NULL},
    [RULE_ZERO_TOKENS] = {"ZERO_TOKENS", 1, RULE_SAMPLE, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                          "A request counted as ok, but no token came of it, or how many is unknown.",
                          judge_zero_tokens, NULL},
    [RULE_FAILED_REQUEST] = {"FAILED_REQUEST", 1, RULE_WORKLOAD, RULE_VOIDS_ALL, RULE_INVALID, 0, 1,
                             "A larger share of the requests failed than is allowed; who refuses work looks faster.",
                             judge_failed_request, NULL},
    [RULE_CONTEXT_OVERFLOW] = {"CONTEXT_OVERFLOW", 1, RULE_WORKLOAD, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                               "Prompt and output together are longer than the model's context.",
                               judge_context_overflow, NULL},
    [RULE_OUTPUT_SHORT] =
        {"OUTPUT_SHORT", 1, RULE_WORKLOAD, RULE_VOIDS_ALL, RULE_INVALID, .98, 1,
         "An output is shorter than asked, and no end token that was allowed to end it explains that.",
         judge_output_short, NULL},
    [RULE_ACCEPT_OUT_OF_RANGE] = {"ACCEPT_OUT_OF_RANGE", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                                  "A round committed no token, or more than block and budget allow.",
                                  judge_accept_out_of_range, NULL},
    [RULE_ACCEPT_SUM] = {"ACCEPT_SUM", 1, RULE_SAMPLE, RULE_VOIDS_TAU, RULE_INVALID, NAN, 0,
                         "The tokens that the rounds committed do not add up to the output.", judge_accept_sum, NULL},
    [RULE_OUTPUT_DIVERGES] = {"OUTPUT_DIVERGES", 1, RULE_PAIR, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                              "At temperature 0 an output differs from plain decoding's where no near tie explains it.",
                              NULL, judge_output_diverges},
    [RULE_AUDIT_REGRET] =
        {"AUDIT_REGRET", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
         "Rescored by plain decoding, a chosen token lies further below the best than rounding explains.",
         judge_audit_regret, NULL},
    [RULE_REPETITION] = {"REPETITION", 1, RULE_WORKLOAD, RULE_VOIDS_NONE, RULE_SUSPECT, .1, 1,
                         "Many outputs of plain decoding repeat themselves, which flatters speculation.",
                         judge_repetition, NULL},
    [RULE_WITHDRAWN] = {"WITHDRAWN", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                        "A person withdrew the attempt, for the reason given.", NULL, NULL},
    [RULE_TAMPERED] = {"TAMPERED", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                       "The file is not the one whose hash the ledger took when the attempt ended, or the ledger does "
                       "not know it.",
                       NULL, NULL},
    [RULE_VANISHED] = {"VANISHED", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                       "The ledger knows the attempt, but its file is gone, and nobody purged it.", NULL, NULL},
    [RULE_SUPERSEDED] = {"SUPERSEDED", 1, RULE_ATTEMPT, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                         "A later valid try of the same block counts in its place.", NULL, NULL},
    [RULE_NOT_MEASURED] = {"NOT_MEASURED", 1, RULE_BLOCK, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                           "No attempt was made of this arm in the block.", NULL, NULL},
    [RULE_FINGERPRINT] = {"FINGERPRINT", 1, RULE_CELL, RULE_VOIDS_ALL, RULE_INVALID, NAN, 0,
                          "Attempts under other settings, models, programs or machines are never pooled or compared: "
                          "the newest settings with enough blocks count.",
                          NULL, NULL},
    [RULE_UNPAIRED_RERUN] = {"UNPAIRED_RERUN", 1, RULE_PAIR, RULE_VOIDS_SPEEDUP, RULE_INVALID, NAN, 0,
                             "Arm and baseline were not measured in one session (one boot, at most 12 hours), so what "
                             "drifts between sessions would count as a difference between them.",
                             NULL, NULL},
    [RULE_NO_SHARED_PROMPT] = {"NO_SHARED_PROMPT", 1, RULE_PAIR, RULE_VOIDS_SPEEDUP, RULE_INVALID, NAN, 0,
                               "No prompt was answered with a decode time by both arm and baseline.", NULL, NULL},
    [RULE_MIN_BLOCKS] = {"MIN_BLOCKS", 1, RULE_CELL, RULE_VOIDS_NONE, RULE_SUSPECT, 3, ATTEMPT_BLOCK_MAXIMUM,
                         "Too few blocks for an interval: the value stands alone.", NULL, NULL},
};
