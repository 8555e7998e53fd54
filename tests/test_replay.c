/* The campaign that this project comes from, replayed. Of eight arms b8 and b12 crash on every request, b15 is cut off
 * by a kill, auto overflows its context on one workload, and b32 ran with a starved cache. The report has what is valid
 * and nothing else, and names each cause; when the causes are gone, the same command repairs the campaign. */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/run.h"
#include "tests/collect/bench.h"
#include "tests/programs.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 3, ARMS = 8, WORKLOADS = 2, CRASHING = 2, TRIES = 3 };

/* --- the causes --------------------------------------------------------------------------------------------------- */

static const char *with_causes(struct fake_source *source, const struct arm *arm)
{
    source->dies = arm->budget == 8 || arm->budget == 12;
    source->overflowing = arm->method == METHOD_AUTO ? "maths" : NULL;
    source->cache_slots_needed = 16;
    source->cache_slots = arm->budget == 32 ? 4 : 16;
    return "as before";
}

static const char *without_causes(struct fake_source *source, const struct arm *arm)
{
    source->dies = false;
    source->overflowing = NULL;
    source->cache_slots = source->cache_slots_needed = 16;
    return arm->method == METHOD_AUTO || arm->budget == 8 || arm->budget == 12 || arm->budget == 32 ? "repaired"
                                                                                                    : "as before";
}

/* As the third request of b15's attempt in the second block is sent. */
static void kill_b15(struct fake_source *source)
{
    static int of_b15;
    of_b15 += source->at_request == 15;
    if (of_b15 == 1 + WORKLOADS * BENCH_PROMPTS + 3)
        raise(SIGKILL);
}

static const char *with_causes_and_a_kill(struct fake_source *source, const struct arm *arm)
{
    source->at_request = arm->budget;
    return with_causes(source, arm);
}

static void measure_until_killed(struct bench *bench)
{
    bench->source.on_arm = with_causes_and_a_kill;
    bench->source.on_request = kill_b15;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bench_run(bench, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    bench_check_status(bench, status, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    bench->source.on_request = NULL;
}

/* --- the report --------------------------------------------------------------------------------------------------- */

/* The summary and the table of exclusions, by the programs. */
static json_t *report(const struct bench *bench, char **exclusions)
{
    struct error error = {0};
    char *command = xformat("rm -rf \"$out/report\"; $bin/analyze \"%s/runs/trial\" --out \"$out/summary.json\" && "
                            "$bin/render \"$out/summary.json\" --out \"$out/report\"",
                            bench->folder);
    programs_must(command);
    programs_expect(0, "sed -e 's/.allowbreak{}//g' -e 's/\\\\_/_/g' \"$out/report/tables/exclusions.tex\"",
                    exclusions);
    char *path = file_join(programs_folder, "summary.json");
    json_t *summary = json_read_file(path, &error);
    assert_non_null(summary);
    free(command);
    free(path);
    return summary;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The rule that a cell lacks its number for; "" where it has one. */
static const char *missing_rule(const json_t *summary, const char *arm, const char *workload)
{
    size_t i;
    const json_t *cell;
    json_array_foreach(json_object_get(summary, "cells"), i, cell)
    {
        if (strcmp(text_of(cell, "arm"), arm) != 0 || strcmp(text_of(cell, "workload"), workload) != 0)
            continue;
        assert_int_equal(json_is_null(json_object_get(cell, "missing")),
                         json_is_object(json_object_get(cell, "tpot_ms")));
        return text_of(json_object_get(cell, "missing"), "rule");
    }
    fail_msg("no cell %s, %s", arm, workload);
    return NULL;
}

/* workload NULL: over all. */
static const char *missing_comparison(const json_t *summary, const char *arm, const char *baseline,
                                      const char *workload)
{
    size_t i;
    const json_t *comparison;
    json_array_foreach(json_object_get(summary, "comparisons"), i, comparison)
    {
        if (strcmp(text_of(comparison, "arm"), arm) != 0 || strcmp(text_of(comparison, "baseline"), baseline) != 0 ||
            strcmp(text_of(comparison, "workload"), workload ? workload : "") != 0)
            continue;
        const bool missing = !json_is_null(json_object_get(comparison, "missing"));
        assert_int_equal(missing, json_is_null(json_object_get(comparison, "speedup")));
        return text_of(json_object_get(comparison, "missing"), "rule");
    }
    fail_msg("no comparison of %s with %s", arm, baseline);
    return NULL;
}

/* Invalid verdicts of that rule on attempts of the arm. */
static int count_exclusions(const json_t *summary, const char *arm, const char *rule)
{
    size_t i;
    const json_t *verdict;
    int count = 0;
    json_array_foreach(json_object_get(summary, "verdicts"), i, verdict) count +=
        strcmp(text_of(verdict, "arm"), arm) == 0 && strcmp(text_of(verdict, "rule"), rule) == 0 &&
        strcmp(text_of(verdict, "level"), "invalid") == 0;
    return count;
}

static void check_exclusions(const json_t *summary, const char *text)
{
    assert_int_equal(count_exclusions(summary, "tp1-b8", "SERVER_DIED"), BLOCKS * TRIES);
    assert_int_equal(count_exclusions(summary, "tp1-b12", "SERVER_DIED"), BLOCKS * TRIES);
    assert_int_equal(count_exclusions(summary, "tp1-b15", "INCOMPLETE"), 1);
    assert_int_equal(count_exclusions(summary, "tp1-auto", "CONTEXT_OVERFLOW"), BLOCKS);
    assert_int_equal(count_exclusions(summary, "tp1-b32", "CACHE_STARVED"), BLOCKS);
    assert_int_equal(count_exclusions(summary, "tp1-linear", "FINGERPRINT"), 0);
    static const char *const seen[] = {"SERVER_DIED",      "illegal instruction", "INCOMPLETE", "no end line after 2",
                                       "CONTEXT_OVERFLOW", "CACHE_STARVED",       "4 states"};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        if (!strstr(text, seen[i]))
            fail_msg("the report does not say %s", seen[i]);
}

static void check_broken(const json_t *summary)
{
    static const struct {
        const char *arm, *code, *maths; /* the rules */
    } known[ARMS] = {
        {"tp1-auto", "", "CONTEXT_OVERFLOW"},          {"tp1-linear", "", ""}, {"tp1-b8", "SERVER_DIED", "SERVER_DIED"},
        {"tp1-b12", "SERVER_DIED", "SERVER_DIED"},     {"tp1-b15", "", ""},    {"tp1-b16", "", ""},
        {"tp1-b32", "CACHE_STARVED", "CACHE_STARVED"}, {"tp1-b64", "", ""},
    };
    for (int i = 0; i < ARMS; i++) {
        assert_string_equal(missing_rule(summary, known[i].arm, "code"), known[i].code);
        assert_string_equal(missing_rule(summary, known[i].arm, "maths"), known[i].maths);
        if (i < 2)
            continue;
        assert_string_equal(missing_comparison(summary, known[i].arm, "tp1-auto", "code"), known[i].code);
        assert_string_equal(missing_comparison(summary, known[i].arm, "tp1-linear", "maths"), known[i].maths);
        assert_string_not_equal(missing_comparison(summary, known[i].arm, "tp1-auto", "maths"), "");
        assert_string_not_equal(missing_comparison(summary, known[i].arm, "tp1-auto", NULL), ""); /* no set shrinks */
        assert_string_equal(missing_comparison(summary, known[i].arm, "tp1-linear", NULL), known[i].code);
    }
}

static void check_repaired(const json_t *summary)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(summary, "cells"), i, item)
    {
        assert_true(json_is_null(json_object_get(item, "missing")));
        assert_int_equal(json_integer_value(json_object_get(item, "blocks_valid")), BLOCKS);
    }
    assert_int_equal(i, ARMS * WORKLOADS);
    json_array_foreach(json_object_get(summary, "comparisons"), i, item)
        assert_true(json_is_null(json_object_get(item, "missing")));
    assert_true(i > 0);
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static int count_files(const struct bench *bench)
{
    char *command = xformat("ls \"%s\"/runs/trial/attempts/*/*.jsonl | wc -l", bench->folder), *said;
    programs_expect(0, command, &said);
    const int count = atoi(said);
    free(command);
    free(said);
    return count;
}

static void must_in(const struct bench *bench, const char *format)
{
    char *command = xformat(format, bench->folder, bench->folder);
    programs_must(command);
    free(command);
}

static void the_campaign_of_old(void **state)
{
    struct bench *bench = *state;
    char *text;
    bench_read_plan(bench, "{'budgets': [8, 12, 15, 16, 32, 64], 'blocks': 3, 'workloads':"
                           " [{'name': 'code', 'prompts': '/code.jsonl', 'max_new_tokens': 16},"
                           "  {'name': 'maths', 'prompts': '/maths.jsonl', 'max_new_tokens': 16}],"
                           " 'headline': {'comparisons': [['b16', 'auto'], ['b16', 'linear']]}}");
    measure_until_killed(bench);
    bench->source.on_arm = with_causes;
    bench_expect_success(bench);
    assert_non_null(strstr(bench->said, "given up after invalid attempts"));
    assert_int_equal(count_files(bench), ARMS * BLOCKS + CRASHING * BLOCKS * (TRIES - 1) + 1);
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 0);
    json_t *summary = report(bench, &text);
    check_broken(summary);
    check_exclusions(summary, text);
    json_decref(summary);
    free(text);

    must_in(bench, "cp -r '%s/runs/trial/attempts' '%s/before'");
    bench->source.on_arm = without_causes;
    bench_expect_success(bench);
    assert_int_equal(bench->source.loads, 4 * BLOCKS); /* auto, b8, b12 and b32, and no other */
    bench_check_complete(bench);
    summary = report(bench, &text);
    check_repaired(summary);
    check_exclusions(summary, text); /* the record still shows why */
    json_decref(summary);
    free(text);
    must_in(bench,
            "cd '%s/before' && for file in */*.jsonl; do cmp $file '%s/runs/trial/attempts/'$file || exit 1; done");
    must_in(bench, "$bin/collect status --verify --runs '%s/runs' trial");
}

static int set_up(void **state)
{
    return programs_set_up(state) || bench_set_up(state);
}

static int tear_down(void **state)
{
    return bench_tear_down(state) || programs_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(the_campaign_of_old, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
