/* Halves of layers for tests on a GPU: a single row's residual stream, and an attention with all that it reads, on both
 * sides. */
#ifndef TESTS_GPU_HALVES_SCENE_H
#define TESTS_GPU_HALVES_SCENE_H

#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD 128
#define EPSILON 1e-6f
#define CAPACITY 4096
#define SESSION 1
#define SESSIONS 2

static bool usable;

static inline int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    if (usable && !kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3072)) {
        printf("SKIPPED: no halves of layers on this GPU\n");
        usable = false;
    }
    return 0;
}

/* --- numbers there and here ------------------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

/* Uniform in [-size, size), as bfloat16 holds it. */
static inline float *make(size_t count, float size)
{
    float *made = xcalloc(count, sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = bfloat16_to_float(bfloat16_from_float(size * gpu_random(&seed)));
    return made;
}

static inline float *make_norm(size_t count)
{
    float *norm = make(count, 0.25f);
    for (size_t i = 0; i < count; i++)
        norm[i] += 1;
    return norm;
}

/* --- the residual stream ----------------------------------------------------------------------------------------- */

struct stream {
    struct half_stream call;
    float *x, *parts, *norm;
    int clusters;
};

static inline struct stream make_stream(int width, int part_count, int clusters)
{
    size_t elements = (size_t)width, all = (size_t)part_count * elements;
    struct stream stream = {
        .x = make(elements, 3), .parts = make(all ? all : 1, 1), .norm = make_norm(elements), .clusters = clusters};
    stream.call = (struct half_stream){.width = width,
                                       .part_count = part_count,
                                       .x = gpu_send(stream.x, elements * sizeof(float)),
                                       .parts = gpu_send(stream.parts, (all ? all : 1) * sizeof(float)),
                                       .sum = device_allocate(elements * sizeof(float)),
                                       .feature = device_allocate(elements * 2),
                                       .norm = gpu_send(stream.norm, elements * sizeof(float)),
                                       .epsilon = EPSILON,
                                       .out = device_allocate((size_t)clusters * elements * sizeof(float))};
    return stream;
}

static inline void free_stream(struct stream *stream)
{
    const void *there[] = {stream->call.x,       stream->call.parts, stream->call.sum,
                           stream->call.feature, stream->call.norm,  stream->call.out};
    for (int i = 0; i < COUNT(there); i++)
        CUDA_CHECK(cudaFree((void *)(uintptr_t)there[i]));
    free(stream->x);
    free(stream->parts);
    free(stream->norm);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

struct attention {
    struct stream stream;
    struct attention_half_call call;
    int kv_heads, group, length;
    float *qkv, *o, *q_norm, *k_norm, *turns;
    float *keys, *values; /* [session, kv_head, CAPACITY, HEAD]; NaN where nothing may be read */
};

static inline size_t cache_elements(const struct attention *own)
{
    return (size_t)SESSIONS * (size_t)own->kv_heads * CAPACITY * HEAD;
}

static inline float *at(float *cache, const struct attention *own, int kv_head, int slot)
{
    return cache + ((size_t)(SESSION * own->kv_heads + kv_head) * CAPACITY + (size_t)slot) * HEAD;
}

static inline float *make_cache(const struct attention *own)
{
    float *cache = xcalloc(cache_elements(own), sizeof *cache);
    memset(cache, 0xff, cache_elements(own) * sizeof *cache);
    for (int kv_head = 0; kv_head < own->kv_heads; kv_head++)
        for (int i = 0; i < own->length * HEAD; i++)
            at(cache, own, kv_head, 0)[i] = bfloat16_to_float(bfloat16_from_float(gpu_random(&seed)));
    return cache;
}

static inline float *make_turns(void)
{
    float *turns = xcalloc((size_t)CAPACITY * HEAD, sizeof *turns);
    for (int i = 0; i < CAPACITY * HEAD / 2; i++) {
        double angle = i / (HEAD / 2) * pow(10000, -(i % (HEAD / 2)) / (HEAD / 2.0));
        turns[i] = (float)cos(angle);
        turns[CAPACITY * HEAD / 2 + i] = (float)sin(angle);
    }
    return turns;
}

static inline struct attention make_attention(int width, int kv_heads, int group, int length, int part_count)
{
    struct attention own = {
        .stream = make_stream(width, part_count, kv_heads), .kv_heads = kv_heads, .group = group, .length = length};
    int heads = kv_heads * group, places[] = {length, SESSION, length};
    size_t rows = (size_t)(heads + 2 * kv_heads) * HEAD, columns = (size_t)heads * HEAD, elements = (size_t)width;
    own.qkv = make(rows * elements, 0.1f);
    own.o = make(elements * columns, 0.1f);
    own.q_norm = make_norm(HEAD);
    own.k_norm = make_norm(HEAD);
    own.turns = make_turns();
    own.keys = make_cache(&own);
    own.values = make_cache(&own);
    for (int i = 0; i < HEAD; i++)
        own.q_norm[i] *= 4; /* so that some keys count more than others */
    int *there = gpu_send(places, sizeof places);
    float *cosines = gpu_send(own.turns, (size_t)CAPACITY * HEAD * sizeof(float));
    own.call = (struct attention_half_call){
        .stream = own.stream.call,
        .qkv = gpu_send_typed(ELEMENT_BFLOAT16, own.qkv, rows * elements),
        .o = gpu_send_typed(ELEMENT_BFLOAT16, own.o, elements * columns),
        .heads = {.type = ELEMENT_BFLOAT16,
                  .rows = 1,
                  .layers = 1,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .head_size = HEAD,
                  .capacity = CAPACITY,
                  .query_size = HEAD,
                  .rotary_size = HEAD,
                  .q_norm = gpu_send(own.q_norm, HEAD * sizeof(float)),
                  .k_norm = gpu_send(own.k_norm, HEAD * sizeof(float)),
                  .cosines = cosines,
                  .sines = cosines + CAPACITY * HEAD / 2,
                  .positions = there,
                  .sessions = there + 1,
                  .slots = there + 2,
                  .epsilon = EPSILON,
                  .keys = gpu_send_typed(ELEMENT_BFLOAT16, own.keys, cache_elements(&own)),
                  .values = gpu_send_typed(ELEMENT_BFLOAT16, own.values, cache_elements(&own))},
    };
    return own;
}

static inline void free_attention(struct attention *own)
{
    const struct heads_call *heads = &own->call.heads;
    const void *there[] = {own->call.qkv,  own->call.o,      heads->q_norm, heads->k_norm,
                           heads->cosines, heads->positions, heads->keys,   heads->values};
    float *here[] = {own->qkv, own->o, own->q_norm, own->k_norm, own->turns, own->keys, own->values};
    for (int i = 0; i < COUNT(there); i++)
        CUDA_CHECK(cudaFree((void *)(uintptr_t)there[i]));
    for (int i = 0; i < COUNT(here); i++)
        free(here[i]);
    free_stream(&own->stream);
}

#endif
