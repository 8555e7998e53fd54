/* What recurrent layers do to rows and states. */
#include "collect/engine/cpu/kernels.h"
#include "collect/engine/cpu/vectorised.h"

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
