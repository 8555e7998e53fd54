/* Rules of scope workload. */
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

static void one_fails(struct attempt *a)
{
    fixture_fail_sample(&a->samples[2], "TIMEOUT");
}

static void warmup_fails(struct attempt *a)
{
    one_fails(a);
    a->samples[2].warmup = true;
}

static void asks_50(struct attempt *a, int tokens)
{
    fixture_set_tokens(&a->samples[1], tokens, 50);
    a->samples[1].finish = FINISH_LENGTH;
}

static void emits_48_of_50(struct attempt *a)
{
    asks_50(a, 48);
}

static void emits_49_of_50(struct attempt *a)
{
    asks_50(a, 49);
}

static void stops_at_an_end_token(struct attempt *a)
{
    asks_50(a, 5);
    a->samples[1].finish = FINISH_STOP;
    a->samples[1].asked_ignore_eos = false;
}

static void stops_though_it_must_not(struct attempt *a)
{
    stops_at_an_end_token(a);
    a->samples[1].asked_ignore_eos = true;
}

static void is_short_without_a_reason(struct attempt *a)
{
    stops_at_an_end_token(a);
    a->samples[1].finish = FINISH_ABSENT;
}

static void asks_for_nothing_known(struct attempt *a)
{
    asks_50(a, 3);
    a->samples[1].asked_tokens = ATTEMPT_ABSENT;
}

static void emits_51_of_50(struct attempt *a)
{
    asks_50(a, 51);
}

static void emits_52_of_50(struct attempt *a)
{
    asks_50(a, 52);
}

static void stops_but_late(struct attempt *a)
{
    stops_at_an_end_token(a);
    fixture_set_tokens(&a->samples[1], 52, 50);
}

/* Of 40 tokens the last `covered` have a period of `period`. */
static void repeat(struct sample *sample, int covered, int period)
{
    fixture_set_tokens(sample, 40, 40);
    for (int i = 40 - covered + period; i < 40; i++)
        sample->token_ids[i] = sample->token_ids[i - period];
}

static void one_repeats(struct attempt *a)
{
    repeat(&a->samples[0], 40, 1);
}

static void two_repeat_a_quarter(struct attempt *a)
{
    repeat(&a->samples[0], 10, 3);
    repeat(&a->samples[1], 40, 1);
}

static void two_repeat_less(struct attempt *a)
{
    repeat(&a->samples[0], 9, 3);
    repeat(&a->samples[1], 9, 1);
}

static void two_repeat_but_not_thrice(struct attempt *a)
{
    repeat(&a->samples[0], 11, 4);
    repeat(&a->samples[1], 29, 10);
}

static void two_repeat_thrice(struct attempt *a)
{
    repeat(&a->samples[0], 12, 4);
    repeat(&a->samples[1], 30, 10);
}

/* Every sample has 20 tokens; `past` of the first one's stand behind an end token. */
static void writes_past_end(struct attempt *a, int past)
{
    fixture_set_source(a, NULL, "target", json_pack("{s:[i,i]}", "end_tokens", 5, 7));
    for (int i = 0; i < FIXTURE_SAMPLES; i++)
        fixture_set_tokens(&a->samples[i], 20, 20);
    a->samples[0].token_ids[19 - past] = 7;
}

static void writes_5_percent_past_end(struct attempt *a)
{
    writes_past_end(a, 10);
}

static void writes_more_past_end(struct attempt *a)
{
    writes_past_end(a, 11);
}

static void writes_past_end_twice(struct attempt *a)
{
    writes_past_end(a, 11);
    a->samples[0].token_ids[19] = 5;
}

static void writes_past_another_end(struct attempt *a)
{
    writes_past_end(a, 11);
    fixture_set_source(a, NULL, "target", json_pack("{s:[i]}", "end_tokens", 6));
}

static void writes_past_an_unknown_end(struct attempt *a)
{
    writes_past_end(a, 11);
    fixture_set_source(a, NULL, "target", json_pack("{}"));
}

static const struct rule_case cases[] = {
    {"tp1-b8", nothing, NO_RULE},
    {"tp1-b8", one_fails, RULE_FAILED_REQUEST, RULE_INVALID, false, .1},
    {"tp1-b8", warmup_fails, NO_RULE},
    {"tp1-b8", emits_48_of_50, RULE_OUTPUT_SHORT, RULE_INVALID, false, .96},
    {"tp1-b8", emits_49_of_50, NO_RULE},
    {"tp1-b8", stops_at_an_end_token, NO_RULE},
    {"tp1-b8", stops_though_it_must_not, RULE_OUTPUT_SHORT, RULE_INVALID, false, .1},
    {"tp1-b8", is_short_without_a_reason, RULE_OUTPUT_SHORT, RULE_INVALID, false, .1},
    {"tp1-b8", asks_for_nothing_known, NO_RULE},
    {"tp1-auto", one_repeats, NO_RULE},
    {"tp1-auto", two_repeat_a_quarter, RULE_REPETITION, RULE_SUSPECT, false, .2},
    {"tp1-auto", two_repeat_less, NO_RULE},
    {"tp1-auto", two_repeat_but_not_thrice, NO_RULE},
    {"tp1-auto", two_repeat_thrice, RULE_REPETITION, RULE_SUSPECT, false, .2},
    {"tp1-b8", two_repeat_a_quarter, NO_RULE},
    {"tp1-b8", emits_51_of_50, NO_RULE},
    {"tp1-b8", emits_52_of_50, RULE_OUTPUT_LONG, RULE_INVALID, false, 1.04},
    {"tp1-b8", stops_but_late, RULE_OUTPUT_LONG, RULE_INVALID, false, 1.04},
    {"tp1-auto", writes_5_percent_past_end, NO_RULE},
    {"tp1-auto", writes_more_past_end, RULE_PAST_EOS, RULE_SUSPECT, false, .055},
    {"tp1-auto", writes_past_end_twice, RULE_PAST_EOS, RULE_SUSPECT, false, .055},
    {"tp1-auto", writes_past_another_end, NO_RULE},
    {"tp1-auto", writes_past_an_unknown_end, NO_RULE},
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
