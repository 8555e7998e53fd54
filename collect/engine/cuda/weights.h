/* Weights from safetensors into the GPU's memory: in pieces, converted on the host into one pinned buffer while the
 * other is under way, so that no model is ever whole in host memory. Tensors that are made are made on the GPU. */
#ifndef COLLECT_ENGINE_CUDA_WEIGHTS_H
#define COLLECT_ENGINE_CUDA_WEIGHTS_H

#include "collect/engine/cuda/kernels.h"
#include "collect/engine/safetensors.h"

struct loader;

struct loader *loader_create(enum element type, cudaStream_t stream);

/* Waits for all that is under way. */
void loader_destroy(struct loader *loader);

/* Rows [first_row, first_row + rows) and columns [first_column, first_column + columns) of a matrix. */
struct weight_part {
    const struct tensor *tensor;
    int first_row, rows, first_column, columns;
};

/* A rank's slice of so many rows, or columns, of a matrix. */
struct weight_part weight_rows(const struct tensor *tensor, int index, int rows);
struct weight_part weight_columns(const struct tensor *tensor, int index, int columns);

/* The parts, of equal width, one below the other, in the mode's type; cudaFree() it. */
void *loader_matrix(struct loader *loader, const struct weight_part *parts, int count);

/* What the host has made of tensors that are small: float32, whatever the mode; cudaFree() it. */
float *loader_floats(struct loader *loader, const float *values, size_t count);

/* What has been loaded so far. */
size_t loader_bytes(const struct loader *loader);

#endif
