#include "collect/record/divergence.h"

#include "collect/base/json.h"
#include "collect/record/rule.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sample 6 of the attempt takes another way at token index 3, where the baseline's margin is this; from there on all
 * differs. */
static void part(struct attempt *attempt, struct attempt *baseline, float margin)
{
    for (int i = 3; i < 9; i++)
        attempt->samples[6].token_ids[i] += 100;
    if (baseline->samples[6].margins)
        baseline->samples[6].margins[3] = margin;
    for (int i = 4; i < 9 && baseline->samples[6].margins; i++)
        baseline->samples[6].margins[i] = 20;
}

static void judge_parted(const char *baseline_arm, const char *dtype, float margin, bool margins, double temperature,
                         struct verdicts *verdicts)
{
    struct attempt attempt, baseline;
    fixture_build(&attempt, "tp1-b8");
    fixture_build(&baseline, baseline_arm);
    if (!margins) {
        free(baseline.samples[6].margins);
        baseline.samples[6].margins = NULL;
    }
    part(&attempt, &baseline, margin);
    fixture_set_source(&attempt, NULL, "dtype", json_string(dtype));
    fixture_set_source(&attempt, "sampling", "temperature", json_real(temperature));
    rule_judge_pair(&attempt, &baseline, NULL, verdicts);
    attempt_free(&attempt);
    attempt_free(&baseline);
}

static void test_divergence_is_judged_by_its_first_token(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        float margin;
        enum rule_level level;
    } known[] = {
        {"float32", .0009F, RULE_NOTE},   {"float32", .0011F, RULE_INVALID}, {"bfloat16", 0, RULE_NOTE},
        {"bfloat16", .25F, RULE_NOTE},    {"bfloat16", .26F, RULE_SUSPECT},  {"bfloat16", .5F, RULE_SUSPECT},
        {"bfloat16", .51F, RULE_INVALID}, {"bfloat16", NAN, RULE_SUSPECT},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct verdicts verdicts = {0};
        judge_parted("tp1-auto", known[i].dtype, known[i].margin, true, 0, &verdicts);
        assert_int_equal(verdicts.count, 1);
        assert_int_equal(verdicts.items[0].rule, RULE_OUTPUT_DIVERGES);
        assert_int_equal(verdicts.items[0].level, known[i].level);
        assert_non_null(strstr(verdicts.items[0].detail, "1 of 10 outputs (10%)"));
        assert_non_null(strstr(verdicts.items[0].detail, "p6, token 4"));
        assert_string_equal(verdicts.items[0].workload, "code");
        assert_int_equal(rule_worst(&verdicts, "code", RULE_VOIDS_SPEEDUP), known[i].level);
        verdicts_free(&verdicts);
    }
}

static void test_divergence_without_margins_is_suspect(void **state)
{
    (void)state;
    struct verdicts verdicts = {0};
    judge_parted("tp1-auto", "float32", 9, false, 0, &verdicts);
    assert_int_equal(verdicts.count, 1);
    assert_int_equal(verdicts.items[0].level, RULE_SUSPECT);
    assert_true(isnan(verdicts.items[0].observed) && isnan(verdicts.items[0].threshold));
    verdicts_free(&verdicts);
}

static void test_divergence_is_not_judged_where_it_says_nothing(void **state)
{
    (void)state;
    struct verdicts verdicts = {0};
    judge_parted("tp1-auto", "float32", 9, true, .7, &verdicts);  /* sampled */
    judge_parted("tp1-linear", "float32", 9, true, 0, &verdicts); /* not beside plain decoding */
    struct attempt attempt, baseline;
    fixture_build(&attempt, "tp1-b8");
    fixture_build(&baseline, "tp1-auto");
    rule_judge_pair(&attempt, &baseline, NULL, &verdicts); /* equal */
    part(&attempt, &baseline, 9);
    json_t *sampling = json_object_get(attempt.header, "sampling");
    json_set(sampling, "temperature", json_real(.7));
    rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
    json_set(sampling, "temperature", json_integer(0));
    attempt.samples[6].tokens = 3; /* ends before they part */
    rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
    attempt.samples[6].tokens = 9;
    attempt.samples[6].warmup = true;
    rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
    attempt.samples[6].warmup = false;
    baseline.samples[6].warmup = true; /* nothing to compare with */
    rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
    assert_int_equal(verdicts.count, 0);
    attempt_free(&attempt);
    attempt_free(&baseline);
}

/* What ends early is neither the same nor parts: nothing says which token would have come. */
static void test_what_ends_early_is_not_the_same(void **state)
{
    (void)state;
    for (int of_baseline = 0; of_baseline < 2; of_baseline++) {
        struct attempt attempt, baseline;
        struct divergence divergence;
        fixture_build(&attempt, "tp1-b8");
        fixture_build(&baseline, "tp1-auto");
        divergence_measure(&attempt, &baseline, "code", &divergence);
        assert_true(divergence.compared == 10 && divergence.diverged == 0 && divergence.cut == 0);
        (of_baseline ? &baseline : &attempt)->samples[6].tokens = 3;
        divergence_measure(&attempt, &baseline, "code", &divergence);
        assert_true(divergence.compared == 10 && divergence.diverged == 0 && divergence.cut == 1);
        part(&attempt, &baseline, 1); /* behind the end of the one */
        divergence_measure(&attempt, &baseline, "code", &divergence);
        assert_true(divergence.compared == 10 && divergence.diverged == 0 && divergence.cut == 1);
        attempt_free(&attempt);
        attempt_free(&baseline);
    }
}

/* A large regret decides even where another sample's is unknown, whichever comes first. */
static void test_the_worst_divergence_decides(void **state)
{
    (void)state;
    for (int unknown = 5; unknown <= 7; unknown += 2) {
        struct attempt attempt, baseline;
        struct verdicts verdicts = {0};
        fixture_build(&attempt, "tp1-b8");
        fixture_build(&baseline, "tp1-auto");
        part(&attempt, &baseline, 9);
        attempt.samples[unknown].token_ids[0] = 5;
        baseline.samples[unknown].margins[0] = NAN;
        rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
        assert_int_equal(verdicts.count, 1);
        assert_int_equal(verdicts.items[0].level, RULE_INVALID);
        assert_true(verdicts.items[0].observed == 9);
        assert_non_null(strstr(verdicts.items[0].detail, "2 of 10 outputs"));
        verdicts_free(&verdicts);
        attempt_free(&attempt);
        attempt_free(&baseline);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divergence_is_judged_by_its_first_token),
        cmocka_unit_test(test_divergence_without_margins_is_suspect),
        cmocka_unit_test(test_divergence_is_not_judged_where_it_says_nothing),
        cmocka_unit_test(test_what_ends_early_is_not_the_same),
        cmocka_unit_test(test_the_worst_divergence_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
