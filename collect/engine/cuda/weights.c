#include "collect/engine/cuda/weights.h"

#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/made.h"

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

static void load(struct loader *loader, enum element type, const struct tensor *tensor, char *to)
{
    size_t size = element_size(type);
    if (tensor->type == TENSOR_MADE) {
        made_fill(type, tensor->recipe, 0, tensor->elements, to, loader->stream);
        return;
    }
    for (int64_t first = 0; first < tensor->elements; first += PIECE) {
        int64_t count = tensor->elements - first < PIECE ? tensor->elements - first : PIECE;
        int buffer = loader->next;
        loader->next = !buffer;
        CUDA_CHECK(cudaEventSynchronize(loader->copied[buffer]));
        convert(type, tensor, first, count, loader->pinned[buffer]);
        CUDA_CHECK(cudaMemcpyAsync(to + (size_t)first * size, loader->pinned[buffer], (size_t)count * size,
                                   cudaMemcpyHostToDevice, loader->stream));
        CUDA_CHECK(cudaEventRecord(loader->copied[buffer], loader->stream));
    }
}

void *loader_matrix(struct loader *loader, const struct tensor *const *tensors, int count)
{
    size_t size = element_size(loader->type), bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += (size_t)tensors[i]->elements * size;
    char *matrix = device_allocate(bytes), *to = matrix;
    for (int i = 0; i < count; i++) {
        load(loader, loader->type, tensors[i], to);
        to += (size_t)tensors[i]->elements * size;
    }
    loader->bytes += bytes;
    return matrix;
}

float *loader_vector(struct loader *loader, const struct tensor *tensor)
{
    float *vector = device_allocate((size_t)tensor->elements * sizeof *vector);
    load(loader, ELEMENT_FLOAT32, tensor, (char *)vector);
    loader->bytes += (size_t)tensor->elements * sizeof *vector;
    return vector;
}

size_t loader_bytes(const struct loader *loader)
{
    return loader->bytes;
}
