/* Rules on what was read from another tool's file, with its requests or without. */
#include "tests/record/fixture.h"
#include "tests/record/rule_cases.h"

#include "collect/base/json.h"
#include "collect/record/stated.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void is_imported(struct attempt *a)
{
    fixture_set_source(a, NULL, "kind", json_string("import"));
}

/* 40 requests in 16 s of 2 at a time: 100 tokens each, 0.4 s to the first and 0.8 s in all. */
static void is_stated(struct attempt *a)
{
    is_imported(a);
    for (int i = 0; i < a->sample_count; i++)
        sample_free(&a->samples[i]);
    a->sample_count = 0;
    a->arm.concurrency = 2;
    a->observed.requests = a->observed.completed = 40;
    a->observed.tokens = 4000;
    a->observed.duration_ns = 16000000000;
    a->observed.ttft_ns = 4e8;
    a->observed.e2e_ns = 8e8;
    a->observed.accept_length = 2.5;
}

/* --- what the file says of itself --------------------------------------------------------------------------------- */

static void set_import(struct attempt *a, const char *key, json_t *value)
{
    is_stated(a);
    json_t *import = json_object();
    json_set(import, key, value);
    json_set(a->header, "import", import);
}

static void is_called_invalid(struct attempt *a)
{
    set_import(a, "invalid", json_string("Min duration not satisfied"));
}

static void has_oddity(struct attempt *a, const char *name)
{
    set_import(a, "oddities", json_pack("{s:{s:i,s:i,s:s}}", name, "count", 2, "offset", 17, "example", "k"));
}

static void has_a_key_twice(struct attempt *a)
{
    has_oddity(a, "duplicate key");
}

static void was_cut(struct attempt *a)
{
    has_oddity(a, "cut off");
}

static void has_infinity(struct attempt *a)
{
    has_oddity(a, "not a finite number");
}

/* --- requests that are not there ---------------------------------------------------------------------------------- */

static void none_was_answered(struct attempt *a)
{
    is_stated(a);
    a->observed.completed = 0;
    a->observed.requests = ATTEMPT_ABSENT;
    a->observed.tokens = 0;
    a->observed.ttft_ns = a->observed.tpot_ns = 0;
}

static void one_failed(struct attempt *a)
{
    is_stated(a);
    a->observed.completed = 38;
    a->observed.cancelled = 1;
}

static void two_were_cancelled(struct attempt *a)
{
    one_failed(a);
    a->observed.cancelled = 2;
}

static void none_has_tokens(struct attempt *a)
{
    is_stated(a);
    a->observed.tokens = 0;
    a->observed.tpot_ns = 1;
}

static void first_tokens_took_no_time(struct attempt *a)
{
    is_stated(a);
    a->observed.ttft_ns = 0;
}

static void says_no_acceptance(struct attempt *a)
{
    is_stated(a);
    a->observed.accept_length = NAN;
}

static void takes(struct attempt *a, int requests, int64_t duration_ns)
{
    is_stated(a);
    a->arm.concurrency = 1;
    a->observed.e2e_ns = (double)duration_ns / requests;
    a->observed.ttft_ns = a->observed.e2e_ns / 2;
    a->observed.requests = a->observed.completed = requests;
    a->observed.duration_ns = duration_ns;
}

static void takes_10_s(struct attempt *a)
{
    takes(a, 10, 10000000000);
}

static void takes_less_than_10_s(struct attempt *a)
{
    takes(a, 10, 9900000000);
}

static void has_9_requests(struct attempt *a)
{
    takes(a, 9, 10000000000);
}

static void asks(struct attempt *a, int tokens)
{
    is_stated(a);
    json_set(json_object_get(json_object_get(a->header, "workloads"), "code"), "max_new_tokens", json_integer(tokens));
}

static void asks_for_102(struct attempt *a)
{
    asks(a, 102);
}

static void asks_for_103(struct attempt *a)
{
    asks(a, 103);
}

/* Of 100 tokens each answer has one in no round: 99 in at most 9 a round. */
static void commits(struct attempt *a, double length)
{
    is_stated(a);
    a->observed.accept_length = length;
}

static void commits_9(struct attempt *a)
{
    commits(a, 9.09);
}

static void commits_more_than_9(struct attempt *a)
{
    commits(a, 9.1);
}

static void commits_1(struct attempt *a)
{
    commits(a, 1.01);
}

static void adds_up_by_position(struct attempt *a, double length)
{
    is_stated(a);
    fixture_set_source(a, NULL, "acceptance_by_position", json_real(length));
}

static void adds_up_nearly(struct attempt *a)
{
    adds_up_by_position(a, 2.52);
}

static void adds_up_to_half(struct attempt *a)
{
    adds_up_by_position(a, 1.75);
}

static void rounds_its_rate(struct attempt *a)
{
    is_stated(a);
    a->observed.tokens_per_s = 250.2;
}

static void states_another_rate(struct attempt *a)
{
    is_stated(a);
    a->observed.tokens_per_s = 251;
}

static void repeats_its_load_too_often(struct attempt *a)
{
    is_stated(a);
    a->observed.e2e_ns = 8.1e8;
}

/* --- times -------------------------------------------------------------------------------------------------------- */

static void has_no_times(struct attempt *a)
{
    is_stated(a);
    a->observed.ttft_ns = a->observed.e2e_ns = NAN;
}

static void has_its_whole_time_alone(struct attempt *a)
{
    has_no_times(a);
    a->arm.concurrency = 1;
}

static void samples_have_no_times(struct attempt *a)
{
    is_imported(a);
    a->observed.duration_ns = 10000000000;
    for (int i = 0; i < a->sample_count; i++)
        a->samples[i].decode_ns = ATTEMPT_ABSENT;
}

/* What the first delivery held and when it came is unknown: nothing says that it was empty. */
static void samples_have_their_whole_time(struct attempt *a)
{
    is_imported(a);
    a->observed.duration_ns = 10000000000;
    for (int i = 0; i < a->sample_count; i++) {
        a->samples[i].ttft_ns = ATTEMPT_ABSENT;
        a->samples[i].first_tokens = 0;
    }
}

static void a_sample_was_cancelled(struct attempt *a)
{
    is_imported(a);
    a->observed.duration_ns = 10000000000;
    fixture_fail_sample(&a->samples[3], SAMPLE_CANCELLED);
}

static void test_each_rule_fires_where_it_should(void **state)
{
    (void)state;
    const struct rule_case cases[] = {
        {"tp1-b16", is_stated, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", is_called_invalid, RULE_DECLARED_INVALID, RULE_INVALID, true, NAN},
        {"tp1-b16", has_a_key_twice, RULE_SOURCE_DAMAGED, RULE_SUSPECT, true, 2},
        {"tp1-b16", was_cut, RULE_SOURCE_DAMAGED, RULE_SUSPECT, true, 2},
        {"tp1-b16", has_infinity, RULE_SOURCE_DAMAGED, RULE_NOTE, true, 2},
        {"tp1-b16", one_failed, RULE_FAILED_REQUEST, RULE_INVALID, true, .05},
        {"tp1-b16", two_were_cancelled, RULE_FAILED_REQUEST, RULE_SUSPECT, true, .05},
        {"tp1-b16", a_sample_was_cancelled, RULE_FAILED_REQUEST, RULE_SUSPECT, false, .1},
        {"tp1-b16", none_has_tokens, RULE_ZERO_TOKENS, RULE_INVALID, true, 0},
        {"tp1-b16", first_tokens_took_no_time, RULE_ZERO_LATENCY, RULE_INVALID, true, 0},
        {"tp1-b16", says_no_acceptance, RULE_SPEC_METRICS_MISSING, RULE_INVALID, true, NAN},
        {"tp1-auto", says_no_acceptance, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", takes_10_s, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", takes_less_than_10_s, RULE_SHORT_RUN, RULE_SUSPECT, true, 9.9},
        {"tp1-b16", has_9_requests, RULE_SHORT_RUN, RULE_SUSPECT, true, 9},
        {"tp1-b16", asks_for_102, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", asks_for_103, RULE_OUTPUT_SHORT, RULE_SUSPECT, false, 100. / 103},
        {"tp1-b16", repeats_its_load_too_often, RULE_LITTLES_LAW, RULE_INVALID, true, 40 * 8.1e8 / 16e9},
        {"tp1-b8", commits_9, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b8", commits_more_than_9, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 9.1 * .99},
        {"tp1-auto", commits_1, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-auto", is_stated, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 2.5 * .99},
        {"tp1-b16", adds_up_nearly, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", adds_up_to_half, RULE_ACCEPT_SUM, RULE_INVALID, true, 1.75},
        {"tp1-b16", rounds_its_rate, NO_RULE, RULE_VALID, false, NAN},
        {"tp1-b16", states_another_rate, RULE_TOKENS_MISMATCH, RULE_SUSPECT, true, 251},
        {"tp1-b16", has_no_times, RULE_TIMES_UNKNOWN, RULE_INVALID, false, NAN},
        {"tp1-b16", has_its_whole_time_alone, RULE_PREFILL_INCLUDED, RULE_SUSPECT, false, NAN},
        {"tp1-b16", samples_have_no_times, RULE_TIMES_UNKNOWN, RULE_INVALID, false, NAN},
        {"tp1-b16", samples_have_their_whole_time, RULE_PREFILL_INCLUDED, RULE_SUSPECT, false, NAN},
    };
    rule_cases_check(cases, sizeof cases / sizeof *cases);
}

/* Whatever a failed run calls its times, they are none: 0 tokens/s has been printed of less. */
static void test_zeros_of_a_failed_run_are_no_times(void **state)
{
    (void)state;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, "tp1-b16");
    none_was_answered(&attempt);
    rule_judge_attempt(&attempt, NULL, &verdicts);
    assert_int_equal(verdicts.items[0].rule, RULE_ALL_FAILED);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_TIMES), RULE_INVALID);
    assert_true(isnan(stated_tpot_ns(&attempt)));
    verdicts_free(&verdicts);
    attempt_free(&attempt);
}

/* 40 x 0.4 s behind the first tokens, for 40 x 99 tokens. */
static void test_times_are_sums_where_sums_are_known(void **state)
{
    (void)state;
    struct attempt attempt;
    fixture_build(&attempt, "tp1-b16");
    is_stated(&attempt);
    attempt.observed.tpot_ns = 5e6;
    assert_true(fabs(stated_tpot_ns(&attempt) / (0.4e9 / 99) - 1) < 1e-12);
    attempt.observed.e2e_ns = NAN;
    assert_true(fabs(stated_tpot_ns(&attempt) / 5e6 - 1) < 1e-12);
    assert_false(stated_times(&attempt).with_prefill);
    attempt.observed.tpot_ns = NAN;
    assert_true(isnan(stated_tpot_ns(&attempt)));
    attempt.arm.concurrency = 1;
    assert_true(fabs(stated_tpot_ns(&attempt) / 4e6 - 1) < 1e-12);
    assert_true(stated_times(&attempt).with_prefill);
    attempt_free(&attempt);
}

static void judge_pair(void (*change)(struct attempt *a), struct verdicts *verdicts)
{
    struct attempt attempt, baseline;
    fixture_build(&attempt, "tp1-b16");
    fixture_build(&baseline, "tp1-auto");
    change(&attempt);
    change(&baseline);
    rule_judge_pair(&attempt, &baseline, NULL, verdicts);
    attempt_free(&attempt);
    attempt_free(&baseline);
}

static void changes_nothing(struct attempt *a)
{
    (void)a;
}

static void test_imports_are_no_pairs(void **state)
{
    (void)state;
    const struct {
        void (*change)(struct attempt *a);
        enum rule_level level;
    } cases[] = {{changes_nothing, RULE_VALID}, {is_imported, RULE_SUSPECT}, {is_stated, RULE_SUSPECT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct verdicts verdicts = {0};
        judge_pair(cases[i].change, &verdicts);
        assert_int_equal(verdicts.count, cases[i].level != RULE_VALID);
        if (verdicts.count) {
            assert_int_equal(verdicts.items[0].rule, RULE_UNPAIRED_IMPORT);
            assert_int_equal(verdicts.items[0].level, cases[i].level);
            assert_non_null(strstr(verdicts.items[0].detail, "unpaired, imported"));
        }
        verdicts_free(&verdicts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_fires_where_it_should),
        cmocka_unit_test(test_zeros_of_a_failed_run_are_no_times),
        cmocka_unit_test(test_times_are_sums_where_sums_are_known),
        cmocka_unit_test(test_imports_are_no_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
