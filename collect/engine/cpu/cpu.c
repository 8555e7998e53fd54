/* The CPU backend: the reference, and the default where there is no GPU. */
#include "collect/engine/cpu/cpu.h"

#include "collect/engine/cpu/kernels.h"

#include <omp.h>
#include <string.h>

/* --- batches
 * ----------------------------------------------------------------------------------------------------------------------
 */

static void *row_at(const struct cpu *cpu, char *rows, int row, int width)
{
    return rows + (size_t)row * (size_t)width * product_type_size(cpu->type);
}

static uint64_t *visible_at(const struct cpu *cpu, int row)
{
    return cpu->visible + (size_t)row * (size_t)cpu->words;
}

static void see(uint64_t *visible, int row)
{
    visible[row / 64] |= (uint64_t)1 << (row % 64);
}

/* Adds a segment whose rows begin at `first`: a tree by its parents, a causal run where they are NULL. */
static void add_segment(struct cpu *cpu, int index, int first, const struct segment *segment, bool advances)
{
    int base = cpu->lengths[segment->session];
    cpu->segments[index] = (struct stack_segment){.session = segment->session,
                                                  .first = first,
                                                  .count = segment->count,
                                                  .base = base,
                                                  .positions = cpu->positions + first,
                                                  .visible = visible_at(cpu, first),
                                                  .words = cpu->words,
                                                  .parents = segment->parents,
                                                  .advances = advances};
    for (int i = 0; i < segment->count; i++) {
        int parent = segment->parents ? segment->parents[i] : i - 1;
        uint64_t *visible = visible_at(cpu, first + i);
        if (parent < 0)
            memset(visible, 0, (size_t)cpu->words * sizeof *visible);
        else
            memcpy(visible, visible_at(cpu, first + parent), (size_t)cpu->words * sizeof *visible);
        see(visible, i);
        cpu->positions[first + i] = parent < 0 ? base : cpu->positions[first + parent] + 1;
        cpu->row_sessions[first + i] = segment->session;
        cpu->tokens[first + i] = segment->tokens[i];
    }
}

/* Keeps the residual stream after each layer that feeds the drafter. All ranks have the same: the first keeps it. */
static void keep_features(void *context, int layer, const float *x, int rows)
{
    struct cpu *cpu = context;
    const struct model *drafter = cpu->options.drafter;
    int hidden = cpu->options.target->hidden_size;
    for (int f = 0; f < drafter->feature_count; f++) {
        if (drafter->feature_layers[f] != layer)
            continue;
#pragma omp parallel for schedule(static) if (rows >= STACK_PARALLEL_ROWS)
        for (int i = 0; i < rows; i++)
            kernel_store(cpu->type, x + (size_t)i * (size_t)hidden, 1.0f, hidden,
                         row_at(cpu, cpu->features, i * drafter->feature_count + f, hidden));
    }
}

static void run_rank(struct cpu *cpu, struct cpu_rank *rank, struct stack *stack, stack_on_layer *on_layer)
{
    int hidden = cpu->options.target->hidden_size;
#pragma omp parallel for schedule(static) if (cpu->rows >= STACK_PARALLEL_ROWS)
    for (int i = 0; i < cpu->rows; i++)
        tensor_to_float(cpu->options.target->embedding, (int64_t)cpu->tokens[i] * hidden, hidden,
                        rank->x + (size_t)i * (size_t)hidden);
    stack_run(stack, cpu->segments, cpu->segment_count, cpu->rows, rank->x, rank->normed, on_layer, cpu);
}

static void run_target_rank(void *context, int index)
{
    struct cpu *cpu = context;
    struct cpu_rank *rank = &cpu->ranks[index];
    run_rank(cpu, rank, rank->target, cpu->options.drafter && index == 0 ? keep_features : NULL);
}

static void run_drafter_rank(void *context, int index)
{
    struct cpu *cpu = context;
    run_rank(cpu, &cpu->ranks[index], cpu->ranks[index].drafter, NULL);
}

/* advances: the rows are committed as they run. */
static void run_target(struct cpu *cpu, const struct segment *segments, int count, bool advances)
{
    cpu->rows = 0;
    cpu->segment_count = count;
    for (int i = 0; i < count; i++) {
        add_segment(cpu, i, cpu->rows, &segments[i], advances);
        cpu->rows += segments[i].count;
    }
    team_run(cpu->team, run_target_rank, cpu);
}

/* Rows of `normed` whose logits are wanted. */
struct head_call {
    struct cpu *cpu;
    int first, count;
};

/* An all-gather: each rank's columns of a product, side by side in out[rows, width]. */
static void apply_gathered(struct cpu *cpu, int index, struct linear *linear, int rows, const void *x, int width,
                           float *out)
{
    int columns = width / cpu->options.ranks;
    float *slice = cpu->ranks[index].slice;
    linear_apply(linear, rows, x, slice ? slice : out);
    for (int i = 0; slice && i < rows; i++)
        memcpy(out + (size_t)i * (size_t)width + (size_t)(index * columns), slice + (size_t)i * (size_t)columns,
               (size_t)columns * sizeof *out);
}

static void run_head_rank(void *context, int index)
{
    const struct head_call *call = context;
    struct cpu *cpu = call->cpu;
    const struct model *target = cpu->options.target;
    apply_gathered(cpu, index, cpu->ranks[index].head, call->count,
                   row_at(cpu, cpu->ranks[index].normed, call->first, target->hidden_size), target->vocabulary_size,
                   cpu->logits);
}

/* Logits of rows [first, first + count) of `normed`, at most head_rows, into cpu->logits: each rank's slice of the
 * vocabulary. */
static void run_head(struct cpu *cpu, int first, int count)
{
    struct head_call call = {cpu, first, count};
    team_run(cpu->team, run_head_rank, &call);
}

static const float *logits_at(const struct cpu *cpu, int row)
{
    return cpu->logits + (size_t)row * (size_t)cpu->options.target->vocabulary_size;
}

/* The token after batch row `row`, whose logits stand at `logits_row`. */
static struct choice choose_row(const struct cpu *cpu, int row, int logits_row)
{
    return sample_choose(logits_at(cpu, logits_row), cpu->options.vocabulary, &cpu->sampling[cpu->row_sessions[row]],
                         cpu->positions[row] + 1, &cpu->scratch[omp_get_thread_num()]);
}

static void choose_rows(struct cpu *cpu, int first, int count, struct choice *chosen)
{
    for (int from = 0; from < count; from += cpu->head_rows) {
        int rows = count - from < cpu->head_rows ? count - from : cpu->head_rows;
        run_head(cpu, first + from, rows);
#pragma omp parallel for schedule(static) if (rows > 1)
        for (int i = 0; i < rows; i++)
            chosen[from + i] = choose_row(cpu, first + from + i, i);
    }
}

/* --- operations
 * -------------------------------------------------------------------------------------------------------------------
 */

static void cpu_reset(struct backend *backend, int session, const struct sampling *sampling)
{
    struct cpu *cpu = (struct cpu *)backend;
    for (int rank = 0; rank < cpu->options.ranks; rank++)
        stack_reset(cpu->ranks[rank].target, session);
    cpu->lengths[session] = 0;
    cpu->sampling[session] = *sampling;
}

/* Features of `rows` tokens that stand at cache positions base, base + 1, ... of a session. */
struct context_call {
    struct cpu *cpu;
    int session, base, rows;
    const void *features;
};

static void fuse_rank(void *context, int index)
{
    const struct context_call *call = context;
    struct cpu *cpu = call->cpu;
    apply_gathered(cpu, index, cpu->ranks[index].fuse, call->rows, call->features, cpu->options.drafter->hidden_size,
                   cpu->fused);
}

static void add_context_rank(void *context, int index)
{
    const struct context_call *call = context;
    stack_add_context(call->cpu->ranks[index].drafter, call->session, call->base, call->rows, call->cpu->context);
}

static void add_context(struct cpu *cpu, int session, int base, int rows, const void *features)
{
    int hidden = cpu->options.drafter->hidden_size;
    struct context_call call = {cpu, session, base, rows, features};
    team_run(cpu->team, fuse_rank, &call);
    for (int i = 0; i < rows; i++)
        kernel_norm(cpu->type, cpu->fused + (size_t)i * (size_t)hidden, cpu->hidden_norm, hidden,
                    cpu->options.drafter->norm_epsilon, row_at(cpu, cpu->context, i, hidden));
    team_run(cpu->team, add_context_rank, &call);
}

static void finish_extend(struct cpu *cpu, int count)
{
    for (int i = 0; i < count; i++) {
        const struct stack_segment *segment = &cpu->segments[i];
        if (cpu->options.drafter) {
            int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
            add_context(cpu, segment->session, segment->base, segment->count,
                        row_at(cpu, cpu->features, segment->first, width));
        }
        cpu->lengths[segment->session] += segment->count;
    }
}

/* One token of each session in one batch. */
static void extend_together(struct cpu *cpu, const struct segment *segments, int count, struct choice *chosen)
{
    run_target(cpu, segments, count, true);
    choose_rows(cpu, 0, cpu->rows, chosen);
    finish_extend(cpu, count);
}

static void extend_prompt(struct cpu *cpu, const struct segment *segment, struct choice *chosen)
{
    for (int done = 0; done < segment->count; done += CPU_PROMPT_CHUNK) {
        int rows = segment->count - done < CPU_PROMPT_CHUNK ? segment->count - done : CPU_PROMPT_CHUNK;
        struct segment chunk = {segment->session, rows, segment->tokens + done, NULL};
        run_target(cpu, &chunk, 1, true);
        if (done + rows == segment->count)
            choose_rows(cpu, rows - 1, 1, chosen);
        finish_extend(cpu, 1);
    }
}

static void cpu_extend(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cpu *cpu = (struct cpu *)backend;
    int longest = 0;
    for (int i = 0; i < count; i++)
        longest = segments[i].count > longest ? segments[i].count : longest;
    if (longest == 1)
        extend_together(cpu, segments, count, chosen);
    for (int i = 0; i < count && longest > 1; i++)
        extend_prompt(cpu, &segments[i], &chosen[i]);
}

static void cpu_verify(struct backend *backend, const struct segment *segments, int count, struct choice *chosen)
{
    struct cpu *cpu = (struct cpu *)backend;
    run_target(cpu, segments, count, false);
    choose_rows(cpu, 0, cpu->rows, chosen);
}

static const struct stack_segment *segment_of(const struct cpu *cpu, int session)
{
    const struct stack_segment *segment = cpu->segments;
    while (segment->session != session)
        segment++;
    return segment;
}

struct commit_call {
    struct cpu *cpu;
    const struct kept_path *paths;
    int count;
};

static void commit_rank(void *context, int index)
{
    const struct commit_call *call = context;
    for (int i = 0; i < call->count; i++) {
        const struct kept_path *path = &call->paths[i];
        stack_commit(call->cpu->ranks[index].target, path->session, call->cpu->lengths[path->session],
                     segment_of(call->cpu, path->session)->first, path->nodes, path->length);
    }
}

static void cpu_commit(struct backend *backend, const struct kept_path *paths, int count)
{
    struct cpu *cpu = (struct cpu *)backend;
    team_run(cpu->team, commit_rank, &(struct commit_call){cpu, paths, count});
    for (int i = 0; i < count; i++) {
        const struct kept_path *path = &paths[i];
        int base = cpu->lengths[path->session], first = segment_of(cpu, path->session)->first;
        if (cpu->options.drafter) {
            int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
            for (int j = 0; j < path->length; j++)
                memcpy(row_at(cpu, cpu->kept_features, j, width),
                       row_at(cpu, cpu->features, first + path->nodes[j], width),
                       (size_t)width * product_type_size(cpu->type));
            add_context(cpu, path->session, base, path->length, cpu->kept_features);
        }
        cpu->lengths[path->session] += path->length;
    }
}

/* The block of one session from row `first` on: the anchor and masks, each slot seeing the whole block. */
static void add_block(struct cpu *cpu, int index, int first, int session, int anchor)
{
    int block = cpu->options.drafter->block_size, base = cpu->lengths[session];
    cpu->segments[index] =
        (struct stack_segment){session, first, block, base, cpu->positions + first, visible_at(cpu, first), cpu->words};
    for (int i = 0; i < block; i++) {
        uint64_t *visible = visible_at(cpu, first + i);
        memset(visible, 0, (size_t)cpu->words * sizeof *visible);
        for (int j = 0; j < block; j++)
            see(visible, j);
        cpu->positions[first + i] = base + i;
        cpu->row_sessions[first + i] = session;
        cpu->tokens[first + i] = i == 0 ? anchor : cpu->options.drafter->mask_token;
    }
}

static void read_slot(const struct cpu *cpu, int row, struct tree_draft *draft, int slot)
{
    const float *logits = logits_at(cpu, row);
    float *best = draft->log_probabilities + slot * draft->width;
    kernel_top(logits, cpu->options.vocabulary, draft->width, draft->tokens + slot * draft->width, best);
    float sum = kernel_log_sum_exp(logits, cpu->options.target->vocabulary_size);
    for (int i = 0; i < draft->width; i++)
        best[i] -= sum;
}

static void cpu_draft(struct backend *backend, const int *sessions, const int *anchors, int count,
                      struct tree_draft *drafts)
{
    struct cpu *cpu = (struct cpu *)backend;
    int block = cpu->options.drafter->block_size;
    for (int i = 0; i < count; i++)
        add_block(cpu, i, i * block, sessions[i], anchors[i]);
    cpu->segment_count = count;
    cpu->rows = count * block;
    team_run(cpu->team, run_drafter_rank, cpu);
    for (int i = 0; i < count; i++) {
        for (int from = 1; from < block; from += cpu->head_rows) {
            int rows = block - from < cpu->head_rows ? block - from : cpu->head_rows;
            run_head(cpu, i * block + from, rows);
#pragma omp parallel for schedule(static)
            for (int row = 0; row < rows; row++)
                read_slot(cpu, row, &drafts[i], from - 1 + row);
        }
        drafts[i].slots = block - 1;
    }
}

/* The committed states of a session, its heads in the order of the ranks. */
static void copy_states(const struct cpu *cpu, int session, float *out)
{
    const struct model_recurrence *sizes = &cpu->options.target->recurrence;
    size_t slice =
        (size_t)(sizes->value_heads / cpu->options.ranks) * (size_t)sizes->key_size * (size_t)sizes->value_size;
    for (int layer = 0; layer < cpu->options.target->recurrent_count; layer++)
        for (int rank = 0; rank < cpu->options.ranks; rank++, out += slice)
            memcpy(out, stack_state(cpu->ranks[rank].target, layer, session), slice * sizeof *out);
}

static void cpu_inspect(struct backend *backend, enum inspect_what what, int first, int count, float *out)
{
    struct cpu *cpu = (struct cpu *)backend;
    int vocabulary = cpu->options.target->vocabulary_size;
    if (what == INSPECT_STATE) {
        copy_states(cpu, first, out);
        return;
    }
    if (what == INSPECT_FEATURES) {
        int width = cpu->options.drafter->feature_count * cpu->options.drafter->hidden_size;
        kernel_load(cpu->type, row_at(cpu, cpu->features, first, width), count * width, out);
        return;
    }
    if (first + count > cpu->rows)
        die("inspect: rows %d to %d of %d", first, first + count, cpu->rows);
    for (int done = 0; done < count; done += cpu->head_rows) {
        int rows = count - done < cpu->head_rows ? count - done : cpu->head_rows;
        run_head(cpu, first + done, rows);
        memcpy(out + (size_t)done * (size_t)vocabulary, cpu->logits, (size_t)rows * (size_t)vocabulary * sizeof *out);
    }
}

/* A step whose products run alone. */
struct products_call {
    struct cpu *cpu;
    enum backend_step step;
    int rows, committed;
};

static void run_products_rank(void *context, int index)
{
    const struct products_call *call = context;
    struct cpu_rank *rank = &call->cpu->ranks[index];
    if (call->step == BACKEND_COMMIT)
        stack_run_context_product(rank->drafter, call->rows, call->cpu->context);
    else
        stack_run_products(call->step == BACKEND_DRAFT ? rank->drafter : rank->target, call->rows, call->committed);
}

/* A tree's products are those of any rows: between them and their ancestors there are none. */
static void cpu_run_products(struct backend *backend, enum backend_step step, const int *parents, int rows,
                             int committed)
{
    struct cpu *cpu = (struct cpu *)backend;
    (void)parents;
    struct products_call call = {cpu, step, rows, committed};
    struct context_call fuse = {cpu, 0, 0, rows, cpu->features};
    if (step == BACKEND_COMMIT)
        team_run(cpu->team, fuse_rank, &fuse);
    team_run(cpu->team, run_products_rank, &call);
    int head = step == BACKEND_COMMIT ? 0 : step == BACKEND_DRAFT ? rows - 1 : rows;
    for (int from = 0; from < head; from += cpu->head_rows)
        run_head(cpu, from, head - from < cpu->head_rows ? head - from : cpu->head_rows);
}

const struct backend_class backend_cpu = {
    .name = "cpu",
    .has_recurrence = true,
    .open = cpu_open,
    .describe_device = cpu_describe_device,
    .measure_rates = cpu_measure_rates,
    .describe = cpu_describe,
    .reset = cpu_reset,
    .extend = cpu_extend,
    .verify = cpu_verify,
    .commit = cpu_commit,
    .draft = cpu_draft,
    .inspect = cpu_inspect,
    .run_products = cpu_run_products,
    .close = cpu_close,
};
