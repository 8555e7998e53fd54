/* Matrix products by oneDNN (its 2.x C API lives in product.c alone).
 *
 * A `linear` holds a weight matrix once, in the layout that oneDNN likes best at one row, and a primitive for each
 * number of rows that was asked for when it was made. A `small_product` is one of attention's: both factors change from
 * call to call. */
#ifndef COLLECT_ENGINE_CPU_PRODUCT_H
#define COLLECT_ENGINE_CPU_PRODUCT_H

#include "collect/base/error.h"
#include "collect/engine/safetensors.h"

#include <stdbool.h>
#include <stddef.h>

enum product_type { PRODUCT_FLOAT32, PRODUCT_BFLOAT16 };

static inline size_t product_type_size(enum product_type type)
{
    return type == PRODUCT_BFLOAT16 ? 2 : 4;
}

/* True where the CPU multiplies bfloat16 itself; elsewhere bfloat16 products would be emulated, slowly. */
bool product_has_bfloat16(void);

/* --- y[rows, outputs] = x[rows, inputs] · W[outputs, inputs]ᵀ, accumulated and answered in float32
 * ------------------------------- */

struct linear;

/* Rows [first_row, first_row + rows) and columns [first_column, first_column + inputs) of a tensor: a rank's slice of a
 * weight. */
struct linear_part {
    const struct tensor *tensor;
    int first_row, rows, first_column;
};

/* W is the parts, one below the other. shapes[shape_count]: the numbers of rows it will be used with, rising. */
struct linear *linear_create(enum product_type type, const struct linear_part *parts, int part_count, int inputs,
                             const int *shapes, int shape_count);

/* `rows` must not exceed the largest shape; the next larger shape is used, so x and y must have room for that many
 * rows. x in the linear's type. */
void linear_apply(struct linear *linear, int rows, const void *x, float *y);

size_t linear_bytes(const struct linear *linear);
void linear_destroy(struct linear *linear);

/* --- c[rows, columns] = a[rows, inner] · b, for use inside parallel regions: one thread, own scratch
 * -------------------------------- */

struct small_product;

/* b is [columns, inner] where `transposed`, else [inner, columns]; all row-major without gaps; c in float32. */
struct small_product *small_product_create(enum product_type type, int rows, int columns, int inner, bool transposed);
void small_product_apply(const struct small_product *product, const void *a, const void *b, float *c);
void small_product_destroy(struct small_product *product);

#endif
