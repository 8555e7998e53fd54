/* NCCL, found when it is first needed: a program that needs none starts without. For GPUs that cannot reach each
 * other's memory. */
#ifndef COLLECT_ENGINE_CUDA_NCCL_H
#define COLLECT_ENGINE_CUDA_NCCL_H

#include "collect/base/error.h"

#include <cuda_runtime_api.h>
#include <stddef.h>

struct nccl;

/* One communicator over `count` GPUs of this process. NULL where there is no NCCL, or none that starts. */
struct nccl *nccl_open(const int *devices, int count, struct error *error);
void nccl_close(struct nccl *nccl);

/* Queues on each GPU's stream: to[count, bytes] = all GPUs' from[bytes], in their order. Ends in die() where NCCL
 * refuses. May be captured. */
void nccl_gather(const struct nccl *nccl, const void *const *from, void *const *to, size_t bytes,
                 const cudaStream_t *streams);

#endif
