/* summary.json from run folders with known times: its numbers, derived by hand, and what is null in it. */
#include "analyze/summary.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/analyze/checks.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define T_2 4.302653 /* Student's t, 2 degrees of freedom, 95% */

static void assert_rule(const json_t *object, const char *key, const char *rule)
{
    const char *found = json_string_value(json_object_get(json_object_get(object, key), "rule"));
    assert_non_null(found);
    assert_string_equal(found, rule);
}

/* In blocks 1 to 3 auto takes 4000, 4400, 4840 ns a token; linear half of auto; b16 a quarter of auto in block 1, then
 * a quarter with 10% more, a quarter with 10% less, on the logarithm. b8 is absent. */
static void open_known(struct campaign *campaign)
{
    static const double deviation[] = {0, 0.1, -0.1};
    campaign_open(campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        double base = 4000 * pow(1.1, block - 1), tree = base / 4 * exp(-deviation[block - 1]);
        campaign_add(campaign, &(struct campaign_attempt){"tp1-auto", block, 1, base, base});
        campaign_add(campaign, &(struct campaign_attempt){"tp1-linear", block, 1, base / 2, base / 2});
        campaign_add(campaign, &(struct campaign_attempt){"tp1-b16", block, 1, tree, tree});
    }
}

static void test_speedup_with_its_intervals(void **state)
{
    (void)state;
    struct campaign campaign;
    open_known(&campaign);
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL);
    /* Logs are log 4 + 0, 0.1, -0.1: s = 0.1, standard error 0.1 / sqrt 3. Nanoseconds are whole: 1e-4 is left over. */
    double error = 0.1 / sqrt(3);
    const json_t *speedup = json_object_get(comparison, "speedup");
    assert_true(fabs(json_number_value(json_object_get(speedup, "value")) / 4 - 1) < 1e-4);
    assert_true(fabs(json_number_value(json_object_get(speedup, "low")) / (4 * exp(-T_2 * error)) - 1) < 1e-4);
    assert_true(fabs(json_number_value(json_object_get(speedup, "high")) / (4 * exp(T_2 * error)) - 1) < 1e-4);
    check_number(speedup, "n", 3);
    /* Two headline comparisons: t at 1 - .05 / 4 with 2 degrees is 6.2053. */
    const json_t *simultaneous = json_object_get(comparison, "simultaneous");
    assert_true(fabs(json_number_value(json_object_get(simultaneous, "low")) / (4 * exp(-6.2053 * error)) - 1) < 2e-4);
    check_number(comparison, "sign_flip_p", 0.25);
    /* For 2 degrees of freedom p = 1 - t / sqrt(2 + t^2). The other member of the family, log 2 + the same, has the
     * larger p. */
    double t = log(4) / error, other = log(2) / error, p = 1 - t / sqrt(2 + t * t),
           p_other = 1 - other / sqrt(2 + other * other);
    assert_true(fabs(json_number_value(json_object_get(comparison, "p")) / p - 1) < 1e-2);
    assert_true(fabs(json_number_value(json_object_get(comparison, "p_holm")) / (2 * p) - 1) < 1e-2);
    comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-linear", NULL);
    assert_true(fabs(json_number_value(json_object_get(comparison, "p_holm")) / p_other - 1) < 1e-2);
    json_decref(summary);
    campaign_close(&campaign);
}

/* The newest plan asks for what is not measured yet: what the report says of its numbers stands in the plan that they
 * were measured under. */
static void test_settings_are_those_of_what_counts(void **state)
{
    (void)state;
    static const char amended[] =
        "{\"schema\": \"cleanslate.plan/1\", \"name\": \"demo\", \"source\": {\"kind\": \"engine\", \"target\": \"t\","
        " \"drafter\": \"d\"}, \"methods\": [\"auto\", \"linear\", \"ddtree\"], \"budgets\": [8, 16], \"blocks\": 3,"
        " \"seed\": 7, \"warmup\": 5, \"sampling\": {\"temperature\": 0.8}, \"workloads\": [{\"name\": \"code\","
        " \"prompts\": \"other.jsonl\", \"count\": 9, \"max_new_tokens\": 99, \"template\": \"math\", \"chat\":"
        " \"thinking\", \"context\": {\"tokens\": 512, \"corpus\": \"c\"}}, {\"name\": \"maths\", \"prompts\": "
        "\"m.jsonl\","
        " \"max_new_tokens\": 99}, {\"name\": \"new\", \"prompts\": \"new.jsonl\", \"max_new_tokens\": 77}]}";
    struct campaign campaign;
    struct error error = {0};
    open_known(&campaign);
    json_t *before = check_build(&campaign);
    char *path = file_join(campaign.folder, "plan-2.json");
    struct plan plan;
    fixture_write(path, amended, strlen(amended));
    assert_int_equal(plan_read(path, &plan, &error), 0);
    json_t *summary = summary_build(&campaign.run, &plan, &error);
    const json_t *was = json_object_get(before, "plan"), *is = json_object_get(summary, "plan");
    static const char *const keys[] = {"seed", "warmup", "temperature"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_true(json_equal(json_object_get(is, keys[i]), json_object_get(was, keys[i])));
    const json_t *workloads = json_object_get(is, "workloads");
    for (size_t i = 0; i < 2; i++)
        assert_true(json_equal(json_array_get(workloads, i), json_array_get(json_object_get(was, "workloads"), i)));
    check_number(json_array_get(workloads, 2), "max_new_tokens", 77);
    json_decref(summary);
    json_decref(before);
    plan_free(&plan);
    free(path);
    campaign_close(&campaign);
}

static void test_cell_numbers(void **state)
{
    (void)state;
    struct campaign campaign;
    open_known(&campaign);
    json_t *summary = check_build(&campaign);
    const json_t *cell = check_cell(summary, "tp1-auto", "code");
    /* Geometric mean 4400 ns; logs differ by log 1.1. */
    double half = T_2 * log(1.1) / sqrt(3);
    check_interval(cell, "tpot_ms", 0.0044, 0.0044 * exp(-half), 0.0044 * exp(half));
    check_interval(cell, "tokens_per_s", 1e9 / 4400, 1e9 / 4400 * exp(-half), 1e9 / 4400 * exp(half));
    check_interval(cell, "ttft_ms", 0.5, 0.5, 0.5);
    check_interval(cell, "tau", 1, 1, 1);
    /* Of a tree: 13 tokens in 3, 3 and 2 rounds; residuals 13 - 4.875 x rounds; on the logarithm of what lies above 1.
     */
    half = T_2 * sqrt((2 * 1.625 * 1.625 + 3.25 * 3.25) / 2 / 3) / (8.0 / 3);
    cell = check_cell(summary, "tp1-b16", "code");
    check_interval(cell, "tau", 4.875, 1 + 3.875 * exp(-half / 3.875), 1 + 3.875 * exp(half / 3.875));
    assert_string_equal(json_string_value(json_object_get(json_object_get(cell, "tau"), "over")), "prompts");
    check_number(cell, "tau_request_mean", (13 / 3.0 + 13 / 3.0 + 13 / 2.0) / 3);
    check_number(cell, "tau_emitted", 36 / 8.0);
    check_number(cell, "rounds", 24);
    json_t *histogram = json_pack("[i,i,i,i,i,i,i,i]", 0, 0, 0, 0, 12, 6, 3, 3);
    assert_true(json_equal(histogram, json_object_get(cell, "accepted_histogram")));
    json_decref(histogram);
    check_number(cell, "blocks_valid", 3);
    check_number(cell, "tries", 3);
    check_number(cell, "excluded", 0);
    check_null(cell, "missing");
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_stages(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 1, "{}");
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 1, 1, 1000, 1000});
    json_t *summary = check_build(&campaign);
    const json_t *cell = check_cell(summary, "tp1-b16", "code");
    const json_t *share = json_object_get(cell, "stages_share"), *ms = json_object_get(cell, "stages_ms");
    check_number(share, "draft", 0.2);
    check_null(share, "build");
    check_number(share, "verify", 0.6);
    check_number(share, "commit", 0.1);
    check_number(share, "other", 0.1);
    check_number(ms, "verify", 0.6 * 3 * 13000 / 8 / 1e6); /* three outputs of 13 us in 8 rounds */
    json_decref(summary);
    campaign_close(&campaign);
}

/* No number anywhere below: what is missing is null. */
static void assert_no_number(const json_t *object, const char *const *keys)
{
    for (; *keys; keys++)
        check_null(object, *keys);
}

static void test_missing_arm_is_null_with_its_rule(void **state)
{
    (void)state;
    static const char *const of_cell[] = {"tokens_per_s",
                                          "tpot_ms",
                                          "ttft_ms",
                                          "tau",
                                          "tau_request_mean",
                                          "tau_emitted",
                                          "rounds",
                                          "stages_ms",
                                          "stages_share",
                                          "accepted_histogram",
                                          NULL};
    static const char *const of_comparison[] = {"speedup",     "simultaneous",       "p", "p_holm", "fieller",
                                                "sign_flip_p", "speedup_end_to_end", NULL};
    struct campaign campaign;
    open_known(&campaign);
    json_t *summary = check_build(&campaign);
    assert_no_number(check_cell(summary, "tp1-b8", "code"), of_cell);
    assert_rule(check_cell(summary, "tp1-b8", "code"), "missing", "NOT_MEASURED");
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b8", "tp1-auto", NULL);
    assert_no_number(comparison, of_comparison);
    assert_rule(comparison, "missing", "NOT_MEASURED");
    assert_int_equal(json_array_size(json_object_get(comparison, "blocks")), 0);
    assert_int_equal(json_array_size(json_object_get(comparison, "dropped")), 3);
    assert_false(json_is_true(json_object_get(comparison, "best")));
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_too_few_blocks_give_a_point(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 2, "{}");
    for (int block = 1; block <= 2; block++) {
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 2000, 2000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1000 + block, 1000});
    }
    json_t *summary = check_build(&campaign);
    const json_t *comparison = check_find(summary, "comparisons", "tp1-b16", "tp1-auto", "maths");
    const json_t *speedup = json_object_get(comparison, "speedup");
    check_number(speedup, "value", 2);
    check_null(speedup, "low");
    check_null(speedup, "high");
    check_null(comparison, "p");
    check_null(comparison, "fieller");
    assert_string_equal(json_string_value(json_array_get(json_object_get(comparison, "marks"), 0)), "MIN_BLOCKS");
    assert_false(json_is_true(json_object_get(comparison, "best")));
    json_decref(summary);
    campaign_close(&campaign);
}

/* Whether the list has a verdict of this rule on this attempt. */
static bool has_verdict(const json_t *summary, const char *attempt, const char *rule)
{
    const json_t *array = json_object_get(summary, "verdicts");
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (strcmp(json_string_value(json_object_get(item, "attempt")), attempt) == 0 &&
            strcmp(json_string_value(json_object_get(item, "rule")), rule) == 0)
            return true;
    }
    return false;
}

static bool has_rule(const json_t *summary, const char *id)
{
    const json_t *array = json_object_get(summary, "rules");
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(array, i), "id")), id) == 0)
            return true;
    return false;
}

static void test_every_exclusion_is_listed(void **state)
{
    (void)state;
    struct campaign campaign;
    open_known(&campaign);
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 2, 2, 1000, 1000});                /* replaces 2-1 */
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", 3, 2, 1000, 1000, .torn = true});  /* 3-1 stays */
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 1, 1, 1000, 1000, .boot_id = "x"}); /* no baseline */
    campaign_add(&campaign,
                 &(struct campaign_attempt){"tp1-b8", 2, 1, 1000, 1000, "2026-02-01T12:00:00Z", .cell_suffix = "old"});
    campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", 3, 1, 1000, 1000, .diverging_prompt = 1});
    json_t *summary = check_build(&campaign);
    assert_true(has_verdict(summary, "demo/tp1-b16/2-1", "SUPERSEDED"));
    assert_true(has_verdict(summary, "demo/tp1-b16/3-2", "INCOMPLETE"));
    assert_false(has_verdict(summary, "demo/tp1-b16/3-1", "SUPERSEDED"));
    assert_true(has_verdict(summary, "demo/tp1-b8/1-1", "UNPAIRED_RERUN"));
    assert_true(has_verdict(summary, "demo/tp1-b8/2-1", "FINGERPRINT"));
    assert_true(has_verdict(summary, "demo/tp1-b8/3-1", "OUTPUT_DIVERGES"));
    static const char *const rules[] = {"SUPERSEDED", "INCOMPLETE", "UNPAIRED_RERUN", "FINGERPRINT", "OUTPUT_DIVERGES"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_true(has_rule(summary, rules[i]));
    assert_false(has_rule(summary, "REPETITION"));
    check_number(check_cell(summary, "tp1-b8", "code"), "tries", 3);
    check_number(check_cell(summary, "tp1-b8", "code"), "excluded", 2); /* of 1-1 the times of the arm alone are left */
    check_number(check_cell(summary, "tp1-b8", "maths"), "excluded", 1);
    const json_t *run = json_array_get(json_object_get(summary, "runs"), 0);
    check_number(run, "attempts", 14);
    check_number(run, "attempts_invalid", 5);
    check_number(run, "sessions", 3);
    assert_string_equal(json_string_value(json_object_get(run, "first_started")), "2026-02-01T12:00:00Z");
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_best_are_those_beaten_by_none(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        double noise = 1 + 0.001 * block;
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 4000, 4000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", block, 1, 3000, 3000 * noise});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", block, 1, 1000 * noise, 1000});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1003 / noise, 1000});
    }
    json_t *summary = check_build(&campaign);
    assert_true(json_is_true(json_object_get(check_find(summary, "comparisons", "tp1-b8", "tp1-auto", NULL), "best")));
    assert_true(json_is_true(json_object_get(check_find(summary, "comparisons", "tp1-b16", "tp1-auto", NULL), "best")));
    assert_false(
        json_is_true(json_object_get(check_find(summary, "comparisons", "tp1-linear", "tp1-auto", NULL), "best")));
    assert_false(
        json_is_true(json_object_get(check_find(summary, "comparisons", "tp1-b8", "tp1-linear", NULL), "best")));
    json_decref(summary);
    campaign_close(&campaign);
}

/* On code every arm is slower than auto, though b16 less than the others; on maths nobody can tell b16 from auto. */
static void test_none_is_best_that_auto_beats(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 3, "{}");
    for (int block = 1; block <= 3; block++) {
        const double noise = 1 + 0.001 * (block - 2);
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-auto", block, 1, 1e6, 1e6});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-linear", block, 1, 3e6 * noise, 3e6 * noise});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b8", block, 1, 3e6 / noise, 3e6 / noise});
        campaign_add(&campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 2e6 * noise, 1e6 * noise});
    }
    json_t *summary = check_build(&campaign);
    static const char *const arms[] = {"tp1-linear", "tp1-b8", "tp1-b16"};
    for (int i = 0; i < 3; i++) {
        const json_t *code = check_find(summary, "comparisons", arms[i], "tp1-auto", "code");
        const json_t *maths = check_find(summary, "comparisons", arms[i], "tp1-auto", "maths");
        assert_false(json_is_true(json_object_get(code, "best")));
        assert_int_equal(json_is_true(json_object_get(maths, "best")), i == 2);
    }
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_same_run_same_bytes(void **state)
{
    (void)state;
    struct campaign campaign;
    struct error error = {0};
    open_known(&campaign);
    json_t *summary = check_build(&campaign), *again = summary_build(&campaign.run, &campaign.plan, &error);
    char *paths[] = {xformat("%s/one/summary.json", campaign.parent), xformat("%s/two.json", campaign.parent)};
    assert_int_equal(summary_write(summary, paths[0], &error), 0);
    assert_int_equal(summary_write(again, paths[1], &error), 0);
    size_t sizes[2];
    char *bytes[] = {fixture_read(paths[0], &sizes[0]), fixture_read(paths[1], &sizes[1])};
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    assert_null(strstr(bytes[0], campaign.parent)); /* where it lay is not in it */
    for (int i = 0; i < 2; i++) {
        free(paths[i]);
        free(bytes[i]);
    }
    json_decref(summary);
    json_decref(again);
    campaign_close(&campaign);
}

/* --- what the ledger says ----------------------------------------------------------------------------------------- */

static void note(const struct campaign *campaign, enum ledger_actor actor, const char *action, json_t *details)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(campaign->folder, &ledger, &error), 0);
    assert_int_equal(ledger_append(&ledger, actor, action, details, &error), 0);
    ledger_close(&ledger);
}

static void amend(const struct campaign *campaign, int blocks_before, int blocks)
{
    note(campaign, LEDGER_COLLECT, "amend", json_pack("{s:i, s:i}", "blocks_before", blocks_before, "blocks", blocks));
}

static void add_blocks(struct campaign *campaign, int first, int last)
{
    for (int block = first; block <= last; block++)
        campaign_add(campaign, &(struct campaign_attempt){"tp1-b16", block, 1, 1000, 1000});
    fixture_enter(campaign->folder);
}

static void test_blocks_added_after_looking_are_told(void **state)
{
    (void)state;
    struct campaign campaign;
    campaign_open(&campaign, 6, "{}");
    amend(&campaign, 2, 4); /* before anything could be seen */
    add_blocks(&campaign, 1, 3);
    amend(&campaign, 4, 4); /* another title */
    amend(&campaign, 4, 3);
    note(&campaign, LEDGER_COLLECT, "amend", json_pack("{s:s}", "plan", "plan-4.json"));
    amend(&campaign, 3, 5);
    add_blocks(&campaign, 4, 5);
    amend(&campaign, 5, 6);
    amend(&campaign, 5, 6); /* the program ended before it wrote the plan */
    json_t *summary = check_build(&campaign), *expected = json_pack("[i, i]", 3, 5);
    assert_true(json_equal(json_object_get(json_object_get(summary, "plan"), "extended_from"), expected));
    json_decref(expected);
    json_decref(summary);
    campaign_close(&campaign);

    open_known(&campaign);
    summary = check_build(&campaign);
    assert_int_equal(json_array_size(json_object_get(json_object_get(summary, "plan"), "extended_from")), 0);
    json_decref(summary);
    campaign_close(&campaign);
}

/* The verdict of that rule on that attempt. */
static const json_t *find_verdict(const json_t *summary, const char *attempt, const char *rule)
{
    size_t i;
    const json_t *verdict;
    json_array_foreach(json_object_get(summary, "verdicts"), i, verdict)
    {
        if (strcmp(json_string_value(json_object_get(verdict, "attempt")), attempt) == 0 &&
            strcmp(json_string_value(json_object_get(verdict, "rule")), rule) == 0)
            return verdict;
    }
    fail_msg("no %s of %s", rule, attempt);
    return NULL;
}

static void test_what_persons_and_accidents_took_is_listed(void **state)
{
    (void)state;
    struct campaign campaign;
    open_known(&campaign);
    fixture_enter(campaign.folder);
    note(&campaign, LEDGER_USER, "invalidate",
         json_pack("{s:s, s:s}", "attempt", "demo/tp1-b16/1-1", "reason", "the fan was off"));
    char *gone = file_join(campaign.folder, "attempts/tp1-b16/2-1.jsonl");
    assert_int_equal(unlink(gone), 0);
    free(gone);
    json_t *summary = check_build(&campaign);
    const json_t *withdrawn = find_verdict(summary, "demo/tp1-b16/1-1", "WITHDRAWN");
    assert_string_equal(json_string_value(json_object_get(withdrawn, "detail")), "the fan was off");
    assert_string_equal(json_string_value(json_object_get(withdrawn, "actor")), "user");
    assert_string_not_equal(json_string_value(json_object_get(withdrawn, "time")), "2026-03-01T12:00:00Z");
    const json_t *vanished = find_verdict(summary, "demo/tp1-b16/2-1", "VANISHED");
    assert_string_equal(json_string_value(json_object_get(vanished, "actor")), "rule");
    const json_t *cell = check_cell(summary, "tp1-b16", "code");
    check_number(cell, "blocks_valid", 1);
    check_number(cell, "tries", 3);
    check_number(cell, "excluded", 2);
    const json_t *run = json_array_get(json_object_get(summary, "runs"), 0);
    check_number(run, "attempts", 9);
    check_number(run, "attempts_invalid", 2);
    int explained = 0;
    size_t i;
    const json_t *rule;
    json_array_foreach(json_object_get(summary, "rules"), i, rule)
    {
        const char *id = json_string_value(json_object_get(rule, "id"));
        explained += strcmp(id, "WITHDRAWN") == 0 || strcmp(id, "VANISHED") == 0;
    }
    assert_int_equal(explained, 2);
    json_decref(summary);
    campaign_close(&campaign);
}

static void test_broken_ledger_is_refused(void **state)
{
    (void)state;
    struct campaign campaign;
    struct error error = {0};
    open_known(&campaign);
    campaign_read(&campaign);
    campaign.run.ledger.broken_at = 7;
    assert_null(summary_build(&campaign.run, &campaign.plan, &error));
    assert_non_null(strstr(error.message, "ledger.jsonl:7"));
    campaign_close(&campaign);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_speedup_with_its_intervals),
        cmocka_unit_test(test_settings_are_those_of_what_counts),
        cmocka_unit_test(test_cell_numbers),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_missing_arm_is_null_with_its_rule),
        cmocka_unit_test(test_too_few_blocks_give_a_point),
        cmocka_unit_test(test_every_exclusion_is_listed),
        cmocka_unit_test(test_best_are_those_beaten_by_none),
        cmocka_unit_test(test_none_is_best_that_auto_beats),
        cmocka_unit_test(test_same_run_same_bytes),
        cmocka_unit_test(test_blocks_added_after_looking_are_told),
        cmocka_unit_test(test_what_persons_and_accidents_took_is_listed),
        cmocka_unit_test(test_broken_ledger_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
