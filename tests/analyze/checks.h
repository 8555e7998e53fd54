/* Summaries of campaigns, and what is asked of their numbers. What is not as asked for fails the test. */
#ifndef TESTS_ANALYZE_CHECKS_H
#define TESTS_ANALYZE_CHECKS_H

#include "tests/analyze/campaign.h"

#include <jansson.h>

/* Reads the campaign and answers its summary. */
json_t *check_build(struct campaign *campaign);

/* The element of summary[list] whose keys have these values. baseline NULL: any; workload NULL: null. */
const json_t *check_find(const json_t *summary, const char *list, const char *arm, const char *baseline,
                         const char *workload);
const json_t *check_cell(const json_t *summary, const char *arm, const char *workload);

/* Within 1e-6, relative. */
void check_number(const json_t *object, const char *key, double expected);
void check_null(const json_t *object, const char *key);
void check_interval(const json_t *object, const char *key, double value, double low, double high);

#endif
