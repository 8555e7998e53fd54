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
    int eights;                      /* eight rows, of which a block of a cluster ends so many at most */
    int inverse;                     /* of the splits: 2^16 / splits and a little more */
    short starts[SKINNY_SPLITS + 1]; /* of the shares of the inputs: their first tiles */
};

/* --- the shares of a cluster --------------------------------------------------------------------------------------
 *
 * Rows go round the blocks of a cluster by eights, of which a thread has four sums: two outputs of two rows. It sends
 * them from its registers to the block that ends these rows, where the thread of the same number adds the shares. They
 * have a place of their own there, as the other block may still need its ring; and since a block with shares has one
 * tile, that place is written once. So nobody but who ends a row waits, and for its bytes alone: a barrier of the
 * cluster would have a fence before it, and a fetch from the others behind it. */

/* Which block ends eight rows, and how many eights it ends before them. */
struct eight_place {
    int block, index;
};

static __device__ __forceinline__ struct eight_place place_of_eight(const struct work &work, int eight)
{
    int index = eight * work.inverse >> 16;
    return {eight - index * work.call.splits, index};
}

/* Where a thread's four are that block `from` sends to block `to`. */
template <int GROUPS>
static __device__ __forceinline__ int sent_at(const struct work &work, int from, int to, int index)
{
    return ((from - (from > to)) * work.eights + index) * GROUPS * GROUP + (int)threadIdx.x;
}

/* How many bytes a block is sent: of the last eight rows those that there are, by twos. */
template <int GROUPS> static __device__ __forceinline__ unsigned sent_bytes(const struct skinny_call &call, int split)
{
    int rows = 0;
#pragma unroll 1
    for (int first = split * 8; first < call.rows; first += call.splits * 8)
        rows += min(8, (call.rows - first + 1) / 2 * 2);
    return (unsigned)((call.splits - 1) * rows * GROUPS * 64) * (unsigned)sizeof(float);
}

template <int GROUPS, int SUMS>
static __device__ __forceinline__ void send_shares(const struct work &work, int split, const float (&d)[SUMS],
                                                   float4 *sent, const uint64_t *arrived)
{
    int row = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < SUMS / 4; i++) {
        struct eight_place place = place_of_eight(work, i);
        if (place.block != split && i * 8 + row < work.call.rows)
            send(sent + sent_at<GROUPS>(work, split, place.block, place.index),
                 make_float4(d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]), place.block, arrived);
    }
}

/* Adds to the thread's own sums, the first of which is at `own`, what the others sent, in the order of the shares. Of
 * rows beyond the last, which nobody sends and nobody ends, the sums are of what happens to be there. */
template <int GROUPS>
static __device__ __forceinline__ void add_shares(const struct work &work, int split, float *own, int pitch,
                                                  const float4 *sent)
{
    constexpr int AT_ONCE = 5; /* of 65 rows in two shares all */
#pragma unroll 1
    for (int first = 0; first < work.eights; first += AT_ONCE) {
        float sums[AT_ONCE][4] = {};
#pragma unroll 1
        for (int block = 0; block < work.call.splits; block++)
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (first + k >= work.eights)
                    break;
                const float *at = own + (first + k) * 8 * pitch;
                float4 more = block == split ? make_float4(at[0], at[pitch], at[8], at[pitch + 8])
                                             : sent[sent_at<GROUPS>(work, block, split, first + k)];
                sums[k][0] += more.x;
                sums[k][1] += more.y;
                sums[k][2] += more.z;
                sums[k][3] += more.w;
            }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k < work.eights)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    own[((first + k) * 8 + i % 2) * pitch + i / 2 * 8] = sums[k][i];
    }
}

#endif
