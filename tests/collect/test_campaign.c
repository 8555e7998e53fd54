/* Campaigns: what is measured, when again, and what the record says of it. */
#include "collect/campaign.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/collect/bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* --- a whole campaign ------------------------------------------------------------------------------------------- */

static void measures_every_arm_in_every_block(void **state)
{
    struct bench *bench = *state;
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 8);
    assert_int_equal(bench->source.requests, 8 * BENCH_REQUESTS);
    bench_check_complete(bench);

    struct run run;
    bench_read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8);
    assert_int_equal(bench_count_lines(&run.ledger, "begin"), 8);
    assert_int_equal(bench_count_lines(&run.ledger, "end"), 8);
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        int order[4];
        assert_true(attempt->complete && attempt->audit.done);
        assert_int_equal(attempt->audit.tokens, BENCH_PROMPTS * 16);
        assert_int_equal(run.attempts[i].verdicts.count, 0);
        plan_arm_order(&bench->plan, attempt->block, order);
        assert_true(arm_equal(&bench->plan.arms[order[attempt->position - 1]], &attempt->arm));
        plan_prompt_order(&bench->plan, attempt->block, "code", BENCH_PROMPTS, order);
        assert_true(attempt->samples[0].warmup);
        for (int p = 0; p < BENCH_PROMPTS; p++) {
            assert_false(attempt->samples[1 + p].warmup);
            assert_string_equal(attempt->samples[1 + p].prompt, order[p] ? "two" : "one");
        }
    }
    run_free(&run);
}

static void notes_in_the_ledger_what_the_files_hash_to(void **state)
{
    struct bench *bench = *state;
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    size_t i;
    const json_t *line;
    json_array_foreach(run.ledger.lines, i, line)
    {
        const json_t *sha256 = json_object_get(line, "sha256");
        const char *id = json_string_value(json_object_get(line, "attempt"));
        if (strcmp(json_string_value(json_object_get(line, "action")), "end") != 0)
            continue;
        const struct attempt *attempt = NULL;
        for (int a = 0; a < run.attempt_count; a++)
            if (strcmp(run.attempts[a].attempt.id, id) == 0)
                attempt = &run.attempts[a].attempt;
        char hash[FILE_HASH_SIZE];
        assert_non_null(attempt);
        assert_int_equal(file_hash(attempt->path, hash, &bench->error), 0);
        assert_string_equal(json_string_value(sha256), hash);
    }
    run_free(&run);
}

static void hashes_tell_cells_and_comparisons_apart(void **state)
{
    struct bench *bench = *state;
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    for (int i = 0; i < run.attempt_count; i++)
        for (int j = 0; j < run.attempt_count; j++) {
            const struct attempt *a = &run.attempts[i].attempt, *b = &run.attempts[j].attempt;
            assert_string_equal(a->workloads[0].compare_hash, b->workloads[0].compare_hash);
            assert_int_equal(strcmp(a->workloads[0].cell_hash, b->workloads[0].cell_hash) == 0,
                             arm_equal(&a->arm, &b->arm));
        }
    run_free(&run);
}

static void measures_nothing_twice(void **state)
{
    struct bench *bench = *state;
    struct run before, after;
    bench_expect_success(bench);
    bench_read_run(bench, &before);
    bench_read_plan(bench, "{'title': 'Another title', 'rules': {'MIN_BLOCKS': 2}}");
    bench_read_plan(bench, "{}");
    bench_expect_success(bench);
    bench_read_run(bench, &after);
    assert_int_equal(bench->source.loads, 0);
    assert_non_null(strstr(bench->said, "nothing to measure"));
    assert_string_equal(before.ledger.head, after.ledger.head);
    run_free(&before);
    run_free(&after);
}

static void measures_only_the_arms_asked_for_and_their_baselines(void **state)
{
    struct bench *bench = *state;
    const bool only[] = {false, false, false, true};
    struct run run;
    bench_run(bench, only);
    assert_int_equal(bench->result, 0);
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_attempts(&run, "tp1-b16", 0), 2);
    assert_int_equal(bench_count_attempts(&run, "tp1-auto", 0), 2);
    assert_int_equal(bench_count_attempts(&run, "tp1-linear", 0), 2);
    assert_int_equal(bench_count_attempts(&run, "tp1-b8", 0), 0);
    run_free(&run);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 2);
    bench_check_complete(bench);
}

static void refuses_prompts_that_do_not_fit(void **state)
{
    struct bench *bench = *state;
    bench->source.context = 21;
    bench_run(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_non_null(
        strstr(bench->error.message, "code.jsonl: prompt \"two\": 6 prompt tokens and 16 new ones are more than 21"));
    assert_int_equal(bench->source.loads, 0);
    char *folder = bench_run_folder(bench), *plan = file_join(folder, "plan.json");
    assert_false(file_exists(plan));
    free(folder);
    free(plan);
}

static void asks_for_enough_prompts(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench,
                    "{'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16, 'count': 3}]}");
    bench_run(bench, NULL);
    assert_int_equal(bench->result, -1);
    assert_non_null(strstr(bench->error.message, "code.jsonl: 2 prompts, but workload \"code\" asks for 3"));
}

/* --- invalid attempts ------------------------------------------------------------------------------------------- */

static void tries_invalid_attempts_twice_more(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 1000;
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    for (int block = 1; block <= 2; block++) {
        assert_int_equal(bench_count_attempts(&run, "tp1-b8", block), 3);
        assert_int_equal(bench_count_attempts(&run, "tp1-auto", block), 1);
    }
    assert_int_equal(bench_count_lines(&run.ledger, "verdict"), 6);
    assert_non_null(strstr(bench->said, "again, since trial/tp1-b8/1-1 was invalid (OUTPUT_SHORT: "));
    assert_non_null(strstr(bench->said, "2 given up after invalid attempts"));
    run_free(&run);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void keeps_the_first_valid_try(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 2;
    bench_expect_success(bench);
    bench_check_complete(bench);
    struct run run;
    bench_read_run(bench, &run);
    assert_int_equal(run.attempt_count, 8 + 2);
    assert_int_equal(bench_count_attempts(&run, "tp1-b8", 1), 3);
    assert_int_equal(bench_count_attempts(&run, "tp1-b8", 2), 1);
    run_free(&run);
}

static void does_not_try_again_what_must_fail_again(void **state)
{
    struct bench *bench = *state;
    bench->source.bad_budget = 8;
    bench->source.bad_attempts = 1000;
    bench->source.bad_error_code = "CONTEXT_OVERFLOW";
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_attempts(&run, "tp1-b8", 0), 2);
    run_free(&run);
}

/* --- plans that grow, settings that change ---------------------------------------------------------------------- */

static void measures_only_what_a_plan_grew_by(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);

    bench_read_plan(bench, "{'blocks': 3}");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 4);
    bench_read_run(bench, &run);
    assert_int_equal(bench_count_lines(&run.ledger, "amend"), 1);
    size_t i;
    const json_t *line;
    json_array_foreach(run.ledger.lines, i, line)
    {
        bool amends = strcmp(json_string_value(json_object_get(line, "action")), "amend") == 0;
        assert_int_equal(json_integer_value(json_object_get(line, "blocks_before")), amends ? 2 : 0);
        assert_int_equal(json_integer_value(json_object_get(line, "blocks")), amends ? 3 : 0);
    }
    run_free(&run);

    bench_read_plan(bench, "{'blocks': 3, 'budgets': [8, 12, 16]}");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 3);

    bench_read_plan(bench, "{'blocks': 3, 'budgets': [8, 12, 16], 'workloads':"
                           " [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16},"
                           "  {'name': 'maths', 'prompts': '/maths.jsonl', 'max_new_tokens': 16}]}");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 15);
    assert_int_equal(bench->source.requests, 15 * BENCH_REQUESTS);
    bench_check_complete(bench);

    char *folder = bench_run_folder(bench), *plan = file_join(folder, "plan-4.json");
    assert_true(file_exists(plan));
    free(folder);
    free(plan);
}

/* Which comparisons are the headline is settled before anything was seen. */
static void keeps_the_headline_once_measuring_has_begun(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench, "{'headline': {'comparisons': [['b8', 'auto']]}}");
    bench_expect_success(bench);
    bench_read_plan(bench, "{'headline': {'comparisons': [['linear', 'auto']]}}");
    bench_run(bench, NULL);
    assert_non_null(strstr(bench->error.message, "\"headline\" differs"));
    bench->error = (struct error){0};
    bench_read_plan(bench, "{'headline': {'comparisons': [['b8', 'auto']]}, 'blocks': 3}");
    bench_expect_success(bench);
}

/* Behind the program's back neither. */
static void refuses_a_stored_plan_that_was_changed(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench, "{'headline': {'comparisons': [['b8', 'auto']]}}");
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    const json_t *begin = json_array_get(run.ledger.lines, 0);
    char *folder = bench_run_folder(bench), *path = file_join(folder, "plan.json"), hash[FILE_HASH_SIZE];
    struct error error = {0};
    assert_int_equal(file_hash(path, hash, &error), 0);
    assert_string_equal(json_string_value(json_object_get(begin, "plan")), "plan.json");
    assert_string_equal(json_string_value(json_object_get(begin, "plan_sha256")), hash);
    size_t lines = json_array_size(run.ledger.lines);
    run_free(&run);

    const char *changed = "{'headline': {'comparisons': [['linear', 'auto']]}, 'blocks': 3}";
    bench_read_plan(bench, changed);
    assert_int_equal(json_dump_file(bench->plan.json, path, 0), 0);
    bench_run(bench, NULL);
    assert_non_null(strstr(bench->error.message, "plan.json: is not the plan that the ledger noted"));
    bench_read_run(bench, &run);
    assert_int_equal(json_array_size(run.ledger.lines), lines);
    run_free(&run);
    free(path);
    free(folder);
}

static void refuses_attempts_whose_ledger_is_gone(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench, "{'blocks': 3}");
    bench_expect_success(bench);
    char *folder = bench_run_folder(bench), *path = file_join(folder, "ledger.jsonl");
    for (int emptied = 0; emptied < 2; emptied++) {
        assert_int_equal(emptied ? truncate(path, 0) : unlink(path), 0);
        bench_run(bench, NULL);
        assert_non_null(strstr(bench->error.message, "ledger.jsonl: is empty, or was gone, but "));
        struct stat status;
        assert_int_equal(stat(path, &status), 0);
        assert_int_equal(status.st_size, 0);
    }
    free(path);
    free(folder);
}

/* Block 1 has one of the two prompts, blocks 2 and 3 the other one, under other hashes. */
static void measures_tuning_blocks_on_the_other_half_of_the_prompts(void **state)
{
    struct bench *bench = *state;
    bench_read_plan(bench, "{'tuning': {'blocks': 1, 'prompts': 'half'}}");
    bench_expect_success(bench);
    struct run run;
    bench_read_run(bench, &run);
    assert_int_equal(run.attempt_count, 3 * 4);
    const struct sample *tuning = NULL, *reported = NULL;
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        assert_int_equal(attempt->sample_count, 2); /* warm-up and one more */
        assert_string_equal(attempt->samples[0].prompt, attempt->samples[1].prompt);
        *(attempt->block == 1 ? &tuning : &reported) = &attempt->samples[1];
    }
    assert_string_not_equal(tuning->prompt, reported->prompt);
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt, *first = &run.attempts[i - i % 3].attempt;
        assert_string_equal(attempt->samples[1].prompt, attempt->block == 1 ? tuning->prompt : reported->prompt);
        assert_int_equal(strcmp(attempt->workloads[0].cell_hash, first->workloads[0].cell_hash) == 0,
                         attempt->block == 1);
    }
    run_free(&run);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0); /* nothing is measured twice */
    bench_read_plan(bench, "{'tuning': {'blocks': 2, 'prompts': 'half'}}");
    bench_run(bench, NULL);
    assert_non_null(strstr(bench->error.message, "\"tuning\" differs"));
    bench->error = (struct error){0};
    bench_read_plan(bench, "{'tuning': {'blocks': 1, 'prompts': 'half'}, 'blocks': 3}");
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 4);
}

static void measures_baselines_again_in_a_new_session(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);
    bench_pretend_reboot(bench);
    bench_read_plan(bench, "{'budgets': [8, 12, 16]}");
    bench_expect_success(bench);
    assert_non_null(strstr(bench->said, "block 1, tp1-auto: again, to stand beside the other arms in one session"));
    assert_null(strstr(bench->said, "tp1-b12: again"));
    bench_read_run(bench, &run);
    for (int block = 1; block <= 2; block++) {
        assert_int_equal(bench_count_attempts(&run, "tp1-auto", block), 2);
        assert_int_equal(bench_count_attempts(&run, "tp1-linear", block), 2);
        assert_int_equal(bench_count_attempts(&run, "tp1-b8", block), 1);
        assert_int_equal(bench_count_attempts(&run, "tp1-b12", block), 1);
    }
    run_free(&run);
    bench_check_complete(bench);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
}

static void begins_new_cells_where_a_setting_changed(void **state)
{
    struct bench *bench = *state;
    struct run run;
    bench_expect_success(bench);
    bench_read_plan(bench, "{'workloads': [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 20}]}");
    bench->source.weights = "4567";
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 8);
    assert_non_null(strstr(bench->said, "4 of 4 cells begin anew, since these changed: workload, source;"));
    bench_read_run(bench, &run);
    assert_int_equal(run.attempt_count, 16);
    run_free(&run);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, bench_set_up, bench_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(measures_every_arm_in_every_block),
        TEST(notes_in_the_ledger_what_the_files_hash_to),
        TEST(hashes_tell_cells_and_comparisons_apart),
        TEST(measures_nothing_twice),
        TEST(measures_only_the_arms_asked_for_and_their_baselines),
        TEST(refuses_prompts_that_do_not_fit),
        TEST(asks_for_enough_prompts),
        TEST(tries_invalid_attempts_twice_more),
        TEST(keeps_the_first_valid_try),
        TEST(does_not_try_again_what_must_fail_again),
        TEST(measures_only_what_a_plan_grew_by),
        TEST(keeps_the_headline_once_measuring_has_begun),
        TEST(refuses_a_stored_plan_that_was_changed),
        TEST(refuses_attempts_whose_ledger_is_gone),
        TEST(measures_tuning_blocks_on_the_other_half_of_the_prompts),
        TEST(measures_baselines_again_in_a_new_session),
        TEST(begins_new_cells_where_a_setting_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
