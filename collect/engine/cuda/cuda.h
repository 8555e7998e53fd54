/* The CUDA backend's own state, shared by cuda.c (operations), open.c (memory and loading), batch.c (what a call is
 * about) and layers.c (a stack of layers over a batch). One GPU, one rank, one stream. Every operation ends by waiting
 * for the stream. Pointers are to the GPU's memory unless they say `host`. */
#ifndef COLLECT_ENGINE_CUDA_CUDA_H
#define COLLECT_ENGINE_CUDA_CUDA_H

#include "collect/engine/backend.h"
#include "collect/engine/cuda/device.h"
#include "collect/engine/cuda/kernels.h"
#include "collect/engine/cuda/product.h"

#define CUDA_PROMPT_CHUNK 512 /* rows of a prompt that run together */

struct layer_weights {
    float *input_norm, *post_attention_norm; /* [hidden_size] */
    float *q_norm, *k_norm;                  /* [head_size] */
    void *qkv;                               /* [(heads + 2 kv_heads) * head_size, hidden_size] */
    void *o;                                 /* [hidden_size, heads * head_size] */
    void *gate_up;                           /* [2 * intermediate_size, hidden_size] */
    void *down;                              /* [hidden_size, intermediate_size] */
};

/* A stack of decoder layers with its caches: the target's or the drafter's. */
struct layers {
    const struct model *model;
    struct layer_weights *weights; /* host [layer_count] */
    float *norm;                   /* [hidden_size] */
    void *context;                 /* a drafter's key and value rows of all layers, layer by layer, or NULL */
    struct product *qkv, *o, *gate_up, *down, *project; /* project: with `context` */
    float *cosines, *sines;                             /* [capacity, head_size / 2] */
    void *keys, *values;                                /* [layer, session, kv_head, capacity, head_size] */
};

/* Small things of a call, gathered in pinned memory and sent by one copy; each keeps its place in both memories. */
struct staging {
    char *host, *device;
    size_t used, size;
};

/* The rows of a call. */
struct batch {
    int rows, segment_count, tile_count, words;
    int *tokens, *positions, *sessions, *slots; /* [rows] */
    struct attention_segment *segments;         /* [segment_count] */
    struct attention_tile *tiles;               /* [tile_count] */
    uint64_t *visible;                          /* [rows, words] */
    struct choose_row *how;                     /* [rows] */
};

struct cuda {
    struct backend base;
    struct backend_options options;
    enum element type;
    cudaStream_t stream;
    struct product_library *library;
    struct product *head_product, *fuse_product;

    struct layers target, drafter;
    void *embedding, *head; /* [vocabulary_size, hidden_size]; the same where they are tied */
    void *fuse;             /* the drafter's fc: [hidden_size, feature_count * hidden_size] */
    float *hidden_norm;     /* the drafter's: [hidden_size] */
    size_t weight_bytes, cache_bytes, scratch_bytes;

    /* Sessions, host [session]: committed positions; where the session's rows of the last batch begin. */
    int *lengths, *first_rows;
    struct sampling *sampling;

    /* The call that runs. */
    int most_rows;
    struct staging staging;
    struct batch host, batch;       /* the same on both sides */
    int *block_tokens;              /* host [sessions * block_size] */
    struct segment *block_segments; /* host [sessions] */

    /* What comes out, and what is needed on the way; rows: most_rows, head_rows and these rounded up to a product's. */
    int head_rows;                 /* rows whose logits exist at a time */
    float *x;                      /* [rows, hidden_size]: the residual stream */
    void *normed;                  /* [rows, hidden_size]: what the head reads */
    void *input;                   /* [rows, hidden_size or intermediate_size]: what a product reads */
    float *fused;                  /* [rows, widest]: what a product answers */
    void *queries;                 /* [rows, heads * head_size] */
    void *attended;                /* the same */
    float *partial;                /* attention's parts */
    float *logits;                 /* [head_rows, vocabulary_size] */
    void *features;                /* [rows, feature_count * hidden_size] */
    void *kept_features;           /* the same for paths */
    void *context;                 /* [rows, hidden_size]: the fused features */
    void *choose_partial;          /* of head_rows rows */
    struct choice *chosen;         /* [head_rows] */
    int *top_tokens;               /* [head_rows, draft_width] */
    float *top_values;             /* the same */
    struct choice *choices;        /* host, pinned [rows] */
    int *draft_tokens;             /* host, pinned [sessions * block_size, draft_width] */
    float *draft_values;           /* the same */
    float *row_logits;             /* host, pinned [vocabulary_size] */
    struct sample_scratch scratch; /* host */
};

struct backend *cuda_open(const struct backend_options *options, struct error *error);
void cuda_close(struct backend *backend);
json_t *cuda_describe(const struct backend *backend);
json_t *cuda_describe_device(enum engine_dtype dtype);

/* rates.c */
void cuda_measure_rates(int ranks, enum engine_dtype dtype, struct backend_rates *rates);
int cuda_list_gpus(int ranks, char (*ids)[BACKEND_GPU_ID_SIZE]);

/* --- batch.c
 * ---------------------------------------------------------------------------------------------------------------------
 */

void staging_clear(struct staging *staging);
void *staging_take(struct staging *staging, size_t count, size_t size);

/* Where the GPU finds what was taken. */
void *staging_device(const struct staging *staging, const void *host);
void staging_send(const struct staging *staging, cudaStream_t stream);

/* The most bytes that a batch of `rows` rows in `segments` segments of at most `longest` takes. */
size_t batch_bytes(int rows, int segments, int longest, int group);

/* Makes the segments this call's batch, for a model's heads, and sends it. whole: every row of a segment sees all of
 * the segment's; otherwise trees or causal runs by their parents. tokens NULL: zeros. */
void batch_load(struct cuda *cuda, const struct model *model, const struct segment *segments, int count, bool whole);

/* --- layers.c
 * --------------------------------------------------------------------------------------------------------------------
 */

/* Embeds the batch's tokens, runs all layers, and norms into `normed`; keeps the features where there is a drafter and
 * the layers are the target's. */
void layers_run(struct cuda *cuda, const struct layers *layers);

/* Writes the drafter's keys and values of every layer for features[rows, feature_count * hidden_size]; positions (where
 * they stand in the cache, too) and sessions: [rows]. */
void layers_add_context(struct cuda *cuda, const void *features, int rows, const int *positions, const int *sessions);

/* The products of layers_run() and layers_add_context() alone. */
void layers_run_products(struct cuda *cuda, const struct layers *layers);
void layers_run_context_products(struct cuda *cuda, int rows);

#endif
