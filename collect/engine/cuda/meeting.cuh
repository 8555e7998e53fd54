/* GPUs that write into each other's memory meet inside a kernel. Each has a mailbox: [2, senders, size] words, all of
 * them EMPTY until another GPU writes there. A word is its own flag: whoever waits for it reads until it is there, and
 * leaves EMPTY behind. So nothing need be fenced, and a row waits for nothing but that row.
 *
 * Meetings take the mailbox's two sides in turn. In each, every GPU hears from every other, or from one that has: so
 * whoever writes to a side knows that all are through with the meeting before the last one, which was the last to read
 * it. */
#ifndef COLLECT_ENGINE_CUDA_MEETING_CUH
#define COLLECT_ENGINE_CUDA_MEETING_CUH

#include "collect/engine/cuda/element.cuh"

#define EMPTY 0xffffffffu /* a NaN that no arithmetic makes */
#define SOME_NAN 0x7fffffffu
#define TRIES_BEFORE_CLOCK 4096

/* W words that are written and read together: 1 or 4. */
template <int W> struct words {
    unsigned values[W];
};

/* Which side of the mailboxes this meeting uses. All threads of all blocks of a kernel call it once; the last block to
 * do so turns to the other. */
static __device__ __forceinline__ unsigned meet(const struct meeting &meeting)
{
    __shared__ unsigned side;
    unsigned blocks = gridDim.x * gridDim.y;
    if (threadIdx.x == 0)
        side = *(volatile unsigned *)meeting.side;
    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(meeting.arrived, blocks - 1) == blocks - 1)
        *meeting.side = !side;
    return side;
}

/* Where GPU `sender` leaves its words in a mailbox. */
static __device__ __forceinline__ size_t mail_at(const struct meeting &meeting, unsigned side, int sender)
{
    return ((size_t)side * (size_t)meeting.gpus + (size_t)sender) * meeting.size;
}

template <int W> static __device__ __forceinline__ void put_words(unsigned *to, const struct words<W> &words)
{
    if (W == 4)
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.values[0]),
                     "r"(words.values[W / 4]), "r"(words.values[W / 2]), "r"(words.values[W - 1])
                     : "memory");
    else
        *(volatile unsigned *)to = words.values[0];
}

template <int W> static __device__ __forceinline__ void put_empty(unsigned *to)
{
    struct words<W> words;
#pragma unroll
    for (int w = 0; w < W; w++)
        words.values[w] = EMPTY;
    put_words(to, words);
}

template <int W> static __device__ __forceinline__ struct words<W> look(const unsigned *from) {
    struct words<W> words;
    if (W == 4)
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words.values[0]), "=r"(words.values[W / 4]), "=r"(words.values[W / 2]),
                       "=r"(words.values[W - 1])
                     : "l"(from)
                     : "memory");
    else
        words.values[0] = *(const volatile unsigned *)from;
    return words;
}

/* Sends words to GPU `to`, at word `at` of what this one sends. */
template <int W>
static __device__ __forceinline__ void send(const struct meeting &meeting, unsigned side, int to, size_t at,
                                            struct words<W> words)
{
#pragma unroll
    for (int w = 0; w < W; w++)
        words.values[w] = words.values[w] == EMPTY ? SOME_NAN : words.values[w];
    put_words(meeting.mailboxes[to] + mail_at(meeting, side, meeting.index) + at, words);
}

template <int W> static __device__ __forceinline__ bool is_whole(const struct words<W> &words)
{
    bool whole = true;
#pragma unroll
    for (int w = 0; w < W; w++)
        whole = whole && words.values[w] != EMPTY;
    return whole;
}

static __device__ __forceinline__ unsigned long long now_ns(void)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Whether to look again: not where another GPU keeps this one waiting for longer than it may, which the host sees. */
static __device__ __noinline__ bool may_wait(unsigned *lost, unsigned long long limit_ns, unsigned long long since)
{
    if (now_ns() - since > limit_ns)
        *(volatile unsigned *)lost = 1;
    return !*(volatile unsigned *)lost;
}

/* A first look at the words of `sender`; receive() waits until they are there. Apart, so that many looks may be under
 * way before the first is waited for. */
template <int W>
static __device__ __forceinline__ struct words<W> expect(const struct meeting &meeting, unsigned side, int sender,
                                                         size_t at) {
    return look<W>(meeting.mailboxes[meeting.index] + mail_at(meeting, side, sender) + at);
}

template <int W>
static __device__ __forceinline__ struct words<W> receive(const struct meeting &meeting, unsigned side, int sender,
                                                          size_t at, struct words<W> words) {
    unsigned *from = meeting.mailboxes[meeting.index] + mail_at(meeting, side, sender) + at;
    unsigned long long since = 0;
    for (unsigned tries = 1; !is_whole(words); tries++) {
        if (tries == TRIES_BEFORE_CLOCK)
            since = now_ns();
        if (tries % TRIES_BEFORE_CLOCK == 0 && !may_wait(meeting.lost, meeting.limit_ns, since))
            break;
        words = look<W>(from);
    }
    put_empty<W>(from);
    return words;
}

#endif
