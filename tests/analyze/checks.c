#include "tests/analyze/checks.h"

#include "analyze/summary.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

json_t *check_build(struct campaign *campaign)
{
    struct error error = {0};
    campaign_read(campaign);
    json_t *summary = summary_build(&campaign->run, &campaign->plan, &error);
    if (!summary)
        fail_msg("%s", error.message);
    return summary;
}

const json_t *check_find(const json_t *summary, const char *list, const char *arm, const char *baseline,
                         const char *workload)
{
    const json_t *array = json_object_get(summary, list);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        const char *of_item = json_string_value(json_object_get(item, "workload"));
        const char *over = json_string_value(json_object_get(item, "baseline"));
        if (strcmp(json_string_value(json_object_get(item, "arm")), arm) == 0 &&
            (baseline ? over && strcmp(over, baseline) == 0 : true) &&
            (workload ? of_item && strcmp(of_item, workload) == 0 : !of_item))
            return item;
    }
    fail_msg("no %s of %s on %s", list, arm, workload ? workload : "all workloads");
    return NULL;
}

const json_t *check_cell(const json_t *summary, const char *arm, const char *workload)
{
    return check_find(summary, "cells", arm, NULL, workload);
}

void check_number(const json_t *object, const char *key, double expected)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) || !(fabs(json_number_value(value) - expected) <= 1e-6 * (1 + fabs(expected))))
        fail_msg("\"%s\" is %.9g, not %.9g", key, json_number_value(value), expected);
}

void check_null(const json_t *object, const char *key)
{
    if (!json_is_null(json_object_get(object, key)))
        fail_msg("\"%s\" is not null", key);
}

void check_interval(const json_t *object, const char *key, double value, double low, double high)
{
    const json_t *interval = json_object_get(object, key);
    check_number(interval, "value", value);
    check_number(interval, "low", low);
    check_number(interval, "high", high);
}
