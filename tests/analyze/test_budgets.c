/* The best budget of synthetic campaigns: chosen on tuning blocks, or bounded over all. */
#include "analyze/summary.h"
#include "collect/base/file.h"
#include "tests/record/fixture.h"
#include "tests/synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char plan_format[] =
    "{\"schema\": \"cleanslate.plan/1\", \"name\": \"budgets\", \"source\": {\"kind\": \"engine\", \"target\": \"t\","
    " \"drafter\": \"d\", \"dtype\": \"float32\"}, \"methods\": [\"auto\", \"ddtree\", \"linear\"],"
    " \"budgets\": [8, 16, 32, 64], \"blocks\": 4, \"seed\": 1, \"workloads\": ["
    " {\"name\": \"code\", \"prompts\": \"code.jsonl\", \"count\": 8, \"max_new_tokens\": 65, \"ignore_eos\": true},"
    " {\"name\": \"maths\", \"prompts\": \"maths.jsonl\", \"count\": 8, \"max_new_tokens\": 65, \"ignore_eos\": "
    "true}]%s}";

struct scene {
    char *folder;
    struct plan plan;
    struct run run;
    json_t *summary;
};

static void open_scene(struct scene *scene, const char *keys)
{
    struct error error = {0};
    char *text = xformat(plan_format, keys);
    scene->folder = fixture_make_folder();
    synthetic_make(scene->folder, text, 3);
    char *path = file_join(scene->folder, "plan.json");
    assert_int_equal(plan_read(path, &scene->plan, &error), 0);
    assert_int_equal(run_read(scene->folder, &scene->plan.rules, &scene->run, &error), 0);
    scene->summary = summary_build(&scene->run, &scene->plan, &error);
    if (!scene->summary)
        fail_msg("%s", error.message);
    free(path);
    free(text);
}

static void close_scene(struct scene *scene)
{
    json_decref(scene->summary);
    run_free(&scene->run);
    plan_free(&scene->plan);
    fixture_remove_folder(scene->folder);
}

static const json_t *find(const json_t *array, const char *arm, const char *workload)
{
    size_t i;
    const json_t *item;
    json_array_foreach(array, i, item)
    {
        const char *of_arm = json_string_value(json_object_get(item, "arm"));
        const char *of_workload = json_string_value(json_object_get(item, "workload"));
        const char *baseline = json_string_value(json_object_get(item, "baseline"));
        if ((!arm || strcmp(of_arm, arm) == 0) && strcmp(baseline, "tp1-auto") == 0 &&
            (workload ? of_workload && strcmp(of_workload, workload) == 0 : !of_workload))
            return item;
    }
    fail_msg("nothing of %s on %s", arm, workload);
    return NULL;
}

static double limit(const json_t *object, const char *key, const char *which)
{
    const json_t *value = json_object_get(json_object_get(object, key), which);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Log R has the same interval, with t for .05 / 4 instead of .05. */
static void test_without_tuning_the_bound_is_over_all_budgets(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "");
    assert_int_equal(json_array_size(json_object_get(scene.summary, "best_budgets")), 3); /* both workloads, and all */
    const json_t *best = find(json_object_get(scene.summary, "best_budgets"), NULL, "code");
    assert_string_equal(text_of(best, "selected_on"), "reported");
    assert_int_equal(json_integer_value(json_object_get(best, "budgets")), 4);
    assert_true(json_is_null(json_object_get(best, "tuning_speedup")));
    const double low = log(limit(best, "speedup", "low")), high = log(limit(best, "speedup", "high"));
    const double widened = log(limit(best, "bound", "high") / limit(best, "bound", "low")) / (high - low);
    assert_true(fabs(widened - 5.391949 / 3.182446) < 1e-3); /* t at .00625 and .025, 3 degrees of freedom, from R */
    static const char *const arms[] = {"tp1-b8", "tp1-b16", "tp1-b32", "tp1-b64"};
    for (int i = 0; i < 4; i++) {
        const json_t *comparison = find(json_object_get(scene.summary, "comparisons"), arms[i], "code");
        assert_true(limit(comparison, "speedup", "value") <= limit(best, "speedup", "value"));
    }
    close_scene(&scene);
}

static void assert_attempts_behind(const json_t *object, int block)
{
    size_t i;
    const json_t *id;
    json_array_foreach(json_object_get(object, "attempts"), i, id)
    {
        struct attempt_place place;
        assert_true(place_parse(json_string_value(id), &place));
        assert_true(place.block > block);
    }
}

static void test_tuning_blocks_choose_and_are_reported_nowhere(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, ", \"tuning\": {\"blocks\": 3, \"prompts\": \"half\"}");
    const json_t *best = find(json_object_get(scene.summary, "best_budgets"), NULL, NULL);
    assert_string_equal(text_of(best, "selected_on"), "tuning");
    assert_true(limit(best, "tuning_speedup", "n") == 3);
    const json_t *chosen = find(json_object_get(scene.summary, "comparisons"), text_of(best, "arm"), NULL);
    static const char *const keys[] = {"value", "low", "high", "n"};
    for (int i = 0; i < 4; i++)
        assert_true(limit(best, "speedup", keys[i]) == limit(chosen, "speedup", keys[i]));
    assert_true(limit(best, "bound", "low") == limit(best, "speedup", "low"));
    assert_true(limit(best, "bound", "high") == limit(best, "speedup", "high"));
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(scene.summary, "cells"), i, item)
    {
        assert_attempts_behind(item, 3);
        assert_int_equal(json_integer_value(json_object_get(item, "blocks_planned")), 4);
        assert_true(json_is_null(json_object_get(item, "tau")) || limit(item, "tau", "n") == 4);
    }
    json_array_foreach(json_object_get(chosen, "blocks"), i, item)
    {
        assert_int_equal(json_integer_value(json_object_get(item, "block")), 4 + (int)i);
        assert_attempts_behind(item, 3);
    }
    assert_int_equal(i, 4);
    json_array_foreach(json_object_get(json_object_get(scene.summary, "drift"), "residuals"), i, item)
        assert_true(json_integer_value(json_object_get(item, "block")) > 3);
    const json_t *tuning = json_object_get(json_object_get(scene.summary, "plan"), "tuning");
    assert_int_equal(json_integer_value(json_object_get(tuning, "blocks")), 3);
    close_scene(&scene);
}

/* Tuning blocks of other halves than those that are reported, as where the seed was changed in between. */
static void test_prompts_that_are_reported_choose_nothing(void **state)
{
    (void)state;
    struct scene scene;
    const char *reported = NULL;
    open_scene(&scene, ", \"tuning\": {\"blocks\": 3, \"prompts\": \"half\"}");
    for (int i = 0, at = 0; i < scene.run.attempt_count && !reported; i++)
        if (scene.run.attempts[i].attempt.block > 3)
            reported = attempt_next_sample(&scene.run.attempts[i].attempt, "code", &at)->prompt;
    for (int i = 0, at = 0; i < scene.run.attempt_count; i++, at = 0)
        if (scene.run.attempts[i].attempt.block <= 3)
            ((struct sample *)attempt_next_sample(&scene.run.attempts[i].attempt, "code", &at))->prompt = reported;
    struct error error = {0};
    json_t *summary = summary_build(&scene.run, &scene.plan, &error);
    static const char *const workloads[] = {"code", NULL};
    for (int i = 0; i < 2; i++) {
        const json_t *best = find(json_object_get(summary, "best_budgets"), NULL, workloads[i]);
        assert_true(json_is_null(json_object_get(best, "arm")) && json_is_null(json_object_get(best, "bound")));
        assert_string_equal(text_of(json_object_get(best, "missing"), "rule"), "FINGERPRINT");
    }
    assert_true(json_is_string(json_object_get(find(json_object_get(summary, "best_budgets"), NULL, "maths"), "arm")));
    json_decref(summary);
    close_scene(&scene);
}

static void test_without_auto_in_the_blocks_there_is_none(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, "");
    for (int i = 0; i < scene.run.attempt_count; i++)
        if (scene.run.attempts[i].attempt.arm.method == METHOD_AUTO)
            verdicts_add(&scene.run.attempts[i].verdicts, RULE_WITHDRAWN, RULE_INVALID, NULL, NAN, NAN, "withdrawn");
    struct error error = {0};
    json_t *summary = summary_build(&scene.run, &scene.plan, &error);
    const json_t *best = find(json_object_get(summary, "best_budgets"), NULL, "code");
    assert_true(json_is_null(json_object_get(best, "arm")) && json_is_null(json_object_get(best, "speedup")));
    assert_string_equal(text_of(json_object_get(best, "missing"), "rule"), "WITHDRAWN");
    json_decref(summary);
    close_scene(&scene);
}

/* Withdraws what an arm's label and block say; label NULL: all trees. */
static void withdraw(struct scene *scene, const char *label, int first_block, int last_block)
{
    char text[ARM_NAME_SIZE];
    for (int i = 0; i < scene->run.attempt_count; i++) {
        struct judged *judged = &scene->run.attempts[i];
        const struct arm *arm = &judged->attempt.arm;
        if ((label ? strcmp(arm_method_label(arm, text), label) == 0 : method_has_budget(arm->method)) &&
            judged->attempt.block >= first_block && judged->attempt.block <= last_block)
            verdicts_add(&judged->verdicts, RULE_WITHDRAWN, RULE_INVALID, NULL, NAN, NAN, "withdrawn");
    }
}

/* Every budget in turn keeps one block, each in turn: it is not chosen as long as another budget has as many as an
 * interval needs, and the bound does not vanish. */
static void test_a_lucky_block_is_not_chosen(void **state)
{
    (void)state;
    static const char *const labels[] = {"b8", "b16", "b32", "b64"};
    for (int i = 0; i < 4; i++)
        for (int kept = 1; kept <= 4; kept++) {
            struct scene scene;
            struct error error = {0};
            char *arm = xformat("tp1-%s", labels[i]);
            open_scene(&scene, "");
            withdraw(&scene, labels[i], 1, kept - 1);
            withdraw(&scene, labels[i], kept + 1, 4);
            json_t *summary = summary_build(&scene.run, &scene.plan, &error);
            size_t j;
            const json_t *best;
            json_array_foreach(json_object_get(summary, "best_budgets"), j, best)
            {
                assert_string_not_equal(text_of(best, "arm"), arm);
                assert_true(limit(best, "bound", "low") < limit(best, "speedup", "value"));
                assert_int_equal(json_integer_value(json_object_get(best, "budgets")), 4);
            }
            assert_int_equal(j, 3);
            json_decref(summary);
            close_scene(&scene);
            free(arm);
        }
}

/* Where no budget has enough, the fastest is named all the same, without a bound. */
static void test_too_few_blocks_of_all_leave_a_point(void **state)
{
    (void)state;
    struct scene scene;
    struct error error = {0};
    open_scene(&scene, "");
    withdraw(&scene, NULL, 3, 4);
    json_t *summary = summary_build(&scene.run, &scene.plan, &error);
    const json_t *best = find(json_object_get(summary, "best_budgets"), NULL, "code");
    assert_true(limit(best, "speedup", "n") == 2);
    assert_true(json_is_null(json_object_get(best, "bound")) && json_is_null(json_object_get(best, "missing")));
    json_decref(summary);
    close_scene(&scene);
}

/* The blocks that are reported have all budgets, but nothing chose among them. */
static void test_without_tuning_data_the_reason_is_theirs(void **state)
{
    (void)state;
    struct scene scene;
    struct error error = {0};
    open_scene(&scene, ", \"tuning\": {\"blocks\": 3, \"prompts\": \"half\"}");
    withdraw(&scene, NULL, 1, 3);
    json_t *summary = summary_build(&scene.run, &scene.plan, &error);
    size_t i;
    const json_t *best;
    json_array_foreach(json_object_get(summary, "best_budgets"), i, best)
    {
        assert_true(json_is_null(json_object_get(best, "arm")) && json_is_null(json_object_get(best, "speedup")));
        assert_string_equal(text_of(json_object_get(best, "missing"), "rule"), "WITHDRAWN");
    }
    assert_int_equal(i, 3);
    json_decref(summary);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_tuning_the_bound_is_over_all_budgets),
        cmocka_unit_test(test_tuning_blocks_choose_and_are_reported_nowhere),
        cmocka_unit_test(test_prompts_that_are_reported_choose_nothing),
        cmocka_unit_test(test_without_auto_in_the_blocks_there_is_none),
        cmocka_unit_test(test_a_lucky_block_is_not_chosen),
        cmocka_unit_test(test_too_few_blocks_of_all_leave_a_point),
        cmocka_unit_test(test_without_tuning_data_the_reason_is_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
