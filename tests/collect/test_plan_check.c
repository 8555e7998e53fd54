/* Plans that a run folder keeps, against what its ledger noted of them. */
#include "collect/plan_check.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/collect/run_folder.h"
#include "tests/programs.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Steps of a run, a letter and a plan's number each. Lines of the ledger: b, an attempt was begun under the plan as it
 * is; a, the plan was to be written; A, something else was; o, begun as older programs noted it. W writes that plan, E
 * edits it, R removes it. expected: part of the line that refuses them; NULL: they pass. */
static void check(const char *steps, const char *expected)
{
    struct ledger ledger = {.lines = json_array()};
    for (const char *at = steps; *at; at += at[2] ? 3 : 2) {
        int number = at[1] - '0';
        char *name = number == 1 ? xstrdup("plan.json") : xformat("plan-%d.json", number), hash[FILE_HASH_SIZE];
        char *path = file_join(fixture_folder, name), *text = xformat("plan %d", number);
        struct error error = {0};
        json_t *line = json_pack("{s:s}", "action", strchr("aA", at[0]) ? "amend" : "begin");
        file_hash_bytes(at[0] == 'A' ? "else" : text, at[0] == 'A' ? 4 : strlen(text), hash);
        if (at[0] == 'W')
            fixture_write(path, text, strlen(text));
        else if (at[0] == 'E')
            fixture_write(path, "edited", 6);
        else if (at[0] == 'R')
            unlink(path);
        else if (at[0] == 'b')
            assert_int_equal(plan_check_note(fixture_folder, name, line, &error), 0);
        else if (at[0] != 'o')
            json_object_update_new(line, json_pack("{s:s, s:s}", "plan", name, "sha256", hash));
        if (strchr("abAo", at[0]))
            json_array_append(ledger.lines, line);
        json_decref(line);
        free(text);
        free(path);
        free(name);
    }
    struct error error = {0};
    int result = plan_check(fixture_folder, &ledger, &error);
    if (result != (expected ? -1 : 0) || (expected && !strstr(error.message, expected)))
        fail_msg("%s: answers %d, %s", steps, result, error.message);
    json_decref(ledger.lines);
    fixture_tear_down(NULL);
    fixture_set_up(NULL);
}

static void lets_whole_runs_pass(void **state)
{
    (void)state;
    check("W1", NULL);
    check("W1 b1 b1", NULL);
    check("W1 o1 o1", NULL);
    check("W1 b1 a2 W2 b2 a3 W3", NULL);
    check("W1 o1 a2 W2 o2", NULL);
}

/* An amendment is noted before it is written. */
static void lets_pass_what_a_crash_leaves(void **state)
{
    (void)state;
    check("W1 b1 a2", NULL);
    check("W1 b1 a2 b1", NULL);
    check("W1 b1 A2 a2 W2 b2", NULL);
}

static void finds_plans_that_were_changed(void **state)
{
    (void)state;
    check("W1 b1 E1", "/plan.json: is not the plan that the ledger noted; restore it from a copy");
    check("W1 b1 a2 W2 E2", "/plan-2.json: is not the plan that the ledger noted");
    check("W1 b1 a2 W2 b2 E2", "/plan-2.json: is not the plan that the ledger noted");
    check("W1 b1 a2 W2 b2 E1", "/plan.json: is not the plan that the ledger noted");
    check("W1 o1 a2 W2 o2 E2", "/plan-2.json: is not the plan that the ledger noted");
}

/* What is begun after the change does not make it good. */
static void finds_changes_that_something_was_begun_under(void **state)
{
    (void)state;
    check("W1 b1 E1 b1", "/plan.json: is not the plan that the ledger noted");
    check("W1 b1 E1 b1 W1", "/plan.json: is not the plan that the ledger noted");
    check("W1 b1 a2 W2 E2 b2", "/plan-2.json: is not the plan that the ledger noted");
}

/* The newest plan counts: one that is put beside the others would be it, and so would one before a gap. */
static void finds_plans_that_are_put_in_or_taken_out(void **state)
{
    (void)state;
    check("W1 b1 W2", "/plan-2.json: is a plan that the ledger never noted");
    check("W1 b1 a2 W2 b2 W3", "/plan-3.json: is a plan that the ledger never noted");
    check("W1 b1 a2 W2 b2 R2", "/plan-2.json: is gone, and attempts were begun under it");
    check("W1 b1 a2 W2 b2 a3 W3 R2", "/plan-2.json: is gone, and attempts were begun under it");
    check("W1 b1 a2 W2 a3 W3 b3 R2", "/plan-2.json: is gone, but not plan-3.json, which amends it");
    check("W1 b1 a2 W2 R1", "/plan.json: is gone");
}

/* Where it counts: nothing is made of another headline. */
static void no_summary_is_made_of_a_changed_plan(void **state)
{
    programs_set_up(state);
    char *run = run_folder_make(programs_folder), *path = file_join(run, "plan.json"), *said;
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(run, &ledger, &error), 0);
    json_t *details = json_pack("{s:s}", "attempt", "demo/tp1-b16/1-1");
    assert_int_equal(plan_check_note(run, "plan.json", details, &error), 0);
    assert_int_equal(ledger_append(&ledger, LEDGER_COLLECT, "begin", details, &error), 0);
    ledger_close(&ledger);
    programs_must("$bin/analyze $out/tiny --out $out/summary.json && $bin/collect status --runs $out --verify tiny");
    programs_must(
        "rm $out/summary.json; sed -i 's/\"b16\", *\"linear\"/\"b8\", \"linear\"/; $a\\ ' $out/tiny/plan.json");
    programs_expect(1, "$bin/analyze $out/tiny --out $out/summary.json", &said);
    assert_non_null(strstr(said, "/tiny/plan.json: is not the plan that the ledger noted; restore it from a copy\n"));
    free(said);
    programs_expect(1, "$bin/collect status --runs $out --verify tiny", &said);
    assert_non_null(strstr(said, "verify: "));
    free(said);
    programs_must("test ! -e $out/summary.json");
    free(path);
    free(run);
    programs_tear_down(state);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fixture_set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lets_whole_runs_pass),
        TEST(lets_pass_what_a_crash_leaves),
        TEST(finds_plans_that_were_changed),
        TEST(finds_changes_that_something_was_begun_under),
        TEST(finds_plans_that_are_put_in_or_taken_out),
        cmocka_unit_test(no_summary_is_made_of_a_changed_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
