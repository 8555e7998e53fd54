#include "collect/record/sample.h"

#include "collect/base/json.h"
#include "collect/base/name.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const stage_names[STAGE_COUNT] = {"draft", "build", "verify", "commit"};
const char *const finish_names[FINISH_COUNT] = {NULL, "length", "stop", "abort"};

void sample_init(struct sample *sample)
{
    *sample = (struct sample){
        .error_http_status = ATTEMPT_ABSENT,
        .asked_tokens = ATTEMPT_ABSENT,
        .prompt_tokens = ATTEMPT_ABSENT,
        .cached_tokens = ATTEMPT_ABSENT,
        .tokens = ATTEMPT_ABSENT,
        .first_tokens = ATTEMPT_ABSENT,
        .start_ns = ATTEMPT_ABSENT,
        .ttft_ns = ATTEMPT_ABSENT,
        .decode_ns = ATTEMPT_ABSENT,
        .end_ns = ATTEMPT_ABSENT,
        .stall_ns = ATTEMPT_ABSENT,
        .rounds = ATTEMPT_ABSENT,
        .communicate_ns = ATTEMPT_ABSENT,
        .chunks = ATTEMPT_ABSENT,
        .committed = ATTEMPT_ABSENT,
    };
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        sample->stages_ns[stage] = ATTEMPT_ABSENT;
}

void sample_free(struct sample *sample)
{
    free(sample->error_code);
    free(sample->error_message);
    free(sample->token_ids);
    free(sample->margins);
    free(sample->accepted);
    free(sample->chunk_ns);
    free(sample->chunk_tokens);
    sample_init(sample);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void set_known(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_set(object, key, json_integer(value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    if (value)
        json_set(object, key, json_text(value));
}

static void set_ints(json_t *object, const char *key, const int *values, int count)
{
    if (!values || count < 0)
        return;
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_append(array, json_integer(values[i]));
    json_set(object, key, array);
}

static void set_times(json_t *object, const char *key, const int64_t *values, int count)
{
    if (!values || count < 0)
        return;
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_append(array, json_integer(values[i]));
    json_set(object, key, array);
}

static void set_margins(json_t *object, const float *values, int count)
{
    if (!values || count < 0)
        return;
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_append(array, json_number(values[i]));
    json_set(object, "margins", array);
}

static json_t *asked_to_json(const struct sample *sample)
{
    json_t *asked = json_object();
    set_known(asked, "max_new_tokens", sample->asked_tokens);
    json_set(asked, "ignore_eos", json_boolean(sample->asked_ignore_eos));
    return asked;
}

/* Also of a sample that counts as ok: rule INBAND_ERROR must see it. */
static void set_error(json_t *line, const struct sample *sample)
{
    json_t *object = json_object();
    set_text(object, "code", sample->error_code);
    set_known(object, "http_status", sample->error_http_status);
    set_text(object, "message", sample->error_message);
    if (!sample->ok || json_object_size(object))
        json_set(line, "error", object);
    else
        json_decref(object);
}

static void set_stages(json_t *object, const struct sample *sample)
{
    json_t *stages = json_object();
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        set_known(stages, stage_names[stage], sample->stages_ns[stage]);
    set_known(stages, "communicate", sample->communicate_ns);
    if (json_object_size(stages))
        json_set(object, "stages_ns", stages);
    else
        json_decref(stages);
}

json_t *sample_to_json(const struct sample *sample)
{
    json_t *line = json_object();
    json_set(line, "type", json_string("sample"));
    set_text(line, "workload", sample->workload);
    set_text(line, "prompt", sample->prompt);
    json_set(line, "warmup", json_boolean(sample->warmup));
    set_known(line, "prompt_tokens", sample->prompt_tokens);
    set_known(line, "cached_tokens", sample->cached_tokens);
    json_set(line, "asked", asked_to_json(sample));
    json_set(line, "outcome", json_string(sample->ok ? "ok" : "error"));
    set_error(line, sample);
    set_known(line, "tokens", sample->tokens);
    set_known(line, "first_tokens", sample->first_tokens);
    set_ints(line, "token_ids", sample->token_ids, sample->tokens);
    set_margins(line, sample->margins, sample->tokens);
    set_text(line, "finish", finish_names[sample->finish]);
    set_known(line, "start_ns", sample->start_ns);
    set_known(line, "ttft_ns", sample->ttft_ns);
    set_known(line, "decode_ns", sample->decode_ns);
    set_known(line, "end_ns", sample->end_ns);
    set_known(line, "stall_ns", sample->stall_ns);
    set_known(line, "rounds", sample->rounds);
    set_ints(line, "accepted", sample->accepted, sample->rounds);
    set_stages(line, sample);
    set_known(line, "chunks", sample->chunks);
    set_times(line, "chunk_ns", sample->chunk_ns, sample->chunks);
    set_ints(line, "chunk_tokens", sample->chunk_tokens, sample->chunks);
    return line;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The parts of a line that are read in a second step. */
struct parts {
    const char *workload, *prompt, *outcome, *finish;
    const json_t *asked, *error, *token_ids, *margins, *accepted, *stages, *chunk_ns, *chunk_tokens;
};

static int read_line(const json_t *line, const char *where, struct sample *sample, struct parts *parts,
                     struct error *error)
{
    const double tokens = SAMPLE_TOKENS_MAXIMUM, time = (double)SAMPLE_TIME_MAXIMUM_NS;
    const struct json_field fields[] = {
        {"workload", JSON_FIELD_STRING, &parts->workload, .required = true},
        {"prompt", JSON_FIELD_STRING, &parts->prompt, .required = true},
        {"warmup", JSON_FIELD_BOOL, &sample->warmup},
        {"prompt_tokens", JSON_FIELD_INT, &sample->prompt_tokens, .maximum = tokens},
        {"cached_tokens", JSON_FIELD_INT, &sample->cached_tokens, .maximum = tokens},
        {"asked", JSON_FIELD_OBJECT, &parts->asked},
        {"outcome", JSON_FIELD_STRING, &parts->outcome, .required = true},
        {"error", JSON_FIELD_OBJECT, &parts->error},
        {"tokens", JSON_FIELD_INT, &sample->tokens, .maximum = tokens},
        {"first_tokens", JSON_FIELD_INT, &sample->first_tokens, .maximum = tokens},
        {"token_ids", JSON_FIELD_ARRAY, &parts->token_ids},
        {"margins", JSON_FIELD_ARRAY, &parts->margins},
        {"finish", JSON_FIELD_STRING, &parts->finish},
        {"start_ns", JSON_FIELD_INT64, &sample->start_ns, .maximum = time},
        {"ttft_ns", JSON_FIELD_INT64, &sample->ttft_ns, .maximum = time},
        {"decode_ns", JSON_FIELD_INT64, &sample->decode_ns, .maximum = time},
        {"end_ns", JSON_FIELD_INT64, &sample->end_ns, .maximum = time},
        {"stall_ns", JSON_FIELD_INT64, &sample->stall_ns, .maximum = time},
        {"rounds", JSON_FIELD_INT, &sample->rounds, .maximum = tokens},
        {"accepted", JSON_FIELD_ARRAY, &parts->accepted},
        {"stages_ns", JSON_FIELD_OBJECT, &parts->stages},
        {"chunks", JSON_FIELD_INT, &sample->chunks, .maximum = tokens},
        {"chunk_ns", JSON_FIELD_ARRAY, &parts->chunk_ns},
        {"chunk_tokens", JSON_FIELD_ARRAY, &parts->chunk_tokens},
        {0},
    };
    return json_read_fields(line, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error);
}

static int read_asked(const json_t *object, const char *where, struct sample *sample, struct error *error)
{
    const struct json_field fields[] = {
        {"max_new_tokens", JSON_FIELD_INT, &sample->asked_tokens, .maximum = SAMPLE_TOKENS_MAXIMUM},
        {"ignore_eos", JSON_FIELD_BOOL, &sample->asked_ignore_eos},
        {0},
    };
    return object ? json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) : 0;
}

static int read_stages(const json_t *object, const char *where, struct sample *sample, struct error *error)
{
    const double time = (double)SAMPLE_TIME_MAXIMUM_NS;
    struct json_field fields[STAGE_COUNT + 2] = {0};
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        fields[stage] =
            (struct json_field){stage_names[stage], JSON_FIELD_INT64, &sample->stages_ns[stage], .maximum = time};
    fields[STAGE_COUNT] =
        (struct json_field){"communicate", JSON_FIELD_INT64, &sample->communicate_ns, .maximum = time};
    return object ? json_read_fields(object, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) : 0;
}

static int read_outcome(const struct parts *parts, const char *where, struct sample *sample, struct error *error)
{
    sample->ok = strcmp(parts->outcome, "ok") == 0;
    if (!sample->ok && strcmp(parts->outcome, "error") != 0)
        return fail(error, "%s: \"outcome\" is \"%s\"; it must be \"ok\" or \"error\"", where, parts->outcome);
    if (!parts->error)
        return 0;
    const char *code = NULL, *message = NULL;
    const struct json_field fields[] = {
        {"code", JSON_FIELD_STRING, &code},
        {"http_status", JSON_FIELD_INT, &sample->error_http_status, .maximum = 999},
        {"message", JSON_FIELD_STRING, &message},
        {0},
    };
    if (json_read_fields(parts->error, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error))
        return -1;
    sample->error_code = code ? xstrdup(code) : NULL;
    sample->error_message = message ? xstrdup(message) : sample->ok && !code ? xstrdup("no message") : NULL;
    return 0;
}

static int read_finish(const char *finish, const char *where, struct sample *sample, struct error *error)
{
    if (!finish)
        return 0;
    for (int i = FINISH_ABSENT + 1; i < FINISH_COUNT; i++)
        if (strcmp(finish, finish_names[i]) == 0) {
            sample->finish = (enum finish)i;
            return 0;
        }
    return fail(error, "%s: \"finish\" is \"%s\"; it must be \"length\", \"stop\" or \"abort\"", where, finish);
}

/* The list's length must be *count, which it sets where that is absent. */
static int check_length(const json_t *list, const char *key, const char *count_key, int *count, const char *where,
                        struct error *error)
{
    size_t length = json_array_size(list);
    if (length > SAMPLE_TOKENS_MAXIMUM)
        return fail(error, "%s: \"%s\" has %zu entries; %d is the most", where, key, length, SAMPLE_TOKENS_MAXIMUM);
    if (*count == ATTEMPT_ABSENT)
        *count = (int)length;
    if ((size_t)*count != length)
        return fail(error, "%s: \"%s\" has %zu entries, but \"%s\" is %d", where, key, length, count_key, *count);
    return 0;
}

static int read_ints(const json_t *list, const char *key, int maximum, const char *where, int **values,
                     struct error *error)
{
    size_t count = json_array_size(list);
    *values = xcalloc(count, sizeof **values);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t value = json_integer_value(entry);
        if (!json_is_integer(entry) || value < 0 || value > maximum)
            return fail(error, "%s: \"%s\"[%zu] must be a whole number from 0 to %d", where, key, i, maximum);
        (*values)[i] = (int)value;
    }
    return 0;
}

static int read_times(const json_t *list, const char *key, const char *where, int64_t **values, struct error *error)
{
    size_t count = json_array_size(list);
    *values = xcalloc(count, sizeof **values);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const json_int_t value = json_integer_value(entry);
        if (!json_is_integer(entry) || value < 0 || value > SAMPLE_TIME_MAXIMUM_NS)
            return fail(error, "%s: \"%s\"[%zu] must be a whole number of nanoseconds", where, key, i);
        (*values)[i] = value;
    }
    return 0;
}

/* A margin that is null is unknown: NaN. */
static int read_margins(const json_t *list, const char *where, float **values, struct error *error)
{
    size_t count = json_array_size(list);
    *values = xcalloc(count, sizeof **values);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const double value = json_is_null(entry) ? NAN : json_number_value(entry);
        if ((!json_is_number(entry) && !json_is_null(entry)) || fabs(value) > (double)FLT_MAX)
            return fail(error, "%s: \"margins\"[%zu] must be a number that float32 can hold, or null", where, i);
        (*values)[i] = (float)value;
    }
    return 0;
}

static int read_lists(const struct parts *parts, const char *where, struct sample *sample, struct error *error)
{
    if (parts->token_ids && (check_length(parts->token_ids, "token_ids", "tokens", &sample->tokens, where, error) ||
                             read_ints(parts->token_ids, "token_ids", INT32_MAX, where, &sample->token_ids, error)))
        return -1;
    if (parts->margins && (check_length(parts->margins, "margins", "tokens", &sample->tokens, where, error) ||
                           read_margins(parts->margins, where, &sample->margins, error)))
        return -1;
    if (parts->accepted &&
        (check_length(parts->accepted, "accepted", "rounds", &sample->rounds, where, error) ||
         read_ints(parts->accepted, "accepted", SAMPLE_ACCEPTED_MAXIMUM, where, &sample->accepted, error)))
        return -1;
    if (parts->chunk_ns && (check_length(parts->chunk_ns, "chunk_ns", "chunks", &sample->chunks, where, error) ||
                            read_times(parts->chunk_ns, "chunk_ns", where, &sample->chunk_ns, error)))
        return -1;
    if (parts->chunk_tokens &&
        (check_length(parts->chunk_tokens, "chunk_tokens", "chunks", &sample->chunks, where, error) ||
         read_ints(parts->chunk_tokens, "chunk_tokens", SAMPLE_TOKENS_MAXIMUM, where, &sample->chunk_tokens, error)))
        return -1;
    return 0;
}

int64_t sample_sum_accepted(const struct sample *sample)
{
    int64_t sum = 0;
    for (int i = 0; i < sample->rounds; i++)
        sum += sample->accepted[i];
    return sum;
}

int sample_from_json(const json_t *line, const char *where, struct sample *sample, struct error *error)
{
    struct parts parts = {0};
    sample_init(sample);
    if (read_line(line, where, sample, &parts, error) || read_asked(parts.asked, where, sample, error) ||
        read_stages(parts.stages, where, sample, error) || read_outcome(&parts, where, sample, error) ||
        read_finish(parts.finish, where, sample, error) || read_lists(&parts, where, sample, error)) {
        sample_free(sample);
        return -1;
    }
    sample->workload = name_keep(parts.workload);
    sample->prompt = name_keep(parts.prompt);
    sample->committed = sample->accepted ? sample_sum_accepted(sample) : ATTEMPT_ABSENT;
    return 0;
}
