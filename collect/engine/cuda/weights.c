#include "collect/engine/cuda/weights.h"

#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/made.h"
#include "collect/engine/loading.h"

#include <stdlib.h>

#define PIECE ((int64_t)8 << 20) /* elements converted at a time */
#define SHARE ((int64_t)1 << 18) /* elements a thread */

struct loader {
    enum element type;
    cudaStream_t stream;
    void *pinned[2];       /* [PIECE] elements of 4 bytes */
    cudaEvent_t copied[2]; /* the buffer may be filled again */
    int next;
    size_t bytes;
};

struct loader *loader_create(enum element type, cudaStream_t stream)
{
    struct loader *loader = xcalloc(1, sizeof *loader);
    loader->type = type;
    loader->stream = stream;
    for (int i = 0; i < 2; i++) {
        loader->pinned[i] = device_allocate_pinned((size_t)PIECE * sizeof(float));
        CUDA_CHECK(cudaEventCreateWithFlags(&loader->copied[i], cudaEventDisableTiming));
    }
    return loader;
}

void loader_destroy(struct loader *loader)
{
    CUDA_CHECK(cudaStreamSynchronize(loader->stream));
    for (int i = 0; i < 2; i++) {
        CUDA_CHECK(cudaEventDestroy(loader->copied[i]));
        CUDA_CHECK(cudaFreeHost(loader->pinned[i]));
    }
    free(loader);
}

static void convert(enum element type, const struct tensor *tensor, int64_t first, int64_t count, void *out)
{
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < count; from += SHARE) {
        int64_t share = count - from < SHARE ? count - from : SHARE;
        if (type == ELEMENT_BFLOAT16)
            tensor_to_bfloat16(tensor, first + from, share, (uint16_t *)out + from);
        else
            tensor_to_float(tensor, first + from, share, (float *)out + from);
    }
}

/* Queues elements [first, first + count) of the tensor to `to`. */
static void load(struct loader *loader, const struct tensor *tensor, int64_t first, int64_t count, char *to)
{
    enum element type = loader->type;
    size_t size = element_size(type);
    if (tensor->type == TENSOR_MADE) {
        made_fill(type, tensor->recipe, (struct made_part){first, 1, count, count}, to, loader->stream);
        loading_add(count);
        return;
    }
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t piece = count - done < PIECE ? count - done : PIECE;
        int buffer = loader->next;
        loader->next = !buffer;
        CUDA_CHECK(cudaEventSynchronize(loader->copied[buffer]));
        convert(type, tensor, first + done, piece, loader->pinned[buffer]);
        tensor_release(tensor, first + done, piece);
        loading_add(piece);
        CUDA_CHECK(cudaMemcpyAsync(to + (size_t)done * size, loader->pinned[buffer], (size_t)piece * size,
                                   cudaMemcpyHostToDevice, loader->stream));
        CUDA_CHECK(cudaEventRecord(loader->copied[buffer], loader->stream));
    }
}

static void make_columns(struct loader *loader, const struct weight_part *part, char *to)
{
    int64_t stride = part->tensor->shape[1];
    const struct made_part made = {part->first_row * stride + part->first_column, part->rows, part->columns, stride};
    made_fill(loader->type, part->tensor->recipe, made, to, loader->stream);
    loading_add((int64_t)part->rows * part->columns);
}

/* Queues columns of a matrix: whole rows of it pass through the buffers, and their columns are copied. */
static void load_columns(struct loader *loader, const struct weight_part *part, char *to)
{
    size_t size = element_size(loader->type), width = (size_t)part->columns * size;
    int64_t stride = part->tensor->shape[1], together = PIECE / stride;
    for (int64_t done = 0; done < part->rows; done += together) {
        int64_t rows = part->rows - done < together ? part->rows - done : together;
        int64_t first = (part->first_row + done) * stride;
        int buffer = loader->next;
        loader->next = !buffer;
        CUDA_CHECK(cudaEventSynchronize(loader->copied[buffer]));
        convert(loader->type, part->tensor, first, rows * stride, loader->pinned[buffer]);
        tensor_release(part->tensor, first, rows * stride);
        loading_add(rows * part->columns);
        CUDA_CHECK(cudaMemcpy2DAsync(
            to + (size_t)done * width, width, (char *)loader->pinned[buffer] + (size_t)part->first_column * size,
            (size_t)stride * size, width, (size_t)rows, cudaMemcpyHostToDevice, loader->stream));
        CUDA_CHECK(cudaEventRecord(loader->copied[buffer], loader->stream));
    }
}

struct weight_part weight_rows(const struct tensor *tensor, int index, int rows)
{
    return (struct weight_part){tensor, index * rows, rows, 0, (int)tensor->shape[1]};
}

struct weight_part weight_columns(const struct tensor *tensor, int index, int columns)
{
    return (struct weight_part){tensor, 0, (int)tensor->shape[0], index * columns, columns};
}

void *loader_matrix(struct loader *loader, const struct weight_part *parts, int count)
{
    size_t size = element_size(loader->type), bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (size_t)parts[i].rows * (size_t)parts[i].columns * size;
    char *matrix = device_allocate(bytes), *to = matrix;
    for (int i = 0; i < count; i++) {
        const struct weight_part *part = &parts[i];
        int64_t stride = part->tensor->shape[1];
        if (part->columns == stride)
            load(loader, part->tensor, part->first_row * stride, part->rows * stride, to);
        else if (part->tensor->type == TENSOR_MADE)
            make_columns(loader, part, to);
        else
            load_columns(loader, part, to);
        to += (size_t)part->rows * (size_t)part->columns * size;
    }
    loader->bytes += bytes;
    return matrix;
}

float *loader_floats(struct loader *loader, const float *values, size_t count)
{
    float *sent = device_allocate(count * sizeof *sent);
    CUDA_CHECK(cudaMemcpy(sent, values, count * sizeof *sent, cudaMemcpyHostToDevice));
    loader->bytes += count * sizeof *sent;
    loading_add((int64_t)count);
    return sent;
}

size_t loader_bytes(const struct loader *loader)
{
    return loader->bytes;
}
