/* Matrix products: y[rows, outputs] = x[rows, inputs] · W[outputs, inputs]ᵀ, accumulated and answered in float32, never
 * in TF32. Which algorithm of cuBLASLt's, or of the own kernels for few rows, a product uses for a number of rows is
 * chosen by timing. */
#ifndef COLLECT_ENGINE_CUDA_PRODUCT_H
#define COLLECT_ENGINE_CUDA_PRODUCT_H

#include "collect/engine/cuda/kernels.h"

#include <jansson.h>

#define PRODUCT_ROWS_STEP 16 /* rows of whatever number are rounded up to no less than a multiple of this */
#define PRODUCT_WORKSPACE ((size_t)32 << 20) /* bytes of the GPU that product_library_open() takes */

/* What all products share: a type of x and W, a stream, and the algorithms chosen so far: a JSON object from a
 * product's name to its algorithm, borrowed; choices that are in it are used, others are added. */
struct product_library;
struct product_library *product_library_open(enum element type, cudaStream_t stream, json_t *algorithms);
void product_library_close(struct product_library *library);

/* W is [outputs, inputs]; rows of x are `stride` elements apart. */
struct product;
struct product *product_create(const struct product_library *library, int inputs, int outputs, int stride);

/* The first half of the outputs are gates: what is answered is silu(gate) · up in the type, [rows, outputs / 2]. */
struct product *product_create_gated(const struct product_library *library, int inputs, int outputs);

/* The outputs are heads, one behind the other. */
struct product *product_create_heads(const struct product_library *library, int inputs, int outputs, int head_size);
void product_destroy(struct product *product);

/* Where products are timed: x and y have room for the largest rows, the weights are like those that follow and rotate,
 * since in a step each product finds its own in the GPU's memory, not in its cache. */
struct product_trial {
    const void *x;
    float *y;
    void *gated;                /* of a gated product */
    const void *const *weights; /* [count], 256-byte aligned as y is */
    int count;
};

/* Readies the product for exactly `rows` rows. */
void product_ready(struct product *product, int rows, const struct product_trial *trial);

/* Computes the least rows that were readied and hold `rows`; x and y have room for them. Of a gated product y is
 * scratch. */
void product_apply(const struct product *product, int rows, const void *x, const void *weights, float *y, void *gated);

/* Up to so many rows are left to the own kernels, where they take the product. */
#define PRODUCT_OWN_ROWS SKINNY_ENDS_ROWS
bool product_is_own(const struct product *product, int rows);

/* Of such rows: what becomes of them as the fields of `ends` say, from `squares` on; heads where product_has_heads().
 */
void product_apply_ends(const struct product *product, int rows, const void *x, const void *weights,
                        const struct skinny_call *ends);
bool product_has_heads(const struct product *product);

/* Tiles of outputs that such rows are computed in: how many sums of squares a row has. */
int product_tiles(const struct product *product, int rows);

#endif
