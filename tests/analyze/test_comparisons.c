/* Pairs: what is compared with what, and why a block is dropped. */
#include "tests/analyze/campaign.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_near(double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-6))
        fail_msg("%.9g is not %.9g", actual, expected);
}

static const struct pair *pair_of(const struct campaign *campaign, const char *arm, const char *workload, int block)
{
    return &campaign_comparison(campaign, arm, "tp1-auto", workload)->pairs[block - 1];
}

static void assert_dropped(const struct pair *pair, const char *rule)
{
    assert_true(isnan(pair->log_ratio) && isnan(pair->log_end_to_end));
    assert_string_equal(pair->reason.rule, rule);
}

static void test_ratio_of_times_a_token(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 4000, 6000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", 1, 1, 2000, 4000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 2000});
    campaign_read(&campaign);
    assert_near(pair_of(&campaign, "tp1-b16", "code", 1)->log_ratio, log(4));
    assert_near(pair_of(&campaign, "tp1-b16", "maths", 1)->log_ratio, log(3));
    assert_near(pair_of(&campaign, "tp1-b16", NULL, 1)->log_ratio, (log(4) + log(3)) / 2);
    assert_near(campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "code")->pairs[0].log_ratio, log(2));
    /* 13 tokens of auto in 0.5 ms + 48 us, 14 of the tree in 0.5 ms + 13 us. */
    assert_near(pair_of(&campaign, "tp1-b16", "code", 1)->log_end_to_end,
                log((500000 + 48000) / 13.0 / ((500000 + 13000) / 14.0)));
    campaign_close(&campaign);
}

static void test_who_is_compared_with_whom(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_read(&campaign);
    /* Three arms over auto, two trees over linear; each on two workloads and over both. */
    assert_int_equal(campaign.comparisons.count, (3 + 2) * 3);
    assert_true(campaign_comparison(&campaign, "tp1-b16", "tp1-auto", NULL)->headline);
    assert_true(campaign_comparison(&campaign, "tp1-b16", "tp1-linear", NULL)->headline);
    assert_false(campaign_comparison(&campaign, "tp1-b16", "tp1-auto", "code")->headline);
    assert_false(campaign_comparison(&campaign, "tp1-b8", "tp1-auto", NULL)->headline);
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 1), "NOT_MEASURED");
    campaign_close(&campaign);
}

static void test_without_a_baseline_the_block_is_dropped(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 2, "{}");
    for (int block = 1; block <= 2; block++)
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1000, 1000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000, .torn = true});
    campaign_read(&campaign);
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 1), "INCOMPLETE");
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 2), "NOT_MEASURED");
    assert_dropped(pair_of(&campaign, "tp1-b16", NULL, 2), "NOT_MEASURED");
    campaign_close(&campaign);
}

static void test_an_invalid_workload_drops_the_block_over_all(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .failed_prompt = 1});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 1, 1, 1000, 0});
    campaign_read(&campaign);
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 1), "FAILED_REQUEST");
    assert_near(pair_of(&campaign, "tp1-b16", "maths", 1)->log_ratio, log(2));
    assert_dropped(pair_of(&campaign, "tp1-b16", NULL, 1), "FAILED_REQUEST");
    assert_near(pair_of(&campaign, "tp1-b8", "code", 1)->log_ratio, log(2));
    assert_dropped(pair_of(&campaign, "tp1-b8", NULL, 1), "NOT_MEASURED");
    campaign_close(&campaign);
}

static void test_sessions_are_not_mixed(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++)
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, "2026-03-02T00:00:00Z"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 2, 1, 1000, 1000, "2026-03-02T00:00:01Z"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 3, 1, 1000, 1000, .boot_id = "another"});
    campaign_read(&campaign);
    assert_near(pair_of(&campaign, "tp1-b16", "code", 1)->log_ratio, log(2)); /* 12 hours on the dot */
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 2), "UNPAIRED_RERUN");
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 3), "UNPAIRED_RERUN");
    campaign_close(&campaign);
}

static void test_a_repair_is_paired_with_its_own_baseline(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 1, 1, 1000, 1000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .torn = true});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 2, 3000, 3000, .boot_id = "another"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 2, 1000, 1000, .boot_id = "another"});
    campaign_read(&campaign);
    assert_near(pair_of(&campaign, "tp1-b8", "code", 1)->log_ratio, log(2));
    assert_near(pair_of(&campaign, "tp1-b16", "code", 1)->log_ratio, log(3));
    campaign_close(&campaign);
}

static void test_different_settings_are_not_compared(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .compare_suffix = "other"});
    campaign_read(&campaign);
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 1), "FINGERPRINT");
    campaign_close(&campaign);
}

static void test_trees_are_not_compared_with_another_drafters_blocks(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", 1, 1, 1500, 1500, .drafter = "old"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .drafter = "new"});
    campaign_read(&campaign);
    const struct comparison *over_linear = campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "code");
    assert_string_equal(over_linear->pairs[0].reason.rule, "FINGERPRINT");
    assert_near(pair_of(&campaign, "tp1-b16", "code", 1)->log_ratio, log(2));
    campaign_close(&campaign);
}

static void test_only_prompts_that_both_answered_count(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{\"FAILED_REQUEST\": 0.5}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000, .failed_prompt = 1});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .failed_prompt = 2});
    campaign_read(&campaign);
    const struct pair *pair = pair_of(&campaign, "tp1-b16", "code", 1);
    assert_near(pair->log_ratio, log(2));
    assert_near(pair->arm_tpot_ns, 1000);
    campaign_close(&campaign);
}

static void test_outputs_that_are_not_the_targets_void_the_arm(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", 1, 1, 1500, 1500});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000, .diverging_prompt = 2});
    campaign_read(&campaign);
    assert_dropped(pair_of(&campaign, "tp1-b16", "code", 1), "OUTPUT_DIVERGES");
    assert_dropped(&campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "code")->pairs[0], "OUTPUT_DIVERGES");
    assert_null(cell_usable(campaign_cell(&campaign, "tp1-b16", "code"), 1, RULE_VOIDS_TIMES));
    assert_non_null(cell_usable(campaign_cell(&campaign, "tp1-b16", "maths"), 1, RULE_VOIDS_TIMES));
    assert_near(pair_of(&campaign, "tp1-b16", "maths", 1)->log_ratio, log(2));
    campaign_close(&campaign);
}

/* A linear block whose session is over is the baseline of trees of that session still, if its outputs are the target's.
 */
static void test_a_replaced_baseline_must_be_the_targets_as_well(void **state)
{
    (void)state;
    for (int diverging = 0; diverging < 3; diverging += 2) {
        struct campaign campaign;
        campaign_open(&campaign, 1, "{}");
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 1, 2000, 2000});
        campaign_add(&campaign,
                     &(struct campaign_attempt){"tp1-linear", 1, 1, 1500, 1500, .diverging_prompt = diverging});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", 1, 2, 3000, 3000, .boot_id = "another"});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", 1, 2, 1500, 1500, .boot_id = "another"});
        campaign_read(&campaign);
        const struct pair *code = &campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "code")->pairs[0];
        if (diverging)
            assert_dropped(code, "OUTPUT_DIVERGES");
        else
            assert_near(code->log_ratio, log(1.5));
        assert_near(campaign_comparison(&campaign, "tp1-b16", "tp1-linear", "maths")->pairs[0].log_ratio, log(1.5));
        campaign_close(&campaign);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ratio_of_times_a_token),
        cmocka_unit_test(test_who_is_compared_with_whom),
        cmocka_unit_test(test_without_a_baseline_the_block_is_dropped),
        cmocka_unit_test(test_an_invalid_workload_drops_the_block_over_all),
        cmocka_unit_test(test_sessions_are_not_mixed),
        cmocka_unit_test(test_a_repair_is_paired_with_its_own_baseline),
        cmocka_unit_test(test_different_settings_are_not_compared),
        cmocka_unit_test(test_trees_are_not_compared_with_another_drafters_blocks),
        cmocka_unit_test(test_only_prompts_that_both_answered_count),
        cmocka_unit_test(test_outputs_that_are_not_the_targets_void_the_arm),
        cmocka_unit_test(test_a_replaced_baseline_must_be_the_targets_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
