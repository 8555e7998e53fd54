/* Matrix products by cuBLASLt: y[rows, outputs] = x[rows, inputs] · W[outputs, inputs]ᵀ, accumulated and answered in
 * float32, never in TF32. */
#ifndef COLLECT_ENGINE_CUDA_PRODUCT_H
#define COLLECT_ENGINE_CUDA_PRODUCT_H

#include "collect/engine/cuda/kernels.h"

#include <stdbool.h>

#define PRODUCT_WORKSPACE ((size_t)32 << 20) /* bytes of the GPU that product_library_open() takes */

/* What all products share: a type of x and W, a stream. */
struct product_library;
struct product_library *product_library_open(enum element type, cudaStream_t stream);
void product_library_close(struct product_library *library);

/* A number of rows is rounded up to one of the shapes that are readied; x and y have room for so many rows, and rows of
 * y behind those that were asked for are overwritten. */
int product_rows(int rows);

/* Ready for up to `most_rows` rows, of weights that begin 256-byte aligned, as y does; x begins with any of its rows.
 */
struct product;
struct product *product_create(const struct product_library *library, int inputs, int outputs, int most_rows);
void product_destroy(struct product *product);

/* add: y += instead. */
void product_apply(const struct product *product, int rows, const void *x, const void *weights, float *y, bool add);

#endif
