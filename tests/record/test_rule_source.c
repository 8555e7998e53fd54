/* Rules on what a source says of itself, and those of workloads that look at what only some sources say. */
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

/* --- how it ended ------------------------------------------------------------------------------------------------- */

static void fails_as(struct attempt *a, const char *code)
{
    a->complete = false;
    free(a->end_status);
    a->end_status = xstrdup("failed");
    a->error_code = xstrdup(code);
    a->error_message = xstrdup("CUDA error: an illegal instruction\nwas encountered");
}

static void dies(struct attempt *a)
{
    fails_as(a, "SERVER_DIED");
}

static void dies_without_a_sample(struct attempt *a)
{
    for (int i = 0; i < a->sample_count; i++)
        sample_free(&a->samples[i]);
    a->sample_count = 0;
    dies(a);
}

static void runs_out_of_memory(struct attempt *a)
{
    fails_as(a, "OUT_OF_MEMORY");
}

static void falls_silent(struct attempt *a)
{
    fails_as(a, "SILENT");
}

static void fails_for_a_reason_of_tomorrow(struct attempt *a)
{
    fails_as(a, "STRUCK_BY_LIGHTNING");
}

/* A request that fails for such a reason is worth more than its share: what follows it ran on what it left. */
static void dies_in_the_warmup(struct attempt *a)
{
    fixture_fail_sample(&a->samples[0], "SERVER_DIED");
    a->samples[0].warmup = true;
}

static void times_out_in_the_warmup(struct attempt *a)
{
    fixture_fail_sample(&a->samples[0], "TIMEOUT");
    a->samples[0].warmup = true;
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

static void counts_on(struct attempt *a)
{
    observed_add_counter(&a->observed, "generation_tokens", 6.49e6, 6.5e6);
    observed_add_counter(&a->observed, "preemptions", 0, 0);
}

static void counts_anew(struct attempt *a)
{
    counts_on(a);
    observed_add_counter(&a->observed, "drafts", 4000, 31);
}

static void knows_no_rounds(struct attempt *a)
{
    for (int i = 0; i < a->sample_count; i++) {
        free(a->samples[i].accepted);
        a->samples[i].accepted = NULL;
        a->samples[i].rounds = ATTEMPT_ABSENT;
    }
}

static void knows_rounds_of_one(struct attempt *a)
{
    knows_no_rounds(a);
    a->samples[9].rounds = 3;
}

static void counts_drafts(struct attempt *a)
{
    knows_no_rounds(a);
    observed_add_counter(&a->observed, "drafts", 10, 40);
}

static void counts_no_drafts(struct attempt *a)
{
    knows_no_rounds(a);
    observed_add_counter(&a->observed, "drafts", 10, 10);
}

static void counts_accepted(struct attempt *a, double tokens)
{
    knows_no_rounds(a);
    observed_add_counter(&a->observed, "drafts", 10, 20);
    observed_add_counter(&a->observed, "accepted_tokens", 100, 100 + tokens);
}

/* Of a draft 8 tokens at most. */
static void counts_what_may_be(struct attempt *a)
{
    counts_accepted(a, 80);
}

static void counts_more_than_may_be(struct attempt *a)
{
    counts_accepted(a, 81);
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static void has_2_slots(struct attempt *a)
{
    a->observed.slots = 2;
}

static void has_1_slot(struct attempt *a)
{
    a->observed.slots = 1;
}

static void runs_2(struct attempt *a)
{
    a->observed.slots = 8;
    a->observed.running_max = 2;
}

static void runs_1(struct attempt *a)
{
    a->observed.slots = 8;
    a->observed.running_max = 1;
}

static void caches(struct attempt *a, int64_t tokens, int slots)
{
    a->observed.cache_tokens = tokens;
    a->observed.cache_tokens_needed = 4096;
    a->observed.cache_slots = slots;
    a->observed.cache_slots_needed = 16;
}

static void caches_enough(struct attempt *a)
{
    caches(a, 4096, 16);
}

static void caches_too_few_tokens(struct attempt *a)
{
    caches(a, 4095, 16);
}

static void caches_too_few_states(struct attempt *a)
{
    caches(a, 4096, 15);
}

static void caches_unknown_tokens(struct attempt *a)
{
    caches(a, ATTEMPT_ABSENT, 16);
}

/* --- load --------------------------------------------------------------------------------------------------------- */

/* Requests of `length_ns` each, `apart_ns` from start to start. */
static void arrives(struct attempt *a, int64_t length_ns, int64_t apart_ns)
{
    for (int i = 0; i < a->sample_count; i++) {
        a->samples[i].start_ns = i * apart_ns;
        a->samples[i].end_ns = i * apart_ns + length_ns;
    }
}

/* 10 * 1000 ns in 9900 ns are 1.0101 at a time. */
static void overlaps_too_much(struct attempt *a)
{
    arrives(a, 1000, 100);
    for (int i = 0; i < a->sample_count; i++) {
        a->samples[i].start_ns = i * 8900 / 9;
        a->samples[i].end_ns = a->samples[i].start_ns + 1000;
    }
}

/* 10 * 1000 ns in 9901 ns and more are not. */
static void overlaps_a_little(struct attempt *a)
{
    arrives(a, 1000, 990);
}

/* With two at a time: until the last start, at 4500 ns, there are 9 * 800 ns, which are 1.6. */
static void fills_80_percent(struct attempt *a)
{
    arrives(a, 800, 500);
    a->samples[8].start_ns = 3700; /* which would reach beyond it */
    a->samples[8].end_ns = 4500;
}

static void fills_less(struct attempt *a)
{
    fills_80_percent(a);
    a->samples[3].end_ns -= 10;
}

/* One at a time may rest: nothing waits for a slot. */
static void waits_between(struct attempt *a)
{
    arrives(a, 100, 500);
}

static void states_a_load(struct attempt *a, double e2e_ns)
{
    for (int i = 0; i < a->sample_count; i++)
        a->samples[i].start_ns = a->samples[i].end_ns = ATTEMPT_ABSENT;
    a->observed.completed = 10;
    a->observed.duration_ns = 1000000;
    a->observed.e2e_ns = e2e_ns;
}

static void states_a_load_of_1(struct attempt *a)
{
    states_a_load(a, 100000);
}

static void states_a_load_above_1(struct attempt *a)
{
    states_a_load(a, 102000);
}

/* 10 * 9 tokens in 49600 ns: 1.8145 a microsecond. */
static void peaks(struct attempt *a, double tokens_per_s)
{
    a->observed.peak_tokens_per_s = tokens_per_s;
}

static void peaks_above_the_mean(struct attempt *a)
{
    peaks(a, 1.8146e6);
}

static void peaks_below_the_mean(struct attempt *a)
{
    peaks(a, 1.8145e6);
}

static void peaks_at_the_stated_mean(struct attempt *a)
{
    peaks(a, 100);
    a->observed.tokens_per_s = 100;
}

static void peaks_below_the_stated_mean(struct attempt *a)
{
    peaks(a, 1e9);
    a->observed.tokens_per_s = 2e9;
}

/* --- prompts and deliveries --------------------------------------------------------------------------------------- */

/* 10 prompts of 20 tokens, of which one finds `cached` in the cache. */
static void finds(struct attempt *a, int cached, int common)
{
    for (int i = 0; i < a->sample_count; i++) {
        a->samples[i].prompt_tokens = 20;
        a->samples[i].cached_tokens = common > 0 ? common : 0;
    }
    a->samples[7].cached_tokens = cached;
    a->workloads[0].common_tokens = common;
}

static void finds_1_percent(struct attempt *a)
{
    finds(a, 2, ATTEMPT_ABSENT);
}

static void finds_more(struct attempt *a)
{
    finds(a, 3, ATTEMPT_ABSENT);
}

static void finds_what_all_have(struct attempt *a)
{
    finds(a, 7, 5);
}

static void finds_more_than_all_have(struct attempt *a)
{
    finds(a, 8, 5);
}

static void warms_up_from_the_cache(struct attempt *a)
{
    finds(a, 20, ATTEMPT_ABSENT);
    a->samples[7].warmup = true;
}

/* Of 10 prompts of 20 tokens, as a counter says alone. */
static void counts_cached(struct attempt *a, int cached, int common)
{
    finds(a, ATTEMPT_ABSENT, common);
    for (int i = 0; i < a->sample_count; i++)
        a->samples[i].cached_tokens = ATTEMPT_ABSENT;
    observed_add_counter(&a->observed, "cached_tokens", 1000, 1000 + cached);
}

static void counts_1_percent(struct attempt *a)
{
    counts_cached(a, 2, ATTEMPT_ABSENT);
}

static void counts_more(struct attempt *a)
{
    counts_cached(a, 3, ATTEMPT_ABSENT);
}

static void counts_what_all_have(struct attempt *a)
{
    counts_cached(a, 52, 5);
}

static void counts_more_than_all_have(struct attempt *a)
{
    counts_cached(a, 53, 5);
}

/* Others may use the server as well. */
static void counts_more_than_answers_say(struct attempt *a)
{
    finds(a, 2, ATTEMPT_ABSENT);
    observed_add_counter(&a->observed, "cached_tokens", 1000, 1100);
}

static void counts_cached_of_unknown_prompts(struct attempt *a)
{
    counts_more(a);
    for (int i = 0; i < a->sample_count; i++)
        a->samples[i].prompt_tokens = ATTEMPT_ABSENT;
}

/* A token takes 500 ns; the first of them comes alone, the others in so many deliveries of 4000 ns together. */
static void delivers(struct attempt *a, int chunks)
{
    for (int i = 0; i < a->sample_count; i++) {
        struct sample *sample = &a->samples[i];
        sample->chunks = chunks + 1;
        sample->chunk_ns = xcalloc((size_t)chunks + 1, sizeof *sample->chunk_ns);
        sample->chunk_tokens = xcalloc((size_t)chunks + 1, sizeof *sample->chunk_tokens);
        for (int chunk = 0; chunk <= chunks; chunk++) {
            sample->chunk_ns[chunk] = 500 + 4000 * chunk / chunks;
            sample->chunk_tokens[chunk] = 1;
        }
        sample->chunk_tokens[chunks] += 8 - chunks;
    }
}

static void delivers_tokens(struct attempt *a)
{
    delivers(a, 8);
}

static void delivers_7_chunks(struct attempt *a)
{
    delivers(a, 7); /* 8/7 is 1.14 */
}

static void delivers_4_chunks(struct attempt *a)
{
    delivers(a, 4);
}

static void delivers_a_token_too_many(struct attempt *a)
{
    delivers(a, 8);
    a->samples[2].chunk_tokens[3] = 2;
}

static void states_chunks(struct attempt *a)
{
    a->observed.itl_ns = 8.2e6;
    a->observed.tpot_ns = 4.1e6;
}

static void states_tokens(struct attempt *a)
{
    a->observed.itl_ns = a->observed.tpot_ns = 4.1e6;
}

static const struct rule_case cases[] = {
    {"tp1-b8", dies, RULE_SERVER_DIED, RULE_INVALID, true, NAN},
    {"tp1-b8", dies_without_a_sample, RULE_SERVER_DIED, RULE_INVALID, true, NAN},
    {"tp1-b8", runs_out_of_memory, RULE_OUT_OF_MEMORY, RULE_INVALID, true, NAN},
    {"tp1-b8", falls_silent, RULE_SILENT, RULE_INVALID, true, NAN},
    {"tp1-b8", fails_for_a_reason_of_tomorrow, RULE_INCOMPLETE, RULE_INVALID, true, NAN},
    {"tp1-b8", dies_in_the_warmup, RULE_SERVER_DIED, RULE_INVALID, true, 1},
    {"tp1-b8", times_out_in_the_warmup, NO_RULE},
    {"tp1-b8", counts_on, NO_RULE},
    {"tp1-b8", counts_anew, RULE_COUNTER_RESET, RULE_INVALID, true, 31},
    {"tp1-b8", knows_no_rounds, RULE_SPEC_METRICS_MISSING, RULE_INVALID, false, 0},
    {"tp1-auto", knows_no_rounds, NO_RULE},
    {"tp1-b8", knows_rounds_of_one, NO_RULE},
    {"tp1-b8", counts_drafts, NO_RULE},
    {"tp1-b8", counts_no_drafts, RULE_SPEC_METRICS_MISSING, RULE_INVALID, false, 0},
    {"tp1-b8", counts_what_may_be, NO_RULE},
    {"tp1-b8", counts_more_than_may_be, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 9.1},
    {"tp1-auto", counts_no_drafts, NO_RULE},
    {"tp1-auto", counts_drafts, RULE_ACCEPT_OUT_OF_RANGE, RULE_INVALID, true, 30},
    {"tp1-b8-c2", has_2_slots, NO_RULE},
    {"tp1-b8-c2", has_1_slot, RULE_CONCURRENCY_CAPPED, RULE_INVALID, true, 1},
    {"tp1-b8-c2", runs_2, NO_RULE},
    {"tp1-b8-c2", runs_1, RULE_CONCURRENCY_CAPPED, RULE_INVALID, true, 1},
    {"tp1-b8", caches_enough, NO_RULE},
    {"tp1-b8", caches_too_few_tokens, RULE_CACHE_STARVED, RULE_INVALID, true, 4095},
    {"tp1-b8", caches_too_few_states, RULE_CACHE_STARVED, RULE_INVALID, true, 15},
    {"tp1-b8", caches_unknown_tokens, NO_RULE},
    {"tp1-b8", overlaps_too_much, RULE_LITTLES_LAW, RULE_INVALID, true, 10000 / 9900.},
    {"tp1-b8", overlaps_a_little, NO_RULE},
    {"tp1-b8-c2", fills_80_percent, NO_RULE},
    {"tp1-b8-c2", fills_less, RULE_LITTLES_LAW, RULE_SUSPECT, true, (9 * 800 - 10) / 4500.},
    {"tp1-b8", waits_between, NO_RULE},
    {"tp1-b8", states_a_load_of_1, NO_RULE},
    {"tp1-b8", states_a_load_above_1, RULE_LITTLES_LAW, RULE_INVALID, true, 1.02},
    {"tp1-b8", peaks_above_the_mean, NO_RULE},
    {"tp1-b8", peaks_below_the_mean, RULE_PEAK_LT_MEAN, RULE_INVALID, true, 1.8145e6},
    {"tp1-b8", peaks_at_the_stated_mean, NO_RULE},
    {"tp1-b8", peaks_below_the_stated_mean, RULE_PEAK_LT_MEAN, RULE_INVALID, true, 1e9},
    {"tp1-b8", finds_1_percent, NO_RULE},
    {"tp1-b8", finds_more, RULE_PREFIX_CACHE_HIT, RULE_INVALID, false, .015},
    {"tp1-b8", finds_what_all_have, NO_RULE},
    {"tp1-b8", finds_more_than_all_have, RULE_PREFIX_CACHE_HIT, RULE_INVALID, false, .015},
    {"tp1-b8", warms_up_from_the_cache, NO_RULE},
    {"tp1-b8", counts_1_percent, NO_RULE},
    {"tp1-b8", counts_more, RULE_PREFIX_CACHE_HIT, RULE_INVALID, true, .015},
    {"tp1-b8", counts_what_all_have, NO_RULE},
    {"tp1-b8", counts_more_than_all_have, RULE_PREFIX_CACHE_HIT, RULE_INVALID, true, .015},
    {"tp1-b8", counts_more_than_answers_say, NO_RULE},
    {"tp1-b8", counts_cached_of_unknown_prompts, NO_RULE},
    {"tp1-b8", delivers_tokens, NO_RULE},
    {"tp1-b8", delivers_7_chunks, NO_RULE},
    {"tp1-b8", delivers_4_chunks, RULE_ITL_PER_CHUNK, RULE_INVALID, false, 2},
    {"tp1-b8", delivers_a_token_too_many, RULE_TOKENS_MISMATCH, RULE_INVALID, false, 1},
    {"tp1-b8", states_chunks, RULE_ITL_PER_CHUNK, RULE_INVALID, true, 2},
    {"tp1-b8", states_tokens, NO_RULE},
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
