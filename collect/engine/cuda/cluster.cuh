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

/* The same where nothing that was written has to be seen: without that one's fence, which takes long. */
static __device__ __forceinline__ void cluster_arrive_relaxed(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
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

/* Before a block ends, of whose memory others may still read. */
static __device__ __forceinline__ void cluster_leave(void)
{
#if __CUDA_ARCH__ >= 900
    cluster_arrive_relaxed();
    cluster_wait();
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

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* The place in shared memory that block `block` of the cluster has for what this one has at `own`. */
static __device__ __forceinline__ uint32_t address_in(int block, const void *own)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(own)), "r"(block));
    return there;
}

/* Stores x there: that block's mbarrier counts its bytes when they are there, and whoever there has waited for it sees
 * them, since they are in its own shared memory. In a launch without clusters this is an illegal instruction. */
static __device__ __forceinline__ void send(float4 *to, const float4 &x, int block, const uint64_t *barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address_in(block, to)),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(address_in(block, barrier))
                 : "memory");
}

static __device__ __forceinline__ void send(float2 *to, const float2 &x, int block, const uint64_t *barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(block, to)),
                 "f"(x.x), "f"(x.y), "r"(address_in(block, barrier))
                 : "memory");
}

static __device__ __forceinline__ void send(uint32_t *to, uint32_t x, int block, const uint64_t *barrier)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address_in(block, to)),
        "r"(x), "r"(address_in(block, barrier))
        : "memory");
}

#endif

#endif
