/* Benchmarks on a GPU: weights that are made there are those that the CPU makes, on any number of ranks; rates, the
 * host's share and the parts of a stage are there and hold together. Skipped where there is no GPU that CUDA can use.
 */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/command.h"
#include "collect/engine/backend.h"
#include "collect/engine/shape.h"
#include "collect/telemetry.h"
#include "tests/collect/call.h"
#include "tests/gpu/gpu.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 12
#define VOCABULARY 2048
#define TOLERANCE 5e-4 /* float32, sums in another order; logits are of the order of 1 */

static const struct backend_class *cuda;

static int find_gpu(void **state)
{
    (void)state;
    cuda = gpu_backend();
    return 0;
}

static void need_gpu(void)
{
    if (!cuda)
        skip();
}

/* Logits of a prompt through the tiny shape; answers the backend, to be closed. */
static struct backend *run_tiny(const struct backend_class *class, const struct model *target,
                                const struct model *drafter, const char *device, int ranks, float *logits)
{
    struct error error = {0};
    const struct backend_options options = {.target = target,
                                            .drafter = drafter,
                                            .dtype = ENGINE_FLOAT32,
                                            .device = device,
                                            .ranks = ranks,
                                            .sessions = 1,
                                            .capacity = 96,
                                            .nodes = 17,
                                            .draft_width = 16,
                                            .vocabulary = VOCABULARY};
    struct backend *backend = backend_open(class, &options, &error);
    if (!backend)
        fail_msg("%s", error.message);
    int prompt[ROWS];
    for (int i = 0; i < ROWS; i++)
        prompt[i] = i * 37;
    const struct segment segment = {0, ROWS, prompt, NULL};
    struct choice choice;
    class->reset(backend, 0, &(struct sampling){.top_p = 1});
    class->extend(backend, &segment, 1, &choice);
    class->inspect(backend, INSPECT_LOGITS, 0, ROWS, logits);
    return backend;
}

static void makes_the_weights_that_the_cpu_makes(void **state)
{
    (void)state;
    need_gpu();
    static const struct {
        const char *device;
        int ranks;
    } layouts[] = {{"cuda", 1}, {"cuda:0,0", 2}};
    static float expected[ROWS * VOCABULARY], logits[ROWS * VOCABULARY];
    struct model *target, *drafter;
    struct error error = {0};
    assert_int_equal(shape_open("tiny", &target, &drafter, &error), 0);
    backend_cpu.close(run_tiny(&backend_cpu, target, drafter, "cpu", 1, expected));
    for (int i = 0; i < 2; i++) {
        struct backend *backend = run_tiny(cuda, target, drafter, layouts[i].device, layouts[i].ranks, logits);
        for (int j = 0; j < ROWS * VOCABULARY; j++)
            if (!(fabsf(logits[j] - expected[j]) <= TOLERANCE * (1 + fabsf(expected[j]))))
                fail_msg("%s, logit %d: %g, where the CPU has %g", layouts[i].device, j, (double)logits[j],
                         (double)expected[j]);
        cuda->close(backend);
    }
    model_close(drafter);
    model_close(target);
}

static void tells_what_the_device_did(void **state)
{
    (void)state;
    need_gpu();
    static float logits[ROWS * VOCABULARY];
    static const int root = 0;
    struct model *target, *drafter;
    struct error error = {0};
    struct backend_part parts[16];
    int64_t start_ns, end_ns;
    assert_int_equal(shape_open("tiny", &target, &drafter, &error), 0);
    struct backend *backend = run_tiny(cuda, target, drafter, "cuda", 1, logits);
    cuda->busy_ns(backend, &start_ns);
    int tokens[17], parents[17];
    struct choice chosen[17];
    for (int i = 0; i < 17; i++) {
        tokens[i] = i;
        parents[i] = i - 1;
    }
    const struct segment tree = {0, 17, tokens, parents};
    cuda->verify(backend, &tree, 1, chosen);
    cuda->commit(backend, &(struct kept_path){0, 1, &root}, 1);
    int64_t busy_ns = cuda->busy_ns(backend, &end_ns);
    assert_true(busy_ns > 0 && busy_ns <= end_ns - start_ns);
    assert_true(cuda->busy_ns(backend, &end_ns) == 0);
    for (enum backend_step step = BACKEND_DRAFT; step <= BACKEND_COMMIT; step++) {
        int count = cuda->measure_parts(backend, step, parts, 16);
        assert_in_range(count, 2, 15);
        int64_t sum = 0;
        for (int i = 0; i < count; i++) {
            assert_true(parts[i].name && parts[i].ns >= 0);
            sum += parts[i].ns;
        }
        assert_true(sum > 0);
    }
    cuda->close(backend);
    model_close(drafter);
    model_close(target);
}

static void rates_are_those_of_a_gpu(void **state)
{
    (void)state;
    need_gpu();
    struct error error = {0};
    struct backend_rates rates;
    assert_int_equal(cuda->measure_rates("cuda", 1, ENGINE_BFLOAT16, &rates, &error), 0);
    print_message("memory read at %.4g GB/s, products at %.4g TFLOP/s\n", rates.read_bytes_s * 1e-9,
                  rates.product_flop_s * 1e-12);
    assert_true(rates.read_bytes_s > 1e11 && rates.product_flop_s > 1e12);
    assert_int_equal(cuda->measure_rates("cuda:99", 1, ENGINE_BFLOAT16, &rates, &error), -1);
    assert_non_null(strstr(error.message, "GPU 99"));
}

/* Where NVML is there, it knows the GPU by the id that CUDA gives. */
static void telemetry_finds_the_gpu(void **state)
{
    (void)state;
    need_gpu();
    char ids[1][TELEMETRY_ID_SIZE];
    assert_int_equal(cuda->list_gpus("cuda", 1, ids), 1);
    struct telemetry_recorder *recorder = telemetry_open((const char(*)[TELEMETRY_ID_SIZE])ids, 1);
    if (!recorder) {
        print_message("SKIPPED: no NVML knows GPU %s\n", ids[0]);
        skip();
    }
    json_t *gpus = telemetry_describe(recorder);
    telemetry_start(recorder);
    json_t *lines = telemetry_stop(recorder, 0), *last = json_array_get(lines, json_array_size(lines) - 1);
    char *said = json_dumps(gpus, 0), *line = json_dumps(last, 0);
    print_message("%s\n%s\n", said, line);
    assert_true(json_number_value(json_object_get(last, "clock_mhz")) > 0);
    free(said);
    free(line);
    json_decref(lines);
    json_decref(gpus);
    telemetry_close(recorder);
}

static void check_times(const char *shape)
{
    char *folder = fixture_make_folder(), *path = file_join(folder, "bench.json"), *said;
    const char *const arguments[] = {"--shape",   shape, "--device", "cuda", "--rounds", "4",
                                     "--context", "40",  "--json",   path,   NULL};
    struct error error = {0};
    if (call_command(folder, command_bench, arguments, &said) != 0)
        fail_msg("%s", said);
    json_t *figures = json_read_file(path, &error), *arm;
    size_t i;
    assert_non_null(figures);
    json_array_foreach(json_object_get(figures, "arms"), i, arm)
    {
        const json_t *round = json_object_get(arm, "round");
        json_int_t ns = json_integer_value(json_object_get(round, "ns")),
                   host = json_integer_value(json_object_get(round, "host_ns"));
        assert_true(ns > 0 && host > 0);
        const json_t *verify = json_object_get(json_object_get(arm, "stages"), "verify");
        assert_true(json_object_size(json_object_get(verify, "parts_ns")) >= 7);
        assert_true(fabs(json_number_value(json_object_get(arm, "tokens")) - (i == 0 ? 1 : 6)) < 1e-9);
    }
    json_decref(figures);
    free(said);
    free(path);
    fixture_remove_folder(folder);
}

static void times_a_shape(void **state)
{
    (void)state;
    need_gpu();
    check_times("tiny");
    check_times("tiny-hybrid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_the_weights_that_the_cpu_makes),
        cmocka_unit_test(tells_what_the_device_did),
        cmocka_unit_test(rates_are_those_of_a_gpu),
        cmocka_unit_test(telemetry_finds_the_gpu),
        cmocka_unit_test(times_a_shape),
    };
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
