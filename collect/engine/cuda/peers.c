/* How GPUs hear of each other: in meetings, where each writes into the others' memory (meeting.cuh); or, where some
 * cannot reach each other's, by NCCL. Both bring what each rank has to every GPU, which adds it in the ranks' order, so
 * that the bits are the same either way. */
#include "collect/engine/cuda/cuda.h"

#include "collect/engine/cuda/nccl.h"

#include <stdlib.h>
#include <string.h>

/* Whether the GPUs reach each other; CLEANSLATE_PEERS=0: as if they did not. */
static bool are_peers(const struct cuda *cuda)
{
    const char *wanted = getenv("CLEANSLATE_PEERS");
    bool peers = !wanted || strcmp(wanted, "0") != 0;
    for (int i = 0; i < cuda->gpu_count; i++)
        for (int j = 0; j < cuda->gpu_count && peers; j++) {
            int reachable = 1;
            if (i != j)
                CUDA_CHECK(cudaDeviceCanAccessPeer(&reachable, cuda->gpus[i].ordinal, cuda->gpus[j].ordinal));
            peers = reachable;
        }
    return peers;
}

static void enable(const struct cuda *cuda)
{
    FOR_GPUS(cuda, gpu)
        for (int i = 0; i < cuda->gpu_count; i++) {
            if (cuda->gpus[i].ordinal == gpu->ordinal)
                continue;
            cudaError_t status = cudaDeviceEnablePeerAccess(cuda->gpus[i].ordinal, 0);
            if (status != cudaErrorPeerAccessAlreadyEnabled)
                CUDA_CHECK(status);
            else
                cudaGetLastError();
        }
}

int peers_open(struct cuda *cuda, struct error *error)
{
    int ordinals[RANKS_MAXIMUM];
    if (cuda->gpu_count == 1)
        return 0;
    if (are_peers(cuda)) {
        enable(cuda);
        return 0;
    }
    for (int i = 0; i < cuda->gpu_count; i++)
        ordinals[i] = cuda->gpus[i].ordinal;
    struct error reason = {0};
    cuda->nccl = nccl_open(ordinals, cuda->gpu_count, &reason);
    if (cuda->nccl)
        return 0;
    return fail(
        error,
        "these %d GPUs cannot reach each other's memory, which NCCL would make up for: %s. Or choose GPUs of one "
        "NVLink or PCIe root by CUDA_VISIBLE_DEVICES, or another tensor_parallel",
        cuda->gpu_count, reason.message);
}

/* Half of the rows at a time: the mailboxes have two sides. */
size_t peers_mailbox_words(const struct cuda *cuda)
{
    size_t rows = (size_t)cuda->most_rows, sums = (rows + 1) / 2 * (size_t)cuda->options.target->hidden_size;
    return sums > 4 * rows ? sums : 4 * rows;
}

void peers_introduce(struct cuda *cuda)
{
    *cuda->lost = 0;
    FOR_GPUS(cuda, gpu) {
        struct meeting *meeting = &gpu->meeting;
        size_t words = 2 * (size_t)cuda->gpu_count * peers_mailbox_words(cuda);
        if (cuda->gpu_count == 1 || cuda->nccl)
            continue;
        meeting->gpus = cuda->gpu_count;
        meeting->index = (int)(gpu - cuda->gpus);
        meeting->size = peers_mailbox_words(cuda);
        meeting->shared_bytes = cuda->gpu_count > 2 ? MEETING_SHARED_BYTES : SIZE_MAX;
        meeting->lost = cuda->lost;
        meeting->limit_ns = (unsigned long long)cuda->answer_limit_ns;
        for (int i = 0; i < cuda->gpu_count; i++)
            meeting->mailboxes[i] = cuda->gpus[i].mailbox;
        CUDA_CHECK(cudaMemset(gpu->mailbox, 0xff, words * sizeof *gpu->mailbox));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
}

void peers_close(struct cuda *cuda)
{
    nccl_close(cuda->nccl);
}

/* Queues that all GPUs' from[bytes] are brought to every GPU's mailbox, one behind the other. */
static void gather(const struct cuda *cuda, const void *const *from, size_t bytes)
{
    void *to[RANKS_MAXIMUM];
    cudaStream_t streams[RANKS_MAXIMUM];
    for (int i = 0; i < cuda->gpu_count; i++) {
        to[i] = cuda->gpus[i].mailbox;
        streams[i] = cuda->gpus[i].stream;
    }
    nccl_gather(cuda->nccl, from, to, bytes, streams);
}

void peers_send_sums(const struct cuda *cuda, int which, int rows)
{
    const void *from[RANKS_MAXIMUM];
    if (!cuda->nccl)
        return;
    for (int i = 0; i < cuda->gpu_count; i++)
        from[i] = cuda->gpus[i].ranks->sums[which];
    gather(cuda, from, (size_t)rows * (size_t)cuda->options.target->hidden_size * sizeof(float));
}

void peers_find_sums(const struct cuda *cuda, const struct gpu *gpu, int which, int rows, const float **sums)
{
    size_t each = (size_t)rows * (size_t)cuda->options.target->hidden_size;
    FOR_RANKS(gpu, rank)
        sums[rank->index] = rank->sums[which];
    for (int i = 0; cuda->nccl && i < cuda->gpu_count; i++)
        sums[i] = (const float *)(const void *)gpu->mailbox + (size_t)i * each;
}

void peers_send_leaders(const struct cuda *cuda, int rows)
{
    const void *from[RANKS_MAXIMUM];
    if (!cuda->nccl)
        return;
    for (int i = 0; i < cuda->gpu_count; i++)
        from[i] = cuda->gpus[i].ranks->leaders;
    gather(cuda, from, (size_t)rows * sizeof(struct leader));
}

void peers_find_leaders(const struct cuda *cuda, const struct gpu *gpu, int rows, const struct leader **leaders)
{
    FOR_RANKS(gpu, rank)
        leaders[rank->index] = rank->leaders;
    for (int i = 0; cuda->nccl && i < cuda->gpu_count; i++)
        leaders[i] = (const struct leader *)gpu->mailbox + (size_t)i * (size_t)rows;
}
