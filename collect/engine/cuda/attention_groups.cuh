/* What a warpgroup of Hopper's does with 64 queries that share a KV head and a tile of keys: both multiply out of
 * shared memory, and then, with the weights in its registers, the values.
 *
 * Shared memory holds panels of 64 columns, whose rows of 128 bytes have their 16-byte units where 128-byte swizzle
 * expects them: unit u of row r is at u ^ r % 8. */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_GROUPS_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_GROUPS_CUH

#include "collect/engine/cuda/attention_softmax.cuh"
#include "collect/engine/cuda/hopper.cuh"

#define GROUP (4 * WARP)
#define GROUP_QUERIES 64
#define PANEL_ROW 128 /* bytes */
#define SWIZZLE 1024  /* bytes over which the places of units repeat */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- tiles of shared memory -------------------------------------------------------------------------------------- */

/* Where unit `unit` of row `row` stands among ROWS rows. */
template <int ROWS> static __device__ __forceinline__ uint32_t unit_place(unsigned row, unsigned unit)
{
    return unit / 8 * (ROWS * PANEL_ROW) + row * PANEL_ROW + (unit % 8 ^ row % 8) * 16;
}

/* Queues the copy of ROWS rows [., D], by THREADS threads; zeros behind the first `count`. AT_ONCE: of a thread's
 * copies so many are written out. */
template <int D, int ROWS, int THREADS, int AT_ONCE = ROWS>
static __device__ __forceinline__ void copy_rows(uint32_t to, const bf16 *from, int count, unsigned thread)
{
    constexpr unsigned UNITS = D / 8, STEP = THREADS / UNITS; /* of a row; rows at a time */
    unsigned row = thread / UNITS, unit = thread % UNITS;
    from += thread * 8;
#pragma unroll AT_ONCE
    for (unsigned i = 0; i < ROWS; i += STEP)
        copy_start(to + unit_place<ROWS>(row + i, unit), from + i * D, (int)(row + i) < count);
}

/* What this thread's copies brought is there for the tensor cores, once all threads have met. */
static __device__ __forceinline__ void show_copies(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* --- one tile ---------------------------------------------------------------------------------------------------- */

/* How far a descriptor moves by so many bytes. */
static __device__ __forceinline__ uint64_t step(int bytes)
{
    return (uint64_t)(bytes >> 4);
}

/* scores[64, KEYS] = queries keys^T; the queries are some of QUERIES. */
template <int D, int QUERIES, int KEYS>
static __device__ __forceinline__ void score(uint64_t queries, uint64_t keys, float (&scores)[KEYS / 2])
{
    products_start();
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        int panel = k / 4 * PANEL_ROW, column = k % 4 * 32;
        multiply(scores, queries + step(panel * QUERIES + column), keys + step(panel * KEYS + column), k == 0);
    }
    products_commit();
    products_wait(scores);
}

/* sums[64, D] += weights[64, KEYS] values */
template <int D, int KEYS>
static __device__ __forceinline__ void add_values(float (&sums)[D / 2], const float (&weights)[1][KEYS / 8][4],
                                                  uint64_t values)
{
    constexpr int COLUMNS = D < 128 ? D : 128; /* of one product */
    uint32_t a[KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) {
        const float *pair = &weights[0][i / 4 * 2 + i % 4 / 2][i % 2 * 2];
        a[i / 4][i % 4] = pack(pair[0], pair[1]);
    }
    products_start();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
        for (int d = 0; d < D; d += COLUMNS)
            multiply_across(*(float(*)[COLUMNS / 2]) & sums[d / 2], a[k],
                            values + step(k * 16 * PANEL_ROW + d / 64 * KEYS * PANEL_ROW));
    products_commit();
    products_wait(sums);
}

#endif

#endif
