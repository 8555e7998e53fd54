/* The kernels of recurrent layers, on random rows in place of products: against the rule as it is defined, in double
 * precision with a state for every row, over sizes, trees of one and of several tiles, deep and shallow, and runs; and
 * to the bit, what a commit leaves against single steps, and a batch of sessions against each alone. Skipped where
 * there is no GPU that CUDA can use.
 *
 * With the argument "bench": times of the kernels at Qwen3.6-27B's shape. Another is the name of the only test to run.
 */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels_recurrence.h"
#include "tests/gpu/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, TESTED = 1, SESSIONS = 3, KEPT = 2 * 150, EPSILON_INVERSE = 1000000 };

static const struct recurrent_sizes all_sizes[] = {{4, 12, 32, 32, 4},  {1, 3, 128, 128, 4}, {2, 2, 24, 20, 3},
                                                   {1, 2, 256, 128, 2}, {1, 1, 7, 200, 5},   {1, 2, 128, 256, 4},
                                                   {3, 6, 3, 5, 6},     {2, 4, 64, 96, 4},   {1, 2, 20, 131, 4}};
static bool usable;
static uint64_t seed = 88172645463325252u;

static int find_gpu(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    return 0;
}

static int draw(int count)
{
    return (int)((double)(gpu_random(&seed) + 1) / 2 * count) % count;
}

static float as_type(enum element type, float x)
{
    return type == ELEMENT_BFLOAT16 ? bfloat16_to_float(bfloat16_from_float(x)) : x;
}

/* --- a layer on the GPU ----------------------------------------------------------------------------------------- */

/* The weights, on the host. */
struct weights {
    float *convolution, *rates, *step_bias, *norm;
};

struct world {
    enum element type;
    struct recurrent_sizes sizes;
    int channels, values, width, rows;
    struct weights host;
    struct recurrent_layer layers[LAYERS];
    float *mixed, *deltas;
    void *out, *passing_inputs;
    float *passing_decays, *passing_betas;
};

/* LAYERS times the same, so that a layer's place counts. */
static float *make_floats(int count, float mean, float spread, float **sent)
{
    float *values = xcalloc((size_t)(LAYERS * count), sizeof *values);
    for (int i = 0; i < LAYERS * count; i++)
        values[i] = i < count ? mean + spread * gpu_random(&seed) : values[i - count];
    *sent = gpu_send(values, (size_t)(LAYERS * count) * sizeof *values);
    return values;
}

static void open_world(struct world *world, enum element type, const struct recurrent_sizes *sizes, int rows)
{
    float *convolution, *rates, *step_bias, *norm;
    size_t size = element_size(type), heads = (size_t)sizes->value_heads;
    *world = (struct world){type, *sizes, recurrent_channels(sizes), recurrent_values(sizes), recurrent_in_width(sizes),
                            rows};
    size_t channels = (size_t)world->channels, before = (size_t)sizes->kernel_size - 1;
    size_t state = recurrent_state_elements(sizes) * SESSIONS * sizeof(float),
           window = SESSIONS * before * channels * size;
    world->host = (struct weights){
        make_floats(world->channels * sizes->kernel_size, 0, 0.7f, &convolution),
        make_floats(sizes->value_heads, -0.3f, 0.25f, &rates),
        make_floats(sizes->value_heads, 0, 1, &step_bias),
        make_floats(sizes->value_size, 1, 0.3f, &norm),
    };
    char *states = device_allocate(LAYERS * state), *windows = device_allocate(LAYERS * window);
    char *inputs = device_allocate(LAYERS * KEPT * channels * size);
    float *decays = device_allocate(LAYERS * KEPT * heads * sizeof(float)),
          *betas = device_allocate(LAYERS * KEPT * heads * sizeof(float));
    for (size_t i = 0; i < LAYERS; i++)
        world->layers[i] = (struct recurrent_layer){
            .type = type,
            .sizes = *sizes,
            .convolution = convolution + i * channels * (size_t)sizes->kernel_size,
            .rates = rates + i * heads,
            .step_bias = step_bias + i * heads,
            .norm = norm + i * (size_t)sizes->value_size,
            .epsilon = 1.0f / EPSILON_INVERSE,
            .states = (float *)(void *)(states + i * state),
            .windows = windows + i * window,
            .inputs = inputs + i * KEPT * channels * size,
            .decays = decays + i * KEPT * heads,
            .betas = betas + i * KEPT * heads,
        };
    world->mixed = device_allocate((size_t)rows * channels * sizeof(float));
    world->deltas = device_allocate((size_t)rows * (size_t)world->values * sizeof(float));
    world->out = device_allocate((size_t)rows * (size_t)world->values * size);
    world->passing_inputs = device_allocate((before + 1) * channels * size);
    world->passing_decays = device_allocate((size_t)rows * heads * sizeof(float));
    world->passing_betas = device_allocate((size_t)rows * heads * sizeof(float));
}

static void close_world(struct world *world)
{
    const struct recurrent_layer *first = &world->layers[0];
    const void *memory[] = {first->convolution,    first->rates,          first->step_bias,    first->norm,
                            first->states,         first->windows,        first->inputs,       first->decays,
                            first->betas,          world->mixed,          world->deltas,       world->out,
                            world->passing_inputs, world->passing_decays, world->passing_betas};
    for (int i = 0; i < COUNT(memory); i++)
        CUDA_CHECK(cudaFree((void *)memory[i]));
    free(world->host.convolution);
    free(world->host.rates);
    free(world->host.step_bias);
    free(world->host.norm);
}

static struct recurrent_kept kept_of(const struct world *world)
{
    return (struct recurrent_kept){.layer = world->layers[0], .layers = LAYERS, .sessions = SESSIONS, .rows = KEPT};
}

/* Sessions' rows, as the engine runs them, one segment behind the other. parents, fused and out[., values] are those of
 * the first segment's first row and on; parents are places in the segment; NULL: runs that advance their sessions. */
static void run_segments(struct world *world, const struct attention_segment *segments, int segment_count,
                         const int *parents, const float *fused, float *out)
{
    const struct attention_segment *last = &segments[segment_count - 1];
    int first = segments[0].first, count = last->first + last->count - first, longest = 0;
    int16_t *near = xcalloc((size_t)((first + count) * RECURRENT_NEAR), sizeof *near);
    for (const struct attention_segment *segment = segments; segment <= last; segment++) {
        const int *its = parents ? parents + segment->first - first : NULL;
        longest = segment->count > longest ? segment->count : longest;
        for (int i = 0; its && i < segment->count; i++)
            for (int k = 0, at = its[i]; k < RECURRENT_NEAR; k++, at = at < 0 ? at : its[at])
                near[(segment->first + i) * RECURRENT_NEAR + k] = (int16_t)at;
    }
    size_t row = (size_t)world->width * sizeof *fused;
    char *rows = device_allocate((size_t)(first + count) * row);
    CUDA_CHECK(cudaMemcpy(rows + (size_t)first * row, fused, (size_t)count * row, cudaMemcpyHostToDevice));
    struct recurrent_call call = {
        .layer = world->layers[TESTED],
        .rows = first + count,
        .segment_count = segment_count,
        .longest = longest,
        .advances = !parents,
        .segments = gpu_send(segments, (size_t)segment_count * sizeof *segments),
        .near = parents ? gpu_send(near, (size_t)((first + count) * RECURRENT_NEAR) * sizeof *near) : NULL,
        .fused = (float *)(void *)rows,
        .mixed = world->mixed,
        .deltas = world->deltas,
        .out = world->out};
    struct recurrent_kept kept = kept_of(world);
    kept.count = segment_count;
    kept.segments = call.segments;
    if (call.advances && longest > 1) {
        int left = first + count - (world->sizes.kernel_size - 1);
        kept.layers = 1;
        kept.first_kept = call.first_kept = left > first ? left : first;
        call.layer.inputs = world->passing_inputs;
        call.layer.decays = world->passing_decays;
        call.layer.betas = world->passing_betas;
        kept.layer = call.layer;
    }
    if (call.advances && longest == 1) {
        kernels_recurrent_step(&call, NULL);
    } else {
        kernels_recurrent_mix(&call, NULL);
        kernels_recurrent_answer(&call, NULL);
    }
    if (call.advances)
        kernels_recurrent_move_windows(&kept, NULL);
    size_t elements = (size_t)count * (size_t)world->values, from = (size_t)first * (size_t)world->values;
    uint16_t *held = xcalloc(elements, sizeof *held);
    if (world->type == ELEMENT_FLOAT32)
        gpu_fetch(out, (float *)world->out + from, elements * sizeof *out);
    else
        gpu_fetch(held, (uint16_t *)world->out + from, elements * sizeof *held);
    for (size_t i = 0; world->type == ELEMENT_BFLOAT16 && i < elements; i++)
        out[i] = bfloat16_to_float(held[i]);
    CUDA_CHECK(cudaFree((void *)call.segments));
    CUDA_CHECK(cudaFree((void *)call.near));
    CUDA_CHECK(cudaFree(rows));
    free(held);
    free(near);
}

/* One session's rows. */
static void run_rows(struct world *world, int session, int first, int count, const int *parents, const float *fused,
                     float *out)
{
    const struct attention_segment segment = {.session = session, .first = first, .count = count};
    run_segments(world, &segment, 1, parents, fused, out);
}

static void commit_rows(struct world *world, int session, int first, const int *nodes, int count)
{
    int *rows = xcalloc((size_t)count + 1, sizeof *rows);
    for (int i = 0; i < count; i++)
        rows[i + 1] = first + nodes[i];
    const struct compact_path path = {session, 0, 1, count};
    struct recurrent_kept kept = kept_of(world);
    kept.count = 1;
    kept.paths = gpu_send(&path, sizeof path);
    kept.path_rows = gpu_send(rows, ((size_t)count + 1) * sizeof *rows);
    kernels_recurrent_commit(&kept, NULL);
    kernels_recurrent_move_windows(&kept, NULL);
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFree((void *)kept.paths));
    CUDA_CHECK(cudaFree((void *)kept.path_rows));
    free(rows);
}

static float *fetch_states(const struct world *world, int session)
{
    size_t count = recurrent_state_elements(&world->sizes);
    float *states = xcalloc(count, sizeof *states);
    gpu_fetch(states, world->layers[TESTED].states + (size_t)session * count, count * sizeof *states);
    return states;
}

/* Fused rows such as a layer's products make; now and then a decay that leaves nothing. */
static float *make_rows(const struct world *world, int count)
{
    float *rows = xcalloc((size_t)(count * world->width), sizeof *rows);
    for (int i = 0; i < count * world->width; i++)
        rows[i] = 2 * (gpu_random(&seed) + gpu_random(&seed));
    for (int i = 0; i < count; i += 9)
        rows[(i + 1) * world->width - 1 - i % world->sizes.value_heads] = 300;
    return rows;
}

/* --- the definition --------------------------------------------------------------------------------------------- */

struct reference {
    const struct world *world;
    int count, room, *parents;
    double **inputs, **states,
        **outputs; /* of each row: [C], behind it [value_heads][key_size][value_size], [values] */
};

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void bring_to_length(const double *x, int size, double factor, double *out)
{
    double sum = 1e-6;
    for (int i = 0; i < size; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < size; i++)
        out[i] = x[i] / sqrt(sum) * factor;
}

static void reference_head(struct reference *reference, int row, int head, const double *mixed, const float *fused)
{
    const struct world *world = reference->world;
    const struct recurrent_sizes *sizes = &world->sizes;
    int keys = sizes->key_size, values = sizes->value_size, parent = reference->parents[row];
    int key_head = head / (sizes->value_heads / sizes->key_heads);
    size_t at = (size_t)(head * keys * values);
    double query[256], key[256], squares = (double)values / EPSILON_INVERSE, *state = reference->states[row] + at;
    double *output = reference->outputs[row] + head * values;
    const double *before = parent >= 0 ? reference->states[parent] + at : NULL;
    const double *value = mixed + 2 * sizes->key_heads * keys + head * values;
    const float *z = fused + world->channels + head * values, *b = fused + world->channels + world->values;
    double a = (double)b[sizes->value_heads + head] + (double)world->host.step_bias[head];
    double decay = exp((double)world->host.rates[head] * (a > 30 ? a : log1p(exp(a)))), beta = sigmoid((double)b[head]);
    bring_to_length(mixed + key_head * keys, keys, 1 / sqrt(keys), query);
    bring_to_length(mixed + (sizes->key_heads + key_head) * keys, keys, 1, key);
    for (int v = 0; v < values; v++) {
        double read = 0, delta;
        for (int k = 0; k < keys; k++) {
            state[k * values + v] = before ? decay * before[k * values + v] : 0;
            read += state[k * values + v] * key[k];
        }
        delta = beta * (value[v] - read);
        for (int k = 0; k < keys; k++) {
            state[k * values + v] += key[k] * delta;
            output[v] += state[k * values + v] * query[k];
        }
        squares += output[v] * output[v];
    }
    for (int v = 0; v < values; v++)
        output[v] *= (double)world->host.norm[v] / sqrt(squares / values) * (double)z[v] * sigmoid((double)z[v]);
}

/* Adds a row behind `parent` (-1: the first) and answers its place. */
static int reference_add(struct reference *reference, int parent, const float *fused)
{
    const struct world *world = reference->world;
    int row = reference->count++, at = row, taps = world->sizes.kernel_size;
    double *mixed = xcalloc((size_t)world->channels, sizeof *mixed);
    if (row == reference->room)
        die("more than %d rows", row);
    reference->parents[row] = parent;
    reference->inputs[row] = xcalloc((size_t)world->channels, sizeof(double));
    reference->states[row] = xcalloc(recurrent_state_elements(&world->sizes), sizeof(double));
    reference->outputs[row] = xcalloc((size_t)world->values, sizeof(double));
    for (int c = 0; c < world->channels; c++)
        reference->inputs[row][c] = (double)as_type(world->type, fused[c]);
    for (int t = taps - 1; t >= 0 && at >= 0; t--, at = reference->parents[at])
        for (int c = 0; c < world->channels; c++)
            mixed[c] += (double)world->host.convolution[c * taps + t] * reference->inputs[at][c];
    for (int c = 0; c < world->channels; c++)
        mixed[c] *= sigmoid(mixed[c]);
    for (int head = 0; head < world->sizes.value_heads; head++)
        reference_head(reference, row, head, mixed, fused);
    free(mixed);
    return row;
}

/* Forgets all states but that of the committed row. */
static void reference_forget(struct reference *reference, int committed)
{
    for (int i = 0; i < reference->count; i++)
        if (i != committed) {
            free(reference->states[i]);
            reference->states[i] = NULL;
        }
}

static struct reference make_reference(const struct world *world, int rows)
{
    size_t room = (size_t)rows;
    return (struct reference){world,
                              0,
                              rows,
                              xcalloc(room, sizeof(int)),
                              xcalloc(room, sizeof(double *)),
                              xcalloc(room, sizeof(double *)),
                              xcalloc(room, sizeof(double *))};
}

static void free_reference(struct reference *reference)
{
    for (int i = 0; i < reference->count; i++) {
        free(reference->inputs[i]);
        free(reference->states[i]);
        free(reference->outputs[i]);
    }
    free(reference->parents);
    free((void *)reference->inputs);
    free((void *)reference->states);
    free((void *)reference->outputs);
}

/* --- against it ------------------------------------------------------------------------------------------------- */

#define TOLERANCE 3e-5 /* of the largest of a row, and of a head's state */
static double worst_output, worst_state;

static void assert_output(const struct reference *reference, int row, const float *out)
{
    double largest = 0, rounding = reference->world->type == ELEMENT_BFLOAT16 ? 0x1p-8 : 0;
    for (int i = 0; i < reference->world->values; i++)
        largest = fmax(largest, fabs(reference->outputs[row][i]));
    for (int i = 0; i < reference->world->values; i++) {
        double expected = reference->outputs[row][i],
               distance = fabs((double)out[i] - expected) - rounding * fabs(expected);
        worst_output = fmax(worst_output, distance / largest);
        if (!(distance <= TOLERANCE * largest))
            fail_msg("row %d of %d, element %d: %g, where %g is right", row, reference->count, i, (double)out[i],
                     expected);
    }
}

static void assert_state(const struct reference *reference, int session, int row)
{
    const struct world *world = reference->world;
    float *states = fetch_states(world, session);
    int elements = world->sizes.key_size * world->sizes.value_size;
    for (int head = 0; head < world->sizes.value_heads; head++) {
        const double *expected = reference->states[row] + head * elements;
        double largest = 0, distance = 0;
        for (int i = 0; i < elements; i++) {
            largest = fmax(largest, fabs(expected[i]));
            distance = fmax(distance, fabs((double)states[head * elements + i] - expected[i]));
        }
        worst_state = fmax(worst_state, distance / largest);
        if (!(distance <= TOLERANCE * largest))
            fail_msg("state of head %d: off by %g, where it has numbers up to %g", head, distance, largest);
    }
    free(states);
}

/* Kinds of trees. */
enum shape { BUSHY, CHAIN, COMB };

static void make_tree(enum shape shape, int *parents, int count)
{
    for (int i = 0; i < count; i++)
        parents[i] = i == 0               ? -1
                     : shape == CHAIN     ? i - 1
                     : shape == COMB      ? (i % 3 == 1 || i == 2 ? i - 1 : i - 2)
                     : draw(3) && i < 100 ? i - 1 - draw(i < 3 ? i : 3)
                                          : draw(i);
}

static int path_to(const int *parents, int node, int *path)
{
    int length = 0;
    for (int at = node; at >= 0; at = parents[at])
        length++;
    for (int at = node, i = length; at >= 0; at = parents[at])
        path[--i] = at;
    return length;
}

/* `count` rows of session 1, which advance it. Answers the last. */
static int append(struct world *world, struct reference *reference, int last, int count)
{
    float *fused = make_rows(world, count), *out = xcalloc((size_t)(count * world->values), sizeof *out);
    run_rows(world, 1, 0, count, NULL, fused, out);
    for (int i = 0; i < count; i++) {
        last = reference_add(reference, last, fused + i * world->width);
        assert_output(reference, last, out + i * world->values);
        reference_forget(reference, last);
    }
    assert_state(reference, 1, last);
    free(fused);
    free(out);
    return last;
}

/* A tree over what session 1 has committed, at row `first` of its batch; then the path to a node is. */
static int verify_and_commit(struct world *world, struct reference *reference, int last, int first, enum shape shape,
                             int count)
{
    float *fused = make_rows(world, count), *out = xcalloc((size_t)(count * world->values), sizeof *out);
    int parents[150], places[150], path[150], node = shape == BUSHY ? draw(count) : count - 1;
    make_tree(shape, parents, count);
    run_rows(world, 1, first, count, parents, fused, out);
    for (int i = 0; i < count; i++) {
        places[i] = reference_add(reference, i == 0 ? last : places[parents[i]], fused + i * world->width);
        assert_output(reference, places[i], out + i * world->values);
    }
    commit_rows(world, 1, first, path, path_to(parents, node, path));
    assert_state(reference, 1, places[node]);
    reference_forget(reference, places[node]);
    free(fused);
    free(out);
    return places[node];
}

static void rows_and_trees_follow_the_definition(void **state)
{
    (void)state;
    if (!usable)
        skip();
    for (int i = 0; i < 2 * COUNT(all_sizes); i++) {
        struct world world;
        int last = -1;
        open_world(&world, i % 2 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32, &all_sizes[i / 2], 300);
        struct reference reference = make_reference(&world, 1200);
        last = append(&world, &reference, last, 1);
        last = append(&world, &reference, last, 2);
        last = verify_and_commit(&world, &reference, last, 0, BUSHY, 17);
        last = append(&world, &reference, last, 1);
        last = append(&world, &reference, last, 33);
        last = append(&world, &reference, last, 150);
        last = verify_and_commit(&world, &reference, last, 5, BUSHY, 65);
        last = verify_and_commit(&world, &reference, last, 0, BUSHY, 1);
        last = verify_and_commit(&world, &reference, last, 150, CHAIN, 16);
        last = verify_and_commit(&world, &reference, last, 0, CHAIN, 100);
        last = verify_and_commit(&world, &reference, last, 0, COMB, 90);
        last = verify_and_commit(&world, &reference, last, 150, BUSHY, 150);
        append(&world, &reference, last, 1);
        free_reference(&reference);
        close_world(&world);
    }
    print_message("largest distances, relative: outputs %.2g, states %.2g\n", worst_output, worst_state);
}

/* --- to the bit ------------------------------------------------------------------------------------------------- */

/* The same rows, once verified as a tree of which a path is committed, once by single steps along that path: the same
 * states and windows, which the next row's output shows. */
static void check_commits(int from, int to, int rounds)
{
    for (int i = from; i < to; i++) {
        struct world world;
        int parents[150], path[150];
        open_world(&world, i % 2 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32, &all_sizes[i / 2], 300);
        size_t bytes = recurrent_state_elements(&world.sizes) * sizeof(float);
        float *out = xcalloc((size_t)(150 * world.values), sizeof *out),
              *next = xcalloc((size_t)world.values, sizeof *next);
        for (int round = 0; round < rounds; round++) {
            int count = 20 + round * 15;
            float *fused = make_rows(&world, count);
            make_tree(round % 2 ? CHAIN : BUSHY, parents, count);
            int length = path_to(parents, draw(count), path);
            run_rows(&world, 2, round, count, parents, fused, out);
            commit_rows(&world, 2, round, path, length);
            for (int k = 0; k < length; k++)
                run_rows(&world, 0, 0, 1, NULL, fused + path[k] * world.width, out);
            float *committed = fetch_states(&world, 2), *stepped = fetch_states(&world, 0);
            assert_memory_equal(committed, stepped, bytes);
            run_rows(&world, 2, 0, 1, NULL, fused, out);
            run_rows(&world, 0, 0, 1, NULL, fused, next);
            assert_memory_equal(out, next, (size_t)world.values * sizeof *out);
            free(committed);
            free(stepped);
            free(fused);
        }
        free(out);
        free(next);
        close_world(&world);
    }
}

static void a_commit_is_single_steps(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_commits(0, 2 * COUNT(all_sizes), 8);
}

/* Few enough for a sanitizer to watch (sanitize.sh). */
static void some_commits_are_single_steps(void **state)
{
    (void)state;
    if (!usable)
        skip();
    check_commits(0, 2, 2);
    check_commits(2 * COUNT(all_sizes) - 1, 2 * COUNT(all_sizes), 2);
}

/* Trees of several sessions in one batch, one of them empty: the same outputs as each alone. */
static void answers_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    if (!usable)
        skip();
    for (int i = 0; i < 2 * COUNT(all_sizes); i++) {
        const struct attention_segment segments[] = {{.session = 2, .first = 3, .count = 65},
                                                     {.session = 0, .first = 68, .count = 0},
                                                     {.session = 1, .first = 68, .count = 20}};
        struct world world;
        int parents[85];
        open_world(&world, i % 2 ? ELEMENT_BFLOAT16 : ELEMENT_FLOAT32, &all_sizes[i / 2], 300);
        size_t values = (size_t)world.values;
        float *fused = make_rows(&world, 85), *together = xcalloc(85 * values, sizeof *together),
              *alone = xcalloc(85 * values, sizeof *alone);
        for (int session = 0; session < SESSIONS; session++)
            run_rows(&world, session, 0, 33 + session, NULL, fused + session * world.width, alone);
        make_tree(BUSHY, parents, 65);
        make_tree(COMB, parents + 65, 20);
        run_segments(&world, segments, COUNT(segments), parents, fused, together);
        run_rows(&world, 2, 0, 65, parents, fused, alone);
        run_rows(&world, 1, 7, 20, parents + 65, fused + 65 * world.width, alone + 65 * values);
        assert_memory_equal(together, alone, 85 * values * sizeof *alone);
        free(fused);
        free(together);
        free(alone);
        close_world(&world);
    }
}

/* --- times ------------------------------------------------------------------------------------------------------ */

struct timed {
    struct recurrent_call call;
    struct recurrent_kept kept;
    void (*queue)(const struct recurrent_call *call, cudaStream_t stream);
    void (*queue_kept)(const struct recurrent_kept *kept, cudaStream_t stream);
};

static void queue(void *context, int index, cudaStream_t stream)
{
    struct timed *timed = context;
    struct recurrent_call call = timed->call;
    call.layer.states += (size_t)(index % 48) * recurrent_state_elements(&call.layer.sizes);
    if (timed->queue)
        timed->queue(&call, stream);
    else
        timed->queue_kept(&timed->kept, stream);
}

static void queue_layer(const struct recurrent_call *call, cudaStream_t stream)
{
    kernels_recurrent_mix(call, stream);
    kernels_recurrent_answer(call, stream);
}

static void time_rows(int rows, bool advances, int depth)
{
    const struct recurrent_sizes sizes = {16, 48, 128, 128, 4};
    size_t channels = (size_t)recurrent_channels(&sizes), count = (size_t)rows, layers = 48;
    struct attention_segment segment = {.count = rows};
    struct compact_path path = {.length = depth};
    int16_t *near = xcalloc(count * RECURRENT_NEAR, sizeof *near);
    int path_rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < rows; i++) /* chains of `depth` below the root */
        for (int k = 0; k < RECURRENT_NEAR; k++) {
            int level = i == 0 ? 0 : 1 + (i - 1) % depth, ancestor = k < level - 1    ? i - 1 - k
                                                                     : k == level - 1 ? 0
                                                                                      : -1;
            near[i * RECURRENT_NEAR + k] = (int16_t)ancestor;
        }
    struct timed timed = {.call = {.layer = {.type = ELEMENT_BFLOAT16,
                                             .sizes = sizes,
                                             .convolution = device_allocate(layers * channels * 16),
                                             .rates = device_allocate(layers * 48 * 4),
                                             .step_bias = device_allocate(layers * 48 * 4),
                                             .norm = device_allocate(layers * 128 * 4),
                                             .epsilon = 1e-6f,
                                             .states = device_allocate(layers * recurrent_state_elements(&sizes) * 4),
                                             .windows = device_allocate(layers * 3 * channels * 2),
                                             .inputs = device_allocate(layers * count * channels * 2),
                                             .decays = device_allocate(layers * count * 48 * 4),
                                             .betas = device_allocate(layers * count * 48 * 4)},
                                   .rows = rows,
                                   .segment_count = 1,
                                   .longest = rows,
                                   .advances = advances,
                                   .segments = gpu_send(&segment, sizeof segment),
                                   .near = advances ? NULL : gpu_send(near, count * RECURRENT_NEAR * sizeof *near),
                                   .fused = device_allocate(count * (size_t)recurrent_in_width(&sizes) * 4),
                                   .mixed = device_allocate(count * channels * 4),
                                   .deltas = device_allocate(count * 6144 * 4),
                                   .out = device_allocate(count * 6144 * 2)}};
    timed.kept = (struct recurrent_kept){.layer = timed.call.layer,
                                         .layers = 48,
                                         .sessions = 1,
                                         .rows = rows,
                                         .count = 1,
                                         .paths = gpu_send(&path, sizeof path),
                                         .path_rows = gpu_send(path_rows, sizeof path_rows)};
    if (rows == 1) {
        timed.queue = kernels_recurrent_step;
        print_message("a step: %.2f us a layer\n", gpu_time(queue, &timed, 192));
        return;
    }
    timed.queue = kernels_recurrent_mix;
    double mix = gpu_time(queue, &timed, 192);
    timed.queue = kernels_recurrent_answer;
    double answer = gpu_time(queue, &timed, 192);
    timed.queue = queue_layer;
    double all = gpu_time(queue, &timed, 192);
    print_message("%d rows%s: mix %.2f, answer %.2f, as they run %.2f us a layer\n", rows, advances ? " of a run" : "",
                  mix, answer, all);
    if (advances)
        return;
    timed.queue = NULL;
    timed.queue_kept = kernels_recurrent_commit;
    double commit = gpu_time(queue, &timed, 4);
    timed.queue_kept = kernels_recurrent_move_windows;
    print_message("a path of %d: commit %.1f, windows %.1f us for all layers\n", depth, commit,
                  gpu_time(queue, &timed, 4));
}

static int bench(void)
{
    if (!usable)
        return 0;
    time_rows(1, true, 1);
    time_rows(17, false, 6);
    time_rows(16, false, 15);
    time_rows(65, false, 6);
    time_rows(257, false, 8);
    time_rows(2048, true, 1);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_trees_follow_the_definition),
        cmocka_unit_test(some_commits_are_single_steps),
        cmocka_unit_test(a_commit_is_single_steps),
        cmocka_unit_test(answers_do_not_depend_on_the_batch),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        find_gpu(NULL);
        return bench();
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
