/* The CUDA backend: one NVIDIA GPU. Its numbers are backend.h's; the CPU backend is what it is tested against. */
#include "collect/engine/cuda/cuda.h"

#include "collect/engine/bfloat16.h"

#include <stdlib.h>
#include <string.h>

static void finish(const struct cuda *cuda)
{
    CUDA_CHECK(cudaStreamSynchronize(cuda->stream));
}

static void *row_at(const struct cuda *cuda, void *rows, int row, int width)
{
    return (char *)rows + (size_t)row * (size_t)width * element_size(cuda->type);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- the head --------------------------------------------------------------------------------------------------- */

/* Logits of rows [first, first + count) of `normed`, at most head_rows. */
static void run_head(const struct cuda *cuda, int first, int count)
{
    product_apply(cuda->head_product, count, row_at(cuda, cuda->normed, first, cuda->options.target->hidden_size),
                  cuda->head, cuda->logits, false);
}

/* Whether some row's token is drawn from a part of the vocabulary, which needs it sorted. */
static bool is_limited(const struct cuda *cuda, int first, int count)
{
    for (int row = first; row < first + count; row++) {
        const struct sampling *sampling = &cuda->sampling[cuda->host.sessions[row]];
        if (sampling->temperature > 0 && (sampling->top_k > 0 || sampling->top_p < 1))
            return true;
    }
    return false;
}

/* The choice for batch row `row` on the host, from logits row `at`. */
static struct choice choose_on_host(const struct cuda *cuda, int row, int at)
{
    size_t vocabulary = (size_t)cuda->options.target->vocabulary_size;
    CUDA_CHECK(cudaMemcpyAsync(cuda->row_logits, cuda->logits + (size_t)at * vocabulary, vocabulary * sizeof(float),
                               cudaMemcpyDeviceToHost, cuda->stream));
    finish(cuda);
    return sample_choose(cuda->row_logits, cuda->options.vocabulary, &cuda->sampling[cuda->host.sessions[row]],
                         cuda->host.positions[row] + 1, &cuda->scratch);
}

/* Queues the choices of rows [first, first + count) into cuda->choices[0, count). */
static void choose_rows(const struct cuda *cuda, int first, int count)
{
    bool limited = is_limited(cuda, first, count);
    for (int from = 0; from < count; from += cuda->head_rows) {
        int rows = least(count - from, cuda->head_rows);
        run_head(cuda, first + from, rows);
        for (int i = 0; limited && i < rows; i++)
            cuda->choices[from + i] = choose_on_host(cuda, first + from + i, i);
        if (limited)
            continue;
        kernels_choose(cuda->logits, rows, cuda->options.target->vocabulary_size, cuda->options.vocabulary,
                       cuda->batch.how + first + from, cuda->choose_partial, cuda->chosen, cuda->stream);
        CUDA_CHECK(cudaMemcpyAsync(cuda->choices + from, cuda->chosen, (size_t)rows * sizeof *cuda->chosen,
                                   cudaMemcpyDeviceToHost, cuda->stream));
    }
}

/* --- operations ------------------------------------------------------------------------------------------------- */

static void cuda_reset(struct backend *backend, int session, const struct sampling *sampling)
{
    struct cuda *cuda = (struct cuda *)backend;
    cuda->lengths[session] = 0;
    cuda->sampling[session] = *sampling;
}

static void run_target(struct cuda *cuda, const struct segment *segments, int count)
{
    batch_load(cuda, cuda->options.target, segments, count, false);
    layers_run(cuda, &cuda->target);
}

/* Hands all rows' features to the drafter's cache, and waits. */
static void finish_extend(struct cuda *cuda)
{
    const struct batch *batch = &cuda->batch;
    if (cuda->options.drafter)
        layers_add_context(cuda, cuda->features, batch->rows, batch->positions, batch->sessions);
    finish(cuda);
    for (int i = 0; i < batch->segment_count; i++)
        cuda->lengths[cuda->host.segments[i].session] += cuda->host.segments[i].count;
}

static void extend_together(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen)
{
    run_target(cuda, segments, count);
    choose_rows(cuda, 0, count);
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
            choose_rows(cuda, rows - 1, 1);
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
    if (longest == 1)
        extend_together(cuda, segments, count, chosen);
    for (int i = 0; i < count && longest > 1; i++)
        extend_prompt(cuda, &segments[i], &chosen[i]);
}

static void cuda_verify(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cuda *cuda = (struct cuda *)backend;
    run_target(cuda, segments, count);
    choose_rows(cuda, 0, cuda->host.rows);
    finish(cuda);
    memcpy(chosen, cuda->choices, (size_t)cuda->host.rows * sizeof *chosen);
}

/* The kept rows of all paths, on the GPU. */
struct kept_rows {
    int count;
    const struct compact_path *paths;               /* [path count] */
    const int *nodes, *rows, *positions, *sessions; /* [count]; rows: of the batch */
};

static struct kept_rows send_paths(struct cuda *cuda, const struct kept_path *paths, int count)
{
    struct staging *staging = &cuda->staging;
    int total = 0, at = 0;
    for (int i = 0; i < count; i++)
        total += paths[i].length;
    staging_clear(staging);
    struct compact_path *compact = staging_take(staging, (size_t)count, sizeof *compact);
    int *nodes = staging_take(staging, (size_t)total, sizeof *nodes);
    int *rows = staging_take(staging, (size_t)total, sizeof *rows);
    int *positions = staging_take(staging, (size_t)total, sizeof *positions);
    int *sessions = staging_take(staging, (size_t)total, sizeof *sessions);
    for (int i = 0; i < count; i++) {
        int session = paths[i].session, base = cuda->lengths[session];
        compact[i] = (struct compact_path){session, base, at, paths[i].length};
        for (int j = 0; j < paths[i].length; j++, at++) {
            nodes[at] = paths[i].nodes[j];
            rows[at] = cuda->first_rows[session] + nodes[at];
            positions[at] = base + j;
            sessions[at] = session;
        }
    }
    staging_send(staging, cuda->stream);
    return (struct kept_rows){total,
                              staging_device(staging, compact),
                              staging_device(staging, nodes),
                              staging_device(staging, rows),
                              staging_device(staging, positions),
                              staging_device(staging, sessions)};
}

static void cuda_commit(struct backend *backend, const struct kept_path *paths, int count)
{
    struct cuda *cuda = (struct cuda *)backend;
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    const struct kept_rows kept = send_paths(cuda, paths, count);
    size_t size = element_size(cuda->type);
    kernels_compact(cuda->target.keys, cuda->target.values, target->layer_count, cuda->options.sessions,
                    target->kv_head_count, cuda->options.capacity, (size_t)target->head_size * size, kept.paths, count,
                    kept.nodes, cuda->stream);
    if (drafter) {
        size_t width = (size_t)drafter->feature_count * (size_t)drafter->hidden_size * size;
        kernels_gather(cuda->features, kept.rows, kept.count, width, cuda->kept_features, cuda->stream);
        layers_add_context(cuda, cuda->kept_features, kept.count, kept.positions, kept.sessions);
    }
    finish(cuda);
    for (int i = 0; i < count; i++)
        cuda->lengths[paths[i].session] += paths[i].length;
}

/* Blocks of an anchor and masks, one for each session. */
static void load_blocks(struct cuda *cuda, const int *sessions, const int *anchors, int count)
{
    int block = cuda->options.drafter->block_size;
    for (int i = 0; i < count; i++) {
        int *tokens = cuda->block_tokens + i * block;
        for (int slot = 0; slot < block; slot++)
            tokens[slot] = slot == 0 ? anchors[i] : cuda->options.drafter->mask_token;
        cuda->block_segments[i] = (struct segment){sessions[i], block, tokens, NULL};
    }
    batch_load(cuda, cuda->options.drafter, cuda->block_segments, count, true);
}

/* Queues the likeliest `width` tokens of batch rows [1, rows) into draft_tokens and draft_values, row 1 first. */
static void read_rows(const struct cuda *cuda, int rows, int width)
{
    for (int first = 1; first < rows; first += cuda->head_rows) {
        int count = least(rows - first, cuda->head_rows);
        size_t at = (size_t)(first - 1) * (size_t)width, entries = (size_t)count * (size_t)width;
        run_head(cuda, first, count);
        kernels_top(cuda->logits, count, cuda->options.target->vocabulary_size, cuda->options.vocabulary, width,
                    cuda->top_tokens, cuda->top_values, cuda->stream);
        CUDA_CHECK(cudaMemcpyAsync(cuda->draft_tokens + at, cuda->top_tokens, entries * sizeof(int),
                                   cudaMemcpyDeviceToHost, cuda->stream));
        CUDA_CHECK(cudaMemcpyAsync(cuda->draft_values + at, cuda->top_values, entries * sizeof(float),
                                   cudaMemcpyDeviceToHost, cuda->stream));
    }
}

static void cuda_draft(struct backend *backend, const int *sessions, const int *anchors, int count,
                       struct tree_draft *drafts)
{
    struct cuda *cuda = (struct cuda *)backend;
    int block = cuda->options.drafter->block_size, width = cuda->options.draft_width;
    load_blocks(cuda, sessions, anchors, count);
    layers_run(cuda, &cuda->drafter);
    read_rows(cuda, count * block, width);
    finish(cuda);
    for (int i = 0; i < count; i++) {
        struct tree_draft *draft = &drafts[i];
        draft->slots = block - 1;
        for (int slot = 0; slot < draft->slots; slot++) {
            size_t from = (size_t)(i * block + slot) * (size_t)width, to = (size_t)slot * (size_t)draft->width;
            memcpy(draft->tokens + to, cuda->draft_tokens + from, (size_t)draft->width * sizeof(int));
            memcpy(draft->log_probabilities + to, cuda->draft_values + from, (size_t)draft->width * sizeof(float));
        }
    }
}

static void inspect_features(const struct cuda *cuda, int first, int count, float *out)
{
    int width = cuda->options.drafter->feature_count * cuda->options.drafter->hidden_size;
    size_t elements = (size_t)count * (size_t)width, bytes = elements * element_size(cuda->type);
    void *held = xmalloc(bytes);
    CUDA_CHECK(
        cudaMemcpyAsync(held, row_at(cuda, cuda->features, first, width), bytes, cudaMemcpyDeviceToHost, cuda->stream));
    finish(cuda);
    if (cuda->type == ELEMENT_FLOAT32)
        memcpy(out, held, bytes);
    for (size_t i = 0; cuda->type == ELEMENT_BFLOAT16 && i < elements; i++)
        out[i] = bfloat16_to_float(((const uint16_t *)held)[i]);
    free(held);
}

static void cuda_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out)
{
    struct cuda *cuda = (struct cuda *)backend;
    size_t vocabulary = (size_t)cuda->options.target->vocabulary_size;
    if (first < 0 || first + count > cuda->host.rows)
        die("inspect: rows %d to %d of %d", first, first + count, cuda->host.rows);
    if (what == INSPECT_FEATURES) {
        inspect_features(cuda, first, count, out);
        return;
    }
    for (int done = 0; done < count; done += cuda->head_rows) {
        int rows = least(count - done, cuda->head_rows);
        run_head(cuda, first + done, rows);
        CUDA_CHECK(cudaMemcpyAsync(out + (size_t)done * vocabulary, cuda->logits,
                                   (size_t)rows * vocabulary * sizeof *out, cudaMemcpyDeviceToHost, cuda->stream));
        finish(cuda);
    }
}

static void run_step(struct cuda *cuda, enum backend_step step, int rows, int committed)
{
    const struct layers *layers = step == BACKEND_DRAFT ? &cuda->drafter : &cuda->target;
    const struct segment segment = {0, rows, NULL, NULL};
    int length = cuda->lengths[0];
    cuda->lengths[0] = committed;
    batch_load(cuda, layers->model, &segment, 1, step == BACKEND_DRAFT);
    cuda->lengths[0] = length;
    layers_run_products(cuda, layers);
    for (int first = step == BACKEND_DRAFT; first < rows; first += cuda->head_rows)
        run_head(cuda, first, least(rows - first, cuda->head_rows));
}

static void cuda_run_products(struct backend *backend, enum backend_step step, int rows, int committed)
{
    struct cuda *cuda = (struct cuda *)backend;
    if (step == BACKEND_COMMIT)
        layers_run_context_products(cuda, rows);
    else
        run_step(cuda, step, rows, committed);
    finish(cuda);
}

const struct backend_class backend_cuda = {
    .name = "cuda",
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
    .close = cuda_close,
};
