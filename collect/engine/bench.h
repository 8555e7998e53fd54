/* Times what the engine does, beside what it must do at least: an arm's rounds, their stages and matrix products, and a
 * prompt. Needs models, no tokenizer and no prompts. */
#ifndef COLLECT_ENGINE_BENCH_H
#define COLLECT_ENGINE_BENCH_H

#include "collect/engine/backend.h"
#include "collect/engine/decode.h"

struct bench {
    const struct backend_class *class;
    const struct model *target, *drafter; /* drafter NULL: for `auto` alone */
    enum engine_dtype dtype;
    int ranks, context;
    int rounds;                        /* that are timed, after as many to warm up, twice */
    const struct forced_trees *forced; /* NULL: as model and drafter have it */
    const char *device;                /* see struct backend_options */
    json_t *algorithms;                /* the same */
};

#define BENCH_PARTS_MAXIMUM 16

/* Medians over the rounds; absent stages are 0. */
struct bench_time {
    int64_t ns;
    int64_t products_ns; /* the matrix products of the same step alone, run after the rounds */
    int64_t read_bytes;  /* at least: see cost.h */
};

struct bench_arm {
    int rows;      /* that a round verifies */
    double tokens; /* that a round keeps: the mean */
    struct bench_time stages[STAGE_COUNT], round;
    int64_t host_ns; /* of a round, while the device waits: build, walk, and what is between the operations */
    struct bench_parts {
        int count; /* 0: the backend cannot tell */
        struct backend_part items[BENCH_PARTS_MAXIMUM];
    } parts[STAGE_COUNT]; /* of the same stages, from one call of its own */
};

/* Decodes behind a prompt of `context` tokens. -1 where the backend does not open. */
int bench_measure_arm(const struct bench *bench, const struct arm *arm, struct bench_arm *result, struct error *error);

/* The quickest of a few prompts of `tokens` tokens through the target, up to the first token. */
int bench_measure_prefill(const struct bench *bench, int tokens, int64_t *ns, struct error *error);

/* The tree of the largest budget in round `rounds` behind a prompt. */
int bench_record_tree(const struct bench *bench, const int *prompt, int count, int rounds, struct tree *tree,
                      struct error *error);

#endif
