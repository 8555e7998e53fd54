/* Looking inside: what the last call left, and its products alone; for tests, audits and benchmarks. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

static int least(int a, int b)
{
    return a < b ? a : b;
}

static void *row_at(const struct cuda *cuda, void *rows, int row, int width)
{
    return (char *)rows + (size_t)row * (size_t)width * element_size(cuda->type);
}

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
    bool ahead = cuda->ahead.launched != cuda->ahead.answered;
    ahead_drop(cuda);
    cuda_wait(cuda);
    if (!ahead)
        return;
    struct segment *segments = xcalloc((size_t)cuda->ahead.count, sizeof *segments);
    for (int i = 0; i < cuda->ahead.count; i++) {
        segments[i] = (struct segment){cuda->host.segments[i].session, 1, &cuda->ahead.given[i], NULL};
        cuda->lengths[segments[i].session]--;
    }
    calls_run_target(cuda, segments, cuda->ahead.count);
    for (int i = 0; i < cuda->ahead.count; i++)
        cuda->lengths[segments[i].session]++;
    free(segments);
}

void cuda_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out)
{
    struct cuda *cuda = (struct cuda *)backend;
    size_t vocabulary = (size_t)cuda->options.target->vocabulary_size;
    if (what == INSPECT_STATE) {
        recurrent_inspect(cuda, first, out);
        return;
    }
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
            calls_read_logits(cuda, i, out + (size_t)(done + i) * vocabulary);
        cuda_wait(cuda);
    }
}

static void run_step(struct cuda *cuda, enum backend_step step, const int *parents, int rows, int committed)
{
    bool drafter = step == BACKEND_DRAFT;
    const struct segment segment = {0, rows, NULL, parents};
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

void cuda_run_products(struct backend *backend, enum backend_step step, const int *parents, int rows, int committed)
{
    struct cuda *cuda = (struct cuda *)backend;
    cuda_settle(cuda);
    if (step == BACKEND_COMMIT)
        layers_run_context_products(cuda, rows);
    else
        run_step(cuda, step, parents, rows, committed);
    cuda_wait(cuda);
}
