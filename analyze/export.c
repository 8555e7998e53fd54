#include "analyze/export.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const export_format_names[EXPORT_FORMAT_COUNT] = {"csv", "json"};

/* Of every row; "baseline" is what the arm is compared with, "block" of a number that is one block's. */
static const char *const columns[] = {
    "run",      "table",  "arm",   "tensor_parallel", "method", "budget", "concurrency", "workload",
    "baseline", "metric", "block", "value",           "low",    "high",   "n",           "over"};
enum { COLUMN_COUNT = sizeof columns / sizeof *columns };

struct rows {
    const json_t *summary;
    json_t *array;
};

/* --- rows --------------------------------------------------------------------------------------------------------- */

static json_t *copy_or_null(const json_t *value)
{
    return value ? json_deep_copy(value) : json_null();
}

static const json_t *find_arm(const json_t *summary, const json_t *name)
{
    size_t i;
    const json_t *arm;
    json_array_foreach(json_object_get(summary, "arms"), i, arm)
    {
        if (json_equal(json_object_get(arm, "name"), name))
            return arm;
    }
    return NULL;
}

/* What an item of a list says of itself: which arm it is, on what, beside what. */
static json_t *start_row(const struct rows *rows, const char *table, const json_t *item, const char *metric)
{
    static const char *const of_arm[] = {"tensor_parallel", "method", "budget", "concurrency"};
    const json_t *arm = find_arm(rows->summary, json_object_get(item, "arm"));
    const json_t *baseline = json_object_get(item, "baseline");
    json_t *row = json_object();
    for (int i = 0; i < COLUMN_COUNT; i++)
        json_set(row, columns[i], json_null());
    json_set(row, "run",
             copy_or_null(json_object_get(json_array_get(json_object_get(rows->summary, "runs"), 0), "name")));
    json_set(row, "table", json_text(table));
    json_set(row, "arm", copy_or_null(json_object_get(item, "arm")));
    for (size_t i = 0; i < sizeof of_arm / sizeof *of_arm; i++)
        json_set(row, of_arm[i], copy_or_null(json_object_get(arm, of_arm[i])));
    json_set(row, "workload", copy_or_null(json_object_get(item, "workload")));
    json_set(row, "baseline", copy_or_null(baseline ? baseline : json_object_get(item, "reference")));
    json_set(row, "metric", json_text(metric));
    json_append(rows->array, row);
    return row;
}

static bool is_interval(const json_t *value)
{
    return json_object_get(value, "value") && json_object_get(value, "n") && json_object_get(value, "over");
}

static void append_interval(const struct rows *rows, const char *table, const json_t *item, const char *metric,
                            const json_t *interval)
{
    static const char *const keys[] = {"value", "low", "high", "n", "over"};
    json_t *row = start_row(rows, table, item, metric);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_set(row, keys[i], copy_or_null(json_object_get(interval, keys[i])));
}

static void append_number(const struct rows *rows, const char *table, const json_t *item, const char *metric,
                          const json_t *value)
{
    json_set(start_row(rows, table, item, metric), "value", json_incref((json_t *)value));
}

/* One level of intervals that lie in an object, such as the parts of a round's cost, after which they are called. */
static void append_inner(const struct rows *rows, const char *table, const json_t *item, const char *key,
                         const json_t *object)
{
    const char *inner_key;
    json_t *inner;
    json_object_foreach((json_t *)object, inner_key, inner)
    {
        char *metric = xformat("%s.%s", key, inner_key);
        if (is_interval(inner))
            append_interval(rows, table, item, metric, inner);
        else if (json_is_number(inner))
            append_number(rows, table, item, metric, inner);
        free(metric);
    }
}

static void append_quantiles(const struct rows *rows, const char *table, const json_t *item)
{
    static const char *const kinds[] = {"over_prompts", "over_blocks"};
    size_t i;
    const json_t *quantile;
    json_array_foreach(json_object_get(item, "latency"), i, quantile)
    {
        for (int kind = 0; kind < 2; kind++) {
            const json_t *interval = json_object_get(quantile, kinds[kind]);
            char *metric = xformat("%s.p%g", json_string_value(json_object_get(quantile, "metric")),
                                   100 * json_number_value(json_object_get(quantile, "quantile")));
            if (is_interval(interval))
                append_interval(rows, table, item, metric, interval);
            free(metric);
        }
    }
}

static void append_blocks(const struct rows *rows, const char *table, const json_t *item)
{
    size_t i;
    const json_t *block;
    json_array_foreach(json_object_get(item, "blocks"), i, block)
    {
        json_t *row = start_row(rows, table, item, "log_ratio");
        json_set(row, "block", copy_or_null(json_object_get(block, "block")));
        json_set(row, "value", copy_or_null(json_object_get(block, "log_ratio")));
    }
}

static void append_item(const struct rows *rows, const char *table, const json_t *item)
{
    static const char *const of_arm[] = {"tensor_parallel", "concurrency"}; /* which have columns of their own */
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)item, key, value)
    {
        const bool told = strcmp(key, of_arm[0]) == 0 || strcmp(key, of_arm[1]) == 0;
        if (is_interval(value))
            append_interval(rows, table, item, key, value);
        else if (json_is_number(value) && !told)
            append_number(rows, table, item, key, value);
        else if (json_is_object(value))
            append_inner(rows, table, item, key, value);
    }
    append_quantiles(rows, table, item);
    append_blocks(rows, table, item);
}

static json_t *make_rows(const json_t *summary)
{
    static const char *const tables[] = {"cells", "comparisons", "scaling", "best_budgets"};
    const struct rows rows = {summary, json_array()};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        size_t j;
        const json_t *item;
        json_array_foreach(json_object_get(summary, tables[i]), j, item) append_item(&rows, tables[i], item);
    }
    return rows.array;
}

/* --- CSV (RFC 4180) ----------------------------------------------------------------------------------------------- */

static void put_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void put_value(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        put_text(out, json_string_value(value));
    else if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        fprintf(out, "%.15g", json_real_value(value));
}

static char *make_csv(const json_t *rows, size_t *size)
{
    char *text;
    FILE *out = open_memstream(&text, size);
    for (int i = 0; i < COLUMN_COUNT; i++)
        fprintf(out, "%s%s", i ? "," : "", columns[i]);
    fputs("\r\n", out);
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        for (int column = 0; column < COLUMN_COUNT; column++) {
            fputs(column ? "," : "", out);
            put_value(out, json_object_get(row, columns[column]));
        }
        fputs("\r\n", out);
    }
    fclose(out);
    return text;
}

static char *make_json(const json_t *rows, size_t *size)
{
    char *json = json_dumps(rows, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (!json)
        die("cannot write rows as JSON");
    char *text = xformat("%s\n", json);
    *size = strlen(text);
    free(json);
    return text;
}

int export_write(const json_t *summary, enum export_format format, const char *path, struct error *error)
{
    size_t size;
    json_t *rows = make_rows(summary);
    char *text = format == EXPORT_CSV ? make_csv(rows, &size) : make_json(rows, &size), *copy = xstrdup(path);
    int result = file_make_folder(dirname(copy), error);
    if (!result)
        result = file_write_whole(path, text, size, error);
    free(copy);
    free(text);
    json_decref(rows);
    return result;
}
