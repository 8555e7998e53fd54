/* The kernels of gated DeltaNet layers (arXiv 2412.06464), one rank's heads of one layer at a time, as plain functions
 * that queue their work on a stream. CONTRIBUTING.md has the equations.
 *
 * A fused row is what a layer's first product answers: all heads' q, k and v (its C channels), then z, b and a. The
 * convolution reads the channels in the mode's type; behind it all is float32 up to the gated norm's output. A session
 * has in each layer a state of every value head, and a window: the last kernel_size - 1 rows that were committed. */
#ifndef COLLECT_ENGINE_CUDA_KERNELS_RECURRENCE_H
#define COLLECT_ENGINE_CUDA_KERNELS_RECURRENCE_H

#include "collect/engine/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct recurrent_sizes {
    int key_heads, value_heads, key_size, value_size;
    int kernel_size; /* rows that the convolution sees, the current one included */
};

static inline int recurrent_values(const struct recurrent_sizes *sizes)
{
    return sizes->value_heads * sizes->value_size;
}

/* C */
static inline int recurrent_channels(const struct recurrent_sizes *sizes)
{
    return 2 * sizes->key_heads * sizes->key_size + recurrent_values(sizes);
}

/* Columns of a fused row. */
static inline int recurrent_in_width(const struct recurrent_sizes *sizes)
{
    return recurrent_channels(sizes) + recurrent_values(sizes) + 2 * sizes->value_heads;
}

static inline size_t recurrent_state_elements(const struct recurrent_sizes *sizes)
{
    return (size_t)recurrent_values(sizes) * (size_t)sizes->key_size;
}

#define RECURRENT_SIZE_MAXIMUM 256 /* of a key or value head */
#define RECURRENT_NEAR 32          /* ancestors that are listed for a row */

/* Whether the kernels have room for a head's state. */
bool kernels_recurrence_takes(const struct recurrent_sizes *sizes);

/* What the kernels of a layer share. */
struct recurrent_layer {
    enum element type;
    struct recurrent_sizes sizes;
    const float *convolution;       /* [C, kernel_size] */
    const float *rates, *step_bias; /* [value_heads]: -exp(A_log), dt_bias */
    const float *norm;              /* [value_size] */
    float epsilon;
    float *states;         /* [session, value_heads, key_size, value_size] */
    void *windows;         /* [session, kernel_size - 1, C], the oldest row first */
    void *inputs;          /* [rows, C]: what the convolution reads of rows, kept until they are committed */
    float *decays, *betas; /* [rows, value_heads]: the same */
};

/* Rows of a batch in a layer. */
struct recurrent_call {
    struct recurrent_layer layer;
    int rows, segment_count, longest;
    bool advances;                            /* the rows are committed as they run; states move, windows do not yet */
    const struct attention_segment *segments; /* [segment_count]; base and sight are not read */
    const int16_t *near; /* [rows, RECURRENT_NEAR]: a row's nearest ancestors by their places in its segment, the parent
                            first, -1 behind the root; NULL: each row is behind the one before */
    const float *fused;  /* [rows, recurrent_in_width()] */
    int first_kept;      /* rows from here on keep their inputs, at place 0 and on */
    float *mixed;        /* [rows, C]: q and k at their lengths, v */
    float *deltas;       /* [rows, value_heads * value_size]: of segments of several tiles; NULL: all advance */
    void *out;           /* [rows, value_heads * value_size] */
};

/* Segments of one row each that advance: from fused to out, in one. */
void kernels_recurrent_step(const struct recurrent_call *call, cudaStream_t stream);

/* Segments of any length, in two: what is kept of rows and the convolution, into mixed; the state's answers to keys and
 * queries, the rows' to each other, and the gated norm, into out. */
void kernels_recurrent_mix(const struct recurrent_call *call, cudaStream_t stream);
void kernels_recurrent_answer(const struct recurrent_call *call, cudaStream_t stream);

/* Where the rows of a call, or of the paths of a commit, are kept in several layers: `layer` is the first of them. */
struct recurrent_kept {
    struct recurrent_layer layer;
    int layers, sessions, rows;               /* rows: that are kept of a layer */
    int count;                                /* of the segments, or else of the paths */
    const struct attention_segment *segments; /* [count]; NULL: paths */
    const struct compact_path *paths;         /* [count] */
    const int *path_rows;                     /* the rows of path p: path_rows[p.first] and on */
    bool paths_are_new;                       /* the kernel queued just before may write them */
    int first_kept;                           /* of segments, as in the call */
};

/* Advances the states along the paths by the rule's own steps, the same code that kernels_recurrent_step() runs. */
void kernels_recurrent_commit(const struct recurrent_kept *kept, cudaStream_t stream);

/* Moves the windows behind the last rows of the segments, or of the paths. */
void kernels_recurrent_move_windows(const struct recurrent_kept *kept, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
