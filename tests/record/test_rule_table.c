#include "collect/record/rule.h"

#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- what is done to an attempt that is well ---------------------------------------------------------------------- */

static void nothing(struct attempt *a)
{
    (void)a;
}

static void no_end(struct attempt *a)
{
    a->complete = false;
    free(a->end_status);
    a->end_status = NULL;
}

static void aborted(struct attempt *a)
{
    no_end(a);
    a->end_status = xstrdup("aborted");
}

static void only_warmup(struct attempt *a)
{
    for (int i = 0; i < FIXTURE_SAMPLES; i++)
        a->samples[i].warmup = true;
}

static void one_is_warmup(struct attempt *a)
{
    a->samples[0].warmup = true;
}

static void no_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 0, 9);
    a->samples[4].asked_tokens = ATTEMPT_ABSENT;
}

static void unknown_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 0, 9);
    a->samples[4].tokens = ATTEMPT_ABSENT;
}

static void no_tokens_in_warmup(struct attempt *a)
{
    no_tokens(a);
    a->samples[4].warmup = true;
}

static void one_token(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 1, 1);
}

static void one_fails(struct attempt *a)
{
    fixture_fail_sample(&a->samples[2], "SILENT");
}

static void warmup_fails(struct attempt *a)
{
    one_fails(a);
    a->samples[2].warmup = true;
}

static void one_overflows(struct attempt *a)
{
    fixture_fail_sample(&a->samples[2], "CONTEXT_OVERFLOW");
}

static void asks_50(struct attempt *a, int tokens)
{
    fixture_set_tokens(&a->samples[1], tokens, 50);
    a->samples[1].finish = FINISH_LENGTH;
}

static void emits_48_of_50(struct attempt *a)
{
    asks_50(a, 48);
}

static void emits_49_of_50(struct attempt *a)
{
    asks_50(a, 49);
}

static void stops_at_an_end_token(struct attempt *a)
{
    asks_50(a, 5);
    a->samples[1].finish = FINISH_STOP;
    a->samples[1].asked_ignore_eos = false;
}

static void stops_though_it_must_not(struct attempt *a)
{
    stops_at_an_end_token(a);
    a->samples[1].asked_ignore_eos = true;
}

static void is_short_without_a_reason(struct attempt *a)
{
    stops_at_an_end_token(a);
    a->samples[1].finish = FINISH_ABSENT;
}

static void asks_for_nothing_known(struct attempt *a)
{
    asks_50(a, 3);
    a->samples[1].asked_tokens = ATTEMPT_ABSENT;
}

/* Two rounds, the first of so many tokens, that fit their output exactly. */
static void first_round(struct attempt *a, int accepted)
{
    const int rounds[2] = {accepted, 1};
    fixture_set_tokens(&a->samples[3], 1 + accepted + 1, 1 + accepted + 1);
    fixture_set_accepted(&a->samples[3], 2, rounds);
}

static void round_of_16(struct attempt *a)
{
    first_round(a, 16);
}

static void round_of_17(struct attempt *a)
{
    first_round(a, 17);
}

static void round_of_9(struct attempt *a)
{
    first_round(a, 9);
}

static void round_of_10(struct attempt *a)
{
    first_round(a, 10);
}

static void round_of_2(struct attempt *a)
{
    first_round(a, 2);
}

static void round_of_none(struct attempt *a)
{
    const int rounds[4] = {0, 3, 2, 4};
    fixture_set_accepted(&a->samples[3], 4, rounds);
}

static void round_of_17_block_size_unknown(struct attempt *a)
{
    round_of_17(a);
    json_object_del(json_object_get(json_object_get(a->header, "source"), "drafter"), "block_size");
}

static void round_of_10_block_size_unknown(struct attempt *a)
{
    round_of_17_block_size_unknown(a);
    round_of_10(a);
}

static void rounds_are(struct attempt *a, int first, int second, int third)
{
    const int rounds[3] = {first, second, third};
    fixture_set_accepted(&a->samples[5], 3, rounds);
}

static void sum_is_exact(struct attempt *a)
{
    rounds_are(a, 3, 2, 3);
}

static void sum_is_one_less(struct attempt *a)
{
    rounds_are(a, 3, 2, 2);
}

static void last_round_is_needless(struct attempt *a)
{
    rounds_are(a, 3, 5, 1);
}

static void last_round_is_just_needed(struct attempt *a)
{
    rounds_are(a, 3, 4, 9);
}

static void sum_is_one_less_import(struct attempt *a)
{
    sum_is_one_less(a);
    fixture_set_source(a, NULL, "kind", json_string("import"));
}

static void sum_is_two_less_import(struct attempt *a)
{
    rounds_are(a, 3, 2, 1);
    fixture_set_source(a, NULL, "kind", json_string("import"));
}

static void no_rounds_but_tokens(struct attempt *a)
{
    a->samples[5].rounds = 0;
}

static void first_delivery_is_unknown(struct attempt *a)
{
    sum_is_one_less(a);
    a->samples[5].first_tokens = ATTEMPT_ABSENT;
}

static void more_rounds_than_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[5], 9, 9);
    a->samples[5].rounds = 9;
}

static void as_many_rounds_as_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[5], 9, 9);
    a->samples[5].rounds = 8;
}

static void audited(struct attempt *a, const char *dtype, double regret)
{
    a->audit = (struct audit){true, regret, 90};
    fixture_set_source(a, NULL, "dtype", json_string(dtype));
}

static void regret_float32(struct attempt *a)
{
    audited(a, "float32", .0011);
}

static void small_regret_float32(struct attempt *a)
{
    audited(a, "float32", .001);
}

static void regret_bfloat16(struct attempt *a)
{
    audited(a, "bfloat16", .51);
}

static void small_regret_bfloat16(struct attempt *a)
{
    audited(a, "bfloat16", .5);
}

static void regret_is_no_number(struct attempt *a)
{
    audited(a, "bfloat16", NAN);
}

/* Of 40 tokens the last `covered` have a period of `period`. */
static void repeat(struct sample *sample, int covered, int period)
{
    fixture_set_tokens(sample, 40, 40);
    for (int i = 40 - covered + period; i < 40; i++)
        sample->token_ids[i] = sample->token_ids[i - period];
}

static void one_repeats(struct attempt *a)
{
    repeat(&a->samples[0], 40, 1);
}

static void two_repeat_a_quarter(struct attempt *a)
{
    repeat(&a->samples[0], 10, 3);
    repeat(&a->samples[1], 40, 1);
}

static void two_repeat_less(struct attempt *a)
{
    repeat(&a->samples[0], 9, 3);
    repeat(&a->samples[1], 9, 1);
}

static void two_repeat_but_not_thrice(struct attempt *a)
{
    repeat(&a->samples[0], 11, 4);
    repeat(&a->samples[1], 29, 10);
}

static void two_repeat_thrice(struct attempt *a)
{
    repeat(&a->samples[0], 12, 4);
    repeat(&a->samples[1], 30, 10);
}

/* --- rules of one attempt ----------------------------------------------------------------------------------------- */

#define NO_RULE RULE_COUNT

static const struct {
    const char *arm;
    void (*change)(struct attempt *attempt);
    enum rule_id rule; /* the only one that fires */
    enum rule_level level;
    bool whole; /* of the whole attempt, not of a workload */
    double observed;
} cases[] = {
    {"tp1-auto", nothing, NO_RULE},
    {"tp1-linear", nothing, NO_RULE},
    {"tp1-b8", nothing, NO_RULE},
    {"tp1-b8", no_end, RULE_INCOMPLETE, RULE_INVALID, true, NAN},
    {"tp1-b8", aborted, RULE_INCOMPLETE, RULE_INVALID, true, NAN},
    {"tp1-b8", only_warmup, RULE_INCOMPLETE, RULE_INVALID, false, 0},
    {"tp1-b8", one_is_warmup, NO_RULE},
    {"tp1-b8", no_tokens, RULE_ZERO_TOKENS, RULE_INVALID, false, 1},
    {"tp1-b8", unknown_tokens, RULE_ZERO_TOKENS, RULE_INVALID, false, 1},
    {"tp1-b8", no_tokens_in_warmup, NO_RULE},
    {"tp1-b8", one_token, NO_RULE},
    {"tp1-b8", one_fails, RULE_FAILED_REQUEST, RULE_INVALID, false, .1},
    {"tp1-b8", warmup_fails, NO_RULE},
    {"tp1-b8", emits_48_of_50, RULE_OUTPUT_SHORT, RULE_INVALID, false, .96},
    {"tp1-b8", emits_49_of_50, NO_RULE},
    {"tp1-b8", stops_at_an_end_token, NO_RULE},
    {"tp1-b8", stops_though_it_must_not, RULE_OUTPUT_SHORT, RULE_INVALID, false, .1},
    {"tp1-b8", is_short_without_a_reason, RULE_OUTPUT_SHORT, RULE_INVALID, false, .1},
    {"tp1-b8", asks_for_nothing_known, NO_RULE},
    {"tp1-linear", round_of_16, NO_RULE},
    {"tp1-linear", round_of_17, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 17},
    {"tp1-linear", round_of_17_block_size_unknown, NO_RULE},
    {"tp1-linear", round_of_none, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 0},
    {"tp1-b8", round_of_9, NO_RULE},
    {"tp1-b8", round_of_10, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 10},
    {"tp1-b8", round_of_10_block_size_unknown, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 10},
    {"tp1-b64", round_of_16, NO_RULE},
    {"tp1-b64", round_of_17, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 17},
    {"tp1-b64", round_of_17_block_size_unknown, NO_RULE},
    {"tp1-auto", round_of_2, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 2},
    {"tp1-b8", sum_is_exact, NO_RULE},
    {"tp1-b8", sum_is_one_less, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", last_round_is_needless, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", last_round_is_just_needed, NO_RULE},
    {"tp1-b8", sum_is_one_less_import, NO_RULE},
    {"tp1-b8", sum_is_two_less_import, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", no_rounds_but_tokens, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", first_delivery_is_unknown, NO_RULE},
    {"tp1-b8", more_rounds_than_tokens, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", as_many_rounds_as_tokens, NO_RULE},
    {"tp1-b8", regret_float32, RULE_AUDIT_REGRET, RULE_INVALID, true, .0011},
    {"tp1-b8", small_regret_float32, NO_RULE},
    {"tp1-b8", regret_bfloat16, RULE_AUDIT_REGRET, RULE_INVALID, true, .51},
    {"tp1-b8", small_regret_bfloat16, NO_RULE},
    {"tp1-b8", regret_is_no_number, RULE_AUDIT_REGRET, RULE_INVALID, true, NAN},
    {"tp1-auto", one_repeats, NO_RULE},
    {"tp1-auto", two_repeat_a_quarter, RULE_REPETITION, RULE_SUSPECT, false, .2},
    {"tp1-auto", two_repeat_less, NO_RULE},
    {"tp1-auto", two_repeat_but_not_thrice, NO_RULE},
    {"tp1-auto", two_repeat_thrice, RULE_REPETITION, RULE_SUSPECT, false, .2},
    {"tp1-b8", two_repeat_a_quarter, NO_RULE},
};

static void test_each_rule_fires_where_it_must_and_not_beside(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attempt attempt;
        struct verdicts verdicts = {0};
        fixture_build(&attempt, cases[i].arm);
        cases[i].change(&attempt);
        rule_judge_attempt(&attempt, NULL, &verdicts);
        if (verdicts.count != (cases[i].rule != NO_RULE))
            fail_msg("case %zu: %d verdicts, first: %s", i, verdicts.count,
                     verdicts.count ? verdicts.items[0].detail : "none");
        if (verdicts.count) {
            const struct verdict *verdict = &verdicts.items[0];
            assert_string_equal(rule_table[verdict->rule].id, rule_table[cases[i].rule].id);
            assert_int_equal(verdict->level, cases[i].level);
            assert_int_equal(verdict->workload == NULL, cases[i].whole);
            assert_true(isnan(cases[i].observed) ? isnan(verdict->observed) : verdict->observed == cases[i].observed);
            assert_null(strpbrk(verdict->detail, "\n\r\t"));
        }
        verdicts_free(&verdicts);
        attempt_free(&attempt);
    }
}

static void test_an_overflow_is_also_a_failure(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-linear");
    one_overflows(&attempt);
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.count, 2);
    assert_int_equal(verdicts.items[0].rule, RULE_FAILED_REQUEST);
    assert_non_null(strstr(verdicts.items[0].detail, "p2: CONTEXT_OVERFLOW: first second"));
    assert_int_equal(verdicts.items[1].rule, RULE_CONTEXT_OVERFLOW);
    assert_non_null(strstr(verdicts.items[1].detail, "p2"));
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

static void test_a_rule_of_one_workload_leaves_the_others_alone(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-linear");
    attempt.workloads = xrealloc(attempt.workloads, 2, sizeof *attempt.workloads);
    attempt.workloads[attempt.workload_count++] =
        (struct attempt_workload){xstrdup("maths"), xstrdup("c2"), xstrdup("d2")};
    for (int i = 0; i < FIXTURE_SAMPLES; i += 2) {
        free(attempt.samples[i].workload);
        attempt.samples[i].workload = xstrdup("maths");
    }
    one_fails(&attempt);
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.count, 1);
    assert_string_equal(verdicts.items[0].workload, "maths");
    assert_true(verdicts.items[0].observed == .2);
    assert_int_equal(rule_worst(&verdicts, "maths", RULE_VOIDS_TIMES), RULE_INVALID);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_ALL), RULE_VALID);
    assert_int_equal(rule_worst(&verdicts, NULL, RULE_VOIDS_ALL), RULE_VALID);
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_fires_where_it_must_and_not_beside),
        cmocka_unit_test(test_an_overflow_is_also_a_failure),
        cmocka_unit_test(test_a_rule_of_one_workload_leaves_the_others_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
