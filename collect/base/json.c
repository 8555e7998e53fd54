#include "collect/base/json.h"

#include "collect/base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define JSON_FILE_LIMIT ((size_t)1 << 30)

static const char *const type_names[] = {
    [JSON_FIELD_STRING] = "a string", [JSON_FIELD_INT] = "a whole number", [JSON_FIELD_INT64] = "a whole number",
    [JSON_FIELD_DOUBLE] = "a number", [JSON_FIELD_BOOL] = "true or false", [JSON_FIELD_OBJECT] = "an object",
    [JSON_FIELD_ARRAY] = "an array",  [JSON_FIELD_ANY] = "a value",
};

/* Edits (insert, remove, replace) between two keys, for "did you mean". */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length >= LONGEST || b_length >= LONGEST)
        return LONGEST;
    int row[LONGEST];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int shorter = row[j - 1] < row[j] ? row[j - 1] : row[j];
            row[j] = replaced < shorter + 1 ? replaced : shorter + 1;
        }
    }
    return row[b_length];
}

static int refuse_unknown(const json_t *object, const char *where, const struct json_field *fields, struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *nearest = NULL;
        int best = 4;
        const struct json_field *field = fields;
        for (; field->key && strcmp(field->key, key) != 0; field++) {
            int distance = edit_distance(field->key, key);
            if (distance < best) {
                best = distance;
                nearest = field->key;
            }
        }
        if (field->key)
            continue;
        if (nearest)
            return fail(error, "%s: unknown key \"%s\"; did you mean \"%s\"?", where, key, nearest);
        return fail(error, "%s: unknown key \"%s\"; remove it or look it up in README.md", where, key);
    }
    return 0;
}

static int out_of_range(const struct json_field *field, double value, const char *where, struct error *error)
{
    double low = field->minimum, high = field->maximum;
    if (field->type == JSON_FIELD_INT && low == 0 && high == 0) {
        low = INT32_MIN;
        high = INT32_MAX;
    }
    if ((low == 0 && high == 0) || (value >= low && value <= high))
        return 0;
    return fail(error, "%s: \"%s\" is %.15g; it must be from %.15g to %.15g", where, field->key, value, low, high);
}

static int read_number(const json_t *value, const struct json_field *field, const char *where, struct error *error)
{
    if (out_of_range(field, json_number_value(value), where, error))
        return -1;
    if (field->type == JSON_FIELD_INT)
        *(int *)field->to = (int)json_integer_value(value);
    else if (field->type == JSON_FIELD_INT64)
        *(int64_t *)field->to = json_integer_value(value);
    else
        *(double *)field->to = json_number_value(value);
    return 0;
}

static bool has_type(const json_t *value, enum json_field_type type)
{
    switch (type) {
    case JSON_FIELD_STRING:
        return json_is_string(value);
    case JSON_FIELD_INT:
    case JSON_FIELD_INT64:
        return json_is_integer(value);
    case JSON_FIELD_DOUBLE:
        return json_is_number(value);
    case JSON_FIELD_BOOL:
        return json_is_boolean(value);
    case JSON_FIELD_OBJECT:
        return json_is_object(value);
    case JSON_FIELD_ARRAY:
        return json_is_array(value);
    case JSON_FIELD_ANY:
        return true;
    }
    return false;
}

static int read_field(const json_t *value, const struct json_field *field, const char *where, struct error *error)
{
    if (!has_type(value, field->type))
        return fail(error, "%s: \"%s\" must be %s", where, field->key, type_names[field->type]);
    switch (field->type) {
    case JSON_FIELD_STRING:
        if (strlen(json_string_value(value)) != json_string_length(value))
            return fail(error, "%s: \"%s\" has a NUL character in it; remove it", where, field->key);
        *(const char **)field->to = json_string_value(value);
        return 0;
    case JSON_FIELD_BOOL:
        *(bool *)field->to = json_is_true(value);
        return 0;
    case JSON_FIELD_OBJECT:
    case JSON_FIELD_ARRAY:
    case JSON_FIELD_ANY:
        *(const json_t **)field->to = value;
        return 0;
    default:
        return read_number(value, field, where, error);
    }
}

int json_read_fields(const json_t *object, const char *where, const struct json_field *fields,
                     enum json_unknown_keys unknown, struct error *error)
{
    if (!json_is_object(object))
        return fail(error, "%s: must be an object", where);
    if (unknown == JSON_UNKNOWN_KEYS_REFUSED && refuse_unknown(object, where, fields, error))
        return -1;
    for (const struct json_field *field = fields; field->key; field++) {
        const json_t *value = json_object_get(object, field->key);
        if (value && !json_is_null(value)) {
            if (read_field(value, field, where, error))
                return -1;
        } else if (field->required) {
            return fail(error, "%s: \"%s\" is missing; it must be %s", where, field->key, type_names[field->type]);
        }
    }
    return 0;
}

json_t *json_read_text(const char *text, size_t size, const char *where, struct error *error)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* a byte order mark, as editors under Windows write it */
    json_error_t reason;
    if (size >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0) {
        text += strlen(mark);
        size -= strlen(mark);
    }
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason);
    if (!value)
        fail(error, "%s: line %d, column %d: %s", where, reason.line, reason.column, reason.text);
    return value;
}

json_t *json_read_file(const char *path, struct error *error)
{
    size_t size;
    char *text = file_read(path, JSON_FILE_LIMIT, &size, error);
    if (!text)
        return NULL;
    json_t *value = json_read_text(text, size, path, error);
    free(text);
    return value;
}

char *json_canonical(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text)
        die("cannot write JSON");
    return text;
}

void json_hash(const json_t *value, char *hex)
{
    char *text = json_canonical(value);
    file_hash_bytes(text, strlen(text), hex);
    free(text);
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void json_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value))
        die("cannot write JSON key \"%s\"", key);
}

void json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value))
        die("cannot write JSON");
}

json_t *json_text(const char *text)
{
    json_t *whole = json_string(text);
    if (whole)
        return whole;
    static const char replacement[] = "\xEF\xBF\xBD";
    size_t size = strlen(text), used = 0;
    char *clean = xmalloc(size * 3 + 1);
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &point);
        memcpy(clean + used, length > 0 ? text + at : replacement, length > 0 ? (size_t)length : 3);
        used += length > 0 ? (size_t)length : 3;
        at += length > 0 ? (size_t)length : 1;
    }
    whole = json_stringn(clean, used);
    free(clean);
    return whole ? whole : json_string("?");
}
