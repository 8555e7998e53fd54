/* The three programs in a row, as `make report` runs them: a small plan is measured by the engine, analysed and
 * typeset, and the numbers are worked out again from the attempt files and read back from the PDF's text. */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/run.h"
#include "tests/programs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 3

/* Decode time a committed token of one arm in one block, from its attempt file. */
static double cost(const char *arm, int block)
{
    struct attempt attempt;
    struct error error = {0};
    char *path = xformat("%s/runs/tiny/attempts/%s/%d-1.jsonl", programs_folder, arm, block);
    if (attempt_read(path, &attempt, &error))
        fail_msg("%s", error.message);
    int64_t time = 0, tokens = 0;
    for (int i = 0; i < attempt.sample_count; i++) {
        const struct sample *sample = &attempt.samples[i];
        for (int round = 0; round < sample->rounds && !sample->warmup; round++)
            tokens += sample->accepted[round];
        time += sample->warmup ? 0 : sample->decode_ns;
    }
    attempt_free(&attempt);
    free(path);
    return (double)time / (double)tokens;
}

static double speedup(const char *arm, const char *baseline)
{
    double sum = 0;
    for (int block = 1; block <= BLOCKS; block++)
        sum += log(cost(baseline, block) / cost(arm, block));
    return exp(sum / BLOCKS);
}

static void check_speedup(const json_t *summary, const char *text, const char *arm, const char *baseline)
{
    size_t index;
    json_t *comparison;
    json_array_foreach(json_object_get(summary, "comparisons"), index, comparison)
    {
        const char *workload = json_string_value(json_object_get(comparison, "workload"));
        if (!workload || strcmp(json_string_value(json_object_get(comparison, "arm")), arm) != 0 ||
            strcmp(json_string_value(json_object_get(comparison, "baseline")), baseline) != 0)
            continue;
        double value = json_number_value(json_object_get(json_object_get(comparison, "speedup"), "value"));
        assert_float_equal(value, speedup(arm, baseline), 1e-9 * value);
        bool printed = false;
        for (int decimals = 2; decimals <= 3; decimals++) { /* by how wide the table's intervals are */
            char *number = xformat("%.*f", decimals, value);
            printed |= strstr(text, number) != NULL;
            free(number);
        }
        assert_true(printed);
        return;
    }
    fail_msg("no comparison of %s with %s", arm, baseline);
}

static void a_plan_becomes_a_report(void **state)
{
    (void)state;
    programs_must("$bin/collect run --plan data/plans/tiny.json --runs \"$out/runs\"");
    programs_must("$bin/analyze \"$out/runs/tiny\" --out \"$out/summary.json\"");
    programs_must("$bin/render \"$out/summary.json\" --out \"$out/report\"");
    struct error error = {0};
    char *path = file_join(programs_folder, "summary.json"), *text;
    json_t *summary = json_read_file(path, &error);
    assert_non_null(summary);
    programs_expect(0, "pdftotext -layout \"$out/report/report.pdf\" -", &text);
    check_speedup(summary, text, "tp1-b16", "tp1-auto");
    check_speedup(summary, text, "tp1-b16", "tp1-linear");
    check_speedup(summary, text, "tp1-b8", "tp1-auto");
    check_speedup(summary, text, "tp1-linear", "tp1-auto");
    free(text);
    json_decref(summary);
    free(path);
}

static void a_second_run_measures_nothing_and_changes_nothing(void **state)
{
    (void)state;
    programs_must("cp \"$out/runs/tiny/ledger.jsonl\" \"$out/before\"");
    programs_must("$bin/collect run --plan data/plans/tiny.json --runs \"$out/runs\"");
    programs_must("cmp \"$out/before\" \"$out/runs/tiny/ledger.jsonl\"");
    programs_must(
        "$bin/analyze \"$out/runs/tiny\" --out \"$out/again.json\" && cmp \"$out/summary.json\" \"$out/again.json\"");
    programs_must(
        "mkdir -p \"$out/copy\" && $bin/render \"$out/summary.json\" --out \"$out/copy\" && "
        "for file in report.tex report.pdf figures/speedup.pdf; do cmp \"$out/report/$file\" \"$out/copy/$file\"; "
        "done");
}

/* An attempt whose file was cut in the middle is reported as such, measured again, and the report is of the new one. */
static void a_cut_attempt_is_measured_again(void **state)
{
    (void)state;
    char *said;
    programs_must("truncate -s -100 \"$out/runs/tiny/attempts/tp1-b8/2-1.jsonl\"");
    programs_expect(0, "$bin/collect status --runs \"$out/runs\" tiny", &said);
    assert_non_null(strstr(said, "INCOMPLETE"));
    free(said);
    programs_must(
        "$bin/analyze \"$out/runs/tiny\" --out \"$out/cut.json\" && ! cmp -s \"$out/summary.json\" \"$out/cut.json\"");
    programs_must("$bin/collect run --plan data/plans/tiny.json --runs \"$out/runs\"");
    programs_must("test -e \"$out/runs/tiny/attempts/tp1-b8/2-2.jsonl\"");
    programs_must("test ! -e \"$out/runs/tiny/attempts/tp1-b16/2-2.jsonl\"");
}

/* Every arm's outputs in float32 are the same tokens. */
static void arms_emit_the_same_tokens(void **state)
{
    (void)state;
    struct run run;
    struct error error = {0};
    char *path = xformat("%s/runs/tiny", programs_folder);
    assert_int_equal(run_read(path, NULL, &run, &error), 0);
    struct arm baseline;
    assert_true(arm_parse("tp1-auto", &baseline));
    const struct attempt *expected = &run_counted(&run, &baseline, 1, "code", NULL)->attempt;
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        for (int s = 0; attempt->complete && s < attempt->sample_count; s++)
            for (int e = 0; e < expected->sample_count; e++)
                if (strcmp(attempt->samples[s].prompt, expected->samples[e].prompt) == 0)
                    assert_memory_equal(attempt->samples[s].token_ids, expected->samples[e].token_ids,
                                        (size_t)expected->samples[e].tokens * sizeof(int));
    }
    run_free(&run);
    free(path);
}

static void bad_input_is_answered_by_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *command, *says;
        int status;
    } cases[] = {
        {"$bin/collect run --plan \"$out/none.json\"", "none.json: cannot open", 1},
        {"sed s/blocks/blokcs/ data/plans/tiny.json >\"$out/bad.json\"; $bin/collect run --plan \"$out/bad.json\"",
         "did you mean \"blocks\"", 1},
        {"sed 's/\"max_new_tokens\": 32/\"max_new_tokens\": 9000/' data/plans/tiny.json >\"$out/long.json\"; "
         "$bin/collect run --plan \"$out/long.json\" --runs \"$out/long\"",
         "the model's context is 4096; shorten the prompt or lower max_new_tokens to ", 1},
        {"for i in $(seq 5000); do echo line $i; done >\"$out/long.txt\"; sed "
         "'s|data/prompts/code.jsonl|'\"$out\"'/long.txt|; "
         "s/\"count\": 2, //' data/plans/tiny.json >\"$out/long.json\"; $bin/collect run --plan \"$out/long.json\" "
         "--runs "
         "\"$out/long\"",
         "the model's context is 4096; shorten the prompt\n", 1},
        {"sed 's/\"blocks\"/\"tensor_parallel\": [1, 3], \"blocks\"/' data/plans/tiny.json >\"$out/three.json\"; "
         "$bin/collect run --plan \"$out/three.json\" --runs \"$out/three\"",
         "do not divide over 3 ranks; choose another tensor_parallel", 1},
        {"head -c 300 data/plans/tiny.json >\"$out/half.json\"; $bin/collect run --plan \"$out/half.json\"",
         "half.json: line", 1},
        {"$bin/collect run", "--plan", 2},
        {"$bin/collect frobnicate", "frobnicate", 2},
        {"$bin/analyze \"$out/nowhere\" --out \"$out/x.json\"", "nowhere", 1},
        {"head -c 1000 \"$out/summary.json\" >\"$out/half.json\"; $bin/render \"$out/half.json\" --out \"$out/y\"",
         "half.json: line", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said;
        programs_expect(cases[i].status, cases[i].command, &said);
        if (!strstr(said, cases[i].says))
            fail_msg("%s: %s", cases[i].command, said);
        char *end = strchr(said, '\n');
        assert_true(end && end[1] == '\0');
        free(said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_becomes_a_report),
        cmocka_unit_test(arms_emit_the_same_tokens),
        cmocka_unit_test(a_second_run_measures_nothing_and_changes_nothing),
        cmocka_unit_test(a_cut_attempt_is_measured_again),
        cmocka_unit_test(bad_input_is_answered_by_one_line),
    };
    return cmocka_run_group_tests(tests, programs_set_up, programs_tear_down);
}
