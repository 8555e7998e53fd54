#include "collect/record/attempt.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/record/sample.h"
#include "collect/record/sample_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 30)
#define LINE_LIMIT ((size_t)64 << 20)
#define COUNT_MAXIMUM 1000000 /* of positions, ranks and requests at once */
#define WORKLOADS_MAXIMUM 256

/* --- the header --------------------------------------------------------------------------------------------------- */

static int read_method(const char *name, const char *where, enum method *method, struct error *error)
{
    for (int i = 0; i < METHOD_COUNT; i++)
        if (strcmp(name, method_names[i]) == 0) {
            *method = (enum method)i;
            return 0;
        }
    return fail(error, "%s: arm: \"method\" is \"%s\"; it must be \"auto\", \"linear\" or \"ddtree\"", where, name);
}

static int read_arm(const json_t *object, const char *where, struct arm *arm, struct error *error)
{
    const char *name = NULL, *method = NULL;
    *arm = (struct arm){.concurrency = 1};
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &name, .required = true},
        {"tensor_parallel", JSON_FIELD_INT, &arm->tensor_parallel, true, 1, COUNT_MAXIMUM},
        {"method", JSON_FIELD_STRING, &method, .required = true},
        {"budget", JSON_FIELD_INT, &arm->budget, false, 1, ARM_BUDGET_MAXIMUM},
        {"concurrency", JSON_FIELD_INT, &arm->concurrency, true, 1, COUNT_MAXIMUM},
        {0},
    };
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_method(method, where, &arm->method, error))
        return -1;
    struct arm named;
    if (!arm_parse(name, &named) || !arm_equal(&named, arm))
        return fail(error, "%s: arm \"%s\" is not named after its method, budget, ranks and concurrency", where, name);
    return 0;
}

/* What names things in lists and messages. */
static int check_name(const char *name, const char *where, const char *what, struct error *error)
{
    return is_printable(name) ? 0 : fail(error, "%s: %s \"%s\" holds control characters", where, what, name);
}

static int read_workloads(const json_t *object, const char *where, struct attempt *attempt, struct error *error)
{
    size_t count = json_object_size(object);
    if (count < 1 || count > WORKLOADS_MAXIMUM)
        return fail(error, "%s: \"workloads\" has %zu entries; it must have 1 to %d", where, count, WORKLOADS_MAXIMUM);
    attempt->workloads = xcalloc(count, sizeof *attempt->workloads);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const char *cell = NULL, *compare = NULL;
        int common_tokens = ATTEMPT_ABSENT;
        const struct json_field fields[] = {
            {"cell_hash", JSON_FIELD_STRING, &cell, .required = true},
            {"compare_hash", JSON_FIELD_STRING, &compare, .required = true},
            {"common_tokens", JSON_FIELD_INT, &common_tokens, .maximum = SAMPLE_TOKENS_MAXIMUM},
            {0},
        };
        if (check_name(name, where, "workload", error) ||
            json_read_fields(value, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
            return -1;
        attempt->workloads[attempt->workload_count++] =
            (struct attempt_workload){name_keep(name), xstrdup(cell), xstrdup(compare), common_tokens};
    }
    return 0;
}

static bool is_import(const json_t *source)
{
    const char *kind = json_string_value(json_object_get(source, "kind"));
    return kind && strcmp(kind, ATTEMPT_IMPORT_KIND) == 0;
}

static int read_header(json_t *line, const char *where, struct attempt *attempt, struct error *error)
{
    const char *type = NULL, *schema = NULL, *id = NULL, *started = NULL, *boot_id = NULL;
    const json_t *arm = NULL, *workloads = NULL, *source = NULL, *machine = NULL, *memory = NULL;
    const struct json_field fields[] = {
        {"type", JSON_FIELD_STRING, &type, .required = true},
        {"schema", JSON_FIELD_STRING, &schema, .required = true},
        {"id", JSON_FIELD_STRING, &id, .required = true},
        {"arm", JSON_FIELD_OBJECT, &arm, .required = true},
        {"block", JSON_FIELD_INT, &attempt->block, true, 1, ATTEMPT_BLOCK_MAXIMUM},
        {"try", JSON_FIELD_INT, &attempt->try_number, true, 1, ATTEMPT_TRY_MAXIMUM},
        {"position", JSON_FIELD_INT, &attempt->position, false, 1, COUNT_MAXIMUM},
        {"started", JSON_FIELD_STRING, &started},
        {"boot_id", JSON_FIELD_STRING, &boot_id},
        {"workloads", JSON_FIELD_OBJECT, &workloads, .required = true},
        {"source", JSON_FIELD_OBJECT, &source},
        {"machine", JSON_FIELD_OBJECT, &machine},
        {"memory", JSON_FIELD_OBJECT, &memory},
        {0},
    };
    if (json_read_fields(line, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    if (strcmp(type, "attempt") != 0 || strcmp(schema, ATTEMPT_SCHEMA) != 0)
        return fail(error, "%s: type \"%s\", schema \"%s\"; this version reads type \"attempt\", schema \"%s\"", where,
                    type, schema, ATTEMPT_SCHEMA);
    if (!started && !is_import(source))
        return fail(error, "%s: \"started\" is missing; only what was imported may lack it", where);
    if (started && clock_parse_utc(started) < 0)
        return fail(error, "%s: \"started\" is \"%s\"; it must look like 2026-11-29T17:35:51Z", where, started);
    if (check_name(id, where, "id", error) || read_arm(arm, where, &attempt->arm, error) ||
        read_workloads(workloads, where, attempt, error))
        return -1;
    attempt->id = xstrdup(id);
    attempt->started = started ? xstrdup(started) : NULL;
    attempt->boot_id = boot_id ? xstrdup(boot_id) : NULL;
    attempt->header = json_incref(line);
    return 0;
}

/* --- the other lines ---------------------------------------------------------------------------------------------- */

/* The attempt as far as it was read. */
struct reader {
    struct attempt *attempt;
    int line_number, capacity, telemetry_capacity, failed;
};

/* The place of the next sample. */
static struct sample *next_place(struct reader *reader)
{
    struct attempt *attempt = reader->attempt;
    if (attempt->sample_count == reader->capacity) {
        reader->capacity = reader->capacity ? 2 * reader->capacity : 64;
        attempt->samples = xrealloc(attempt->samples, (size_t)reader->capacity, sizeof *attempt->samples);
    }
    return &attempt->samples[attempt->sample_count];
}

static int read_sample(const json_t *line, const char *where, struct reader *reader, struct error *error)
{
    struct attempt *attempt = reader->attempt;
    struct sample *sample = next_place(reader);
    if (sample_from_json(line, where, sample, error))
        return -1;
    attempt->sample_count++;
    reader->failed += !sample->ok;
    if (!attempt_find_workload(attempt, sample->workload))
        return fail(error, "%s: workload \"%s\" is not among those of the file's first line", where, sample->workload);
    return 0;
}

/* Whether the line is a good sample as they are written here, without asking the parser. */
static bool scan_sample(const char *text, size_t size, struct reader *reader)
{
    struct attempt *attempt = reader->attempt;
    struct sample *sample = next_place(reader);
    if (attempt->end_status || !sample_scan(text, size, sample))
        return false;
    if (!attempt_find_workload(attempt, sample->workload)) {
        sample_free(sample);
        return false;
    }
    attempt->sample_count++;
    return true;
}

/* Whether the list has one of the NULL-terminated names. */
static bool lists_any(const json_t *list, const char *const *names)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        for (const char *const *name = names; *name; name++)
            if (json_is_string(json_array_get(list, i)) &&
                strcmp(json_string_value(json_array_get(list, i)), *name) == 0)
                return true;
    return false;
}

static int read_telemetry(const json_t *line, const char *where, struct reader *reader, struct error *error)
{
    static const char *const slowdowns[] = {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
                                            "sw_thermal_slowdown", NULL};
    static const char *const power_caps[] = {"sw_power_cap", NULL};
    struct attempt *attempt = reader->attempt;
    struct telemetry telemetry = {.time_ns = ATTEMPT_ABSENT,
                                  .clock_mhz = NAN,
                                  .temperature_c = NAN,
                                  .power_w = NAN,
                                  .memory_bytes = NAN,
                                  .energy_j = NAN};
    const json_t *throttle = NULL;
    const struct json_field fields[] = {
        {"time_ns", JSON_FIELD_INT64, &telemetry.time_ns, .maximum = (double)SAMPLE_TIME_MAXIMUM_NS},
        {"device", JSON_FIELD_INT, &telemetry.device, .maximum = TELEMETRY_DEVICES_MAXIMUM - 1},
        {"clock_mhz", JSON_FIELD_DOUBLE, &telemetry.clock_mhz, .maximum = 1e6},
        {"temperature_c", JSON_FIELD_DOUBLE, &telemetry.temperature_c, .minimum = -273.15, .maximum = 1e4},
        {"power_w", JSON_FIELD_DOUBLE, &telemetry.power_w, .maximum = 1e6},
        {"memory_bytes", JSON_FIELD_DOUBLE, &telemetry.memory_bytes, .maximum = 1e15},
        {"energy_j", JSON_FIELD_DOUBLE, &telemetry.energy_j, .maximum = 1e15},
        {"throttle", JSON_FIELD_ARRAY, &throttle},
        {0},
    };
    if (json_read_fields(line, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    telemetry.slowdown = lists_any(throttle, slowdowns);
    telemetry.power_cap = lists_any(throttle, power_caps);
    if (attempt->telemetry_count == reader->telemetry_capacity) {
        reader->telemetry_capacity = reader->telemetry_capacity ? 2 * reader->telemetry_capacity : 64;
        attempt->telemetry =
            xrealloc(attempt->telemetry, (size_t)reader->telemetry_capacity, sizeof *attempt->telemetry);
    }
    attempt->telemetry[attempt->telemetry_count++] = telemetry;
    return 0;
}

static int read_audit(const json_t *object, const char *where, struct audit *audit, struct error *error)
{
    const struct json_field fields[] = {
        {"regret_max", JSON_FIELD_DOUBLE, &audit->regret_max, .maximum = INFINITY},
        {"tokens", JSON_FIELD_INT64, &audit->tokens, .maximum = (double)SAMPLE_TIME_MAXIMUM_NS},
        {0},
    };
    audit->done = object != NULL;
    return object ? json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) : 0;
}

/* Why a source could not go on. */
static int read_failure(const json_t *object, const char *where, struct attempt *attempt, struct error *error)
{
    const char *code = NULL, *message = "no message";
    const struct json_field fields[] = {
        {"code", JSON_FIELD_STRING, &code, .required = true},
        {"message", JSON_FIELD_STRING, &message},
        {0},
    };
    if (!object)
        return 0;
    if (json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    attempt->error_code = xstrdup(code);
    attempt->error_message = xstrdup(message);
    return 0;
}

static int read_end(const json_t *line, const char *where, struct reader *reader, struct error *error)
{
    struct attempt *attempt = reader->attempt;
    const char *status = NULL;
    const json_t *audit = NULL, *failure = NULL, *observed = NULL;
    int samples = attempt->sample_count, failed = reader->failed;
    const struct json_field fields[] = {
        {"status", JSON_FIELD_STRING, &status, .required = true},
        {"samples", JSON_FIELD_INT, &samples},
        {"failed", JSON_FIELD_INT, &failed},
        {"audit", JSON_FIELD_OBJECT, &audit},
        {"error", JSON_FIELD_OBJECT, &failure},
        {"observed", JSON_FIELD_OBJECT, &observed},
        {0},
    };
    if (json_read_fields(line, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_audit(audit, where, &attempt->audit, error) || read_failure(failure, where, attempt, error) ||
        observed_from_json(observed, where, &attempt->observed, error))
        return -1;
    if (samples != attempt->sample_count || failed != reader->failed)
        return fail(error, "%s: speaks of %d samples, %d failed; the file has %d, %d failed", where, samples, failed,
                    attempt->sample_count, reader->failed);
    attempt->end_status = xstrdup(status);
    attempt->complete = strcmp(status, "complete") == 0;
    return 0;
}

static int read_body_line(const json_t *line, const char *where, struct reader *reader, struct error *error)
{
    const char *type = NULL;
    const struct json_field fields[] = {{"type", JSON_FIELD_STRING, &type, .required = true}, {0}};
    if (json_read_fields(line, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    if (reader->attempt->end_status)
        return fail(error, "%s: a line behind the end line", where);
    if (strcmp(type, "attempt") == 0)
        return fail(error, "%s: a second header; the file holds more than one attempt", where);
    if (strcmp(type, "sample") == 0)
        return read_sample(line, where, reader, error);
    if (strcmp(type, "end") == 0)
        return read_end(line, where, reader, error);
    if (strcmp(type, "telemetry") == 0)
        return read_telemetry(line, where, reader, error);
    return 0; /* what newer versions add */
}

static int read_line(const char *text, size_t size, struct reader *reader, struct error *error)
{
    const bool first = ++reader->line_number == 1;
    if (!first && size <= LINE_LIMIT && scan_sample(text, size, reader))
        return 0;
    char *where = xformat("%s:%d", reader->attempt->path, reader->line_number);
    json_t *line = NULL;
    int result = -1;
    if (size > LINE_LIMIT)
        fail(error, "%s: a line of %zu bytes; %zu is the most", where, size, LINE_LIMIT);
    else
        line = json_read_text(text, size, where, error);
    if (line)
        result = first ? read_header(line, where, reader->attempt, error) : read_body_line(line, where, reader, error);
    json_decref(line);
    free(where);
    return result;
}

int attempt_read(const char *path, struct attempt *attempt, struct error *error)
{
    *attempt = (struct attempt){.position = ATTEMPT_ABSENT, .audit = {false, NAN, ATTEMPT_ABSENT}};
    struct reader reader = {.attempt = attempt};
    observed_init(&attempt->observed);
    size_t size;
    int result = -1;
    char *text = file_read(path, FILE_LIMIT, &size, error);
    if (!text)
        return -1;
    attempt->path = xstrdup(path);
    file_hash_bytes(text, size, attempt->sha256);
    const char *at = text, *end = text + size, *newline;
    while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
        if (read_line(at, (size_t)(newline - at), &reader, error))
            goto out;
        at = newline + 1;
    }
    attempt->torn_bytes = end - at;
    if (reader.line_number == 0)
        fail(error, "%s: no complete first line; the file was cut before it held anything", path);
    else
        result = 0;
out:
    free(text);
    if (result)
        attempt_free(attempt);
    return result;
}

void attempt_free(struct attempt *attempt)
{
    for (int i = 0; i < attempt->sample_count; i++)
        sample_free(&attempt->samples[i]);
    for (int i = 0; i < attempt->workload_count; i++) {
        free(attempt->workloads[i].cell_hash);
        free(attempt->workloads[i].compare_hash);
    }
    free(attempt->samples);
    free(attempt->telemetry);
    free(attempt->workloads);
    free(attempt->id);
    free(attempt->path);
    free(attempt->started);
    free(attempt->boot_id);
    free(attempt->end_status);
    free(attempt->error_code);
    free(attempt->error_message);
    observed_free(&attempt->observed);
    json_decref(attempt->header);
    *attempt = (struct attempt){0};
}

const struct attempt_workload *attempt_find_workload(const struct attempt *attempt, const char *workload)
{
    for (int i = 0; i < attempt->workload_count; i++)
        if (strcmp(attempt->workloads[i].name, workload) == 0)
            return &attempt->workloads[i];
    return NULL;
}

bool attempt_is_imported(const struct attempt *attempt)
{
    return is_import(json_object_get(attempt->header, "source"));
}

bool attempt_is_stated(const struct attempt *attempt)
{
    return attempt->sample_count == 0 && attempt->complete && attempt_is_imported(attempt);
}

const struct sample *attempt_next_sample(const struct attempt *attempt, const char *workload, int *at)
{
    while (*at < attempt->sample_count) {
        const struct sample *sample = &attempt->samples[(*at)++];
        if (!sample->warmup && strcmp(sample->workload, workload) == 0)
            return sample;
    }
    return NULL;
}
