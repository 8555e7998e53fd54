/* The expected texts follow the published chat template of Qwen3. */
#include "collect/engine/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void expect(const struct chat_message *messages, int count, bool thinking, const char *expected)
{
    char *text = chat_format(messages, count, thinking, NULL);
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
    char *text = chat_format(messages, 4, true, &at);
    assert_memory_equal(text + at, "Hi<|im_end|>\n<|im_start|>assistant\nYes?", 30);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens_the_answer), cmocka_unit_test(leaves_out_past_thoughts),
                                       cmocka_unit_test(says_where_the_user_begins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
