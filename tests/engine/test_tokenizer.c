/* Token ids against another implementation's (tests/golden), round trips, and files that are damaged or ask for too
 * much. */
#include "collect/engine/tokenizer.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DEMO "data/models/demo/target/tokenizer.json"

static struct tokenizer *open_or_stop(const char *path)
{
    struct error error = {0};
    struct tokenizer *tokenizer = tokenizer_open(path, &error);
    if (!tokenizer)
        fail_msg("%s", error.message);
    return tokenizer;
}

static void expect_ids(const struct tokenizer *tokenizer, const char *text, size_t size, int with_template,
                       const int *expected, int count)
{
    struct error error = {0};
    int *ids = NULL;
    int got = tokenizer_encode(tokenizer, text, size, with_template, &ids, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(got, count);
    assert_memory_equal(ids, expected, (size_t)count * sizeof *ids);
    free(ids);
}

static int ids_from_json(const json_t *list, int *ids, int room)
{
    int count = (int)json_array_size(list);
    assert_true(count <= room);
    for (int i = 0; i < count; i++)
        ids[i] = (int)json_integer_value(json_array_get(list, (size_t)i));
    return count;
}

/* Encodes every text of the golden file (some have a NUL in them); where `exact`, decoding gives it back byte by byte.
 */
static void check_golden(const struct tokenizer *tokenizer, const char *path, int cases, bool exact)
{
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, NULL), *item;
    assert_non_null(golden);
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, item)
    {
        enum { ROOM = 512 };
        int ids[ROOM];
        const json_t *text = json_object_get(item, "text");
        size_t size = json_string_length(text), decoded_size;
        int count = ids_from_json(json_object_get(item, "ids"), ids, ROOM);
        expect_ids(tokenizer, json_string_value(text), size, 0, ids, count);
        char *decoded = tokenizer_decode(tokenizer, ids, count, 0, &decoded_size);
        if (exact) {
            assert_int_equal(decoded_size, size);
            assert_memory_equal(decoded, json_string_value(text), size);
        }
        free(decoded);
    }
    assert_int_equal(i, cases);
    json_decref(golden);
}

/* --- the demo tokenizer with a change
 * ------------------------------------------------------------------------------------ */

/* Parses a value of a table below. */
static json_t *value_of(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

/* Sets the value at a path of keys and indices ("added_tokens.0.id"). */
static void set_at(json_t *root, const char *path, const char *value)
{
    char copy[128], *key = copy, *dot;
    snprintf(copy, sizeof copy, "%s", path);
    for (; (dot = strchr(key, '.')); key = dot + 1) {
        *dot = '\0';
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(key)) : json_object_get(root, key);
        assert_non_null(root);
    }
    if (json_is_array(root))
        assert_int_equal(json_array_set_new(root, (size_t)atoi(key), value_of(value)), 0);
    else
        assert_int_equal(json_object_set_new(root, key, value_of(value)), 0);
}

static json_t *read_demo(void)
{
    struct error error = {0};
    json_t *demo = json_read_file(DEMO, &error);
    assert_non_null(demo);
    return demo;
}

/* A file with these bytes; unlink() and free() its path. */
static char *write_temporary(const char *bytes, size_t size)
{
    char *path = xformat("%s/cleanslate-XXXXXX", P_tmpdir);
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, size), (ssize_t)size);
    close(descriptor);
    return path;
}

static char *write_json(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    char *path = write_temporary(text, strlen(text));
    free(text);
    return path;
}

static struct tokenizer *open_json(json_t *value)
{
    char *path = write_json(value);
    struct tokenizer *tokenizer = open_or_stop(path);
    unlink(path);
    free(path);
    json_decref(value);
    return tokenizer;
}

/* The file is refused by one line that names it and holds `expected`. */
static void expect_refused(char *path, const char *expected)
{
    struct error error = {0};
    struct tokenizer *tokenizer = tokenizer_open(path, &error);
    if (tokenizer)
        fail_msg("accepted, but expected: %s", expected);
    if (!strstr(error.message, expected))
        fail_msg("expected \"%s\" in: %s", expected, error.message);
    assert_memory_equal(error.message, path, strlen(path));
    assert_null(strchr(error.message, '\n'));
    unlink(path);
    free(path);
}

/* --- tests
 * --------------------------------------------------------------------------------------------------------------- */

static void demo_agrees_with_golden(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    assert_int_equal(tokenizer_size(tokenizer), 4096);
    check_golden(tokenizer, "tests/golden/tokenizer-demo.json", 30, true);
    check_golden(tokenizer, "tests/golden/tokenizer-demo-random.json", 300, true);
    tokenizer_close(tokenizer);
}

static void qwen3_agrees_with_golden(void **state)
{
    (void)state;
    const char *path = getenv("CLEANSLATE_QWEN3_TOKENIZER");
    if (!path) {
        print_message("SKIPPED: Qwen3's tokenizer; set CLEANSLATE_QWEN3_TOKENIZER to the path of its tokenizer.json\n");
        skip();
    }
    int64_t before = clock_now_ns();
    struct tokenizer *tokenizer = open_or_stop(path);
    print_message("loaded in %.3f s\n", (double)(clock_now_ns() - before) / 1e9);
    assert_int_equal(tokenizer_size(tokenizer), 151669);
    assert_int_equal(tokenizer_find(tokenizer, "<|im_end|>"), 151645);
    check_golden(tokenizer, "tests/golden/tokenizer-qwen3.json", 30, false);
    check_golden(tokenizer, "tests/golden/tokenizer-qwen3-random.json", 300, false);
    tokenizer_close(tokenizer);
}

static void merges_may_be_strings(void **state)
{
    (void)state;
    json_t *demo = read_demo(), *pair, *merges = json_object_get(json_object_get(demo, "model"), "merges");
    size_t i;
    json_array_foreach(merges, i, pair)
    {
        char *text =
            xformat("%s %s", json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1)));
        json_array_set_new(merges, i, json_string(text));
        free(text);
    }
    struct tokenizer *tokenizer = open_json(demo);
    check_golden(tokenizer, "tests/golden/tokenizer-demo.json", 30, true);
    tokenizer_close(tokenizer);
}

static void template_is_added(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    expect_ids(tokenizer, "", 0, 1, (const int[]){0}, 1);
    expect_ids(tokenizer, "Hello world", 11, 1, (const int[]){0, 43, 430, 314, 323, 267, 1706}, 7);
    tokenizer_close(tokenizer);

    json_t *demo = read_demo();
    set_at(demo, "post_processor.single",
           "[{\"SpecialToken\":{\"id\":\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
           "{\"SpecialToken\":{\"id\":\"<|endoftext|>\",\"type_id\":0}}]");
    json_t *sequence = json_pack("{s:s, s:[O, {s:s, s:b}]}", "type", "Sequence", "processors",
                                 json_object_get(demo, "post_processor"), "type", "ByteLevel", "trim_offsets", 0);
    json_object_set_new(demo, "post_processor", sequence);
    tokenizer = open_json(demo);
    expect_ids(tokenizer, "x", 1, 1, (const int[]){0, 91, 0}, 3);
    expect_ids(tokenizer, "x", 1, 0, (const int[]){91}, 1);
    tokenizer_close(tokenizer);
}

static void longest_added_token_wins(void **state)
{
    (void)state;
    json_t *demo = read_demo();
    json_array_append_new(
        json_object_get(demo, "added_tokens"),
        value_of("{\"id\":4100,\"content\":\"<|im_start|>user\",\"special\":false,\"normalized\":true}"));
    json_array_append_new(
        json_object_get(demo, "added_tokens"),
        value_of("{\"id\":4101,\"content\":\"<|im_end|>\\n\",\"special\":false,\"normalized\":false}"));
    struct tokenizer *tokenizer = open_json(demo);
    assert_int_equal(tokenizer_size(tokenizer), 4102);
    /* One that is looked for in raw text goes before a longer one that is looked for in normalised text. */
    expect_ids(tokenizer, "<|im_end|>\n<|im_end|>x", 22, 0, (const int[]){4101, 2, 91}, 3);
    expect_ids(tokenizer, "<|im_start|>user", 16, 0, (const int[]){1, 615, 265}, 3);
    tokenizer_close(tokenizer);
}

static void text_is_composed(void **state)
{
    (void)state;
    json_t *demo = read_demo();
    set_at(demo, "normalizer", "{\"type\":\"NFC\"}");
    json_array_append_new(json_object_get(demo, "added_tokens"),
                          value_of("{\"id\":4100,\"content\":\"cafe\\u0301\",\"special\":false,\"normalized\":true}"));
    struct tokenizer *tokenizer = open_json(demo);
    struct error error = {0};
    int *ids;
    const char *composed = "r\xC3\xA9sum\xC3\xA9", *decomposed = "re\xCC\x81sume\xCC\x81";
    int count = tokenizer_encode(tokenizer, composed, strlen(composed), 0, &ids, &error);
    assert_true(count > 0);
    expect_ids(tokenizer, decomposed, strlen(decomposed), 0, ids, count);
    free(ids);
    expect_ids(tokenizer, "caf\xC3\xA9", 5, 0, (const int[]){4100}, 1);
    expect_ids(tokenizer, "cafe\xCC\x81", 6, 0, (const int[]){4100}, 1);

    enum { MARKS = 100000 };
    char *marks = xmalloc(2 * MARKS);
    for (int i = 0; i < 2 * MARKS; i += 4)
        memcpy(marks + i, "\xCC\x81\xCC\xA3", 4);
    assert_int_equal(tokenizer_encode(tokenizer, marks, 2 * MARKS, 0, &ids, &error), -1);
    assert_string_equal(error.message, "the text has more than 1000 combining marks in a row");
    free(marks);
    tokenizer_close(tokenizer);
}

static void whole_words_may_win_over_merges(void **state)
{
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        json_t *demo = read_demo();
        set_at(demo, "model.vocab.\u0120qzxq", "4096");
        set_at(demo, "model.ignore_merges", ignore ? "true" : "false");
        struct tokenizer *tokenizer = open_json(demo);
        struct error error = {0};
        int *ids;
        int count = tokenizer_encode(tokenizer, " qzxq", 5, 0, &ids, &error);
        assert_true(ignore ? count == 1 && ids[0] == 4096 : count > 1);
        free(ids);
        tokenizer_close(tokenizer);
    }
}

static void finds_and_decodes(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    assert_int_equal(tokenizer_find(tokenizer, "<|im_end|>"), 2);
    assert_int_equal(tokenizer_find(tokenizer, "!"), 4);
    assert_int_equal(tokenizer_find(tokenizer, "no such token"), -1);
    const int ids[] = {0, 91, -1, 4096, 2147483647, 2, 92};
    size_t size;
    char *text = tokenizer_decode(tokenizer, ids, 7, 0, &size);
    assert_string_equal(text, "<|endoftext|>x<|im_end|>y");
    assert_int_equal(size, strlen(text));
    free(text);
    text = tokenizer_decode(tokenizer, ids, 7, 1, NULL);
    assert_string_equal(text, "xy");
    free(text);
    tokenizer_close(tokenizer);
}

static void every_byte_survives(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    struct error error = {0};
    char text[4 * 2048];
    size_t size = 0;
    for (int point = 0; point < 0x800; point++) {
        if (point >= 0x80)
            text[size++] = (char)(0xC0 | point >> 6);
        text[size++] = (char)(point < 0x80 ? point : 0x80 | (point & 0x3F));
    }
    int *ids;
    int count = tokenizer_encode(tokenizer, text, size, 0, &ids, &error);
    assert_true(count > 0);
    size_t decoded_size;
    char *decoded = tokenizer_decode(tokenizer, ids, count, 0, &decoded_size);
    assert_int_equal(decoded_size, size);
    assert_memory_equal(decoded, text, size);
    free(decoded);
    free(ids);
    tokenizer_close(tokenizer);
}

static void refuses_text_that_is_not_utf8(void **state)
{
    (void)state;
    static const char *const texts[] = {"abc\xFF", "abc\xC3", "abc\xED\xA0\x80", "abc\xC0\x80", "abc\xF4\x90\x80\x80"};
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error error = {0};
        int *ids = NULL;
        assert_int_equal(tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), 0, &ids, &error), -1);
        assert_non_null(strstr(error.message, "not UTF-8 at byte 3"));
        assert_null(ids);
    }
    tokenizer_close(tokenizer);
}

/* A subroutine can move the start of a match behind its end, which no lookaround may. */
static void refuses_texts_that_its_pattern_splits_backwards(void **state)
{
    (void)state;
    json_t *demo = read_demo();
    set_at(demo, "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(?(DEFINE)(?<k>ab\\\\K))(?=(?&k))\"");
    struct tokenizer *tokenizer = open_json(demo);
    struct error error = {0};
    int *ids = NULL;
    assert_int_equal(tokenizer_encode(tokenizer, "abc", 3, 0, &ids, &error), -1);
    assert_string_equal(error.message, "the tokenizer's pattern matches backwards, which is not supported");
    assert_null(ids);
    tokenizer_close(tokenizer);
}

/* Each pattern splits the pieces of the one before: the stack is as deep as the list is long. */
static void refuses_endless_lists_of_patterns(void **state)
{
    (void)state;
    json_t *demo = read_demo();
    json_t *list = json_object_get(json_object_get(demo, "pre_tokenizer"), "pretokenizers");
    for (int i = 0; i < 16; i++)
        json_array_insert(list, 0, json_array_get(list, 0));
    expect_refused(write_json(demo), "pretokenizers[16].pattern: more than 16 patterns are not supported");
    json_decref(demo);
}

/* A token that is spelled outside the byte-level alphabet, here as a plain space, is not the byte's token, though it
 * stands for the same. */
static void bytes_are_found_by_their_spelling(void **state)
{
    (void)state;
    json_t *demo = read_demo(), *model = json_object_get(demo, "model"), *vocab = json_object();
    json_set(vocab, " ", json_integer(4096));
    json_object_update(vocab, json_object_get(model, "vocab"));
    json_set(model, "vocab", vocab);
    struct tokenizer *plain = open_or_stop(DEMO), *tokenizer = open_json(demo);
    struct error error = {0};
    int *ids;
    int count = tokenizer_encode(plain, "  a b", 5, 0, &ids, &error);
    expect_ids(tokenizer, "  a b", 5, 0, ids, count);
    free(ids);
    tokenizer_close(plain);
    tokenizer_close(tokenizer);
}

static void long_words_take_no_longer(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "ab", "return", "=", "e\xCC\x81"};
    struct tokenizer *tokenizer = open_or_stop(DEMO);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        enum { LENGTH = 200000 };
        char *text = xmalloc(LENGTH);
        size_t unit = strlen(units[u]), size = LENGTH / unit * unit;
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % unit];
        struct error error = {0};
        int *ids;
        int64_t before = clock_now_ns();
        int count = tokenizer_encode(tokenizer, text, size, 0, &ids, &error);
        assert_true(clock_now_ns() - before < 2000000000);
        assert_true(count > 0);
        char *decoded = tokenizer_decode(tokenizer, ids, count, 0, NULL);
        assert_memory_equal(decoded, text, size);
        free(decoded);
        free(ids);
        free(text);
    }
    tokenizer_close(tokenizer);
}

static void refuses_what_it_does_not_support(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *expected;
    } changes[] = {
        {"truncation", "{\"max_length\":8}", "\"truncation\" is {\"max_length\":8}, which is not supported"},
        {"padding", "{}", "\"padding\" is {}, which is not supported"},
        {"surprise", "1", "\"surprise\" is 1, which is not supported"},
        {"normalizer", "{\"type\":\"NFKC\"}", "normalizer: \"type\" is \"NFKC\", which is not supported"},
        {"normalizer", "{}", "normalizer: \"type\" is missing"},
        {"pre_tokenizer", "null", "pre_tokenizer: lacks ByteLevel"},
        {"pre_tokenizer", "{\"type\":\"Metaspace\"}", "pre_tokenizer: \"type\" is \"Metaspace\""},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\",\"use_regex\":true}", "\"use_regex\" is true"},
        {"pre_tokenizer", "{\"type\":\"ByteLevel\"}", "\"use_regex\" is missing"},
        {"pre_tokenizer.pretokenizers.1.add_prefix_space", "true",
         "pre_tokenizer.pretokenizers[1]: \"add_prefix_space\" is true"},
        {"pre_tokenizer.pretokenizers.0.behavior", "\"Removed\"", "\"behavior\" is \"Removed\""},
        {"pre_tokenizer.pretokenizers.0.invert", "true", "\"invert\" is true"},
        {"pre_tokenizer.pretokenizers.0.pattern", "{\"String\":\" \"}", "pattern: \"String\" is \" \""},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(a\"", "the pattern cannot be used: missing closing"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"[a&&b]\"", "the pattern has \"&&\" in it"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"a{1,3}+\"", "a \"+\" behind an interval"},
        {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\"\\\\C\"",
         "the pattern cannot be used: using \\C is disabled"},
        {"decoder", "null", "\"decoder\" is missing"},
        {"decoder", "{\"type\":\"WordPiece\"}", "decoder: \"type\" is \"WordPiece\""},
        {"model.type", "\"Unigram\"", "model: \"type\" is \"Unigram\", which is not supported"},
        {"model.dropout", "0.1", "model: \"dropout\" is 0.1"},
        {"model.byte_fallback", "true", "model: \"byte_fallback\" is true"},
        {"model.unk_token", "\"<unk>\"", "model: \"unk_token\" is \"<unk>\""},
        {"model.fuse_unk", "true", "model: \"fuse_unk\" is true"},
        {"model.end_of_word_suffix", "\"</w>\"", "model: \"end_of_word_suffix\" is \"</w>\""},
        {"added_tokens.1.lstrip", "true", "added_tokens[1]: \"lstrip\" is true"},
        {"added_tokens.1.rstrip", "true", "added_tokens[1]: \"rstrip\" is true"},
        {"added_tokens.1.single_word", "true", "added_tokens[1]: \"single_word\" is true"},
        {"post_processor", "{\"type\":\"RobertaProcessing\"}", "post_processor: \"type\" is \"RobertaProcessing\""},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *demo = read_demo();
        set_at(demo, changes[i].path, changes[i].value);
        expect_refused(write_json(demo), changes[i].expected);
        json_decref(demo);
    }
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *expected;
    } changes[] = {
        {"model.vocab.!", "-1", "model.vocab: the id is -1; it must be a whole number from 0 to"},
        {"model.vocab.!", "4000000000", "the id is 4000000000"},
        {"model.vocab.!", "1e3", "the id is 1000.0"},
        {"model.vocab.!", "5", "model.vocab: two tokens have the id 5"},
        {"model.vocab.!", "0", "model.vocab: two tokens have the id 0"},
        {"model.vocab", "{}", "no token for the byte 0x00"},
        {"model.vocab", "[]", "model: \"vocab\" must be an object"},
        {"model.merges", "{}", "model: \"merges\" must be an array"},
        {"model.merges.7", "[\"a\"]", "model.merges[7]: [\"a\"] is not a pair of tokens"},
        {"model.merges.7", "\"abc\"", "model.merges[7]: \"abc\" is not a pair of tokens"},
        {"model.merges.7", "\"a b c\"", "model.merges[7]: \"a b c\" is not a pair of tokens"},
        {"model.merges.7", "12", "model.merges[7]: 12 is not a pair of tokens"},
        {"model.merges.7", "[\"a\\nqx\",\"b\"]", "the first token is not in model.vocab"},
        {"model.merges.7", "\"a qqx\"", "the second token is not in model.vocab"},
        {"model.merges.7", "\"! $\"", "what they become is not in model.vocab"},
        {"model.merges.7", "[\"i\",\"n\"]", "model.merges[7]: [\"i\",\"n\"] is there twice"},
        {"added_tokens", "7", "\"added_tokens\" must be an array"},
        {"added_tokens.0", "7", "added_tokens[0]: is 7; it must be an object"},
        {"added_tokens.0.id", "-5", "added_tokens[0]: the id is -5"},
        {"added_tokens.0.id", "null", "added_tokens[0]: the id is null"},
        {"added_tokens.0", "{}", "added_tokens[0]: the id is missing"},
        {"model.merges.7", "[\"\",\"a\"]", "the first token is not in model.vocab"},
        {"model.merges.7", "\" \"", "the first token is not in model.vocab"},
        {"added_tokens.0.id", "4097", "the token \"<|endoftext|>\" has the id 4097, but 0 in model.vocab"},
        {"added_tokens.0.content", "\"\"", "added_tokens[0]: an empty token"},
        {"added_tokens.1.content", "\"<|endoftext|>\"", "added_tokens[1]: the token \"<|endoftext|>\" is added twice"},
        {"added_tokens.1", "{\"id\":0,\"content\":\"q\",\"special\":true,\"normalized\":false}", "is another token's"},
        {"added_tokens.0.special", "1", "\"special\" must be true or false"},
        {"post_processor.single", "[]", "\"single\" lacks the Sequence \"A\""},
        {"post_processor.single.1.Sequence.id", "\"B\"", "must hold the Sequence \"A\" once"},
        {"post_processor.single.0", "{}", "must have either"},
        {"post_processor.single.0.SpecialToken.id", "\"<s>\"", "missing in \"special_tokens\""},
        {"post_processor.special_tokens", "{\"<|endoftext|>\":{\"ids\":[4097]}}", "the id 4097 is no token"},
        {"post_processor.special_tokens", "{\"<|endoftext|>\":{\"ids\":[\"0\"]}}", "the id is \"0\""},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *demo = read_demo();
        set_at(demo, changes[i].path, changes[i].value);
        expect_refused(write_json(demo), changes[i].expected);
        json_decref(demo);
    }
}

static void refuses_damaged_files(void **state)
{
    (void)state;
    struct error error = {0};
    size_t size;
    char *bytes = file_read(DEMO, 1 << 20, &size, &error);
    assert_non_null(bytes);
    for (size_t cut = 0; cut < size; cut += size / 7)
        expect_refused(write_temporary(bytes, cut), "line ");
    memcpy(bytes + size / 2, "\xFF\xFE", 2);
    expect_refused(write_temporary(bytes, size), "line ");
    free(bytes);
    expect_refused(write_temporary("[]", 2), "must be an object");
    expect_refused(write_temporary("{\"model\":{},\"model\":{}}", 23), "duplicate");
    assert_null(tokenizer_open("no/such/tokenizer.json", &error));
    assert_string_equal(error.message, "no/such/tokenizer.json: cannot open: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_agrees_with_golden),
        cmocka_unit_test(qwen3_agrees_with_golden),
        cmocka_unit_test(merges_may_be_strings),
        cmocka_unit_test(template_is_added),
        cmocka_unit_test(longest_added_token_wins),
        cmocka_unit_test(text_is_composed),
        cmocka_unit_test(whole_words_may_win_over_merges),
        cmocka_unit_test(finds_and_decodes),
        cmocka_unit_test(every_byte_survives),
        cmocka_unit_test(refuses_text_that_is_not_utf8),
        cmocka_unit_test(refuses_texts_that_its_pattern_splits_backwards),
        cmocka_unit_test(refuses_endless_lists_of_patterns),
        cmocka_unit_test(bytes_are_found_by_their_spelling),
        cmocka_unit_test(long_words_take_no_longer),
        cmocka_unit_test(refuses_what_it_does_not_support),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(refuses_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
