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

bool calls_are_limited(const struct cuda *cuda, const struct segment *segments, int count)
{
    for (int i = 0; i < count; i++)
        if (sample_candidates(&cuda->sampling[segments[i].session], cuda->options.vocabulary) > 0)
            return true;
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

void calls_ask(struct cuda *cuda, const struct segment *segments, int segment_count, int first, int count)
{
    bool limited = calls_are_limited(cuda, segments, segment_count), listed = limited && cuda->top_width > 0;
    int last = (count - 1) / cuda->head_rows * cuda->head_rows;
    cuda->asked = (struct asked){first, count, limited, listed, listed ? last : -1};
}

void calls_choose(struct cuda *cuda)
{
    const struct asked *asked = &cuda->asked;
    if (asked->listed)
        likeliest_list(cuda, false, asked->first, asked->count);
    else if (!asked->limited)
        choose_rows(cuda, asked->first, asked->count, false);
}

/* Of the whole row's logits; where the head must run for them, as it did for the lists. */
static struct choice choose_in_row(struct cuda *cuda, int index, const struct sampling *sampling, int position)
{
    struct asked *asked = &cuda->asked;
    int head = index / cuda->head_rows * cuda->head_rows;
    if (asked->head != head)
        layers_run_head(cuda, false, asked->first + head, least(asked->count - head, cuda->head_rows));
    asked->head = head;
    calls_read_logits(cuda, index - head, cuda->row_logits);
    cuda_wait(cuda);
    return sample_choose(cuda->row_logits, cuda->options.vocabulary, sampling, position, &cuda->scratch);
}

struct choice calls_answer(struct cuda *cuda, int index)
{
    const struct asked *asked = &cuda->asked;
    struct choice choice;
    if (!asked->limited)
        return cuda->choices[index];
    const struct sampling *sampling = &cuda->sampling[cuda->host.sessions[asked->first + index]];
    int position = cuda->host.positions[asked->first + index] + 1;
    if (asked->listed && likeliest_choose(cuda, index, sampling, position, &choice))
        return choice;
    return choose_in_row(cuda, index, sampling, position);
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

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
    bool listed = cuda->top_width > 0, follows = call == CALL_STEP && !listed;
    if (!follows) /* what the step before it left */
        batch_send(cuda, call);
    switch (call) {
    case CALL_DRAFT:
        layers_run(cuda, true);
        likeliest_list(cuda, true, 1, cuda->host.rows - 1); /* none of the first anchor */
        break;
    case CALL_STEP:
    case CALL_VERIFY:
        layers_run(cuda, false);
        if (listed)
            likeliest_list(cuda, false, 0, cuda->host.rows);
        else
            choose_rows(cuda, 0, cuda->host.rows, follows);
        break;
    case CALL_COMMIT:
        keep_paths(cuda);
        break;
    case CALL_PROMPT:
    case CALL_COUNT:
        die("a call that is not captured");
    }
}

void calls_make_target(struct cuda *cuda, enum call call, const struct segment *segments, int count)
{
    batch_make(cuda, call, cuda->options.target, segments, count, false);
    cuda->drafted = false;
    for (int i = 0; i < cuda->host.rows; i++)
        cuda->row_of[i] = i;
}

void calls_run_target(struct cuda *cuda, const struct segment *segments, int count)
{
    calls_make_target(cuda, CALL_PROMPT, segments, count);
    batch_send(cuda, CALL_PROMPT);
    layers_run(cuda, false);
}
