#include "tests/render/example.h"

#include "collect/base/json.h"
#include "tests/record/fixture.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
// clang-format on
#include <stdlib.h>
#include <string.h>

void example_read(struct summary *summary)
{
    struct error error = {0};
    if (summary_read(EXAMPLE_PATH, summary, &error))
        fail_msg("%s", error.message);
}

static void rename_workload(json_t *array, const char *key)
{
    size_t index;
    json_t *object;
    json_array_foreach(array, index, object)
    {
        const char *name = json_string_value(json_object_get(object, key));
        if (name && strcmp(name, "prose") == 0)
            json_set(object, key, json_string(EXAMPLE_HOSTILE));
    }
}

void example_write_hostile(const char *path)
{
    struct error error = {0};
    json_t *json = json_read_file(EXAMPLE_PATH, &error);
    assert_non_null(json);
    json_set(json, "title", json_string(EXAMPLE_HOSTILE));
    json_set(json, "name", json_string(EXAMPLE_HOSTILE));
    json_array_set_new(json_object_get(json, "workloads"), 2, json_string(EXAMPLE_HOSTILE));
    rename_workload(json_object_get(json_object_get(json, "plan"), "workloads"), "name");
    rename_workload(json_object_get(json, "cells"), "workload");
    rename_workload(json_object_get(json, "comparisons"), "workload");
    rename_workload(json_object_get(json, "verdicts"), "workload");
    json_t *verdict = json_array_get(json_object_get(json, "verdicts"), 0);
    json_set(verdict, "detail", json_string(EXAMPLE_HOSTILE));
    json_set(verdict, "attempt", json_string("[2em]" EXAMPLE_HOSTILE));
    char *text = json_dumps(json, 0);
    fixture_write(path, text, strlen(text));
    free(text);
    json_decref(json);
}

char *example_put(void (*put)(FILE *out, const struct summary *summary), const struct summary *summary)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    assert_non_null(out);
    put(out, summary);
    fclose(out);
    return bytes;
}

char *example_run(const char *format, ...)
{
    char command[2048], *bytes = NULL;
    size_t size = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    FILE *out = open_memstream(&bytes, &size);
    assert_non_null(out);
    char piece[4096];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, pipe)) > 0)
        fwrite(piece, 1, got, out);
    fclose(out);
    assert_int_equal(pclose(pipe), 0);
    return bytes;
}
