/* The insides of a stack's recurrent layers, shared by recurrence.c (running) and recurrence_open.c (making). */
#ifndef COLLECT_ENGINE_CPU_RECURRENCE_STATE_H
#define COLLECT_ENGINE_CPU_RECURRENCE_STATE_H

#include "collect/engine/cpu/recurrence.h"

/* C: the rank's channels, 2 key_heads * key_size + value_heads * value_size. */
struct recurrent_weights {
    float *convolution; /* [kernel_size, C] */
    float *rate;        /* [value_heads]: -exp(A_log) */
    float *step_bias;   /* [value_heads] */
    float *norm;        /* [value_size] */
};

/* What is kept of rows until they are committed. */
struct recurrent_rows {
    char *inputs;          /* [rows, C] in the type: what the convolution reads */
    float *decays, *betas; /* [rows, value_heads] */
};

/* What one thread needs for a key head and the value heads that share it. */
struct recurrent_scratch {
    float *factors; /* [2 * rows, key_size]: a segment's keys, then its queries */
    float *reads;   /* [2 * rows, value_size]: their products with the committed state */
    float *deltas;  /* [rows, value_size]: u */
    float *weights; /* [rows] */
};

struct recurrence {
    const struct model *model;
    enum product_type type;
    struct model_recurrence sizes; /* heads: this rank's */
    int rank, layer_count, sessions, group, channels;
    struct recurrent_weights *layers;
    float *states;                   /* [layer][session][value_head][key_size][value_size] */
    char *windows;                   /* [layer][session][kernel_size - 1][C] in the type, oldest first */
    struct recurrent_rows passing;   /* of a batch that advances its sessions */
    struct recurrent_rows *verified; /* [layer], of the last verified batch; NULL: none ever is */
    float *mixed;                    /* [rows, C]: q, k and v behind the convolution, q and k at their lengths */
    float *output;                   /* [rows, value_heads * value_size] */
    int segment_shapes[64], segment_shape_count;
    struct small_product **reads;      /* [segment_shape]: [2 * rows, value_size] = factors · state */
    struct recurrent_scratch *scratch; /* [thread] */
    int thread_count;
};

#endif
