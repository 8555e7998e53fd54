#include "collect/engine/cpu/recurrence_state.h"

#include "collect/engine/cpu/kernels.h"
#include "collect/engine/cpu/stack.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#define PARALLEL_ROWS 4          /* fewer rows are not worth waking other threads */
#define LENGTH_EPSILON 1e-6f     /* the authors', under the root of a key's or query's squared length */
#define SOFTPLUS_IS_LINEAR 20.0f /* the authors': from here on log(1 + exp x) is x */

/* Rows of one session, each behind its parent, by their places among what is kept of rows. */
struct lineage {
    int session, first, count;
    const int *nodes;   /* [count], places behind `first`; NULL: 0, 1, 2, ... */
    const int *parents; /* [count]; NULL: each is behind the one before */
};

static int place_of(const struct lineage *lineage, int row)
{
    return lineage->first + (lineage->nodes ? lineage->nodes[row] : row);
}

static int parent_of(const int *parents, int row)
{
    return parents ? parents[row] : row - 1;
}

/* --- where things are ------------------------------------------------------------------------------------------- */

static float *state_at(const struct recurrence *recurrence, int layer, int session, int head)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    size_t index = ((size_t)layer * (size_t)recurrence->sessions + (size_t)session) * (size_t)sizes->value_heads;
    return recurrence->states + (index + (size_t)head) * (size_t)sizes->key_size * (size_t)sizes->value_size;
}

static size_t input_bytes(const struct recurrence *recurrence)
{
    return (size_t)recurrence->channels * product_type_size(recurrence->type);
}

/* Row `row` of a window, from 0, the oldest. */
static char *window_at(const struct recurrence *recurrence, int layer, int session, int row)
{
    size_t index = (size_t)layer * (size_t)recurrence->sessions + (size_t)session;
    return recurrence->windows +
           (index * (size_t)(recurrence->sizes.kernel_size - 1) + (size_t)row) * input_bytes(recurrence);
}

static char *input_at(const struct recurrence *recurrence, const struct recurrent_rows *rows, int place)
{
    return rows->inputs + (size_t)place * input_bytes(recurrence);
}

static float *query_at(const struct recurrence *recurrence, int row, int value_head)
{
    return recurrence->mixed + (size_t)row * (size_t)recurrence->channels +
           (size_t)(value_head / recurrence->group) * (size_t)recurrence->sizes.key_size;
}

static float *key_at(const struct recurrence *recurrence, int row, int value_head)
{
    return query_at(recurrence, row, value_head) + recurrence->sizes.key_heads * recurrence->sizes.key_size;
}

static const float *value_at(const struct recurrence *recurrence, int row, int value_head)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    return recurrence->mixed + (size_t)row * (size_t)recurrence->channels + 2 * sizes->key_heads * sizes->key_size +
           value_head * sizes->value_size;
}

static float *output_at(const struct recurrence *recurrence, int row, int value_head)
{
    return recurrence->output + (size_t)row * (size_t)recurrence_out_width(recurrence) +
           (size_t)value_head * (size_t)recurrence->sizes.value_size;
}

static struct recurrent_scratch *own_scratch(const struct recurrence *recurrence)
{
    return &recurrence->scratch[omp_get_thread_num()];
}

/* --- before the state: what is kept of a row, convolution, lengths ---------------------------------------------- */

static float softplus(float x)
{
    return x > SOFTPLUS_IS_LINEAR ? x : log1pf(expf(x));
}

/* Takes from a fused row what is kept of it. */
static void keep_row(const struct recurrence *recurrence, const struct recurrent_weights *weights, const float *fused,
                     const struct recurrent_rows *rows, int place)
{
    int heads = recurrence->sizes.value_heads;
    const float *b = fused + recurrence->channels + recurrence_out_width(recurrence), *a = b + heads;
    float *decays = rows->decays + (size_t)place * (size_t)heads, *betas = rows->betas + (size_t)place * (size_t)heads;
    kernel_store(recurrence->type, fused, 1.0f, recurrence->channels, input_at(recurrence, rows, place));
    for (int i = 0; i < heads; i++) {
        decays[i] = expf(weights->rate[i] * softplus(a[i] + weights->step_bias[i]));
        betas[i] = 1.0f / (1.0f + expf(-b[i]));
    }
}

/* Row `row` of a lineage into mixed[row + to]: the convolution over itself, its ancestors and, past their root, the
 * session's window; queries and keys brought to their lengths. */
static void mix_row(const struct recurrence *recurrence, int layer, const struct lineage *lineage,
                    const struct recurrent_rows *rows, int row, int to)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    const void *history[16];
    int at = row, past = sizes->kernel_size - 1;
    for (int t = sizes->kernel_size - 1; t >= 0; t--) {
        history[t] = at >= 0 ? input_at(recurrence, rows, place_of(lineage, at))
                             : window_at(recurrence, layer, lineage->session, --past);
        at = at >= 0 ? parent_of(lineage->parents, at) : at;
    }
    float *mixed = recurrence->mixed + (size_t)(row + to) * (size_t)recurrence->channels;
    kernel_convolve(recurrence->type, history, recurrence->layers[layer].convolution, sizes->kernel_size,
                    recurrence->channels, mixed);
    for (int head = 0; head < 2 * sizes->key_heads; head++)
        kernel_scale_to_length(mixed + head * sizes->key_size, sizes->key_size, LENGTH_EPSILON,
                               head < sizes->key_heads ? 1.0f / sqrtf((float)sizes->key_size) : 1.0f);
}

static void mix_rows(const struct recurrence *recurrence, int layer, const struct lineage *lineage,
                     const struct recurrent_rows *rows, int to)
{
#pragma omp parallel for schedule(static) if (lineage->count >= PARALLEL_ROWS)
    for (int row = 0; row < lineage->count; row++)
        mix_row(recurrence, layer, lineage, rows, row, to);
}

/* Moves the window behind the last row of a path. */
static void move_window(const struct recurrence *recurrence, int layer, const struct lineage *path,
                        const struct recurrent_rows *rows)
{
    int count = recurrence->sizes.kernel_size - 1;
    for (int i = 0; i < count; i++) {
        int row = path->count - count + i;
        memcpy(window_at(recurrence, layer, path->session, i),
               row >= 0 ? input_at(recurrence, rows, place_of(path, row))
                        : window_at(recurrence, layer, path->session, i + path->count),
               input_bytes(recurrence));
    }
}

/* --- the delta rule --------------------------------------------------------------------------------------------- */

/* Advances one head's state by a row: the only code that does so by the rule's own steps. */
static void step_head(const struct recurrence *recurrence, float *state, const struct recurrent_rows *rows, int place,
                      int row, int head)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    size_t gate = (size_t)place * (size_t)sizes->value_heads + (size_t)head;
    kernel_step_state(state, key_at(recurrence, row, head), value_at(recurrence, row, head), rows->decays[gate],
                      rows->betas[gate], sizes->key_size, sizes->value_size, own_scratch(recurrence)->deltas);
}

/* One head of several rows over the committed state, which is read once. */
struct head_call {
    const struct recurrence *recurrence;
    const struct recurrent_rows *rows;
    const struct stack_segment *segment;
    struct recurrent_scratch *scratch;
    float *state;
    int head;
};

/* Of a segment's row: its decay, or its beta. */
static float gate_of(const struct head_call *call, const float *gates, int row)
{
    return gates[(size_t)(call->segment->first + row) * (size_t)call->recurrence->sizes.value_heads +
                 (size_t)call->head];
}

static void read_state(const struct head_call *call)
{
    const struct recurrence *recurrence = call->recurrence;
    const struct stack_segment *segment = call->segment;
    int keys = recurrence->sizes.key_size, shape = 0;
    float *to = call->scratch->factors;
    for (int row = 0; row < segment->count; row++, to += keys)
        memcpy(to, key_at(recurrence, segment->first + row, call->head), (size_t)keys * sizeof *to);
    for (int row = 0; row < segment->count; row++, to += keys)
        memcpy(to, query_at(recurrence, segment->first + row, call->head), (size_t)keys * sizeof *to);
    while (recurrence->segment_shapes[shape] < segment->count)
        shape++;
    small_product_apply(recurrence->reads[shape], call->scratch->factors, call->state, call->scratch->reads);
}

/* Row `row`'s u and output from those of its ancestors. */
static void answer_row(const struct head_call *call, int row)
{
    const struct recurrence *recurrence = call->recurrence;
    const struct recurrent_scratch *scratch = call->scratch;
    int keys = recurrence->sizes.key_size, values = recurrence->sizes.value_size, count = call->segment->count;
    const float *key = scratch->factors + row * keys, *query = key + count * keys;
    const float *key_read = scratch->reads + row * values, *query_read = key_read + count * values;
    const float *value = value_at(recurrence, call->segment->first + row, call->head);
    float *u = scratch->deltas + row * values, *output = output_at(recurrence, call->segment->first + row, call->head);
    float weight = gate_of(call, call->rows->decays, row), beta = gate_of(call, call->rows->betas, row);
    memset(u, 0, (size_t)values * sizeof *u);
    memset(output, 0, (size_t)values * sizeof *output);
    for (int j = parent_of(call->segment->parents, row); j >= 0; j = parent_of(call->segment->parents, j)) {
        const float *ancestor = scratch->factors + j * keys, *its_u = scratch->deltas + j * values;
        kernel_add_scaled(u, weight * kernel_dot(key, ancestor, keys), its_u, values);
        kernel_add_scaled(output, weight * kernel_dot(query, ancestor, keys), its_u, values);
        weight *= gate_of(call, call->rows->decays, j);
    }
    for (int i = 0; i < values; i++)
        u[i] = beta * (value[i] - weight * key_read[i] - u[i]);
    kernel_add_scaled(output, weight, query_read, values);
    kernel_add_scaled(output, kernel_dot(query, key, keys), u, values);
}

/* Advances the state behind the last row of a path whose rows are answered. */
static void fold_rows(const struct head_call *call)
{
    const struct model_recurrence *sizes = &call->recurrence->sizes;
    float weight = 1;
    for (int row = call->segment->count - 1; row >= 0; row--) {
        call->scratch->weights[row] = weight;
        weight *= gate_of(call, call->rows->decays, row);
    }
    kernel_fold_state(call->state, weight, call->scratch->weights, call->scratch->factors, call->scratch->deltas,
                      call->segment->count, sizes->key_size, sizes->value_size);
}

static void run_head(const struct recurrence *recurrence, int layer, const struct stack_segment *segment,
                     const struct recurrent_rows *rows, int head)
{
    float *state = state_at(recurrence, layer, segment->session, head);
    const struct head_call call = {recurrence, rows, segment, own_scratch(recurrence), state, head};
    if (segment->advances && segment->count == 1) {
        step_head(recurrence, state, rows, segment->first, segment->first, head);
        kernel_read_state(state, query_at(recurrence, segment->first, head), recurrence->sizes.key_size,
                          recurrence->sizes.value_size, output_at(recurrence, segment->first, head));
        return;
    }
    read_state(&call);
    for (int row = 0; row < segment->count; row++)
        answer_row(&call, row);
    if (segment->advances)
        fold_rows(&call);
}

/* --- behind the state ------------------------------------------------------------------------------------------- */

static void gate_row(const struct recurrence *recurrence, int layer, const float *fused, int row, char *out)
{
    int heads = recurrence->sizes.value_heads, values = recurrence->sizes.value_size;
    float *output = output_at(recurrence, row, 0);
    for (int head = 0; head < heads; head++)
        kernel_norm(PRODUCT_FLOAT32, output + head * values, recurrence->layers[layer].norm, values,
                    recurrence->model->norm_epsilon, output + head * values);
    kernel_gated(recurrence->type, fused + recurrence->channels, output, heads * values, out);
}

/* --- a layer, a commit ------------------------------------------------------------------------------------------ */

void recurrence_run(struct recurrence *recurrence, int layer, const struct stack_segment *segments, int segment_count,
                    const float *fused, void *out)
{
    const struct recurrent_rows *rows = segments->advances ? &recurrence->passing : &recurrence->verified[layer];
    const struct stack_segment *last = &segments[segment_count - 1];
    int count = last->first + last->count, heads = recurrence->sizes.value_heads;
    size_t width = (size_t)recurrence_in_width(recurrence),
           bytes = (size_t)recurrence_out_width(recurrence) * product_type_size(recurrence->type);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_ROWS)
    for (int row = 0; row < count; row++)
        keep_row(recurrence, &recurrence->layers[layer], fused + (size_t)row * width, rows, row);
    for (int s = 0; s < segment_count; s++) {
        const struct stack_segment *segment = &segments[s];
        const struct lineage lineage = {segment->session, segment->first, segment->count, NULL, segment->parents};
        mix_rows(recurrence, layer, &lineage, rows, segment->first);
        if (segment->advances)
            move_window(recurrence, layer, &lineage, rows);
    }
#pragma omp parallel for schedule(static) collapse(2)
    for (int s = 0; s < segment_count; s++)
        for (int head = 0; head < heads; head++)
            run_head(recurrence, layer, &segments[s], rows, head);
#pragma omp parallel for schedule(static) if (count >= PARALLEL_ROWS)
    for (int row = 0; row < count; row++)
        gate_row(recurrence, layer, fused + (size_t)row * width, row, (char *)out + (size_t)row * bytes);
}

void recurrence_commit(struct recurrence *recurrence, int session, int first, const int *nodes, int count)
{
    const struct lineage path = {session, first, count, nodes, NULL};
    for (int layer = 0; layer < recurrence->layer_count; layer++) {
        const struct recurrent_rows *rows = &recurrence->verified[layer];
        mix_rows(recurrence, layer, &path, rows, 0);
        move_window(recurrence, layer, &path, rows);
#pragma omp parallel for schedule(static)
        for (int head = 0; head < recurrence->sizes.value_heads; head++)
            for (int row = 0; row < count; row++)
                step_head(recurrence, state_at(recurrence, layer, session, head), rows, place_of(&path, row), row,
                          head);
    }
}

void recurrence_reset(struct recurrence *recurrence, int session)
{
    const struct model_recurrence *sizes = &recurrence->sizes;
    size_t states = (size_t)sizes->value_heads * (size_t)sizes->key_size * (size_t)sizes->value_size;
    for (int layer = 0; layer < recurrence->layer_count; layer++) {
        memset(state_at(recurrence, layer, session, 0), 0, states * sizeof(float));
        memset(window_at(recurrence, layer, session, 0), 0, (size_t)(sizes->kernel_size - 1) * input_bytes(recurrence));
    }
}

void recurrence_run_products(struct recurrence *recurrence, int layer, int rows)
{
    int shape = 0;
    while (recurrence->segment_shapes[shape] < rows)
        shape++;
#pragma omp parallel for schedule(static)
    for (int head = 0; head < recurrence->sizes.value_heads; head++)
        small_product_apply(recurrence->reads[shape], own_scratch(recurrence)->factors,
                            state_at(recurrence, layer, 0, head), own_scratch(recurrence)->reads);
}

const float *recurrence_state(const struct recurrence *recurrence, int layer, int session)
{
    return state_at(recurrence, layer, session, 0);
}
