/* What ledger and folder say of attempts: withdrawn, tampered with, vanished, purged, superseded. */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/run.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct run run;

static int tear_down(void **state)
{
    run_free(&run);
    return fixture_tear_down(state);
}

static struct attempt_place place_of(const char *name)
{
    struct attempt_place place;
    assert_true(place_parse(name, &place));
    return place;
}

/* An attempt of the workloads "code" and "maths"; hash: the cell hash of code. */
static void write_attempt(const char *name, const char *status, const char *hash)
{
    struct error error = {0};
    struct attempt_place place = place_of(name);
    char arm[ARM_NAME_SIZE], *path = place_path(fixture_folder, &place);
    char *home = xformat("%s/attempts/%s", fixture_folder, arm_name(&place.arm, arm));
    json_t *header = fixture_header(arm, place.block, place.try_number);
    assert_int_equal(file_make_folder(home, &error), 0);
    if (hash)
        json_set(json_object_get(json_object_get(header, "workloads"), "code"), "cell_hash", json_string(hash));
    fixture_attempt(path, header, status);
    free(path);
    free(home);
}

static void append(enum ledger_actor actor, const char *action, json_t *details)
{
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(ledger_open(fixture_folder, &ledger, &error), 0);
    assert_int_equal(ledger_append(&ledger, actor, action, details, &error), 0);
    ledger_close(&ledger);
}

static void withdraw(const char *id, const char *reason)
{
    append(LEDGER_USER, "invalidate", json_pack("{s:s, s:s}", "attempt", id, "reason", reason));
}

static void read_run(void)
{
    struct error error = {0};
    run_free(&run);
    assert_int_equal(run_read(fixture_folder, NULL, &run, &error), 0);
}

static const struct judged *judged_at(const char *name)
{
    struct attempt_place place = place_of(name);
    const struct judged *judged = run_find(&run, &place);
    assert_non_null(judged);
    return judged;
}

/* The attempt has one verdict: that one. detail: what it begins with. */
static void assert_verdict(const char *name, enum rule_id rule, enum rule_level level, const char *detail)
{
    const struct verdicts *verdicts = &judged_at(name)->verdicts;
    assert_int_equal(verdicts->count, 1);
    assert_int_equal(verdicts->items[0].rule, rule);
    assert_int_equal(verdicts->items[0].level, level);
    if (strncmp(verdicts->items[0].detail, detail, strlen(detail)) != 0)
        fail_msg("%s", verdicts->items[0].detail);
    assert_int_equal(run_is_all_void(judged_at(name)), level == RULE_INVALID);
}

static void assert_counted(const char *arm_and_block, const char *id)
{
    struct attempt_place place = place_of(arm_and_block);
    const struct judged *counted = run_counted(&run, &place.arm, place.block, "code", NULL);
    if (id)
        assert_string_equal(counted->attempt.id, id);
    else
        assert_null(counted);
}

static char *path_of(const char *name)
{
    struct attempt_place place = place_of(name);
    return place_path(fixture_folder, &place);
}

static void append_byte(const char *name)
{
    char *path = path_of(name), *text;
    size_t size;
    text = fixture_read(path, &size);
    text[size] = '\n'; /* in place of the NUL */
    fixture_write(path, text, size + 1);
    free(text);
    free(path);
}

static void test_a_person_withdraws_and_reinstates(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "complete", NULL);
    fixture_enter(fixture_folder);
    withdraw("demo/tp1-b16/1-1", "the fan was off");
    read_run();
    assert_verdict("tp1-b16/1-1", RULE_WITHDRAWN, RULE_INVALID, "the fan was off");
    assert_counted("tp1-b16/1-1", NULL);
    const struct verdict *verdict = &judged_at("tp1-b16/1-1")->verdicts.items[0];
    assert_true(verdict->by_user);
    assert_string_equal(verdict->time, json_string_value(json_object_get(json_array_get(run.ledger.lines, 2), "time")));

    append(LEDGER_USER, "reinstate", json_pack("{s:s}", "attempt", "demo/tp1-b16/1-1"));
    read_run();
    assert_verdict("tp1-b16/1-1", RULE_WITHDRAWN, RULE_NOTE, "withdrawn at 2");
    assert_counted("tp1-b16/1-1", "demo/tp1-b16/1-1");

    withdraw("demo/tp1-b16/1-1", "it was off again");
    read_run();
    assert_verdict("tp1-b16/1-1", RULE_WITHDRAWN, RULE_INVALID, "it was off again");
}

static void test_a_changed_file_does_not_count(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "complete", NULL);
    write_attempt("tp1-b16/2-1", "complete", NULL);
    fixture_enter(fixture_folder);
    read_run();
    assert_int_equal(judged_at("tp1-b16/1-1")->verdicts.count, 0);
    append_byte("tp1-b16/1-1");
    read_run();
    const struct verdicts *verdicts = &judged_at("tp1-b16/1-1")->verdicts;
    assert_int_equal(verdicts->items[verdicts->count - 1].rule, RULE_TAMPERED);
    assert_counted("tp1-b16/1-1", NULL);
    assert_counted("tp1-b16/2-1", "demo/tp1-b16/2-1");
}

/* A file that still reads well, whose numbers are other ones. */
static void test_a_changed_number_does_not_count(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "complete", NULL);
    fixture_enter(fixture_folder);
    char *path = path_of("tp1-b16/1-1"), *text, *at;
    size_t size;
    text = fixture_read(path, &size);
    at = strstr(text, "\"decode_ns\":4000");
    assert_non_null(at);
    at[strlen("\"decode_ns\":")] = '3';
    fixture_write(path, text, size);
    read_run();
    assert_verdict("tp1-b16/1-1", RULE_TAMPERED, RULE_INVALID, "its SHA-256 is ");
    assert_false(judged_at("tp1-b16/1-1")->verdicts.items[0].by_user);
    at[strlen("\"decode_ns\":")] = '4';
    fixture_write(path, text, size);
    read_run();
    assert_int_equal(judged_at("tp1-b16/1-1")->verdicts.count, 0);
    free(text);
    free(path);
}

static void test_what_the_ledger_does_not_know_does_not_count(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "complete", NULL);
    fixture_enter(fixture_folder);
    write_attempt("tp1-b16/1-2", "complete", NULL);
    read_run();
    assert_verdict("tp1-b16/1-2", RULE_TAMPERED, RULE_INVALID, "the ledger has no begin for it");
    assert_counted("tp1-b16/1-1", "demo/tp1-b16/1-1");
}

/* The program was ended between the file's last line and the ledger's. */
static void test_an_end_that_is_missing_alone_voids_nothing(void **state)
{
    (void)state;
    append(LEDGER_COLLECT, "begin", json_pack("{s:s}", "attempt", "demo/tp1-b16/1-1"));
    write_attempt("tp1-b16/1-1", "complete", NULL);
    read_run();
    assert_int_equal(judged_at("tp1-b16/1-1")->verdicts.count, 0);
}

static void test_files_that_are_gone_are_missed(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "complete", NULL);
    write_attempt("tp1-b16/2-1", "complete", NULL);
    fixture_enter(fixture_folder);
    append(LEDGER_COLLECT, "begin", json_pack("{s:s}", "attempt", "demo/tp1-b8/1-1"));
    append(LEDGER_COLLECT, "begin", json_pack("{s:s}", "attempt", "no place")); /* nothing can be said of it */
    char *path = path_of("tp1-b16/1-1");
    assert_int_equal(unlink(path), 0);
    free(path);
    read_run();
    assert_int_equal(run.attempt_count, 3);
    assert_verdict("tp1-b16/1-1", RULE_VANISHED, RULE_INVALID, "it ended as \"complete\", but its file is gone");
    assert_non_null(judged_at("tp1-b16/1-1")->verdicts.items[0].time);
    assert_verdict("tp1-b8/1-1", RULE_VANISHED, RULE_INVALID, "it was begun, but has no file");
    struct attempt_place place = place_of("tp1-b16/1-1");
    assert_ptr_equal(run_last_try(&run, &place.arm, 1, "code"), judged_at("tp1-b16/1-1"));
}

static void test_a_purge_leaves_its_verdicts(void **state)
{
    (void)state;
    write_attempt("tp1-b16/1-1", "aborted", NULL);
    write_attempt("tp1-b16/2-1", "aborted", NULL);
    fixture_enter(fixture_folder);
    append(LEDGER_USER, "purge",
           json_pack("{s:s, s:[{s:s, s:s, s:s, s:i, s:s}]}", "attempt", "demo/tp1-b16/1-1", "verdicts", "rule",
                     "OUTPUT_SHORT", "level", "invalid", "workload", "maths", "observed", 3, "detail", "3 are short"));
    append(LEDGER_USER, "purge",
           json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "attempt", "demo/tp1-b16/2-1", "verdicts", "rule", "OF_OLD", "level",
                     "invalid", "detail", "gone"));
    read_run(); /* one file is there still */
    const struct judged *judged = judged_at("tp1-b16/1-1");
    assert_true(judged->purged);
    assert_null(judged->attempt.header);
    assert_int_equal(judged->verdicts.items[0].rule, RULE_OUTPUT_SHORT);
    assert_string_equal(judged->verdicts.items[0].workload, "maths");
    assert_true(judged->verdicts.items[0].observed == 3);
    assert_true(judged->verdicts.items[0].by_user);
    assert_string_equal(judged->verdicts.items[0].detail, "purged; before that OUTPUT_SHORT: 3 are short");
    assert_verdict("tp1-b16/2-1", RULE_INCOMPLETE, RULE_INVALID, "purged; before that OF_OLD: gone");
    assert_counted("tp1-b16/1-1", NULL);
}

/* Who measures trees again in a later session leaves the baselines of the first to what stands beside them. */
static void test_a_later_valid_try_replaces_a_tree(void **state)
{
    (void)state;
    static const char *const arms[] = {"tp1-linear", "tp1-b16"};
    for (int arm = 0; arm < 2; arm++)
        for (int try_number = 1; try_number <= 3; try_number++) {
            char *name = xformat("%s/1-%d", arms[arm], try_number);
            write_attempt(name, try_number == 3 ? "aborted" : "complete", NULL);
            free(name);
        }
    write_attempt("tp1-b8/1-1", "complete", "old");
    write_attempt("tp1-b8/1-2", "complete", "new");
    fixture_enter(fixture_folder);
    read_run();
    assert_verdict("tp1-b16/1-1", RULE_SUPERSEDED, RULE_INVALID,
                   "a later valid try of the block counts: demo/tp1-b16/1-2");
    assert_int_equal(judged_at("tp1-b16/1-2")->verdicts.count, 0);
    assert_int_equal(judged_at("tp1-linear/1-1")->verdicts.count, 0);
    assert_int_equal(judged_at("tp1-b8/1-1")->verdicts.count, 1); /* maths alone has one hash */
    assert_string_equal(judged_at("tp1-b8/1-1")->verdicts.items[0].workload, "maths");
    withdraw("demo/tp1-b16/1-2", "noise");
    read_run();
    assert_int_equal(judged_at("tp1-b16/1-1")->verdicts.count, 0);
    assert_counted("tp1-b16/1-1", "demo/tp1-b16/1-1");
}

static void test_a_run_is_read_on(void **state)
{
    (void)state;
    struct ledger ledger;
    struct error error = {0};
    write_attempt("tp1-b16/1-1", "complete", NULL);
    fixture_enter(fixture_folder);
    read_run();
    assert_int_equal(ledger_open(fixture_folder, &ledger, &error), 0);
    static const char *const added[] = {"tp1-b8/1-1", "tp1-b16/1-2", "tp1-auto/2-1"};
    for (int i = 0; i < 3; i++) {
        char *id = xformat("demo/%s", added[i]);
        write_attempt(added[i], "complete", NULL);
        ledger_append(&ledger, LEDGER_COLLECT, "begin", json_pack("{s:s}", "attempt", id), &error);
        free(id);
    }
    ledger_append(&ledger, LEDGER_USER, "invalidate",
                  json_pack("{s:s, s:s}", "attempt", "demo/tp1-b8/1-1", "reason", "heat"), &error);
    run_update(&run, &ledger, NULL);
    run_update(&run, &ledger, NULL);
    assert_int_equal(run.attempt_count, 4);
    assert_string_equal(run.ledger.head, ledger.head);
    static const char *const order[] = {"demo/tp1-auto/2-1", "demo/tp1-b16/1-1", "demo/tp1-b16/1-2", "demo/tp1-b8/1-1"};
    struct run fresh;
    assert_int_equal(run_read(fixture_folder, NULL, &fresh, &error), 0);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(run.attempts[i].attempt.id, order[i]);
        assert_int_equal(run.attempts[i].verdicts.count, fresh.attempts[i].verdicts.count);
    }
    assert_verdict("tp1-b16/1-1", RULE_SUPERSEDED, RULE_INVALID, "a later valid try");
    assert_verdict("tp1-b8/1-1", RULE_WITHDRAWN, RULE_INVALID, "heat");
    run_free(&fresh);
    ledger_close(&ledger);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fixture_set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_person_withdraws_and_reinstates),
        TEST(test_a_changed_file_does_not_count),
        TEST(test_a_changed_number_does_not_count),
        TEST(test_what_the_ledger_does_not_know_does_not_count),
        TEST(test_an_end_that_is_missing_alone_voids_nothing),
        TEST(test_files_that_are_gone_are_missed),
        TEST(test_a_purge_leaves_its_verdicts),
        TEST(test_a_later_valid_try_replaces_a_tree),
        TEST(test_a_run_is_read_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
