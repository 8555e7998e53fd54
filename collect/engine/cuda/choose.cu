/* What is read off the logits: the choice of a token in two stages, and the likeliest tokens of a draft's slots. */
#include "collect/engine/cuda/element.cuh"

/* --- the choice ------------------------------------------------------------------------------------------------- */

#define PARTS 16 /* of a row, a block each */
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

static __global__ void lead(const float *logits, int stride, int count, const struct choose_row *how,
                            int first_token, struct leader *partial)
{
    __shared__ struct leader leaders[CHOOSE_THREADS / WARP];
    wait_for_previous();
    let_next_start();
    const struct choose_row row = how[blockIdx.x];
    const float *x = logits + (size_t)blockIdx.x * (size_t)stride;
    struct leader leader = {-INFINITY, -INFINITY, INT32_MAX};
    int quads = (first_token + count + QUAD - 1) / QUAD;
    for (int quad = first_token / QUAD + (int)(blockIdx.y * CHOOSE_THREADS + threadIdx.x); quad < quads;
         quad += PARTS * CHOOSE_THREADS) {
        uint32_t words[QUAD];
        if (row.temperature > 0)
            philox((uint32_t)quad, (uint32_t)row.position, row.stream, words);
        for (int i = 0; i < QUAD; i++) {
            int column = quad * QUAD + i - first_token;
            if (column < 0 || column >= count)
                continue;
            float score = row.temperature > 0 ? x[column] / row.temperature + gumbel(words[i]) : x[column];
            struct leader token = {score, -INFINITY, first_token + column};
            leader = merge(leader, token);
        }
    }
    leader = warp_leader(leader);
    if (threadIdx.x % WARP == 0)
        leaders[threadIdx.x / WARP] = leader;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < CHOOSE_THREADS / WARP; i++)
        leader = merge(leader, leaders[i]);
    partial[blockIdx.x * PARTS + blockIdx.y] = leader;
}

static __global__ void lead_all(const struct leader *partial, struct leader *leaders)
{
    const struct leader none = {-INFINITY, -INFINITY, INT32_MAX};
    wait_for_previous();
    let_next_start();
    struct leader leader = warp_leader(threadIdx.x < PARTS ? partial[blockIdx.x * PARTS + threadIdx.x] : none);
    if (threadIdx.x == 0)
        leaders[blockIdx.x] = leader;
}

size_t kernels_choose_partials(int rows)
{
    return (size_t)rows * PARTS * sizeof(struct leader);
}

void kernels_choose(const float *logits, int rows, int stride, int count, int first_token, const struct choose_row *how,
                    void *partial, struct leader *leaders, cudaStream_t stream)
{
    launch(lead, dim3((unsigned)rows, PARTS), CHOOSE_THREADS, 0, stream, logits, stride, count, how, first_token,
           (struct leader *)partial);
    launch(lead_all, dim3((unsigned)rows), WARP, 0, stream, (const struct leader *)partial, leaders);
}

/* --- the likeliest ---------------------------------------------------------------------------------------------- */

#define TOP_THREADS 1024
#define CANDIDATES 4096

/* A token with its logit as one number: a larger logit is larger, of equal logits the lower id. 0: none. */
typedef unsigned long long rank_key;

static __device__ rank_key key_of(float logit, int token)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0.0f : logit); /* -0 is 0 */
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (rank_key)bits << 32 | (0xffffffffu - (uint32_t)token);
}

/* Bitonic, best first; count: a power of two. */
static __device__ void sort_falling(rank_key *keys, int count)
{
    for (int size = 2; size <= count; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < count / 2; i += TOP_THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                rank_key a = keys[low], b = keys[high];
                if ((a < b) == ((low & size) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
        }
    __syncthreads();
}

static __device__ int count_from(const float *logits, int count, rank_key least, int *total)
{
    int own = 0;
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS)
        own += key_of(logits[i], i) >= least;
    own = __reduce_add_sync(ALL_LANES, own);
    __syncthreads();
    if (threadIdx.x == 0)
        *total = 0;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        atomicAdd(total, own);
    __syncthreads();
    return *total;
}

/* A key that at least `width` tokens reach and at most CANDIDATES do. Each thread's best token alone makes `width` of
 * them; where too many others reach that, the interval above is halved until it fits, since no two keys are equal. */
static __device__ rank_key find_least(const float *logits, int count, int width, rank_key *keys, int *total)
{
    rank_key own = 0;
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS) {
        rank_key key = key_of(logits[i], i);
        own = key > own ? key : own;
    }
    keys[threadIdx.x] = own;
    sort_falling(keys, TOP_THREADS);
    rank_key low = keys[width - 1], high = keys[0] + 1;
    int reached = count_from(logits, count, low, total);
    while (reached > CANDIDATES) {
        rank_key middle = low + (high - low) / 2;
        int above = count_from(logits, count, middle, total);
        if (above >= width) {
            low = middle;
            reached = above;
        } else {
            high = middle;
        }
    }
    return low;
}

static __device__ float log_sum_exp(const float *x, int count, float *parts)
{
    float best = -INFINITY, sum = 0;
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS)
        best = fmaxf(best, x[i]);
    best = block_largest(best, parts);
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS)
        sum += expf(x[i] - best);
    return best + logf(block_sum(sum, parts));
}

static __global__ void __launch_bounds__(TOP_THREADS)
    top(const float *logits, int stride, int count, int first_token, int width, int *tokens, float *log_probabilities,
        float *log_sums)
{
    __shared__ rank_key keys[CANDIDATES];
    __shared__ float parts[WARP];
    __shared__ int total;
    const float *x = logits + (size_t)blockIdx.x * (size_t)stride;
    wait_for_previous();
    let_next_start();
    rank_key least = find_least(x, count, width, keys, &total);
    int room = 2;
    while (room < width || room < total)
        room *= 2;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < room; i += TOP_THREADS)
        keys[i] = 0;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += TOP_THREADS) {
        rank_key key = key_of(x[i], i);
        if (key >= least)
            keys[atomicAdd(&total, 1)] = key;
    }
    sort_falling(keys, room);
    float sum = log_sum_exp(x, stride, parts);
    if (threadIdx.x == 0)
        log_sums[blockIdx.x] = sum;
    for (int i = (int)threadIdx.x; i < width; i += TOP_THREADS) {
        size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)i;
        int token = (int)(0xffffffffu - (uint32_t)keys[i]);
        tokens[at] = first_token + token;
        log_probabilities[at] = x[token] - sum;
    }
}

void kernels_top(const float *logits, int rows, int stride, int count, int first_token, int width, void *partial,
                 int *tokens, float *log_probabilities, float *log_sums, cudaStream_t stream)
{
    (void)partial;
    launch(top, dim3((unsigned)rows), TOP_THREADS, 0, stream, logits, stride, count, first_token, width, tokens,
           log_probabilities, log_sums);
}

size_t kernels_top_partials(int rows, int width, int stride)
{
    (void)rows, (void)width, (void)stride;
    return 0;
}
