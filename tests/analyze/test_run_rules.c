/* What attempts say only together: speedups beyond acceptance, budgets without effect, drift, other devices. */
#include "analyze/run_rules.h"
#include "analyze/summary.h"
#include "collect/base/json.h"
#include "tests/analyze/campaign.h"
#include "tests/analyze/checks.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TAU 4.875 /* of a campaign's trees: 39 tokens in 8 rounds */

static const struct verdict *find(const struct verdicts *verdicts, enum rule_id rule)
{
    for (int i = 0; i < verdicts->count; i++)
        if (verdicts->items[i].rule == rule)
            return &verdicts->items[i];
    return NULL;
}

/* --- SPEEDUP_GT_ACCEPT -------------------------------------------------------------------------------------------- */

/* On "code" b16 is so many times tau faster than auto, a value for each block; 0 ends them. */
static void write_gains(struct campaign *campaign, const double *gains, const char *rules)
{
    int blocks = 0;
    while (gains[blocks])
        blocks++;
    campaign_open(campaign, blocks, rules);
    for (int block = 1; block <= blocks; block++) {
        campaign_add(campaign,
                     &(struct campaign_attempt){"tp1-auto", block, 1, 1e6 * TAU * gains[block - 1], 1e6 + block});
        campaign_add(campaign, &(struct campaign_attempt){"tp1-linear", block, 1, 9e6, 1e6});
        campaign_add(campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6});
    }
}

static void open_with_gains(struct campaign *campaign, const double *gains, const char *rules)
{
    write_gains(campaign, gains, rules);
    campaign_read(campaign);
}

static void test_a_speedup_beyond_acceptance(void **state)
{
    (void)state;
    static const struct {
        double gains[5];
        const char *rules;
        enum rule_level level;
    } cases[] = {
        {{.99, .99, .99}, "{}", RULE_VALID},
        {{1.01, 1.01, 1.01}, "{}", RULE_SUSPECT},
        {{1.0201, 1.0201, 1.0201}, "{}", RULE_INVALID},
        {{1.0, 1.1, 1.2}, "{}", RULE_SUSPECT}, /* by the interval it may be 0.87 */
        {{1.04, 1.04}, "{}", RULE_SUSPECT},    /* two blocks have no interval worth the name */
        {{1.06, 1.06}, "{}", RULE_INVALID},
        {{1.06}, "{}", RULE_INVALID},
        {{.99}, "{}", RULE_VALID},
        {{1.03, 1.03, 1.03}, "{\"SPEEDUP_GT_ACCEPT\": 1.05}", RULE_SUSPECT},
        {{1.06, 1.06, 1.06}, "{\"SPEEDUP_GT_ACCEPT\": 1.05}", RULE_INVALID},
        {{1.06}, "{\"SPEEDUP_GT_ACCEPT\": 1.1}", RULE_SUSPECT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct campaign campaign;
        open_with_gains(&campaign, cases[i].gains, cases[i].rules);
        const struct pair *pair = &campaign_comparison(&campaign, "tp1-b16", "tp1-auto", "code")->pairs[0];
        const struct verdict *verdict = find(&pair->verdicts, RULE_SPEEDUP_GT_ACCEPT);
        if ((verdict ? verdict->level : RULE_VALID) != cases[i].level)
            fail_msg("case %zu: %s", i, verdict ? verdict->detail : "no verdict");
        assert_int_equal(isnan(pair->log_ratio), cases[i].level == RULE_INVALID);
        campaign_close(&campaign);
    }
}

static void test_it_voids_the_speedup_over_auto_alone(void **state)
{
    (void)state;
    struct campaign campaign;
    open_with_gains(&campaign, (const double[]){1.5, 1.5, 1.5, 0}, "{}");
    const struct pair *pair = &campaign_comparison(&campaign, "tp1-b16", "tp1-auto", "code")->pairs[1];
    assert_string_equal(pair->reason.rule, "SPEEDUP_GT_ACCEPT");
    assert_true(isnan(pair->log_end_to_end));
    pair = &campaign_comparison(&campaign, "tp1-b16", "tp1-auto", NULL)->pairs[1];
    assert_string_equal(pair->reason.rule, "SPEEDUP_GT_ACCEPT");
    pair = &campaign_comparison(&campaign, "tp1-b16", "tp1-auto", "maths")->pairs[1];
    assert_false(isnan(pair->log_ratio));
    pair = &campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "code")->pairs[1]; /* 9 times */
    assert_false(isnan(pair->log_ratio));
    assert_non_null(cell_usable(campaign_cell(&campaign, "tp1-b16", "code"), 2, RULE_VOIDS_ALL));
    campaign_close(&campaign);
}

/* What pairs may not say, all blocks together do not say either. */
static void test_what_it_voids_does_not_come_back_unpaired(void **state)
{
    (void)state;
    struct campaign campaign;
    write_gains(&campaign, (const double[]){1.5, 1.5, 1.5, 0}, "{}");
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    check_null(comparison, "speedup");
    check_null(comparison, "speedup_unpaired");
    json_decref(summary);
    campaign_close(&campaign);
}

/* Where more rounds are told than the output has room for, tau is void, and so is what is held against it or made of
 * the number of rounds. The times are not: of 13 tokens the 12 are believed that were emitted. */
static void test_a_void_acceptance_length_judges_nothing(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6 + block});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", block, 1, 2e6, 2e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6, .rounds_too_many = 3});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code"), *cell;
    check_number(json_object_get(comparison, "speedup"), "value", 4 * 12. / 13);
    check_null(comparison, "break_even_tau");
    check_null(comparison, "round_cost");
    cell = check_cell(summary, "tp1-b16", "code");
    check_null(cell, "tau");
    check_null(cell, "round_ms");
    check_null(cell, "stages_ms");
    check_number(json_object_get(cell, "tpot_ms"), "value", 13 / 12.);
    check_number(json_object_get(check_cell(summary, "tp1-b16", "maths"), "tau"), "value", TAU);
    const json_t *fits, *model = json_array_get(json_object_get(summary, "round_models"), 0);
    size_t i;
    json_array_foreach(json_object_get(model, "fits"), i, fits)
        assert_false(json_equal(json_object_get(fits, "arm"), json_object_get(cell, "arm")) &&
                     json_equal(json_object_get(fits, "workload"), json_object_get(cell, "workload")));
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- KNOB_NO_EFFECT ----------------------------------------------------------------------------------------------- */

/* The level at which b16 is said to do what b8 does, in 8 rounds a workload. */
static enum rule_level knob_level(bool other_rounds, const char *rules)
{
    struct campaign campaign;
    campaign_open(&campaign, 1, rules);
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 1, 1, 1000, 1000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .other_rounds = other_rounds});
    campaign_read(&campaign);
    const struct cell_block *of_b16 = &campaign_cell(&campaign, "tp1-b16", "code")->blocks[0];
    const struct cell_block *of_b8 = &campaign_cell(&campaign, "tp1-b8", "code")->blocks[0];
    const struct verdict *verdict = find(&of_b16->verdicts, RULE_KNOB_NO_EFFECT);
    enum rule_level level = verdict ? verdict->level : RULE_VALID;
    assert_true(!verdict || verdict->observed == 8);
    assert_int_equal(of_b8->verdicts.count, 0);
    campaign_close(&campaign);
    return level;
}

static void test_budgets_without_effect(void **state)
{
    (void)state;
    assert_int_equal(knob_level(false, "{}"), RULE_VALID); /* 8 rounds may agree by chance */
    assert_int_equal(knob_level(false, "{\"KNOB_NO_EFFECT\": 8}"), RULE_SUSPECT);
    assert_int_equal(knob_level(false, "{\"KNOB_NO_EFFECT\": 9}"), RULE_VALID);
    assert_int_equal(knob_level(true, "{\"KNOB_NO_EFFECT\": 8}"), RULE_VALID);
}

/* --- DRIFT -------------------------------------------------------------------------------------------------------- */

/* Three arms in three blocks, in another order in each, as the ledger tells. From the first attempt to the last times
 * grow by `drift`, or up to the middle, and back again. */
static void open_with_drift(struct campaign *campaign, double drift, bool returns, const char *rules)
{
    static const char *const arms[] = {"tp1-b16", "tp1-auto", "tp1-linear"};
    campaign_open(campaign, 3, rules);
    for (int i = 0; i < 9; i++) {
        const int arm = (i + i / 3) % 3, step = returns ? 8 - 2 * abs(i - 4) : i;
        const double tpot_ns = 1e6 * (1 + arm) * pow(1 + drift, step / 8.0);
        campaign_add(campaign, &(struct campaign_attempt){arms[arm], i / 3 + 1, 1, tpot_ns, tpot_ns});
        fixture_enter(campaign->folder);
    }
    campaign_read(campaign);
}

static void test_drift(void **state)
{
    (void)state;
    static const struct {
        double drift;
        bool returns;
        const char *rules;
        enum rule_level level;
    } cases[] = {
        {.06, false, "{}", RULE_SUSPECT},
        {-.06, false, "{}", RULE_SUSPECT},
        {.04, false, "{}", RULE_VALID},
        {.06, true, "{}", RULE_VALID},
        {.06, false, "{\"DRIFT\": 0.5}", RULE_NOTE},
        {.04, false, "{\"DRIFT\": 0.03}", RULE_SUSPECT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct campaign campaign;
        open_with_drift(&campaign, cases[i].drift, cases[i].returns, cases[i].rules);
        const struct verdict *verdict = find(&campaign.cells.verdicts, RULE_DRIFT);
        if ((verdict ? verdict->level : RULE_VALID) != cases[i].level)
            fail_msg("case %zu: %s", i, verdict ? verdict->detail : "no verdict");
        campaign_close(&campaign);
    }
}

static void test_drift_marks_every_number_and_is_listed_once(void **state)
{
    (void)state;
    struct campaign campaign;
    struct error error = {0};
    open_with_drift(&campaign, .1, false, "{}");
    json_t *summary = summary_build(&campaign.run, &campaign.plan, &error);
    const json_t *verdicts = json_object_get(summary, "verdicts"), *cells = json_object_get(summary, "cells");
    int listed = 0;
    for (size_t i = 0; i < json_array_size(verdicts); i++) {
        const json_t *verdict = json_array_get(verdicts, i);
        if (strcmp(json_string_value(json_object_get(verdict, "rule")), "DRIFT") != 0)
            continue;
        listed++;
        assert_true(json_is_null(json_object_get(verdict, "attempt")));
    }
    assert_int_equal(listed, 1);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i), *marks = json_object_get(cell, "marks");
        bool measured = json_is_object(json_object_get(cell, "tpot_ms"));
        assert_int_equal(json_array_size(marks), measured);
        if (measured)
            assert_string_equal(json_string_value(json_array_get(marks, 0)), "DRIFT");
    }
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- MIXED_DEVICES ------------------------------------------------------------------------------------------------ */

static void test_other_devices_are_told_from_other_settings(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .cell_suffix = "x", .cpu = "old"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 2, 1, 1000, 1000, .cell_suffix = "y"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 3, 1, 1000, 1000});
    campaign_read(&campaign);
    const struct cell *cell = campaign_cell(&campaign, "tp1-b16", "code");
    assert_string_equal(cell->blocks[0].reason.rule, "MIXED_DEVICES");
    assert_string_equal(cell->blocks[1].reason.rule, "FINGERPRINT");
    assert_null(cell->blocks[2].reason.rule);
    campaign_close(&campaign);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_speedup_beyond_acceptance),
        cmocka_unit_test(test_it_voids_the_speedup_over_auto_alone),
        cmocka_unit_test(test_what_it_voids_does_not_come_back_unpaired),
        cmocka_unit_test(test_a_void_acceptance_length_judges_nothing),
        cmocka_unit_test(test_budgets_without_effect),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_drift_marks_every_number_and_is_listed_once),
        cmocka_unit_test(test_other_devices_are_told_from_other_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
