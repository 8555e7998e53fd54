/* What is read before the parser is what the parser would have read. */
#include "collect/record/numbers.h"

#include "collect/base/error.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool take(const char *line, struct numbers_taken *taken)
{
    return numbers_take(line, strlen(line), taken);
}

/* Text by text; the second list has the first one's numbers twice. */
static void test_numbers_are_those_of_the_parser(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "7",
        "-12",
        "123456789012345",
        "0.5",
        "-0.25",
        "3.1415926535897931",
        "1e5",
        "1E-7",
        "2.5e+3",
        "1e22",
        "1e-22",
        "1e300",
        "4.9e-324",
        "0.10000000149011612",
        "1e-30",
        "1e23",
        "0.0",
        "17.0",
        "0e0",
        "1.5e0",
        "9.99999999e-07",
        "3.40282347e+38",
        "0.00001",
        "100e-20",
        "5e-1",
        "1234567890123456.5",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *line = xformat("{\"a\":[%s],\"b\":[%s,null,%s]}", texts[i], texts[i], texts[i]);
        struct numbers_taken taken;
        json_t *object = json_loads(line, 0, NULL), *value = json_array_get(json_object_get(object, "a"), 0);
        assert_non_null(value);
        if (!take(line, &taken))
            fail_msg("%s was not taken", line);
        const struct numbers *a = numbers_find(&taken, "a"), *b = numbers_find(&taken, "b");
        assert_int_equal(a->count, 1);
        assert_int_equal(b->count, 3);
        if (a->values[0] != json_number_value(value) || a->whole != json_is_integer(value))
            fail_msg("%s was read as %.17g", texts[i], a->values[0]);
        assert_true(b->values[0] == a->values[0] && isnan(b->values[1]) && b->values[2] == a->values[0]);
        assert_false(b->whole);
        assert_int_equal(taken.size, strlen("{\"a\":[],\"b\":[]}"));
        assert_memory_equal(taken.text, "{\"a\":[],\"b\":[]}", taken.size);
        numbers_free(&taken);
        json_decref(object);
        free(line);
    }
}

/* They stay where they are, and the parser sees them. */
static void test_other_values_are_left(void **state)
{
    (void)state;
    static const char line[] =
        "{\"s\":\"a\\\"]},[1]\",\"n\":[1,2],\"o\":{\"p\":[3],\"q\":\"}\"},\"l\":[\"x\",1],\"m\":[[1]],"
        "\"t\":true,\"u\":[01],\"v\":[1.],\"w\":[1,]}";
    static const char left[] =
        "{\"s\":\"a\\\"]},[1]\",\"n\":[],\"o\":{\"p\":[3],\"q\":\"}\"},\"l\":[\"x\",1],\"m\":[[1]],"
        "\"t\":true,\"u\":[01],\"v\":[1.],\"w\":[1,]}";
    struct numbers_taken taken;
    assert_true(take(line, &taken));
    assert_int_equal(taken.count, 1);
    assert_true(numbers_find(&taken, "n")->whole);
    assert_null(numbers_find(&taken, "p"));
    assert_int_equal(taken.size, strlen(left));
    assert_memory_equal(taken.text, left, taken.size);
    numbers_free(&taken);
}

static void test_other_lines_are_the_parsers(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "{",
        "{}",
        "[]",
        "[1]",
        "{\"a\":[1]",
        "{\"a\":[1]}}",
        "{\"a\":[1]} ",
        "{ \"a\":[1]}",
        "{\"a\": 1,\"b\" :[1]}",
        "{\"a\":1,}",
        "{\"a\\u0062\":[1]}",
        "{\"a",
        "{\"a\\",
        "{a:[1]}",
        "{\"a\":[1],1}",
    };
    struct numbers_taken taken;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (take(lines[i], &taken))
            fail_msg("%s was taken", lines[i]);
}

/* Which a double does not hold: the list is left to the parser. */
static void test_long_integers_are_left(void **state)
{
    (void)state;
    struct numbers_taken taken;
    assert_true(take("{\"a\":[9007199254740993],\"b\":[1e999],\"c\":[-1]}", &taken));
    assert_null(numbers_find(&taken, "a"));
    assert_null(numbers_find(&taken, "b"));
    assert_true(numbers_find(&taken, "c")->values[0] == -1);
    numbers_free(&taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_those_of_the_parser),
        cmocka_unit_test(test_other_values_are_left),
        cmocka_unit_test(test_other_lines_are_the_parsers),
        cmocka_unit_test(test_long_integers_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
