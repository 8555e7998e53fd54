#include "collect/record/run.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* RUN/attempts/ARM/NAME, its folder made. free() it. */
static char *place(const char *arm, const char *name)
{
    struct error error = {0};
    char *home = xformat("%s/attempts/%s", fixture_folder, arm);
    assert_int_equal(file_make_folder(home, &error), 0);
    char *path = file_join(home, name);
    free(home);
    return path;
}

static void write_attempt(const char *arm, int block, int try_number, const char *status)
{
    char name[32];
    snprintf(name, sizeof name, "%d-%d.jsonl", block, try_number);
    char *path = place(arm, name);
    fixture_attempt(path, fixture_header(arm, block, try_number), status);
    free(path);
}

static void write_bytes(const char *arm, const char *name, const char *text)
{
    char *path = place(arm, name);
    fixture_write(path, text, strlen(text));
    free(path);
}

static void read_well(struct run *run)
{
    struct error error = {0};
    fixture_enter(fixture_folder);
    run_read(fixture_folder, NULL, run, &error);
    assert_string_equal(error.message, "");
}

/* The counted attempt's id, "-" where none counts. */
static const char *counted(const struct run *run, const char *name, int block, const char *workload,
                           const char *cell_hash)
{
    struct arm arm;
    assert_true(arm_parse(name, &arm));
    const struct judged *judged = run_counted(run, &arm, block, workload, cell_hash);
    return judged ? judged->attempt.id : "-";
}

static const char *last_try(const struct run *run, const char *name, int block, const char *workload)
{
    struct arm arm;
    assert_true(arm_parse(name, &arm));
    const struct judged *judged = run_last_try(run, &arm, block, workload);
    return judged ? judged->attempt.id : "-";
}

static void test_an_empty_run(void **state)
{
    (void)state;
    struct run run;
    read_well(&run);
    assert_int_equal(run.attempt_count, 0);
    assert_string_equal(counted(&run, "tp1-auto", 1, "code", NULL), "-");
    assert_string_equal(last_try(&run, "tp1-auto", 1, "code"), "-");
    run_free(&run);
    char *missing = file_join(fixture_folder, "nowhere");
    struct error error = {0};
    assert_int_equal(run_read(missing, NULL, &run, &error), -1);
    assert_non_null(strstr(error.message, "nowhere: no such run folder"));
    free(missing);
}

static void test_attempts_come_sorted(void **state)
{
    (void)state;
    write_attempt("tp1-linear", 1, 1, "complete");
    write_attempt("tp1-auto", 10, 1, "complete");
    write_attempt("tp1-auto", 2, 10, "complete");
    write_attempt("tp1-auto", 2, 9, "complete");
    write_attempt("tp1-b16-c8", 1, 1, "complete");
    write_attempt("tp1-b16", 1, 1, "complete");
    static const char *const order[] = {"demo/tp1-auto/2-9", "demo/tp1-auto/2-10",  "demo/tp1-auto/10-1",
                                        "demo/tp1-b16/1-1",  "demo/tp1-b16-c8/1-1", "demo/tp1-linear/1-1"};
    struct run run;
    read_well(&run);
    assert_int_equal(run.attempt_count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(run.attempts[i].attempt.id, order[i]);
    run_free(&run);
}

static void test_the_name_is_the_folders(void **state)
{
    (void)state;
    const char *name = strrchr(fixture_folder, '/') + 1;
    char *with_slash = xformat("%s//", fixture_folder);
    struct run run;
    struct error error = {0};
    assert_int_equal(run_read(with_slash, NULL, &run, &error), 0);
    assert_string_equal(run.name, name);
    run_free(&run);
    free(with_slash);
}

static void test_other_files_are_passed_over(void **state)
{
    (void)state;
    write_attempt("tp1-auto", 1, 1, "complete");
    static const char *const names[] = {
        "notes.txt",           "1-1.jsonl.4711.tmp", "1-2.json",          "01-1.jsonl",     "0-1.jsonl",
        "-1-1.jsonl",          "1-1-1.jsonl",        "1.jsonl",           "1-x.jsonl",      ".1-2.jsonl",
        "99999999999-1.jsonl", "1001-1.jsonl",       "999999999-1.jsonl", "1-1000001.jsonl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        write_bytes("tp1-auto", names[i], "nonsense\n");
    write_bytes("old", "1-1.jsonl", "nonsense\n");
    write_bytes(".", "README", "nonsense\n");
    struct run run;
    read_well(&run);
    assert_int_equal(run.attempt_count, 1);
    run_free(&run);
}

static void test_what_cannot_be_read_is_incomplete(void **state)
{
    (void)state;
    write_attempt("tp1-b16", 2, 1, "complete");
    write_bytes("tp1-b16", "2-2.jsonl", "{\"type\":\"attempt\"}\n");
    write_bytes("tp1-b16", "3-1.jsonl", "");
    struct run run;
    read_well(&run);
    assert_int_equal(run.attempt_count, 3);
    const struct judged *judged = &run.attempts[1];
    assert_int_equal(judged->attempt.block, 2);
    assert_int_equal(judged->attempt.try_number, 2);
    assert_null(judged->attempt.header);
    assert_false(judged->attempt.complete);
    assert_int_equal(judged->verdicts.count, 1);
    assert_int_equal(judged->verdicts.items[0].rule, RULE_INCOMPLETE);
    assert_int_equal(judged->verdicts.items[0].level, RULE_INVALID);
    assert_non_null(strstr(judged->verdicts.items[0].detail, "2-2.jsonl:1: \"schema\" is missing"));
    assert_string_equal(counted(&run, "tp1-b16", 2, "code", NULL), "demo/tp1-b16/2-1");
    assert_string_equal(last_try(&run, "tp1-b16", 2, "code"), judged->attempt.id);
    assert_string_equal(counted(&run, "tp1-b16", 3, "code", NULL), "-");
    char *id = xformat("%s/tp1-b16/3-1", run.name);
    assert_string_equal(last_try(&run, "tp1-b16", 3, "code"), id);
    free(id);
    run_free(&run);
}

/* A copy under another name would count its numbers twice. */
static void test_a_copied_file_is_not_counted(void **state)
{
    (void)state;
    static const char *const copies[][2] = {
        {"tp1-b16", "2-1.jsonl"}, {"tp1-b16", "1-2.jsonl"}, {"tp1-b8", "1-1.jsonl"}};
    write_attempt("tp1-b16", 1, 1, "complete");
    char *original = place("tp1-b16", "1-1.jsonl");
    for (int i = 0; i < 3; i++) {
        char *copy = place(copies[i][0], copies[i][1]);
        assert_int_equal(link(original, copy), 0);
        free(copy);
    }
    free(original);
    struct run run;
    read_well(&run);
    assert_int_equal(run.attempt_count, 4);
    int invalid = 0;
    for (int i = 0; i < 4; i++)
        if (run.attempts[i].verdicts.count) {
            invalid++;
            assert_non_null(strstr(run.attempts[i].verdicts.items[0].detail, "moved or copied"));
        }
    assert_int_equal(invalid, 3);
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", NULL), "demo/tp1-b16/1-1");
    run_free(&run);
}

static void test_the_last_valid_try_counts(void **state)
{
    (void)state;
    write_attempt("tp1-b16", 1, 1, "complete");
    write_attempt("tp1-b16", 1, 2, "complete");
    write_attempt("tp1-b16", 1, 3, "aborted");
    write_attempt("tp1-b16", 2, 1, NULL);
    struct run run;
    read_well(&run);
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", NULL), "demo/tp1-b16/1-2");
    assert_string_equal(last_try(&run, "tp1-b16", 1, "code"), "demo/tp1-b16/1-3");
    assert_string_equal(counted(&run, "tp1-b16", 2, "code", NULL), "-");
    assert_string_equal(last_try(&run, "tp1-b16", 2, "code"), "demo/tp1-b16/2-1");
    assert_string_equal(counted(&run, "tp1-b8", 1, "code", NULL), "-");
    assert_string_equal(counted(&run, "tp1-b16", 1, "prose", NULL), "-");
    assert_string_equal(last_try(&run, "tp1-b16", 1, "prose"), "-");
    run_free(&run);
}

static void test_only_tries_of_the_cell_count(void **state)
{
    (void)state;
    write_attempt("tp1-b16", 1, 1, "complete");
    json_t *header = fixture_header("tp1-b16", 1, 2);
    json_set(json_object_get(json_object_get(header, "workloads"), "code"), "cell_hash", json_string("newer"));
    char *path = place("tp1-b16", "1-2.jsonl");
    fixture_attempt(path, header, "complete");
    free(path);
    struct run run;
    read_well(&run);
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", NULL), "demo/tp1-b16/1-2");
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", "newer"), "demo/tp1-b16/1-2");
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", "c1"), "demo/tp1-b16/1-1");
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", "other"), "-");
    assert_string_equal(counted(&run, "tp1-b16", 1, "maths", "c2"), "demo/tp1-b16/1-2");
    run_free(&run);
}

/* A verdict that voids the acceptance alone leaves the times; one of another workload leaves this one. */
static void test_what_is_partly_void_still_counts(void **state)
{
    (void)state;
    write_attempt("tp1-b16", 1, 1, "complete");
    struct run run;
    read_well(&run);
    struct verdicts *verdicts = &run.attempts[0].verdicts;
    verdicts_add(verdicts, RULE_ACCEPT_SUM, RULE_INVALID, "code", 1, 0, "%s", "sum");
    verdicts_add(verdicts, RULE_FAILED_REQUEST, RULE_SUSPECT, "code", 1, 0, "%s", "few");
    verdicts_add(verdicts, RULE_FAILED_REQUEST, RULE_INVALID, "maths", 1, 0, "%s", "many");
    assert_string_equal(counted(&run, "tp1-b16", 1, "code", NULL), "demo/tp1-b16/1-1");
    assert_string_equal(counted(&run, "tp1-b16", 1, "maths", NULL), "-");
    run_free(&run);
}

static void test_the_ledger_is_read_along(void **state)
{
    (void)state;
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(fixture_folder, &ledger, &error), 0);
    assert_int_equal(ledger_append(&ledger, LEDGER_COLLECT, "begin", NULL, &error), 0);
    struct run run;
    assert_int_equal(run_read(fixture_folder, NULL, &run, &error), 0); /* while another writes */
    assert_string_equal(run.ledger.head, ledger.head);
    assert_int_equal(json_array_size(run.ledger.lines), 1);
    assert_int_equal(run.ledger.descriptor, -1);
    run_free(&run);
    ledger_close(&ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_empty_run, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_attempts_come_sorted, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_the_name_is_the_folders, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_other_files_are_passed_over, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_read_is_incomplete, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_a_copied_file_is_not_counted, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_the_last_valid_try_counts, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_only_tries_of_the_cell_count, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_partly_void_still_counts, fixture_set_up, fixture_tear_down),
        cmocka_unit_test_setup_teardown(test_the_ledger_is_read_along, fixture_set_up, fixture_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
