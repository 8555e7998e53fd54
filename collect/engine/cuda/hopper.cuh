/* Hopper's means: barriers in shared memory, the bulk copy engine, and tensor cores whose operands lie in shared
 * memory. */
#ifndef COLLECT_ENGINE_CUDA_HOPPER_CUH
#define COLLECT_ENGINE_CUDA_HOPPER_CUH

#include "collect/engine/cuda/element.cuh"

#include <cudaTypedefs.h>

#define SHARED_MAXIMUM (227 * 1024)       /* bytes of a block */
#define EVICT_FIRST 0x12F0000000000000ull /* the bulk copy engine's hint for what is read once */
#define EVICT_LAST 0x14F0000000000000ull

/* --- barriers and copies ---------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/* The cluster's other blocks may use this thread's new barriers once all have met. */
static __device__ __forceinline__ void barriers_show(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Waits until the barrier's phase of that parity has ended. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* Asks for bytes, a multiple of 16, which `barrier` counts. */
static __device__ __forceinline__ void copy_bytes(void *to, const void *from, unsigned bytes, uint64_t *barrier,
                                                  uint64_t hint)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(hint)
                 : "memory");
}

static __device__ __forceinline__ void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

static __device__ __forceinline__ void copy_tile(void *to, const CUtensorMap *map, int column, int row,
                                                 uint64_t *barrier, uint64_t hint)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(row), "l"(hint)
                 : "memory");
}

/* --- tensor cores ----------------------------------------------------------------------------------------------- */

/* What tells wgmma of a tile with 128-byte swizzle, whose groups of 8 rows are 1,024 bytes apart. Rows are along what
 * is summed over (K-major); or across it, and 64 columns further on the tile goes on `next` bytes behind. */
static __device__ __forceinline__ uint64_t describe_tile(const void *tile, unsigned next = 16)
{
    return (uint64_t)(shared_address(tile) >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* Before products are queued whose registers others wrote; behind a group of products; until all are done. */
static __device__ __forceinline__ void products_start(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void products_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* d: what they add to. */
template <int N> static __device__ __forceinline__ void products_wait(float (&d)[N])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8(i) R4(i), R4(i + 4)
#define R16(i) R8(i), R8(i + 8)
#define R32(i) R16(i), R16(i + 16)
#define S8A "%0, %1, %2, %3, %4, %5, %6, %7"
#define S12 S8A ", %8, %9, %10, %11"
#define S16 S12 ", %12, %13, %14, %15"
#define S20 S16 ", %16, %17, %18, %19"
#define S32 S20 ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define S36 S32 ", %32, %33, %34, %35"
#define S64                                                                                                            \
    S36 ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, "  \
        "%57, %58, %59, %60, %61, %62, %63"
#define S68 S64 ", %64, %65, %66, %67"

/* d[N / 2] += a[64, 16] · b[N, 16]ᵀ; `first`: = instead. */
#define MULTIPLY(N, LIST, A, B, P, ...)                                                                                \
    static __device__ __forceinline__ void multiply(float(&d)[N / 2], uint64_t a, uint64_t b, bool first)              \
    {                                                                                                                  \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" LIST "}, " A ", " B                  \
                     ", p, 1, 1, 0, 0;\n}\n"                                                                           \
                     : __VA_ARGS__                                                                                     \
                     : "l"(a), "l"(b), "r"((int)!first));                                                              \
    }

/* d[N / 2] += a[64, 16] · b[16, N]; a: a lane's fragment as in mma.cuh, of 16 rows a warp. */
#define MULTIPLY_ACROSS(N, LIST, A, B, ...)                                                                            \
    static __device__ __forceinline__ void multiply_across(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b)        \
    {                                                                                                                  \
        asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                                        \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" LIST "}, {" A "}, " B                \
                     ", p, 1, 1, 1;\n}\n"                                                                              \
                     : __VA_ARGS__                                                                                     \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                            \
    }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
MULTIPLY(16, S8A, "%8", "%9", "%10", R8(0))
MULTIPLY(24, S12, "%12", "%13", "%14", R8(0), R4(8))
MULTIPLY(32, S16, "%16", "%17", "%18", R16(0))
MULTIPLY(40, S20, "%20", "%21", "%22", R16(0), R4(16))
MULTIPLY(64, S32, "%32", "%33", "%34", R32(0))
MULTIPLY(72, S36, "%36", "%37", "%38", R32(0), R4(32))
MULTIPLY(128, S64, "%64", "%65", "%66", R32(0), R32(32))
MULTIPLY(136, S68, "%68", "%69", "%70", R32(0), R32(32), R4(64))
MULTIPLY_ACROSS(64, S32, "%32, %33, %34, %35", "%36", R32(0))
MULTIPLY_ACROSS(128, S64, "%64, %65, %66, %67", "%68", R32(0), R32(32))
#endif

#endif
