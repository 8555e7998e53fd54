#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "tests/collect/call.h"
#include "tests/engine/model_files.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TARGET "data/models/demo/target"
#define DRAFTER "data/models/demo/drafter"

static void assert_says(const char *said, const char *expected)
{
    if (!strstr(said, expected))
        fail_msg("expected \"%s\" in:\n%s", expected, said);
}

static void says_what_the_demo_model_is(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *said;
    const char *arguments[] = {TARGET, "--context", "1024", NULL};
    assert_int_equal(call_command(folder, command_check_model, arguments, &said), 0);
    assert_says(said, "target " TARGET "\n  family          Qwen3, dense\n"
                      "  layers          6, hidden size 320, MLP of 896\n"
                      "  attention       8 heads over 4 key-value heads of size 64, rope theta 100000\n"
                      "  positions       4096\n"
                      "  parameters      9425728\n"
                      "  tensors         68 of BF16\n"
                      "  vocabulary      4096 rows, head tied to the embedding\n"
                      "  missing         none\n  unfit           none\n  not used        none\n"
                      "  tokenizer       4096 entries; 0 rows of padding, never chosen\n"
                      "  end tokens      0 <|endoftext|>\n");
    /* 2 x 6 layers x 4 heads x 64 x 2 bytes = 6144 a token */
    assert_says(said, "memory for 1024 tokens, in bfloat16\n");
    assert_says(said, "\n  target                 18.0             6144            6.0           24.0\n");
    assert_null(strstr(said, "drafter"));
    free(said);
    fixture_remove_folder(folder);
}

/* The numbers of the line that begins so. */
static void read_numbers(const char *said, const char *label, double *numbers, int count)
{
    const char *line = strstr(said, label);
    assert_non_null(line);
    char *end = (char *)line + strlen(label);
    for (int i = 0; i < count; i++)
        numbers[i] = strtod(end, &end);
}

/* Features against Hugging Face's, for the prompts of the golden file. */
static void features_agree_with_the_reference(void **state)
{
    (void)state;
    static const char *const labels[] = {"after layer 1 ", "after layer 3 ", "after layer 4 "};
    struct error error = {0};
    json_t *golden = json_read_file("tests/golden/demo.json", &error);
    char *folder = fixture_make_folder(), *path = file_join(folder, "one.txt"), *said;
    const char *arguments[] = {TARGET, "--drafter", DRAFTER, "--dtype", "float32", "--prompts", path, NULL};
    for (size_t i = 0; i < 2; i++) {
        const json_t *prompt = json_array_get(json_object_get(golden, "prompts"), i);
        char *text = xformat("%s\n", json_string_value(json_object_get(prompt, "text")));
        fixture_write(path, text, strlen(text));
        assert_int_equal(call_command(folder, command_check_model, arguments, &said), 0);
        for (int f = 0; f < 3; f++) {
            double rms, expected = json_number_value(json_array_get(json_object_get(prompt, "feature_rms"), (size_t)f));
            read_numbers(said, labels[f], &rms, 1);
            assert_float_equal(rms / expected, 1, 1e-3);
        }
        free(text);
        free(said);
    }
    free(path);
    json_decref(golden);
    fixture_remove_folder(folder);
}

static void measures_acceptance_of_the_drafter(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *said;
    const char *arguments[] = {TARGET, "--drafter", DRAFTER, "--dtype", "float32", NULL};
    assert_int_equal(call_command(folder, command_check_model, arguments, &said), 0);
    assert_says(said, "  block           16 slots, mask token 3\n  feature layers  1, 3, 4\n"
                      "  windows         none: each layer sees all\n");
    assert_says(said, "\nacceptance length: 3 prompts, up to 128 tokens each, greedy\n");
    assert_null(strstr(said, "published"));
    double linear[4], tree[4];
    read_numbers(said, "\n  linear ", linear, 4);
    read_numbers(said, "\n  b16 ", tree, 4);
    assert_true(linear[0] > 1.5 && linear[0] < 16 && linear[1] > 1.5 && linear[1] < 16);
    assert_true(tree[0] > linear[0] && tree[2] < linear[2] && tree[3] > 0 && linear[3] > 0);
    free(said);
    fixture_remove_folder(folder);
}

static void lists_what_is_wrong_with_tensors(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *path = file_join(folder, "tokenizer.json"), *said;
    json_t *config = model_files_target_config(), *tensors = model_files_tensors(config);
    size_t size;
    char *tokenizer = fixture_read(TARGET "/tokenizer.json", &size);
    fixture_write(path, tokenizer, size);
    json_object_del(tensors, "model.layers.2.self_attn.q_norm.weight");
    json_object_del(tensors, "lm_head.weight");
    json_object_set_new(tensors, "model.norm.weight", json_pack("[i]", 4));
    json_object_set_new(tensors, "extra\x1B[2J\nweight", json_pack("[i]", 4));
    model_files_write(folder, config, tensors, "F16");
    const char *arguments[] = {folder, NULL};
    assert_int_equal(call_command(folder, command_check_model, arguments, &said), 1);
    assert_says(said, "  missing         lm_head.weight\n"
                      "                  model.layers.2.self_attn.q_norm.weight\n"
                      "  unfit           tensor \"model.norm.weight\" is [4]; config.json asks for [8]\n"
                      "  not used        extra [2J weight\n"
                      "  tokenizer       4096 entries, 4080 more than the model has rows\n");
    assert_says(said, ": tensors are missing or unfit, as listed; the engine cannot run it\n");
    free(said);
    unlink(path);
    assert_int_equal(call_command(folder, command_check_model, arguments, &said), 1);
    assert_says(said, "tokenizer.json: cannot open: No such file or directory\n");
    free(said);
    free(tokenizer);
    free(path);
    json_decref(tensors);
    json_decref(config);
    fixture_remove_folder(folder);
}

/* The hybrid of the golden files. Per session 6 layers of 12 heads of 32 x 32 floats, and 3 rows of 640 channels in
 * bfloat16; per node such a row and 24 floats; 2 layers of attention, 2 heads of 64. */
static void says_what_a_hybrid_takes(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *said;
    const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *from = file_join("tests/golden/qwen35-tiny", names[i]), *to = file_join(folder, names[i]),
             *bytes = fixture_read(from, &size);
        fixture_write(to, bytes, size);
        free(bytes);
        free(to);
        free(from);
    }
    size_t size;
    char *tokenizer = fixture_read(TARGET "/tokenizer.json", &size), *path = file_join(folder, "tokenizer.json");
    fixture_write(path, tokenizer, size);
    const char *arguments[] = {folder, "--context", "1024", NULL};
    assert_int_equal(call_command(folder, command_check_model, arguments, &said), 0);
    assert_says(said, "\n  family          Qwen3.5, hybrid of attention and gated DeltaNet\n"
                      "  layers          8, hidden size 128, MLP of 256\n"
                      "  attention       8 heads over 2 key-value heads of size 64, rope theta 1e+07\n"
                      "                  gated; the first 16 of a head are rotated\n"
                      "  recurrence      6 layers: 12 value heads of size 32 over 4 key heads of size 32\n");
    assert_says(said, "  missing         none\n  unfit           none\n  not used        none\n  tokenizer ");
    assert_says(said, "\n  target                  4.8             1024            1.0            5.8\n"
                      "  recurrent layers: 0.3 MiB of states and 0.0 MiB of windows a session, 0.01 MiB a node\n"
                      "  a session of 1024 tokens, 17 of them nodes: 1.4 MiB; ");
    free(said);
    free(path);
    free(tokenizer);
    fixture_remove_folder(folder);
}

static void answers_wrong_calls_with_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *arguments[6];
        int exit_code;
        const char *said;
    } cases[] = {
        {{NULL}, 2, "too few arguments; usage: collect check-model DIR [options]\n"},
        {{TARGET, "--chat", "yes"}, 2, "--chat yes: give one of none thinking no-thinking\n"},
        {{TARGET, "--dtype", "int8"}, 2, "--dtype int8: give one of bfloat16 float32\n"},
        {{"data/models"}, 1, "data/models/config.json: cannot open: No such file or directory\n"},
        {{TARGET, "--drafter", TARGET}, 1, TARGET "/config.json: \"block_size\" is missing: not a DFlash drafter?\n"},
    };
    char *folder = fixture_make_folder(), *said;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(call_command(folder, command_check_model, cases[i].arguments, &said), cases[i].exit_code);
        assert_string_equal(said, cases[i].said);
        free(said);
    }
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_the_demo_model_is),        cmocka_unit_test(features_agree_with_the_reference),
        cmocka_unit_test(measures_acceptance_of_the_drafter), cmocka_unit_test(lists_what_is_wrong_with_tensors),
        cmocka_unit_test(says_what_a_hybrid_takes),           cmocka_unit_test(answers_wrong_calls_with_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
