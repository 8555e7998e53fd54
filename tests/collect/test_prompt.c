#include "collect/prompt.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

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
        {"{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":\"b\"}\n", ":3: a line of no known format; the file's first line is "
                                                              "of the format plain (\"id\", \"text\"), as all must be"},
        {"{\"question\":\"x\",\"answer\":\"y\"}\n{\"id\":\"b\",\"text\":\"x\"}\n",
         ":2: a line of the format plain; the file's first line is of the format GSM8K (\"question\", \"answer\"), "
         "as "},
        {"{\"messages\":[]}\n", ":1: \"messages\" must be a list of at least one message"},
        {"{\"messages\":[7]}\n", ":1: messages[0]: \"role\" must be \"system\", \"user\" or \"assistant\""},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}\n", ":1: messages[0]: \"role\" must be \"system\","},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}\n", ":1: messages[0]: \"content\" must be a text"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}\n",
         ":1: messages[0]: the last message must be the user's"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"x\"}]}\n",
         ":1: messages[0]: the user must speak first"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\"}]}\n",
         ":1: messages[1]: a system's message must be the first"},
        {"{\"question_id\":1,\"turns\":[]}\n", ":1: \"turns\" must be a list of at least one text"},
        {"{\"question_id\":1,\"turns\":[1]}\n", ":1: \"turns[0]\" must be a string"},
        {"{\"question_id\":1.5,\"turns\":[\"x\"]}\n", ":1: \"question_id\" must be a string or a whole number"},
        {"{\"instruction\":\"x\",\"input\":1}\n", ":1: \"input\" must be a string"},
        {"{\"problem\":\"a\\u0000b\"}\n", ":1: "},
        {"{\"id\":7,\"text\":\"x\"}\n", ":1: \"id\" must be a string"},
        {"{\"id\":\"a\",\"text\":[]}\n", ":1: \"text\" must be a string"},
        {"{\"id\":\"a\",\"txet\":\"x\"}\n",
         ":1: no known prompt format; known by their keys: plain (\"id\", \"text\"), "},
        {"{\"id\":\"a\",\"text\":\"x\",\"txet\":\"x\"}\n", ":1: unknown key \"txet\"; did you mean \"text\"?"},
        {"{\"id\":\"a\",\"text\":\"x\",\"id\":\"b\"}\n", ":1: line 1, column "},
        {"{\"id\":\"\",\"text\":\"x\"}\n", ":1: the id is empty"},
        {"{\"id\":\"a\",\"text\":\"\"}\n", ":1: the text is empty"},
        {"{\"id\":\"a\\nb\",\"text\":\"x\"}\n", ":1: the id has a control character"},
        {"{\"id\":\"a\\u009B31mb\",\"text\":\"x\"}\n", ":1: the id has a control character"},
        {"{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"b\",\"text\":\"y\"}\n{\"id\":\"a\",\"text\":\"z\"}\n",
         ":3: the id \"a\" is that of line 1 already"},
        {"{\"id\":\"a\",\"text\":\"\xFF\"}\n", ":1: line 1, column "},
        {"[]\n", ":1: must be an object"},
        {"Once upon a time\n", ":1: no JSON object; a file that is one prompt as it stands must end in .txt"},
        {"{\"question\":\"?\"}\n", ":1: no known prompt format; known by their keys: "},
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

/* One line of each format, as its authors lay it out. */
static void recognises_formats_by_content(void **state)
{
    (void)state;
    static const struct {
        const char *line, *id, *text;
    } cases[] = {
        {"{\"task_id\": \"HumanEval/7\", \"prompt\": \"def f():\\n\", \"entry_point\": \"f\", \"test\": \"\"}",
         "HumanEval/7", "def f():\n"},
        {"{\"task_id\": 11, \"prompt\": \"Add two.\", \"code\": \"\", \"test_list\": []}", "11", "Add two."},
        {"{\"task_id\": 12, \"text\": \"Add three.\", \"code\": \"\"}", "12", "Add three."},
        {"{\"question\": \"How many?\", \"answer\": \"#### 3\"}", "line-2", "How many?"},
        {"{\"problem\": \"Find $x$.\", \"unique_id\": \"test/algebra/1.json\", \"level\": 2}", "test/algebra/1.json",
         "Find $x$."},
        {"{\"answer\": \"4\", \"prompt\": \"Find $y$.\"}", "line-2", "Find $y$."},
        {"{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"First.\", \"Second.\"]}", "81", "First."},
        {"{\"instruction\": \"Sum up.\", \"input\": \"A tale.\", \"output\": \"\"}", "line-2",
         "Sum up.\n\nInput:\nA tale."},
        {"{\"instruction\": \"Sum up.\", \"input\": \"\"}", "line-2", "Sum up."},
        {"{\"instance_id\": \"lib-1\", \"problem_statement\": \"It fails.\", \"repo\": \"lib\"}", "lib-1", "It fails."},
        {"{\"question_id\": \"3\", \"question_content\": \"Add.\", \"starter_code\": \"\"}", "3",
         "Add.\n\n### Format: Write your code in the following format:\n```python\n# YOUR CODE HERE\n```"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yes?\"}, "
         "{\"role\": "
         "\"user\", \"content\": \"Go\"}]}",
         "line-2", "Go"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        struct prompts prompts;
        char *path, *text = xformat("\n%s\n", cases[i].line);
        read_bytes(text, strlen(text), &prompts, &path, &error);
        assert_string_equal(error.message, "");
        assert_int_equal(prompts.count, 1);
        assert_string_equal(prompts.items[0].id, cases[i].id);
        assert_string_equal(prompts.items[0].text, cases[i].text);
        prompt_free(&prompts);
        free(text);
        free(path);
    }
}

static void reads_a_text_file_as_one_prompt(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *path = file_join(folder, "a tale.txt");
    struct error error = {0};
    struct prompts prompts;
    fixture_write(path, "{\"not\": \"read\"}\n\n", 17);
    assert_int_equal(prompt_read_file(path, &prompts, &error), 0);
    assert_int_equal(prompts.count, 1);
    assert_string_equal(prompts.items[0].id, "a tale");
    assert_string_equal(prompts.items[0].text, "{\"not\": \"read\"}\n");
    prompt_free(&prompts);
    static const struct {
        const char *bytes;
        size_t size;
        const char *expected;
    } faults[] = {{"", 0, ": there is no text in it"},
                  {" \n\t", 3, ": there is no text in it"},
                  {"a\xFF", 2, ": not a text in UTF-8"},
                  {"a\0b", 3, ": not a text in UTF-8"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        error = (struct error){0};
        fixture_write(path, faults[i].bytes, faults[i].size);
        assert_int_equal(prompt_read_file(path, &prompts, &error), -1);
        assert_string_equal(error.message + strlen(path), faults[i].expected);
    }
    free(path);
    fixture_remove_folder(folder);
}

static void joins_a_corpus(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *lines = file_join(folder, "a.jsonl"), *text = file_join(folder, "a.md");
    struct error error = {0};
    static const char two[] = "{\"id\": \"a\", \"text\": \"One.\"}\n{\"id\": \"b\", \"text\": \"Two.\"}\n";
    fixture_write(lines, two, strlen(two));
    fixture_write(text, two, strlen(two));
    char *corpus = prompt_read_corpus(lines, &error);
    assert_string_equal(corpus, "One.\n\nTwo.");
    free(corpus);
    corpus = prompt_read_corpus(text, &error);
    assert_string_equal(corpus, two);
    free(corpus);
    fixture_write(text, "\n", 1);
    assert_null(prompt_read_corpus(text, &error));
    assert_non_null(strstr(error.message, "a.md: there is no text in it"));
    free(lines);
    free(text);
    fixture_remove_folder(folder);
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
        cmocka_unit_test(recognises_formats_by_content),
        cmocka_unit_test(reads_a_text_file_as_one_prompt),
        cmocka_unit_test(joins_a_corpus),
        cmocka_unit_test(names_a_missing_file),
        cmocka_unit_test(own_prompt_sets_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
