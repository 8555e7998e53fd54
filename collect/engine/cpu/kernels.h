/* The CPU backend's own row operations: everything between two products. One row a call, single-threaded, vectorised
 * for the CPU at hand. All pointers are to float32 unless they say otherwise; no alignment is asked. */
#ifndef COLLECT_ENGINE_CPU_KERNELS_H
#define COLLECT_ENGINE_CPU_KERNELS_H

#include "collect/engine/backend.h"
#include "collect/engine/cpu/product.h"

#include <stdint.h>

/* out[count] = x / sqrt(mean(x²) + epsilon) · weight. out may be x. */
void kernel_rms_norm(const float *x, const float *weight, int count, float epsilon, float *out);

/* Rotates the pairs (x[i], x[i + size / 2]) by the angles whose cosines and sines are given, [size / 2] each. */
void kernel_rotate(float *x, const float *cosines, const float *sines, int size);

/* out[count] = x · factor in the type. */
void kernel_store(enum product_type type, const float *x, float factor, int count, void *out);

/* The inverse of kernel_store with factor 1. */
void kernel_load(enum product_type type, const void *x, int count, float *out);

/* out[count] = silu(gate) · up; out may be gate. */
void kernel_gated(const float *gate, const float *up, int count, float *out);

/* Softmax's numerators: x = exp(x - max x); answers their sum. -INFINITY counts as absent. */
float kernel_weigh(float *x, int count);

/* x[count] += bias[count]. */
void kernel_add(float *x, const float *bias, int count);

/* log Σ exp x. */
float kernel_log_sum_exp(const float *x, int count);

/* The largest (ties: lowest index) and its lead over the second. */
struct choice kernel_choose(const float *x, int count);

/* The `width` largest of x[count], best first, ties by index, into indices[width] and values[width]. width <= count. */
void kernel_top(const float *x, int count, int width, int *indices, float *values);

#endif
