/* Attention's half of a layer for a single row (halves.cuh): norm, queries, key and value, their norms and rotation,
 * attention, and its output's product. A cluster has a KV head, whose keys go round its blocks' warps in chunks, as in
 * attention_few.cu. */
#include "collect/engine/cuda/attention_few.cuh"
#include "collect/engine/cuda/halves.cuh"
#include "collect/engine/cuda/heads.cuh"

static constexpr int ROWS = 16; /* of each head that a block makes */
static constexpr int QUERIES = few<HEAD, 1>::QUERIES, PITCH = few<HEAD, 1>::QUERY_PITCH, UNITS = few<HEAD, 1>::UNITS;

struct attention_room {
    __align__(128) bf16 qkv[(GROUP + 2) * ROWS][WIDTH];  /* rows are as wide as the stream; and so */
    __align__(128) bf16 o[WIDTH / BLOCKS][GROUP * HEAD]; /* as the cluster's queries */
    float4 own[WARPS][GROUP * HEAD / 4];                 /* what warps have summed, and */
    float4 sums[BLOCKS][GROUP * HEAD / 4];               /* blocks; in units, see unit_at() */
    __align__(16) float parts[WARPS][(GROUP + 2) * ROWS];
    __align__(16) float fused[(GROUP + 2) * HEAD]; /* the cluster's queries, key and value */
    float2 own_pairs[WARPS][GROUP], pairs[BLOCKS][GROUP];
    __align__(16) bf16 queries[(QUERIES + 2) * PITCH]; /* then the new key and the new value */
    __align__(16) bf16 attended[GROUP * HEAD];
    struct row_room stream;
    uint64_t barriers[4];
};
enum attention_barrier { QKV_THERE, O_THERE, MADE, JOINED };

/* Row `row` of the cluster's, its queries' before its key's and its value's, among the rows of all heads. */
static __device__ __forceinline__ int weight_row(const struct heads_call &heads, int kv_head, int group, int row)
{
    int unit = row / HEAD;
    int head = unit < group ? kv_head * group + unit : heads.heads + (unit - group) * heads.kv_heads + kv_head;
    return head * HEAD + row % HEAD;
}

/* By the first warp: its lanes share out the tiles of queries, keys and values, whose rows lie side by side, and the
 * rows of the output. */
static __device__ __forceinline__ void ask_for_attention(const struct attention_half_call &call, int kv_head, int block,
                                                         struct attention_room *room)
{
    const struct heads_call &heads = call.heads;
    int lane = (int)threadIdx.x, width = call.stream.width, group = heads.heads / heads.kv_heads,
        rows = (group + 2) * ROWS;
    int columns = group * HEAD, outputs = width / BLOCKS;
    for (int row = lane * TILE; row < rows; row += WARP * TILE)
        copy_bytes((bf16 *)room->qkv + row * width,
                   (const bf16 *)call.qkv +
                       (size_t)(unsigned)(weight_row(heads, kv_head, group, block * rows + row) * width),
                   (unsigned)(TILE * width) * sizeof(bf16), &room->barriers[QKV_THERE], EVICT_FIRST);
    for (int row = lane; row < outputs; row += WARP)
        copy_bytes((bf16 *)room->o + row * columns,
                   (const bf16 *)call.o +
                       (size_t)(unsigned)((block * outputs + row) * heads.heads * HEAD + kv_head * columns),
                   (unsigned)columns * sizeof(bf16), &room->barriers[O_THERE], EVICT_FIRST);
}

/* Head `unit` of the cluster's by one warp, from `fused` to where it is attended to or with; and the new key and value
 * to the cache by one of the blocks. */
static __device__ __forceinline__ void make_head(const struct heads_call &given, int unit, int group,
                                                 const struct head_rotation<HEAD / 64> &rotation,
                                                 struct attention_room *room, bf16 *new_row)
{
    struct heads_call heads = given;
    heads.head_size = HEAD;
    int lane = (int)threadIdx.x % WARP;
    const float *made = room->fused + unit * HEAD;
    bf16 *head = room->queries + (unit < group ? unit : QUERIES + unit - group) * PITCH;
    if (unit == group + 1)
        *(uint2 *)(head + 4 * lane) = pack_four(*(const float4 *)(made + 4 * lane));
    else
        rotate_head<bf16>(
            heads, rotation, [&](int i) { return made[i]; }, unit < group ? 1.0f / sqrtf((float)HEAD) : 1.0f, head);
    __syncwarp();
    if (new_row && lane < HEAD / 8)
        *(uint4 *)(new_row + lane * 8) = *(const uint4 *)(head + lane * 8);
}

/* A warp's keys up to `slot`, from `key` on, whose chunk is there if it has any; the one at `slot` is new. */
static __device__ __forceinline__ void attend_keys(struct running<HEAD, 1> &running, struct chunk<HEAD> &chunk,
                                                   const bf16 *keys, const bf16 *values, int key, int slot,
                                                   const struct attention_room *room)
{
    constexpr int ROUND = WARPS * BLOCKS * CHUNK;
    const bf16 *queries = room->queries + (int)threadIdx.x % WARP / 4 * PITCH + (int)threadIdx.x % 4 * 8;
    const bf16 *new_key = room->queries + QUERIES * PITCH, *new_value = new_key + PITCH;
    int last = max(slot - 1, 0);
    start(running);
#pragma unroll 1
    for (; key <= slot; key += ROUND) {
        bool is_new = key + CHUNK > slot, more = key + ROUND <= slot;
        float scores[1][2][4] = {};
        if (is_new)
            patch_keys<HEAD>(chunk, new_key, key, slot);
        add_scores<HEAD, 1>(scores, queries, chunk);
        if (more)
            fetch_keys<HEAD, HEAD>(chunk, keys, key + ROUND, last);
        if (is_new)
            mask<1>((uint32_t)ones(slot + 1 - key), scores);
        weigh<HEAD, 1, 2>(running, scores);
        if (is_new)
            patch_values<HEAD>(chunk, new_value, key, slot);
        add_values<HEAD, 1>(running, 0, scores, chunk);
        if (more)
            fetch_values<HEAD, HEAD>(chunk, values, key + ROUND, last);
    }
}

/* What the block's warps have left, and then what the cluster's blocks have, together: to `attended`. A thread has four
 * columns of a query. */
static __device__ __forceinline__ void join_all(struct attention_room *room, int block, int group)
{
    int query = (int)threadIdx.x / UNITS, unit = (int)threadIdx.x % UNITS, at = unit_at<HEAD>(query, unit);
    if (query < group) {
        struct few_sums parts[WARPS];
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            parts[w] = sums_at(&room->own_pairs[w][query], (const float *)room->own[w] + at);
        const struct few_sums all = join_sums(parts);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            send(&room->sums[block][at / 4], all.sums, b, &room->barriers[JOINED]);
            if (unit == 0)
                send(&room->pairs[block][query], make_float2(all.best, all.total), b, &room->barriers[JOINED]);
        }
    }
    barrier_wait(&room->barriers[JOINED], 0);
    if (query < group) {
        struct few_sums parts[BLOCKS];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            parts[b] = sums_at(&room->pairs[b][query], (const float *)room->sums[b] + at);
        const struct few_sums all = join_sums(parts);
        float share = __fdividef(1.0f, all.total);
        *(uint2 *)(room->attended + query * HEAD + column_of(unit)) =
            pack_four(make_float4(all.sums.x * share, all.sums.y * share, all.sums.z * share, all.sums.w * share));
    }
}

/* Grid: [KV head, block of its cluster]. */
static __global__ void __launch_bounds__(THREADS, 1) attention_half(const struct attention_half_call call)
{
    extern __shared__ float4 shared[];
    struct attention_room *room = (struct attention_room *)shared;
    const struct heads_call &heads = call.heads;
    int thread = (int)threadIdx.x, lane = thread % WARP, warp = warp_index();
    int kv_head = (int)blockIdx.x / BLOCKS, block = (int)blockIdx.x % BLOCKS;
    int width = call.stream.width, group = heads.heads / heads.kv_heads, units = group + 2, outputs = width / BLOCKS;
    let_next_start();

    /* Everything that no other kernel makes. */
    if (warp == 0) {
        const unsigned bytes[4] = {(unsigned)(units * ROWS * width * (int)sizeof(bf16)),
                                   (unsigned)(outputs * group * HEAD * (int)sizeof(bf16)),
                                   (unsigned)(units * HEAD * (int)sizeof(float)),
                                   (unsigned)(BLOCKS * group * (HEAD * (int)sizeof(float) + (int)sizeof(float2)))};
        expect(room->barriers, bytes);
        ask_for_attention(call, kv_head, block, room);
    }
    cluster_arrive_relaxed();
    float4 norm = {};
    if (4 * thread < width)
        norm = *(const float4 *)(call.stream.norm + 4 * thread);
    int position = heads.positions[0], slot = heads.slots[0], session = heads.sessions[0];
    const struct head_rotation<HEAD / 64> rotation =
        load_rotation<HEAD / 64>(heads, warp < group ? heads.q_norm : heads.k_norm, position);
    for (int i = thread; i < QUERIES * PITCH / 8; i += THREADS)
        ((uint4 *)room->queries)[i] = make_uint4(0, 0, 0, 0);
    size_t cache = (size_t)(session * heads.kv_heads + kv_head) * (size_t)heads.capacity * HEAD;
    bf16 *keys = (bf16 *)heads.keys + cache, *values = (bf16 *)heads.values + cache;
    ask_for_keys<HEAD>(keys, values, 0, slot, block * THREADS + thread, BLOCKS * THREADS);
    wait_for_previous();

    ready_row(call.stream, norm, &room->stream);
    __syncthreads();
    barrier_wait(&room->barriers[QKV_THERE], 0);
    constexpr int TILES = (GROUP + 2) * ROWS / TILE;
    float made[TILES][4] = {};
    multiply_stream(made, 0, TILES, call.stream, &room->stream, warp, [&](int s, int i) {
        return piece_at((const bf16 *)room->qkv + i * TILE * width + (warp * STEPS + s) * STEP, width);
    });
    leave_parts(room->parts, warp, made);
    int key = (warp * BLOCKS + block) * CHUNK;
    struct chunk<HEAD> chunk;
    if (key <= slot) {
        fetch_keys<HEAD, HEAD>(chunk, keys, key, max(slot - 1, 0));
        fetch_values<HEAD, HEAD>(chunk, values, key, max(slot - 1, 0));
    }
    __syncthreads();
    cluster_wait(); /* all barriers are there */
    if (2 * lane < units * ROWS)
        send((float2 *)&room->fused[block * units * ROWS + 2 * lane],
             sum_warps(room->parts, 2 * lane, scale(call.stream, &room->stream)), warp, &room->barriers[MADE]);
    barrier_wait(&room->barriers[MADE], 0);
    if (warp < units) {
        bf16 *new_row = (warp == group ? keys : values) + (size_t)(unsigned)slot * HEAD;
        make_head(heads, warp, group, rotation, room, warp >= group && block == 0 ? new_row : NULL);
    }
    __syncthreads();

    struct running<HEAD, 1> running;
    attend_keys(running, chunk, keys, values, key, slot, room);
    leave_sums<HEAD, 1>(running, group, (float *)room->own[warp], room->own_pairs[warp]);
    __syncthreads();
    join_all(room, block, group);
    __syncthreads();
    barrier_wait(&room->barriers[O_THERE], 0);
    int output = warp * 2 * TILE, columns = group * HEAD;
    if (output < outputs)
        put_added<GROUP * HEAD / STEP>(
            (const bf16 *)room->o + output * columns, columns, room->attended, columns / STEP,
            call.stream.out + (size_t)(unsigned)(kv_head * width + block * outputs + output));
}

void kernels_attention_half(const struct attention_half_call *call, cudaStream_t stream)
{
    constexpr size_t BYTES = sizeof(struct attention_room);
    static_assert(BYTES <= SHARED_MAXIMUM, "a block has so much");
    CUDA_CHECK(cudaFuncSetAttribute(attention_half, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
    launch_clusters(attention_half, BLOCKS, dim3((unsigned)(call->heads.kv_heads * BLOCKS)), THREADS, BYTES, stream,
                    *call);
}
