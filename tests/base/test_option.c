#include "collect/base/option.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static bool verbose;
static const char *plan, *runs;
static int count;

static const struct option_entry entries[] = {
    {"--plan", OPTION_TEXT, &plan, "FILE", "what to measure", .required = true},
    {"--runs", OPTION_TEXT, &runs, "DIR", "where runs are kept"},
    {"--count", OPTION_COUNT, &count, "N", "how many"},
    {"--verbose", OPTION_FLAG, &verbose, NULL, "say more"},
    {0},
};

static const struct option_command command = {
    .usage = "tool --plan FILE [options] NAME...",
    .purpose = "Does what it does.",
    .options = entries,
    .minimum_arguments = 0,
    .maximum_arguments = 2,
};

enum { ARGUMENTS_MAXIMUM = 10 };

struct call {
    char *argv[ARGUMENTS_MAXIMUM];
    int arguments;
    char said[1024]; /* on both streams */
};

/* Parses the words (NULL ends them). */
static enum option_result parse(const struct option_command *parsed, const char *const *words, struct call *call)
{
    verbose = false;
    plan = runs = NULL;
    count = 0;
    *call = (struct call){.argv = {"tool"}};
    int argc = 1, ends[2];
    for (; words[argc - 1]; argc++)
        call->argv[argc] = (char *)words[argc - 1];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    int output = dup(STDOUT_FILENO), errors = dup(STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    enum option_result result = option_parse(parsed, argc, call->argv, &call->arguments);
    fflush(NULL);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    close(output);
    close(errors);
    close(ends[1]);
    assert_true(read(ends[0], call->said, sizeof call->said - 1) >= 0);
    close(ends[0]);
    return result;
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void takes_options_in_both_forms_and_any_order(void **state)
{
    (void)state;
    struct call call;
    assert_int_equal(parse(&command, WORDS("one", "--count", "3", "--plan=a=b", "--verbose", "two"), &call),
                     OPTION_RUN);
    assert_string_equal(plan, "a=b");
    assert_int_equal(count, 3);
    assert_true(verbose);
    assert_null(runs);
    assert_int_equal(call.arguments, 2);
    assert_string_equal(call.argv[0], "one");
    assert_string_equal(call.argv[1], "two");
    assert_string_equal(call.said, "");
}

static void takes_the_last_of_two_and_values_that_look_like_options(void **state)
{
    (void)state;
    struct call call;
    assert_int_equal(parse(&command, WORDS("--plan", "a", "--plan", "--verbose"), &call), OPTION_RUN);
    assert_string_equal(plan, "--verbose");
    assert_false(verbose);
    assert_int_equal(call.arguments, 0);
}

static void takes_anything_behind_two_dashes(void **state)
{
    (void)state;
    struct call call;
    assert_int_equal(parse(&command, WORDS("--plan", "a", "--", "--count", "--"), &call), OPTION_RUN);
    assert_int_equal(call.arguments, 2);
    assert_string_equal(call.argv[0], "--count");
    assert_string_equal(call.argv[1], "--");
    assert_int_equal(parse(&command, WORDS("--plan", "a", "-"), &call), OPTION_RUN);
    assert_string_equal(call.argv[0], "-");
}

static void answers_wrong_calls_with_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *words[6], *said;
    } cases[] = {
        {{NULL}, "missing --plan"},
        {{"--verbose"}, "missing --plan"},
        {{"--plan"}, "a value is missing after --plan"},
        {{"--plan", ""}, "wrong value for --plan"},
        {{"--plan="}, "wrong value for --plan"},
        {{"--plans", "a"}, "unknown option --plans"},
        {{"--pla=a"}, "unknown option --pla=a"},
        {{"-p", "a"}, "unknown option -p"},
        {{"--plan", "a", "--verbose=yes"}, "no value goes with --verbose"},
        {{"--plan", "a", "--count", "0"}, "wrong value for --count"},
        {{"--plan", "a", "--count", "-1"}, "wrong value for --count"},
        {{"--plan", "a", "--count", "3x"}, "wrong value for --count"},
        {{"--plan", "a", "--count", ""}, "wrong value for --count"},
        {{"--plan", "a", "--count", "4294967297"}, "wrong value for --count"},
        {{"--plan", "a", "--count", "99999999999999999999"}, "wrong value for --count"},
        {{"--plan", "a", "one", "two", "three"}, "unexpected argument three"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call call;
        char line[512];
        assert_int_equal(parse(&command, cases[i].words, &call), OPTION_WRONG);
        snprintf(line, sizeof line, "%s; usage: %s\n", cases[i].said, command.usage);
        assert_string_equal(call.said, line);
    }
}

static void asks_for_as_many_arguments_as_the_command_takes(void **state)
{
    (void)state;
    struct option_command any = command;
    struct call call;
    any.minimum_arguments = 1;
    any.maximum_arguments = -1;
    assert_int_equal(parse(&any, WORDS("--plan", "a"), &call), OPTION_WRONG);
    assert_int_equal(strncmp(call.said, "too few arguments; usage: ", 26), 0);
    assert_int_equal(parse(&any, WORDS("--plan", "a", "1", "2", "3", "4"), &call), OPTION_RUN);
    assert_int_equal(call.arguments, 4);
    assert_string_equal(call.argv[3], "4");
}

static void prints_its_help_from_the_table(void **state)
{
    (void)state;
    struct call call;
    assert_int_equal(parse(&command, WORDS("--count", "2", "--help", "--nonsense"), &call), OPTION_HELP_SHOWN);
    assert_string_equal(call.said, "usage: tool --plan FILE [options] NAME...\n\nDoes what it does.\n\n"
                                   "  --plan FILE              what to measure (required)\n"
                                   "  --runs DIR               where runs are kept\n"
                                   "  --count N                how many\n"
                                   "  --verbose                say more\n"
                                   "  --help                   this text\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_options_in_both_forms_and_any_order),
        cmocka_unit_test(takes_the_last_of_two_and_values_that_look_like_options),
        cmocka_unit_test(takes_anything_behind_two_dashes),
        cmocka_unit_test(answers_wrong_calls_with_one_line),
        cmocka_unit_test(asks_for_as_many_arguments_as_the_command_takes),
        cmocka_unit_test(prints_its_help_from_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
