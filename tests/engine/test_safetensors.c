#include "collect/engine/safetensors.h"

#include "collect/base/file.h"
#include "tests/engine/model_files.h"
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

#define INDEX "model.safetensors.index.json"

static void write_text(const char *folder, const char *name, const char *text)
{
    char *path = file_join(folder, name);
    json_t *value = model_files_json(text);
    char *json = json_dumps(value, 0);
    fixture_write(path, json, strlen(json));
    free(json);
    json_decref(value);
    free(path);
}

static struct safetensors *open_well(const char *folder)
{
    struct error error = {0};
    struct safetensors *weights = safetensors_open(folder, &error);
    assert_string_equal(error.message, "");
    return weights;
}

/* Opening fails with one line that begins with the folder's path and holds `expected`. */
static void assert_refused(const char *folder, const char *expected)
{
    struct error error = {0};
    struct safetensors *weights = safetensors_open(folder, &error);
    if (weights || !strstr(error.message, expected) || strncmp(error.message, folder, strlen(folder)) != 0)
        fail_msg("expected \"%s\", got \"%s\"", expected, error.message);
    assert_null(strchr(error.message, '\n'));
}

static void reads_each_type_at_any_address(void **state)
{
    (void)state;
    char *folder = fixture_make_folder();
    static const float numbers[] = {1.5f, -2.0f, 3.140625f};
    static const uint16_t brains[] = {0x3fc0, 0xc000}, halves[] = {0x3e00, 0xc000};
    unsigned char data[1 + sizeof numbers + sizeof brains + sizeof halves] = {7};
    memcpy(data + 1, numbers, sizeof numbers);
    memcpy(data + 13, brains, sizeof brains);
    memcpy(data + 17, halves, sizeof halves);
    model_files_write_raw(folder, "model.safetensors",
                          "{'__metadata__': {'format': 'pt'}, 'byte': {'dtype': 'U8', 'shape': [1], 'data_offsets': "
                          "[0, 1]}, 'f32': {'dtype': 'F32', 'shape': [3, 1], 'data_offsets': [1, 13]}, 'bf16': "
                          "{'dtype': 'BF16', 'shape': [2], 'data_offsets': [13, 17]}, 'f16': {'dtype': 'F16', "
                          "'shape': [1, 2, 1], 'data_offsets': [17, 21]}, 'none': {'dtype': 'F32', 'shape': [0, 4], "
                          "'data_offsets': [5, 5]}, 'scalar': {'dtype': 'F16', 'shape': [], 'data_offsets': "
                          "[21, 23]}}   ",
                          "", 0);
    char *path = file_join(folder, "model.safetensors");
    size_t size;
    char *bytes = fixture_read(path, &size), *whole = xmalloc(size + sizeof data + 2);
    memcpy(whole, bytes, size);
    memcpy(whole + size, data, sizeof data);
    memcpy(whole + size + sizeof data, halves, 2);
    fixture_write(path, whole, size + sizeof data + 2);

    struct safetensors *weights = open_well(folder);
    assert_int_equal(safetensors_count(weights), 6);
    assert_string_equal(safetensors_at(weights, 0)->name, "bf16");
    float out[3];
    uint16_t rounded[3];
    const struct tensor *tensor = safetensors_find(weights, "f32");
    assert_int_equal(tensor->type, TENSOR_F32);
    assert_int_equal(tensor->dimensions, 2);
    tensor_to_float(tensor, 0, 3, out);
    assert_memory_equal(out, numbers, sizeof numbers);
    tensor_to_bfloat16(tensor, 0, 3, rounded);
    assert_memory_equal(rounded, ((uint16_t[]){0x3fc0, 0xc000, 0x4049}), 6);
    tensor_to_float(safetensors_find(weights, "bf16"), 1, 1, out);
    assert_float_equal(out[0], -2, 0);
    tensor_to_float(safetensors_find(weights, "f16"), 0, 2, out);
    assert_memory_equal(out, numbers, 8);
    tensor_to_bfloat16(safetensors_find(weights, "scalar"), 0, 1, rounded);
    assert_int_equal(rounded[0], 0x3fc0);
    assert_int_equal(safetensors_find(weights, "byte")->type, TENSOR_OTHER);
    assert_int_equal(safetensors_find(weights, "none")->elements, 0);
    assert_int_equal(safetensors_find(weights, "scalar")->elements, 1);
    assert_null(safetensors_find(weights, "byt"));
    safetensors_close(weights);
    free(whole);
    free(bytes);
    free(path);
    fixture_remove_folder(folder);
}

static void converts_the_ends_of_the_ranges(void **state)
{
    (void)state;
    static const uint16_t halves[] = {0x0001, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e01, 0x8000};
    static const float values[] = {0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, 65504, INFINITY, -INFINITY, NAN, -0.0f};
    struct tensor tensor = {.type = TENSOR_F16, .data = (const unsigned char *)halves};
    float out[8];
    tensor_to_float(&tensor, 0, 8, out);
    for (int i = 0; i < 8; i++)
        assert_true(isnan(values[i]) ? isnan(out[i]) : out[i] == values[i] && signbit(out[i]) == signbit(values[i]));
    /* Ties go to the even neighbour, and a NaN stays one. */
    static const float numbers[] = {0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, 3.4e38f, NAN};
    tensor = (struct tensor){.type = TENSOR_F32, .data = (const unsigned char *)numbers};
    uint16_t rounded[5];
    tensor_to_bfloat16(&tensor, 0, 5, rounded);
    assert_memory_equal(rounded, ((uint16_t[]){0x3f80, 0x3f82, 0x3f81, 0x7f80}), 8);
    assert_true((rounded[4] & 0x7fff) > 0x7f80);
}

static void refuses_headers_that_do_not_add_up(void **state)
{
    (void)state;
    static const struct {
        const char *header, *expected;
    } cases[] = {
        {"", "model.safetensors: the header is not an object"},
        {"{", "model.safetensors: line "},
        {"[]", "model.safetensors: the header is not an object"},
        {"{'a': 1}", "tensor \"a\": must be an object"},
        {"{'a': {}, 'a': {}}", "model.safetensors: line 1, column "},
        {"{'a': {'shape': [1], 'data_offsets': [0, 4]}}", "tensor \"a\": \"dtype\" is missing"},
        {"{'a': {'dtype': 'F31', 'shape': [1], 'data_offsets': [0, 4]}}", "tensor \"a\": unknown dtype \"F31\""},
        {"{'a': {'dtype': 'F32', 'shape': [-1], 'data_offsets': [0, 4]}}", "the shape must be whole numbers from 0"},
        {"{'a': {'dtype': 'F32', 'shape': [1.0], 'data_offsets': [0, 4]}}", "the shape must be whole numbers from 0"},
        {"{'a': {'dtype': 'F32', 'shape': [1,1,1,1,1,1,1,1,1], 'data_offsets': [0, 4]}}", "9 dimensions; at most 8"},
        {"{'a': {'dtype': 'F32', 'shape': [4294967296, 4294967296], 'data_offsets': [0, 0]}}", "the shape overflows"},
        {"{'a': {'dtype': 'F32', 'shape': [4611686018427387904], 'data_offsets': [0, 0]}}",
         "0 bytes do not hold 4611686018427387904 elements of F32"},
        {"{'a': {'dtype': 'F32', 'shape': [99999999999999999999], 'data_offsets': [0, 0]}}", "too big integer"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0]}}", "data_offsets must be two whole numbers"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4, 8]}}", "data_offsets must be two whole numbers"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [-4, 0]}}", "lie outside the file's 16"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [4, 0]}}", "its bytes 4 to 0 lie outside"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [9223372036854775803, 9223372036854775807]}}",
         "lie outside the file's 16: is the file cut short?"},
        {"{'a': {'dtype': 'F32', 'shape': [5], 'data_offsets': [0, 20]}}", "its bytes 0 to 20 lie outside"},
        {"{'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 4]}}", "4 bytes do not hold 2 elements of F32"},
        {"{'a': {'dtype': 'F16', 'shape': [2], 'data_offsets': [0, 8]}}", "8 bytes do not hold 2 elements of F16"},
        {"{'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}, 'b': {'dtype': 'F32', 'shape': [2], "
         "'data_offsets': [4, 12]}}",
         "tensors \"a\" and \"b\" overlap"},
        {"{'a': {'dtype': 'F32', 'shape': [4], 'data_offsets': [0, 16]}, 'none': {'dtype': 'F32', 'shape': [0], "
         "'data_offsets': [4, 4]}, 'b': {'dtype': 'F32', 'shape': [1], 'data_offsets': [8, 12]}}",
         "tensors \"a\" and \"b\" overlap"},
        {"{'a': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}, 'b': {'dtype': 'F32', 'shape': [1], "
         "'data_offsets': [0, 4]}}",
         " overlap"},
    };
    char *folder = fixture_make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_files_write_raw(folder, "model.safetensors", cases[i].header, "0123456789abcdef", 16);
        assert_refused(folder, cases[i].expected);
    }
    fixture_remove_folder(folder);
}

static void refuses_files_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *expected;
    } cases[] = {
        {"", 0, "not a safetensors file: 0 bytes"},
        {"\3\0\0\0\0\0\0", 7, "not a safetensors file: 7 bytes"},
        {"\3\0\0\0\0\0\0\0{}", 10, "a header of 3 bytes in a file of 10: cut short"},
        {"\377\377\377\377\377\377\377\377{}", 10, "a header of 18446744073709551615 bytes in a file of 10"},
        {"\1\0\0\7\0\0\0\0{}", 10, "a header of 117440513 bytes in a file of 10"},
    };
    char *folder = fixture_make_folder(), *path = file_join(folder, "model.safetensors");
    assert_refused(folder, "model.safetensors: cannot open: No such file or directory");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_write(path, cases[i].bytes, cases[i].size);
        assert_refused(folder, cases[i].expected);
    }
    free(path);
    fixture_remove_folder(folder);
}

#define ONE(name) "{'" name "': {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}"

static void reads_shards_by_their_index(void **state)
{
    (void)state;
    char *folder = fixture_make_folder();
    static const float one = 1, two = 2;
    model_files_write_raw(folder, "one.safetensors", ONE("b"), &one, 4);
    model_files_write_raw(folder, "two.safetensors", ONE("a"), &two, 4);
    write_text(folder, INDEX,
               "{'metadata': {'total_size': 8}, 'weight_map': {'b': 'one.safetensors', 'a': "
               "'two.safetensors'}}");
    struct safetensors *weights = open_well(folder);
    float value;
    assert_int_equal(safetensors_count(weights), 2);
    tensor_to_float(safetensors_find(weights, "a"), 0, 1, &value);
    assert_float_equal(value, 2, 0);
    tensor_to_float(safetensors_find(weights, "b"), 0, 1, &value);
    assert_float_equal(value, 1, 0);
    safetensors_close(weights);
    fixture_remove_folder(folder);
}

static void refuses_shards_that_do_not_fit_their_index(void **state)
{
    (void)state;
    static const struct {
        const char *index, *expected;
    } cases[] = {
        {"{}", INDEX ": \"weight_map\" is missing"},
        {"{'weight_map': []}", INDEX ": \"weight_map\" must be an object"},
        {"{'weight_map': {'a': 7}}", INDEX ": the file of \"a\" must be a plain file name"},
        {"{'weight_map': {'a': '../one.safetensors'}}", INDEX ": the file of \"a\" must be a plain file name"},
        {"{'weight_map': {'a': '..'}}", INDEX ": the file of \"a\" must be a plain file name"},
        {"{'weight_map': {'a': 'three.safetensors'}}", "three.safetensors: cannot open: No such file or directory"},
        {"{'weight_map': {'a': 'one.safetensors', 'c': 'one.safetensors'}}",
         INDEX ": tensor \"c\" is not in \"one.safetensors\""},
        {"{'weight_map': {'a': 'one.safetensors', 'b': 'two.safetensors'}}", ": tensor \"a\" stands in two files"},
    };
    char *folder = fixture_make_folder();
    model_files_write_raw(folder, "one.safetensors", ONE("a"), "0000", 4);
    model_files_write_raw(folder, "two.safetensors", ONE("a"), "0000", 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(folder, INDEX, cases[i].index);
        assert_refused(folder, cases[i].expected);
    }
    fixture_remove_folder(folder);
}

/* Megabytes of files that are mapped and in memory. */
static long mapped_megabytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long resident = -1, anonymous = -1;
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "Rss: %ld", &resident);
        sscanf(line, "Anonymous: %ld", &anonymous);
    }
    if (!file || resident < 0 || anonymous < 0)
        skip();
    fclose(file);
    return (resident - anonymous) / 1024;
}

/* Read piece by piece, a file of 64 MB never has more than a piece in memory; and it reads the same twice. */
static void what_is_released_leaves_memory(void **state)
{
    (void)state;
    enum { ELEMENTS = 32 << 20, PIECE = 1 << 20 };
    char *folder = fixture_make_folder();
    uint16_t *elements = xcalloc(ELEMENTS, sizeof *elements), *piece = xcalloc(PIECE, sizeof *piece);
    for (int i = 0; i < ELEMENTS; i++)
        elements[i] = (uint16_t)(i * 2654435761u >> 16);
    model_files_write_raw(folder, "model.safetensors",
                          "{'w': {'dtype': 'BF16', 'shape': [33554432], 'data_offsets': [0, 67108864]}}", elements,
                          sizeof *elements * ELEMENTS);
    struct safetensors *weights = open_well(folder);
    const struct tensor *tensor = safetensors_find(weights, "w");
    const long before = mapped_megabytes();
    for (int round = 0; round < 2; round++)
        for (int first = 0; first < ELEMENTS; first += PIECE) {
            tensor_to_bfloat16(tensor, first, PIECE, piece);
            assert_memory_equal(piece, elements + first, sizeof *piece * PIECE);
            tensor_release(tensor, first, PIECE);
            assert_true(mapped_megabytes() < before + 16);
        }
    tensor_hold(tensor);
    assert_true(mapped_megabytes() >= before + 60);
    safetensors_close(weights);
    free(elements);
    free(piece);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_type_at_any_address),
        cmocka_unit_test(converts_the_ends_of_the_ranges),
        cmocka_unit_test(refuses_headers_that_do_not_add_up),
        cmocka_unit_test(refuses_files_that_are_none),
        cmocka_unit_test(reads_shards_by_their_index),
        cmocka_unit_test(refuses_shards_that_do_not_fit_their_index),
        cmocka_unit_test(what_is_released_leaves_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
