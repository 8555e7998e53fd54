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
 * of them. Only the block that ends a row reads it from the others. */
template <int GROUPS>
static __device__ __forceinline__ void add_shares(float *results, int pitch, int first, int step, int rows, int blocks)
{
    constexpr int BATCH = batch_of(GROUPS);
    float2 sums[BATCH][GROUPS] = {};
    uint32_t address = shared_address(results + first * pitch + (int)threadIdx.x % WARP * 2);
#pragma unroll(GROUPS < 3 ? 2 : 1)
    for (int block = 0; block < blocks; block++) {
        uint32_t there;
        float2 more[BATCH][GROUPS] = {};
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
#pragma unroll
        for (int k = 0; k < BATCH; k++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
                if (first + k * step < rows)
                    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                                 : "=f"(more[k][g].x), "=f"(more[k][g].y)
                                 : "r"(there + (uint32_t)((k * step * pitch + g * 64) * (int)sizeof(float)))
                                 : "memory");
#pragma unroll
        for (int i = 0; i < BATCH * GROUPS; i++) {
            sums[i / GROUPS][i % GROUPS].x += more[i / GROUPS][i % GROUPS].x;
            sums[i / GROUPS][i % GROUPS].y += more[i / GROUPS][i % GROUPS].y;
        }
    }
#pragma unroll
    for (int i = 0; i < BATCH * GROUPS; i++)
        if (first + i / GROUPS * step < rows)
            *(float2 *)(results + (first + i / GROUPS * step) * pitch + i % GROUPS * 64 + (int)threadIdx.x % WARP * 2) =
                sums[i / GROUPS][i % GROUPS];
    __syncwarp();
}

#endif
