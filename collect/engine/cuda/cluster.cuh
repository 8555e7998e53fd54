/* Blocks of a cluster, which reach into each other's shared memory: from compute capability 9.0 on. Before, each block
 * is a cluster by itself. */
#ifndef COLLECT_ENGINE_CUDA_CLUSTER_CUH
#define COLLECT_ENGINE_CUDA_CLUSTER_CUH

#include "collect/engine/cuda/element.cuh"

#if __CUDA_ARCH__ >= 900
#define HAS_CLUSTERS true
#else
#define HAS_CLUSTERS false
#endif

static __device__ __forceinline__ int cluster_blocks(void)
{
    int blocks = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
#endif
    return blocks;
}

/* Which of them this one is. */
static __device__ __forceinline__ int cluster_block(void)
{
    int block = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
#endif
    return block;
}

/* What a thread wrote before arriving, to any of the blocks, is there for all who have waited. */
static __device__ __forceinline__ void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

static __device__ __forceinline__ void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

static __device__ __forceinline__ void cluster_meet(void)
{
    cluster_arrive();
    cluster_wait();
}

/* Before a block ends, of whose memory others may still read. Without the fence of those above, since nothing that was
 * written has to be seen. */
static __device__ __forceinline__ void cluster_leave(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* Where block `block` has what this one has in shared memory at `own`. */
template <typename T> static __device__ __forceinline__ T *in_block(T *own, int block)
{
#if __CUDA_ARCH__ >= 900
    T *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(block));
    return there;
#else
    (void)block;
    return own;
#endif
}

#endif
