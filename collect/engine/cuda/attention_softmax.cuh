/* The online softmax of a warp whose scores stand in tensor-core fragments (see mma.cuh). */
#ifndef COLLECT_ENGINE_CUDA_ATTENTION_SOFTMAX_CUH
#define COLLECT_ENGINE_CUDA_ATTENTION_SOFTMAX_CUH

#include "collect/engine/cuda/attention.cuh"
#include "collect/engine/cuda/mma.cuh"

#define LOG2_E 1.4426950408889634f

typedef __nv_bfloat16 bf16;

/* The softmax of a warp's M * 16 queries so far; a lane has rows g and g + 8 of each 16 (see mma.cuh). */
template <int D, int M> struct running {
    float sums[M][D / 8][4], best[M][2], total[M][2];
};

template <int D, int M> static __device__ __forceinline__ void start(struct running<D, M> &running)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int i = 0; i < D / 8 * 4; i++)
            running.sums[m][i / 4][i % 4] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            running.best[m][half] = -INFINITY;
            running.total[m][half] = 0;
        }
    }
}

/* Turns the scores of a tile into weights, and brings what was summed before to the same largest score. */
template <int D, int M, int N>
static __device__ __forceinline__ void weigh(struct running<D, M> &running, float (&scores)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        float factors[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float highest = running.best[m][half], sum = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
                highest = fmaxf(highest, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 2));
            float origin = highest == -INFINITY ? 0 : highest * LOG2_E;
            /* As yet nothing may have been summed: then there is nothing to multiply. */
            factors[half] =
                running.best[m][half] == -INFINITY ? 1 : power_of_two(fmaf(running.best[m][half], LOG2_E, -origin));
            running.best[m][half] = highest;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    scores[m][n][i] = power_of_two(fmaf(scores[m][n][i], LOG2_E, -origin));
                    sum += scores[m][n][i];
                }
            running.total[m][half] = fmaf(running.total[m][half], factors[half], sum);
        }
        if (__any_sync(ALL_LANES, factors[0] != 1 || factors[1] != 1))
#pragma unroll
            for (int i = 0; i < D / 8 * 4; i++)
                running.sums[m][i / 4][i % 4] *= factors[i % 4 / 2];
    }
}

#endif
