/* The choice of a token of each row. Many blocks share a row; what they find is put together in an order that does not
 * depend on which comes first. */
#include "collect/engine/cuda/element.cuh"

#define THREADS 256
#define BLOCKS 5   /* that a multiprocessor has at a time */
#define PARTS WARP /* of a row at most, a block each */
#define QUAD 4     /* tokens that share a block of random words */
#define DEPTH 4    /* quads that a thread asks for at a time, where nothing but reading them takes time */

/* The leader of no tokens. */
static __device__ __forceinline__ struct leader nobody(void)
{
    return {-INFINITY, -INFINITY, INT32_MAX};
}

/* Of the leaders of two sets of tokens, those of both together; ties go to the lower id. */
static __device__ struct leader merge(struct leader a, struct leader b)
{
    if (b.best > a.best || (b.best == a.best && b.token < a.token)) {
        struct leader other = a;
        a = b;
        b = other;
    }
    a.second = fmaxf(a.second, b.best);
    return a;
}

static __device__ struct leader warp_leader(struct leader leader)
{
#pragma unroll 1
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct leader other = {__shfl_xor_sync(ALL_LANES, leader.best, step),
                               __shfl_xor_sync(ALL_LANES, leader.second, step),
                               __shfl_xor_sync(ALL_LANES, leader.token, step)};
        leader = merge(leader, other);
    }
    return leader;
}

/* sample_philox() on the GPU. */
static __device__ void philox(uint32_t first, uint32_t second, uint64_t stream, uint32_t out[QUAD])
{
    uint32_t a = first, b = second, c = 0, d = 0, key = (uint32_t)stream, high_key = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint32_t high = __umulhi(0xD2511F53u, a), low = 0xD2511F53u * a;
        uint32_t other_high = __umulhi(0xCD9E8D57u, c), other_low = 0xCD9E8D57u * c;
        a = other_high ^ b ^ key;
        b = other_low;
        c = high ^ d ^ high_key;
        d = low;
        key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* As in sample.c. */
static __device__ float gumbel(uint32_t word)
{
    float uniform = fminf(((float)word + 0.5f) * 0x1p-32f, 1 - 0x1p-24f);
    return -logf(-log1pf(-uniform));
}

template <bool noisy>
static __device__ __forceinline__ float score(float logit, uint32_t word, const struct choose_row &row)
{
    return noisy ? logit / row.temperature + gumbel(word) : logit;
}

/* Takes a token that is before those taken already, so that of equals the lowest is left. NaN is not taken. */
static __device__ __forceinline__ void take(struct leader *leader, float score, int token)
{
    bool leads = score >= leader->best;
    leader->second = fmaxf(leader->second, leads ? leader->best : score);
    leader->best = leads ? score : leader->best;
    leader->token = leads ? token : leader->token;
}

/* What a thread finds in its share of a row: of the aligned quads, from the last to the first; and of the rest, which
 * is a few columns at the ends or, where the row does not lie so, all. */
template <bool noisy>
static __device__ __forceinline__ struct leader lead(const float *x, int count, int first_token,
                                                     const struct choose_row &row)
{
    constexpr int depth = noisy ? 1 : DEPTH;
    int step = (int)gridDim.x * THREADS, own = (int)(blockIdx.x * THREADS + threadIdx.x);
    int begin = min(-first_token & (QUAD - 1), count);
    int quads = (uintptr_t)(x + begin) % sizeof(float4) == 0 ? (count - begin) / QUAD : 0;
    struct leader leader = nobody();
    uint32_t words[QUAD] = {};
#pragma unroll 1
    for (int quad = quads - 1 - own; quad >= 0; quad -= depth * step) {
        float4 logits[depth];
#pragma unroll
        for (int d = 0; d < depth; d++)
            logits[d] = ((const float4 *)(x + begin))[max(quad - d * step, 0)];
#pragma unroll
        for (int d = 0; d < depth; d++) {
            float each[QUAD] = {logits[d].x, logits[d].y, logits[d].z, logits[d].w};
            int token = first_token + begin + (quad - d * step) * QUAD;
            if (noisy)
                philox((uint32_t)(token / QUAD), (uint32_t)row.position, row.stream, words);
#pragma unroll
            for (int i = QUAD - 1; i >= 0; i--)
                take(&leader, quad >= d * step ? score<noisy>(each[i], words[i], row) : NAN, token + i);
        }
    }
#pragma unroll 1
    for (int i = own; i < count - quads * QUAD; i += step) {
        int column = i < begin ? i : i + quads * QUAD, token = first_token + column;
        if (noisy)
            philox((uint32_t)(token / QUAD), (uint32_t)row.position, row.stream, words);
        uint32_t word = token & 2 ? token & 1 ? words[3] : words[2] : token & 1 ? words[1] : words[0];
        leader = merge(leader, {score<noisy>(x[column], word, row), -INFINITY, token});
    }
    return leader;
}

/* Of all threads of the block. */
static __device__ __forceinline__ struct leader block_leader(struct leader leader)
{
    __shared__ struct leader leaders[THREADS / WARP];
    leader = warp_leader(leader);
    if (threadIdx.x % WARP == 0)
        leaders[threadIdx.x / WARP] = leader;
    __syncthreads();
    leader = leaders[0];
#pragma unroll 1
    for (int i = 1; i < THREADS / WARP; i++)
        leader = merge(leader, leaders[i]);
    return leader;
}

/* A row's scratch. arrived: blocks that have left their leader; 0 between calls. */
struct row_leaders {
    struct leader leaders[PARTS];
    unsigned arrived;
};

/* Grid: [parts, row]. The last of a row's blocks puts their leaders together. */
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    choose(const float *logits, int stride, int count, int first_token, const struct choose_row *how,
           struct row_leaders *partial, struct leader *leaders)
{
    __shared__ bool is_last;
    wait_for_previous();
    let_next_start();
    struct row_leaders *row = &partial[blockIdx.y];
    const struct choose_row own = how[blockIdx.y];
    const float *x = logits + (size_t)blockIdx.y * (size_t)stride;
    struct leader leader = block_leader(own.temperature > 0 ? lead<true>(x, count, first_token, own)
                                                            : lead<false>(x, count, first_token, own));
    if (threadIdx.x == 0) {
        row->leaders[blockIdx.x] = leader;
        __threadfence();
        is_last = atomicAdd(&row->arrived, 1u) == gridDim.x - 1;
        if (is_last)
            row->arrived = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last || threadIdx.x >= WARP)
        return;
    leader = nobody();
    if (threadIdx.x < gridDim.x) {
        const struct leader *part = &row->leaders[threadIdx.x];
        leader = {__ldcg(&part->best), __ldcg(&part->second), __ldcg(&part->token)};
    }
    leader = warp_leader(leader);
    if (threadIdx.x == 0)
        leaders[blockIdx.y] = leader;
}

size_t kernels_choose_partials(int rows)
{
    return (size_t)rows * sizeof(struct row_leaders);
}

/* As many parts as leave every block a place, so that no multiprocessor waits for a block's end before the next one's
 * first load. */
void kernels_choose(const float *logits, int rows, int stride, int count, int first_token, const struct choose_row *how,
                    void *partial, struct leader *leaders, cudaStream_t stream)
{
    int parts = BLOCKS * device_multiprocessors() / rows;
    parts = parts < 1 ? 1 : parts > PARTS ? PARTS : parts;
    launch(choose, dim3((unsigned)parts, (unsigned)rows), THREADS, 0, stream, logits, stride, count, first_token, how,
           (struct row_leaders *)partial, leaders);
}
