/* A summary as rows: what they hold, and how CSV quotes. */
#include "analyze/export.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char summary_text[] =
    "{'runs': [{}],"
    " 'arms': [{'name': 'tp1-b16', 'tensor_parallel': 1, 'method': 'ddtree', 'budget': 16, 'concurrency': 2}],"
    " 'cells': [{'arm': 'tp1-b16', 'workload': 'code', 'tries': 3, 'ttft_ms': null,"
    "   'tpot_ms': {'value': 0.5, 'low': null, 'high': null, 'n': 2, 'over': 'blocks'},"
    "   'stages_ms': {'draft': 0.25, 'build': null},"
    "   'latency': [{'metric': 'ttft_ms', 'quantile': 0.95, 'over_blocks': null,"
    "     'over_prompts': {'value': 7, 'low': 6, 'high': 8.5, 'n': 60, 'over': 'prompts'}}]}],"
    " 'comparisons': [{'arm': 'tp1-b16', 'baseline': 'tp1-auto', 'workload': null,"
    "   'blocks': [{'block': 4, 'log_ratio': 0.75, 'attempts': []}]}]}";

static json_t *read_summary(void)
{
    char *text = xstrdup(summary_text);
    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    json_t *summary = json_loads(text, 0, NULL);
    assert_non_null(summary);
    json_object_set_new(json_array_get(json_object_get(summary, "runs"), 0), "name", json_string("a, \"b\""));
    free(text);
    return summary;
}

static char *export_as(enum export_format format)
{
    struct error error = {0};
    size_t size;
    char *folder = fixture_make_folder(), *path = file_join(folder, "new/rows");
    json_t *summary = read_summary();
    assert_int_equal(export_write(summary, format, path, &error), 0);
    char *bytes = fixture_read(path, &size), *text = xformat("%.*s", (int)size, bytes);
    json_decref(summary);
    free(bytes);
    free(path);
    fixture_remove_folder(folder);
    return text;
}

static void test_csv(void **state)
{
    (void)state;
    char *text = export_as(EXPORT_CSV);
    assert_string_equal(text, "run,table,arm,tensor_parallel,method,budget,concurrency,workload,baseline,metric,block,"
                              "value,low,high,n,over\r\n"
                              "\"a, \"\"b\"\"\",cells,tp1-b16,1,ddtree,16,2,code,,tries,,3,,,,\r\n"
                              "\"a, \"\"b\"\"\",cells,tp1-b16,1,ddtree,16,2,code,,tpot_ms,,0.5,,,2,blocks\r\n"
                              "\"a, \"\"b\"\"\",cells,tp1-b16,1,ddtree,16,2,code,,stages_ms.draft,,0.25,,,,\r\n"
                              "\"a, \"\"b\"\"\",cells,tp1-b16,1,ddtree,16,2,code,,ttft_ms.p95,,7,6,8.5,60,prompts\r\n"
                              "\"a, \"\"b\"\"\",comparisons,tp1-b16,1,ddtree,16,2,,tp1-auto,log_ratio,4,0.75,,,,\r\n");
    free(text);
}

static void test_json(void **state)
{
    (void)state;
    char *text = export_as(EXPORT_JSON);
    json_t *rows = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(rows), 5);
    const json_t *row = json_array_get(rows, 1);
    assert_true(json_is_null(json_object_get(row, "low")) && json_is_null(json_object_get(row, "block")));
    assert_true(json_real_value(json_object_get(row, "value")) == 0.5);
    assert_int_equal(json_object_size(row), 16);
    json_decref(rows);
    free(text);
}

static void test_a_place_that_cannot_be_written(void **state)
{
    (void)state;
    struct error error = {0};
    json_t *summary = read_summary();
    assert_int_equal(export_write(summary, EXPORT_CSV, "/dev/null/rows", &error), -1);
    assert_non_null(strstr(error.message, "/dev/null"));
    json_decref(summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_a_place_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
