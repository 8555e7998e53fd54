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

/* --- settings ----------------------------------------------------------------------------------------------------- */

static int read_settings(const char *text, struct rule_settings *settings, struct error *error)
{
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    int result = rule_settings_read(object, "plan.json: rules", settings, error);
    json_decref(object);
    return result;
}

static void test_settings(void **state)
{
    (void)state;
    struct rule_settings settings;
    struct error error = {0};
    assert_int_equal(read_settings(NULL, &settings, &error), 0);
    for (int i = 0; i < RULE_COUNT; i++)
        assert_true(isnan(settings.threshold[i]));
    assert_int_equal(read_settings("{\"REPETITION\": 0.2, \"MIN_BLOCKS\": 3}", &settings, &error), 0);
    assert_true(settings.threshold[RULE_REPETITION] == .2);
    assert_true(isnan(settings.threshold[RULE_FAILED_REQUEST]));
    assert_int_equal(read_settings("{\"FAILED_REQUEST\": 1}", &settings, &error), 0);
    assert_true(settings.threshold[RULE_FAILED_REQUEST] == 1);
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"{\"REPETITIONS\": 0.2}", "did you mean \"REPETITION\""},
        {"{\"repetition\": 0.2}", "unknown key"},
        {"{\"ZERO_TOKENS\": 5}", "no threshold"},
        {"{\"INCOMPLETE\": null}", "no threshold"},
        {"{\"REPETITION\": 1.01}", "from 0 to 1"},
        {"{\"REPETITION\": -0.1}", "from 0 to 1"},
        {"{\"REPETITION\": true}", "must be a number"},
        {"[]", "must be an object"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error refusal = {0};
        assert_int_equal(read_settings(wrong[i].text, &settings, &refusal), -1);
        assert_non_null(strstr(refusal.message, "plan.json: rules: "));
        assert_non_null(strstr(refusal.message, wrong[i].says));
    }
}

static void nothing(struct attempt *a)
{
    (void)a;
}

static void one_fails(struct attempt *a)
{
    fixture_fail_sample(&a->samples[2], "TIMEOUT");
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

/* The attempt judged with one threshold changed; the only verdict's level, RULE_VALID where there is none. */
static enum rule_level judge_with(const char *arm, void (*change)(struct attempt *), enum rule_id rule,
                                  double threshold)
{
    struct rule_settings settings;
    struct error error = {0};
    rule_settings_read(NULL, "", &settings, &error);
    settings.threshold[rule] = threshold;
    struct attempt attempt;
    struct verdicts verdicts = {0};
    fixture_build(&attempt, arm);
    change(&attempt);
    rule_judge_attempt(&attempt, &settings, &verdicts);
    assert_true(verdicts.count <= 1);
    enum rule_level level = verdicts.count ? verdicts.items[0].level : RULE_VALID;
    verdicts_free(&verdicts);
    attempt_free(&attempt);
    return level;
}

static void emits_52_of_50(struct attempt *a)
{
    asks_50(a, 52);
}

static void first_is_slow(struct attempt *a)
{
    a->samples[0].decode_ns = 6000;
}

static void test_a_loosened_threshold_marks_what_it_saved(void **state)
{
    (void)state;
    assert_int_equal(judge_with("tp1-b8", one_fails, RULE_FAILED_REQUEST, .1), RULE_SUSPECT);
    assert_int_equal(judge_with("tp1-b8", one_fails, RULE_FAILED_REQUEST, .09), RULE_INVALID);
    assert_int_equal(judge_with("tp1-b8", nothing, RULE_FAILED_REQUEST, .1), RULE_VALID);
    assert_int_equal(judge_with("tp1-b8", emits_48_of_50, RULE_OUTPUT_SHORT, .9), RULE_SUSPECT);
    assert_int_equal(judge_with("tp1-b8", emits_49_of_50, RULE_OUTPUT_SHORT, .99), RULE_INVALID);
    assert_int_equal(judge_with("tp1-auto", two_repeat_a_quarter, RULE_REPETITION, .2), RULE_NOTE);
    assert_int_equal(judge_with("tp1-auto", one_repeats, RULE_REPETITION, .05), RULE_SUSPECT);
    assert_int_equal(judge_with("tp1-b8", emits_52_of_50, RULE_OUTPUT_LONG, 1.5), RULE_SUSPECT);
    assert_int_equal(judge_with("tp1-b8", emits_52_of_50, RULE_OUTPUT_LONG, 1.03), RULE_INVALID);
    assert_int_equal(judge_with("tp1-b8", first_is_slow, RULE_COLD_FIRST, 2), RULE_NOTE);
    assert_int_equal(judge_with("tp1-b8-c3", nothing, RULE_TOO_FEW_REQUESTS, 3), RULE_NOTE);
    assert_int_equal(judge_with("tp1-b8-c6", nothing, RULE_TOO_FEW_REQUESTS, 0), RULE_INVALID);
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

static void test_a_verdict_voids_its_metrics_and_no_more(void **state)
{
    (void)state;
    struct verdicts verdicts = {0};
    verdicts_add(&verdicts, RULE_ACCEPT_SUM, RULE_INVALID, "code", 1, NAN, "%s", "sum");
    verdicts_add(&verdicts, RULE_REPETITION, RULE_SUSPECT, NULL, .5, .1, "%s", "circles");
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_TAU), RULE_INVALID);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_ALL), RULE_INVALID);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_TIMES | RULE_VOIDS_TTFT | RULE_VOIDS_SPEEDUP),
                     RULE_VALID);
    assert_int_equal(rule_worst(&verdicts, "maths", RULE_VOIDS_ALL), RULE_VALID);
    verdicts_add(&verdicts, RULE_AUDIT_REGRET, RULE_SUSPECT, NULL, .4, .5, "%s", "whole");
    assert_int_equal(rule_worst(&verdicts, "maths", RULE_VOIDS_TIMES), RULE_SUSPECT);
    assert_int_equal(rule_worst(&verdicts, NULL, RULE_VOIDS_TIMES), RULE_SUSPECT);
    assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_TAU), RULE_INVALID);
    verdicts_free(&verdicts);
}

static void test_a_verdict_as_json(void **state)
{
    (void)state;
    struct verdicts verdicts = {0};
    verdicts_add(&verdicts, RULE_FAILED_REQUEST, RULE_INVALID, "code", .25, 0, "1 of 4\nfailed \xff");
    verdicts_add(&verdicts, RULE_INCOMPLETE, RULE_INVALID, NULL, NAN, NAN, "cut");
    static const char *const expected[] = {
        "{\"detail\":\"1 of 4 failed ?\",\"level\":\"invalid\",\"observed\":0.25,\"rule\":\"FAILED_REQUEST\","
        "\"rule_version\":1,\"threshold\":0.0,\"workload\":\"code\"}",
        "{\"detail\":\"cut\",\"level\":\"invalid\",\"observed\":null,\"rule\":\"INCOMPLETE\",\"rule_version\":1,"
        "\"threshold\":null,\"workload\":null}",
    };
    for (int i = 0; i < 2; i++) {
        json_t *object = verdict_to_json(&verdicts.items[i]);
        char *text = json_canonical(object);
        assert_string_equal(text, expected[i]);
        free(text);
        json_decref(object);
    }
    verdicts_free(&verdicts);
}

static void test_the_table_is_whole(void **state)
{
    (void)state;
    for (int i = 0; i < RULE_COUNT; i++) {
        const struct rule *rule = &rule_table[i];
        assert_non_null(rule->id);
        assert_int_equal(rule_find(rule->id), i);
        assert_true(rule->version >= 1);
        assert_true(strlen(rule->explanation) > 20);
        assert_false(rule->judge && (rule->judge_pair || rule->scope > RULE_ATTEMPT));
        assert_false(rule->judge_pair && rule->scope != RULE_PAIR);
        assert_false(rule->settable_to > 0 && !(rule->threshold <= rule->settable_to));
    }
    assert_int_equal(rule_find("MIN_BLOCK"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_a_loosened_threshold_marks_what_it_saved),
        cmocka_unit_test(test_a_verdict_voids_its_metrics_and_no_more),
        cmocka_unit_test(test_a_verdict_as_json),
        cmocka_unit_test(test_the_table_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
