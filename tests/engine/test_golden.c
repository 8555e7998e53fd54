/* The engine in float32 against the outputs of other implementations (tests/golden/demo.json): Hugging Face
 * transformers for the target's logits and greedy tokens, the DFlash and DDTree authors' published loops for rounds and
 * trees. CLEANSLATE_BACKEND=cuda tests that backend instead of the CPU's. */
#include "collect/base/json.h"
#include "collect/engine/cpu/kernels.h"
#include "collect/engine/decode.h"
#include "tests/engine/kept_algorithms.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOGIT_TOLERANCE 1e-4
#define OUTPUT_TOKENS 64
#define CAPACITY 256

static const struct sampling greedy = {.top_p = 1};

/* A backend that was opened for a method. */
struct opened {
    enum method method;
    int budget;
    struct backend_options options;
    struct backend *backend;
};

struct world {
    const struct backend_class *class;
    const char *device; /* which GPUs, where that backend is tested: one for all ranks, if it is not said */
    json_t *golden;
    struct model *target, *drafter;
    int ranks;
    struct opened opened[8]; /* for these ranks: opening one takes longer than most that is done with it */
    int opened_count;
};

static int open_world(void **state)
{
    static struct world world;
    struct error error = {0};
    const char *backend = getenv("CLEANSLATE_BACKEND");
    world.device = backend && strchr(backend, ':') ? backend : "cuda:0,0,0,0,0,0,0,0";
    world.class = backend_find(backend ? backend : "cpu", &error);
    if (!world.class)
        print_message("SKIPPED: %s\n", error.message);
    error = (struct error){0};
    world.golden = json_read_file("tests/golden/demo.json", &error);
    world.target = model_open_target("data/models/demo/target", &error);
    world.drafter = world.target ? model_open_drafter("data/models/demo/drafter", world.target, &error) : NULL;
    if (error.message[0])
        print_error("%s\n", error.message);
    *state = &world;
    return error.message[0] ? -1 : 0;
}

static int close_world(void **state)
{
    struct world *world = *state;
    json_decref(world->golden);
    model_close(world->drafter);
    model_close(world->target);
    return 0;
}

static int *read_ints(const json_t *array, int *count)
{
    *count = (int)json_array_size(array);
    int *numbers = calloc((size_t)*count + 1, sizeof *numbers);
    for (int i = 0; i < *count; i++)
        numbers[i] = (int)json_integer_value(json_array_get(array, (size_t)i));
    return numbers;
}

static void assert_ints(const json_t *expected, const int *actual, int count)
{
    assert_int_equal(json_array_size(expected), count);
    for (int i = 0; i < count; i++)
        assert_int_equal(actual[i], json_integer_value(json_array_get(expected, (size_t)i)));
}

static struct backend_options options_for(const struct world *world, enum method method, int budget)
{
    bool drafts = method != METHOD_AUTO;
    int block = world->drafter->block_size, nodes = method == METHOD_DDTREE ? budget + 1 : drafts ? block : 1;
    return (struct backend_options){.target = world->target,
                                    .drafter = drafts ? world->drafter : NULL,
                                    .dtype = ENGINE_FLOAT32,
                                    .device = world->device,
                                    .ranks = world->ranks,
                                    .sessions = 1,
                                    .capacity = CAPACITY + nodes,
                                    .nodes = nodes,
                                    .draft_width = method == METHOD_DDTREE ? budget : 1,
                                    .vocabulary = world->target->vocabulary_size,
                                    .algorithms = kept_algorithms()};
}

static const struct opened *opened_for(struct world *world, enum method method, int budget)
{
    struct error error = {0};
    struct opened *opened = world->opened;
    while (opened < world->opened + world->opened_count && (opened->method != method || opened->budget != budget))
        opened++;
    if (opened == world->opened + world->opened_count) {
        world->opened_count++;
        *opened = (struct opened){method, budget, options_for(world, method, budget), NULL};
        opened->backend = world->class->open(&opened->options, &error);
        assert_string_equal(error.message, "");
    }
    return opened;
}

static void close_all(struct world *world)
{
    while (world->opened_count > 0) {
        struct backend *backend = world->opened[--world->opened_count].backend;
        backend->class->close(backend);
    }
}

static double log_sum_exp(const float *x, int count)
{
    double best = x[0], sum = 0;
    for (int i = 1; i < count; i++)
        best = fmax(best, x[i]);
    for (int i = 0; i < count; i++)
        sum += exp(x[i] - best);
    return best + log(sum);
}

/* One golden row: its ten best logits and its log-sum-exp. */
static void assert_row(const json_t *row, const float *logits, int vocabulary)
{
    const json_t *ids = json_object_get(row, "top_ids"), *values = json_object_get(row, "top");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        assert_float_equal(logits[id], json_number_value(json_array_get(values, i)), LOGIT_TOLERANCE);
    }
    assert_float_equal(log_sum_exp(logits, vocabulary), json_number_value(json_object_get(row, "logsumexp")),
                       LOGIT_TOLERANCE);
}

/* Extends an empty session in pieces that end at whole multiples of 64, and answers the last row's place in the last.
 */
static int extend_whole(struct backend *backend, const int *ids, int count, struct choice *chosen)
{
    int before = (count - 1) / 64 * 64;
    backend->class->reset(backend, 0, &greedy);
    if (before > 0)
        backend->class->extend(backend, &(struct segment){0, before, ids, NULL}, 1, chosen);
    backend->class->extend(backend, &(struct segment){0, count - before, ids + before, NULL}, 1, chosen);
    return count - before - 1;
}

static void check_logits(struct world *world, const json_t *prompt)
{
    struct backend *backend = opened_for(world, METHOD_DDTREE, 16)->backend;
    int count, vocabulary = world->target->vocabulary_size, *ids = read_ints(json_object_get(prompt, "ids"), &count);
    float *logits = calloc((size_t)vocabulary, sizeof *logits);
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(prompt, "logits"), index, row)
    {
        int position = (int)json_integer_value(json_object_get(row, "pos"));
        struct choice chosen;
        backend->class->inspect(backend, INSPECT_LOGITS, extend_whole(backend, ids, position + 1, &chosen), 1, logits);
        assert_row(row, logits, vocabulary);
    }
    free(logits);
    free(ids);
}

static void check_draft(struct world *world, const json_t *prompt)
{
    struct backend *backend = opened_for(world, METHOD_LINEAR, 0)->backend;
    int count, vocabulary = world->target->vocabulary_size, *ids = read_ints(json_object_get(prompt, "ids"), &count);
    int width = world->drafter->feature_count * world->drafter->hidden_size, hidden = world->drafter->hidden_size;
    float *logits = calloc((size_t)vocabulary, sizeof *logits), *features = calloc((size_t)width, sizeof *features);
    int tokens[64], session = 0;
    float log_probabilities[64];
    struct tree_draft draft = {0, 1, tokens, log_probabilities};
    struct choice chosen;
    backend->class->inspect(backend, INSPECT_FEATURES, extend_whole(backend, ids, count, &chosen), 1, features);
    for (int f = 0; f < world->drafter->feature_count; f++) {
        double squares = 0;
        for (int i = 0; i < hidden; i++)
            squares += (double)features[f * hidden + i] * features[f * hidden + i];
        double expected = json_number_value(json_array_get(json_object_get(prompt, "feature_rms"), (size_t)f));
        assert_float_equal(sqrt(squares / hidden), expected, 1e-4);
    }
    backend->class->draft(backend, &session, &chosen.token, 1, &draft);
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(prompt, "draft"), index, row)
    {
        int slot = (int)json_integer_value(json_object_get(row, "slot"));
        backend->class->inspect(backend, INSPECT_DRAFT, slot, 1, logits);
        assert_row(row, logits, vocabulary);
    }
    free(features);
    free(logits);
    free(ids);
}

/* Runs one method on the prompt; *first_tree as it was after the first round. */
static void run_method(struct world *world, const json_t *prompt, enum method method, int budget, struct sample *sample,
                       struct tree *first_tree)
{
    const struct opened *opened = opened_for(world, method, budget);
    struct backend *backend = opened->backend;
    struct decoder *decoder = decoder_create(backend, &opened->options, method, budget);
    int count, *ids = read_ints(json_object_get(prompt, "ids"), &count);
    const struct decode_request request = {ids, count, OUTPUT_TOKENS, true, greedy};
    sample_init(sample);
    decoder_admit(decoder, 0, &request, sample);
    decoder_round(decoder);
    *first_tree = *decoder_last_tree(decoder, 0);
    while (decoder_round(decoder) > 0)
        ;
    decoder_retire(decoder, 0);
    free(ids);
    decoder_destroy(decoder);
}

/* How many slots of a block the DDTree authors' loop has left when `out` tokens are out: its buffer has room for the
 * output and one tree, and cuts the block of masks where it ends. */
static int reference_slots(int block, int budget, int out)
{
    int room = OUTPUT_TOKENS + budget + 1 - (out - 1);
    return room < block ? room : block;
}

/* The rounds in which the reference drafts a whole block; cut_blocks_agree() has the others. tree_nodes: budget, or the
 * block less one. */
static void assert_rounds(const json_t *expected, const struct sample *sample, int tree_nodes)
{
    int out = 1, compared = 0;
    for (int round = 0; out < OUTPUT_TOKENS && round < sample->rounds && reference_slots(16, tree_nodes, out) == 16;
         round++) {
        assert_int_equal(sample->accepted[round], json_integer_value(json_array_get(expected, (size_t)round)));
        out += sample->accepted[round];
        compared++;
    }
    assert_true(compared > 0);
}

/* What a tree's scores are in the reference: of each node whose way down goes through the ten logits that it printed of
 * each slot, else ours. Answers how far ours lie from them at most; a step is a logit less a log-sum-exp. */
static double read_scores(const json_t *draft, const struct tree *tree, double *scores)
{
    bool printed[65] = {true};
    double farthest = 0;
    for (int i = 0; i < tree->count; i++) {
        scores[i] = tree->scores[i];
        const json_t *row = json_array_get(draft, (size_t)tree->depths[i] - 1), *ids = json_object_get(row, "top_ids");
        size_t rank = 0;
        while (rank < json_array_size(ids) && json_integer_value(json_array_get(ids, rank)) != tree->tokens[i])
            rank++;
        if (i == 0 || !printed[tree->parents[i]] || rank == json_array_size(ids))
            continue;
        printed[i] = true;
        scores[i] = scores[tree->parents[i]] + json_number_value(json_array_get(json_object_get(row, "top"), rank)) -
                    json_number_value(json_object_get(row, "logsumexp"));
        assert_float_equal(tree->scores[i], scores[i], tree->depths[i] * 2 * LOGIT_TOLERANCE);
        farthest = fmax(farthest, fabs(tree->scores[i] - scores[i]));
    }
    return farthest;
}

/* The same nodes in the same order. Two may stand the other way round only where the reference's scores lie no farther
 * apart than twice what ours are off in this tree, since a right builder cannot tell them apart. It is one pair of the
 * 36 trees, to which the reference's logits as printed give the same score. Without a draft, of given logits, none. */
static void check_tree(const json_t *expected, const json_t *draft, const struct tree *tree)
{
    int count, *tokens = read_ints(json_object_get(expected, "tokens"), &count);
    int *parents = read_ints(json_object_get(expected, "parents"), &count), ours[65] = {0};
    assert_int_equal(count, tree->count);
    assert_int_equal(tokens[0], tree->tokens[0]);
    double scores[65], tie = 2 * read_scores(draft, tree, scores);
    for (int i = 1; i < count; i++) {
        int node = 1;
        while (node < count && (tree->tokens[node] != tokens[i] || tree->parents[node] != ours[parents[i]]))
            node++;
        assert_int_not_equal(node, count);
        assert_true(node == i || fabs(scores[node] - scores[i]) < tie);
        ours[i] = node;
    }
    free(parents);
    free(tokens);
}

static void check_methods(struct world *world, const json_t *prompt)
{
    struct sample sample;
    struct tree tree;
    run_method(world, prompt, METHOD_AUTO, 0, &sample, &tree);
    assert_ints(json_object_get(prompt, "greedy"), sample.token_ids, sample.tokens);
    for (int i = 0; i < sample.tokens; i++)
        assert_float_equal(sample.margins[i],
                           json_number_value(json_array_get(json_object_get(prompt, "greedy_margin"), (size_t)i)),
                           3e-4);
    assert_int_equal(sample.rounds, OUTPUT_TOKENS - 1);
    sample_free(&sample);

    const json_t *linear = json_object_get(prompt, "linear");
    run_method(world, prompt, METHOD_LINEAR, 0, &sample, &tree);
    assert_ints(json_object_get(linear, "tokens"), sample.token_ids, sample.tokens);
    assert_rounds(json_object_get(linear, "accepted"), &sample, world->drafter->block_size - 1);
    sample_free(&sample);

    const char *budget;
    json_t *expected;
    json_object_foreach(json_object_get(prompt, "ddtree"), budget, expected)
    {
        run_method(world, prompt, METHOD_DDTREE, atoi(budget), &sample, &tree);
        assert_ints(json_object_get(expected, "tokens"), sample.token_ids, sample.tokens);
        assert_rounds(json_object_get(expected, "accepted"), &sample, atoi(budget));
        check_tree(json_object_get(expected, "first_tree"), json_object_get(prompt, "draft"), &tree);
        sample_free(&sample);
    }
}

/* The draft as the reference reads it: the last block - 1 of the slots it has. Where the block was cut that takes in
 * the anchor's own slot, so that each prediction stands one place too late and little is accepted. */
static void draft_like_reference(const struct world *world, struct backend *backend, int slots, int anchor,
                                 struct tree_draft *draft)
{
    int block = world->drafter->block_size, session = 0;
    world->drafter->block_size = slots;
    backend->class->draft(backend, &session, &anchor, 1, draft);
    world->drafter->block_size = block;
    if (slots == block)
        return;
    int vocabulary = world->target->vocabulary_size;
    float *logits = calloc((size_t)vocabulary, sizeof *logits);
    draft->slots = slots < block - 1 ? slots : block - 1;
    for (int slot = 0; slot < draft->slots; slot++) {
        float *best = draft->log_probabilities + slot * draft->width;
        backend->class->inspect(backend, INSPECT_DRAFT, slots - draft->slots + slot, 1, logits);
        kernel_top(logits, vocabulary, draft->width, draft->tokens + slot * draft->width, best);
        for (int i = 0; i < draft->width; i++)
            best[i] -= (float)log_sum_exp(logits, vocabulary);
    }
    free(logits);
}

static int verify_and_commit(struct backend *backend, const struct tree *tree, int *anchor)
{
    struct choice chosen[65];
    int tokens[65], path[65];
    backend->class->verify(backend, &(struct segment){0, tree->count, tree->tokens, tree->parents}, 1, chosen);
    for (int i = 0; i < tree->count; i++)
        tokens[i] = chosen[i].token;
    int length = tree_walk(tree, tokens, path);
    backend->class->commit(backend, &(struct kept_path){0, length, path}, 1);
    *anchor = tokens[path[length - 1]];
    return length;
}

/* Every round of the reference, those with a cut block included. */
static void check_every_round(struct world *world, const json_t *prompt, int budget, const json_t *expected)
{
    struct backend *backend = opened_for(world, METHOD_DDTREE, budget)->backend;
    int count, *ids = read_ints(json_object_get(prompt, "ids"), &count);
    int tokens[16 * 64];
    float log_probabilities[16 * 64];
    static struct tree tree;
    struct tree_draft draft = {0, budget, tokens, log_probabilities};
    struct choice first;
    backend->class->reset(backend, 0, &greedy);
    backend->class->extend(backend, &(struct segment){0, count, ids, NULL}, 1, &first);
    int anchor = first.token, out = 1;
    for (size_t round = 0; out < OUTPUT_TOKENS; round++) {
        draft_like_reference(world, backend, reference_slots(world->drafter->block_size, budget, out), anchor, &draft);
        tree_build(&draft, anchor, budget, &tree);
        int accepted = verify_and_commit(backend, &tree, &anchor);
        assert_int_equal(accepted, json_integer_value(json_array_get(expected, round)));
        out += accepted;
    }
    free(ids);
}

static void check_cut_blocks(struct world *world, const json_t *prompt)
{
    const char *budget;
    json_t *expected;
    json_object_foreach(json_object_get(prompt, "ddtree"), budget, expected)
        check_every_round(world, prompt, atoi(budget), json_object_get(expected, "accepted"));
}

static void each_prompt(void **state, int ranks, void (*check)(struct world *, const json_t *))
{
    struct world *world = *state;
    size_t index;
    json_t *prompt;
    if (!world->class)
        skip();
    assert_int_equal(json_array_size(json_object_get(world->golden, "prompts")), 6);
    int listed = 1;
    for (const char *at = world->device; (at = strchr(at, ',')); at++)
        listed++;
    ranks = ranks < listed ? ranks : listed;
    for (world->ranks = 1; world->ranks <= ranks; world->ranks *= 2) {
        json_array_foreach(json_object_get(world->golden, "prompts"), index, prompt) check(world, prompt);
        close_all(world);
    }
}

static void target_logits_agree(void **state)
{
    each_prompt(state, 8, check_logits);
}

static void features_and_draft_agree(void **state)
{
    each_prompt(state, 8, check_draft);
}

static void methods_agree(void **state)
{
    each_prompt(state, 8, check_methods);
}

static void cut_blocks_agree(void **state)
{
    each_prompt(state, 1, check_cut_blocks);
}

/* Trees for given logits: 15 slots of 64 tokens. */
static void trees_agree(void **state)
{
    const struct world *world = *state;
    size_t index;
    json_t *given;
    json_array_foreach(json_object_get(world->golden, "trees"), index, given)
    {
        const json_t *rows = json_object_get(given, "logits");
        int budget = (int)json_integer_value(json_object_get(given, "budget")), slots = (int)json_array_size(rows);
        int tokens[64 * 64], order[64];
        float log_probabilities[64 * 64], logits[64];
        struct tree_draft draft = {slots, budget < 64 ? budget : 64, tokens, log_probabilities};
        for (int slot = 0; slot < slots; slot++) {
            for (int i = 0; i < 64; i++) {
                logits[i] = (float)json_number_value(json_array_get(json_array_get(rows, (size_t)slot), (size_t)i));
                int at = i;
                for (; at > 0 && logits[order[at - 1]] < logits[i]; at--)
                    order[at] = order[at - 1];
                order[at] = i;
            }
            for (int rank = 0; rank < draft.width; rank++) {
                tokens[slot * draft.width + rank] = order[rank];
                log_probabilities[slot * draft.width + rank] = logits[order[rank]] - (float)log_sum_exp(logits, 64);
            }
        }
        static struct tree tree;
        tree_build(&draft, -1, budget, &tree);
        check_tree(given, NULL, &tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_agree),
        cmocka_unit_test(target_logits_agree),
        cmocka_unit_test(features_and_draft_agree),
        cmocka_unit_test(methods_agree),
        cmocka_unit_test(cut_blocks_agree),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
