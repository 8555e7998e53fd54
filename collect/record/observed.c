#include "collect/record/observed.h"

#include "collect/base/json.h"
#include "collect/record/attempt.h"
#include "collect/record/sample.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MAXIMUM 1e12
enum { COUNTERS_MAXIMUM = 256 };

static const struct {
    const char *key;
    enum json_field_type type;
    size_t offset;
    double maximum;
} members[] = {
    {"slots", JSON_FIELD_INT, offsetof(struct observed, slots), SAMPLE_TOKENS_MAXIMUM},
    {"running_max", JSON_FIELD_INT, offsetof(struct observed, running_max), SAMPLE_TOKENS_MAXIMUM},
    {"cache_tokens", JSON_FIELD_INT64, offsetof(struct observed, cache_tokens), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"cache_tokens_needed", JSON_FIELD_INT64, offsetof(struct observed, cache_tokens_needed),
     (double)SAMPLE_TIME_MAXIMUM_NS},
    {"cache_slots", JSON_FIELD_INT, offsetof(struct observed, cache_slots), SAMPLE_TOKENS_MAXIMUM},
    {"cache_slots_needed", JSON_FIELD_INT, offsetof(struct observed, cache_slots_needed), SAMPLE_TOKENS_MAXIMUM},
    {"prefix_cache_flushed", JSON_FIELD_INT, offsetof(struct observed, prefix_cache_flushed), 1},
    {"client_cpu_share", JSON_FIELD_DOUBLE, offsetof(struct observed, client_cpu_share), 1e6},
    {"completed", JSON_FIELD_INT, offsetof(struct observed, completed), SAMPLE_TOKENS_MAXIMUM},
    {"requests", JSON_FIELD_INT, offsetof(struct observed, requests), SAMPLE_TOKENS_MAXIMUM},
    {"cancelled", JSON_FIELD_INT, offsetof(struct observed, cancelled), SAMPLE_TOKENS_MAXIMUM},
    {"prompt_tokens", JSON_FIELD_INT64, offsetof(struct observed, prompt_tokens), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"duration_ns", JSON_FIELD_INT64, offsetof(struct observed, duration_ns), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"requests_per_s", JSON_FIELD_DOUBLE, offsetof(struct observed, requests_per_s), RATE_MAXIMUM},
    {"tokens_per_s", JSON_FIELD_DOUBLE, offsetof(struct observed, tokens_per_s), RATE_MAXIMUM},
    {"peak_tokens_per_s", JSON_FIELD_DOUBLE, offsetof(struct observed, peak_tokens_per_s), RATE_MAXIMUM},
    {"itl_ns", JSON_FIELD_DOUBLE, offsetof(struct observed, itl_ns), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"tpot_ns", JSON_FIELD_DOUBLE, offsetof(struct observed, tpot_ns), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"e2e_ns", JSON_FIELD_DOUBLE, offsetof(struct observed, e2e_ns), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"ttft_ns", JSON_FIELD_DOUBLE, offsetof(struct observed, ttft_ns), (double)SAMPLE_TIME_MAXIMUM_NS},
    {"accept_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), SAMPLE_ACCEPTED_MAXIMUM},
};
enum { MEMBER_COUNT = sizeof members / sizeof *members };

static void *member_of(const struct observed *observed, int index)
{
    return (char *)observed + members[index].offset;
}

void observed_init(struct observed *observed)
{
    *observed = (struct observed){0};
    for (int i = 0; i < MEMBER_COUNT; i++)
        if (members[i].type == JSON_FIELD_INT)
            *(int *)member_of(observed, i) = ATTEMPT_ABSENT;
        else if (members[i].type == JSON_FIELD_INT64)
            *(int64_t *)member_of(observed, i) = ATTEMPT_ABSENT;
        else
            *(double *)member_of(observed, i) = NAN;
}

void observed_free(struct observed *observed)
{
    for (int i = 0; i < observed->counter_count; i++)
        free(observed->counters[i].name);
    free(observed->counters);
    observed_init(observed);
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

void observed_add_counter(struct observed *observed, const char *name, double before, double after)
{
    observed->counters = xrealloc(observed->counters, (size_t)observed->counter_count + 1, sizeof *observed->counters);
    observed->counters[observed->counter_count++] = (struct observed_counter){xstrdup(name), before, after};
}

double observed_growth(const struct observed *observed, const char *name)
{
    for (int i = 0; i < observed->counter_count; i++)
        if (strcmp(observed->counters[i].name, name) == 0)
            return observed->counters[i].after - observed->counters[i].before;
    return NAN;
}

static json_t *counters_to_json(const struct observed *observed)
{
    json_t *object = json_object();
    for (int i = 0; i < observed->counter_count; i++) {
        const struct observed_counter *counter = &observed->counters[i];
        json_t *pair = json_array();
        json_append(pair, json_number(counter->before));
        json_append(pair, json_number(counter->after));
        json_set(object, counter->name, pair);
    }
    return object;
}

static int read_counters(const json_t *object, const char *where, struct observed *observed, struct error *error)
{
    const char *name;
    json_t *pair;
    if (json_object_size(object) > COUNTERS_MAXIMUM)
        return fail(error, "%s: %zu \"counters\"; %d is the most", where, json_object_size(object), COUNTERS_MAXIMUM);
    json_object_foreach((json_t *)object, name, pair)
    {
        const json_t *before = json_array_get(pair, 0), *after = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_number(before) || !json_is_number(after))
            return fail(error, "%s: counter \"%s\" must be two numbers, before and after", where, name);
        observed_add_counter(observed, name, json_number_value(before), json_number_value(after));
    }
    return 0;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static json_t *member_to_json(const struct observed *observed, int index)
{
    const void *from = member_of(observed, index);
    if (members[index].type == JSON_FIELD_DOUBLE)
        return isnan(*(const double *)from) ? NULL : json_number(*(const double *)from);
    const int64_t value = members[index].type == JSON_FIELD_INT ? *(const int *)from : *(const int64_t *)from;
    return value < 0 ? NULL : json_integer(value);
}

json_t *observed_to_json(const struct observed *observed)
{
    json_t *object = json_object();
    for (int i = 0; i < MEMBER_COUNT; i++) {
        json_t *value = member_to_json(observed, i);
        if (value)
            json_set(object, members[i].key, value);
    }
    if (observed->counter_count)
        json_set(object, "counters", counters_to_json(observed));
    if (json_object_size(object))
        return object;
    json_decref(object);
    return NULL;
}

int observed_from_json(const json_t *object, const char *where, struct observed *observed, struct error *error)
{
    const json_t *counters = NULL;
    struct json_field fields[MEMBER_COUNT + 2] = {0};
    observed_init(observed);
    for (int i = 0; i < MEMBER_COUNT; i++)
        fields[i] =
            (struct json_field){members[i].key, members[i].type, member_of(observed, i), .maximum = members[i].maximum};
    fields[MEMBER_COUNT] = (struct json_field){"counters", JSON_FIELD_OBJECT, &counters};
    if (!object)
        return 0;
    return json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
                   read_counters(counters, where, observed, error)
               ? -1
               : 0;
}
