#include "tests/record/rule_cases.h"

#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check_verdict(const struct verdict *verdict, const struct rule_case *expected)
{
    assert_string_equal(rule_table[verdict->rule].id, rule_table[expected->rule].id);
    assert_int_equal(verdict->level, expected->level);
    assert_int_equal(verdict->workload == NULL, expected->whole);
    if (!(isnan(expected->observed) ? isnan(verdict->observed) : verdict->observed == expected->observed))
        fail_msg("%s: %.17g observed", verdict->detail, verdict->observed);
    assert_null(strpbrk(verdict->detail, "\n\r\t"));
}

void rule_cases_check(const struct rule_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct attempt attempt;
        struct verdicts verdicts = {0};
        fixture_build(&attempt, cases[i].arm);
        cases[i].change(&attempt);
        rule_judge_attempt(&attempt, NULL, &verdicts);
        if (verdicts.count != (cases[i].rule != NO_RULE))
            fail_msg("case %zu: %d verdicts, first: %s", i, verdicts.count,
                     verdicts.count ? verdicts.items[0].detail : "none");
        if (verdicts.count)
            check_verdict(&verdicts.items[0], &cases[i]);
        verdicts_free(&verdicts);
        attempt_free(&attempt);
    }
}
