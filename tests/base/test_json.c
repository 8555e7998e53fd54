#include "collect/base/json.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- tables of fields --------------------------------------------------------------------------------------------- */

/* A destination for each type. */
static struct {
    const char *text;
    int whole, small;
    int64_t large;
    double number, share;
    bool flag;
    const json_t *object, *array, *any;
} got;

static const struct json_field fields[] = {
    {"text", JSON_FIELD_STRING, &got.text, .required = true},
    {"whole", JSON_FIELD_INT, &got.whole},
    {"small", JSON_FIELD_INT, &got.small, false, 1, 10},
    {"large", JSON_FIELD_INT64, &got.large},
    {"number", JSON_FIELD_DOUBLE, &got.number},
    {"share", JSON_FIELD_DOUBLE, &got.share, false, 0, 0.5},
    {"flag", JSON_FIELD_BOOL, &got.flag},
    {"object", JSON_FIELD_OBJECT, &got.object},
    {"array", JSON_FIELD_ARRAY, &got.array},
    {"any", JSON_FIELD_ANY, &got.any},
    {0},
};

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!value)
        fail_msg("the test's own JSON is wrong: %s", text);
    return value;
}

static void reads_every_type(void **state)
{
    (void)state;
    struct error error = {0};
    json_t *value = parse(
        "{\"text\": \"t\", \"whole\": -2147483648, \"small\": 10, \"large\": -9223372036854775808, \"number\": 2, "
        "\"share\": 0.5, \"flag\": true, \"object\": {}, \"array\": [1], \"any\": \"x\"}");
    assert_int_equal(json_read_fields(value, "x", fields, JSON_UNKNOWN_KEYS_REFUSED, &error), 0);
    assert_string_equal(error.message, "");
    assert_string_equal(got.text, "t");
    assert_int_equal(got.whole, INT32_MIN);
    assert_int_equal(got.small, 10);
    assert_int_equal(got.large, INT64_MIN);
    assert_true(got.number == 2 && got.share == 0.5 && got.flag);
    assert_ptr_equal(got.object, json_object_get(value, "object"));
    assert_int_equal(json_array_size(got.array), 1);
    assert_true(json_is_string(got.any));
    json_decref(value);
}

static void null_and_absence_leave_the_default(void **state)
{
    (void)state;
    struct error error = {0};
    got.whole = -7;
    got.any = (const json_t *)&got;
    json_t *value = parse("{\"text\": \"t\", \"whole\": null, \"any\": null}");
    assert_int_equal(json_read_fields(value, "x", fields, JSON_UNKNOWN_KEYS_REFUSED, &error), 0);
    assert_int_equal(got.whole, -7);
    assert_ptr_equal(got.any, &got);
    json_decref(value);
}

static void refuses_by_key_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"[]", "x.json: must be an object"},
        {"null", "x.json: must be an object"},
        {"{}", "x.json: \"text\" is missing; it must be a string"},
        {"{\"text\": null}", "x.json: \"text\" is missing; it must be a string"},
        {"{\"text\": 1}", "x.json: \"text\" must be a string"},
        {"{\"text\": \"a\\u0000b\"}", "x.json: \"text\" has a NUL character in it; remove it"},
        {"{\"text\": \"\", \"whole\": 1.0}", "x.json: \"whole\" must be a whole number"},
        {"{\"text\": \"\", \"whole\": \"1\"}", "x.json: \"whole\" must be a whole number"},
        {"{\"text\": \"\", \"whole\": 2147483648}",
         "x.json: \"whole\" is 2147483648; it must be from -2147483648 to 2147483647"},
        {"{\"text\": \"\", \"whole\": 4294967297}",
         "x.json: \"whole\" is 4294967297; it must be from -2147483648 to 2147483647"},
        {"{\"text\": \"\", \"small\": 0}", "x.json: \"small\" is 0; it must be from 1 to 10"},
        {"{\"text\": \"\", \"small\": 11}", "x.json: \"small\" is 11; it must be from 1 to 10"},
        {"{\"text\": \"\", \"small\": 9223372036854775807}",
         "x.json: \"small\" is 9.22337203685478e+18; it must be from 1 to 10"},
        {"{\"text\": \"\", \"large\": 1e3}", "x.json: \"large\" must be a whole number"},
        {"{\"text\": \"\", \"number\": true}", "x.json: \"number\" must be a number"},
        {"{\"text\": \"\", \"share\": 0.51}", "x.json: \"share\" is 0.51; it must be from 0 to 0.5"},
        {"{\"text\": \"\", \"share\": -5e-324}",
         "x.json: \"share\" is -4.94065645841247e-324; it must be from 0 to 0.5"},
        {"{\"text\": \"\", \"flag\": 1}", "x.json: \"flag\" must be true or false"},
        {"{\"text\": \"\", \"object\": []}", "x.json: \"object\" must be an object"},
        {"{\"text\": \"\", \"array\": {}}", "x.json: \"array\" must be an array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        json_t *value = parse(cases[i].text);
        assert_int_equal(json_read_fields(value, "x.json", fields, JSON_UNKNOWN_KEYS_REFUSED, &error), -1);
        assert_string_equal(error.message, cases[i].said);
        json_decref(value);
    }
}

static void proposes_the_nearest_key(void **state)
{
    (void)state;
    static const struct {
        const char *key, *said;
    } cases[] = {
        {"nubmer", "unknown key \"nubmer\"; did you mean \"number\"?"},
        {"Text", "unknown key \"Text\"; did you mean \"text\"?"},
        {"texts", "unknown key \"texts\"; did you mean \"text\"?"},
        {"temperature", "unknown key \"temperature\"; remove it or look it up in README.md"},
        {"a-key-that-is-longer-than-any-that-is-ever-compared",
         "unknown key \"a-key-that-is-longer-than-any-that-is-ever-compared\"; remove it or look it up in "
         "README.md"},
        {"line\nbreak \x1B[2J", "unknown key \"line break  [2J\"; remove it or look it up in README.md"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        json_t *value = json_pack("{s:s, s:i}", "text", "t", cases[i].key, 1);
        assert_int_equal(json_read_fields(value, "x", fields, JSON_UNKNOWN_KEYS_IGNORED, &error), 0);
        assert_int_equal(json_read_fields(value, "x", fields, JSON_UNKNOWN_KEYS_REFUSED, &error), -1);
        assert_string_equal(error.message + strlen("x: "), cases[i].said);
        json_decref(value);
    }
}

/* --- parsing ------------------------------------------------------------------------------------------------------ */

static char *nested(int depth)
{
    char *text = xcalloc(2 * (size_t)depth + 1, 1);
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    return text;
}

static void expect_refused(const char *text, size_t size, const char *said)
{
    struct error error = {0};
    assert_null(json_read_text(text, size, "x.json", &error));
    if (strncmp(error.message, "x.json: line ", 13) != 0 || !strstr(error.message, said))
        fail_msg("\"%s\" does not hold \"%s\"", error.message, said);
    assert_null(strpbrk(error.message, "\n\r\x1B"));
}

static void refuses_text_that_is_not_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "line 1, column 0"},
        {"{\n \"a\": 1,\n}", "line 3, column 1"},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key"},
        {"{\"a\": 1} {}", "end of file expected"},
        {"{\"a\": NaN}", "invalid token"},
        {"{\"a\": 1e999}", "real number overflow"},
        {"{\"a\": -1e999}", "real number overflow"},
        {"{\"a\": 9223372036854775808}", "too big integer"},
        {"{\"a\": -9223372036854775809}", "too big negative integer"},
        {"{\"a\": 007}", "invalid token"},
        {"{\"a\": \"\\u0000\"}", "\\u0000 is not allowed"},
        {"{\"a\\u0000\": 1}", "NUL byte in object key not supported"},
        {"{\"a\": \"\\uD800\"}", "invalid Unicode"},
        {"{\"a\": \"\xC0\x80\"}", "unable to decode byte 0xc0"},
        {"{\"a\": \"\xED\xA0\x80\"}", "unable to decode byte 0xed"},
        {"{\"a\": \"\xF4\x90\x80\x80\"}", "unable to decode byte 0xf4"},
        {"{\"a\": \"b\nc\"}", "unexpected newline"},
        {"{\"a\": \x1B[2J}", "invalid token"},
        {"\xFE\xFF{}", "unable to decode byte 0xfe"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].text, strlen(cases[i].text), cases[i].said);
    expect_refused("{}\0{}", 5, "end of file expected");
    char *deep = nested(5000);
    expect_refused(deep, strlen(deep), "maximum parsing depth reached");
    free(deep);
}

/* Everything that is read can also be written, hashed and freed. */
static void takes_nesting_up_to_the_parsers_limit(void **state)
{
    (void)state;
    struct error error = {0};
    char *deep = nested(2047), hash[FILE_HASH_SIZE];
    json_t *value = json_read_text(deep, strlen(deep), "x", &error);
    assert_non_null(value);
    char *again = json_canonical(value);
    assert_string_equal(again, deep);
    json_hash(value, hash);
    free(again);
    free(deep);
    json_decref(value);
}

static void passes_over_a_byte_order_mark_and_takes_crlf(void **state)
{
    (void)state;
    static const char text[] = "\xEF\xBB\xBF{\r\n\"a\": 1\r\n}\r\n";
    struct error error = {0};
    json_t *value = json_read_text(text, strlen(text), "x", &error);
    assert_string_equal(error.message, "");
    assert_int_equal(json_integer_value(json_object_get(value, "a")), 1);
    json_decref(value);
    expect_refused("\xEF\xBB\xBF", 3, "line 1, column 0");
    expect_refused("\xEF\xBB\xBF\xEF\xBB\xBF{}", 8, "line 1, column 1");
}

static void reads_files(void **state)
{
    (void)state;
    struct error error = {0};
    char *folder = fixture_make_folder(), *path = file_join(folder, "x.json");
    fixture_write(path, "{\"a\":\n1,}", 9);
    assert_null(json_read_file(path, &error));
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    assert_non_null(strstr(error.message, ": line 2, column 3: "));
    fixture_write(path, "[1]", 3);
    error.message[0] = '\0';
    json_t *value = json_read_file(path, &error);
    assert_int_equal(json_array_size(value), 1);
    json_decref(value);
    free(path);
    fixture_remove_folder(folder);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void expect_canonical(json_t *value, const char *expected)
{
    char *text = json_canonical(value);
    assert_string_equal(text, expected);
    free(text);
    json_decref(value);
}

static void has_one_canonical_form(void **state)
{
    (void)state;
    expect_canonical(parse("{\"b\": [1, 2.5, null],\n \"a\": {\"y\": true, \"x\": \"\\u00e9\"}}"),
                     "{\"a\":{\"x\":\"\xC3\xA9\",\"y\":true},\"b\":[1,2.5,null]}");
    expect_canonical(parse("\"alone\""), "\"alone\"");
    expect_canonical(json_real(0.1), "0.10000000000000001");
    char first[FILE_HASH_SIZE], second[FILE_HASH_SIZE];
    json_t *one = parse("{\"a\": 1, \"b\": 2}"), *other = parse("{\"b\":2,\"a\":1}");
    json_hash(one, first);
    json_hash(other, second);
    assert_string_equal(first, second);
    /* printf '{"a":1,"b":2}' | sha256sum */
    assert_string_equal(first, "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777");
    json_decref(one);
    json_decref(other);
}

static void writes_no_number_that_is_none(void **state)
{
    (void)state;
    expect_canonical(json_number(NAN), "null");
    expect_canonical(json_number(INFINITY), "null");
    expect_canonical(json_number(-INFINITY), "null");
    expect_canonical(json_number(-0.0), "-0.0");
    expect_canonical(json_number(1e308), "1e308");
}

static void writes_invalid_utf8_as_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text, *written;
    } cases[] = {
        {"", ""},
        {"caf\xC3\xA9", "caf\xC3\xA9"},
        {"caf\xC3", "caf\xEF\xBF\xBD"},
        {"\xFF-\xFE", "\xEF\xBF\xBD-\xEF\xBF\xBD"},
        {"a\xED\xA0\x80z", "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xEF\xBF\xBE", "\xEF\xBF\xBE"}, /* a noncharacter is valid UTF-8 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *value = json_text(cases[i].text);
        assert_string_equal(json_string_value(value), cases[i].written);
        json_decref(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(null_and_absence_leave_the_default),
        cmocka_unit_test(refuses_by_key_and_remedy),
        cmocka_unit_test(proposes_the_nearest_key),
        cmocka_unit_test(refuses_text_that_is_not_json),
        cmocka_unit_test(takes_nesting_up_to_the_parsers_limit),
        cmocka_unit_test(passes_over_a_byte_order_mark_and_takes_crlf),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(has_one_canonical_form),
        cmocka_unit_test(writes_no_number_that_is_none),
        cmocka_unit_test(writes_invalid_utf8_as_replacement_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
