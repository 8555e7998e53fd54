/* What the CPU backend's row operations are written with: loops that are vectorised for the CPU at hand. */
#ifndef COLLECT_ENGINE_CPU_VECTORISED_H
#define COLLECT_ENGINE_CPU_VECTORISED_H

#include "collect/engine/cpu/product.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* One binary for every x86-64 CPU: the widest of these that it has is chosen when the program starts. Sanitizers cannot
 * run before that choice is made, so debug builds have the plain version alone. Products may be fused with sums, and
 * nobody asks which exceptions were raised: both leave loops fewer instructions, and no value to chance. */
#if defined(__x86_64__) && !defined(CLEANSLATE_DEBUG)
#define VECTORISED                                                                                                     \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),                                       \
                   optimize("O3", "fp-contract=fast", "no-trapping-math", "no-tree-pre")))
#else
#define VECTORISED
#endif

/* Into each version of a vectorised function. */
#define INLINED inline __attribute__((always_inline))

/* exp x within 2 units in the last place for x <= 88, 0 below -88: written so that loops over it are vectorised, which
 * calls of expf() are not without -ffast-math. exp x = 2^n exp r with |r| <= ln 2 / 2, and a polynomial for exp r (its
 * Taylor series to the sixth power errs by less than 2^-27 there). */
static INLINED float exponential_to_88(float x)
{
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits */
    float bounded = x < -88.0f ? -88.0f : x;
    float shifted = bounded * 1.44269504f + to_integer;
    float n = shifted - to_integer;
    float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    float sum = 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* 2^n, and 0 where n is -127 */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* The same for every x: exp 88 above it. */
static INLINED float exponential(float x)
{
    float bounded = x > 88.0f ? 88.0f : x;
    return exponential_to_88(bounded);
}

static INLINED float largest_of(const float *x, int count)
{
    float best = -INFINITY, best_of_rest = -INFINITY;
    int quarter = count / 64 * 16; /* a loop over one vector at a time would wait for each comparison */
    const float *second = x + quarter, *third = second + quarter, *fourth = third + quarter;
#pragma omp simd reduction(max : best)
    for (int i = 0; i < quarter; i++) {
        float left = x[i] > second[i] ? x[i] : second[i], right = third[i] > fourth[i] ? third[i] : fourth[i];
        float both = left > right ? left : right;
        best = both > best ? both : best;
    }
#pragma omp simd reduction(max : best_of_rest)
    for (int i = 4 * quarter; i < count; i++)
        best_of_rest = x[i] > best_of_rest ? x[i] : best_of_rest;
    return best > best_of_rest ? best : best_of_rest;
}

/* Results are worked out in strips of floats. A loop that also narrowed them would not be vectorised, so that bfloat16
 * is made of a strip while it is in the first-level cache; a strip of float32 is where it belongs at once. */
enum { STRIP = 512 };

static INLINED float *strip_begin(enum product_type type, float *beside, void *out, int from)
{
    return type == PRODUCT_BFLOAT16 ? beside : (float *)out + from;
}

static INLINED void strip_end(enum product_type type, const float *strip, int count, void *out, int from)
{
    if (type != PRODUCT_BFLOAT16)
        return;
    uint16_t *to = (uint16_t *)out + from;
#pragma omp simd
    for (int i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &strip[i], sizeof bits);
        to[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

static INLINED int strip_width(int from, int count)
{
    return count - from < STRIP ? count - from : STRIP;
}

#endif
