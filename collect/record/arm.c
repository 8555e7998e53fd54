#include "collect/record/arm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARM_COUNT_MAXIMUM 99999 /* of ranks, and of concurrent requests: the longest name still fits */

const char *const method_names[METHOD_COUNT] = {
    [METHOD_AUTO] = "auto", [METHOD_LINEAR] = "linear", [METHOD_DDTREE] = "ddtree"};

/* What stands before the budget in the name of an arm of such a method. */
static const char *const budget_letters[METHOD_COUNT] = {[METHOD_DDTREE] = "b"};

bool method_has_budget(enum method method)
{
    return budget_letters[method];
}

const char *arm_method_label(const struct arm *arm, char *name)
{
    char *at = name, *end = name + ARM_NAME_SIZE;
    if (method_has_budget(arm->method))
        at += snprintf(at, (size_t)(end - at), "%s%d", budget_letters[arm->method], arm->budget);
    else
        at += snprintf(at, (size_t)(end - at), "%s", method_names[arm->method]);
    if (arm->concurrency > 1)
        snprintf(at, (size_t)(end - at), "-c%d", arm->concurrency);
    return name;
}

const char *arm_name(const struct arm *arm, char *name)
{
    char label[ARM_NAME_SIZE];
    snprintf(name, ARM_NAME_SIZE, "tp%d-%.20s", arm->tensor_parallel, arm_method_label(arm, label));
    return name;
}

/* Reads prefix and number at *at and moves behind them. */
static bool parse_count(const char **at, const char *prefix, int maximum, int *count)
{
    size_t length = strlen(prefix);
    if (strncmp(*at, prefix, length) != 0)
        return false;
    char *end;
    long value = strtol(*at + length, &end, 10);
    if (value < 1 || value > maximum)
        return false;
    *count = (int)value;
    *at = end;
    return true;
}

static bool parse_method(const char **at, struct arm *arm)
{
    for (int method = 0; method < METHOD_COUNT; method++) {
        size_t length = strlen(method_names[method]);
        arm->method = (enum method)method;
        if (method_has_budget(arm->method)) {
            if (parse_count(at, budget_letters[method], ARM_BUDGET_MAXIMUM, &arm->budget))
                return true;
        } else if (strncmp(*at, method_names[method], length) == 0) {
            *at += length;
            return true;
        }
    }
    return false;
}

bool arm_parse(const char *name, struct arm *arm)
{
    struct arm parsed = {.concurrency = 1};
    const char *at = name;
    if (!parse_count(&at, "tp", ARM_COUNT_MAXIMUM, &parsed.tensor_parallel) || *at++ != '-' ||
        !parse_method(&at, &parsed))
        return false;
    if (*at && !parse_count(&at, "-c", ARM_COUNT_MAXIMUM, &parsed.concurrency))
        return false;
    /* One spelling for each arm: "tp01-auto" and "tp1-auto-c1" are nobody's names. */
    char canonical[ARM_NAME_SIZE];
    if (strcmp(arm_name(&parsed, canonical), name) != 0)
        return false;
    *arm = parsed;
    return true;
}

bool arm_equal(const struct arm *a, const struct arm *b)
{
    return a->tensor_parallel == b->tensor_parallel && a->method == b->method && a->budget == b->budget &&
           a->concurrency == b->concurrency;
}
