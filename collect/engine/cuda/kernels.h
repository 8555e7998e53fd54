/* The CUDA backend's own kernels: everything between two products, as plain functions that queue their work on a
 * stream. All pointers are to the GPU's memory, row-major without gaps; float ones are float32, void ones of the mode's
 * type. */
#ifndef COLLECT_ENGINE_CUDA_KERNELS_H
#define COLLECT_ENGINE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
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

/* GPUs that reach each other's memory meet inside a kernel, by words that each writes into the others' mailboxes
 * (meeting.cuh). All run the same kernels in the same order. */
#define RANKS_MAXIMUM 8
#define MEETING_SHARED_BYTES (256 << 10) /* from here on, among more than two, each adds its share of the rows */
struct meeting {
    int gpus, index;                    /* 1 or 0: nobody to meet */
    unsigned *mailboxes[RANKS_MAXIMUM]; /* of each GPU: [2, gpus, size], all bits set before the first meeting */
    size_t size;                        /* words that a GPU sends another in one meeting: at least a row, and four of
                                         * each row of a choice */
    size_t shared_bytes;                /* of all rows; see above */
    unsigned *side, *arrived;           /* this GPU's, zeroed: the mailboxes' side that is next; blocks that know it */
    unsigned *lost;                     /* the host's, pinned: whether a GPU waited for another longer than: */
    unsigned long long limit_ns;
};

/* What becomes of the residual stream between two products: x += the ranks' sums, in their order; a copy of x in the
 * type becomes column block feature_index of features[rows, feature_count, width]; x / sqrt(mean(x²) + epsilon) ·
 * weight in the type goes to out. Where there are sums, the kernel queued just before does not write x. Before the
 * first product x begins instead, with the embeddings of tokens. */
struct add_norm_call {
    enum element type;
    int rows, width;
    struct meeting meeting;           /* of a GPU each for the ranks */
    const float *sums[RANKS_MAXIMUM]; /* [rows, width] each; with a meeting those of this GPU's rank, in its place */
    int sum_count;                    /* 0: nothing is added and nobody met */
    const void *table;                /* [., width], in the type: x = its rows `tokens`; NULL: x is there */
    const int *tokens;                /* [rows] */
    float *x;                         /* [rows, width]; NULL: nothing, and it is not kept */
    void *features;                   /* NULL: none are kept */
    int feature_index, feature_count;
    const float *weight; /* [width]; NULL: no norm */
    float epsilon;
    float *squares; /* NULL; or [rows]: what is left undone, x · weight goes to out and Σ x² here */
    void *out;      /* [rows, width] */
};
void kernels_add_norm(const struct add_norm_call *call, cudaStream_t stream);

/* out[rows, inner] = silu(gate) · up, of fused[rows, gate | up], in the type. */
void kernels_gate(enum element type, const float *fused, int rows, int inner, void *out, cudaStream_t stream);

/* out[count, row_bytes] = the rows `sources` of in. row_bytes: a multiple of 4. The kernel queued just before writes
 * neither in nor sources. */
void kernels_gather(const void *in, const int *sources, int count, size_t row_bytes, void *out, cudaStream_t stream);

/* The heads of fused[rows, stride], whose columns are query, key and value heads: queries are normed, rotated and
 * scaled by 1 / sqrt(head_size), keys normed, rotated and stored with the values in the cache [session, kv_head,
 * capacity, head_size] at the row's slot; rows whose slot is below 0 are left out. heads 0: keys and values alone. Of
 * several layers, each has its own columns of fused, behind one another, its k_norm and its cache. */
struct heads_call {
    enum element type;
    int rows, layers, heads, kv_heads, head_size, capacity;
    int query_size;              /* columns of a query head, with its gate where it has one */
    int rotary_size;             /* leading elements of a head that are rotated */
    size_t stride, cache_stride; /* of a row of fused; of a layer's cache, in elements */
    const float *fused;
    const float *q_norm, *k_norm;            /* [head_size]; [layers, head_size] */
    const float *cosines, *sines;            /* [capacity, rotary_size / 2] */
    const int *positions, *sessions, *slots; /* [rows] */
    float epsilon;
    void *queries; /* [rows, heads, head_size] */
    void *keys, *values;
};
void kernels_store_heads(const struct heads_call *call, cudaStream_t stream);

/* Where a query head's columns of fused are the query's and then its gate's: attended[rows, heads, head_size], in the
 * type, is multiplied by the gates' sigmoids. */
void kernels_gate_heads(const struct heads_call *call, void *attended, cudaStream_t stream);

/* One row times weights in bfloat16: y[outputs] = W[outputs, inputs] · a, accumulated in float32, where `a` is `input`,
 * or x / sqrt(mean(x²) + epsilon) · norm rounded to bfloat16. `gated`: [inner] = silu(gate) · up of W[gate | up,
 * inputs] in bfloat16 instead of y, inner = outputs / 2. inputs: a multiple of 8 up to MATVEC_INPUTS_MAXIMUM. */
#define MATVEC_INPUTS_MAXIMUM 28672
struct matvec_call {
    int inputs, outputs;
    const void *weights;
    const float *x, *norm; /* [inputs]; NULL: `input` */
    float epsilon;
    const void *input; /* [inputs] */
    float *y;          /* [outputs] */
    bool add;          /* y += instead; the kernel queued just before does not write y */
    void *gated;       /* NULL: y */
};
void kernels_matvec(const struct matvec_call *call, cudaStream_t stream);

/* What a segment's rows see of it: what their bit sets name; or, standing at positions base, base + 1, ..., themselves
 * and the rows before them, or all rows, without bit sets. */
enum attention_sight { ATTENTION_TREE, ATTENTION_RUN, ATTENTION_WHOLE };

/* Rows [first, first + count) of a batch, stored from cache position `base` on. */
struct attention_segment {
    int session, first, count, base;
    enum attention_sight sight;
};

/* Up to kernels_attention_queries() of the segment's queries that share a KV head: query q is of row q / group,
 * q % group. Idle where the segment is -1, or has no such query. */
struct attention_tile {
    int segment, query;
};
int kernels_attention_queries(enum element type, int head_size);

#define ATTENTION_QUERIES_MINIMUM 16 /* of a tile, for any type and head size */

#define ATTENTION_HEAD_SIZE_MAXIMUM 256
#define ATTENTION_NEAR 4096 /* a reach up to which few queries have a kernel of their own */

/* Each row sees its session's committed positions and those new rows of its segment that the segment's sight gives it,
 * as far as they lie within the window. What a launch does depends on the call's numbers alone, and not on what its
 * pointers hold: it may be captured once for all cache lengths. The kernel queued just before it may write the queries
 * and the caches' new rows, and nothing else that is read here. */
struct attention_call {
    enum element type;
    int rows, heads, kv_heads, head_size, capacity;
    int longest;               /* rows that a segment has at most */
    int reach;                 /* positions and rows that a segment ends behind at most; 0: any up to the capacity */
    int window;                /* 0: none */
    int causal_window;         /* within a window no later position is seen; otherwise as far ahead as back */
    const void *queries;       /* [rows, heads, head_size], scaled */
    const void *keys, *values; /* the layer's: [session, kv_head, capacity, head_size] */
    const struct attention_segment *segments;
    const struct attention_tile *tiles; /* of a segment that has all rows the first one first */
    int tile_count, words;
    const int *positions;    /* [rows]; of trees in windows */
    const uint64_t *visible; /* [rows, words]; of trees */
    float *partial;          /* [kernels_attention_partials()], zeroed before its first use, and for attention alone */
    void *attended;          /* [rows, heads, head_size]; rows without a tile are left as they are */
};
void kernels_attend(const struct attention_call *call, cudaStream_t stream);

/* Attention of segments of one row each, from fused on: what kernels_store_heads() and kernels_attend() do, in one. */
bool kernels_attend_rows_takes(enum element type, int rows, int heads, int kv_heads, int head_size);
void kernels_attend_rows(const struct heads_call *heads, const struct attention_call *call, cudaStream_t stream);

/* Floats of scratch that batches of up to `rows` rows need. */
size_t kernels_attention_partials(int rows, int heads, int head_size);

/* Moves the uncommitted rows nodes[0] < nodes[1] < ... of sessions behind their committed lengths, in all layers of
 * caches [layer, session, kv_head, capacity, row_bytes]. */
struct compact_path {
    int session, base, first, length; /* nodes[first, first + length) */
};
void kernels_compact(void *keys, void *values, int layers, int sessions, int kv_heads, int capacity, size_t row_bytes,
                     const struct compact_path *paths, int path_count, const int *nodes, cudaStream_t stream);

/* A single row through half a layer by one kernel, where a model is so small that all multiprocessors together hold
 * both halves' weights. The residual stream comes as x and what each cluster of the kernel before added to it; so it is
 * left: `sum`, that stream, and `out`, what this half adds. */
#define HALF_PARTS 8
struct half_stream {
    int width, part_count;
    const float *x;     /* [width] */
    const float *parts; /* [part_count, width]; added to x in their order */
    float *sum;         /* [width]: not x */
    void *feature;      /* [width]: `sum` in bfloat16; or NULL */
    const float *norm;  /* [width] */
    float epsilon;
    float *out; /* [clusters, width] */
};
struct attention_half_call {
    struct half_stream stream; /* out: a cluster for each KV head */
    const void *qkv, *o;       /* [query, key and value heads, width]; [width, query heads] */
    struct heads_call heads;   /* of one row, which sees all that is before it; positions, sessions and slots are read
                                * before the halves queued before have ended, whatever their number */
};
struct mlp_half_call {
    struct half_stream stream;
    int inner, clusters;
    const void *gate_up, *down; /* [gate | up, width], [width, inner] */
};
/* The clusters of the MLP's half; 0: the halves are not for such layers, or not for the current GPU. */
int kernels_halves_take(enum element type, int width, int heads, int kv_heads, int head_size, int inner);
void kernels_attention_half(const struct attention_half_call *call, cudaStream_t stream);
void kernels_mlp_half(const struct mlp_half_call *call, cudaStream_t stream);
/* sum = x + parts, and the feature; here sum may be x. */
void kernels_end_halves(const struct half_stream *stream, cudaStream_t queue);

/* How a row's token is chosen: temperature 0: the argmax. Above: with the noise of stream and position, among all. */
struct choose_row {
    float temperature;
    int position; /* of the token to be chosen */
    uint64_t stream;
};

/* The best of a set of tokens by logit, or by the noisy score: logit / temperature + noise; and the runner-up's score.
 */
struct leader {
    float best, second;
    int token;
};

/* By sample.h's rule the leader of each row of logits[rows, stride], whose columns are the tokens from first_token on,
 * among the first `count`; token INT32_MAX where all are NaN. partial: [kernels_choose_partials(rows)] bytes, zeroed
 * before its first use, and for choices alone. */
void kernels_choose(const float *logits, int rows, int stride, int count, int first_token, const struct choose_row *how,
                    void *partial, struct leader *leaders, cudaStream_t stream);
size_t kernels_choose_partials(int rows);

/* The choice of each row among the leaders of all slices of the vocabulary, once the GPUs have met. Where rows decode
 * on, each becomes the next step's: token, position, slot, segment and what is drawn; and what was chosen is left in
 * ring[*steps % ring_steps][ring_rows] as well. The kernel queued just before does not write `how`. */
struct decide_call {
    struct meeting meeting;
    int rows, slices;
    const struct leader *leaders[RANKS_MAXIMUM]; /* [rows]; with a meeting those of this GPU's rank, in its place */
    const struct choose_row *how;                /* [rows] */
    struct choice *chosen;                       /* [rows], or NULL */
    bool decode_on;
    int *tokens, *positions, *slots;    /* [rows] */
    struct attention_segment *segments; /* [rows] */
    struct choose_row *next;            /* [rows]: `how` again */
    unsigned *steps;
    struct choice *ring; /* NULL: none is kept */
    int ring_steps, ring_rows;
};
void kernels_decide(const struct decide_call *call, cudaStream_t stream);

/* Few rows times a matrix in bfloat16 by Hopper's tensor cores. What becomes of the result, the first of these that is
 * there:
 *   gated    [rows, inner], inner = outputs / 2: SwiGLU as in struct matvec_call
 *   added    the residual stream: x += the result; x · norm, rounded, is left to be normed, and so are the sums of
 *            squares of each tile of outputs; a copy of x becomes a column block of features
 *   heads    as kernels_store_heads() makes them; a tile is a head, of 64, 128 or 192 elements
 *   y        [rows, outputs] in float32
 * Rows of x that were left so are normed here: the result is divided by sqrt(Σ squares / inputs + epsilon). */
#define SKINNY_ROWS_MAXIMUM 136
#define SKINNY_ENDS_ROWS 72 /* as many may end in `added` or `heads` */
#define SKINNY_DEPTH 64     /* inputs that are taken at a time: a share has at least so many */
#define SKINNY_SPLITS 8     /* shares of the inputs at most */
#define SKINNY_TILE 192     /* outputs of a tile at most, */
#define SKINNY_TILE_GATED                                                                                              \
    136 /* or gates, with as many ups; beyond 96 for SKINNY_ENDS_ROWS, one tile a multiprocessor */
struct skinny_added {
    float *x;          /* [rows, outputs]; NULL: not this */
    const float *norm; /* [outputs] */
    void *out;         /* [rows, outputs] */
    float *squares;    /* [rows, tiles] */
    void *features;    /* [rows, feature_count, outputs], or NULL */
    int feature_index, feature_count;
};
struct skinny_call {
    int rows, inputs, outputs, stride; /* stride: of x */
    int tile;                          /* outputs, or gates, that a block computes at a time: an even number */
    int splits;                        /* > 1: as far as all tiles' shares have a multiprocessor each */
    const void *x, *weights;           /* 16-byte aligned */
    const float *squares;              /* [rows, square_count], or NULL: x is normed */
    int square_count;
    float epsilon;
    float *y;
    void *gated;
    struct skinny_added added;
    struct heads_call heads; /* heads 0: not this */
};
bool kernels_skinny_takes(enum element type, int rows, int inputs, int outputs, int stride);
/* How many tiles whose inputs are in so many shares have a place on the current GPU at a time. */
int kernels_skinny_clusters(int splits);
void kernels_skinny(const struct skinny_call *call, cudaStream_t stream);

/* Copies from the host's pinned memory, or to it; both ends 16-byte aligned, bytes rounded up to 16. */
void kernels_copy(void *to, const void *from, size_t bytes, cudaStream_t stream);

/* The `width` largest of the first `count` columns of each row, best first, ties to the lowest id, with their logits;
 * beyond `count` token -1 and minus infinity. And what the first `summed` columns weigh at the row's temperature: sum
 * times exp(largest / T) is Σ exp(logit / T), but for TOP_SUM_ERROR of itself. The bound holds for up to 2^20 columns:
 * a thread adds 128 of them in float32 then, and the weighted mean of (largest - logit) / T, by which the roundings of
 * an exponent count, is below the logarithm of their number. */
#define TOP_WIDTH_MAXIMUM 1024
#define TOP_SUM_ERROR 2e-5
struct row_sum {
    float largest, sum;
};
struct top_call {
    int rows, stride, count, first_token, width;
    int summed;                   /* count at least */
    const float *logits;          /* [rows, stride], whose columns are the tokens from first_token on */
    const struct choose_row *how; /* [rows]: temperatures, 1 in the place of 0; NULL: 1 */
    void *partial;                /* [kernels_top_partials(rows, width)] bytes */
    int *tokens;                  /* [rows, width] */
    float *values;                /* [rows, width]: logits */
    struct row_sum *sums;         /* [rows] */
};
void kernels_top(const struct top_call *call, cudaStream_t stream);
size_t kernels_top_partials(int rows, int width);

#ifdef __cplusplus
}
#endif

#endif
