/* `collect bench`: what it says holds together, forced acceptance is marked, and wrong calls are refused. */
#include "collect/base/error.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "tests/collect/call.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The figures of a bench that succeeds; *said (free() it): its table. */
static json_t *run(const char *const *arguments, const char *path, char **said)
{
    struct error error = {0};
    if (call_command(fixture_folder, command_bench, arguments, said) != 0)
        fail_msg("%s", *said);
    json_t *figures = json_read_file(path, &error);
    assert_string_equal(error.message, "");
    return figures;
}

static int64_t integer_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* Stages of a speculative round, or auto's one; and that the round reads what they read. */
static void check_arm(const json_t *figures, size_t index, const char *name, int rows, double tokens)
{
    static const char *const steps[] = {"draft", "verify", "commit"};
    const json_t *arm = json_array_get(json_object_get(figures, "arms"), index), *round = json_object_get(arm, "round"),
                 *stages = json_object_get(arm, "stages");
    int64_t bytes = 0;
    assert_string_equal(json_string_value(json_object_get(arm, "arm")), name);
    assert_int_equal(integer_at(arm, "rows"), rows);
    assert_true(fabs(json_number_value(json_object_get(arm, "tokens")) - tokens) < 1e-9);
    assert_true(integer_at(round, "ns") > 0 && integer_at(round, "products_ns") > 0);
    assert_in_range(integer_at(round, "host_ns"), 0, integer_at(round, "ns"));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const json_t *stage = json_object_get(stages, steps[i]);
        assert_true((stage != NULL) == (index > 0 || i == 1));
        bytes += stage ? integer_at(stage, "read_bytes") : 0;
    }
    assert_int_equal(integer_at(round, "read_bytes"), bytes);
    double share = (double)bytes / (double)integer_at(round, "ns") * 1e9 /
                   json_number_value(json_object_get(json_object_get(figures, "rates"), "read_bytes_s"));
    assert_true(fabs(json_number_value(json_object_get(round, "share_of_bandwidth")) / share - 1) < 1e-9);
}

static void times_a_shape_and_marks_its_acceptance(void **state)
{
    (void)state;
    char *path = file_join(fixture_folder, "shape.json"), *said;
    const char *const arguments[] = {"--shape", "tiny", "--device",  "cpu", "--rounds", "3",  "--context", "40",
                                     "--tp",    "2",    "--budgets", "2,8", "--json",   path, NULL};
    json_t *figures = run(arguments, path, &said);
    assert_non_null(strstr(said, "SYNTHETIC_ACCEPTANCE"));
    assert_true(json_is_true(json_object_get(figures, "synthetic_acceptance")));
    assert_string_equal(json_string_value(json_object_get(figures, "schema")), "cleanslate.bench/1");
    assert_int_equal(json_array_size(json_object_get(figures, "arms")), 4);
    check_arm(figures, 0, "tp2-auto", 1, 1);
    check_arm(figures, 1, "tp2-linear", 16, 6);
    check_arm(figures, 3, "tp2-b8", 9, 6);
    assert_int_equal(integer_at(json_object_get(figures, "prefill"), "tokens"), 4096);
    json_decref(figures);
    free(said);
    free(path);
}

static void times_a_models_own_rounds(void **state)
{
    (void)state;
    char *path = file_join(fixture_folder, "demo.json"), *said;
    const char *const arguments[] = {
        "--target", "data/models/demo/target", "--device", "cpu", "--rounds", "2", "--context", "20", "--json", path,
        NULL};
    json_t *figures = run(arguments, path, &said);
    assert_null(strstr(said, "SYNTHETIC"));
    assert_true(json_is_false(json_object_get(figures, "synthetic_acceptance")));
    assert_int_equal(json_array_size(json_object_get(figures, "arms")), 1);
    check_arm(figures, 0, "tp1-auto", 1, 1);
    json_decref(figures);
    free(said);
    free(path);
}

static void answers_wrong_calls_with_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *arguments[7];
        int exit_code;
        const char *said;
    } cases[] = {
        {{NULL}, 2, "give --shape NAME, or --target DIR"},
        {{"--shape", "tiny", "--target", "x"}, 2, "give --shape NAME, or --target DIR"},
        {{"--shape", "tiny", "--drafter", "x"}, 2, "--shape brings its own drafter"},
        {{"--shape", "tiny", "--dtype", "fp8"}, 2, "--dtype: give bfloat16 or float32"},
        {{"--shape", "tiny", "--device", "gpu"}, 2, "--device: give auto, cpu or cuda"},
        {{"--shape", "qwen4", "--device", "cpu"}, 1, "no shape \"qwen4\"; there are tiny, qwen3-0.6b"},
        {{"--shape", "tiny", "--device", "cpu", "--budgets", "8;16"}, 1, "parted by commas"},
        {{"--shape", "tiny", "--device", "cpu", "--trees", "none.json"}, 1, "none.json: cannot open"},
        {{"--shape", "tiny", "--device", "cpu", "--tp", "3"}, 1, "do not divide over 3 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *said;
        assert_int_equal(call_command(fixture_folder, command_bench, cases[i].arguments, &said), cases[i].exit_code);
        if (!strstr(said, cases[i].said))
            fail_msg("\"%s\" does not say \"%s\"", said, cases[i].said);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
        free(said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_a_shape_and_marks_its_acceptance),
        cmocka_unit_test(times_a_models_own_rounds),
        cmocka_unit_test(answers_wrong_calls_with_one_line),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
