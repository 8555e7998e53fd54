/* Sums over samples: which requests, which tokens, and what stays missing. */
#include "analyze/samples.h"
#include "collect/base/name.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 1 token from prefill, then rounds of 4, 4 and 5 of which 12 tokens are emitted, in 1300 ns. */
static struct sample make_sample(const char *prompt)
{
    static const int accepted[3] = {4, 4, 5};
    struct sample sample;
    sample_init(&sample);
    sample.workload = "code";
    sample.prompt = name_keep(prompt);
    sample.ok = true;
    sample.tokens = 13;
    sample.first_tokens = 1;
    sample.finish = FINISH_LENGTH;
    sample.ttft_ns = 300;
    sample.decode_ns = 1300;
    sample.rounds = 3;
    sample.accepted = memcpy(xcalloc(3, sizeof *accepted), accepted, sizeof accepted);
    return sample;
}

/* An attempt whose samples are prompts "a", "b", "c". */
static int make_attempt(void **state)
{
    static const char *const prompts[] = {"a", "b", "c"};
    struct attempt *attempt = xcalloc(1, sizeof *attempt);
    attempt->sample_count = 3;
    attempt->arm.concurrency = 1;
    attempt->samples = xcalloc(3, sizeof *attempt->samples);
    for (int i = 0; i < 3; i++)
        attempt->samples[i] = make_sample(prompts[i]);
    *state = attempt;
    return 0;
}

static int free_attempt(void **state)
{
    attempt_free(*state);
    free(*state);
    return 0;
}

static void test_output_cut_at_the_limit_counts_rounds_whole(void **state)
{
    struct sample_sums sums = samples_sum(*state, "code", NULL);
    assert_int_equal(sums.prompts, 3);
    assert_true(sums.decode_ns == 3900 && sums.tokens == 39);
    assert_true(samples_tpot_ns(&sums) == 100);
    assert_true(samples_ttft_ns(&sums) == 300);
    assert_true(samples_end_to_end_ns(&sums) == 4800.0 / 42);
}

static void test_tokens_behind_an_end_token_do_not_count(void **state)
{
    struct attempt *attempt = *state;
    attempt->samples[0].finish = FINISH_STOP;
    assert_true(samples_sum(attempt, "code", NULL).tokens == 12 + 13 + 13);
}

static void test_rounds_that_disagree_with_the_output_are_not_believed(void **state)
{
    struct attempt *attempt = *state;
    attempt->samples[0].accepted[2] = 3; /* 11 committed, 12 emitted */
    attempt->samples[1].accepted[0] = 9; /* 12 reached before the last round */
    assert_true(samples_sum(attempt, "code", NULL).tokens == 12 + 12 + 13);
}

static void test_warm_up_failures_and_other_workloads_are_left_out(void **state)
{
    struct attempt *attempt = *state;
    attempt->samples[0].warmup = true;
    attempt->samples[1].ok = false;
    assert_int_equal(samples_sum(attempt, "code", NULL).prompts, 1);
    assert_int_equal(samples_sum(attempt, "maths", NULL).prompts, 0);
}

static void test_only_prompts_that_both_answered(void **state)
{
    struct sample others[] = {make_sample("c"), make_sample("a")};
    others[1].ok = false;
    struct attempt beside = {.samples = others, .sample_count = 2};
    assert_int_equal(samples_sum(*state, "code", &beside).prompts, 1);
    assert_int_equal(samples_sum(&beside, "code", *state).prompts, 1);
    sample_free(&others[0]);
    sample_free(&others[1]);
}

static void test_missing_is_nan(void **state)
{
    struct attempt *attempt = *state;
    attempt->samples[0].ttft_ns = ATTEMPT_ABSENT;
    struct sample_sums sums = samples_sum(attempt, "code", NULL);
    assert_int_equal(sums.first_prompts, 2);
    assert_true(isnan(samples_end_to_end_ns(&sums))); /* times of 3 prompts, first tokens of 2 */
    for (int i = 0; i < 3; i++)
        attempt->samples[i].decode_ns = ATTEMPT_ABSENT;
    sums = samples_sum(attempt, "code", NULL);
    assert_true(isnan(samples_tpot_ns(&sums)));
    sums = samples_sum(attempt, "maths", NULL);
    assert_true(isnan(samples_ttft_ns(&sums)));
}

static void test_rounds(void **state)
{
    struct round_sums sums = {0};
    samples_add_rounds(*state, "code", SAMPLES_ALL, &sums);
    samples_add_rounds(*state, "code", SAMPLES_ALL, &sums);
    assert_int_equal(sums.prompt_count, 3);
    assert_string_equal(sums.prompts[1].prompt, "b");
    assert_int_equal(sums.prompts[1].attempts, 2);
    assert_true(sums.prompts[1].accepted == 26 && sums.prompts[1].rounds == 6 && sums.prompts[1].emitted == 24);
    assert_int_equal(sums.rounds, 18);
    assert_int_equal(sums.histogram_size, 6);
    assert_int_equal(sums.histogram[4], 12);
    assert_int_equal(sums.histogram[5], 6);
    assert_int_equal(sums.histogram[0], 0);
    samples_free_rounds(&sums);
}

static void test_stages(void **state)
{
    struct attempt *attempt = *state;
    for (int i = 0; i < 3; i++) {
        attempt->samples[i].stages_ns[STAGE_VERIFY] = 700;
        attempt->samples[i].stages_ns[STAGE_DRAFT] = i ? 100 : ATTEMPT_ABSENT;
    }
    struct stage_sums sums = {0};
    samples_add_stages(attempt, "code", NULL, &sums);
    assert_true(sums.rounds == 9 && sums.decode_ns == 3900);
    assert_true(sums.stage_ns[STAGE_VERIFY] == 2100);
    assert_true(isnan(sums.stage_ns[STAGE_DRAFT]) && isnan(sums.stage_ns[STAGE_BUILD]));
    assert_true(isnan(sums.communicate_ns) && isnan(sums.context));
}

static void test_time_of_a_round_is_without_stalls(void **state)
{
    struct attempt *attempt = *state;
    struct stage_sums sums = {0};
    samples_add_stages(attempt, "code", NULL, &sums);
    assert_true(samples_round_ns(&sums) == 3900.0 / 9);
    attempt->arm.concurrency = 2;
    for (int i = 0; i < 3; i++) {
        attempt->samples[i].stall_ns = 100 * i;
        attempt->samples[i].communicate_ns = 50;
        attempt->samples[i].prompt_tokens = 20;
    }
    sums = (struct stage_sums){0};
    samples_add_stages(attempt, "code", NULL, &sums);
    assert_true(samples_round_ns(&sums) == 3600.0 / 9 && sums.communicate_ns == 150);
    assert_true(sums.context == 9 * 26.5);
    attempt->samples[0].stall_ns = ATTEMPT_ABSENT;
    sums = (struct stage_sums){0};
    samples_add_stages(attempt, "code", NULL, &sums);
    assert_true(isnan(samples_round_ns(&sums)));
}

/* Minutes in nanoseconds: what the stages leave over of them is a difference of numbers that are nearly equal. */
static void test_long_times_keep_their_nanoseconds(void **state)
{
    struct attempt *attempt = *state;
    struct stage_sums sums = {0};
    const int64_t long_ns = 123456789013;
    attempt->arm.concurrency = 2;
    for (int i = 0; i < 3; i++) {
        struct sample *sample = &attempt->samples[i];
        sample->decode_ns = 5 * long_ns + 1;
        sample->ttft_ns = sample->stall_ns = sample->communicate_ns = long_ns;
        for (int stage = 0; stage < STAGE_COUNT; stage++)
            sample->stages_ns[stage] = long_ns + stage;
        assert_true(samples_times(sample).ttft_ns == (double)long_ns);
        assert_true(samples_times(sample).end_to_end_ns == 6.0 * (double)long_ns + 1);
    }
    samples_add_stages(attempt, "code", NULL, &sums);
    assert_true(sums.decode_ns == 15.0 * (double)long_ns + 3);
    assert_true(sums.stall_ns == 3.0 * (double)long_ns && sums.communicate_ns == sums.stall_ns);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        assert_true(sums.stage_ns[stage] == 3.0 * (double)(long_ns + stage));
}

static void test_times_of_a_sample(void **state)
{
    struct attempt *attempt = *state;
    struct sample_times times = samples_times(&attempt->samples[0]);
    assert_true(times.tpot_ns == 100 && times.ttft_ns == 300 && times.end_to_end_ns == 1600);
    attempt->samples[0].ttft_ns = ATTEMPT_ABSENT;
    times = samples_times(&attempt->samples[0]);
    assert_true(times.tpot_ns == 100 && isnan(times.ttft_ns) && isnan(times.end_to_end_ns));
}

/* Two places: filled at 300; the third request is admitted when the first ends, at 1600. In between come the first's 14
 * tokens, of the second the first token and 10 of 13. */
static void test_tokens_of_all_requests_in_flight(void **state)
{
    struct attempt *attempt = *state;
    assert_true(fabs(samples_aggregate_tokens_per_s(attempt, "code") - 42e9 / 4800) < 1);
    attempt->arm.concurrency = 2;
    attempt->samples[0].start_ns = 0;
    attempt->samples[1].start_ns = 300;
    attempt->samples[2].start_ns = 1600;
    assert_true(fabs(samples_aggregate_tokens_per_s(attempt, "code") - 25e9 / 1300) < 1);
    attempt->arm.concurrency = 3;
    assert_true(isnan(samples_aggregate_tokens_per_s(attempt, "code")));
    attempt->arm.concurrency = 2;
    attempt->samples[2].start_ns = ATTEMPT_ABSENT;
    assert_true(isnan(samples_aggregate_tokens_per_s(attempt, "code")));
}

static void give_tokens(struct sample *sample, int step)
{
    sample->token_ids = xcalloc(13, sizeof *sample->token_ids);
    for (int i = 0; i < 13; i++)
        sample->token_ids[i] = step * i;
}

static void test_fewer_samples(void **state)
{
    struct attempt *attempt = *state, beside = {.sample_count = 2};
    struct sample others[] = {make_sample("b"), make_sample("a")};
    beside.samples = others;
    give_tokens(&attempt->samples[0], 1);
    give_tokens(&attempt->samples[1], 0); /* one token over and over */
    give_tokens(&others[0], 0);
    give_tokens(&others[1], 2);
    assert_int_equal(samples_sum_kept(attempt, "code", &beside, SAMPLES_ALL).prompts, 2);
    assert_int_equal(samples_sum_kept(attempt, "code", &beside, SAMPLES_IDENTICAL).prompts, 1);
    assert_int_equal(samples_sum_kept(attempt, "code", &beside, SAMPLES_VARIED).prompts, 1);
    assert_int_equal(samples_sum_kept(attempt, "code", NULL, SAMPLES_VARIED).prompts, 2);
    struct round_sums sums = {0};
    samples_add_rounds(attempt, "code", SAMPLES_VARIED, &sums);
    assert_int_equal(sums.prompt_count, 2);
    samples_free_rounds(&sums);
    sample_free(&others[0]);
    sample_free(&others[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output_cut_at_the_limit_counts_rounds_whole, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_tokens_behind_an_end_token_do_not_count, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_rounds_that_disagree_with_the_output_are_not_believed, make_attempt,
                                        free_attempt),
        cmocka_unit_test_setup_teardown(test_warm_up_failures_and_other_workloads_are_left_out, make_attempt,
                                        free_attempt),
        cmocka_unit_test_setup_teardown(test_only_prompts_that_both_answered, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_missing_is_nan, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_rounds, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_stages, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_time_of_a_round_is_without_stalls, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_long_times_keep_their_nanoseconds, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_times_of_a_sample, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_tokens_of_all_requests_in_flight, make_attempt, free_attempt),
        cmocka_unit_test_setup_teardown(test_fewer_samples, make_attempt, free_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
