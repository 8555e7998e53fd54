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

/* The tensors one below the other, in the mode's type; cudaFree() it. */
void *loader_matrix(struct loader *loader, const struct tensor *const *tensors, int count);

/* In float32, whatever the mode; cudaFree() it. */
float *loader_vector(struct loader *loader, const struct tensor *tensor);

/* What has been loaded so far. */
size_t loader_bytes(const struct loader *loader);

#endif
