/* The choices among a row of logits. */
#include "collect/engine/cpu/kernels.h"
#include "collect/engine/cpu/vectorised.h"

static VECTORISED float largest(const float *x, int count)
{
    return largest_of(x, count);
}

VECTORISED float kernel_log_sum_exp(const float *x, int count)
{
    float best = largest_of(x, count), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += exponential_to_88(x[i] - best);
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
    while (index < count && x[index] != best)
        index++;
    if (best == -INFINITY)
        return (struct choice){index < count ? index : 0, NAN};
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
