/* Each format through `collect import`, from a file in its form to the attempt: arms, times worked out by hand, and
 * what the rules say. The files are the corpus of the fuzzer as well. */
#include "analyze/samples.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/record/run.h"
#include "tests/collect/call.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILES "tests/fuzz/corpus/import/"

static char *folder;

/* --- calling ------------------------------------------------------------------------------------------------------ */

/* Imports files[count] into the run "r"; answers the exit code, and in *said what was printed. */
static int import(const char *as, const char *const *files, int count, char **said)
{
    const char *arguments[16] = {"--runs", folder, "--run", "r"};
    int used = 4;
    if (as) {
        arguments[used++] = "--as";
        arguments[used++] = as;
    }
    for (int i = 0; i < count; i++)
        arguments[used++] = files[i];
    arguments[used] = NULL;
    return call_command(folder, command_import, arguments, said);
}

static void must_import(const char *as, const char *const *files, int count)
{
    char *said;
    if (import(as, files, count, &said) != EXIT_CODE_OK)
        fail_msg("%s", said);
    free(said);
}

static void read_run(struct run *run)
{
    char *path = file_join(folder, "r");
    struct error error = {0};
    if (run_read(path, NULL, run, &error))
        fail_msg("%s", error.message);
    free(path);
}

static const struct judged *find(const struct run *run, const char *name)
{
    struct attempt_place place;
    assert_true(place_parse(name, &place));
    const struct judged *judged = run_find(run, &place);
    if (!judged)
        fail_msg("there is no %s", name);
    return judged;
}

/* --- what is expected --------------------------------------------------------------------------------------------- */

struct expectation {
    const char *attempt, *workload;
    int samples;
    double tpot_ms, ttft_ms; /* NaN: unknown */
    double tau;              /* stated; NaN: not */
    const char *verdicts;    /* rules with the first letter of their level, in the order of the table */
};

struct example {
    const char *as, *files[3];
    struct expectation expected[5]; /* of every attempt there is */
};

static void check_number(const char *what, const char *attempt, double got, double expected)
{
    if (!(isnan(expected) ? isnan(got) : fabs(got - expected) <= 1e-6 * expected))
        fail_msg("%s: %s is %.9g, not %.9g", attempt, what, got, expected);
}

static char *list_verdicts(const struct judged *judged)
{
    char *list = xstrdup("");
    for (int rule = 0; rule < RULE_COUNT; rule++)
        for (int i = 0; i < judged->verdicts.count; i++) {
            const struct verdict *verdict = &judged->verdicts.items[i];
            if ((int)verdict->rule != rule)
                continue;
            char *longer = xformat("%s%s%c:%s", list, list[0] ? " " : "", rule_level_names[verdict->level][0],
                                   rule_table[rule].id);
            free(list);
            list = longer;
        }
    return list;
}

static void check(const struct run *run, const struct expectation *expected)
{
    const struct judged *judged = find(run, expected->attempt);
    const struct attempt *attempt = &judged->attempt;
    const struct sample_sums sums = samples_sum(attempt, expected->workload, NULL);
    char *verdicts = list_verdicts(judged);
    if (strcmp(verdicts, expected->verdicts) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", expected->attempt, verdicts, expected->verdicts);
    assert_non_null(attempt_find_workload(attempt, expected->workload));
    assert_int_equal(attempt->sample_count, expected->samples);
    check_number("TPOT", expected->attempt, samples_tpot_ns(&sums) / 1e6, expected->tpot_ms);
    check_number("TTFT", expected->attempt, samples_ttft_ns(&sums) / 1e6, expected->ttft_ms);
    check_number("tau", expected->attempt, attempt->observed.accept_length, expected->tau);
    free(verdicts);
}

static const struct example examples[] = {
    /* 20 requests of 100 tokens: (2000 - 100) ms x 20 / (2000 - 20) tokens */
    {NULL,
     {FILES "sglang-appended.jsonl"},
     {{"tp2-linear-c4/1-1", "random-64-100", 0, 1900. * 20 / 1980, 100, 2.5,
       "n:PREFIX_CACHE_HIT i:ITL_PER_CHUNK n:SOURCE_DAMAGED"},
      {"tp2-linear-c4/2-1", "random-64-100", 0, 1910. * 20 / 1980, 110, 2.5,
       "n:PREFIX_CACHE_HIT i:ITL_PER_CHUNK n:SOURCE_DAMAGED"}}},
    {NULL, {FILES "sglang-auto.jsonl"}, {{"tp2-auto-c4/1-1", "random-64-100", 0, 40, 100, NAN, "n:SOURCE_DAMAGED"}}},
    /* (0.12 + 0.3) s for 4 + 8 tokens */
    {"tp1-auto",
     {FILES "vllm-detailed.json"},
     {{"tp1-auto/1-1", "imported", 3, 35, 150, NAN,
       "i:CONTEXT_OVERFLOW i:FAILED_REQUEST s:SHORT_RUN i:ITL_PER_CHUNK i:ITL_PER_CHUNK"}}},
    /* no times from start to end: the stated mean */
    {NULL,
     {FILES "vllm-appended.jsonl"},
     {{"tp4-linear-c4/1-1", "imported", 0, 20, 50, 2.5, ""}, {"tp4-linear-c4/2-1", "imported", 0, 21, 50, 2.5, ""}}},
    {NULL,
     {FILES "vllm-sweep.json"},
     {{"tp4-linear/1-1", "imported", 0, 21, 50, 2.5, ""}, {"tp4-linear-c2/1-1", "imported", 0, 22, 50, 2.5, ""}}},
    {NULL,
     {FILES "vllm-sweep.csv"},
     {{"tp4-linear/1-1", "imported", 0, 21, 50, 2.5, ""}, {"tp4-linear-c2/1-1", "imported", 0, 22, 50, 2.5, ""}}},
    {NULL,
     {FILES "inferencex-raw.json", FILES "inferencex-aggregated.json"},
     {{"tp8-linear-c4/1-1", "imported", 0, 3441.5315851336 * 16 / 3184, 317.0863160688896, NAN,
       "i:ITL_PER_CHUNK i:SPEC_METRICS_MISSING"}}},
    {NULL,
     {FILES "inferencex-aggregated.json", FILES "inferencex-raw.json"},
     {{"tp8-linear-c4/1-1", "imported", 0, 3441.5315851336 * 16 / 3184, 317.0863160688896, NAN,
       "i:ITL_PER_CHUNK i:SPEC_METRICS_MISSING"}}},
    {NULL,
     {FILES "inferencex-aggregated.json"},
     {{"tp8-linear-c4/1-1", "imported", 0, 17.294128568510713, 317.0863160688896, NAN,
       "i:ITL_PER_CHUNK i:SPEC_METRICS_MISSING"}}},
    {"tp8-auto",
     {FILES "inferencex-failed.json"},
     {{"tp8-auto-c4/1-1", "imported", 0, NAN, NAN, NAN, "i:ALL_FAILED i:FAILED_REQUEST i:TIMES_UNKNOWN"}}},
    {"tp8-linear",
     {FILES "inferencex_fixed_ar.json"},
     {{"tp8-linear-c4/1-1", "imported", 0, 3458.6179012025 * 16 / 3184, 300, NAN,
       "i:SYNTHETIC_ACCEPTANCE i:ITL_PER_CHUNK i:SPEC_METRICS_MISSING"}}},
    {NULL,
     {FILES "vllm-appended.jsonl", FILES "synthetic_acceptance_rates.json"},
     {{"tp4-linear-c4/1-1", "imported", 0, 20, 50, 2.5, "i:SYNTHETIC_ACCEPTANCE"},
      {"tp4-linear-c4/2-1", "imported", 0, 21, 50, 2.5, "i:SYNTHETIC_ACCEPTANCE"}}},
    {NULL,
     {FILES "llama-bench.json"},
     {{"tp1-auto/1-1", "pp512", 0, NAN, 70, NAN, "s:SHORT_RUN i:TIMES_UNKNOWN"},
      {"tp1-auto/1-2", "tg128", 0, 10, NAN, NAN, ""}}},
    {NULL,
     {FILES "llama-bench.jsonl"},
     {{"tp1-auto/1-1", "pp512", 0, NAN, 70, NAN, "s:SHORT_RUN i:TIMES_UNKNOWN"},
      {"tp1-auto/1-2", "tg128", 0, 10, NAN, NAN, ""}}},
    {NULL,
     {FILES "llama-bench.csv"},
     {{"tp1-auto/1-1", "pp512", 0, NAN, 70, NAN, "i:TIMES_UNKNOWN"}, {"tp1-auto/1-2", "tg128", 0, 10, NAN, NAN, ""}}},
    {"tp1",
     {FILES "llama-bench.md"},
     {{"tp1-auto/1-1", "pp512", 0, NAN, 512e3 / 7300.2, NAN, "i:TIMES_UNKNOWN"},
      {"tp1-auto/1-2", "tg128-d4096", 0, 10, NAN, NAN, ""}}},
    /* (900 - 100) ms for 40 tokens; the first of four requests is warm-up, the last was cut off by the client */
    {"tp1-auto",
     {FILES "aiperf-records.jsonl"},
     {{"tp1-auto/1-1", "imported", 4, 20, 100, NAN, "s:FAILED_REQUEST s:SHORT_RUN"}}},
    {"tp1-auto",
     {FILES "aiperf-export.json"},
     {{"tp1-auto/1-1", "imported", 0, 20, 100, NAN, "s:FAILED_REQUEST s:SHORT_RUN"}}},
    {"tp1-auto",
     {FILES "aiperf-export.json", FILES "aiperf-records.jsonl"},
     {{"tp1-auto/1-1", "imported", 4, 20, 100, NAN, "s:FAILED_REQUEST s:SHORT_RUN"}}},
    {"tp1-auto",
     {FILES "aiperf-cancelled.json"},
     {{"tp1-auto-c2/1-1", "imported", 0, 20, 100, NAN, "i:DECLARED_INVALID"}}},
    {"tp1-auto",
     {FILES "guidellm.json"},
     {{"tp1-auto/1-1", "imported", 3, 20, 200, NAN, "i:FAILED_REQUEST s:SHORT_RUN"},
      {"tp1-auto-c4/1-1", "imported", 0, 20, 220, NAN, ""}}},
    /* 29.41 a second of 9.717 s each: 286 in flight; 6.5 a second: 63 */
    {"tp8-auto-c64",
     {FILES "mlperf-invalid-summary.txt"},
     {{"tp8-auto-c64/1-1", "Server", 0, 32.10249, 201.330486, NAN, "i:LITTLES_LAW i:DECLARED_INVALID"}}},
    {"tp8-auto-c64",
     {FILES "mlperf-detail.txt"},
     {{"tp8-auto-c64/1-1", "Server", 0, 32.10249, 201.330486, NAN, "n:SOURCE_DAMAGED"}}},
    /* 0.55 s for 11 tokens, the prefill among them */
    {"tp1",
     {FILES "spec-bench-draft.jsonl"},
     {{"tp1-linear/1-1", "writing", 4, 50, NAN, NAN,
       "i:FAILED_REQUEST s:SHORT_RUN s:PREFILL_INCLUDED s:PREFILL_INCLUDED"}}},
    {"tp1",
     {FILES "spec-bench-plain.jsonl"},
     {{"tp1-auto/1-1", "math", 4, 100, NAN, NAN, "s:SHORT_RUN s:PREFILL_INCLUDED s:PREFILL_INCLUDED"}}},
    {"tp1",
     {FILES "specforge.jsonl"},
     {{"tp1-auto/1-1", "mtbench", 0, 4, NAN, 1, "s:PREFILL_INCLUDED"},
      {"tp1-auto/2-1", "mtbench", 0, 4.1, NAN, 1, "s:SOURCE_DAMAGED s:PREFILL_INCLUDED"},
      {"tp1-linear/1-1", "mtbench", 0, 2.5, NAN, 2.68, "s:PREFILL_INCLUDED"},
      {"tp1-b60-c2/1-1", "mtbench", 0, NAN, NAN, 4.5, "i:TIMES_UNKNOWN"}}},
    {"tp1", {FILES "specforge-dflash.json"}, {{"tp1-linear/1-1", "gsm8k", 0, 2.5, NAN, 5.9, "s:PREFILL_INCLUDED"}}},
    {"tp1",
     {FILES "one-batch.jsonl"},
     {{"tp1-linear-c4/1-1", "in64-out101", 0, 20, 100, 2.2, "s:SHORT_RUN i:TOO_FEW_REQUESTS"}}},
    {"tp1",
     {FILES "jetspec-auto.jsonl", FILES "jetspec-dflash.jsonl"},
     {{"tp1-auto/1-1", "imported", 2, 1300. / 13, NAN, NAN, "s:SHORT_RUN"},
      {"tp1-linear/1-1", "imported", 2, 550. / 13, NAN, NAN, "s:SHORT_RUN"}}},
    {"tp4-linear-c4",
     {FILES "acceptance_rate.json", FILES "timing.json"},
     {{"tp4-linear-c4/1-1", "imported", 0, 20, 100, 2.6, "i:ITL_PER_CHUNK"}}},
    {"tp1",
     {FILES "lucebox.csv"},
     {{"tp1-b8/1-1", "imported", 0, 50, NAN, 4.23, "s:SHORT_RUN"},
      {"tp1-b32/1-1", "imported", 0, 62.5, NAN, 4.23, "s:SHORT_RUN"},
      {"tp1-auto/1-1", "imported", 0, 1000. / 18, NAN, NAN, "s:SHORT_RUN"}}},
};

static int count_files(const struct example *example)
{
    int count = 0;
    while (count < 3 && example->files[count])
        count++;
    return count;
}

static void check_example(const struct example *example)
{
    struct run run;
    int attempts = 0;
    folder = fixture_make_folder();
    must_import(example->as, example->files, count_files(example));
    read_run(&run);
    for (; attempts < 5 && example->expected[attempts].attempt; attempts++)
        check(&run, &example->expected[attempts]);
    assert_int_equal(run.attempt_count, attempts);
    run_free(&run);
    fixture_remove_folder(folder);
}

static void each_format_becomes_attempts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        check_example(&examples[i]);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static const struct attempt *import_one(const char *as, const char *file, const char *attempt, struct run *run)
{
    folder = fixture_make_folder();
    must_import(as, &file, 1);
    read_run(run);
    return &find(run, attempt)->attempt;
}

static void done(struct run *run)
{
    run_free(run);
    fixture_remove_folder(folder);
}

/* The second of vLLM's requests: begun half a second after the first, 0.2 s to the first token, three gaps of 0.1 s. */
static void requests_keep_their_times(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp1-auto", FILES "vllm-detailed.json", "tp1-auto/1-1", &run);
    const struct sample *sample = &attempt->samples[1];
    assert_int_equal(sample->prompt_tokens, 20);
    assert_int_equal(sample->tokens, 9);
    assert_int_equal(sample->start_ns, 500000000);
    assert_int_equal(sample->ttft_ns, 200000000);
    assert_int_equal(sample->decode_ns, 300000000);
    assert_int_equal(sample->end_ns, 1000000000);
    assert_int_equal(sample->chunks, 4);
    assert_int_equal(sample->chunk_ns[0], 200000000);
    assert_int_equal(sample->chunk_ns[3], 500000000);
    assert_false(attempt->samples[2].ok);
    assert_string_equal(attempt->samples[2].error_code, "CONTEXT_OVERFLOW");
    assert_null(attempt->started); /* its date has no zone */
    done(&run);
}

/* Nanoseconds since 1970, of which a double loses the last hundreds. */
static void times_of_day_lose_nothing(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp1-auto", FILES "aiperf-records.jsonl", "tp1-auto/1-1", &run);
    assert_string_equal(attempt->started, "2025-10-03T20:13:39Z");
    assert_true(attempt->samples[0].warmup);
    assert_int_equal(attempt->samples[2].start_ns, 2000000000);
    assert_int_equal(attempt->samples[2].end_ns, 2900000000);
    assert_int_equal(attempt->samples[3].error_http_status, 499);
    done(&run);
}

/* Where servers say how many tokens the first chunk held, AIPerf's time a token is of the others. */
static void first_chunks_hold_what_the_time_a_token_leaves(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp1-auto", FILES "aiperf-first-chunks.jsonl", "tp1-auto/1-1", &run);
    assert_int_equal(attempt->samples[0].first_tokens, 5);
    assert_int_equal(attempt->samples[1].first_tokens, 1);
    assert_int_equal(attempt->samples[2].first_tokens, 1);
    done(&run);
}

static void turns_have_rounds_of_their_own(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp1", FILES "spec-bench-draft.jsonl", "tp1-linear/1-1", &run);
    const int first[] = {1, 2, 3}, second[] = {4, 1};
    assert_string_equal(attempt->samples[0].prompt, "1-1");
    assert_memory_equal(attempt->samples[0].accepted, first, sizeof first);
    assert_memory_equal(attempt->samples[1].accepted, second, sizeof second);
    assert_false(attempt->samples[3].ok);
    assert_int_equal(attempt->samples[3].tokens, ATTEMPT_ABSENT); /* those of the request before stand there */
    done(&run);
}

/* Some of its methods say of a turn the number of its last step, from 0 on, and not how many there were. */
static void spec_bench_steps_may_count_from_0(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp1", FILES "spec-bench-from-0.jsonl", "tp1-linear/1-1", &run);
    const int first[] = {1, 2, 3}, second[] = {4, 1};
    assert_int_equal(attempt->samples[0].rounds, 3);
    assert_memory_equal(attempt->samples[0].accepted, first, sizeof first);
    assert_int_equal(attempt->samples[1].rounds, 2);
    assert_memory_equal(attempt->samples[1].accepted, second, sizeof second);
    assert_int_equal(attempt->samples[2].rounds, 1);
    assert_int_equal(attempt->samples[2].accepted[0], 4);
    done(&run);
}

/* --- what is kept, and what is not -------------------------------------------------------------------------------- */

static void unknown_keys_are_kept_and_secrets_are_not(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one(NULL, FILES "sglang-appended.jsonl", "tp2-linear-c4/1-1", &run);
    const json_t *import = json_object_get(attempt->header, "import"), *rest = json_object_get(import, "rest");
    assert_int_equal(json_array_size(json_object_get(rest, "a_key_of_tomorrow")), 2);
    assert_true(json_real_value(json_object_get(rest, "median_ttft_ms")) == 99);
    assert_null(json_object_get(rest, "mean_ttft_ms"));
    char *text = fixture_read(attempt->path, NULL);
    assert_null(strstr(text, "very-secret"));
    free(text);
    done(&run);
}

static void large_numbers_are_kept_whole(void **state)
{
    (void)state;
    struct run run;
    const struct attempt *attempt = import_one("tp8-auto-c64", FILES "mlperf-detail.txt", "tp8-auto-c64/1-1", &run);
    const json_t *rest = json_object_get(json_object_get(attempt->header, "import"), "rest");
    assert_string_equal(json_string_value(json_object_get(rest, "effective_sample_index_rng_seed")),
                        "14771362308971278857");
    done(&run);
}

/* A mean time a token and a mean time to the first do not say how many tokens either stands for. */
static void no_rate_is_made_without_a_count_of_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *as, *file, *attempt, *workload;
    } cases[] = {{"tp8-auto", FILES "mlperf-detail.txt", "tp8-auto/1-1", "Server"},
                 {NULL, FILES "inferencex-aggregated.json", "tp8-linear-c4/1-1", "imported"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        const struct attempt *attempt = import_one(cases[i].as, cases[i].file, cases[i].attempt, &run);
        const struct sample_sums sums = samples_sum(attempt, cases[i].workload, NULL);
        assert_true(samples_tpot_ns(&sums) > 0 && samples_ttft_ns(&sums) > 0);
        assert_true(isnan(samples_end_to_end_ns(&sums)));
        assert_true(isnan(samples_aggregate_tokens_per_s(attempt, cases[i].workload)));
        done(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_format_becomes_attempts),
        cmocka_unit_test(requests_keep_their_times),
        cmocka_unit_test(times_of_day_lose_nothing),
        cmocka_unit_test(first_chunks_hold_what_the_time_a_token_leaves),
        cmocka_unit_test(turns_have_rounds_of_their_own),
        cmocka_unit_test(spec_bench_steps_may_count_from_0),
        cmocka_unit_test(unknown_keys_are_kept_and_secrets_are_not),
        cmocka_unit_test(large_numbers_are_kept_whole),
        cmocka_unit_test(no_rate_is_made_without_a_count_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
