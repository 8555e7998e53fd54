/* Cases that break a rule of one attempt, and cases beside them that just do not. */
#ifndef TESTS_RECORD_RULE_CASES_H
#define TESTS_RECORD_RULE_CASES_H

#include "collect/record/rule.h"

#include <stddef.h>

#define NO_RULE RULE_COUNT

struct rule_case {
    const char *arm;
    void (*change)(struct attempt *attempt); /* what is done to an attempt that is well */
    enum rule_id rule;                       /* the only one that fires; NO_RULE: none does */
    enum rule_level level;
    bool whole; /* of the whole attempt, not of a workload */
    double observed;
};

void rule_cases_check(const struct rule_case *cases, size_t count);

#endif
