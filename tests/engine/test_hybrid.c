/* The hybrid of attention and gated DeltaNet in float32 against Hugging Face transformers' outputs
 * (tests/golden/qwen35-tiny): logits of prompts, of a tree's nodes, and a greedy continuation; every method and number
 * of ranks against each other. CLEANSLATE_BACKEND=cuda tests that backend instead of the CPU's, its ranks on one GPU;
 * cuda:0,1,2,3 gives each its own. With an argument only the tests of that name run. */
#include "collect/base/json.h"
#include "collect/engine/decode.h"
#include "tests/engine/hybrid_files.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOGIT_TOLERANCE 1e-4

enum { VOCABULARY = 512, CAPACITY = 256, NODES = 65, RANKS = 4, SESSIONS = 3 };

static const struct sampling greedy = {.top_p = 1};
static const struct backend_class *class;
static const char *device;
static json_t *golden;
static struct model *target, *drafter;
static float logits[CAPACITY * VOCABULARY];
static double worst; /* distance of a logit from the reference's, over all that was compared */

static struct model *make_drafter(struct error *error)
{
    char *folder = fixture_make_folder();
    hybrid_write_drafter(folder);
    struct model *model = model_open_drafter(folder, target, error);
    fixture_remove_folder(folder);
    return model;
}

static int open_world(void **state)
{
    struct error error = {0};
    const char *backend = getenv("CLEANSLATE_BACKEND");
    (void)state;
    class = backend_find(backend ? backend : "cpu", &error);
    device = backend && strchr(backend, ':') ? backend : "cuda:0,0,0,0";
    if (!class || !class->has_recurrence)
        print_message("SKIPPED: %s\n", class ? "this backend has no recurrent layers" : error.message);
    error = (struct error){0};
    golden = json_read_file(HYBRID_FOLDER "/golden.json", &error);
    target = model_open_target(HYBRID_FOLDER, &error);
    drafter = target ? make_drafter(&error) : NULL;
    if (error.message[0])
        print_error("%s\n", error.message);
    return error.message[0] ? -1 : 0;
}

static int close_world(void **state)
{
    (void)state;
    print_message("largest distance of a logit from the reference: %.2g\n", worst);
    model_close(drafter);
    model_close(target);
    json_decref(golden);
    return 0;
}

static struct backend_options options_for(int ranks, enum method method, int budget)
{
    bool drafts = method != METHOD_AUTO;
    int nodes = method == METHOD_DDTREE ? budget + 1 : drafts ? drafter->block_size : 1;
    return (struct backend_options){.target = target,
                                    .drafter = drafts ? drafter : NULL,
                                    .dtype = ENGINE_FLOAT32,
                                    .device = device,
                                    .ranks = ranks,
                                    .sessions = SESSIONS,
                                    .capacity = CAPACITY + nodes,
                                    .nodes = method == METHOD_DDTREE ? budget + 1
                                             : drafts                ? drafter->block_size
                                                                     : 1,
                                    .draft_width = method == METHOD_DDTREE ? budget : 1,
                                    .vocabulary = VOCABULARY,
                                    .algorithms = kept_algorithms()};
}

static struct backend *open_backend(const struct backend_options *options)
{
    struct error error = {0};
    struct backend *backend = class->open(options, &error);
    assert_string_equal(error.message, "");
    /* The backend does not keep the error. */
    /* cppcheck-suppress returnDanglingLifetime */
    return backend;
}

static bool can_run(void)
{
    return class && class->has_recurrence;
}

static int *read_ints(const json_t *array, int *count)
{
    *count = (int)json_array_size(array);
    int *numbers = calloc((size_t)*count + 1, sizeof *numbers);
    for (int i = 0; i < *count; i++)
        numbers[i] = (int)json_integer_value(json_array_get(array, (size_t)i));
    return numbers;
}

static double log_sum_exp(const float *x)
{
    double best = x[0], sum = 0;
    for (int i = 1; i < VOCABULARY; i++)
        best = fmax(best, x[i]);
    for (int i = 0; i < VOCABULARY; i++)
        sum += exp(x[i] - best);
    return best + log(sum);
}

static void assert_near(double actual, const json_t *expected)
{
    double distance = fabs(actual - json_number_value(expected));
    worst = fmax(worst, distance);
    assert_true(distance < LOGIT_TOLERANCE);
}

/* One golden row: its ten best logits and its log-sum-exp. */
static void assert_row(const json_t *row, const float *ours)
{
    const json_t *ids = json_object_get(row, "top_ids"), *values = json_object_get(row, "top");
    assert_int_equal(json_array_size(ids), 10);
    for (size_t i = 0; i < 10; i++)
        assert_near(ours[json_integer_value(json_array_get(ids, i))], json_array_get(values, i));
    assert_near(log_sum_exp(ours), json_object_get(row, "logsumexp"));
}

/* Appends to an empty session in pieces of at most `piece`, and keeps the logits of every position. */
static void extend_in_pieces(struct backend *backend, const int *ids, int count, int piece)
{
    struct choice chosen;
    class->reset(backend, 0, &greedy);
    for (int done = 0; done < count; done += piece) {
        int rows = count - done < piece ? count - done : piece;
        class->extend(backend, &(struct segment){0, rows, ids + done, NULL}, 1, &chosen);
        class->inspect(backend, INSPECT_LOGITS, 0, rows, logits + (size_t)done * VOCABULARY);
    }
}

/* At every length, in whole chunks, in uneven pieces and by single steps. */
static void logits_of_prompts_agree(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    static const int pieces[] = {64, 7, 1};
    size_t index, row_index;
    json_t *prompt, *row;
    for (int ranks = 1; ranks <= RANKS; ranks *= 2) {
        const struct backend_options options = options_for(ranks, METHOD_AUTO, 0);
        struct backend *backend = open_backend(&options);
        json_array_foreach(json_object_get(golden, "cases"), index, prompt)
        {
            int count, *ids = read_ints(json_object_get(prompt, "ids"), &count);
            for (int i = 0; i < 3; i++) {
                extend_in_pieces(backend, ids, count, pieces[i]);
                json_array_foreach(json_object_get(prompt, "logits"), row_index, row)
                    assert_row(row, logits + json_integer_value(json_object_get(row, "pos")) * VOCABULARY);
            }
            free(ids);
        }
        class->close(backend);
    }
}

/* Roundings of bfloat16 move logits, but not far: they are of size 4. */
static void bfloat16_stays_near(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    const json_t *prompt = json_array_get(json_object_get(golden, "cases"), 3);
    int count, *ids = read_ints(json_object_get(prompt, "ids"), &count);
    struct backend_options options = options_for(2, METHOD_AUTO, 0);
    options.dtype = ENGINE_BFLOAT16;
    struct backend *backend = open_backend(&options);
    double squares = 0;
    size_t index;
    json_t *row;
    extend_in_pieces(backend, ids, count, 7);
    json_array_foreach(json_object_get(prompt, "logits"), index, row)
    {
        const float *ours = logits + json_integer_value(json_object_get(row, "pos")) * VOCABULARY;
        for (size_t i = 0; i < 10; i++) {
            json_int_t id = json_integer_value(json_array_get(json_object_get(row, "top_ids"), i));
            double distance = (double)ours[id] - json_number_value(json_array_get(json_object_get(row, "top"), i));
            squares += distance * distance / 30;
        }
    }
    print_message("bfloat16: logits %.2g from the reference (root mean square)\n", sqrt(squares));
    assert_true(sqrt(squares) < 0.2);
    class->close(backend);
    free(ids);
}

/* --- trees ------------------------------------------------------------------------------------------------------ */

static void append(struct backend *backend, int session, const int *ids, int count)
{
    struct choice ignored;
    class->extend(backend, &(struct segment){session, count, ids, NULL}, 1, &ignored);
}

/* The path to `node`, whose tokens are appended to session 1 one by one: both sessions answer the next row alike. */
static void check_commit(struct backend *backend, const struct segment *tree, int node)
{
    static float ours[VOCABULARY], single[VOCABULARY];
    int path[NODES], length = 0;
    for (int at = node; at >= 0; at = tree->parents[at])
        length++;
    for (int at = node, i = length; at >= 0; at = tree->parents[at])
        path[--i] = at;
    class->commit(backend, &(struct kept_path){0, length, path}, 1);
    for (int i = 0; i < length; i++)
        append(backend, 1, &tree->tokens[path[i]], 1);
    append(backend, 0, &tree->tokens[0], 1);
    class->inspect(backend, INSPECT_LOGITS, 0, 1, ours);
    append(backend, 1, &tree->tokens[0], 1);
    class->inspect(backend, INSPECT_LOGITS, 0, 1, single);
    for (int i = 0; i < VOCABULARY; i++)
        assert_float_equal(ours[i], single[i], 2 * LOGIT_TOLERANCE);
}

static void logits_of_a_trees_nodes_agree(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    const json_t *expected = json_object_get(golden, "tree"), *nodes = json_object_get(expected, "nodes");
    int prefix_count, count, *prefix = read_ints(json_object_get(expected, "prefix"), &prefix_count);
    int *tokens = read_ints(json_object_get(expected, "tokens"), &count),
        *parents = read_ints(json_object_get(expected, "parents"), &count);
    for (int ranks = 1; ranks <= RANKS; ranks *= 2) {
        const struct backend_options options = options_for(ranks, METHOD_DDTREE, NODES - 1);
        struct backend *backend = open_backend(&options);
        struct choice chosen[NODES];
        const struct segment tree = {0, count, tokens, parents}, other = {0, count, prefix, parents};
        for (int session = 0; session < 2; session++) {
            class->reset(backend, session, &greedy);
            append(backend, session, prefix, prefix_count);
        }
        for (int i = 0; i < 2; i++) { /* another tree between leaves no trace */
            class->verify(backend, &tree, 1, chosen);
            class->inspect(backend, INSPECT_LOGITS, 0, count, logits);
            for (int node = 0; node < count; node++)
                assert_row(json_array_get(nodes, (size_t)node), logits + node * VOCABULARY);
            class->verify(backend, &other, 1, chosen);
        }
        class->verify(backend, &tree, 1, chosen);
        check_commit(backend, &tree, 8);
        class->close(backend);
    }
    free(prefix);
    free(tokens);
    free(parents);
}

/* --- methods ---------------------------------------------------------------------------------------------------- */

/* Runs the golden prompt in session 0 and shorter ones beside it; each session's tokens into outputs. */
static void run_method(int ranks, enum method method, int budget, int outputs[SESSIONS][40])
{
    const struct backend_options options = options_for(ranks, method, budget);
    struct backend *backend = open_backend(&options);
    struct decoder *decoder = decoder_create(backend, &options, method, budget);
    struct sample samples[SESSIONS];
    int count, *prompt = read_ints(json_object_get(json_object_get(golden, "greedy"), "prompt"), &count);
    for (int i = 0; i < SESSIONS; i++) {
        const struct decode_request request = {prompt, i == 0 ? count : 20 * i + 1, 40, true, greedy};
        sample_init(&samples[i]);
        decoder_admit(decoder, i, &request, &samples[i]);
    }
    while (decoder_round(decoder) > 0)
        ;
    for (int i = 0; i < SESSIONS; i++) {
        assert_int_equal(samples[i].tokens, 40);
        memcpy(outputs[i], samples[i].token_ids, 40 * sizeof(int));
        sample_free(&samples[i]);
    }
    free(prompt);
    decoder_destroy(decoder);
    class->close(backend);
}

static void every_method_gives_the_same_tokens(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    static const struct {
        enum method method;
        int budget;
    } methods[] = {{METHOD_AUTO, 0},   {METHOD_LINEAR, 0},  {METHOD_DDTREE, 16}, /* at every number of ranks */
                   {METHOD_DDTREE, 1}, {METHOD_DDTREE, 64}, {METHOD_DDTREE, 130}};
    int count, *expected = read_ints(json_object_get(json_object_get(golden, "greedy"), "tokens"), &count);
    int first[SESSIONS][40], outputs[SESSIONS][40];
    assert_int_equal(count, 40);
    for (int ranks = 1; ranks <= RANKS; ranks *= 2)
        for (size_t i = 0; i < (ranks == 1 ? sizeof methods / sizeof *methods : 3); i++) {
            run_method(ranks, methods[i].method, methods[i].budget, outputs);
            if (ranks == 1 && i == 0)
                memcpy(first, outputs, sizeof first);
            assert_memory_equal(outputs[0], expected, sizeof outputs[0]);
            assert_memory_equal(outputs, first, sizeof first);
        }
    free(expected);
}

/* A tree that holds the next `count` tokens, each beside a wrong one that has a wrong child. */
static void make_knowing_tree(struct tree *tree, int anchor, const int *next, int count)
{
    int right = 0;
    *tree = (struct tree){.count = 1, .tokens = {anchor}, .parents = {-1}};
    for (int i = 0; i < count; i++) {
        int wrong = tree->count;
        const int tokens[] = {(next[i] + 1) % VOCABULARY, next[i], next[i]}, parents[] = {right, right, wrong};
        for (int j = 0; j < 3; j++, tree->count++) {
            tree->tokens[tree->count] = tokens[j];
            tree->parents[tree->count] = parents[j];
        }
        right = wrong + 1;
    }
}

/* Drafts that know the continuation are accepted as far as they do, and what is chosen behind them goes on from there.
 */
static void deep_paths_are_accepted(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    const json_t *expected = json_object_get(golden, "greedy");
    int prompt_count, count, *prompt = read_ints(json_object_get(expected, "prompt"), &prompt_count);
    int *tokens = read_ints(json_object_get(expected, "tokens"), &count);
    for (int ranks = 1; ranks <= RANKS; ranks *= 2) {
        const struct backend_options options = options_for(ranks, METHOD_DDTREE, NODES - 1);
        struct backend *backend = open_backend(&options);
        class->reset(backend, 0, &greedy);
        append(backend, 0, prompt, prompt_count);
        for (int out = 1, known = 0; out + known < count; out += known + 1, known = (known + 3) % 7) {
            static struct tree tree;
            struct choice chosen[NODES];
            int chosen_tokens[NODES], path[NODES];
            make_knowing_tree(&tree, tokens[out - 1], tokens + out, known);
            class->verify(backend, &(struct segment){0, tree.count, tree.tokens, tree.parents}, 1, chosen);
            for (int i = 0; i < tree.count; i++)
                chosen_tokens[i] = chosen[i].token;
            int length = tree_walk(&tree, chosen_tokens, path);
            assert_int_equal(length, known + 1);
            assert_int_equal(chosen_tokens[path[length - 1]], tokens[out + known]);
            class->commit(backend, &(struct kept_path){0, length, path}, 1);
        }
        class->close(backend);
    }
    free(prompt);
    free(tokens);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_prompts_agree),       cmocka_unit_test(bfloat16_stays_near),
        cmocka_unit_test(logits_of_a_trees_nodes_agree), cmocka_unit_test(every_method_gives_the_same_tokens),
        cmocka_unit_test(deep_paths_are_accepted),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_world, close_world);
}
