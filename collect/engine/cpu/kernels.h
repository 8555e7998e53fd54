/* The CPU backend's own row operations: everything between two products. One row a call, single-threaded, vectorised
 * for the CPU at hand. All pointers are to float32 unless they say otherwise; no alignment is asked. */
#ifndef COLLECT_ENGINE_CPU_KERNELS_H
#define COLLECT_ENGINE_CPU_KERNELS_H

#include "collect/engine/backend.h"
#include "collect/engine/cpu/product.h"

#include <stdint.h>

/* out[count] = x / sqrt(mean(x²) + epsilon) · weight, in the type; out may be x in float32. */
void kernel_norm(enum product_type type, const float *x, const float *weight, int count, float epsilon, void *out);

/* What is done to one head of a query or key. */
struct kernel_head {
    const float *weight; /* [size]: its norm's */
    int size, rotary;    /* elements; the first so many are rotated */
    float epsilon, factor;
};

/* out[size] = x normed, its pairs (x[i], x[i + rotary / 2]) rotated by the angles whose cosines and sines are given
 * [rotary / 2], times the factor, in the type; out is not x. */
void kernel_rotate(enum product_type type, const struct kernel_head *head, const float *x, const float *cosines,
                   const float *sines, void *out);

/* out[count] = x · factor in the type. */
void kernel_store(enum product_type type, const float *x, float factor, int count, void *out);

/* The inverse of kernel_store with factor 1. */
void kernel_load(enum product_type type, const void *x, int count, float *out);

/* out[count] = silu(gate) · up, in the type; out may be gate or up in float32. */
void kernel_gated(enum product_type type, const float *gate, const float *up, int count, void *out);

/* x[count] *= sigmoid(gate). */
void kernel_damp(float *x, const float *gate, int count);

/* Columns of a row of scores: all may see those before `first`, a bias says which of [first, end) are seen, and none
 * is from there on. */
struct kernel_columns {
    int first, end, all;
};

/* Softmax's numerators: weights[all] = exp(score - the largest), in the type, 0 where a score is not seen; answers
 * their sum, not rounded to the type. bias[end - first], 0 or -INFINITY, is added to scores[all]; a score may be
 * -INFINITY itself, as long as one is not. weights may be scores in float32. */
float kernel_weigh(enum product_type type, float *scores, const float *bias, struct kernel_columns columns,
                   void *weights);

/* x[count] += bias[count]. */
void kernel_add(float *x, const float *bias, int count);

/* log Σ exp x. */
float kernel_log_sum_exp(const float *x, int count);

/* The largest (ties: lowest index) and its lead over the second. NaN is never the largest; of nothing but NaN it is the
 * first. */
struct choice kernel_choose(const float *x, int count);

/* The `width` largest of x[count], best first, ties by index, into indices[width] and values[width]. width <= count. */
void kernel_top(const float *x, int count, int width, int *indices, float *values);

/* --- of recurrent layers; a state is [keys, values]
 * ----------------------------------------------------------------------------------------------------------------- */

/* out[count] = silu(Σ over t of weights[t] · rows[t]), the sum in the order of t; rows[kernel_size] point at rows in
 * the type, weights: [kernel_size, count]. */
void kernel_convolve(enum product_type type, const void *const *rows, const float *weights, int kernel_size, int count,
                     float *out);

/* x[count] *= factor / sqrt(Σ x² + epsilon). */
void kernel_scale_to_length(float *x, int count, float epsilon, float factor);

float kernel_dot(const float *x, const float *y, int count);

/* sum[count] += factor · x. */
void kernel_add_scaled(float *sum, float factor, const float *x, int count);

/* out[values] = Sᵀ key. */
void kernel_read_state(const float *state, const float *key, int keys, int values, float *out);

/* One step of the gated delta rule: S ← decay S, δ = beta (value - Sᵀ key), S ← S + key δᵀ. delta: room for [values].
 */
void kernel_step_state(float *state, const float *key, const float *value, float decay, float beta, int keys,
                       int values, float *delta);

/* S ← decay S + Σ over rows of factors[row] key deltaᵀ; key: [rows, keys], delta: [rows, values]. */
void kernel_fold_state(float *state, float decay, const float *factors, const float *key, const float *delta, int rows,
                       int keys, int values);

#endif
