/* For tests on a GPU: whether there is one, memory there and back, and the time of a kernel within a graph. */
#ifndef TESTS_GPU_GPU_H
#define TESTS_GPU_GPU_H

#include "collect/base/error.h"
#include "collect/engine/backend.h"
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/kernels.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Says why not. */
static inline bool gpu_is_usable(void)
{
    struct error reason = {0};
    bool usable = device_find(NULL, &reason) == DEVICE_USABLE;
    if (!usable)
        printf("SKIPPED: %s\n", reason.message);
    return usable;
}

/* Says why there is none. */
static inline const struct backend_class *gpu_backend(void)
{
    struct error reason = {0};
    const struct backend_class *backend = backend_find("cuda", &reason);
    if (!backend)
        printf("SKIPPED: %s\n", reason.message);
    return backend;
}

static inline void *gpu_send(const void *from, size_t bytes)
{
    void *memory = device_allocate(bytes);
    CUDA_CHECK(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* As the type holds them. */
static inline void *gpu_send_typed(enum element type, const float *from, size_t count)
{
    if (type == ELEMENT_FLOAT32)
        return gpu_send(from, count * sizeof *from);
    uint16_t *held = xcalloc(count, sizeof *held);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        held[i] = bfloat16_from_float(from[i]);
    void *sent = gpu_send(held, count * sizeof *held);
    free(held);
    return sent;
}

static inline void gpu_fetch(void *to, const void *from, size_t bytes)
{
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

/* What is allocated next is likely to lie where this was, and nothing may depend on its being zero. */
static inline void gpu_leave_rubbish(void)
{
    const size_t bytes = (size_t)2 << 30;
    void *memory = device_allocate(bytes);
    CUDA_CHECK(cudaMemset(memory, 0x5a, bytes));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFree(memory));
}

/* Uniform in [-1, 1), the same in every run. */
static inline float gpu_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)(int32_t)(*state >> 32) * 0x1p-31f;
}

/* Microseconds of one of `count` calls that follow each other in a graph: the least of ten replays. */
static inline double gpu_time(void (*queue)(void *context, int index, cudaStream_t stream), void *context, int count)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    cudaEvent_t begin, end;
    float best = 1e30f;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; i++)
        queue(context, i, stream);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&replay, graph, 0));
    for (int i = 0; i < 12; i++) {
        float milliseconds;
        CUDA_CHECK(cudaEventRecord(begin, stream));
        CUDA_CHECK(cudaGraphLaunch(replay, stream));
        CUDA_CHECK(cudaEventRecord(end, stream));
        CUDA_CHECK(cudaStreamSynchronize(stream));
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= 2 && milliseconds < best)
            best = milliseconds;
    }
    CUDA_CHECK(cudaGraphExecDestroy(replay));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaStreamDestroy(stream));
    return 1000.0 * (double)best / count;
}

#endif
