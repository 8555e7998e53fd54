/* The choice of a token of each row. Many blocks share a row; what they find is put together in an order that does not
 * depend on which comes first. */
#include "collect/engine/cuda/element.cuh"

#define PARTS WARP /* of a row, a block each */
#define CHOOSE_THREADS 256
#define QUAD 4 /* tokens that share a block of random words */

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

static __device__ float gumbel(uint32_t word)
{
    float uniform = ((float)(word >> 8) + 0.5f) * 0x1p-24f;
    return -logf(-logf(uniform));
}

/* A row's scratch. arrived: blocks that have left their leader; 0 between calls. */
struct row_leaders {
    struct leader leaders[PARTS];
    unsigned arrived;
};

/* Four logits from column `first` on, as far as they lie within [0, count). */
static __device__ __forceinline__ void load_quad(const float *x, int first, int count, float logits[QUAD])
{
    if (first >= 0 && first + QUAD <= count && (uintptr_t)(x + first) % sizeof(float4) == 0) {
        float4 quad = *(const float4 *)(x + first);
        logits[0] = quad.x;
        logits[1] = quad.y;
        logits[2] = quad.z;
        logits[3] = quad.w;
        return;
    }
    for (int i = 0; i < QUAD; i++)
        logits[i] = first + i >= 0 && first + i < count ? x[first + i] : 0;
}

/* The block's share of a row: every PARTS * CHOOSE_THREADS-th quad for each thread. */
static __device__ struct leader lead(const float *x, int count, int first_token, const struct choose_row &row)
{
    __shared__ struct leader leaders[CHOOSE_THREADS / WARP];
    struct leader leader = {-INFINITY, -INFINITY, INT32_MAX};
    int quad = first_token / QUAD + (int)(blockIdx.x * CHOOSE_THREADS + threadIdx.x);
    for (; quad * QUAD < first_token + count; quad += PARTS * CHOOSE_THREADS) {
        uint32_t words[QUAD];
        float logits[QUAD];
        int first = quad * QUAD - first_token;
        load_quad(x, first, count, logits);
        if (row.temperature > 0)
            philox((uint32_t)quad, (uint32_t)row.position, row.stream, words);
        for (int i = 0; i < QUAD; i++) {
            float score = row.temperature > 0 ? logits[i] / row.temperature + gumbel(words[i]) : logits[i];
            struct leader token = {score, -INFINITY, quad * QUAD + i};
            if (first + i >= 0 && first + i < count)
                leader = merge(leader, token);
        }
    }
    leader = warp_leader(leader);
    if (threadIdx.x % WARP == 0)
        leaders[threadIdx.x / WARP] = leader;
    __syncthreads();
    leader = leaders[0];
    for (int i = 1; i < CHOOSE_THREADS / WARP; i++)
        leader = merge(leader, leaders[i]);
    return leader;
}

/* Grid: [PARTS, row]. The last of a row's blocks puts their leaders together. */
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose(const float *logits, int stride, int count, int first_token, const struct choose_row *how,
           struct row_leaders *partial, struct leader *leaders)
{
    __shared__ bool is_last;
    wait_for_previous();
    let_next_start();
    struct row_leaders *row = &partial[blockIdx.y];
    struct leader leader = lead(logits + (size_t)blockIdx.y * (size_t)stride, count, first_token, how[blockIdx.y]);
    if (threadIdx.x == 0) {
        row->leaders[blockIdx.x] = leader;
        __threadfence();
        is_last = atomicAdd(&row->arrived, 1u) == PARTS - 1;
        if (is_last)
            row->arrived = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last || threadIdx.x >= WARP)
        return;
    const struct leader *own = &row->leaders[threadIdx.x];
    leader = warp_leader({__ldcg(&own->best), __ldcg(&own->second), __ldcg(&own->token)});
    if (threadIdx.x == 0)
        leaders[blockIdx.y] = leader;
}

size_t kernels_choose_partials(int rows)
{
    return (size_t)rows * sizeof(struct row_leaders);
}

void kernels_choose(const float *logits, int rows, int stride, int count, int first_token, const struct choose_row *how,
                    void *partial, struct leader *leaders, cudaStream_t stream)
{
    launch(choose, dim3(PARTS, (unsigned)rows), CHOOSE_THREADS, 0, stream, logits, stride, count, first_token, how,
           (struct row_leaders *)partial, leaders);
}
