/* What a summary estimates beside times and speedups, from run folders with known times. */
#include "analyze/summary.h"
#include "collect/base/json.h"
#include "tests/analyze/checks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define T_2 4.302653 /* Student's t, 2 degrees of freedom, 95% */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "null";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void check_texts(const json_t *array, const char *const *texts, size_t count)
{
    assert_int_equal(json_array_size(array), count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(json_string_value(json_array_get(array, i)), texts[i]);
}

/* --- what may be said --------------------------------------------------------------------------------------------- */

static void add_block(struct campaign *campaign, int block, double linear, double b8, double b16)
{
    const double base = 1e6;
    campaign_add(campaign, &(struct campaign_attempt){"tp1-auto", block, 1, base, base});
    campaign_add(campaign, &(struct campaign_attempt){"tp1-linear", block, 1, base / linear, base * linear});
    campaign_add(campaign, &(struct campaign_attempt){"tp1-b8", block, 1, base / b8, base / b8});
    campaign_add(campaign, &(struct campaign_attempt){"tp1-b16", block, 1, base / b16, base / b16});
}

static void test_verdicts_follow_the_intervals(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    add_block(&campaign, 1, 1.010, 0.999, 0.9);
    add_block(&campaign, 2, 1.011, 1.001, 1.2);
    add_block(&campaign, 3, 1.009, 1.000, 1.0);
    json_t *summary = check_build(&campaign);
    const struct {
        const char *arm, *workload, *verdict;
        bool within;
    } cases[] = {{"tp1-linear", "code", "faster", true},
                 {"tp1-linear", "maths", "slower", true},
                 {"tp1-b8", "code", "equal", true},
                 {"tp1-b16", "code", "no difference shown", false},
                 {"tp1-b16", NULL, "no difference shown", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const json_t *item = check_find(summary, "comparisons", cases[i].arm, "tp1-auto", cases[i].workload);
        assert_string_equal(text_of(item, "verdict"), cases[i].verdict);
        assert_int_equal(json_is_true(json_object_get(item, "within_margin")), cases[i].within);
    }
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_nothing_is_said_without_limits(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 2, "{}");
    add_block(&campaign, 1, 2, 2, 2);
    add_block(&campaign, 2, 2, 2, 2);
    json_t *summary = check_build(&campaign);
    const json_t *item = check_find(summary, "comparisons", "tp1-b8", "tp1-auto", "code");
    check_null(item, "verdict");
    check_null(item, "within_margin");
    check_null(item, "p_bh");
    json_decref(summary);
    campaign_close(&campaign);
}

/* Of six tests over auto: the largest stays, the others are what a larger one leaves, or p times 6 over their rank. */
static void test_heat_maps_are_adjusted_for_false_discoveries(void **state)
{
    (void)state;
    static const char *const arms[] = {"tp1-linear", "tp1-b8", "tp1-b16"}, *const workloads[] = {"code", "maths"};
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    add_block(&campaign, 1, 1.10, 1.01, 2.0);
    add_block(&campaign, 2, 1.15, 1.04, 2.1);
    add_block(&campaign, 3, 1.05, 0.99, 1.9);
    json_t *summary = check_build(&campaign);
    double p[6], adjusted[6];
    for (int i = 0; i < 6; i++) {
        const json_t *item = check_find(summary, "comparisons", arms[i / 2], "tp1-auto", workloads[i % 2]);
        p[i] = number_of(item, "p");
        adjusted[i] = number_of(item, "p_bh");
    }
    for (int i = 0; i < 6; i++) {
        double least = 1;
        for (int j = 0; j < 6; j++) {
            int rank = 0;
            for (int k = 0; k < 6; k++)
                rank += p[k] <= p[j];
            if (p[j] >= p[i])
                least = fmin(least, p[j] * 6 / rank);
        }
        assert_true(fabs(adjusted[i] - least) < 1e-9);
    }
    check_null(check_find(summary, "comparisons", "tp1-b8", "tp1-auto", NULL), "p_bh");
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- without what is suspect -------------------------------------------------------------------------------------- */

/* A failed request that the plan lets pass marks block 2, in which b16 is twice as slow. */
static void test_estimates_without_what_is_suspect(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{\"FAILED_REQUEST\": 0.5}");
    for (int block = 1; block <= 3; block++) {
        const double slow = block == 2 ? 2 : 1;
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6 * slow, 1e6,
                                                           .failed_prompt = block == 2 ? 1 : 0});
    }
    json_t *summary = check_build(&campaign);
    static const char *const rules[] = {"FAILED_REQUEST"}, *const left[] = {"demo/tp1-b16/1-1", "demo/tp1-b16/3-1"};
    const json_t *cell = check_cell(summary, "tp1-b16", "code"), *without = json_object_get(cell, "without_suspect");
    check_number(json_object_get(cell, "tpot_ms"), "value", pow(2, 1.0 / 3)); /* it still counts */
    check_texts(json_object_get(without, "rules"), rules, 1);
    check_texts(json_object_get(without, "attempts"), left, 2);
    assert_int_equal(json_array_size(json_object_get(without, "outliers")), 0);
    check_number(json_object_get(without, "tpot_ms"), "value", 1);
    check_number(json_object_get(without, "tpot_ms"), "n", 2);
    check_null(json_object_get(without, "tpot_ms"), "low");
    check_number(json_object_get(without, "tau"), "value", 39.0 / 8);
    check_null(check_cell(summary, "tp1-b16", "maths"), "without_suspect");
    check_null(check_cell(summary, "tp1-auto", "code"), "without_suspect");
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    without = json_object_get(comparison, "without_suspect");
    check_number(json_object_get(without, "speedup"), "value", 4);
    assert_int_equal(json_array_size(json_object_get(without, "attempts")), 4);
    /* Over workloads a block that one of them loses is lost. */
    without = json_object_get(check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL), "without_suspect");
    check_number(json_object_get(without, "speedup"), "n", 2);
    json_decref(summary);
    campaign_close(&campaign);
}

/* An output that ends before auto's of the same beginning is not called identical, nor is the speedup on it. */
static void test_outputs_that_end_early_are_not_identical(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{\"OUTPUT_SHORT\": 0.9}");
    for (int block = 1; block <= 3; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6, .short_prompt = 2});
    }
    json_t *summary = check_build(&campaign);
    const json_t *lossless = json_object_get(check_cell(summary, "tp1-b16", "code"), "losslessness");
    check_number(lossless, "requests", 9);
    check_number(lossless, "identical", 6);
    check_number(lossless, "diverged", 0);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    check_number(json_object_get(comparison, "speedup_identical"), "value", 4);
    json_decref(summary);
    campaign_close(&campaign);
}

/* The prompts of code that neither of two failed on; b16 answers them in 3, 3 and 2 rounds. */
static int shared_prompts(const int failed[2])
{
    int count = 0;
    for (int prompt = 1; prompt <= 3; prompt++)
        count += prompt != failed[0] && prompt != failed[1];
    return count;
}

static int shared_rounds(const int failed[2])
{
    int rounds = 0;
    for (int prompt = 1; prompt <= 3; prompt++)
        rounds += prompt != failed[0] && prompt != failed[1] ? prompt == 3 ? 2 : 3 : 0;
    return rounds;
}

/* Requests that fail in one of both, here or there, take their prompts out of that pair and change no ratio: every
 * prompt has the same. */
static void test_failures_that_pass_change_no_ratio(void **state)
{
    (void)state;
    static const int failed[][2] = {{1, 0}, {0, 1}, {2, 0}, {0, 2}, {3, 0}, {0, 3}, {1, 2}, {3, 1}}; /* auto's, b16's */
    for (size_t i = 0; i < sizeof failed / sizeof *failed; i++) {
        struct campaign campaign;
        campaign_open(&campaign, 3, "{\"FAILED_REQUEST\": 0.5}");
        for (int block = 1; block <= 3; block++) {
            const bool fails = block == 2;
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6,
                                                               .failed_prompt = fails ? failed[i][0] : 0});
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6,
                                                               .failed_prompt = fails ? failed[i][1] : 0});
        }
        json_t *summary = check_build(&campaign);
        const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
        const json_t *overall = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL);
        check_interval(comparison, "speedup", 4, 4, 4);
        check_interval(overall, "speedup", 4, 4, 4);
        check_number(json_object_get(comparison, "speedup_prompts"), "value", 4);
        check_number(json_object_get(comparison, "speedup_prompts"), "n", 3 * shared_prompts(failed[i]));
        check_number(json_object_get(overall, "speedup_prompts"), "value", 4);
        check_number(json_object_get(overall, "speedup_prompts"), "n", 3 * (shared_prompts(failed[i]) + 3));
        /* Parts of a round are of the prompts that its price is of. */
        const json_t *cost = json_object_get(comparison, "round_cost");
        static const char *const parts[] = {"draft", "verify", "commit", "other"};
        double sum = 0;
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++)
            sum += json_number_value(json_object_get(json_object_get(cost, parts[j]), "value"));
        const double steps = 39.0 / 32, in_two = 13.0 * shared_prompts(failed[i]) / shared_rounds(failed[i]) / 4;
        assert_true(fabs(sum - (2 * steps + in_two) / 3) < 1e-6);
        check_number(json_object_get(comparison, "break_even_tau"), "value", cbrt(steps * steps * in_two));
        json_decref(summary);
        campaign_close(&campaign);
    }
}

/* Found in auto's outputs, true of all that is made of the workload: of every arm's cell, and of trees over linear. */
static void test_what_repeats_itself_marks_every_arm(void **state)
{
    (void)state;
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b16"}, *const rules[] = {"REPETITION"};
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++)
        for (int i = 0; i < 3; i++)
            campaign_add(&campaign,
                         &(struct campaign_attempt){arms[i], block, 1, 4e6 / (1 + i), 4e6 / (1 + i), .repetitive = 1});
    json_t *summary = check_build(&campaign);
    for (int i = 0; i < 3; i++) {
        check_texts(json_object_get(check_cell(summary, arms[i], "code"), "marks"), rules, 1);
        check_texts(json_object_get(check_cell(summary, arms[i], "maths"), "marks"), rules, 0);
    }
    for (int arm = 1; arm < 3; arm++)
        for (int baseline = 0; baseline < arm; baseline++) {
            const json_t *on_code = check_find(summary, "comparisons", arms[arm], arms[baseline], "code");
            const json_t *overall = check_find(summary, "comparisons", arms[arm], arms[baseline], NULL);
            const json_t *on_maths = check_find(summary, "comparisons", arms[arm], arms[baseline], "maths");
            check_texts(json_object_get(on_code, "marks"), rules, 1);
            check_texts(json_object_get(overall, "marks"), rules, 1);
            check_texts(json_object_get(on_maths, "marks"), rules, 0);
            check_texts(json_object_get(json_object_get(on_code, "without_suspect"), "rules"), rules, 1);
            check_null(on_maths, "without_suspect");
        }
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_outliers_are_marked_and_stay(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 8, "{}");
    for (int block = 1; block <= 8; block++) {
        const double noise = 1 + 0.001 * (block % 3), stalled = block == 4 ? 1.5 : 1;
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6 * noise, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6 * stalled, 1e6 * stalled / noise});
    }
    json_t *summary = check_build(&campaign);
    static const char *const outliers[] = {"demo/tp1-b16/4-1"};
    const json_t *cell = check_cell(summary, "tp1-b16", "code"), *without = json_object_get(cell, "without_suspect");
    check_number(json_object_get(cell, "tpot_ms"), "n", 8);
    check_texts(json_object_get(without, "outliers"), outliers, 1);
    check_number(json_object_get(without, "tpot_ms"), "n", 7);
    check_number(json_object_get(without, "tpot_ms"), "value", 1);
    size_t i, marked = 0;
    const json_t *residual, *drift = json_object_get(summary, "drift");
    check_number(drift, "n", 16);
    json_array_foreach(json_object_get(drift, "residuals"), i, residual)
    {
        const bool outlier = json_is_true(json_object_get(residual, "outlier"));
        marked += outlier;
        check_number(residual, "order", (double)i + 1);
        assert_int_equal(outlier, strcmp(text_of(residual, "attempt"), outliers[0]) == 0);
        /* Of log 1.5 an eighth is in the cell's mean. */
        if (outlier)
            assert_true(fabs(number_of(residual, "residual") - log(1.5) * 7 / 8) < 2e-3);
    }
    assert_int_equal(marked, 1);
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- pairs, or none ----------------------------------------------------------------------------------------------- */

/* Baseline and arm of different boots: logs of 4, 4.4, 4.84 and of 1, 1.1, 1.21 have equal variances, and the
 * difference of their means twice that of one: 4 degrees of freedom. */
static void test_what_cannot_be_paired_has_an_interval_of_its_own(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        const double slower = pow(1.1, block - 1);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6 * slower, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6 * slower, 1e6, .boot_id = "other"});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    const double half = 2.776445 * log(1.1) * sqrt(2.0 / 3);
    check_null(comparison, "speedup");
    check_null(comparison, "p");
    check_interval(comparison, "speedup_unpaired", 4, 4 * exp(-half), 4 * exp(half));
    check_number(json_object_get(comparison, "speedup_unpaired"), "n", 6);
    assert_string_equal(text_of(json_object_get(comparison, "speedup_unpaired"), "over"), "unpaired blocks");
    assert_string_equal(text_of(json_object_get(comparison, "missing"), "rule"), "UNPAIRED_RERUN");
    check_null(check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL), "speedup_unpaired");
    json_decref(summary);
    campaign_close(&campaign);
}

/* One prompt of three leaves auto's output at a near tie. */
static void test_speedup_on_the_same_outputs(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6, .margin = 1e-4F});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6, .diverging_prompt = 2});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    check_interval(comparison, "speedup", 4, 4, 4);
    check_interval(comparison, "speedup_identical", 4, 4, 4);
    check_null(check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "maths"), "speedup_identical");
    const json_t *lossless = json_object_get(check_cell(summary, "tp1-b16", "code"), "losslessness");
    check_number(lossless, "requests", 9);
    check_number(lossless, "identical", 6);
    check_number(lossless, "diverged", 3);
    check_number(lossless, "audit_regret_max", 0);
    check_null(json_object_get(check_cell(summary, "tp1-auto", "code"), "losslessness"), "requests");
    /* Prompts have the same ratio in all blocks. */
    check_interval(comparison, "speedup_prompts", 4, 4, 4);
    check_number(json_object_get(comparison, "speedup_prompts"), "n", 9);
    assert_string_equal(text_of(json_object_get(comparison, "speedup_prompts"), "over"), "prompts and blocks");
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

/* b16 takes a quarter of auto's time a token, 39 tokens in 8 rounds: a round is 39 / 32 steps. */
static void test_break_even_and_what_a_round_costs(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        const double noise = exp(block == 1 ? 0 : block == 2 ? 0.1 : -0.1);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6 * noise, 1e6});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "code");
    const double half = T_2 * 0.1 / sqrt(3), steps = 39.0 / 32;
    check_interval(comparison, "break_even_tau", steps, steps * exp(-half), steps * exp(half));
    comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "maths");
    const json_t *cost = json_object_get(comparison, "round_cost");
    check_interval(cost, "draft", 0.2 * steps, 0.2 * steps, 0.2 * steps);
    check_null(cost, "build");
    check_interval(cost, "verify", 0.6 * steps, 0.6 * steps, 0.6 * steps);
    check_interval(cost, "commit", 0.1 * steps, 0.1 * steps, 0.1 * steps);
    check_interval(cost, "other", 0.1 * steps, 0.1 * steps, 0.1 * steps);
    check_null(check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL), "break_even_tau");
    const json_t *cell = check_cell(summary, "tp1-b16", "maths");
    check_interval(cell, "round_ms", 39.0 / 8, 39.0 / 8, 39.0 / 8);
    /* One at a time, all requests together are one: 14 tokens in 13 ms and half a millisecond. */
    check_interval(cell, "end_to_end_tokens_per_s", 14 / 0.0135, 14 / 0.0135, 14 / 0.0135);
    check_interval(cell, "aggregate_tokens_per_s", 14 / 0.0135, 14 / 0.0135, 14 / 0.0135);
    check_null(cell, "aggregate_missing");
    check_null(comparison, "speedup_aggregate");
    assert_true(json_is_true(json_object_get(cell, "pareto")));
    assert_false(json_is_true(json_object_get(check_cell(summary, "tp1-auto", "maths"), "pareto")));
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- several at a time -------------------------------------------------------------------------------------------- */

/* Three requests for two at a time, which overlap: too few to speak of all together, each one's times are as good. */
static void test_too_few_requests_take_the_throughput_alone(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}, \"concurrency\": [1, 2]");
    for (int block = 1; block <= 3; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto-c2", block, 1, 4e9, 0});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16-c2", block, 1, 1e9, 0});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16-c2", "tp1-auto-c2", "code");
    const json_t *cell = check_cell(summary, "tp1-b16-c2", "code");
    assert_true(samples_aggregate_tokens_per_s(&campaign.run.attempts[0].attempt, "code") > 0);
    check_interval(comparison, "speedup", 4, 4, 4);
    check_null(comparison, "speedup_aggregate");
    check_null(cell, "missing");
    check_null(cell, "aggregate_tokens_per_s");
    check_null(cell, "aggregate_per_device");
    check_interval(cell, "tpot_ms", 1e3, 1e3, 1e3);
    const json_t *missing = json_object_get(cell, "aggregate_missing");
    assert_string_equal(text_of(missing, "rule"), "TOO_FEW_REQUESTS");
    assert_non_null(strstr(text_of(missing, "detail"), "3 requests for 2 at a time"));
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

/* Somebody locks the clock in the course of the run, as `nvidia-smi -ac` does. */
static void test_gpu_settings_that_change_stand_apart(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        const int clock = block < 3 ? 1980 : 1500;
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6, .gpu_clock_mhz = clock,
                                                           .gpu_usual_clock_mhz = 1980});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6, 1e6, .gpu_clock_mhz = clock,
                                                           .gpu_usual_clock_mhz = 1980});
    }
    json_t *summary = check_build(&campaign);
    const json_t *gpus = json_object_get(summary, "gpus");
    assert_int_equal(json_array_size(gpus), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *gpu = json_array_get(gpus, i), *settings = json_object_get(gpu, "settings");
        const bool set = json_integer_value(json_object_get(settings, "application_clock_mhz")) == 1500;
        assert_string_equal(text_of(settings, "clocks"), set ? "set" : "default");
        check_number(gpu, "attempts", set ? 2 : 4);
        assert_int_equal(json_array_size(json_object_get(gpu, "uuids")), 1);
        assert_null(json_object_get(settings, "uuid"));
    }
    json_decref(summary);
    campaign_close(&campaign);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

static const json_t *find_scaling(const json_t *summary, const char *arm, const char *workload)
{
    return check_find(summary, "scaling", arm, NULL, workload);
}

static void test_scaling_is_paired_where_it_can_be(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}, \"tensor_parallel\": [1, 2]");
    for (int block = 1; block <= 3; block++) {
        const double slower = pow(1.1, block - 1);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6 * slower, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp2-auto", block, 1, 2.5e6 * slower, 2e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1e6 * slower, 1e6});
        campaign_add(&campaign,
                     &(struct campaign_attempt){"tp2-b16", block, 1, 0.5e6 * slower, 0.5e6, .boot_id = "other"});
    }
    json_t *summary = check_build(&campaign);
    const json_t *entry = find_scaling(summary, "tp2-auto", "code");
    assert_string_equal(text_of(entry, "reference"), "tp1-auto");
    assert_string_equal(text_of(entry, "pairing"), "paired");
    check_interval(entry, "speedup", 1.6, 1.6, 1.6);
    check_interval(entry, "efficiency", 0.8, 0.8, 0.8);
    assert_int_equal(json_array_size(json_object_get(entry, "blocks")), 3);
    assert_int_equal(json_array_size(json_object_get(entry, "attempts")), 6);
    check_null(entry, "communicate_share");
    check_number(json_object_get(find_scaling(summary, "tp2-auto", NULL), "speedup"), "value", sqrt(1.6 * 2));
    entry = find_scaling(summary, "tp2-b16", "code");
    const double half = 2.776445 * log(1.1) * sqrt(2.0 / 3);
    assert_string_equal(text_of(entry, "pairing"), "unpaired");
    check_interval(entry, "efficiency", 1, exp(-half), exp(half));
    assert_int_equal(json_array_size(json_object_get(entry, "blocks")), 0);
    assert_int_equal(json_array_size(json_object_get(entry, "attempts")), 6);
    entry = find_scaling(summary, "tp2-b16", NULL);
    check_null(entry, "speedup");
    assert_string_equal(text_of(json_object_get(entry, "missing"), "rule"), "UNPAIRED_RERUN");
    entry = find_scaling(summary, "tp2-linear", "code");
    check_null(entry, "speedup");
    check_null(entry, "pairing");
    assert_string_equal(text_of(json_object_get(entry, "missing"), "rule"), "NOT_MEASURED");
    json_decref(summary);
    campaign_close(&campaign);
}

/* Ranks that share a device are no ranks of their own: they do not scale, but are compared with each other. */
/* Two cells fit two terms whatever they took, and one term is a mean: neither explains anything. */
static void test_a_model_needs_more_cells_than_terms(void **state)
{
    (void)state;
    for (int workloads = 1; workloads <= 2; workloads++) {
        struct campaign campaign;
        const double maths = workloads == 2 ? 1e6 : 0;
        campaign_open(&campaign, 3, "{}");
        for (int block = 1; block <= 3; block++) {
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 3e6, 3 * maths});
            campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", block, 1, 1e6, maths});
        }
        json_t *summary = check_build(&campaign);
        const json_t *models = json_object_get(summary, "round_models");
        assert_int_equal(json_array_size(models), workloads - 1);
        if (workloads == 2)
            assert_int_equal(json_array_size(json_object_get(json_array_get(models, 0), "terms")), 2);
        json_decref(summary);
        campaign_close(&campaign);
    }
}

static void test_shared_devices_do_not_scale(void **state)
{
    (void)state;
    struct campaign campaign;
    struct error error = {0};
    campaign_open(&campaign, 3, "{}, \"tensor_parallel\": [1, 2]");
    for (int block = 1; block <= 3; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4e6, 4e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp2-auto", block, 1, 3e6, 3e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp2-b16", block, 1, 1e6, 1e6});
    }
    json_decref(check_build(&campaign));
    for (int i = 0; i < campaign.run.attempt_count; i++)
        if (campaign.run.attempts[i].attempt.arm.tensor_parallel == 2)
            verdicts_add(&campaign.run.attempts[i].verdicts, RULE_SHARED_DEVICE, RULE_INVALID, NULL, 2, 1, "shared");
    json_t *summary = summary_build(&campaign.run, &campaign.plan, &error);
    const json_t *entry = find_scaling(summary, "tp2-auto", "code");
    check_null(entry, "speedup");
    check_null(entry, "efficiency");
    assert_string_equal(text_of(json_object_get(entry, "missing"), "rule"), "SHARED_DEVICE");
    check_interval(check_find(summary, "comparisons", "tp2-b16", "tp2-auto", "code"), "speedup", 3, 3, 3);
    json_decref(summary);
    campaign_close(&campaign);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts_follow_the_intervals),
        cmocka_unit_test(test_nothing_is_said_without_limits),
        cmocka_unit_test(test_heat_maps_are_adjusted_for_false_discoveries),
        cmocka_unit_test(test_estimates_without_what_is_suspect),
        cmocka_unit_test(test_failures_that_pass_change_no_ratio),
        cmocka_unit_test(test_what_repeats_itself_marks_every_arm),
        cmocka_unit_test(test_outliers_are_marked_and_stay),
        cmocka_unit_test(test_what_cannot_be_paired_has_an_interval_of_its_own),
        cmocka_unit_test(test_speedup_on_the_same_outputs),
        cmocka_unit_test(test_outputs_that_end_early_are_not_identical),
        cmocka_unit_test(test_break_even_and_what_a_round_costs),
        cmocka_unit_test(test_too_few_requests_take_the_throughput_alone),
        cmocka_unit_test(test_gpu_settings_that_change_stand_apart),
        cmocka_unit_test(test_scaling_is_paired_where_it_can_be),
        cmocka_unit_test(test_a_model_needs_more_cells_than_terms),
        cmocka_unit_test(test_shared_devices_do_not_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
