/* A stack's insides, shared by stack.c (running) and stack_open.c (making). */
#ifndef COLLECT_ENGINE_CPU_STACK_STATE_H
#define COLLECT_ENGINE_CPU_STACK_STATE_H

#include "collect/engine/cpu/recurrence.h"
#include "collect/engine/cpu/stack.h"

#define STACK_COLUMN_STEP 64 /* attention's products are readied for lengths in these steps */
#define STACK_VECTOR 16      /* and weighed in these: no row ends in single values */

/* The products around attention, or around a recurrence. */
struct layer {
    int place;                               /* among the layers of its kind */
    float *input_norm, *post_attention_norm; /* [hidden_size] */
    float *q_norm, *k_norm;                  /* [head_size]; attention's */
    struct linear *in;                       /* [in_width or recurrence_in_width(), hidden_size] */
    struct linear *out;                      /* [hidden_size, heads * head_size or recurrence_out_width()] */
    struct linear *gate_up;                  /* [2 * intermediate_size, hidden_size] */
    struct linear *down;                     /* [hidden_size, intermediate_size] */
};

/* Scores and weighted values of one number of rows and one number of columns. */
struct attention_products {
    struct small_product *scores;   /* [rows, columns] = q[rows, head_size] · k[columns, head_size]ᵀ */
    struct small_product *weighted; /* [rows, head_size] = p[rows, columns] · v[columns, head_size] */
};

/* What one thread needs to attend for one KV head: rows are a segment's rows times the query heads that share the KV
 * head. */
struct attention_scratch {
    char *queries; /* [rows, head_size] in the products' type */
    float *scores; /* [rows, columns] */
    void *weights; /* the same in the products' type: in float32 the scores themselves */
    float *sums;   /* [rows]: what the weights must be divided by */
    float *output; /* [rows, head_size] */
};

struct stack {
    const struct model *model;
    enum product_type type;
    struct team *team;
    int rank, heads, kv_heads, inner; /* this rank's query heads, KV heads, MLP columns */
    int kv_slice;                     /* its slice of the KV heads; ranks share one where there are fewer heads */
    int query_size, in_width;         /* columns of a fused row: a query with its gate where it has one; all of them */
    int sessions, capacity, group;    /* group: query heads a KV head */
    int maximum_rows;
    int segment_shapes[64], segment_shape_count;
    int column_steps;
    struct layer *layers;
    struct recurrence *recurrence;        /* of the recurrent layers, or NULL */
    float *norm;                          /* [hidden_size] */
    struct linear *context;               /* a drafter's keys and values of all layers from features, or NULL */
    float *cosines, *sines;               /* [capacity, rotary_size / 2] */
    char *keys, *values;                  /* [attention layer][session][kv_head][capacity][head_size] in the type */
    struct attention_products *attention; /* [segment_shape][column step] */
    struct attention_scratch *scratch;    /* [thread] */
    int thread_count;
    float *partial;      /* [rows, hidden_size]: this rank's share of a sum over ranks */
    float *fused;        /* in, gate_up or context products: [rows, widest] */
    char *product_input; /* [rows, widest] in the type */
    float *bias;         /* [session][segment rows, segment rows + 2 * STACK_VECTOR] */
    char *attended;      /* [rows, widest input of an `out`] in the type */
};

#endif
