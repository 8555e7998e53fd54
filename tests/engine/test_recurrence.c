/* Gated DeltaNet layers by themselves, on random rows in place of products: against the rule as it is defined, in
 * double precision with a state for every node; and what a commit leaves against the rule's own single steps, to the
 * bit. */
#include "collect/engine/cpu/recurrence.h"
#include "collect/engine/cpu/stack.h"
#include "tests/engine/hybrid_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    KEY_HEADS = 4,
    HEADS = 12,
    SIZE = 32,
    KEYS = KEY_HEADS * SIZE,
    VALUES = HEADS * SIZE,
    CHANNELS = 2 * KEYS + VALUES,
    WIDTH = CHANNELS + VALUES + 2 * HEADS,
    TAPS = 4,
    STATE = HEADS * SIZE * SIZE,
    ROWS_MAXIMUM = 300,
    TREE = 40,
    LAYER = 2, /* of the recurrent ones: the one that is tested */
};

static const int shapes[] = {1, 16, TREE, 64};
static struct model *target;

static int open_model(void **state)
{
    struct error error = {0};
    (void)state;
    target = model_open_target(HYBRID_FOLDER, &error);
    return target ? 0 : -1;
}

static int close_model(void **state)
{
    (void)state;
    model_close(target);
    return 0;
}

static struct recurrence *create(enum product_type type)
{
    const struct recurrence_options options = {.model = target,
                                               .type = type,
                                               .ranks = 1,
                                               .sessions = 3,
                                               .rows = 2 * 64,
                                               .verified_rows = 2 * TREE,
                                               .segment_shapes = shapes,
                                               .segment_shape_count = 4};
    return recurrence_create(&options);
}

static uint32_t random_state;

static int draw(int count)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)(((uint64_t)random_state * (uint64_t)count) >> 32);
}

/* Fused rows such as a layer's products make; now and then a decay that leaves nothing. */
static float *make_rows(int count)
{
    float *rows = calloc((size_t)count * WIDTH, sizeof *rows);
    for (int i = 0; i < count * WIDTH; i++)
        rows[i] = (float)(draw(1 << 16) + draw(1 << 16) - (1 << 16)) / (1 << 14);
    for (int i = 0; i < count; i += 9)
        rows[i * WIDTH + WIDTH - 1 - i % HEADS] = 300;
    return rows;
}

/* --- the definition --------------------------------------------------------------------------------------------- */

struct reference {
    double convolution[CHANNELS][TAPS], rate[HEADS], bias[HEADS], norm[SIZE];
    int count, parents[ROWS_MAXIMUM];
    float inputs[ROWS_MAXIMUM][CHANNELS];
    double (*states)[HEADS][SIZE][SIZE]; /* behind each row */
    double outputs[ROWS_MAXIMUM][VALUES];
};

static const struct model_recurrent_layer *tested_layer(void)
{
    return &target->layers[LAYER].recurrent; /* layers 0, 1 and 2 are recurrent */
}

static void read_doubles(const struct tensor *tensor, double *out)
{
    float value;
    for (int64_t i = 0; i < tensor->elements; i++) {
        tensor_to_float(tensor, i, 1, &value);
        out[i] = (double)value;
    }
}

static struct reference *make_reference(void)
{
    struct reference *reference = calloc(1, sizeof *reference);
    const struct model_recurrent_layer *layer = tested_layer();
    reference->states = calloc(ROWS_MAXIMUM, sizeof *reference->states);
    read_doubles(layer->convolution, &reference->convolution[0][0]);
    read_doubles(layer->decay_log, reference->rate);
    read_doubles(layer->step_bias, reference->bias);
    read_doubles(layer->norm, reference->norm);
    return reference;
}

static void free_reference(struct reference *reference)
{
    free(reference->states);
    free(reference);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void bring_to_length(const double *x, double factor, double *out)
{
    double sum = 1e-6;
    for (int i = 0; i < SIZE; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < SIZE; i++)
        out[i] = x[i] / sqrt(sum) * factor;
}

static void reference_head(struct reference *reference, int row, int head, const double *mixed, const float *fused)
{
    double query[SIZE], key[SIZE], delta[SIZE], output[SIZE] = {0}, squares = 1e-6 * SIZE;
    int parent = reference->parents[row];
    double(*state)[SIZE] = reference->states[row][head];
    const double *value = mixed + 2 * KEYS + head * SIZE;
    const float *z = fused + CHANNELS + head * SIZE;
    double a = (double)fused[CHANNELS + VALUES + HEADS + head] + reference->bias[head];
    double decay = exp(-exp(reference->rate[head]) * log1p(exp(a)));
    double beta = sigmoid((double)fused[CHANNELS + VALUES + head]);
    bring_to_length(mixed + head / (HEADS / KEY_HEADS) * SIZE, 1 / sqrt(SIZE), query);
    bring_to_length(mixed + KEYS + head / (HEADS / KEY_HEADS) * SIZE, 1, key);
    for (int v = 0; v < SIZE; v++) {
        double read = 0;
        for (int k = 0; k < SIZE; k++) {
            state[k][v] = parent >= 0 ? decay * reference->states[parent][head][k][v] : 0;
            read += state[k][v] * key[k];
        }
        delta[v] = beta * (value[v] - read);
        for (int k = 0; k < SIZE; k++) {
            state[k][v] += key[k] * delta[v];
            output[v] += state[k][v] * query[k];
        }
        squares += output[v] * output[v];
    }
    for (int v = 0; v < SIZE; v++)
        reference->outputs[row][head * SIZE + v] =
            reference->norm[v] * output[v] / sqrt(squares / SIZE) * (double)z[v] * sigmoid((double)z[v]);
}

/* Adds a row behind `parent` (-1: the first) and answers its place. */
static int reference_add(struct reference *reference, int parent, const float *fused)
{
    int row = reference->count++, at = row;
    double mixed[CHANNELS] = {0};
    reference->parents[row] = parent;
    memcpy(reference->inputs[row], fused, sizeof reference->inputs[row]);
    for (int t = TAPS - 1; t >= 0 && at >= 0; t--, at = reference->parents[at])
        for (int c = 0; c < CHANNELS; c++)
            mixed[c] += reference->convolution[c][t] * (double)reference->inputs[at][c];
    for (int c = 0; c < CHANNELS; c++)
        mixed[c] *= sigmoid(mixed[c]);
    for (int head = 0; head < HEADS; head++)
        reference_head(reference, row, head, mixed, fused);
    return row;
}

/* --- against it ------------------------------------------------------------------------------------------------- */

static double worst_output, worst_state; /* relative to the largest of a row, and of a head's state */

static void assert_output(const struct reference *reference, int row, const float *out)
{
    double largest = 0, distance = 0;
    for (int i = 0; i < VALUES; i++) {
        largest = fmax(largest, fabs(reference->outputs[row][i]));
        distance = fmax(distance, fabs((double)out[i] - reference->outputs[row][i]));
    }
    worst_output = fmax(worst_output, distance / largest);
    assert_true(distance <= 2e-5 * largest);
}

static void assert_state(const struct reference *reference, int row, const float *states)
{
    for (int head = 0; head < HEADS; head++, states += SIZE * SIZE) {
        double largest = 0, distance = 0;
        for (int i = 0; i < SIZE * SIZE; i++) {
            double expected = reference->states[row][head][i / SIZE][i % SIZE];
            largest = fmax(largest, fabs(expected));
            distance = fmax(distance, fabs((double)states[i] - expected));
        }
        worst_state = fmax(worst_state, distance / largest);
        assert_true(distance <= 2e-5 * largest);
    }
}

struct run {
    struct recurrence *recurrence;
    struct reference *reference[2]; /* of sessions 0 and 1 */
    int last[2];                    /* their committed rows there */
};

/* `count` rows of each of both sessions, which advance them. */
static void append(struct run *run, int count)
{
    float *fused = make_rows(2 * count), *out = calloc((size_t)(2 * count) * VALUES, sizeof *out);
    const struct stack_segment segments[] = {{.session = 0, .first = 0, .count = count, .advances = true},
                                             {.session = 1, .first = count, .count = count, .advances = true}};
    recurrence_run(run->recurrence, LAYER, segments, 2, fused, out);
    for (int i = 0; i < 2 * count; i++) {
        int s = i / count;
        run->last[s] = reference_add(run->reference[s], run->last[s], fused + (size_t)i * WIDTH);
        assert_output(run->reference[s], run->last[s], out + (size_t)i * VALUES);
    }
    for (int s = 0; s < 2; s++)
        assert_state(run->reference[s], run->last[s], recurrence_state(run->recurrence, LAYER, s));
    free(fused);
    free(out);
}

/* A random tree: parents before children, as deep as it falls. */
static void make_tree(int *parents, int count)
{
    parents[0] = -1;
    for (int i = 1; i < count; i++)
        parents[i] = draw(3) ? i - 1 - draw(i < 3 ? i : 3) : draw(i);
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

/* A tree of each session over what is committed; then the path to a node of each is. */
static void verify_and_commit(struct run *run, int count)
{
    float *fused = make_rows(2 * count), *out = calloc((size_t)(2 * count) * VALUES, sizeof *out);
    int parents[2][TREE], places[TREE], path[TREE];
    struct stack_segment segments[2];
    for (int s = 0; s < 2; s++) {
        make_tree(parents[s], count);
        segments[s] = (struct stack_segment){.session = s, .first = s * count, .count = count, .parents = parents[s]};
    }
    recurrence_run(run->recurrence, LAYER, segments, 2, fused, out);
    for (int s = 0; s < 2; s++) {
        int before = run->reference[s]->count, node = draw(count);
        for (int i = 0; i < count; i++) {
            int parent = parents[s][i] < 0 ? run->last[s] : places[parents[s][i]];
            places[i] = reference_add(run->reference[s], parent, fused + (size_t)(s * count + i) * WIDTH);
            assert_output(run->reference[s], places[i], out + (size_t)(s * count + i) * VALUES);
        }
        assert_int_equal(run->reference[s]->count, before + count);
        recurrence_commit(run->recurrence, s, s * count, path, path_to(parents[s], node, path));
        run->last[s] = places[node];
        assert_state(run->reference[s], run->last[s], recurrence_state(run->recurrence, LAYER, s));
    }
    free(fused);
    free(out);
}

static void rows_and_trees_follow_the_definition(void **state)
{
    (void)state;
    struct run run = {create(PRODUCT_FLOAT32), {make_reference(), make_reference()}, {-1, -1}};
    random_state = 1;
    append(&run, 1);
    append(&run, 2);
    verify_and_commit(&run, TREE);
    append(&run, 1);
    append(&run, 64);
    verify_and_commit(&run, 1);
    verify_and_commit(&run, 9);
    verify_and_commit(&run, TREE);
    append(&run, 17);
    append(&run, 1);
    print_message("largest relative distances: outputs %.2g, states %.2g\n", worst_output, worst_state);
    free_reference(run.reference[0]);
    free_reference(run.reference[1]);
    recurrence_destroy(run.recurrence);
}

/* --- to the bit ------------------------------------------------------------------------------------------------- */

/* The same rows, once verified as a tree of which a path is committed, once by single steps along that path: the same
 * states and windows, which the next row's output shows. */
static void a_commit_is_single_steps(void **state)
{
    static const enum product_type types[] = {PRODUCT_FLOAT32, PRODUCT_BFLOAT16};
    (void)state;
    for (int t = 0; t < 2; t++) {
        struct recurrence *recurrence = create(types[t]);
        char out[TREE * VALUES * sizeof(float)], next[2][VALUES * sizeof(float)];
        int parents[TREE], path[TREE];
        random_state = 7;
        for (int round = 0; round < 40; round++) {
            float *fused = make_rows(TREE);
            make_tree(parents, TREE);
            int length = path_to(parents, draw(TREE), path);
            const struct stack_segment tree = {.session = 0, .count = TREE, .parents = parents};
            recurrence_run(recurrence, LAYER, &tree, 1, fused, out);
            recurrence_commit(recurrence, 0, 0, path, length);
            const struct stack_segment step = {.session = 1, .count = 1, .advances = true};
            for (int i = 0; i < length; i++)
                recurrence_run(recurrence, LAYER, &step, 1, fused + (size_t)path[i] * WIDTH, out);
            assert_memory_equal(recurrence_state(recurrence, LAYER, 0), recurrence_state(recurrence, LAYER, 1),
                                STATE * sizeof(float));
            for (int s = 0; s < 2; s++) {
                const struct stack_segment after = {.session = s, .count = 1, .advances = true};
                recurrence_run(recurrence, LAYER, &after, 1, fused, next[s]);
            }
            assert_memory_equal(next[0], next[1], sizeof next[0]);
            free(fused);
        }
        recurrence_destroy(recurrence);
    }
}

/* Verifying changes nothing that is committed, and a reset forgets all. */
static void only_a_commit_counts(void **state)
{
    (void)state;
    struct recurrence *recurrence = create(PRODUCT_FLOAT32);
    static float first[64 * VALUES], again[64 * VALUES];
    float *prompt = make_rows(64), *other = make_rows(TREE);
    int parents[TREE];
    make_tree(parents, TREE);
    const struct stack_segment run = {.session = 0, .count = 64, .advances = true},
                               tree = {.session = 0, .count = TREE, .parents = parents};
    recurrence_run(recurrence, LAYER, &run, 1, prompt, first);
    recurrence_reset(recurrence, 0);
    recurrence_run(recurrence, LAYER, &run, 1, prompt, again);
    assert_memory_equal(first, again, sizeof first);
    recurrence_run(recurrence, LAYER, &tree, 1, other, first);
    recurrence_run(recurrence, LAYER, &tree, 1, prompt, again);
    recurrence_run(recurrence, LAYER, &tree, 1, other, again);
    assert_memory_equal(first, again, TREE * VALUES * sizeof(float));
    free(prompt);
    free(other);
    recurrence_destroy(recurrence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_trees_follow_the_definition),
        cmocka_unit_test(a_commit_is_single_steps),
        cmocka_unit_test(only_a_commit_counts),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
