#include "collect/engine/safetensors.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/engine/bfloat16.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEADER_LIMIT (100 << 20) /* the format's own limit */
#define SHARDS_MAXIMUM 4096

const char *const tensor_type_names[TENSOR_TYPE_COUNT] = {"F32", "F16", "BF16", "made", "another type"};

static const struct {
    const char *name;
    enum tensor_type type;
    int size;
} file_types[] = {
    {"F32", TENSOR_F32, 4},       {"F16", TENSOR_F16, 2},       {"BF16", TENSOR_BF16, 2},  {"F64", TENSOR_OTHER, 8},
    {"F8_E4M3", TENSOR_OTHER, 1}, {"F8_E5M2", TENSOR_OTHER, 1}, {"I8", TENSOR_OTHER, 1},   {"U8", TENSOR_OTHER, 1},
    {"I16", TENSOR_OTHER, 2},     {"U16", TENSOR_OTHER, 2},     {"I32", TENSOR_OTHER, 4},  {"U32", TENSOR_OTHER, 4},
    {"I64", TENSOR_OTHER, 8},     {"U64", TENSOR_OTHER, 8},     {"BOOL", TENSOR_OTHER, 1},
};

struct mapping {
    char *path;
    unsigned char *bytes;
    size_t size;
};

struct safetensors {
    struct mapping *files;
    int file_count;
    struct tensor *tensors;
    int tensor_count;
};

static int map_file(const char *path, struct mapping *file, struct error *error)
{
    int descriptor = file_open(path, &file->size, error);
    if (descriptor < 0)
        return -1;
    if (file->size < 8) {
        close(descriptor);
        return fail(error, "%s: not a safetensors file: %zu bytes", path, file->size);
    }
    file->bytes = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (file->bytes == MAP_FAILED)
        return fail_errno(error, "%s: cannot map", path);
    file->path = xstrdup(path);
    return 0;
}

static int read_shape(const json_t *shape, struct tensor *tensor, const char *where, struct error *error)
{
    if (json_array_size(shape) > TENSOR_DIMENSIONS_MAXIMUM)
        return fail(error, "%s: %zu dimensions; at most %d are supported", where, json_array_size(shape),
                    TENSOR_DIMENSIONS_MAXIMUM);
    tensor->dimensions = (int)json_array_size(shape);
    tensor->elements = 1;
    for (int i = 0; i < tensor->dimensions; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail(error, "%s: the shape must be whole numbers from 0", where);
        tensor->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(tensor->elements, tensor->shape[i], &tensor->elements))
            return fail(error, "%s: the shape overflows", where);
    }
    return 0;
}

static int read_tensor(const char *name, const json_t *entry, const struct mapping *file, int64_t data_start,
                       struct tensor *tensor, struct error *error)
{
    char where[512];
    snprintf(where, sizeof where, "%s: tensor \"%s\"", file->path, name);
    const char *type;
    const json_t *shape, *offsets;
    const struct json_field fields[] = {{"dtype", JSON_FIELD_STRING, &type, .required = true},
                                        {"shape", JSON_FIELD_ARRAY, &shape, .required = true},
                                        {"data_offsets", JSON_FIELD_ARRAY, &offsets, .required = true},
                                        {0}};
    if (json_read_fields(entry, where, fields, JSON_UNKNOWN_KEYS_IGNORED, error) ||
        read_shape(shape, tensor, where, error))
        return -1;
    size_t index = 0, types = sizeof file_types / sizeof *file_types;
    while (index < types && strcmp(file_types[index].name, type) != 0)
        index++;
    if (index == types)
        return fail(error, "%s: unknown dtype \"%s\"", where, type);
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fail(error, "%s: data_offsets must be two whole numbers", where);
    int64_t from = json_integer_value(begin), to = json_integer_value(end), room = (int64_t)file->size - data_start;
    if (from < 0 || to < from || to > room)
        return fail(error, "%s: its bytes %lld to %lld lie outside the file's %lld: is the file cut short?", where,
                    (long long)from, (long long)to, (long long)room);
    int64_t bytes;
    if (__builtin_mul_overflow(tensor->elements, (int64_t)file_types[index].size, &bytes) || bytes != to - from)
        return fail(error, "%s: %lld bytes do not hold %lld elements of %s", where, (long long)(to - from),
                    (long long)tensor->elements, type);
    tensor->name = xstrdup(name);
    tensor->type = file_types[index].type;
    tensor->bytes = bytes;
    tensor->data = file->bytes + data_start + from;
    tensor->file = file->path;
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const unsigned char *left = (*(const struct tensor *const *)a)->data,
                        *right = (*(const struct tensor *const *)b)->data;
    return left < right ? -1 : left > right;
}

/* Two tensors of one file may not share bytes. */
static int check_overlap(const struct tensor *tensors, int count, struct error *error)
{
    const struct tensor **order = xcalloc((size_t)count, sizeof *order);
    int result = 0;
    for (int i = 0; i < count; i++)
        order[i] = &tensors[i];
    qsort(order, (size_t)count, sizeof *order, by_address);
    const struct tensor *before = NULL; /* empty tensors may stand anywhere */
    for (int i = 0; i < count && !result; i++) {
        if (order[i]->bytes == 0)
            continue;
        if (before && before->data + before->bytes > order[i]->data)
            result = fail(error, "%s: tensors \"%s\" and \"%s\" overlap", order[i]->file, before->name, order[i]->name);
        before = order[i];
    }
    free(order);
    return result;
}

static int read_header(struct safetensors *weights, const struct mapping *file, struct error *error)
{
    uint64_t length;
    memcpy(&length, file->bytes, 8);
    if (length > HEADER_LIMIT || length > file->size - 8)
        return fail(error, "%s: a header of %llu bytes in a file of %zu: cut short, or no safetensors file", file->path,
                    (unsigned long long)length, file->size);
    if (length == 0 || file->bytes[8] != '{')
        return fail(error, "%s: the header is not an object", file->path);
    json_t *header = json_read_text((const char *)file->bytes + 8, (size_t)length, file->path, error);
    if (!header)
        return -1;
    int result = -1, first = weights->tensor_count;
    const char *name;
    json_t *entry;
    size_t room = (size_t)weights->tensor_count + json_object_size(header);
    weights->tensors = xrealloc(weights->tensors, room, sizeof *weights->tensors);
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct tensor *tensor = &weights->tensors[weights->tensor_count];
        memset(tensor, 0, sizeof *tensor);
        if (read_tensor(name, entry, file, 8 + (int64_t)length, tensor, error))
            goto out;
        weights->tensor_count++;
    }
    result = check_overlap(weights->tensors + first, weights->tensor_count - first, error);
out:
    json_decref(header);
    return result;
}

static int add_file(struct safetensors *weights, const char *path, struct error *error)
{
    struct mapping *file = &weights->files[weights->file_count];
    if (map_file(path, file, error))
        return -1;
    weights->file_count++;
    return read_header(weights, file, error);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int sort_tensors(struct safetensors *weights, const char *folder, struct error *error)
{
    if (weights->tensor_count > 0)
        qsort(weights->tensors, (size_t)weights->tensor_count, sizeof *weights->tensors, by_name);
    for (int i = 1; i < weights->tensor_count; i++)
        if (strcmp(weights->tensors[i - 1].name, weights->tensors[i].name) == 0)
            return fail(error, "%s: tensor \"%s\" stands in two files", folder, weights->tensors[i].name);
    return 0;
}

/* Each file that the index names, once. */
static int add_shards(struct safetensors *weights, const char *folder, const json_t *map, const char *index_path,
                      struct error *error)
{
    json_t *seen = json_object(), *value;
    const char *name;
    int result = 0;
    json_object_foreach((json_t *)map, name, value)
    {
        const char *shard = json_string_value(value);
        if (!shard || strchr(shard, '/') || shard[0] == '.')
            result = fail(error, "%s: the file of \"%s\" must be a plain file name", index_path, name);
        else if (json_object_get(seen, shard))
            continue;
        else if (weights->file_count == SHARDS_MAXIMUM)
            result = fail(error, "%s: more than %d files", index_path, SHARDS_MAXIMUM);
        if (result)
            break;
        char *path = file_join(folder, shard);
        json_set(seen, shard, json_true());
        result = add_file(weights, path, error);
        free(path);
        if (result)
            break;
    }
    json_decref(seen);
    return result;
}

static int check_index(const struct safetensors *weights, const json_t *map, const char *index_path,
                       struct error *error)
{
    const char *name;
    json_t *shard;
    json_object_foreach((json_t *)map, name, shard)
    {
        if (!safetensors_find(weights, name))
            return fail(error, "%s: tensor \"%s\" is not in \"%s\"", index_path, name, json_string_value(shard));
    }
    return 0;
}

static int open_sharded(struct safetensors *weights, const char *folder, const char *index_path, struct error *error)
{
    json_t *index = json_read_file(index_path, error);
    const json_t *map;
    const struct json_field fields[] = {{"weight_map", JSON_FIELD_OBJECT, &map, .required = true}, {0}};
    int result = -1;
    if (index && !json_read_fields(index, index_path, fields, JSON_UNKNOWN_KEYS_IGNORED, error) &&
        !add_shards(weights, folder, map, index_path, error) && !sort_tensors(weights, folder, error))
        result = check_index(weights, map, index_path, error);
    json_decref(index);
    return result;
}

static int open_single(struct safetensors *weights, const char *folder, const char *path, struct error *error)
{
    return add_file(weights, path, error) ? -1 : sort_tensors(weights, folder, error);
}

struct safetensors *safetensors_open(const char *folder, struct error *error)
{
    struct safetensors *weights = xcalloc(1, sizeof *weights);
    char *single = file_join(folder, "model.safetensors"), *index = file_join(folder, "model.safetensors.index.json");
    weights->files = xcalloc(SHARDS_MAXIMUM, sizeof *weights->files);
    int result =
        file_exists(index) ? open_sharded(weights, folder, index, error) : open_single(weights, folder, single, error);
    free(single);
    free(index);
    if (!result)
        return weights;
    safetensors_close(weights);
    return NULL;
}

struct safetensors *safetensors_make(struct tensor *tensors, int count)
{
    struct safetensors *weights = xcalloc(1, sizeof *weights);
    weights->tensors = tensors;
    weights->tensor_count = count;
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    return weights;
}

void safetensors_close(struct safetensors *weights)
{
    if (!weights)
        return;
    for (int i = 0; i < weights->tensor_count; i++)
        free(weights->tensors[i].name);
    for (int i = 0; i < weights->file_count; i++) {
        munmap(weights->files[i].bytes, weights->files[i].size);
        free(weights->files[i].path);
    }
    free(weights->tensors);
    free(weights->files);
    free(weights);
}

int safetensors_count(const struct safetensors *weights)
{
    return weights->tensor_count;
}

const struct tensor *safetensors_at(const struct safetensors *weights, int index)
{
    return &weights->tensors[index];
}

const struct tensor *safetensors_find(const struct safetensors *weights, const char *name)
{
    struct tensor key = {.name = (char *)name};
    if (weights->tensor_count == 0)
        return NULL;
    return bsearch(&key, weights->tensors, (size_t)weights->tensor_count, sizeof key, by_name);
}

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent == 0) {
        float value = (float)fraction / 16777216.0f;
        return sign ? -value : value;
    }
    uint32_t bits = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bytes: bfloat16[count], not aligned. */
static void bfloat16_bytes_to_float(const unsigned char *bytes, int64_t count, float *out)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, bytes + 2 * i, sizeof half);
        out[i] = bfloat16_to_float(half);
    }
}

void tensor_to_float(const struct tensor *tensor, int64_t first, int64_t count, float *out)
{
    if (tensor->type == TENSOR_F32) {
        memcpy(out, tensor->data + first * 4, (size_t)count * 4);
        return;
    }
    if (tensor->type == TENSOR_BF16) {
        bfloat16_bytes_to_float(tensor->data + first * 2, count, out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (tensor->type == TENSOR_MADE) {
            out[i] = recipe_element(tensor->recipe, (uint64_t)(first + i));
            continue;
        }
        uint16_t half;
        memcpy(&half, tensor->data + (first + i) * 2, 2);
        out[i] = half_to_float(half);
    }
}

void tensor_to_bfloat16(const struct tensor *tensor, int64_t first, int64_t count, uint16_t *out)
{
    if (tensor->type == TENSOR_BF16) {
        memcpy(out, tensor->data + first * 2, (size_t)count * 2);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float value;
        if (tensor->type == TENSOR_MADE)
            value = recipe_element(tensor->recipe, (uint64_t)(first + i));
        else
            tensor_to_float(tensor, first + i, 1, &value);
        out[i] = bfloat16_from_float(value);
    }
}

/* Whole pages only: what shares one with a neighbour stays. */
void tensor_release(const struct tensor *tensor, int64_t first, int64_t count)
{
    if (!tensor->data || !tensor->file || tensor->elements == 0)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)tensor->data;
    int64_t size = tensor->bytes / tensor->elements;
    uintptr_t start = (data + (uintptr_t)(first * size) + page - 1) / page * page;
    uintptr_t end = (data + (uintptr_t)((first + count) * size)) / page * page;
    if (end > start)
        madvise((void *)start, end - start, MADV_DONTNEED);
}

void tensor_hold(const struct tensor *tensor)
{
    volatile unsigned char byte;
    if (!tensor->data)
        return;
    for (int64_t at = 0; at < tensor->bytes; at += sysconf(_SC_PAGESIZE))
        byte = tensor->data[at];
    (void)byte;
}
