/* The texts are those that the papers' evaluation gives its models. */
#include "collect/prompt.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OWN "{\"id\": \"a\", \"text\": \"Find x.\"}"
#define GSM8K "{\"question\": \"How many?\", \"answer\": \"3\"}"
#define HUMANEVAL "{\"task_id\": \"t\", \"prompt\": \"def f():\\n\"}"
#define LIVECODEBENCH(starter)                                                                                         \
    "{\"question_title\": \"A\", \"question_content\": \"Add two numbers.\", \"question_id\": \"abc301_a\", "          \
    "\"starter_code\": \"" starter "\", \"public_test_cases\": \"[]\"}"
#define EXPERT                                                                                                         \
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "   \
    "correct Python program that matches the specification and passes all tests. You will NOT return anything except " \
    "for the program\n\n### Question:\nAdd two numbers.\n\n"
#define ANSWER "\n```\n\n### Answer: (use the provided format with backticks)"
#define CHAT                                                                                                           \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi\"}, "  \
    "{\"role\": \"assistant\", \"content\": \"<think>\\n</think>\\n\\nYes?\"}, {\"role\": \"user\", \"content\": "     \
    "\"Go\"}]}"
#define BOXED "\nPlease reason step by step, and put your final answer within \\boxed{}."

static int apply(const char *line, enum prompt_template template, enum prompt_chat chat, struct prompts *prompts,
                 struct error *error)
{
    char *folder = fixture_make_folder(), *path = file_join(folder, "p.jsonl");
    fixture_write(path, line, strlen(line));
    assert_int_equal(prompt_read_file(path, prompts, error), 0);
    int result = prompt_apply(prompts, template, chat, &(struct chat_style){0}, "p.jsonl", error);
    free(path);
    fixture_remove_folder(folder);
    return result;
}

static void puts_around_what_the_papers_do(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum prompt_template template;
        enum prompt_chat chat;
        const char *text, *user;
    } cases[] = {
        {OWN, PROMPT_TEMPLATE_PLAIN, PROMPT_CHAT_NONE, "Find x.", "Find x."},
        {OWN, PROMPT_TEMPLATE_MATH, PROMPT_CHAT_NONE, "Find x." BOXED, "Find x."},
        {GSM8K, PROMPT_TEMPLATE_MATH, PROMPT_CHAT_NO_THINKING,
         "<|im_start|>user\nHow many?" BOXED "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", "How many?"},
        {GSM8K, PROMPT_TEMPLATE_PLAIN, PROMPT_CHAT_THINKING,
         "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n", "How many?"},
        {HUMANEVAL, PROMPT_TEMPLATE_HUMANEVAL, PROMPT_CHAT_NONE,
         "Write a solution to the following problem and make sure that it passes the tests:\n```python\ndef "
         "f():\n\n```",
         "Write a"},
        {HUMANEVAL, PROMPT_TEMPLATE_MBPP, PROMPT_CHAT_NONE, "def f():\n", "def"},
        {"{\"instruction\": \"Sum up.\", \"input\": \"A tale.\"}", PROMPT_TEMPLATE_ALPACA, PROMPT_CHAT_NONE,
         "Sum up.\n\nInput:\nA tale.", "Sum"},
        {"{\"instance_id\": \"i\", \"problem_statement\": \"It fails.\"}", PROMPT_TEMPLATE_SWE_BENCH, PROMPT_CHAT_NONE,
         "Problem Statement:\nIt fails.\nPlease fix the issue described above.", "Problem"},
        {LIVECODEBENCH(""), PROMPT_TEMPLATE_LIVECODEBENCH, PROMPT_CHAT_NONE,
         EXPERT "### Format: Write your code in the following format:\n```python\n# YOUR CODE HERE" ANSWER, "You are"},
        {LIVECODEBENCH("def add(a, b):\\n    "), PROMPT_TEMPLATE_LIVECODEBENCH, PROMPT_CHAT_NONE,
         EXPERT "### Format: Use the following code structure:\n```python\ndef add(a, b):\n    " ANSWER, "You are"},
        {CHAT, PROMPT_TEMPLATE_PLAIN, PROMPT_CHAT_NO_THINKING,
         "<|im_start|>system\nBe "
         "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>"
         "\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
         "Hi<|im_end|>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prompts prompts;
        struct error error = {0};
        apply(cases[i].line, cases[i].template, cases[i].chat, &prompts, &error);
        assert_string_equal(error.message, "");
        assert_string_equal(prompts.items[0].text, cases[i].text);
        assert_memory_equal(prompts.items[0].text + prompts.items[0].fill_at, cases[i].user, strlen(cases[i].user));
        prompt_free(&prompts);
    }
}

static void refuses_what_was_made_for_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum prompt_template template;
        enum prompt_chat chat;
        const char *expected;
    } cases[] = {
        {GSM8K, PROMPT_TEMPLATE_HUMANEVAL, PROMPT_CHAT_NONE, "p.jsonl: template \"humaneval\" is not made for GSM8K "},
        {HUMANEVAL, PROMPT_TEMPLATE_MATH, PROMPT_CHAT_NONE,
         "p.jsonl: template \"math\" is not made for HumanEval or MBPP "},
        {CHAT, PROMPT_TEMPLATE_MATH, PROMPT_CHAT_THINKING, "p.jsonl: template \"math\" is not made for chat prompts"},
        {CHAT, PROMPT_TEMPLATE_PLAIN, PROMPT_CHAT_NONE,
         "p.jsonl: these are chats; say \"chat\": \"thinking\" or \"no-thinking\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prompts prompts;
        struct error error = {0};
        assert_int_equal(apply(cases[i].line, cases[i].template, cases[i].chat, &prompts, &error), -1);
        assert_memory_equal(error.message, cases[i].expected, strlen(cases[i].expected));
        prompt_free(&prompts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_around_what_the_papers_do),
        cmocka_unit_test(refuses_what_was_made_for_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
