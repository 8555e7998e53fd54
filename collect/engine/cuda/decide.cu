/* The last step of a choice, over the slices of the vocabulary, and copies between the host's memory and a GPU's. */
#include "collect/engine/cuda/meeting.cuh"

#define THREADS 128

static __device__ void tell(const struct meeting &meeting, unsigned side, int row, const struct leader &own)
{
    const struct words<4> words = {
        {
            __float_as_uint(own.best), __float_as_uint(own.second), (unsigned)own.token, 0
        }
    };
    for (int other = 0; other < meeting.gpus; other++)
        if (other != meeting.index)
            send(meeting, side, other, (size_t)row * 4, words);
}

static __device__ struct leader hear(const struct meeting &meeting, unsigned side, int row, int from)
{
    size_t at = (size_t)row * 4;
    const struct words<4> words = receive(meeting, side, from, at, expect<4>(meeting, side, from, at));
    return {__uint_as_float(words.values[0]), __uint_as_float(words.values[1]), (int)words.values[2]};
}

static __device__ struct leader all_slices(const struct decide_call &call, unsigned side, int row)
{
    const struct meeting &meeting = call.meeting;
    struct leader leader = {-INFINITY, -INFINITY, INT32_MAX};
    if (meeting.gpus > 1)
        tell(meeting, side, row, call.leaders[meeting.index][row]);
    for (int i = 0; i < call.slices; i++) {
        bool here = meeting.gpus <= 1 || i == meeting.index;
        struct leader other = here ? call.leaders[i][row] : hear(meeting, side, row, i);
        bool better = other.best > leader.best || (other.best == leader.best && other.token < leader.token);
        float loser = better ? leader.best : other.best;
        leader.second = fmaxf(fmaxf(leader.second, other.second), loser);
        if (better) {
            leader.best = other.best;
            leader.token = other.token;
        }
    }
    return leader;
}

static __global__ void decide(const struct decide_call call)
{
    int row = (int)(blockIdx.x * THREADS + threadIdx.x);
    float temperature = row < call.rows ? call.how[row].temperature : 0;
    wait_for_previous();
    let_next_start();
    unsigned side = call.meeting.gpus > 1 ? meet(call.meeting) : 0;
    unsigned step = call.decode_on ? *call.steps : 0;
    if (row < call.rows) {
        const struct leader leader = all_slices(call, side, row);
        float margin = leader.best - leader.second;
        struct choice choice;
        choice.token = leader.token == INT32_MAX ? 0 : leader.token; /* nothing but NaN: the first */
        choice.margin = temperature > 0 ? margin * temperature : margin;
        if (call.chosen)
            call.chosen[row] = choice;
        if (call.decode_on) {
            call.tokens[row] = choice.token;
            call.positions[row]++;
            call.slots[row]++;
            call.segments[row].base++;
            call.next[row].position++;
            if (call.ring)
                call.ring[step % (unsigned)call.ring_steps * (unsigned)call.ring_rows + (unsigned)row] = choice;
        }
    }
    __syncthreads();
    if (call.decode_on && row == 0)
        *call.steps = step + 1;
}

void kernels_decide(const struct decide_call *call, cudaStream_t stream)
{
    launch(decide, dim3((unsigned)((call->rows + THREADS - 1) / THREADS)), THREADS, 0, stream, *call);
}

static __global__ void copy(uint4 *to, const uint4 *from, size_t count)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    wait_for_previous();
    let_next_start();
    if (at < count)
        to[at] = from[at];
}

void kernels_copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    size_t count = (bytes + sizeof(uint4) - 1) / sizeof(uint4);
    launch(copy, dim3((unsigned)((count + 511) / 512)), 512, 0, stream, (uint4 *)to, (const uint4 *)from, count);
}
