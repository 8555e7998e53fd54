#include "collect/import/document.h"

#include "collect/base/json.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

static struct document parse_bytes(const char *text, size_t size)
{
    struct document document;
    struct error error = {0};
    if (document_parse("x.json", text, size, &document, &error))
        fail_msg("%s", error.message);
    return document;
}

static struct document parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static size_t count(const struct document *document)
{
    return json_array_size(document->values);
}

static const json_t *get(const struct document *document, size_t value, const char *key)
{
    return json_object_get(json_array_get(document->values, value), key);
}

static void expect_text(const json_t *value, const char *text)
{
    if (!json_is_string(value))
        fail_msg("is no text, but should be \"%s\"", text);
    assert_string_equal(json_string_value(value), text);
}

/* Notes of that oddity and of no other. */
static void expect_note(const struct document *document, enum document_oddity oddity, int times, size_t offset)
{
    for (int i = 0; i < DOCUMENT_ODDITY_COUNT; i++)
        assert_int_equal(document->notes[i].count, i == (int)oddity ? times : 0);
    assert_int_equal(document->notes[oddity].offset, offset);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void reads_what_jansson_reads(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [1, -2.5e3, true, false, null, {}], \"\\u00e9\\ud83d\\ude00\\n\\\"\": \"\\/\\t\xC3\xA9\"}";
    struct document document = parse(text);
    json_t *expected = json_loads(text, 0, NULL);
    assert_int_equal(count(&document), 1);
    assert_true(json_equal(json_array_get(document.values, 0), expected));
    expect_note(&document, DOCUMENT_CUT, 0, 0);
    json_decref(expected);
    document_free(&document);
}

static void reads_values_one_behind_the_other(void **state)
{
    (void)state;
    static const char *const texts[] = {"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n", "{\"a\":1}{\"a\":2} {\"a\":3}",
                                        "\xEF\xBB\xBF{\"a\":1}\r\n{\"a\":2}\r\n\r\n{\"a\":3}\r\n",
                                        "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}\n{\n  \"a\": 3\n}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct document document = parse(texts[i]);
        assert_int_equal(count(&document), 3);
        for (int j = 0; j < 3; j++)
            assert_int_equal(json_integer_value(get(&document, (size_t)j, "a")), j + 1);
        expect_note(&document, DOCUMENT_CUT, 0, 0);
        document_free(&document);
    }
}

static void keeps_numbers_that_json_has_not(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } spellings[] = {{"NaN", NAN},      {"nan", NAN},       {"-nan", NAN},       {"Infinity", INFINITY},
                     {"inf", INFINITY}, {"+inf", INFINITY}, {"-inf", -INFINITY}, {"-Infinity", -INFINITY},
                     {"INF", INFINITY}};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char *text = xformat("{\"a\": %s, \"b\": \"%s\"}", spellings[i].text, spellings[i].text);
        struct document document = parse(text);
        for (const char *key = "a"; key; key = key[0] == 'a' ? "b" : NULL) {
            double value = document_number(get(&document, 0, key));
            assert_true(isnan(spellings[i].value) ? isnan(value) : value == spellings[i].value);
        }
        expect_note(&document, DOCUMENT_NOT_FINITE, 1, 6);
        document_free(&document);
        free(text);
    }
}

static void keeps_numbers_beyond_64_bits_as_text(void **state)
{
    (void)state;
    struct document document =
        parse("{\"a\": 18209322760996052031, \"b\": 9223372036854775807, \"c\": 1759522419154829652, \"d\": 1e999}");
    expect_text(get(&document, 0, "a"), "18209322760996052031");
    assert_true(json_integer_value(get(&document, 0, "b")) == INT64_MAX);
    assert_true(json_integer_value(get(&document, 0, "c")) == 1759522419154829652);
    expect_text(get(&document, 0, "d"), "1e999");
    assert_true(document_number(get(&document, 0, "a")) == 18209322760996052031.0);
    expect_note(&document, DOCUMENT_LARGE_NUMBER, 2, 6);
    document_free(&document);
}

static void keeps_both_of_a_key_twice(void **state)
{
    (void)state;
    struct document document = parse("{\"k\": 348.65, \"x\": {\"k\": 1}, \"k\": 333.45}");
    assert_true(json_real_value(get(&document, 0, "k")) == 348.65);
    assert_true(json_real_value(get(&document, 0, "k#2")) == 333.45);
    assert_string_equal(document.notes[DOCUMENT_DUPLICATE_KEY].example, "k");
    expect_note(&document, DOCUMENT_DUPLICATE_KEY, 1, 29);
    document_free(&document);
}

static void replaces_what_is_no_utf8(void **state)
{
    (void)state;
    struct document document = parse("{\"a\": \"x\xFFy\", \"b\": \"\\ud800\\u0000\"}");
    expect_text(get(&document, 0, "a"), "x\xEF\xBF\xBDy");
    assert_int_equal(document.notes[DOCUMENT_NOT_UTF8].count, 2);
    document_free(&document);
}

/* What is whole of lines stays, whatever byte the file ends behind. */
static void keeps_whole_lines_of_a_file_that_is_cut(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 1, \"s\": \"x\\\"\"}\n{\"a\": 2, \"l\": [1, 2]}\n{\"a\": 3}\n";
    const size_t first = (size_t)(strchr(text, '\n') - text), second = (size_t)(strrchr(text, '[') - text) + 7;
    for (size_t size = first; size < strlen(text); size++) {
        struct document document = parse_bytes(text, size);
        const size_t whole = size < second ? 1 : size < strlen(text) - 1 ? 2 : 3;
        const bool cut = size > first + 1 && !(size == second || size == second + 1 || size == strlen(text) - 1);
        assert_int_equal(count(&document), whole);
        expect_note(&document, DOCUMENT_CUT, cut, document.notes[DOCUMENT_CUT].offset);
        assert_in_range(document.notes[DOCUMENT_CUT].offset, cut ? first + 1 : 0, cut ? size : 0);
        document_free(&document);
    }
}

static void keeps_whole_members_of_a_value_that_is_cut(void **state)
{
    (void)state;
    struct document document = parse("{\"a\": 1, \"l\": [1, 2, 34");
    assert_int_equal(json_integer_value(get(&document, 0, "a")), 1);
    assert_int_equal(json_array_size(get(&document, 0, "l")), 2);
    expect_note(&document, DOCUMENT_CUT, 1, 21);
    document_free(&document);
}

static void goes_on_behind_a_line_that_is_damaged(void **state)
{
    (void)state;
    struct document document = parse("{\"a\": 1}\n{\"a\": 2, \"b\n{\"a\": 3}\n{\"a\": 4, x}\n{\"a\": 5}\n");
    assert_int_equal(count(&document), 3);
    assert_int_equal(json_integer_value(get(&document, 1, "a")), 3);
    assert_int_equal(json_integer_value(get(&document, 2, "a")), 5);
    expect_note(&document, DOCUMENT_DAMAGED, 2, 20);
    document_free(&document);
}

static void bears_any_depth(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = xmalloc(DEPTH);
    memset(text, '[', DEPTH);
    struct document document = parse_bytes(text, DEPTH);
    assert_int_equal(document.notes[DOCUMENT_CUT].count, 1);
    document_free(&document);
    free(text);
}

static void refuses_what_holds_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"", " \n", "hello\n", "a,b\n", "| a |\n| - |\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct document document;
        struct error error = {0};
        assert_int_equal(document_parse("x.csv", texts[i], strlen(texts[i]), &document, &error), -1);
        assert_non_null(strstr(error.message, "x.csv: holds nothing that can be read"));
    }
}

/* --- tables and texts --------------------------------------------------------------------------------------------- */

static void reads_csv(void **state)
{
    (void)state;
    struct document document = parse("\xEF\xBB\xBF"
                                     "name,n,rate\r\n\"a, \"\"b\"\"\nc\",1,NaN\r\n x ,2,4.23\r\nshort,1\r\ncut,3");
    assert_int_equal(document.syntax, DOCUMENT_TABLE);
    assert_int_equal(count(&document), 2);
    expect_text(get(&document, 0, "name"), "a, \"b\"\nc");
    assert_true(isnan(document_number(get(&document, 0, "rate"))));
    expect_text(get(&document, 1, "name"), "x");
    assert_true(document_number(get(&document, 1, "rate")) == 4.23);
    assert_int_equal(document.notes[DOCUMENT_DAMAGED].count, 1);
    assert_int_equal(document.notes[DOCUMENT_CUT].count, 1);
    document_free(&document);
}

static void reads_markdown_between_other_lines(void **state)
{
    (void)state;
    struct document document = parse("found 1 device\n| model | t/s |\n| --- | ---: |\n| a b | 7.5 ± 0.1 |\n"
                                     "| c | 8 |\n\nbuild: 1\n| no | table |\n");
    assert_int_equal(count(&document), 2);
    expect_text(get(&document, 0, "model"), "a b");
    expect_text(get(&document, 0, "t/s"), "7.5 \xC2\xB1 0.1");
    expect_text(get(&document, 1, "t/s"), "8");
    document_free(&document);
}

static void reads_mlperf(void **state)
{
    (void)state;
    struct document document = parse(":::MLLOG {\"key\": \"a\", \"value\": 18209322760996052031}\r\nnoise\n"
                                     ":::MLLOG {\"key\": \"b\", \"value\": \"VALID\"}\n:::MLLOG {\"key\": \"c\"");
    assert_int_equal(document.syntax, DOCUMENT_MLPERF_LOG);
    assert_int_equal(count(&document), 2);
    expect_text(get(&document, 0, "value"), "18209322760996052031");
    assert_int_equal(document.notes[DOCUMENT_CUT].count, 1);
    document_free(&document);
    document = parse("MLPerf Results Summary\nResult is : VALID\n  Min (ns)  : 12\nWARNING: x was set.\n");
    assert_int_equal(document.syntax, DOCUMENT_MLPERF_SUMMARY);
    expect_text(get(&document, 0, "Result is"), "VALID");
    assert_true(document_number(get(&document, 0, "Min (ns)")) == 12);
    document_free(&document);
}

/* --- packed files ------------------------------------------------------------------------------------------------- */

static size_t pack_gzip(const char *text, char *packed, size_t capacity)
{
    z_stream stream = {.next_in = (Bytef *)text,
                       .avail_in = (uInt)strlen(text),
                       .next_out = (Bytef *)packed,
                       .avail_out = (uInt)capacity};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return capacity - stream.avail_out;
}

static struct document read_file(const char *bytes, size_t size)
{
    struct document document;
    struct error error = {0};
    if (document_read(fuzz_write("packed", bytes, size), &document, &error))
        fail_msg("%s", error.message);
    return document;
}

static void unpacks_gzip_and_zstd(void **state)
{
    (void)state;
    char packed[2][1024], hash[FILE_HASH_SIZE];
    static const char text[] = "{\"a\": 1}\n";
    size_t sizes[2] = {pack_gzip(text, packed[0], 512), ZSTD_compress(packed[1], 512, text, strlen(text), 3)};
    sizes[0] += pack_gzip(text, packed[0] + sizes[0], 512);
    sizes[1] += ZSTD_compress(packed[1] + sizes[1], 512, text, strlen(text), 3);
    for (int i = 0; i < 2; i++) {
        struct document document = read_file(packed[i], sizes[i]);
        assert_int_equal(count(&document), 2);
        expect_note(&document, DOCUMENT_CUT, 0, 0);
        file_hash_bytes(packed[i], sizes[i], hash);
        assert_string_equal(document.sha256, hash);
        document_free(&document);
    }
}

/* {"a": "é😀"} as PowerShell writes it, and the other way round. */
static void reads_utf16(void **state)
{
    (void)state;
    static const char little[] = "\xFF\xFE{\0\"\0a\0\"\0:\0\"\0\xE9\0\x3D\xD8\x00\xDE\"\0}\0";
    char big[sizeof little - 1];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = little[i ^ 1];
    const char *const files[] = {little, big};
    for (int i = 0; i < 2; i++) {
        struct document document = read_file(files[i], sizeof big);
        expect_text(get(&document, 0, "a"), "\xC3\xA9\xF0\x9F\x98\x80");
        expect_note(&document, DOCUMENT_CUT, 0, 0);
        document_free(&document);
    }
}

/* A line's number as a text that hardly packs, so that what is cut leaves some of it. */
static void keeps_what_a_cut_archive_holds(void **state)
{
    (void)state;
    enum { LINES = 4000, SIZE = 400000 };
    char *text = xcalloc(SIZE, 1), *packed = xmalloc(SIZE), hash[FILE_HASH_SIZE];
    for (int i = 0; i < LINES; i++) {
        file_hash_bytes(&i, sizeof i, hash);
        sprintf(text + strlen(text), "{\"a\": %d, \"b\": \"%s\"}\n", i, hash);
    }
    size_t gzip = pack_gzip(text, packed, SIZE);
    struct document document = read_file(packed, gzip / 2);
    assert_in_range(count(&document), LINES / 3, LINES * 2 / 3);
    assert_true(document.notes[DOCUMENT_CUT].count > 0);
    document_free(&document);
    size_t zstd = ZSTD_compress(packed, SIZE, text, strlen(text), 3);
    document = read_file(packed, zstd * 9 / 10);
    assert_in_range(count(&document), 1, LINES - 1);
    assert_true(document.notes[DOCUMENT_CUT].count > 0);
    document_free(&document);
    free(text);
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_jansson_reads),
        cmocka_unit_test(reads_values_one_behind_the_other),
        cmocka_unit_test(keeps_numbers_that_json_has_not),
        cmocka_unit_test(keeps_numbers_beyond_64_bits_as_text),
        cmocka_unit_test(keeps_both_of_a_key_twice),
        cmocka_unit_test(replaces_what_is_no_utf8),
        cmocka_unit_test(keeps_whole_lines_of_a_file_that_is_cut),
        cmocka_unit_test(keeps_whole_members_of_a_value_that_is_cut),
        cmocka_unit_test(goes_on_behind_a_line_that_is_damaged),
        cmocka_unit_test(bears_any_depth),
        cmocka_unit_test(refuses_what_holds_nothing),
        cmocka_unit_test(reads_csv),
        cmocka_unit_test(reads_markdown_between_other_lines),
        cmocka_unit_test(reads_mlperf),
        cmocka_unit_test(unpacks_gzip_and_zstd),
        cmocka_unit_test(reads_utf16),
        cmocka_unit_test(keeps_what_a_cut_archive_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
