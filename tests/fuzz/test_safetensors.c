/* model.safetensors, and model.safetensors.index.json where the bytes begin like JSON */
#include "collect/engine/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/safetensors";
const int fuzz_mutations = 10000;

static void check_tensor(const struct tensor *tensor)
{
    int64_t elements = 1;
    for (int i = 0; i < tensor->dimensions; i++)
        elements *= tensor->shape[i];
    fuzz_require(elements == tensor->elements && elements >= 0 && tensor->bytes >= elements, "a tensor has its size");
    if (tensor->type == TENSOR_OTHER || elements > 1 << 16)
        return;
    float *values = xcalloc((size_t)elements, sizeof *values);
    uint16_t *halves = xcalloc((size_t)elements, sizeof *halves);
    tensor_to_float(tensor, 0, elements, values);
    tensor_to_bfloat16(tensor, 0, elements, halves);
    free(values);
    free(halves);
}

static bool overlap(const struct tensor *a, const struct tensor *b)
{
    return a->bytes > 0 && b->bytes > 0 && strcmp(a->file, b->file) == 0 && a->data < b->data + b->bytes &&
           b->data < a->data + a->bytes;
}

static void check(const struct safetensors *weights)
{
    int count = safetensors_count(weights);
    for (int i = 0; i < count; i++) {
        const struct tensor *tensor = safetensors_at(weights, i);
        fuzz_require(safetensors_find(weights, tensor->name) == tensor, "names are unique");
        check_tensor(tensor);
        for (int j = 0; j < i && j < 64; j++)
            fuzz_require(!overlap(tensor, safetensors_at(weights, j)), "no two tensors share bytes");
    }
}

static void open_and_check(void)
{
    struct error error = {0};
    struct safetensors *weights = safetensors_open(fuzz_folder(), &error);
    fuzz_check_answer(weights, &error);
    if (weights)
        check(weights);
    safetensors_close(weights);
}

static void write_shard(const char *name, const char *tensor)
{
    char bytes[256] = {0};
    int length = snprintf(bytes + 8, sizeof bytes - 8,
                          "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", tensor);
    bytes[0] = (char)length;
    fuzz_write(name, bytes, (size_t)length + 16);
}

static void run_index(const uint8_t *bytes, size_t size)
{
    write_shard("a.safetensors", "a");
    write_shard("b.safetensors", "b");
    write_shard("c.safetensors", "a"); /* which stands in the first as well */
    const char *path = fuzz_write("model.safetensors.index.json", bytes, size);
    open_and_check();
    unlink(path);
}

/* As it is, and with the length that ends the header at the last brace, so that a mutated header is read. */
static void run_file(const uint8_t *bytes, size_t size)
{
    fuzz_write("model.safetensors", bytes, size);
    open_and_check();
    uint64_t length = size;
    while (length > 8 && bytes[length - 1] != '}')
        length--;
    if (length <= 8)
        return;
    uint8_t *mended = xmalloc(size);
    memcpy(mended, bytes, size);
    length -= 8;
    memcpy(mended, &length, 8);
    fuzz_write("model.safetensors", mended, size);
    free(mended);
    open_and_check();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size > 0 && bytes[0] == '{')
        run_index(bytes, size);
    else
        run_file(bytes, size);
    return 0;
}
