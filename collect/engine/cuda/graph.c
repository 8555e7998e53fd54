/* Calls whose shape is known beforehand are captured as CUDA graphs, one for each number of sessions, before anything
 * is measured. What differs from call to call (tokens, positions, lengths, paths) stands in memory that the graph
 * reads, so that a graph holds at every length of the cache. */
#include "collect/engine/cuda/cuda.h"

#include <stdlib.h>

#define BRANCH 8 /* nodes of a branch of the trees that are captured: how deep trees are is not captured */

void graph_shape(struct cuda *cuda, enum call call, int sessions)
{
    const struct model *drafter = cuda->options.drafter;
    int rows = call == CALL_STEP ? 1 : call == CALL_DRAFT ? drafter->block_size : cuda->options.nodes;
    struct segment *segments = xcalloc((size_t)sessions, sizeof *segments);
    struct kept_path *paths = xcalloc((size_t)sessions, sizeof *paths);
    int *parents = xcalloc((size_t)rows, sizeof *parents);
    static const int root = 0;
    for (int i = 0; i < rows; i++)
        parents[i] = i % BRANCH == 1 ? 0 : i - 1;
    for (int i = 0; i < sessions; i++) {
        segments[i] = (struct segment){i, rows, NULL, call == CALL_VERIFY ? parents : NULL};
        paths[i] = (struct kept_path){i, 1, &root};
    }
    if (call == CALL_COMMIT)
        batch_keep(cuda, paths, sessions, cuda->path_rows);
    else
        batch_make(cuda, call, call == CALL_DRAFT ? drafter : cuda->options.target, segments, sessions,
                   call == CALL_DRAFT);
    free(parents);
    free(paths);
    free(segments);
}

static void capture(struct cuda *cuda, enum call call, bool far, int sessions)
{
    graph_shape(cuda, call, sessions);
    for (int i = 0; far && i < cuda->gpu_count; i++)
        cuda->gpus[i].batch.reach = 0;
    if (call == CALL_STEP) /* which finds its batch there */
        batch_send(cuda, call);
    calls_queue(cuda, call); /* once as it is: kernels are loaded when first used */
    cuda_wait(cuda);
    FOR_GPUS(cuda, gpu)
        CUDA_CHECK(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    calls_queue(cuda, call);
    cudaGraph_t graphs[RANKS_MAXIMUM], *graph = graphs;
    FOR_GPUS(cuda, gpu) /* all, before anything else is asked of CUDA */
        CUDA_CHECK(cudaStreamEndCapture(gpu->stream, graph++));
    graph = graphs;
    FOR_GPUS(cuda, gpu) {
        CUDA_CHECK(cudaGraphInstantiate(&gpu->graphs[call][far][sessions - 1], *graph, 0));
        CUDA_CHECK(cudaGraphDestroy(*graph++));
        CUDA_CHECK(cudaGraphUpload(gpu->graphs[call][far][sessions - 1], gpu->stream));
    }
    cuda_wait(cuda);
}

static bool has_call(const struct cuda *cuda, enum call call)
{
    return call != CALL_PROMPT && (call == CALL_STEP) == !cuda->options.drafter;
}

/* Whether a call of so many sessions has other kernels beyond the reach of near ones. */
static bool has_far_call(const struct cuda *cuda, enum call call, int sessions)
{
    bool halves = call == CALL_STEP && sessions == 1 && cuda->mlp_clusters;
    return has_call(cuda, call) && cuda->options.capacity > ATTENTION_NEAR &&
           (call == CALL_DRAFT || call == CALL_VERIFY || halves);
}

void graph_capture_all(struct cuda *cuda)
{
    for (enum call call = 0; call < CALL_COUNT; call++)
        for (int far = 0; far <= 1; far++) {
            for (int i = 0; i < cuda->gpu_count; i++)
                cuda->gpus[i].graphs[call][far] = xcalloc((size_t)cuda->options.sessions, sizeof(cudaGraphExec_t));
            for (int sessions = 1; sessions <= cuda->options.sessions; sessions++)
                if (far ? has_far_call(cuda, call, sessions) : has_call(cuda, call))
                    capture(cuda, call, far, sessions);
        }
    graph_restart_steps(cuda);
}

void graph_restart_steps(struct cuda *cuda)
{
    cuda->ahead.launched = cuda->ahead.answered = 0;
    FOR_GPUS(cuda, gpu)
        CUDA_CHECK(cudaMemsetAsync(gpu->steps, 0, sizeof *gpu->steps, gpu->stream));
}

void graph_launch(struct cuda *cuda, enum call call, int sessions)
{
    bool far = cuda->host.reach > ATTENTION_NEAR && has_far_call(cuda, call, sessions);
    FOR_GPUS(cuda, gpu) {
        watch_mark(cuda, gpu, WATCH_CALLS, "call");
        CUDA_CHECK(cudaGraphLaunch(gpu->graphs[call][far][sessions - 1], gpu->stream));
        watch_mark(cuda, gpu, WATCH_CALLS, NULL);
    }
}

void graph_destroy_all(struct cuda *cuda)
{
    FOR_GPUS(cuda, gpu)
        for (int i = 0; i < 2 * CALL_COUNT; i++) {
            cudaGraphExec_t *graphs = gpu->graphs[i / 2][i % 2];
            for (int s = 0; graphs && s < cuda->options.sessions; s++)
                if (graphs[s])
                    CUDA_CHECK(cudaGraphExecDestroy(graphs[s]));
            free(graphs);
        }
}
