#include "render/summary_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int summary_read_array(const json_t *array, const char *where, const char *key, size_t size, summary_read_element *read,
                       struct summary *summary, void *items, int *count, struct error *error)
{
    size_t length = json_array_size(array);
    char *bytes = xcalloc(length, size);
    memcpy(items, &bytes, sizeof bytes);
    *count = (int)length;
    int result = 0;
    for (size_t i = 0; i < length && !result; i++) {
        char *place = xformat("%s: %s[%zu]", where, key, i);
        result = read(json_array_get(array, i), place, summary, bytes + i * size, error);
        free(place);
    }
    return result;
}

int summary_read_inner(const json_t *object, const char *where, const char *key, const struct json_field *fields,
                       struct error *error)
{
    const json_t *inner = json_object_get(object, key);
    if (!inner || json_is_null(inner))
        return 0;
    char *place = xformat("%s: \"%s\"", where, key);
    int result = json_read_fields(inner, place, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
    free(place);
    return result;
}

static int check_positive(const char *where, const char *key, double value, struct error *error)
{
    return value < 1 / SUMMARY_NUMBER_LIMIT
               ? fail(error, "%s: \"%s\" and its limits must be above 0; run analyze again", where, key)
               : 0;
}

static int read_interval(const json_t *object, const char *where, const struct interval_field *field,
                         struct error *error)
{
    struct interval *interval = field->to;
    *interval = (struct interval){.value = NAN, .low = NAN, .high = NAN};
    const struct json_field fields[] = {
        {"value", JSON_FIELD_DOUBLE, &interval->value, true, -SUMMARY_NUMBER_LIMIT, SUMMARY_NUMBER_LIMIT},
        {"low", JSON_FIELD_DOUBLE, &interval->low, false, -SUMMARY_NUMBER_LIMIT, SUMMARY_NUMBER_LIMIT},
        {"high", JSON_FIELD_DOUBLE, &interval->high, false, -SUMMARY_NUMBER_LIMIT, SUMMARY_NUMBER_LIMIT},
        {"n", JSON_FIELD_INT, &interval->n, true, 0, 1e9},
        {"over", JSON_FIELD_STRING, &interval->over, false, 0, 0},
        {0},
    };
    if (summary_read_inner(object, where, field->key, fields, error))
        return -1;
    interval->present = isfinite(interval->value);
    if (isnan(interval->low) != isnan(interval->high))
        return fail(error, "%s: \"%s\" has one limit without the other; run analyze again", where, field->key);
    if (interval->low > interval->value || interval->value > interval->high)
        return fail(error, "%s: \"%s\" lies outside its own interval; run analyze again", where, field->key);
    if (field->positive && (check_positive(where, field->key, interval->value, error) ||
                            check_positive(where, field->key, interval->low, error)))
        return -1;
    return 0;
}

int summary_read_intervals(const json_t *object, const char *where, const struct interval_field *fields,
                           struct error *error)
{
    for (; fields->key; fields++)
        if (read_interval(object, where, fields, error))
            return -1;
    return 0;
}

int summary_read_limits(const json_t *object, const char *where, const char *key, bool positive, struct limits *limits,
                        struct error *error)
{
    *limits = (struct limits){NAN, NAN};
    const struct json_field fields[] = {
        {"low", JSON_FIELD_DOUBLE, &limits->low, false, -SUMMARY_NUMBER_LIMIT, SUMMARY_NUMBER_LIMIT},
        {"high", JSON_FIELD_DOUBLE, &limits->high, false, -SUMMARY_NUMBER_LIMIT, SUMMARY_NUMBER_LIMIT},
        {0},
    };
    if (summary_read_inner(object, where, key, fields, error))
        return -1;
    if (limits->low > limits->high)
        return fail(error, "%s: \"%s\": \"low\" is above \"high\"; run analyze again", where, key);
    return positive ? check_positive(where, key, fmin(limits->low, limits->high), error) : 0;
}

int summary_read_missing(const json_t *object, const char *where, const char *key, struct missing *missing,
                         struct error *error)
{
    *missing = (struct missing){0};
    const struct json_field fields[] = {
        {"rule", JSON_FIELD_STRING, &missing->rule, true, 0, 0},
        {"detail", JSON_FIELD_STRING, &missing->detail, false, 0, 0},
        {0},
    };
    return summary_read_inner(object, where, key, fields, error);
}

int summary_read_without(const json_t *object, const char *where, struct without *without, const json_t **inner,
                         struct error *error)
{
    *without = (struct without){0};
    *inner = json_object_get(object, "without_suspect");
    without->present = json_is_object(*inner);
    const json_t *attempts = NULL;
    const struct json_field fields[] = {
        {"rules", JSON_FIELD_ARRAY, &without->rules, false, 0, 0},
        {"attempts", JSON_FIELD_ARRAY, &attempts, false, 0, 0},
        {0},
    };
    if (summary_read_inner(object, where, "without_suspect", fields, error))
        return -1;
    without->attempts = (int)json_array_size(attempts);
    return summary_check_strings(without->rules, where, "without_suspect", error);
}

int summary_read_arm_name(const struct summary *summary, const char *where, const char *name, int *arm,
                          struct error *error)
{
    for (*arm = 0; *arm < summary->arm_count; (*arm)++)
        if (strcmp(summary->arms[*arm].name, name) == 0)
            return 0;
    return fail(error, "%s: \"arms\" has no arm \"%s\"; run analyze again", where, name);
}

int summary_read_workload_name(const struct summary *summary, const char *where, const char *name, int *workload,
                               struct error *error)
{
    for (*workload = 0; *workload < summary->workload_count; (*workload)++)
        if (strcmp(summary->workloads[*workload].name, name) == 0)
            return 0;
    return fail(error, "%s: \"workloads\" has no workload \"%s\"; run analyze again", where, name);
}

int summary_check_strings(const json_t *array, const char *where, const char *key, struct error *error)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_string(json_array_get(array, i)))
            return fail(error, "%s: \"%s\" must hold rule ids; run analyze again", where, key);
    return 0;
}

int summary_check_counts(const json_t *array, const char *where, const char *key, int most, struct error *error)
{
    size_t i;
    const json_t *value;
    json_array_foreach(array, i, value)
    {
        json_int_t count = json_integer_value(value);
        if (!json_is_integer(value) || count < 1 || count > most)
            return fail(error, "%s: \"%s\"[%zu] must be an integer from 1 to %d", where, key, i, most);
    }
    return 0;
}
