/* Rules of scope attempt. */
#include "collect/base/json.h"
#include "tests/record/fixture.h"
#include "tests/record/rule_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void nothing(struct attempt *a)
{
    (void)a;
}

static void no_end(struct attempt *a)
{
    a->complete = false;
    free(a->end_status);
    a->end_status = NULL;
}

static void aborted(struct attempt *a)
{
    no_end(a);
    a->end_status = xstrdup("aborted");
}

static void only_warmup(struct attempt *a)
{
    for (int i = 0; i < FIXTURE_SAMPLES; i++)
        a->samples[i].warmup = true;
}

static void one_is_warmup(struct attempt *a)
{
    a->samples[0].warmup = true;
}

/* Two rounds, the first of so many tokens, that fit their output exactly. */
static void first_round(struct attempt *a, int accepted)
{
    const int rounds[2] = {accepted, 1};
    fixture_set_tokens(&a->samples[3], 1 + accepted + 1, 1 + accepted + 1);
    fixture_set_accepted(&a->samples[3], 2, rounds);
}

static void round_of_16(struct attempt *a)
{
    first_round(a, 16);
}

static void round_of_17(struct attempt *a)
{
    first_round(a, 17);
}

static void round_of_9(struct attempt *a)
{
    first_round(a, 9);
}

static void round_of_10(struct attempt *a)
{
    first_round(a, 10);
}

static void round_of_2(struct attempt *a)
{
    first_round(a, 2);
}

/* Rounds are counted, and nothing says what they committed. */
static void count_rounds(struct attempt *a, int rounds)
{
    free(a->samples[3].accepted);
    a->samples[3].accepted = NULL;
    a->samples[3].rounds = rounds;
}

static void eight_rounds_of_8(struct attempt *a)
{
    count_rounds(a, 8);
}

static void four_rounds_of_8(struct attempt *a)
{
    count_rounds(a, 4);
}

static void round_of_none(struct attempt *a)
{
    const int rounds[4] = {0, 3, 2, 4};
    fixture_set_accepted(&a->samples[3], 4, rounds);
}

static void round_of_17_block_size_unknown(struct attempt *a)
{
    round_of_17(a);
    json_object_del(json_object_get(json_object_get(a->header, "source"), "drafter"), "block_size");
}

static void round_of_10_block_size_unknown(struct attempt *a)
{
    round_of_17_block_size_unknown(a);
    round_of_10(a);
}

static void audited(struct attempt *a, const char *dtype, double regret)
{
    a->audit = (struct audit){true, regret, 90};
    fixture_set_source(a, NULL, "dtype", json_string(dtype));
}

static void regret_float32(struct attempt *a)
{
    audited(a, "float32", .0011);
}

static void small_regret_float32(struct attempt *a)
{
    audited(a, "float32", .001);
}

static void regret_bfloat16(struct attempt *a)
{
    audited(a, "bfloat16", .51);
}

static void small_regret_bfloat16(struct attempt *a)
{
    audited(a, "bfloat16", .5);
}

static void regret_is_no_number(struct attempt *a)
{
    audited(a, "bfloat16", NAN);
}

static void makes_acceptance_up(struct attempt *a)
{
    fixture_set_source(a, NULL, "synthetic_acceptance", json_true());
}

static void makes_no_acceptance_up(struct attempt *a)
{
    fixture_set_source(a, NULL, "synthetic_acceptance", json_false());
}

static void runs_on_a_cpu(struct attempt *a, int processors, int cores)
{
    fixture_set_source(a, NULL, "device", json_string("cpu"));
    json_set(a->header, "machine",
             json_pack("{s:i, s:o}", "cores", processors, "physical_cores", cores ? json_integer(cores) : json_null()));
}

static void has_4_processors_of_2_cores(struct attempt *a)
{
    runs_on_a_cpu(a, 4, 2);
}

static void has_4_processors(struct attempt *a)
{
    runs_on_a_cpu(a, 4, 0);
}

static void has_2_processors_and_a_gpu(struct attempt *a)
{
    runs_on_a_cpu(a, 2, 2);
    fixture_set_source(a, NULL, "device", json_string("cuda"));
}

static void has_two_devices(struct attempt *a)
{
    fixture_set_source(a, NULL, "devices", json_pack("[s, s]", "GPU-1", "GPU-2"));
}

static void has_a_device_twice(struct attempt *a)
{
    fixture_set_source(a, NULL, "devices", json_pack("[s, s, s]", "GPU-1", "GPU-2", "GPU-1"));
}

static void one_of_9_is_warmup(struct attempt *a)
{
    a->samples[0].warmup = true;
}

static void imports(struct attempt *a, double seconds)
{
    fixture_set_source(a, NULL, "kind", json_string("import"));
    for (int i = 0; i < FIXTURE_SAMPLES; i++) {
        a->samples[i].start_ns = (int64_t)(i * seconds * 1e8);
        a->samples[i].end_ns = (int64_t)((i + 1) * seconds * 1e8);
    }
}

static void imports_10_seconds(struct attempt *a)
{
    imports(a, 10);
}

static void imports_8_seconds(struct attempt *a)
{
    imports(a, 8);
}

static void imports_9_requests(struct attempt *a)
{
    imports(a, 20);
    a->samples[5].warmup = true;
}

static void imports_without_times(struct attempt *a)
{
    imports(a, 20);
    for (int i = 0; i < FIXTURE_SAMPLES; i++)
        a->samples[i].start_ns = ATTEMPT_ABSENT;
}

/* A usual round takes 1331 ns: 4000 less 7 of stall over 3. */
static void first_takes(struct attempt *a, int64_t decode_ns)
{
    a->samples[0].decode_ns = decode_ns;
}

static void first_is_10_percent_slower(struct attempt *a)
{
    first_takes(a, 4399);
}

static void first_takes_twice_as_long(struct attempt *a)
{
    first_takes(a, 7 + 2 * 3993);
}

static void second_takes_longer(struct attempt *a)
{
    a->samples[1].decode_ns = 6000;
}

static void first_stalls(struct attempt *a)
{
    first_takes(a, 7000);
    a->samples[0].stall_ns = 3007;
}

static void first_is_longer(struct attempt *a)
{
    first_takes_twice_as_long(a);
    a->samples[0].prompt_tokens *= 2;
}

static void first_follows_a_warmup_of(struct attempt *a, int64_t decode_ns)
{
    a->samples[0].warmup = true;
    a->samples[0].decode_ns = decode_ns;
    a->samples[1].decode_ns = 7 + 2 * 3993;
}

static void first_follows_a_fast_warmup(struct attempt *a)
{
    first_follows_a_warmup_of(a, 4000);
}

static void first_follows_a_slow_warmup(struct attempt *a)
{
    first_follows_a_warmup_of(a, 9000);
}

static void only_five_can_be_compared(struct attempt *a)
{
    first_takes_twice_as_long(a);
    for (int i = 6; i < FIXTURE_SAMPLES; i++)
        a->samples[i].decode_ns = ATTEMPT_ABSENT;
}

static void only_four_can_be_compared(struct attempt *a)
{
    only_five_can_be_compared(a);
    a->samples[5].decode_ns = ATTEMPT_ABSENT;
}

/* Three readings of a device within the samples' times, 1000 ns to FIXTURE_END_NS, the last one as given. */
static void reads(struct attempt *a, struct telemetry last)
{
    const struct telemetry readings[] = {
        {.time_ns = 1000, .clock_mhz = 2000}, {.time_ns = 2000, .clock_mhz = 2000}, last};
    a->telemetry = memcpy(xcalloc(3, sizeof *readings), readings, sizeof readings);
    a->telemetry_count = 3;
}

static void is_hot(struct attempt *a)
{
    reads(a, (struct telemetry){.time_ns = FIXTURE_END_NS, .device = 0, .clock_mhz = 2000, .slowdown = true});
}

static void is_hot_afterwards(struct attempt *a)
{
    reads(a, (struct telemetry){.time_ns = FIXTURE_END_NS + 1, .device = 0, .clock_mhz = 2000, .slowdown = true});
}

static void is_hot_at_an_unknown_time(struct attempt *a)
{
    reads(a, (struct telemetry){.time_ns = ATTEMPT_ABSENT, .device = 0, .clock_mhz = NAN, .slowdown = true});
}

/* Over before a second was: read before it and behind it alone. */
static void is_hot_on_both_sides(struct attempt *a)
{
    is_hot_afterwards(a);
    a->telemetry[0].time_ns = 0;
    a->telemetry[1].time_ns = 1;
}

static void was_hot_long_before(struct attempt *a)
{
    is_hot_on_both_sides(a);
    a->telemetry[0].slowdown = true;
    a->telemetry[2].slowdown = false;
}

/* Beside other attempts it may be suspect: see test_rule_run.c. */
static void is_capped(struct attempt *a)
{
    reads(a, (struct telemetry){.time_ns = 3000, .device = 0, .clock_mhz = 1000, .power_cap = true});
}

static const struct rule_case cases[] = {
    {"tp1-auto", nothing, NO_RULE},
    {"tp1-linear", nothing, NO_RULE},
    {"tp1-b8", nothing, NO_RULE},
    {"tp1-b8", no_end, RULE_INCOMPLETE, RULE_INVALID, true, NAN},
    {"tp1-b8", aborted, RULE_INCOMPLETE, RULE_INVALID, true, NAN},
    {"tp1-b8", only_warmup, RULE_INCOMPLETE, RULE_INVALID, false, 0},
    {"tp1-b8", one_is_warmup, NO_RULE},
    {"tp1-linear", round_of_16, NO_RULE},
    {"tp1-linear", round_of_17, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 17},
    {"tp1-linear", round_of_17_block_size_unknown, NO_RULE},
    {"tp1-linear", round_of_none, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 0},
    {"tp1-b8", round_of_9, NO_RULE},
    {"tp1-b8", round_of_10, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 10},
    {"tp1-b8", round_of_10_block_size_unknown, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 10},
    {"tp1-b64", round_of_16, NO_RULE},
    {"tp1-b64", round_of_17, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 17},
    {"tp1-b64", round_of_17_block_size_unknown, NO_RULE},
    {"tp1-auto", round_of_2, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 2},
    {"tp1-auto", eight_rounds_of_8, NO_RULE},
    {"tp1-auto", four_rounds_of_8, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 1.75},
    {"tp1-linear", four_rounds_of_8, NO_RULE},
    {"tp1-b8", regret_float32, RULE_AUDIT_REGRET, RULE_INVALID, true, .0011},
    {"tp1-b8", small_regret_float32, NO_RULE},
    {"tp1-b8", regret_bfloat16, RULE_AUDIT_REGRET, RULE_INVALID, true, .51},
    {"tp1-b8", small_regret_bfloat16, NO_RULE},
    {"tp1-b8", regret_is_no_number, RULE_AUDIT_REGRET, RULE_INVALID, true, NAN},
    {"tp1-b8", makes_acceptance_up, RULE_SYNTHETIC_ACCEPTANCE, RULE_INVALID, true, NAN},
    {"tp1-b8", makes_no_acceptance_up, NO_RULE},
    {"tp2-b8", has_4_processors_of_2_cores, NO_RULE},
    {"tp3-b8", has_4_processors_of_2_cores, RULE_SHARED_DEVICE, RULE_INVALID, true, 3},
    {"tp4-b8", has_4_processors, NO_RULE},
    {"tp5-b8", has_4_processors, RULE_SHARED_DEVICE, RULE_INVALID, true, 5},
    {"tp4-b8", has_2_processors_and_a_gpu, NO_RULE},
    {"tp4-b8", nothing, NO_RULE},
    {"tp2-b8", has_two_devices, NO_RULE},
    {"tp3-b8", has_a_device_twice, RULE_SHARED_DEVICE, RULE_INVALID, true, NAN},
    {"tp1-b8-c2", nothing, NO_RULE},
    {"tp1-b8-c3", nothing, RULE_TOO_FEW_REQUESTS, RULE_SUSPECT, true, 10},
    {"tp1-b8-c5", nothing, RULE_TOO_FEW_REQUESTS, RULE_SUSPECT, true, 10},
    {"tp1-b8-c5", one_of_9_is_warmup, RULE_TOO_FEW_REQUESTS, RULE_INVALID, true, 9},
    {"tp1-b8-c6", nothing, RULE_TOO_FEW_REQUESTS, RULE_INVALID, true, 10},
    {"tp1-b8", imports_10_seconds, NO_RULE},
    {"tp1-b8", imports_8_seconds, RULE_SHORT_RUN, RULE_SUSPECT, true, 8},
    {"tp1-b8", imports_9_requests, RULE_SHORT_RUN, RULE_SUSPECT, true, 9},
    {"tp1-b8", imports_without_times, NO_RULE},
    {"tp1-b8", first_is_10_percent_slower, NO_RULE},
    {"tp1-b8", first_takes_twice_as_long, RULE_COLD_FIRST, RULE_SUSPECT, false, 2},
    {"tp1-b8", second_takes_longer, NO_RULE},
    {"tp1-b8", first_stalls, NO_RULE},
    {"tp1-b8", first_is_longer, NO_RULE},
    {"tp1-b8", first_follows_a_fast_warmup, NO_RULE},
    {"tp1-b8", first_follows_a_slow_warmup, RULE_COLD_FIRST, RULE_SUSPECT, false, 2},
    {"tp1-b8", only_five_can_be_compared, RULE_COLD_FIRST, RULE_SUSPECT, false, 2},
    {"tp1-b8", only_four_can_be_compared, NO_RULE},
    {"tp1-b8", is_hot, RULE_THROTTLED, RULE_INVALID, true, 1},
    {"tp1-b8", is_hot_afterwards, NO_RULE},
    {"tp1-b8", is_hot_on_both_sides, RULE_THROTTLED, RULE_INVALID, true, 1},
    {"tp1-b8", was_hot_long_before, NO_RULE},
    {"tp1-b8", is_hot_at_an_unknown_time, RULE_THROTTLED, RULE_INVALID, true, 1},
    {"tp1-b8", is_capped, NO_RULE},
};

static void test_each_rule_fires_where_it_must_and_not_beside(void **state)
{
    (void)state;
    rule_cases_check(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_rule_fires_where_it_must_and_not_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
