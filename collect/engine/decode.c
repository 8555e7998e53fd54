#include "collect/engine/decode.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct sample *sample; /* NULL: free */
    struct decode_request request;
    bool done;
    int anchor; /* the last token that was chosen: the root of the next tree */
    int64_t decode_start_ns;
    struct tree tree;
    int path[TREE_NODES_MAXIMUM];
};

/* The slots that take part in a round, and what is asked of them. */
struct batch {
    int count, rows;
    int *slots, *anchors;
    struct segment *segments;
    struct kept_path *paths;
    struct tree_draft *drafts;
};

struct decoder {
    struct backend *backend;
    const struct model *target;
    enum method method;
    int budget, sessions, path_limit; /* path_limit: the most tokens of a round */
    struct slot *slots;
    struct batch batch;
    struct choice *chosen; /* [sessions * nodes] */
    int *chosen_tokens;
    int64_t walk_ns;                   /* of the last round */
    const struct forced_trees *forced; /* NULL: the draft decides */
    int forced_rounds;
};

struct decoder *decoder_create(struct backend *backend, const struct backend_options *options, enum method method,
                               int budget)
{
    struct decoder *decoder = xcalloc(1, sizeof *decoder);
    size_t sessions = (size_t)options->sessions;
    int block = options->drafter ? options->drafter->block_size : 1;
    decoder->backend = backend;
    decoder->target = options->target;
    decoder->method = method;
    decoder->budget = budget;
    decoder->sessions = options->sessions;
    decoder->path_limit = block;
    decoder->slots = xcalloc(sessions, sizeof *decoder->slots);
    decoder->chosen = xcalloc(sessions * (size_t)options->nodes, sizeof *decoder->chosen);
    decoder->chosen_tokens = xcalloc((size_t)options->nodes, sizeof *decoder->chosen_tokens);
    decoder->batch.slots = xcalloc(sessions, sizeof(int));
    decoder->batch.anchors = xcalloc(sessions, sizeof(int));
    decoder->batch.segments = xcalloc(sessions, sizeof(struct segment));
    decoder->batch.paths = xcalloc(sessions, sizeof(struct kept_path));
    decoder->batch.drafts = xcalloc(sessions, sizeof(struct tree_draft));
    for (size_t i = 0; i < sessions; i++) {
        struct tree_draft *draft = &decoder->batch.drafts[i];
        size_t entries = (size_t)block * (size_t)options->draft_width;
        draft->width = options->draft_width;
        draft->tokens = xcalloc(entries, sizeof *draft->tokens);
        draft->log_probabilities = xcalloc(entries, sizeof *draft->log_probabilities);
    }
    return decoder;
}

void decoder_destroy(struct decoder *decoder)
{
    if (!decoder)
        return;
    for (int i = 0; i < decoder->sessions; i++) {
        free(decoder->batch.drafts[i].tokens);
        free(decoder->batch.drafts[i].log_probabilities);
    }
    free(decoder->batch.drafts);
    free(decoder->batch.paths);
    free(decoder->batch.segments);
    free(decoder->batch.anchors);
    free(decoder->batch.slots);
    free(decoder->chosen_tokens);
    free(decoder->chosen);
    free(decoder->slots);
    free(decoder);
}

static bool is_end(const struct decoder *decoder, int token)
{
    for (int i = 0; i < decoder->target->end_token_count; i++)
        if (decoder->target->end_tokens[i] == token)
            return true;
    return false;
}

/* Emits one token unless the sample is complete already: what a round commits past the end is cut, not counted. */
static void emit(const struct decoder *decoder, struct slot *slot, struct choice choice)
{
    struct sample *sample = slot->sample;
    slot->anchor = choice.token;
    if (slot->done)
        return;
    sample->token_ids[sample->tokens] = choice.token;
    sample->margins[sample->tokens++] = choice.margin;
    bool ended = !slot->request.ignore_eos && is_end(decoder, choice.token);
    if (ended || sample->tokens == slot->request.max_new_tokens) {
        slot->done = true;
        sample->finish = ended ? FINISH_STOP : FINISH_LENGTH;
    }
}

/* Whoever is in the middle of decoding waits while another is admitted. */
static void add_stalls(struct decoder *decoder, int admitted, int64_t time)
{
    for (int i = 0; i < decoder->sessions; i++) {
        struct slot *slot = &decoder->slots[i];
        if (i == admitted || !slot->sample || slot->done)
            continue;
        slot->sample->stall_ns += time;
    }
}

void decoder_admit(struct decoder *decoder, int slot_index, const struct decode_request *request, struct sample *sample)
{
    struct slot *slot = &decoder->slots[slot_index];
    slot->sample = sample;
    slot->request = *request;
    slot->done = false;
    size_t most = (size_t)request->max_new_tokens;
    sample->token_ids = xcalloc(most, sizeof *sample->token_ids);
    sample->margins = xcalloc(most, sizeof *sample->margins);
    sample->accepted = xcalloc(most, sizeof *sample->accepted);
    sample->tokens = sample->rounds = 0;
    sample->prompt_tokens = request->prompt_count;
    sample->stall_ns = 0;
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        sample->stages_ns[stage] = decoder->method == METHOD_AUTO && stage != STAGE_VERIFY ? ATTEMPT_ABSENT : 0;
    decoder->backend->class->reset(decoder->backend, slot_index, &request->sampling);
    memory_freeze();
    sample->start_ns = clock_now_ns();
    struct segment prompt = {slot_index, request->prompt_count, request->prompt, NULL};
    struct choice first;
    decoder->backend->class->extend(decoder->backend, &prompt, 1, &first);
    emit(decoder, slot, first);
    slot->decode_start_ns = clock_now_ns();
    sample->first_tokens = 1;
    sample->ttft_ns = slot->decode_start_ns - sample->start_ns;
    sample->decode_ns = 0;
    sample->end_ns = slot->decode_start_ns;
    add_stalls(decoder, slot_index, sample->ttft_ns);
    memory_thaw();
}

static void gather(struct decoder *decoder)
{
    struct batch *batch = &decoder->batch;
    batch->count = 0;
    for (int i = 0; i < decoder->sessions; i++) {
        struct slot *slot = &decoder->slots[i];
        if (!slot->sample || slot->done)
            continue;
        batch->slots[batch->count] = i;
        batch->anchors[batch->count++] = slot->anchor;
    }
}

static void build_trees(struct decoder *decoder)
{
    struct batch *batch = &decoder->batch;
    for (int i = 0; i < batch->count; i++) {
        struct tree *tree = &decoder->slots[batch->slots[i]].tree;
        if (decoder->method == METHOD_LINEAR)
            tree_build_path(&batch->drafts[i], batch->anchors[i], tree);
        else
            tree_build(&batch->drafts[i], batch->anchors[i], decoder->budget, tree);
        if (decoder->forced && decoder->method == METHOD_DDTREE)
            tree_reshape(tree, decoder->forced->parents[decoder->forced_rounds % decoder->forced->count]);
        batch->segments[i] = (struct segment){batch->slots[i], tree->count, tree->tokens, tree->parents};
    }
}

/* Walks each verified tree; the tokens after the path's nodes are this round's. */
static void walk_trees(struct decoder *decoder)
{
    struct batch *batch = &decoder->batch;
    const struct choice *chosen = decoder->chosen;
    for (int i = 0; i < batch->count; i++) {
        struct slot *slot = &decoder->slots[batch->slots[i]];
        for (int node = 0; node < slot->tree.count; node++)
            decoder->chosen_tokens[node] = chosen[node].token;
        if (decoder->forced)
            tree_force(&slot->tree, decoder->forced->length, decoder->chosen_tokens);
        int length = tree_walk(&slot->tree, decoder->chosen_tokens, slot->path);
        batch->paths[i] = (struct kept_path){batch->slots[i], length, slot->path};
        slot->sample->accepted[slot->sample->rounds++] = length;
        for (int j = 0; j < length; j++)
            emit(decoder, slot, chosen[slot->path[j]]);
        chosen += slot->tree.count;
    }
}

/* Each stage of a lockstep round takes the same time for every session in it. late_commit: of the first stage's time,
 * what a commit before it took. */
static void add_stages(struct decoder *decoder, const int64_t *marks, int first_stage, int64_t late_commit)
{
    struct batch *batch = &decoder->batch;
    for (int i = 0; i < batch->count; i++) {
        struct slot *slot = &decoder->slots[batch->slots[i]];
        int stages = decoder->method == METHOD_AUTO ? 1 : STAGE_COUNT;
        for (int stage = 0; stage < stages; stage++)
            slot->sample->stages_ns[first_stage + stage] += marks[stage + 1] - marks[stage];
        slot->sample->stages_ns[first_stage] -= late_commit;
        if (late_commit)
            slot->sample->stages_ns[STAGE_COMMIT] += late_commit;
        slot->sample->end_ns = marks[stages];
        slot->sample->decode_ns = marks[stages] - slot->decode_start_ns;
    }
}

static void round_speculative(struct decoder *decoder)
{
    struct batch *batch = &decoder->batch;
    const struct backend_class *class = decoder->backend->class;
    int64_t marks[STAGE_COUNT + 1];
    marks[0] = clock_now_ns();
    decoder->backend->late_commit_ns = 0;
    class->draft(decoder->backend, batch->slots, batch->anchors, batch->count, batch->drafts);
    marks[1] = clock_now_ns();
    int64_t late_commit = decoder->backend->late_commit_ns;
    build_trees(decoder);
    marks[2] = clock_now_ns();
    class->verify(decoder->backend, batch->segments, batch->count, decoder->chosen);
    marks[3] = clock_now_ns();
    walk_trees(decoder);
    decoder->walk_ns = clock_now_ns() - marks[3];
    class->commit(decoder->backend, batch->paths, batch->count);
    marks[4] = clock_now_ns();
    decoder->forced_rounds++;
    add_stages(decoder, marks, STAGE_DRAFT, late_commit);
}

static void round_auto(struct decoder *decoder)
{
    struct batch *batch = &decoder->batch;
    int64_t marks[2];
    for (int i = 0; i < batch->count; i++)
        batch->segments[i] = (struct segment){batch->slots[i], 1, &batch->anchors[i], NULL};
    marks[0] = clock_now_ns();
    decoder->backend->class->extend(decoder->backend, batch->segments, batch->count, decoder->chosen);
    marks[1] = clock_now_ns();
    for (int i = 0; i < batch->count; i++) {
        struct slot *slot = &decoder->slots[batch->slots[i]];
        slot->sample->accepted[slot->sample->rounds++] = 1;
        emit(decoder, slot, decoder->chosen[i]);
    }
    add_stages(decoder, marks, STAGE_VERIFY, 0);
}

int decoder_round(struct decoder *decoder)
{
    gather(decoder);
    if (decoder->batch.count == 0)
        return 0;
    memory_freeze();
    if (decoder->method == METHOD_AUTO)
        round_auto(decoder);
    else
        round_speculative(decoder);
    memory_thaw();
    gather(decoder);
    return decoder->batch.count;
}

bool decoder_done(const struct decoder *decoder, int slot)
{
    return decoder->slots[slot].done;
}

const struct tree *decoder_last_tree(const struct decoder *decoder, int slot)
{
    return &decoder->slots[slot].tree;
}

void decoder_force(struct decoder *decoder, const struct forced_trees *forced)
{
    decoder->forced = forced;
}

int64_t decoder_last_walk_ns(const struct decoder *decoder)
{
    return decoder->walk_ns;
}

void decoder_retire(struct decoder *decoder, int slot)
{
    decoder->slots[slot].sample = NULL;
}
