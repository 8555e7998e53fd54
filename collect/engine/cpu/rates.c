/* What this machine's memory and its matrix units can do: every OpenMP thread takes part. */
#include "collect/base/clock.h"
#include "collect/engine/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

#define STREAM_BYTES ((size_t)1 << 30) /* more than caches hold */
#define SIDE 4096                      /* of a square matrix */
#define ROWS 512
#define TRIES 5 /* the quickest counts */

typedef uint64_t lanes __attribute__((vector_size(64)));

/* Of lanes[count]; the sum keeps the compiler from leaving the reading out. */
static uint64_t read_all(const lanes *memory, int64_t count)
{
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int64_t block = 0; block < count / 64; block++) {
        lanes a = {0}, b = {0}, c = {0}, d = {0};
        const lanes *from = memory + block * 64;
        for (int i = 0; i < 64; i += 4) {
            a += from[i];
            b += from[i + 1];
            c += from[i + 2];
            d += from[i + 3];
        }
        sum += (a + b + c + d)[0];
    }
    return sum;
}

static double measure_reading(void)
{
    lanes *memory = xaligned(STREAM_BYTES / sizeof *memory, sizeof *memory);
    double best = 0;
    volatile uint64_t sum;
    for (int i = 0; i < TRIES; i++) {
        int64_t start = clock_now_ns();
        sum = read_all(memory, (int64_t)(STREAM_BYTES / sizeof *memory));
        best = fmax(best, (double)STREAM_BYTES / (double)(clock_now_ns() - start) * 1e9);
    }
    (void)sum;
    free(memory);
    return best;
}

static double measure_product(enum product_type type)
{
    const struct tensor weights = {.type = TENSOR_MADE,
                                   .dimensions = 2,
                                   .shape = {SIDE, SIDE},
                                   .elements = SIDE * SIDE,
                                   .recipe = {.seed = 1, .spread = 1.0f / SIDE}};
    const struct linear_part part = {&weights, 0, SIDE, 0};
    const int rows = ROWS;
    struct linear *linear = linear_create(type, &part, 1, SIDE, &rows, 1);
    void *x = xaligned(ROWS * (size_t)SIDE, product_type_size(type));
    float *y = xaligned(ROWS * (size_t)SIDE, sizeof *y);
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        int64_t start = clock_now_ns();
        linear_apply(linear, ROWS, x, y);
        best = fmax(best, 2.0 * ROWS * SIDE * SIDE / (double)(clock_now_ns() - start) * 1e9);
    }
    free(x);
    free(y);
    linear_destroy(linear);
    return best;
}

int cpu_measure_rates(const char *device, int ranks, enum engine_dtype dtype, struct backend_rates *rates,
                      struct error *error)
{
    (void)device, (void)error;
    (void)ranks; /* they share the threads */
    *rates = (struct backend_rates){measure_reading(), measure_product(cpu_product_type(dtype))};
    return 0;
}
