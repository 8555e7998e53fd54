/* The CUDA backend's own kernels: everything between two products, as plain functions that queue their work on a
 * stream. All pointers are to the GPU's memory, row-major without gaps; float ones are float32, void ones of the mode's
 * type. */
#ifndef COLLECT_ENGINE_CUDA_KERNELS_H
#define COLLECT_ENGINE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "collect/engine/sample.h"

enum element { ELEMENT_FLOAT32, ELEMENT_BFLOAT16 };

static inline size_t element_size(enum element type)
{
    return type == ELEMENT_BFLOAT16 ? 2 : 4;
}

/* x[rows, width] = the rows `tokens` of table[., width]. */
void kernels_embed(enum element type, const void *table, const int *tokens, int rows, int width, float *x,
                   cudaStream_t stream);

/* out[rows, width] = x / sqrt(mean(x²) + epsilon) · weight, in the type. */
void kernels_rms_norm(enum element type, const float *x, const float *weight, int rows, int width, float epsilon,
                      void *out, cudaStream_t stream);

/* out[rows, inner] = silu(gate) · up, of fused[rows, gate | up], in the type. */
void kernels_gate(enum element type, const float *fused, int rows, int inner, void *out, cudaStream_t stream);

/* Column block `index` of out[rows, blocks, width] = x[rows, width] in the type. */
void kernels_store_block(enum element type, const float *x, int rows, int width, int index, int blocks, void *out,
                         cudaStream_t stream);

/* out[count, row_bytes] = the rows `sources` of in. row_bytes: a multiple of 4. */
void kernels_gather(const void *in, const int *sources, int count, size_t row_bytes, void *out, cudaStream_t stream);

/* One layer's heads of fused[rows, stride], whose columns are query, key and value heads: queries are normed, rotated
 * and scaled by 1 / sqrt(head_size), keys normed, rotated and stored with the values in the layer's caches
 * [session, kv_head, capacity, head_size]. heads 0: keys and values alone. */
struct heads_call {
    enum element type;
    int rows, heads, kv_heads, head_size, capacity;
    size_t stride;
    const float *fused;
    const float *q_norm, *k_norm;            /* [head_size] */
    const float *cosines, *sines;            /* [capacity, head_size / 2] */
    const int *positions, *sessions, *slots; /* [rows]; slot: where in the session's cache */
    float epsilon;
    void *queries; /* [rows, heads, head_size] */
    void *keys, *values;
};
void kernels_store_heads(const struct heads_call *call, cudaStream_t stream);

/* Rows [first, first + count) of a batch, stored from cache position `base` on. */
struct attention_segment {
    int session, first, count, base;
};

/* Up to ATTENTION_QUERIES of the segment's queries that share a KV head: query q is of row q / group, q % group. */
#define ATTENTION_QUERIES 16
struct attention_tile {
    int segment, query;
};

#define ATTENTION_HEAD_SIZE_MAXIMUM 256
#define ATTENTION_BLOCKS 256 /* the cache is split until there are so many blocks of threads, */
#define ATTENTION_SPLITS 32  /* into no more than so many */

/* Each row sees its session's committed positions and those new rows of its segment that its bit set names, as far as
 * they lie within the window. */
struct attention_call {
    enum element type;
    int rows, heads, kv_heads, head_size, capacity;
    int window;                /* 0: none */
    int causal_window;         /* within a window no later position is seen; otherwise as far ahead as back */
    const void *queries;       /* [rows, heads, head_size], scaled */
    const void *keys, *values; /* the layer's: [session, kv_head, capacity, head_size] */
    const struct attention_segment *segments;
    const struct attention_tile *tiles;
    int tile_count, words;
    const int *positions;    /* [rows] */
    const uint64_t *visible; /* [rows, words] */
    float *partial;          /* [kernels_attention_partials()] */
    void *attended;          /* [rows, heads, head_size] */
};
void kernels_attend(const struct attention_call *call, cudaStream_t stream);

/* Floats of scratch that batches of up to `rows` rows need. */
size_t kernels_attention_partials(int rows, int heads, int head_size);

/* Moves the uncommitted rows nodes[0] < nodes[1] < ... of sessions behind their committed lengths, in all layers of
 * caches [layer, session, kv_head, capacity, row_bytes]. */
struct compact_path {
    int session, base, first, length; /* nodes[first, first + length) */
};
void kernels_compact(void *keys, void *values, int layers, int sessions, int kv_heads, int capacity, size_t row_bytes,
                     const struct compact_path *paths, int path_count, const int *nodes, cudaStream_t stream);

/* How a row's token is chosen: temperature 0: the argmax. Above: with the noise of stream and position, among all. */
struct choose_row {
    float temperature;
    int position; /* of the token to be chosen */
    uint64_t stream;
};

/* The choice of sample.h for each row of logits[rows, stride], among the first `count` tokens. partial:
 * [kernels_choose_partials(rows)] bytes. */
void kernels_choose(const float *logits, int rows, int stride, int count, const struct choose_row *how, void *partial,
                    struct choice *chosen, cudaStream_t stream);
size_t kernels_choose_partials(int rows);

/* The `width` largest of the first `count` of each row of logits[rows, stride], best first, ties to the lowest id, and
 * their log-probabilities over the whole row; tokens and log_probabilities: [rows, width]. */
#define TOP_WIDTH_MAXIMUM 1024
void kernels_top(const float *logits, int rows, int stride, int count, int width, int *tokens, float *log_probabilities,
                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
