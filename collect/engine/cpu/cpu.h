/* The CPU backend's own state, shared by cpu.c (operations) and open.c (loading). Ranks hold slices of the weights and
 * caches and a copy of the residual stream; what a call is about (tokens, positions, what sees what) and what comes out
 * (logits, features) is theirs together. */
#ifndef COLLECT_ENGINE_CPU_CPU_H
#define COLLECT_ENGINE_CPU_CPU_H

#include "collect/engine/backend.h"
#include "collect/engine/cpu/stack.h"

#define CPU_PROMPT_CHUNK 64 /* rows of a prompt that run together */

struct cpu_rank {
    struct stack *target, *drafter;
    struct linear *head; /* [vocabulary_size / ranks, hidden_size] */
    struct linear *fuse; /* the drafter's fc: [hidden_size / ranks, feature_count * hidden_size] */
    float *x;            /* [rows, hidden_size]: the residual stream */
    char *normed;        /* [rows, hidden_size] in the type: what the head reads */
    float *slice;        /* this rank's columns of a product that is gathered; NULL with one rank */
};

struct cpu {
    struct backend base;
    struct backend_options options;
    enum product_type type;
    struct team *team;
    struct cpu_rank *ranks;
    float *hidden_norm; /* the drafter's: [hidden_size] */

    /* Sessions. */
    int *lengths; /* [session]: committed positions */
    struct sampling *sampling;

    /* The call that runs. */
    int most_rows, words;           /* of a batch; of a row's visible set */
    int rows;                       /* of this batch */
    int *tokens, *positions;        /* [rows] */
    int *row_sessions;              /* [rows] */
    uint64_t *visible;              /* [rows, words] */
    struct stack_segment *segments; /* [session] */
    int segment_count;

    /* What comes out. */
    int head_rows;                  /* rows whose logits exist at a time */
    float *logits;                  /* [head_rows, vocabulary_size] */
    char *features;                 /* [rows, feature_count * hidden_size] in the type */
    char *kept_features;            /* the same for one path */
    float *fused;                   /* [rows, hidden_size]: fc of features */
    char *context;                  /* [rows, hidden_size] in the type */
    struct sample_scratch *scratch; /* [thread] */
    int thread_count;
};

struct backend *cpu_open(const struct backend_options *options, struct error *error);
void cpu_close(struct backend *backend);
json_t *cpu_describe(const struct backend *backend);
json_t *cpu_describe_device(const char *device, enum engine_dtype dtype);

/* In which type this CPU multiplies. */
enum product_type cpu_product_type(enum engine_dtype dtype);

/* rates.c */
int cpu_measure_rates(const char *device, int ranks, enum engine_dtype dtype, struct backend_rates *rates,
                      struct error *error);

#endif
