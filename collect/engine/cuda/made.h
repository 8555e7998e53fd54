/* Kernels that benchmarks need: weights made in place, and memory read as fast as it can be. */
#ifndef COLLECT_ENGINE_CUDA_MADE_H
#define COLLECT_ENGINE_CUDA_MADE_H

#include "collect/engine/cuda/kernels.h"
#include "collect/engine/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A rectangle of a matrix whose rows have `stride` elements. */
struct made_part {
    int64_t first, rows, columns, stride; /* first: index of its first element in the matrix */
};

/* out[rows, columns] = the recipe's elements there, in the type. */
void made_fill(enum element type, struct recipe recipe, struct made_part part, void *out, cudaStream_t stream);

#define MADE_READ_BYTES 65536

/* Reads `bytes` (a multiple of MADE_READ_BYTES) of memory once, in `blocks` blocks of threads, and changes nothing.
 * `out`: one word that is only written where the memory's bits meet by chance. */
void made_read(const void *memory, size_t bytes, int blocks, unsigned *out, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
