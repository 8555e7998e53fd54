#include "collect/engine/cpu/kernels.h"

#include "collect/engine/bfloat16.h"

#include <math.h>
#include <string.h>

/* One binary for every x86-64 CPU: the widest of these that it has is chosen when the program starts. Sanitizers cannot
 * run before that choice is made, so debug builds have the plain version alone. Products may be fused with sums, and
 * nobody asks which exceptions were raised: both leave loops fewer instructions, and no value to chance. */
#if defined(__x86_64__) && !defined(CLEANSLATE_DEBUG)
#define VECTORISED                                                                                                     \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),                                       \
                   optimize("O3", "fp-contract=fast", "no-trapping-math")))
#else
#define VECTORISED
#endif

/* exp x within 2 units in the last place, 0 below -88: written so that loops over it are vectorised, which calls of
 * expf() are not without -ffast-math. exp x = 2^n exp r with |r| <= ln 2 / 2, and a polynomial for exp r (its Taylor
 * series to the sixth power errs by less than 2^-27 there). */
static inline __attribute__((always_inline)) float exponential(float x)
{
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits */
    float bounded = x > 88.0f ? 88.0f : x < -88.0f ? -88.0f : x;
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

VECTORISED void kernel_rms_norm(const float *x, const float *weight, int count, float epsilon, float *out)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(sum / (float)count + epsilon);
#pragma omp simd
    for (int i = 0; i < count; i++)
        out[i] = x[i] * scale * weight[i];
}

VECTORISED void kernel_rotate(float *x, const float *cosines, const float *sines, int size)
{
    int half = size / 2;
    float *upper = x + half;
#pragma omp simd
    for (int i = 0; i < half; i++) {
        float first = x[i], second = upper[i];
        x[i] = first * cosines[i] - second * sines[i];
        upper[i] = second * cosines[i] + first * sines[i];
    }
}

static VECTORISED void store_bfloat16(const float *x, float factor, int count, uint16_t *out)
{
#pragma omp simd
    for (int i = 0; i < count; i++) {
        float value = x[i] * factor;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        out[i] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
}

static VECTORISED void store_float(const float *x, float factor, int count, float *out)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        out[i] = x[i] * factor;
}

void kernel_store(enum product_type type, const float *x, float factor, int count, void *out)
{
    if (type == PRODUCT_BFLOAT16)
        store_bfloat16(x, factor, count, out);
    else
        store_float(x, factor, count, out);
}

void kernel_load(enum product_type type, const void *x, int count, float *out)
{
    if (type == PRODUCT_FLOAT32) {
        memcpy(out, x, (size_t)count * sizeof *out);
        return;
    }
    const uint16_t *half = x;
    for (int i = 0; i < count; i++)
        out[i] = bfloat16_to_float(half[i]);
}

VECTORISED void kernel_gated(const float *gate, const float *up, int count, float *out)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

VECTORISED void kernel_damp(float *x, const float *gate, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        x[i] /= 1.0f + exponential(-gate[i]);
}

static VECTORISED float largest(const float *x, int count)
{
    float best = -INFINITY;
#pragma omp simd reduction(max : best)
    for (int i = 0; i < count; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

VECTORISED float kernel_weigh(float *x, int count)
{
    float best = largest(x, count), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++) {
        x[i] = exponential(x[i] - best);
        sum += x[i];
    }
    return sum;
}

VECTORISED void kernel_add(float *x, const float *bias, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        x[i] += bias[i];
}

VECTORISED float kernel_log_sum_exp(const float *x, int count)
{
    float best = largest(x, count), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += exponential(x[i] - best);
    return best + logf(sum);
}

struct choice kernel_choose(const float *x, int count)
{
    enum { BLOCK = 256 };
    float best = -INFINITY, second = -INFINITY;
    int index = 0;
    for (int from = 0; from < count; from += BLOCK) {
        float block_best = largest(x + from, count - from < BLOCK ? count - from : BLOCK);
        second = block_best > best ? best : block_best > second ? block_best : second;
        if (block_best > best) {
            best = block_best;
            index = from;
        }
    }
    int from = index, to = count - from < BLOCK ? count : from + BLOCK;
    while (x[index] != best)
        index++;
    float inside = fmaxf(largest(x + from, index - from), largest(x + index + 1, to - index - 1));
    return (struct choice){index, best - fmaxf(second, inside)};
}

/* A heap of the best so far with the worst of them on top; of equal values the higher index is the worse. */
struct top_heap {
    int *indices;
    float *values;
    int count;
};

static int worse(const struct top_heap *heap, int a, int b)
{
    return heap->values[a] < heap->values[b] ||
           (heap->values[a] == heap->values[b] && heap->indices[a] > heap->indices[b]);
}

static void exchange(struct top_heap *heap, int a, int b)
{
    int index = heap->indices[a];
    float value = heap->values[a];
    heap->indices[a] = heap->indices[b];
    heap->values[a] = heap->values[b];
    heap->indices[b] = index;
    heap->values[b] = value;
}

static void sink(struct top_heap *heap, int at)
{
    for (;;) {
        int child = 2 * at + 1;
        if (child + 1 < heap->count && worse(heap, child + 1, child))
            child++;
        if (child >= heap->count || !worse(heap, child, at))
            return;
        exchange(heap, at, child);
        at = child;
    }
}

/* Puts x[index] into the heap if it is one of the best `width` so far; indices come rising. */
static void offer(struct top_heap *heap, int width, int index, float value)
{
    if (heap->count == width && value <= heap->values[0])
        return;
    int at = heap->count < width ? heap->count++ : 0;
    heap->indices[at] = index;
    heap->values[at] = value;
    if (at == width - 1)
        for (int i = width / 2 - 1; i >= 0; i--)
            sink(heap, i);
    else if (heap->count == width)
        sink(heap, 0);
}

enum { TOP_PARTS = 256, TOP_HALVINGS = 12 };

/* maxima[TOP_PARTS]: of every TOP_PARTS-th value. */
static VECTORISED void find_maxima(const float *x, int count, float *maxima)
{
    for (int i = 0; i < TOP_PARTS; i++)
        maxima[i] = -INFINITY;
    for (int from = 0; from < count; from += TOP_PARTS) {
        int width = count - from < TOP_PARTS ? count - from : TOP_PARTS;
#pragma omp simd
        for (int i = 0; i < width; i++)
            maxima[i] = x[from + i] > maxima[i] ? x[from + i] : maxima[i];
    }
}

static VECTORISED int count_reaching(const float *x, int count, float floor)
{
    int reaching = 0;
#pragma omp simd reduction(+ : reaching)
    for (int i = 0; i < count; i++)
        reaching += x[i] >= floor;
    return reaching;
}

/* What at least `width` values reach, since so many maxima of parts do, and few values more. */
static float find_floor(const float *x, int count, int width)
{
    float maxima[TOP_PARTS];
    find_maxima(x, count, maxima);
    float low = maxima[0], high = largest(maxima, TOP_PARTS);
    for (int i = 1; i < TOP_PARTS; i++)
        low = maxima[i] < low ? maxima[i] : low;
    for (int i = 0; i < TOP_HALVINGS; i++) {
        float middle = low + (high - low) / 2;
        *(count_reaching(maxima, TOP_PARTS, middle) >= width ? &low : &high) = middle;
    }
    return low;
}

void kernel_top(const float *x, int count, int width, int *indices, float *values)
{
    enum { STRIDE = 64 };
    struct top_heap heap = {indices, values, 0};
    float floor = width <= TOP_PARTS ? find_floor(x, count, width) : -INFINITY;
    for (int from = 0; from < count; from += STRIDE) {
        int to = from + STRIDE < count ? from + STRIDE : count;
        if (largest(x + from, to - from) < floor)
            continue;
        for (int i = from; i < to; i++)
            if (!(x[i] < floor))
                offer(&heap, width, i, x[i]);
        floor = heap.count == width ? values[0] : floor;
    }
    while (heap.count > 1) {
        exchange(&heap, 0, heap.count - 1);
        heap.count--;
        sink(&heap, 0);
    }
}

/* --- recurrent layers ------------------------------------------------------------------------------------------- */

static VECTORISED void add_products_float(float *sum, const float *weights, const float *x, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        sum[i] += weights[i] * x[i];
}

static VECTORISED void add_products_bfloat16(float *sum, const float *weights, const uint16_t *x, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum[i] += weights[i] * value;
    }
}

void kernel_convolve(enum product_type type, const void *const *rows, const float *weights, int kernel_size, int count,
                     float *out)
{
    memset(out, 0, (size_t)count * sizeof *out);
    for (int t = 0; t < kernel_size; t++)
        if (type == PRODUCT_BFLOAT16)
            add_products_bfloat16(out, weights + (size_t)t * (size_t)count, rows[t], count);
        else
            add_products_float(out, weights + (size_t)t * (size_t)count, rows[t], count);
    kernel_damp(out, out, count);
}

VECTORISED void kernel_scale_to_length(float *x, int count, float epsilon, float factor)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    float scale = factor / sqrtf(sum + epsilon);
#pragma omp simd
    for (int i = 0; i < count; i++)
        x[i] *= scale;
}

VECTORISED float kernel_dot(const float *x, const float *y, int count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}

VECTORISED void kernel_add_scaled(float *sum, float factor, const float *x, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        sum[i] += factor * x[i];
}

VECTORISED void kernel_read_state(const float *state, const float *key, int keys, int values, float *out)
{
    memset(out, 0, (size_t)values * sizeof *out);
    for (int k = 0; k < keys; k++, state += values) {
        float factor = key[k];
#pragma omp simd
        for (int i = 0; i < values; i++)
            out[i] += factor * state[i];
    }
}

VECTORISED void kernel_step_state(float *state, const float *key, const float *value, float decay, float beta, int keys,
                                  int values, float *delta)
{
    memset(delta, 0, (size_t)values * sizeof *delta);
    for (int k = 0; k < keys; k++) {
        float *row = state + (size_t)k * (size_t)values, factor = key[k];
#pragma omp simd
        for (int i = 0; i < values; i++) {
            row[i] *= decay;
            delta[i] += factor * row[i];
        }
    }
#pragma omp simd
    for (int i = 0; i < values; i++)
        delta[i] = beta * (value[i] - delta[i]);
    for (int k = 0; k < keys; k++) {
        float *row = state + (size_t)k * (size_t)values, factor = key[k];
#pragma omp simd
        for (int i = 0; i < values; i++)
            row[i] += factor * delta[i];
    }
}

VECTORISED void kernel_fold_state(float *state, float decay, const float *factors, const float *key, const float *delta,
                                  int rows, int keys, int values)
{
    for (int k = 0; k < keys; k++, state += values) {
#pragma omp simd
        for (int i = 0; i < values; i++)
            state[i] *= decay;
        for (int row = 0; row < rows; row++) {
            float factor = factors[row] * key[(size_t)row * (size_t)keys + (size_t)k];
            const float *u = delta + (size_t)row * (size_t)values;
#pragma omp simd
            for (int i = 0; i < values; i++)
                state[i] += factor * u[i];
        }
    }
}
