#include "collect/engine/bench.h"

#include "collect/base/clock.h"
#include "collect/engine/cost.h"

#include <stdlib.h>
#include <string.h>

#define PASSES 3   /* over the rounds; the last one counts */
#define PREFILLS 3 /* the quickest counts */
#define WATCHED 32 /* at most so many rounds, on their own, with the device's own clock beside the host's */

static const struct sampling greedy = {.top_p = 1};

/* An arm that is loaded. */
struct session {
    const struct bench *bench;
    struct backend_options options;
    struct backend *backend;
    struct decoder *decoder;
    struct forced_trees forced;
    int *prompt;
    struct sample sample;
};

/* What is written down of each round, one column each. */
struct columns {
    int64_t *round, *host, *round_products;
    int64_t *stages[STAGE_COUNT], *products[STAGE_COUNT];
    int *parents; /* [rounds, nodes]: of the tree that was verified */
};

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* Those of the recorded trees that are deep enough for the tokens that are to be kept; all where none is. */
static void choose_trees(const struct forced_trees *from, int nodes, struct forced_trees *to)
{
    int **parents = xcalloc((size_t)from->count, sizeof *parents), count = 0;
    for (int i = 0; i < from->count; i++)
        if (tree_depth(from->parents[i], nodes) >= from->length - 1)
            parents[count++] = from->parents[i];
    for (int i = 0; count == 0 && i < from->count; i++)
        parents[i] = from->parents[i];
    *to = (struct forced_trees){count ? count : from->count, from->length, parents};
}

static int open_session(const struct bench *bench, const struct arm *arm, int positions, struct session *session,
                        struct error *error)
{
    bool drafts = arm->method != METHOD_AUTO;
    int block = drafts ? bench->drafter->block_size : 1, vocabulary = bench->target->vocabulary_size;
    int nodes = method_has_budget(arm->method) ? arm->budget + 1 : block;
    *session = (struct session){.bench = bench};
    session->options = (struct backend_options){
        .target = bench->target,
        .drafter = drafts ? bench->drafter : NULL,
        .dtype = bench->dtype,
        .device = bench->device,
        .algorithms = bench->algorithms,
        .ranks = bench->ranks,
        .sessions = 1,
        .capacity = positions + most(nodes, block),
        .nodes = nodes,
        .draft_width = !method_has_budget(arm->method) ? 1
                       : arm->budget < vocabulary      ? arm->budget
                                                       : vocabulary,
        .vocabulary = vocabulary,
    };
    session->backend = backend_open(bench->class, &session->options, error);
    if (!session->backend)
        return -1;
    session->decoder = decoder_create(session->backend, &session->options, arm->method, arm->budget);
    if (bench->forced) {
        choose_trees(bench->forced, nodes, &session->forced);
        decoder_force(session->decoder, &session->forced);
    }
    session->prompt = xcalloc((size_t)positions, sizeof *session->prompt);
    for (int i = 0; i < positions; i++)
        session->prompt[i] = (int)((unsigned)i * 2654435761u % (unsigned)vocabulary);
    return 0;
}

static void close_session(struct session *session)
{
    decoder_destroy(session->decoder);
    session->bench->class->close(session->backend);
    free((void *)session->forced.parents);
    free(session->prompt);
}

static void admit(struct session *session, const int *prompt, int count, int tokens)
{
    const struct decode_request request = {prompt, count, tokens, true, greedy};
    sample_init(&session->sample);
    decoder_admit(session->decoder, 0, &request, &session->sample);
}

static void retire(struct session *session)
{
    decoder_retire(session->decoder, 0);
    sample_free(&session->sample);
}

/* --- rounds ----------------------------------------------------------------------------------------------------- */

/* The steps of the stages; a stage without one is the host's alone. */
static const struct {
    bool runs;
    enum backend_step step;
} steps[STAGE_COUNT] = {[STAGE_DRAFT] = {true, BACKEND_DRAFT},
                        [STAGE_VERIFY] = {true, BACKEND_VERIFY},
                        [STAGE_COMMIT] = {true, BACKEND_COMMIT}};

static bool has_step(const struct session *session, int stage)
{
    return steps[stage].runs && (stage == STAGE_VERIFY || session->options.drafter);
}

/* Nodes that the round's tree lacked hang below its root, which is all that `auto` has. */
static void note_tree(const struct session *session, int *parents)
{
    const struct tree *tree = decoder_last_tree(session->decoder, 0);
    for (int node = 0; node < session->options.nodes; node++)
        parents[node] = node == 0 ? -1 : node < tree->count ? tree->parents[node] : 0;
}

/* The products of a round behind `committed` positions that kept `accepted` tokens. */
static void run_products(struct session *session, int round, int committed, int accepted, struct columns *columns)
{
    const struct model *drafter = session->options.drafter;
    const int rows[STAGE_COUNT] = {[STAGE_DRAFT] = drafter ? drafter->block_size : 0,
                                   [STAGE_VERIFY] = session->options.nodes,
                                   [STAGE_COMMIT] = accepted};
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        if (!has_step(session, stage))
            continue;
        const int *parents =
            stage == STAGE_VERIFY ? columns->parents + (size_t)round * (size_t)session->options.nodes : NULL;
        int64_t start = clock_now_ns();
        session->bench->class->run_products(session->backend, steps[stage].step, parents, rows[stage], committed);
        columns->products[stage][round] = clock_now_ns() - start;
        columns->round_products[round] += columns->products[stage][round];
    }
}

static void run_round(struct session *session, int round, struct columns *columns)
{
    struct sample *sample = &session->sample;
    int64_t before[STAGE_COUNT], worked = 0, start = clock_now_ns();
    memcpy(before, sample->stages_ns, sizeof before);
    decoder_round(session->decoder);
    columns->round[round] = clock_now_ns() - start;
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        columns->stages[stage][round] = sample->stages_ns[stage] - before[stage];
        worked += has_step(session, stage) ? columns->stages[stage][round] : 0;
    }
    columns->host[round] = columns->round[round] - worked + decoder_last_walk_ns(session->decoder);
    note_tree(session, columns->parents + (size_t)round * (size_t)session->options.nodes);
}

static void add_bytes(const struct session *session, int committed, struct bench_arm *result)
{
    int size = session->options.dtype == ENGINE_BFLOAT16 ? 2 : 4;
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        if (has_step(session, stage))
            result->stages[stage].read_bytes +=
                cost_read_bytes(session->options.target, session->options.drafter, steps[stage].step, committed, size);
}

static void run_rounds(struct session *session, struct columns *columns, struct bench_arm *result)
{
    const struct bench *bench = session->bench;
    int block = session->options.drafter ? session->options.drafter->block_size : 1, committed = bench->context;
    *result = (struct bench_arm){.rows = session->options.nodes};
    memset(columns->round_products, 0, (size_t)bench->rounds * sizeof *columns->round_products);
    admit(session, session->prompt, bench->context, bench->rounds * block + 1);
    for (int round = 0; round < bench->rounds; round++) {
        run_round(session, round, columns);
        int accepted = session->sample.accepted[round];
        add_bytes(session, committed, result);
        result->tokens += accepted;
        committed += accepted;
    }
    /* Behind all rounds: what runs between two of them would keep the device from running ahead. */
    committed = bench->context;
    for (int round = 0; round < bench->rounds; committed += session->sample.accepted[round++])
        run_products(session, round, committed, session->sample.accepted[round], columns);
    retire(session);
}

/* Watching takes its own time, so that these rounds count for nothing else. The device may be a step ahead: all that
 * was begun is waited for. */
static int64_t watch_host(struct session *session)
{
    const struct bench *bench = session->bench;
    int rounds = bench->rounds < WATCHED ? bench->rounds : WATCHED;
    int block = session->options.drafter ? session->options.drafter->block_size : 1;
    int64_t start_ns, end_ns;
    admit(session, session->prompt, bench->context, bench->rounds * block + 1);
    bench->class->busy_ns(session->backend, &start_ns);
    for (int round = 0; round < rounds; round++)
        decoder_round(session->decoder);
    int64_t busy_ns = bench->class->busy_ns(session->backend, &end_ns);
    retire(session);
    return (end_ns - start_ns - busy_ns) / rounds;
}

/* Over the prompt's cache. */
static void measure_parts(struct session *session, struct bench_arm *result)
{
    const struct backend_class *class = session->bench->class;
    admit(session, session->prompt, session->bench->context, 1);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        if (has_step(session, stage))
            result->parts[stage].count = class->measure_parts(session->backend, steps[stage].step,
                                                              result->parts[stage].items, BENCH_PARTS_MAXIMUM);
    retire(session);
}

/* --- results ---------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static int64_t median(int64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

static void create_columns(struct columns *columns, int rounds, int nodes)
{
    size_t count = (size_t)rounds;
    columns->parents = xcalloc(count * (size_t)nodes, sizeof *columns->parents);
    columns->round = xcalloc(count, sizeof(int64_t));
    columns->host = xcalloc(count, sizeof(int64_t));
    columns->round_products = xcalloc(count, sizeof(int64_t));
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        columns->stages[stage] = xcalloc(count, sizeof(int64_t));
        columns->products[stage] = xcalloc(count, sizeof(int64_t));
    }
}

static void free_columns(struct columns *columns)
{
    free(columns->round);
    free(columns->host);
    free(columns->round_products);
    free(columns->parents);
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        free(columns->stages[stage]);
        free(columns->products[stage]);
    }
}

static void summarise(struct columns *columns, int rounds, struct bench_arm *result)
{
    result->tokens /= rounds;
    result->host_ns = median(columns->host, rounds);
    result->round.ns = median(columns->round, rounds);
    result->round.products_ns = median(columns->round_products, rounds);
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        struct bench_time *time = &result->stages[stage];
        time->ns = median(columns->stages[stage], rounds);
        time->products_ns = median(columns->products[stage], rounds);
        time->read_bytes /= rounds;
        result->round.read_bytes += time->read_bytes;
    }
}

int bench_measure_arm(const struct bench *bench, const struct arm *arm, struct bench_arm *result, struct error *error)
{
    struct session session;
    struct columns columns;
    int block = arm->method == METHOD_AUTO ? 1 : bench->drafter->block_size;
    if (open_session(bench, arm, bench->context + bench->rounds * block + 1, &session, error))
        return -1;
    create_columns(&columns, bench->rounds, session.options.nodes);
    for (int pass = 0; pass < PASSES; pass++)
        run_rounds(&session, &columns, result);
    summarise(&columns, bench->rounds, result);
    if (bench->class->busy_ns)
        result->host_ns = watch_host(&session);
    if (bench->class->measure_parts)
        measure_parts(&session, result);
    free_columns(&columns);
    close_session(&session);
    return 0;
}

int bench_measure_prefill(const struct bench *bench, int tokens, int64_t *ns, struct error *error)
{
    const struct arm arm = {bench->ranks, METHOD_AUTO, 0, 1};
    struct session session;
    if (open_session(bench, &arm, tokens + 1, &session, error))
        return -1;
    for (int i = 0; i < PREFILLS; i++) {
        admit(&session, session.prompt, tokens, 1);
        *ns = i == 0 || session.sample.ttft_ns < *ns ? session.sample.ttft_ns : *ns;
        retire(&session);
    }
    close_session(&session);
    return 0;
}

int bench_record_tree(const struct bench *bench, const int *prompt, int count, int rounds, struct tree *tree,
                      struct error *error)
{
    const struct arm arm = {bench->ranks, METHOD_DDTREE, TREE_NODES_MAXIMUM - 1, 1};
    struct session session;
    int tokens = rounds * bench->drafter->block_size + 1;
    if (open_session(bench, &arm, count + tokens, &session, error))
        return -1;
    admit(&session, prompt, count, tokens);
    for (int i = 0; i < rounds; i++)
        decoder_round(session.decoder);
    *tree = *decoder_last_tree(session.decoder, 0);
    retire(&session);
    close_session(&session);
    return 0;
}
