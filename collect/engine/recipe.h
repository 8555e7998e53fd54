/* Weights without a file: every element is a function of a seed and its index, the same on every device. Uniform
 * between mean - spread and mean + spread, in 2^24 steps, from a mixing of the bits (the finaliser of MurmurHash3). For
 * C and CUDA C. */
#ifndef COLLECT_ENGINE_RECIPE_H
#define COLLECT_ENGINE_RECIPE_H

#include <stdint.h>

#ifdef __CUDACC__
#define RECIPE_FUNCTION static __host__ __device__ __forceinline__
#else
#define RECIPE_FUNCTION static inline
#endif

struct recipe {
    uint32_t seed;
    float mean, spread; /* one of the two is 0, so that nothing is rounded in an order of its own */
};

RECIPE_FUNCTION float recipe_element(struct recipe recipe, uint64_t index)
{
    uint32_t bits = (uint32_t)index ^ ((uint32_t)(index >> 32) * 0x9e3779b9u) ^ recipe.seed;
    bits = (bits ^ (bits >> 16)) * 0x85ebca6bu;
    bits = (bits ^ (bits >> 13)) * 0xc2b2ae35u;
    bits ^= bits >> 16;
    float unit = (float)(int32_t)(bits >> 8) * (1.0f / (1 << 23)) - 1.0f; /* exact */
    return recipe.mean + recipe.spread * unit;
}

#undef RECIPE_FUNCTION

#endif
