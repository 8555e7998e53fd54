/* What the calls to the GPUs are made of, from a batch to the choice of tokens: queued as it comes, or captured. */
#include "collect/engine/cuda/cuda.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- the choice ------------------------------------------------------------------------------------------------- */

/* Columns of a rank's slice of the vocabulary that may be chosen. */
int calls_columns(const struct cuda *cuda, const struct rank *rank)
{
    int slice = cuda->options.target->vocabulary_size / cuda->options.ranks;
    int left = cuda->options.vocabulary - rank->index * slice;
    return left < 0 ? 0 : least(left, slice);
}

/* Queues each slice's leaders of the batch's rows [first, first + count) into leaders[0, count). */
static void lead_rows(struct cuda *cuda, int first, int count)
{
    int slice = cuda->options.target->vocabulary_size / cuda->options.ranks;
    for (int from = 0; from < count; from += cuda->head_rows) {
        int rows = least(count - from, cuda->head_rows);
        layers_run_head(cuda, false, first + from, rows);
        FOR_GPUS(cuda, gpu)
            watch_mark(cuda, gpu, WATCH_PARTS, "choose");
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank)
                kernels_choose(rank->logits, rows, slice, calls_columns(cuda, rank), rank->index * slice,
                               gpu->batch.how + first + from, rank->choose_partial, rank->leaders + from, gpu->stream);
    }
}

/* Queues the choices of rows [first, first + count) into cuda->choices[0, count); decode_on: the step after follows. */
static void choose_rows(struct cuda *cuda, int first, int count, bool decode_on)
{
    lead_rows(cuda, first, count);
    peers_send_leaders(cuda, count);
    FOR_GPUS(cuda, gpu) {
        bool answers = gpu == cuda->gpus;
        const struct batch *batch = &gpu->batch;
        struct decide_call call = {.meeting = gpu->meeting,
                                   .rows = count,
                                   .slices = cuda->options.ranks,
                                   .how = batch->how + first,
                                   .chosen = answers && !decode_on ? cuda->choices : NULL,
                                   .decode_on = decode_on,
                                   .tokens = batch->tokens,
                                   .positions = batch->positions,
                                   .slots = batch->slots,
                                   .segments = batch->segments,
                                   .next = batch->how,
                                   .steps = gpu->steps,
                                   .ring = answers ? cuda->ahead.ring : NULL,
                                   .ring_steps = CUDA_AHEAD,
                                   .ring_rows = cuda->options.sessions};
        peers_find_leaders(cuda, gpu, count, call.leaders);
        kernels_decide(&call, gpu->stream);
    }
}

/* Whether some session's token is drawn from a part of the vocabulary, which needs it sorted. */
bool calls_are_limited(const struct cuda *cuda, const struct segment *segments, int count)
{
    for (int i = 0; i < count; i++) {
        const struct sampling *sampling = &cuda->sampling[segments[i].session];
        if (sampling->temperature > 0 && (sampling->top_k > 0 || sampling->top_p < 1))
            return true;
    }
    return false;
}

/* Copies row `at` of the logits, all slices, to the host. */
void calls_read_logits(struct cuda *cuda, int at, float *out)
{
    size_t slice = (size_t)(cuda->options.target->vocabulary_size / cuda->options.ranks);
    FOR_GPUS(cuda, gpu)
        FOR_RANKS(gpu, rank)
            CUDA_CHECK(cudaMemcpyAsync(out + (size_t)rank->index * slice, rank->logits + (size_t)at * slice,
                                       slice * sizeof *out, cudaMemcpyDeviceToHost, gpu->stream));
}

/* The choices of rows [first, first + count) on the host. */
static void choose_on_host(struct cuda *cuda, int first, int count)
{
    for (int i = 0; i < count; i++) {
        int row = first + i;
        if (i % cuda->head_rows == 0)
            layers_run_head(cuda, false, row, least(count - i, cuda->head_rows));
        calls_read_logits(cuda, i % cuda->head_rows, cuda->row_logits);
        cuda_wait(cuda);
        cuda->choices[i] =
            sample_choose(cuda->row_logits, cuda->options.vocabulary, &cuda->sampling[cuda->host.sessions[row]],
                          cuda->host.positions[row] + 1, &cuda->scratch);
    }
}

void calls_choose(struct cuda *cuda, const struct segment *segments, int segment_count, int first, int count)
{
    if (calls_are_limited(cuda, segments, segment_count))
        choose_on_host(cuda, first, count);
    else
        choose_rows(cuda, first, count, false);
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

/* The likeliest tokens of rows [1, rows) of the batch, to the host. */
static void read_drafts(struct cuda *cuda, int rows)
{
    int slice = cuda->options.target->vocabulary_size / cuda->options.ranks, width = cuda->options.draft_width;
    for (int first = 1; first < rows; first += cuda->head_rows) {
        int count = least(rows - first, cuda->head_rows);
        layers_run_head(cuda, true, first, count);
        FOR_GPUS(cuda, gpu)
            watch_mark(cuda, gpu, WATCH_PARTS, "top");
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank) {
                int columns = calls_columns(cuda, rank), own = least(width, columns);
                size_t at = (size_t)(first - 1) * (size_t)own;
                if (own > 0)
                    kernels_top(rank->logits, count, slice, columns, rank->index * slice, own, rank->top_partial,
                                rank->draft_tokens + at, rank->draft_values + at, rank->draft_sums + first - 1,
                                gpu->stream);
            }
    }
}

static void keep_paths(struct cuda *cuda)
{
    const struct model *drafter = cuda->options.drafter;
    size_t size = element_size(cuda->type);
    FOR_GPUS(cuda, gpu) {
        const struct kept *kept = &gpu->kept;
        watch_mark(cuda, gpu, WATCH_PARTS, "compact");
        FOR_RANKS(gpu, rank) {
            const struct layers *layers = &rank->target;
            if (layers_attending(layers) == 0)
                continue;
            kernels_compact(layers->keys, layers->values, layers_attending(layers), cuda->options.sessions,
                            layers->kv_heads, cuda->options.capacity, (size_t)layers->model->head_size * size,
                            kept->paths, kept->path_count, kept->nodes, gpu->stream);
        }
        if (cuda->options.target->recurrent_count)
            recurrent_commit(cuda, gpu);
        if (drafter)
            kernels_gather(gpu->features, kept->rows, kept->count,
                           (size_t)drafter->feature_count * (size_t)drafter->hidden_size * size, gpu->kept_features,
                           gpu->stream);
    }
    if (drafter)
        layers_add_context(cuda, true);
}

void calls_queue(struct cuda *cuda, enum call call)
{
    if (call != CALL_STEP) /* which finds what the step before it left */
        batch_send(cuda, call);
    switch (call) {
    case CALL_STEP:
        layers_run(cuda, false);
        choose_rows(cuda, 0, cuda->host.rows, true);
        break;
    case CALL_DRAFT:
        layers_run(cuda, true);
        read_drafts(cuda, cuda->host.rows);
        break;
    case CALL_VERIFY:
        layers_run(cuda, false);
        choose_rows(cuda, 0, cuda->host.rows, false);
        break;
    case CALL_COMMIT:
        keep_paths(cuda);
        break;
    case CALL_PROMPT:
    case CALL_COUNT:
        die("a call that is not captured");
    }
}

void calls_run_target(struct cuda *cuda, const struct segment *segments, int count)
{
    batch_make(cuda, CALL_PROMPT, cuda->options.target, segments, count, false);
    batch_send(cuda, CALL_PROMPT);
    layers_run(cuda, false);
    cuda->drafted = false;
    for (int i = 0; i < cuda->host.rows; i++)
        cuda->row_of[i] = i;
}
