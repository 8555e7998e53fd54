/* The CUDA backend: NVIDIA GPUs, one rank each, or one GPU that all ranks share. Its numbers are backend.h's; the CPU
 * backend is what it is tested against. */
#include "collect/engine/cuda/cuda.h"

#include "collect/base/clock.h"
#include "collect/engine/bfloat16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_LIMIT_NS (60 * (int64_t)1000000000) /* a GPU that takes longer is lost */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void *row_at(const struct cuda *cuda, void *rows, int row, int width)
{
    return (char *)rows + (size_t)row * (size_t)width * element_size(cuda->type);
}

/* --- waiting ---------------------------------------------------------------------------------------------------- */

static void check_answer(const struct gpu *gpu, cudaError_t status, int64_t since)
{
    if (status != cudaErrorNotReady)
        CUDA_CHECK(status);
    else if (clock_now_ns() - since > ANSWER_LIMIT_NS)
        die("GPU %d has not answered for %d s: it, or another that it waits for, hangs", gpu->ordinal,
            (int)(ANSWER_LIMIT_NS / 1000000000));
}

void cuda_wait(const struct cuda *cuda)
{
    int64_t since = clock_now_ns();
    FOR_GPUS(cuda, gpu)
        for (cudaError_t status; (status = cudaStreamQuery(gpu->stream)) != cudaSuccess;)
            check_answer(gpu, status, since);
}

static void wait_for_event(const struct cuda *cuda, cudaEvent_t event)
{
    int64_t since = clock_now_ns();
    for (cudaError_t status; (status = cudaEventQuery(event)) != cudaSuccess;)
        check_answer(cuda->gpus, status, since);
}

/* Waits for a call's answer, and notes how long a commit before it took. */
static void finish(struct cuda *cuda)
{
    cuda_wait(cuda);
    if (!cuda->commit_waits)
        return;
    float milliseconds;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, cuda->marks[0], cuda->marks[1]));
    cuda->base.late_commit_ns = (int64_t)((double)milliseconds * 1e6);
    cuda->commit_waits = false;
}

/* --- the choice ------------------------------------------------------------------------------------------------- */

/* Columns of a rank's slice of the vocabulary that may be chosen. */
static int columns_of(const struct cuda *cuda, const struct rank *rank)
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
                kernels_choose(rank->logits, rows, slice, columns_of(cuda, rank), rank->index * slice,
                               gpu->batch.how + first + from, rank->choose_partial, rank->leaders + from, gpu->stream);
    }
}

/* Queues the choices of rows [first, first + count) into cuda->choices[0, count); decode_on: the step after follows. */
static void choose_rows(struct cuda *cuda, int first, int count, bool decode_on)
{
    lead_rows(cuda, first, count);
    FOR_GPUS(cuda, gpu) {
        bool answers = gpu == cuda->gpus;
        const struct batch *batch = &gpu->batch;
        struct decide_call call = {.meeting = gpu->meeting,
                                   .rows = count,
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
        for (int i = 0; i < cuda->gpu_count; i++)
            FOR_RANKS(&cuda->gpus[i], rank)
                call.leaders[call.slices++] = rank->leaders;
        kernels_decide(&call, gpu->stream);
    }
}

/* Whether some session's token is drawn from a part of the vocabulary, which needs it sorted. */
static bool is_limited(const struct cuda *cuda, const struct segment *segments, int count)
{
    for (int i = 0; i < count; i++) {
        const struct sampling *sampling = &cuda->sampling[segments[i].session];
        if (sampling->temperature > 0 && (sampling->top_k > 0 || sampling->top_p < 1))
            return true;
    }
    return false;
}

/* Copies row `at` of the logits, all slices, to the host. */
static void read_logits(struct cuda *cuda, int at, float *out)
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
        read_logits(cuda, i % cuda->head_rows, cuda->row_logits);
        cuda_wait(cuda);
        cuda->choices[i] =
            sample_choose(cuda->row_logits, cuda->options.vocabulary, &cuda->sampling[cuda->host.sessions[row]],
                          cuda->host.positions[row] + 1, &cuda->scratch);
    }
}

static void choose(struct cuda *cuda, const struct segment *segments, int segment_count, int first, int count)
{
    if (is_limited(cuda, segments, segment_count))
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
                int columns = columns_of(cuda, rank), own = least(width, columns);
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
            kernels_compact(layers->keys, layers->values, layers->model->layer_count, cuda->options.sessions,
                            layers->kv_heads, cuda->options.capacity, (size_t)layers->model->head_size * size,
                            kept->paths, kept->path_count, kept->nodes, gpu->stream);
        }
        if (drafter)
            kernels_gather(gpu->features, kept->rows, kept->count,
                           (size_t)drafter->feature_count * (size_t)drafter->hidden_size * size, gpu->kept_features,
                           gpu->stream);
    }
    if (drafter)
        layers_add_context(cuda, true);
}

void cuda_queue_call(struct cuda *cuda, enum call call)
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

static void run_target(struct cuda *cuda, const struct segment *segments, int count)
{
    batch_make(cuda, CALL_PROMPT, cuda->options.target, segments, count, false);
    batch_send(cuda, CALL_PROMPT);
    layers_run(cuda, false);
    cuda->drafted = false;
    for (int i = 0; i < cuda->host.rows; i++)
        cuda->row_of[i] = i;
}

/* --- running ahead ---------------------------------------------------------------------------------------------- */

/* What runs ahead is not wanted: the next batch is made anew, and what was written behind the committed length is
 * overwritten. */
static void drop_ahead(struct cuda *cuda)
{
    cuda->ahead.pending = false;
    cuda->ahead.answered = cuda->ahead.launched;
}

static void launch_step(struct cuda *cuda)
{
    graph_launch(cuda, CALL_STEP, cuda->ahead.count);
    cuda_select(cuda->gpus);
    CUDA_CHECK(cudaEventRecord(cuda->ahead.done[cuda->ahead.launched++ % CUDA_AHEAD], cuda->gpus->stream));
}

/* Whether the pending step is the one that is asked for. */
static bool is_pending(const struct cuda *cuda, const struct segment *segments, int count)
{
    bool same = cuda->ahead.pending && count == cuda->ahead.count;
    for (int i = 0; same && i < count; i++)
        same = segments[i].session == cuda->host.segments[i].session && segments[i].tokens[0] == cuda->ahead.last[i];
    return same;
}

static void start_steps(struct cuda *cuda, const struct segment *segments, int count)
{
    drop_ahead(cuda);
    cuda_wait(cuda); /* the copy of an earlier batch may still wait */
    batch_make(cuda, CALL_STEP, cuda->options.target, segments, count, false);
    batch_send(cuda, CALL_STEP);
    cuda->drafted = false;
    cuda->ahead.count = count;
    for (int i = 0; i < count; i++)
        cuda->row_of[i] = i;
    launch_step(cuda);
}

static void step(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen)
{
    bool room = true;
    if (!is_pending(cuda, segments, count))
        start_steps(cuda, segments, count);
    for (int i = 0; i < count; i++)
        room = room && cuda->lengths[segments[i].session] + 2 <= cuda->options.capacity;
    if (room)
        launch_step(cuda);
    cuda->ahead.pending = room;
    unsigned answer = cuda->ahead.answered++ % CUDA_AHEAD;
    wait_for_event(cuda, cuda->ahead.done[answer]);
    for (int i = 0; i < count; i++) {
        cuda->ahead.given[i] = segments[i].tokens[0];
        chosen[i] = cuda->ahead.ring[answer * (unsigned)cuda->options.sessions + (unsigned)i];
        cuda->ahead.last[i] = chosen[i].token;
        cuda->lengths[segments[i].session]++;
    }
}

/* --- operations ------------------------------------------------------------------------------------------------- */

/* Waits for what still runs, so that no request pays for another's. */
static void cuda_reset(struct backend *backend, int session, const struct sampling *sampling)
{
    struct cuda *cuda = (struct cuda *)backend;
    drop_ahead(cuda);
    finish(cuda);
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

static void extend_together(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen)
{
    run_target(cuda, segments, count);
    choose(cuda, segments, count, 0, count);
    finish_extend(cuda);
    memcpy(chosen, cuda->choices, (size_t)count * sizeof *chosen);
}

static void extend_prompt(struct cuda *cuda, const struct segment *segment, struct choice *chosen)
{
    for (int done = 0; done < segment->count; done += CUDA_PROMPT_CHUNK) {
        int rows = least(segment->count - done, CUDA_PROMPT_CHUNK);
        const struct segment chunk = {segment->session, rows, segment->tokens + done, NULL};
        run_target(cuda, &chunk, 1);
        if (done + rows == segment->count)
            choose(cuda, &chunk, 1, rows - 1, 1);
        finish_extend(cuda);
    }
    *chosen = cuda->choices[0];
}

static void cuda_extend(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cuda *cuda = (struct cuda *)backend;
    int longest = 0;
    for (int i = 0; i < count; i++)
        longest = segments[i].count > longest ? segments[i].count : longest;
    if (longest == 1 && !cuda->options.drafter && !is_limited(cuda, segments, count)) {
        step(cuda, segments, count, chosen);
        return;
    }
    drop_ahead(cuda);
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
    drop_ahead(cuda);
    pad_trees(cuda, segments, count);
    batch_make(cuda, CALL_VERIFY, cuda->options.target, cuda->padded, count, false);
    cuda->drafted = false;
    if (is_limited(cuda, segments, count) || !cuda->options.drafter) {
        batch_send(cuda, CALL_VERIFY);
        layers_run(cuda, false);
        choose(cuda, segments, count, 0, cuda->host.rows);
    } else {
        graph_launch(cuda, CALL_VERIFY, count);
    }
    finish(cuda);
    for (int i = 0; i < rows; i++)
        chosen[i] = cuda->choices[cuda->row_of[i]];
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
    } else {
        batch_send(cuda, CALL_COMMIT);
        keep_paths(cuda);
    }
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

/* The likeliest tokens of a row in all slices of the vocabulary, best first. */
static void merge_slices(struct cuda *cuda, int row, int width, int *tokens, float *log_probabilities)
{
    struct {
        const int *tokens;
        const float *values;
        int left;
        double log_sum;
    } slices[RANKS_MAXIMUM];
    int count = 0;
    double best = -HUGE_VAL, sum = 0;
    for (int i = 0; i < cuda->gpu_count; i++)
        FOR_RANKS(&cuda->gpus[i], rank) {
            int own = least(cuda->options.draft_width, columns_of(cuda, rank));
            slices[count].tokens = rank->draft_tokens + (size_t)row * (size_t)own;
            slices[count].values = rank->draft_values + (size_t)row * (size_t)own;
            slices[count].left = own;
            slices[count++].log_sum = own > 0 ? (double)rank->draft_sums[row] : -HUGE_VAL;
            best = fmax(best, slices[count - 1].log_sum);
        }
    for (int i = 0; i < count; i++)
        sum += exp(slices[i].log_sum - best);
    best += log(sum);
    for (int k = 0; k < width; k++) {
        int from = 0;
        double value = -HUGE_VAL;
        for (int i = 0; i < count; i++) {
            double own = slices[i].left > 0 ? (double)*slices[i].values + slices[i].log_sum : 0;
            if (slices[i].left > 0 && (slices[from].left == 0 || own > value)) {
                from = i;
                value = own;
            }
        }
        tokens[k] = *slices[from].tokens++;
        log_probabilities[k] = (float)(value - best);
        slices[from].values++;
        slices[from].left--;
    }
}

static void copy_draft(struct cuda *cuda, int first_row, struct tree_draft *draft)
{
    size_t width = (size_t)cuda->options.draft_width;
    const struct rank *rank = cuda->gpus->ranks;
    for (int slot = 0; slot < draft->slots; slot++) {
        size_t from = (size_t)(first_row + slot) * width, to = (size_t)slot * (size_t)draft->width;
        if (cuda->options.ranks > 1) {
            merge_slices(cuda, first_row + slot, draft->width, draft->tokens + to, draft->log_probabilities + to);
            continue;
        }
        memcpy(draft->tokens + to, rank->draft_tokens + from, (size_t)draft->width * sizeof(int));
        memcpy(draft->log_probabilities + to, rank->draft_values + from, (size_t)draft->width * sizeof(float));
    }
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
        cuda_queue_call(cuda, CALL_DRAFT);
    finish(cuda);
    for (int i = 0; i < count; i++) {
        drafts[i].slots = block - 1;
        copy_draft(cuda, i * block, &drafts[i]);
    }
}

/* --- looking inside --------------------------------------------------------------------------------------------- */

static void inspect_features(struct cuda *cuda, int row, float *out)
{
    int width = cuda->options.drafter->feature_count * cuda->options.drafter->hidden_size;
    size_t bytes = (size_t)width * element_size(cuda->type);
    void *held = xmalloc(bytes);
    CUDA_CHECK(cudaMemcpyAsync(held, row_at(cuda, cuda->gpus->features, row, width), bytes, cudaMemcpyDeviceToHost,
                               cuda->gpus->stream));
    cuda_wait(cuda);
    if (cuda->type == ELEMENT_FLOAT32)
        memcpy(out, held, bytes);
    for (int i = 0; cuda->type == ELEMENT_BFLOAT16 && i < width; i++)
        out[i] = bfloat16_to_float(((const uint16_t *)held)[i]);
    free(held);
}

/* How many of rows [first, first + count) that were asked for stand one behind the other in the batch. */
static int run_length(const struct cuda *cuda, int first, int count)
{
    int length = 1;
    while (length < count && cuda->row_of[first + length] == cuda->row_of[first] + length)
        length++;
    return least(length, cuda->head_rows);
}

/* Where a step runs ahead, what is looked at is the one before it: that is run once more. */
static void return_to_last(struct cuda *cuda)
{
    bool ahead = cuda->ahead.pending;
    drop_ahead(cuda);
    cuda_wait(cuda);
    if (!ahead)
        return;
    struct segment *segments = xcalloc((size_t)cuda->ahead.count, sizeof *segments);
    for (int i = 0; i < cuda->ahead.count; i++) {
        segments[i] = (struct segment){cuda->host.segments[i].session, 1, &cuda->ahead.given[i], NULL};
        cuda->lengths[segments[i].session]--;
    }
    run_target(cuda, segments, cuda->ahead.count);
    for (int i = 0; i < cuda->ahead.count; i++)
        cuda->lengths[segments[i].session]++;
    free(segments);
}

static void cuda_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out)
{
    struct cuda *cuda = (struct cuda *)backend;
    size_t vocabulary = (size_t)cuda->options.target->vocabulary_size;
    if (first < 0 || first + count > cuda->host.rows)
        die("inspect: rows %d to %d of %d", first, first + count, cuda->host.rows);
    return_to_last(cuda);
    for (int i = 0; what == INSPECT_FEATURES && i < count; i++)
        inspect_features(cuda, cuda->row_of[first + i],
                         out + (size_t)i *
                                   (size_t)(cuda->options.drafter->feature_count * cuda->options.drafter->hidden_size));
    if (what == INSPECT_FEATURES)
        return;
    for (int done = 0, rows; done < count; done += rows) {
        rows = run_length(cuda, first + done, count - done);
        layers_run_head(cuda, cuda->drafted, cuda->row_of[first + done], rows);
        for (int i = 0; i < rows; i++)
            read_logits(cuda, i, out + (size_t)(done + i) * vocabulary);
        cuda_wait(cuda);
    }
}

static void run_step(struct cuda *cuda, enum backend_step step, int rows, int committed)
{
    bool drafter = step == BACKEND_DRAFT;
    const struct segment segment = {0, rows, NULL, NULL};
    int length = cuda->lengths[0];
    cuda->lengths[0] = committed;
    batch_make(cuda, drafter ? CALL_DRAFT : CALL_VERIFY, drafter ? cuda->options.drafter : cuda->options.target,
               &segment, 1, drafter);
    cuda->lengths[0] = length;
    batch_send(cuda, drafter ? CALL_DRAFT : CALL_VERIFY);
    layers_run_products(cuda, drafter);
    for (int first = drafter; first < rows; first += cuda->head_rows)
        layers_run_head(cuda, drafter, first, least(rows - first, cuda->head_rows));
}

void cuda_settle(struct cuda *cuda)
{
    drop_ahead(cuda);
    finish(cuda);
}

static void cuda_run_products(struct backend *backend, enum backend_step step, int rows, int committed)
{
    struct cuda *cuda = (struct cuda *)backend;
    cuda_settle(cuda);
    if (step == BACKEND_COMMIT)
        layers_run_context_products(cuda, rows);
    else
        run_step(cuda, step, rows, committed);
    cuda_wait(cuda);
}

const struct backend_class backend_cuda = {
    .name = "cuda",
    .chooses_by_timing = true,
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
