/* The expected texts follow the published chat templates of Qwen3, and of Qwen3.5 where a style says so. */
#include "collect/engine/chat.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expect(const struct chat_message *messages, int count, bool thinking, const char *expected)
{
    char *text = chat_format(messages, count, thinking, &(struct chat_style){0}, NULL);
    assert_string_equal(text, expected);
    free(text);
}

static void opens_the_answer(void **state)
{
    (void)state;
    const struct chat_message messages[] = {{CHAT_SYSTEM, "Be brief."}, {CHAT_USER, "Hi"}};
    expect(messages, 2, true,
           "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    expect(messages + 1, 1, false, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

static void leaves_out_past_thoughts(void **state)
{
    (void)state;
    const struct chat_message messages[] = {
        {CHAT_USER, "1+1?"}, {CHAT_ASSISTANT, "<think>\nTwo.\n</think>\n\nIt is 2."}, {CHAT_USER, "Say </think>"}};
    expect(messages, 3, true,
           "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\nIt is 2.<|im_end|>\n"
           "<|im_start|>user\nSay </think><|im_end|>\n<|im_start|>assistant\n");
}

static void says_where_the_user_begins(void **state)
{
    (void)state;
    const struct chat_message messages[] = {
        {CHAT_SYSTEM, "<|im_start|>user\n"}, {CHAT_USER, "Hi"}, {CHAT_ASSISTANT, "Yes?"}, {CHAT_USER, "Go"}};
    size_t at = 0;
    char *text = chat_format(messages, 4, true, &(struct chat_style){0}, &at);
    assert_memory_equal(text + at, "Hi<|im_end|>\n<|im_start|>assistant\nYes?", 30);
    free(text);
}

static void newer_models_open_a_thought_and_trim(void **state)
{
    (void)state;
    const struct chat_style style = {.opens_thoughts = true, .trims = true};
    const struct chat_message messages[] = {
        {CHAT_USER, "  1+1? \n"}, {CHAT_ASSISTANT, "<think>\nTwo.\n</think>\n\nIt is 2. "}, {CHAT_USER, " \n"}};
    size_t at = 0;
    char *text = chat_format(messages, 3, true, &style, &at);
    assert_string_equal(text, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\nIt is 2.<|im_end|>\n"
                              "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<think>\n");
    assert_memory_equal(text + at, "1+1?<", 5);
    free(text);
    text = chat_format(messages, 1, false, &style, NULL);
    assert_string_equal(text, "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    free(text);
}

/* --- what a folder says ------------------------------------------------------------------------------------------- */

#define OPENING "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
#define EMPTY "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
#define PAST "{{- '<think>\\n' + reasoning_content }}"

static void check_style(const char *name, const char *content, bool recurrent, struct chat_style expected)
{
    char *folder = fixture_make_folder(), *path = file_join(folder, name);
    struct chat_style style;
    struct error error = {0};
    fixture_write(path, content, strlen(content));
    free(path);
    assert_int_equal(chat_read_style(folder, recurrent, &style, &error), 0);
    assert_int_equal(style.opens_thoughts, expected.opens_thoughts);
    assert_int_equal(style.trims, expected.trims);
    fixture_remove_folder(folder);
}

static void the_folders_template_decides(void **state)
{
    (void)state;
    const struct chat_style plain = {false, false}, newer = {true, true}, thinks = {true, false};
    const char *qwen3 = PAST OPENING EMPTY "{%- endif %}{%- endif %}";
    const char *qwen35 = "{%- set content = render_content(message.content)|trim %}" PAST OPENING EMPTY
                         "{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}";
    check_style("chat_template.jinja", qwen3, false, plain);
    check_style("chat_template.jinja", qwen3, true, plain);
    check_style("chat_template.jinja", qwen35, true, newer);
    check_style(
        "tokenizer_config.json",
        "{\"chat_template\": \"{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\\\n<think>\\\\n' }}\"}",
        false, thinks);
    check_style(
        "tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"a\"}, {\"name\": \"default\", \"template\": "
        "\"{% if add_generation_prompt %}{{ '<think>\\\\n' }}\"}]}",
        false, thinks);
    check_style("tokenizer_config.json", "{\"eos_token\": \"e\"}", false, plain);
    check_style("tokenizer_config.json", "{\"eos_token\": \"e\"}", true, newer);
    check_style("config.json", "{}", false, plain);
    check_style("config.json", "{}", true, newer);
}

static void a_damaged_folder_is_refused(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *path = file_join(folder, "tokenizer_config.json");
    struct chat_style style;
    struct error error = {0};
    fixture_write(path, "{", 1);
    assert_int_equal(chat_read_style(folder, false, &style, &error), -1);
    assert_non_null(strstr(error.message, path));
    free(path);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_the_answer),
        cmocka_unit_test(leaves_out_past_thoughts),
        cmocka_unit_test(says_where_the_user_begins),
        cmocka_unit_test(newer_models_open_a_thought_and_trim),
        cmocka_unit_test(the_folders_template_decides),
        cmocka_unit_test(a_damaged_folder_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
