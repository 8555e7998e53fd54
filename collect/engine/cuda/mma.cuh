/* The instructions that tensor-core kernels are made of (compute capability 8.0): copies that run by themselves,
 * fragments out of shared memory, and the product of 16 x 16 by 16 x 8 values of bfloat16 with float32 sums.
 *
 * A fragment's lane holds, with g = lane / 4 and t = lane % 4: of A the pairs (g, 2t), (g + 8, 2t), (g, 2t + 8),
 * (g + 8, 2t + 8); of B the pairs of rows 2t and 2t + 8 in column g; of the sums (g, 2t), (g, 2t + 1), (g + 8, 2t),
 * (g + 8, 2t + 1). */
#ifndef COLLECT_ENGINE_CUDA_MMA_CUH
#define COLLECT_ENGINE_CUDA_MMA_CUH

#include "collect/engine/cuda/element.cuh"

/* Queues a copy of 16 bytes from global to shared memory; zeros where they are not `there`. */
static __device__ __forceinline__ void copy_start(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

/* The same of 4 bytes. */
static __device__ __forceinline__ void copy_word_start(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

/* Ends a group of copies. */
static __device__ __forceinline__ void copies_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's copies, the last `PENDING` groups excepted. */
template <int PENDING> static __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each transposed. */
static __device__ __forceinline__ void load_transposed(uint32_t (&out)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address)
                 : "memory");
}

/* sums += A B */
static __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The 10 leading bits of a value's fraction, which tensor cores read of float32, and what is left of it. */
static __device__ __forceinline__ void split_value(float x, uint32_t *leading, uint32_t *left)
{
    *leading = __float_as_uint(x) & 0xffffe000u;
    *left = __float_as_uint(x - __uint_as_float(*leading));
}

/* sums += A B of 16 x 8 by 8 x 8 values of 10 bits. A's fragment: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); B's:
 * rows t and t + 4 in column g. */
static __device__ __forceinline__ void multiply_leading(float (&sums)[4], const uint32_t (&a)[4],
                                                        const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two values rounded to bfloat16, the first in the low half. */
static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* 2^x; 0 of minus infinity. */
static __device__ __forceinline__ float power_of_two(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#endif
