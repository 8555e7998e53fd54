#include "collect/engine/fill.h"

#include "collect/prompt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_tokenizer(void **state)
{
    struct error error = {0};
    *state = tokenizer_open("data/models/demo/target/tokenizer.json", &error);
    return *state ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    tokenizer_close(*state);
    return 0;
}

static int count_tokens(const struct tokenizer *tokenizer, const char *text)
{
    struct error error = {0};
    int *ids = NULL, count = tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &error);
    free(ids);
    return count;
}

static char *repeat(const char *corpus, size_t least)
{
    char *text = xstrdup(corpus);
    while (strlen(text) < least) {
        char *longer = xformat("%s\n\n%s", text, corpus);
        free(text);
        text = longer;
    }
    return text;
}

/* Fills to each length: before the text's byte `at` stand a part of the corpus, over and over, and a blank line. */
static void check_lengths(const struct tokenizer *tokenizer, const char *corpus, const int *lengths, int count)
{
    static const char text[] = "<|im_start|>user\nSay what \xC3\xA9t\xC3\xA9 means.<|im_end|>\n";
    const size_t at = 17, rest = sizeof text - 1 - at;
    for (int i = 0; i < count; i++) {
        struct error error = {0};
        char *whole = fill_text(tokenizer, text, at, corpus, lengths[i], &error);
        if (!whole)
            fail_msg("%d: %s", lengths[i], error.message);
        assert_int_equal(count_tokens(tokenizer, whole), lengths[i]);
        assert_memory_equal(whole, text, at);
        size_t length = strlen(whole);
        assert_string_equal(whole + length - rest, text + at);
        assert_memory_equal(whole + length - rest - 2, "\n\n", 2);
        whole[length - rest - 2] = '\0';
        char *all = repeat(corpus, length + strlen(corpus));
        assert_non_null(strstr(all, whole + at));
        free(all);
        free(whole);
    }
}

static void fills_to_the_exact_number(void **state)
{
    int lengths[80];
    for (int i = 0; i < 80; i++)
        lengths[i] = i < 70 ? 24 + i : 3000 + 7 * i;
    struct error error = {0};
    char *corpus = prompt_read_corpus("data/prompts/prose.jsonl", &error);
    assert_string_equal(error.message, "");
    check_lengths(*state, corpus, lengths, 80);
    free(corpus);
}

static void repeats_a_short_corpus(void **state)
{
    static const int lengths[] = {60, 777, 1500};
    check_lengths(*state, "A line of words, some of them l\xC3\xB6ng.", lengths, 3);
    check_lengths(*state, "\xE6\xBC\xA2\xE5\xAD\x97 and \xE2\x82\xAC, one after another", lengths, 3);
}

static void leaves_what_is_long_enough(void **state)
{
    struct error error = {0};
    int length = count_tokens(*state, "How many are there?");
    char *same = fill_text(*state, "How many are there?", 0, "Filler.", length, &error);
    assert_string_equal(same, "How many are there?");
    free(same);
    assert_null(fill_text(*state, "How many are there?", 0, "Filler.", length - 1, &error));
    char *expected =
        xformat("%d tokens alone, more than the context of %d that it is to be filled up to", length, length - 1);
    assert_string_equal(error.message, expected);
    free(expected);
}

static void says_where_no_cut_fits(void **state)
{
    struct error error = {0};
    int length = count_tokens(*state, "x");
    assert_null(fill_text(*state, "x", 0, "word", length + 1, &error)); /* the blank line alone has as many */
    char *expected =
        xformat("%d tokens alone, and no cut of the corpus makes them %d; choose another length", length, length + 1);
    assert_string_equal(error.message, expected);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_to_the_exact_number),
        cmocka_unit_test(repeats_a_short_corpus),
        cmocka_unit_test(leaves_what_is_long_enough),
        cmocka_unit_test(says_where_no_cut_fits),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
