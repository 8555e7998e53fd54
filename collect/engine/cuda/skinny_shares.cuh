/* How blocks share out a matrix of skinny.cu: whole tiles of outputs in turn, or, where there are few tiles, shares of
 * the inputs within a cluster, whose sums are added at the end. */
#ifndef COLLECT_ENGINE_CUDA_SKINNY_SHARES_CUH
#define COLLECT_ENGINE_CUDA_SKINNY_SHARES_CUH

#include "collect/engine/cuda/cluster.cuh"
#include "collect/engine/cuda/hopper.cuh"

#define GROUP 128     /* threads of a warpgroup */
#define WIDE_GROUPS 5 /* of a block that has more outputs than the others' can take */

struct work {
    struct skinny_call call;
    int tiles, stages;               /* of outputs; of the ring */
    short starts[SKINNY_SPLITS + 1]; /* of the shares of the inputs: their first tiles */
};

/* --- the shares of a cluster -------------------------------------------------------------------------------------- */

/* Rows that a warp ends together: of 65 rows in two shares all that it has. */
static __device__ constexpr int batch_of(int groups)
{
    return groups < 3 ? 5 : 3;
}

/* Results of rows first, first + step, ... in place of the block's own: the sums of what all blocks of the cluster have
 * of them. Only the block that ends a row reads it from the others. Four outputs a lane. */
template <int GROUPS>
static __device__ __forceinline__ void add_shares(float *results, int pitch, int first, int step, int rows, int blocks)
{
    constexpr int BATCH = batch_of(GROUPS), FOURS = (GROUPS + 1) / 2;
    float4 sums[BATCH][FOURS] = {};
    int column = (int)threadIdx.x % WARP * 4;
    uint32_t address = shared_address(results + first * pitch + column);
#pragma unroll(GROUPS < 3 ? 2 : 1)
    for (int block = 0; block < blocks; block++) {
        uint32_t there;
        float4 more[BATCH][FOURS] = {};
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#pragma unroll
        for (int k = 0; k < BATCH; k++)
#pragma unroll
            for (int f = 0; f < FOURS; f++)
                if (first + k * step < rows && column + f * 128 < 64 * GROUPS)
                    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                                 : "=f"(more[k][f].x), "=f"(more[k][f].y), "=f"(more[k][f].z), "=f"(more[k][f].w)
                                 : "r"(there + (uint32_t)((k * step * pitch + f * 128) * (int)sizeof(float)))
                                 : "memory");
#pragma unroll
        for (int i = 0; i < BATCH * FOURS; i++) {
            float4 &sum = sums[i / FOURS][i % FOURS], &add = more[i / FOURS][i % FOURS];
            sum = make_float4(sum.x + add.x, sum.y + add.y, sum.z + add.z, sum.w + add.w);
        }
    }
#pragma unroll
    for (int i = 0; i < BATCH * FOURS; i++)
        if (first + i / FOURS * step < rows && column + i % FOURS * 128 < 64 * GROUPS)
            *(float4 *)(results + (first + i / FOURS * step) * pitch + column + i % FOURS * 128) =
                sums[i / FOURS][i % FOURS];
    __syncwarp();
}

#endif
