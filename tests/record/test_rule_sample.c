/* Rules of scope sample. */
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

static void no_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 0, 9);
    a->samples[4].asked_tokens = ATTEMPT_ABSENT;
}

static void unknown_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 0, 9);
    a->samples[4].tokens = ATTEMPT_ABSENT;
}

static void no_tokens_in_warmup(struct attempt *a)
{
    no_tokens(a);
    a->samples[4].warmup = true;
}

static void one_token(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 1, 1);
}

static void import(struct attempt *a)
{
    fixture_set_source(a, NULL, "kind", json_string("import"));
    for (int i = 0; i < FIXTURE_SAMPLES; i++) {
        a->samples[i].start_ns = (int64_t)i * 1000000000;
        a->samples[i].end_ns = (int64_t)(i + 1) * 1000000000;
    }
}

static void rounds_are(struct attempt *a, int first, int second, int third)
{
    const int rounds[3] = {first, second, third};
    fixture_set_accepted(&a->samples[5], 3, rounds);
}

static void sum_is_exact(struct attempt *a)
{
    rounds_are(a, 3, 2, 3);
}

static void sum_is_one_less(struct attempt *a)
{
    rounds_are(a, 3, 2, 2);
}

static void last_round_is_needless(struct attempt *a)
{
    rounds_are(a, 3, 5, 1);
}

static void last_round_is_just_needed(struct attempt *a)
{
    rounds_are(a, 3, 4, 9);
}

static void sum_is_one_less_import(struct attempt *a)
{
    sum_is_one_less(a);
    import(a);
}

static void sum_is_two_less_import(struct attempt *a)
{
    rounds_are(a, 3, 2, 1);
    import(a);
}

static void no_rounds_but_tokens(struct attempt *a)
{
    a->samples[5].rounds = 0;
}

static void first_delivery_is_unknown(struct attempt *a)
{
    sum_is_one_less(a);
    a->samples[5].first_tokens = ATTEMPT_ABSENT;
}

static void more_rounds_than_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[5], 9, 9);
    a->samples[5].rounds = 9;
}

static void as_many_rounds_as_tokens(struct attempt *a)
{
    fixture_set_tokens(&a->samples[5], 9, 9);
    a->samples[5].rounds = 8;
}

static void delivers_nothing(struct attempt *a)
{
    a->samples[4].first_tokens = 0;
    a->samples[4].accepted[2] = 5;
}

static void fails_delivering_nothing(struct attempt *a)
{
    delivers_nothing(a);
    a->samples[4].warmup = true;
}

static void first_token_takes_no_time(struct attempt *a)
{
    a->samples[4].ttft_ns = 0;
}

static void first_token_takes_a_nanosecond(struct attempt *a)
{
    a->samples[4].ttft_ns = 1;
}

static void time_to_first_token_is_unknown(struct attempt *a)
{
    a->samples[4].ttft_ns = ATTEMPT_ABSENT;
}

static void decoding_takes_no_time(struct attempt *a)
{
    a->samples[4].decode_ns = 0;
}

static void nothing_is_decoded_in_no_time(struct attempt *a)
{
    one_token(a);
    a->samples[4].rounds = 0;
    a->samples[4].decode_ns = 0;
}

static void ends_as_it_starts(struct attempt *a)
{
    a->samples[4].end_ns = a->samples[4].start_ns;
}

static void ends_before_it_starts(struct attempt *a)
{
    a->samples[4].end_ns = a->samples[4].start_ns - 1;
}

static void end_is_unknown(struct attempt *a)
{
    a->samples[4].end_ns = ATTEMPT_ABSENT;
}

static void holds_an_error(struct attempt *a)
{
    a->samples[4].error_message = xstrdup("overloaded");
}

static void holds_a_status_of_500(struct attempt *a)
{
    a->samples[4].error_http_status = 500;
}

static void holds_a_status_of_200(struct attempt *a)
{
    a->samples[4].error_http_status = 200;
}

static void delivers_more_than_all(struct attempt *a)
{
    fixture_set_tokens(&a->samples[4], 9, 9);
    a->samples[4].first_tokens = 10;
}

static void caches_the_whole_prompt(struct attempt *a)
{
    a->samples[4].cached_tokens = a->workloads[0].common_tokens = a->samples[4].prompt_tokens;
}

static void caches_more_than_the_prompt(struct attempt *a)
{
    a->samples[4].cached_tokens = a->workloads[0].common_tokens = a->samples[4].prompt_tokens + 1;
}

static void prompt_is_unknown(struct attempt *a)
{
    caches_more_than_the_prompt(a);
    a->samples[4].prompt_tokens = ATTEMPT_ABSENT;
}

static const struct rule_case cases[] = {
    {"tp1-b8", nothing, NO_RULE},
    {"tp1-b8", no_tokens, RULE_ZERO_TOKENS, RULE_INVALID, false, 1},
    {"tp1-b8", unknown_tokens, RULE_ZERO_TOKENS, RULE_INVALID, false, 1},
    {"tp1-b8", no_tokens_in_warmup, NO_RULE},
    {"tp1-b8", one_token, NO_RULE},
    {"tp1-b8", sum_is_exact, NO_RULE},
    {"tp1-b8", sum_is_one_less, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", last_round_is_needless, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", last_round_is_just_needed, NO_RULE},
    {"tp1-b8", sum_is_one_less_import, NO_RULE},
    {"tp1-b8", sum_is_two_less_import, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", no_rounds_but_tokens, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", first_delivery_is_unknown, NO_RULE},
    {"tp1-b8", more_rounds_than_tokens, RULE_ACCEPT_SUM, RULE_INVALID, false, 1},
    {"tp1-b8", as_many_rounds_as_tokens, NO_RULE},
    {"tp1-b8", import, NO_RULE},
    {"tp1-b8", delivers_nothing, RULE_EMPTY_STREAM, RULE_INVALID, false, 1},
    {"tp1-b8", fails_delivering_nothing, NO_RULE},
    {"tp1-b8", first_token_takes_no_time, RULE_ZERO_LATENCY, RULE_INVALID, false, 1},
    {"tp1-b8", first_token_takes_a_nanosecond, NO_RULE},
    {"tp1-b8", time_to_first_token_is_unknown, NO_RULE},
    {"tp1-b8", decoding_takes_no_time, RULE_ZERO_LATENCY, RULE_INVALID, false, 1},
    {"tp1-b8", nothing_is_decoded_in_no_time, NO_RULE},
    {"tp1-b8", ends_as_it_starts, RULE_ZERO_LATENCY, RULE_INVALID, false, 1},
    {"tp1-b8", ends_before_it_starts, RULE_CLOCK, RULE_INVALID, false, 1},
    {"tp1-b8", end_is_unknown, NO_RULE},
    {"tp1-b8", holds_an_error, RULE_INBAND_ERROR, RULE_INVALID, false, 1},
    {"tp1-b8", holds_a_status_of_500, RULE_INBAND_ERROR, RULE_INVALID, false, 1},
    {"tp1-b8", holds_a_status_of_200, NO_RULE},
    {"tp1-b8", delivers_more_than_all, RULE_TOKENS_MISMATCH, RULE_INVALID, false, 1},
    {"tp1-b8", caches_the_whole_prompt, NO_RULE},
    {"tp1-b8", caches_more_than_the_prompt, RULE_TOKENS_MISMATCH, RULE_INVALID, false, 1},
    {"tp1-b8", prompt_is_unknown, NO_RULE},
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
