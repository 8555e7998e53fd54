/* The CUDA backend: NVIDIA GPUs, one rank each, or one GPU that all ranks share. Its numbers are backend.h's; the CPU
 * backend is what it is tested against. */
#include "collect/engine/cuda/cuda.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

static void check_answer(const struct cuda *cuda, const struct gpu *gpu, cudaError_t status, int64_t since)
{
    if (status != cudaErrorNotReady)
        CUDA_CHECK(status);
    else if (clock_now_ns() - since > cuda->answer_limit_ns)
        die_at_once("GPU %d has not answered for %d s: it, or another that it waits for, hangs", gpu->ordinal,
                    (int)(cuda->answer_limit_ns / SECOND_NS));
}

/* What was computed without another GPU's share is worth nothing. */
static void check_company(const struct cuda *cuda)
{
    if (cuda->lost && *(volatile unsigned *)cuda->lost)
        die_at_once("a GPU has waited for another's share of a sum for %d s: that one hangs, or was not given its work",
                    (int)(cuda->answer_limit_ns / SECOND_NS));
}

void cuda_wait(const struct cuda *cuda)
{
    int64_t since = clock_now_ns();
    FOR_GPUS(cuda, gpu)
        for (cudaError_t status; (status = cudaStreamQuery(gpu->stream)) != cudaSuccess;)
            check_answer(cuda, gpu, status, since);
    check_company(cuda);
}

void cuda_wait_for(const struct cuda *cuda, cudaEvent_t event)
{
    int64_t since = clock_now_ns();
    for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess;)
        check_answer(cuda, cuda->gpus, status, since);
    check_company(cuda);
}

/* Notes how long the commit took. */
static void finish_commit(struct cuda *cuda)
{
    float milliseconds;
    cuda_wait_for(cuda, cuda->marks[1]);
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, cuda->marks[0], cuda->marks[1]));
    cuda->base.late_commit_ns = (int64_t)((double)milliseconds * 1e6);
    cuda->commit_waits = false;
}

/* Waits for a call's answer, and before that for a commit before it: its time is read while the call runs. */
static void finish(struct cuda *cuda)
{
    if (cuda->commit_waits)
        finish_commit(cuda);
    cuda_wait(cuda);
}

void cuda_settle(struct cuda *cuda)
{
    ahead_drop(cuda);
    finish(cuda);
}

/* --- operations ------------------------------------------------------------------------------------------------- */

/* Waits for what still runs, so that no request pays for another's. */
static void cuda_reset(struct backend *backend, int session, const struct sampling *sampling)
{
    struct cuda *cuda = (struct cuda *)backend;
    ahead_drop(cuda);
    finish(cuda);
    recurrent_reset(cuda, session);
    cuda->lengths[session] = 0;
    cuda->sampling[session] = *sampling;
}

/* Hands all rows' features to the drafter's cache, and waits. */
static void finish_extend(struct cuda *cuda)
{
    if (cuda->options.drafter)
        layers_add_context(cuda, false);
    finish(cuda);
    for (int i = 0; i < cuda->host.segment_count; i++)
        cuda->lengths[cuda->host.segments[i].session] += cuda->host.segments[i].count;
}

/* Whether graphs of steps and verifications end in what these sessions need: choices, or lists of the likeliest. */
static bool are_captured(const struct cuda *cuda, const struct segment *segments, int count)
{
    return calls_are_limited(cuda, segments, count) == (cuda->top_width > 0);
}

/* One row each. The host chooses where the step was captured; otherwise it would run ahead. */
static void extend_together(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen)
{
    bool captured = !cuda->options.drafter && are_captured(cuda, segments, count);
    if (captured)
        calls_make_target(cuda, CALL_STEP, segments, count);
    else
        calls_run_target(cuda, segments, count);
    calls_ask(cuda, segments, count, 0, count);
    if (captured)
        graph_launch(cuda, CALL_STEP, count);
    else
        calls_choose(cuda);
    finish_extend(cuda);
    for (int i = 0; i < count; i++)
        chosen[i] = calls_answer(cuda, i);
}

static void extend_prompt(struct cuda *cuda, const struct segment *segment, struct choice *chosen)
{
    for (int done = 0; done < segment->count; done += CUDA_PROMPT_CHUNK) {
        int rows = least(segment->count - done, CUDA_PROMPT_CHUNK);
        const struct segment chunk = {segment->session, rows, segment->tokens + done, NULL};
        calls_run_target(cuda, &chunk, 1);
        if (done + rows == segment->count) {
            calls_ask(cuda, &chunk, 1, rows - 1, 1);
            calls_choose(cuda);
        }
        finish_extend(cuda);
    }
    *chosen = calls_answer(cuda, 0);
}

static void cuda_extend(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cuda *cuda = (struct cuda *)backend;
    int longest = 0;
    for (int i = 0; i < count; i++)
        longest = segments[i].count > longest ? segments[i].count : longest;
    if (longest == 1 && !cuda->options.drafter && !cuda->top_width && are_captured(cuda, segments, count)) {
        ahead_step(cuda, segments, count, chosen);
        return;
    }
    ahead_drop(cuda);
    cuda_wait(cuda);
    if (longest == 1)
        extend_together(cuda, segments, count, chosen);
    for (int i = 0; i < count && longest > 1; i++)
        extend_prompt(cuda, &segments[i], &chosen[i]);
}

/* Trees with nodes below their root until each has the most that it may have, which is what was captured. */
static void pad_trees(struct cuda *cuda, const struct segment *segments, int count)
{
    int nodes = cuda->options.nodes, row = 0;
    for (int i = 0; i < count; i++) {
        const struct segment *segment = &segments[i];
        int *tokens = cuda->padded_tokens + i * nodes, *parents = cuda->padded_parents + i * nodes;
        for (int node = 0; node < nodes; node++) {
            bool inside = node < segment->count;
            tokens[node] = inside ? segment->tokens[node] : 0;
            parents[node] = !inside ? 0 : segment->parents ? segment->parents[node] : node - 1;
            if (inside)
                cuda->row_of[row++] = i * nodes + node;
        }
        cuda->padded[i] = (struct segment){segment->session, nodes, tokens, parents};
    }
}

static void cuda_verify(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cuda *cuda = (struct cuda *)backend;
    int rows = 0;
    for (int i = 0; i < count; i++)
        rows += segments[i].count;
    ahead_drop(cuda);
    pad_trees(cuda, segments, count);
    batch_make(cuda, CALL_VERIFY, cuda->options.target, cuda->padded, count, false);
    cuda->drafted = false;
    calls_ask(cuda, segments, count, 0, cuda->host.rows);
    if (cuda->options.drafter && are_captured(cuda, segments, count)) {
        graph_launch(cuda, CALL_VERIFY, count);
    } else {
        batch_send(cuda, CALL_VERIFY);
        layers_run(cuda, false);
        calls_choose(cuda);
    }
    finish(cuda);
    for (int i = 0; i < rows; i++)
        chosen[i] = calls_answer(cuda, cuda->row_of[i]);
}

static void cuda_commit(struct backend *backend, const struct kept_path *paths, int count)
{
    struct cuda *cuda = (struct cuda *)backend;
    int rows = cuda->path_rows;
    for (int i = 0; i < count; i++)
        rows = paths[i].length > rows ? paths[i].length : rows;
    if (cuda->commit_waits) /* for its staging */
        finish(cuda);
    batch_keep(cuda, paths, count, rows);
    cuda_select(cuda->gpus);
    CUDA_CHECK(cudaEventRecord(cuda->marks[0], cuda->gpus->stream));
    if (cuda->options.drafter && rows == cuda->path_rows) {
        graph_launch(cuda, CALL_COMMIT, count);
    } else
        calls_queue(cuda, CALL_COMMIT);
    cuda_select(cuda->gpus);
    CUDA_CHECK(cudaEventRecord(cuda->marks[1], cuda->gpus->stream));
    cuda->commit_waits = true;
    for (int i = 0; i < count; i++)
        cuda->lengths[paths[i].session] += paths[i].length;
}

/* Blocks of an anchor and masks, one for each session. */
static void make_blocks(struct cuda *cuda, const int *sessions, const int *anchors, int count)
{
    int block = cuda->options.drafter->block_size;
    for (int i = 0; i < count; i++) {
        int *tokens = cuda->block_tokens + i * block;
        for (int slot = 0; slot < block; slot++)
            tokens[slot] = slot == 0 ? anchors[i] : cuda->options.drafter->mask_token;
        cuda->block_segments[i] = (struct segment){sessions[i], block, tokens, NULL};
    }
    batch_make(cuda, CALL_DRAFT, cuda->options.drafter, cuda->block_segments, count, true);
    for (int i = 0; i < count * block; i++)
        cuda->row_of[i] = i;
}

static void cuda_draft(struct backend *backend, const int *sessions, const int *anchors, int count,
                       struct tree_draft *drafts)
{
    struct cuda *cuda = (struct cuda *)backend;
    int block = cuda->options.drafter->block_size;
    make_blocks(cuda, sessions, anchors, count);
    cuda->drafted = true;
    if (block == cuda->block)
        graph_launch(cuda, CALL_DRAFT, count);
    else
        calls_queue(cuda, CALL_DRAFT);
    finish(cuda);
    for (int i = 0; i < count; i++) {
        struct tree_draft *draft = &drafts[i];
        draft->slots = block - 1;
        for (int slot = 0; slot < draft->slots; slot++) {
            size_t at = (size_t)slot * (size_t)draft->width;
            likeliest_read_draft(cuda, i * block + slot, draft->width, draft->tokens + at,
                                 draft->log_probabilities + at);
        }
    }
}

const struct backend_class backend_cuda = {
    .name = "cuda",
    .chooses_by_timing = true,
    .has_recurrence = true,
    .open = cuda_open,
    .describe_device = cuda_describe_device,
    .measure_rates = cuda_measure_rates,
    .list_gpus = cuda_list_gpus,
    .describe = cuda_describe,
    .reset = cuda_reset,
    .extend = cuda_extend,
    .verify = cuda_verify,
    .commit = cuda_commit,
    .draft = cuda_draft,
    .inspect = cuda_inspect,
    .run_products = cuda_run_products,
    .busy_ns = cuda_busy_ns,
    .measure_parts = cuda_measure_parts,
    .close = cuda_close,
};
