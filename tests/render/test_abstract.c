#include "render/abstract.h"

#include "tests/render/example.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct summary summary;

static int begin(void **state)
{
    (void)state;
    example_read(&summary);
    return 0;
}

static int end(void **state)
{
    (void)state;
    summary_free(&summary);
    return 0;
}

static struct comparison *find_headline(void)
{
    for (int i = 0; i < summary.comparison_count; i++)
        if (summary.comparisons[i].headline && summary.comparisons[i].workload == SUMMARY_ALL_WORKLOADS)
            return &summary.comparisons[i];
    fail_msg("the example has no headline");
    return NULL;
}

static void check(const char *expected)
{
    char *text = example_put(abstract_put, &summary);
    if (!strstr(text, expected))
        fail_msg("\"%s\" is not in: %s", expected, text);
    free(text);
}

static void test_words_follow_the_verdict(void **state)
{
    (void)state;
    struct comparison *comparison = find_headline();
    summary.equivalence_margin = .02;
    comparison->verdict = "faster";
    check("\\textbf{b16} decodes faster than auto (\\textbf{\\SpeedupBSixteenOverAuto{}} times the speed;");
    comparison->verdict = "slower";
    check("\\textbf{b16} decodes slower than auto (");
    comparison->verdict = "equal";
    check("\\textbf{b16} decodes as fast as auto within \\EquivalenceMargin\\% (");
    comparison->verdict = "no difference shown";
    check("\\textbf{b16} is not shown to differ in speed from auto (");
}

static void test_numbers_are_macros(void **state)
{
    (void)state;
    check("[\\SpeedupBSixteenOverLinearSimultaneousLow{}, \\SpeedupBSixteenOverLinearSimultaneousHigh{}]");
    char *text = example_put(abstract_put, &summary);
    assert_null(strstr(text, "On code"));
    assert_null(strstr(text, "Extended"));
    free(text);
    json_t *extended = json_pack("[i]", 3);
    summary.extended_from = extended;
    check("N{}$ blocks\\Extended{})");
    json_decref(extended);
}

static int count_texts(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

/* Chosen on the reported blocks a budget came out fastest there; chosen on others it need not have been. The lower
 * limit is never rounded up. */
static void test_the_best_budget_is_said_to_be_no_more_than_it_is(void **state)
{
    (void)state;
    struct best_budget best = {.workload = SUMMARY_ALL_WORKLOADS,
                               .arm = find_headline()->arm,
                               .budgets = 6,
                               .selected_on = "reported",
                               .speedup = {.present = true, .value = 1.648, .low = 1.6, .high = 1.7, .n = 6},
                               .bound = {.low = 1.5789, .high = 1.72}};
    struct best_budget *const own = summary.best_budgets;
    const int count = summary.best_budget_count;
    summary.best_budgets = &best;
    summary.best_budget_count = 1;
    for (int i = 0; i < summary.comparison_count; i++)
        summary.comparisons[i].headline = false;
    check("Of 6 budgets, \\textbf{b16}'s came out fastest, at \\num{1.65} times the speed of auto; allowing for the "
          "choice "
          "among them it is at least \\num{1.57} with");
    best.selected_on = "tuning";
    check("Of 6 budgets, \\textbf{b16}'s was chosen, on blocks that are reported nowhere else; on those that are it "
          "decodes "
          "at \\num{1.65} times the speed of auto, at least \\num{1.57} with");
    best.bound.low = 1.00049;
    best.speedup.value = 1.0021;
    check("at \\num{1.0021} times the speed of auto, at least \\num{1.0004} with");
    best.bound.low = .99;
    char *text = example_put(abstract_put, &summary);
    assert_int_equal(count_texts(text, "best"), 0);
    free(text);
    summary.best_budgets = own;
    summary.best_budget_count = count;
}

static void test_a_suspect_headline_says_so_and_what_is_left(void **state)
{
    (void)state;
    struct comparison *comparison = find_headline();
    json_t *marks = json_pack("[sss]", "REPETITION", "MIN_BLOCKS", "COLD_FIRST");
    comparison->marks = marks;
    comparison->without_speedup = (struct interval){.present = true, .value = 1.5, .low = 1.25, .high = 1.75};
    check("blocks; suspect: REPETITION, COLD\\_\\allowbreak{}FIRST, "
          "without which it is \\num{1.50} [\\num{1.25}, \\num{1.75}])");
    comparison->without_speedup.low = comparison->without_speedup.high = NAN;
    check("without which it is \\num{1.50})");
    comparison->without_speedup.present = false;
    check("without which nothing is left)");
    comparison->marks = NULL;
    char *text = example_put(abstract_put, &summary);
    assert_null(strstr(text, "suspect"));
    free(text);
    json_decref(marks);
}

static void test_it_says_what_an_engine_ran_on(void **state)
{
    (void)state;
    json_t *source = json_pack("{s:s, s:s}", "kind", "engine", "gpu", "NVIDIA H200"),
           *machine = json_pack("{s:s}", "cpu", "a processor");
    summary.source = source;
    summary.machine = machine;
    check("We measured decoding (NVIDIA H200) under");
    json_object_del(source, "gpu");
    check("We measured decoding (a processor) under");
    json_object_set_new(source, "kind", json_string("server")); /* this machine is the client's */
    check("We measured decoding under");
    json_decref(source);
    json_decref(machine);
}

static void test_a_headline_without_a_number_says_why(void **state)
{
    (void)state;
    struct comparison *comparison = find_headline();
    comparison->speedup.present = false;
    comparison->missing.rule = "THROTTLED";
    check("\\textbf{b16} over auto has no valid number (THROTTLED)");
}

static void test_without_a_family_it_says_so(void **state)
{
    (void)state;
    for (int i = 0; i < summary.comparison_count; i++)
        summary.comparisons[i].headline = false;
    check("The plan names no headline comparison.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_words_follow_the_verdict, begin, end),
        cmocka_unit_test_setup_teardown(test_numbers_are_macros, begin, end),
        cmocka_unit_test_setup_teardown(test_the_best_budget_is_said_to_be_no_more_than_it_is, begin, end),
        cmocka_unit_test_setup_teardown(test_a_suspect_headline_says_so_and_what_is_left, begin, end),
        cmocka_unit_test_setup_teardown(test_it_says_what_an_engine_ran_on, begin, end),
        cmocka_unit_test_setup_teardown(test_a_headline_without_a_number_says_why, begin, end),
        cmocka_unit_test_setup_teardown(test_without_a_family_it_says_so, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
