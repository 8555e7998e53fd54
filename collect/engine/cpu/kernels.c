#include "collect/engine/cpu/kernels.h"

#include "collect/engine/bfloat16.h"
#include "collect/engine/cpu/vectorised.h"

static INLINED float scale_of(const float *x, int count, float epsilon)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += x[i] * x[i];
    return 1.0f / sqrtf(sum / (float)count + epsilon);
}

static INLINED void norm(enum product_type type, const float *x, const float *weight, int count, float epsilon,
                         void *out)
{
    float scale = scale_of(x, count, epsilon), beside[STRIP];
    for (int from = 0; from < count; from += STRIP) {
        int width = strip_width(from, count);
        float *strip = strip_begin(type, beside, out, from);
#pragma omp simd
        for (int i = 0; i < width; i++)
            strip[i] = x[from + i] * scale * weight[from + i];
        strip_end(type, strip, width, out, from);
    }
}

VECTORISED void kernel_norm(enum product_type type, const float *x, const float *weight, int count, float epsilon,
                            void *out)
{
    if (type == PRODUCT_BFLOAT16)
        norm(PRODUCT_BFLOAT16, x, weight, count, epsilon, out);
    else
        norm(PRODUCT_FLOAT32, x, weight, count, epsilon, out);
}

static INLINED void rotate(enum product_type type, const struct kernel_head *head, const float *x, const float *cosines,
                           const float *sines, void *out)
{
    int half = head->rotary / 2;
    float scale = scale_of(x, head->size, head->epsilon) * head->factor, lower[STRIP], upper[STRIP];
    for (int from = 0; from < half; from += STRIP) {
        int width = strip_width(from, half), above = from + half;
        float *first = strip_begin(type, lower, out, from), *second = strip_begin(type, upper, out, above);
#pragma omp simd
        for (int i = 0; i < width; i++) {
            float a = x[from + i] * scale * head->weight[from + i], b = x[above + i] * scale * head->weight[above + i];
            first[i] = a * cosines[from + i] - b * sines[from + i];
            second[i] = b * cosines[from + i] + a * sines[from + i];
        }
        strip_end(type, first, width, out, from);
        strip_end(type, second, width, out, above);
    }
    for (int from = head->rotary; from < head->size; from += STRIP) {
        int width = strip_width(from, head->size);
        float *strip = strip_begin(type, lower, out, from);
#pragma omp simd
        for (int i = 0; i < width; i++)
            strip[i] = x[from + i] * scale * head->weight[from + i];
        strip_end(type, strip, width, out, from);
    }
}

VECTORISED void kernel_rotate(enum product_type type, const struct kernel_head *head, const float *x,
                              const float *cosines, const float *sines, void *out)
{
    if (type == PRODUCT_BFLOAT16)
        rotate(PRODUCT_BFLOAT16, head, x, cosines, sines, out);
    else
        rotate(PRODUCT_FLOAT32, head, x, cosines, sines, out);
}

static INLINED void store(enum product_type type, const float *x, float factor, int count, void *out)
{
    float beside[STRIP];
    for (int from = 0; from < count; from += STRIP) {
        int width = strip_width(from, count);
        float *strip = strip_begin(type, beside, out, from);
#pragma omp simd
        for (int i = 0; i < width; i++)
            strip[i] = x[from + i] * factor;
        strip_end(type, strip, width, out, from);
    }
}

VECTORISED void kernel_store(enum product_type type, const float *x, float factor, int count, void *out)
{
    if (type == PRODUCT_BFLOAT16)
        store(PRODUCT_BFLOAT16, x, factor, count, out);
    else
        store(PRODUCT_FLOAT32, x, factor, count, out);
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

static INLINED void gated(enum product_type type, const float *gate, const float *up, int count, void *out)
{
    float beside[STRIP];
    for (int from = 0; from < count; from += STRIP) {
        int width = strip_width(from, count);
        float *strip = strip_begin(type, beside, out, from);
#pragma omp simd
        for (int i = 0; i < width; i++)
            strip[i] = gate[from + i] / (1.0f + exponential(-gate[from + i])) * up[from + i];
        strip_end(type, strip, width, out, from);
    }
}

VECTORISED void kernel_gated(enum product_type type, const float *gate, const float *up, int count, void *out)
{
    if (type == PRODUCT_BFLOAT16)
        gated(PRODUCT_BFLOAT16, gate, up, count, out);
    else
        gated(PRODUCT_FLOAT32, gate, up, count, out);
}

VECTORISED void kernel_damp(float *x, const float *gate, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        x[i] /= 1.0f + exponential(-gate[i]);
}

static INLINED float weigh(enum product_type type, float *scores, const float *bias, struct kernel_columns columns,
                           void *weights)
{
    float best = -INFINITY, best_before = largest_of(scores, columns.first), sum = 0, beside[STRIP];
#pragma omp simd reduction(max : best)
    for (int i = columns.first; i < columns.end; i++) {
        scores[i] += bias[i - columns.first];
        best = scores[i] > best ? scores[i] : best;
    }
    best = best_before > best ? best_before : best;
    for (int from = 0; from < columns.end; from += STRIP) {
        int width = strip_width(from, columns.end);
        float *strip = strip_begin(type, beside, weights, from);
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < width; i++) {
            float weight = exponential_to_88(scores[from + i] - best);
            strip[i] = weight;
            sum += weight;
        }
        strip_end(type, strip, width, weights, from);
    }
    size_t size = product_type_size(type);
    memset((char *)weights + (size_t)columns.end * size, 0, (size_t)(columns.all - columns.end) * size);
    return sum;
}

VECTORISED float kernel_weigh(enum product_type type, float *scores, const float *bias, struct kernel_columns columns,
                              void *weights)
{
    return type == PRODUCT_BFLOAT16 ? weigh(PRODUCT_BFLOAT16, scores, bias, columns, weights)
                                    : weigh(PRODUCT_FLOAT32, scores, bias, columns, weights);
}

VECTORISED void kernel_add(float *x, const float *bias, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        x[i] += bias[i];
}
