#include "collect/prompt.h"

#include "collect/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Reads a file with these bytes; its path is in *path, to be free()d. */
static int read_bytes(const char *bytes, size_t size, struct prompts *prompts, char **path, struct error *error)
{
    *path = xformat("%s/cleanslate-XXXXXX", P_tmpdir);
    int descriptor = mkstemp(*path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, size), (ssize_t)size);
    close(descriptor);
    int result = prompt_read_file(*path, prompts, error);
    unlink(*path);
    return result;
}

static void reads_prompts_in_order(void **state)
{
    (void)state;
    static const char text[] = "{\"id\": \"b\", \"text\": \"def f():\\n\"}\r\n\n  \n"
                               "{\"text\": \"\xC3\xA9t\xC3\xA9 \\\"x\\\"\", \"id\": \"a\"}";
    struct error error = {0};
    struct prompts prompts;
    char *path;
    assert_int_equal(read_bytes(text, strlen(text), &prompts, &path, &error), 0);
    assert_int_equal(prompts.count, 2);
    assert_string_equal(prompts.items[0].id, "b");
    assert_string_equal(prompts.items[0].text, "def f():\n");
    assert_string_equal(prompts.items[1].id, "a");
    assert_string_equal(prompts.items[1].text, "\xC3\xA9t\xC3\xA9 \"x\"");
    prompt_free(&prompts);
    free(path);
}

static void names_file_and_line_of_a_fault(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } faults[] = {
        {"", ": no prompts in it; write one"},
        {"\n \n", ": no prompts in it; write one"},
        {"{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"b\",\"text\":", ":2: line 1, column "},
        {"{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":\"b\"}\n", ":3: \"text\" is missing; it must be a string"},
        {"{\"text\":\"x\"}\n", ":1: \"id\" is missing; it must be a string"},
        {"{\"id\":7,\"text\":\"x\"}\n", ":1: \"id\" must be a string"},
        {"{\"id\":\"a\",\"text\":[]}\n", ":1: \"text\" must be a string"},
        {"{\"id\":\"a\",\"txet\":\"x\"}\n", ":1: unknown key \"txet\"; did you mean \"text\"?"},
        {"{\"id\":\"a\",\"text\":\"x\",\"id\":\"b\"}\n", ":1: line 1, column "},
        {"{\"id\":\"\",\"text\":\"x\"}\n", ":1: the id is empty"},
        {"{\"id\":\"a\",\"text\":\"\"}\n", ":1: the text is empty"},
        {"{\"id\":\"a\\nb\",\"text\":\"x\"}\n", ":1: the id has a control character"},
        {"{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"b\",\"text\":\"y\"}\n{\"id\":\"a\",\"text\":\"z\"}\n",
         ":3: the id \"a\" is that of line 1 already"},
        {"{\"id\":\"a\",\"text\":\"\xFF\"}\n", ":1: line 1, column "},
        {"[]\n", ":1: no known prompt format; a line is {\"id\""},
        {"{\"question\":\"?\"}\n", ":1: no known prompt format; a line is {\"id\""},
        {"{\"id\":\"a\",\"text\":\"x\"}\n[]\n", ":2: must be an object"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct error error = {0};
        struct prompts prompts;
        char *path;
        assert_int_equal(read_bytes(faults[i].text, strlen(faults[i].text), &prompts, &path, &error), -1);
        char *expected = xformat("%s%s", path, faults[i].expected);
        if (strncmp(error.message, expected, strlen(expected)) != 0)
            fail_msg("expected \"%s\", got \"%s\"", expected, error.message);
        assert_null(strchr(error.message, '\n'));
        assert_int_equal(prompts.count, 0);
        free(expected);
        free(path);
    }
}

static void names_a_missing_file(void **state)
{
    (void)state;
    struct error error = {0};
    struct prompts prompts;
    assert_int_equal(prompt_read_file("no/such/prompts.jsonl", &prompts, &error), -1);
    assert_string_equal(error.message, "no/such/prompts.jsonl: cannot open: No such file or directory");
}

static void own_prompt_sets_are_whole(void **state)
{
    (void)state;
    static const char *const paths[] = {"data/prompts/code.jsonl", "data/prompts/maths.jsonl",
                                        "data/prompts/prose.jsonl"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct error error = {0};
        struct prompts prompts;
        prompt_read_file(paths[i], &prompts, &error);
        assert_string_equal(error.message, "");
        assert_true(prompts.count >= 16);
        prompt_free(&prompts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_prompts_in_order),
        cmocka_unit_test(names_file_and_line_of_a_fault),
        cmocka_unit_test(names_a_missing_file),
        cmocka_unit_test(own_prompt_sets_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
