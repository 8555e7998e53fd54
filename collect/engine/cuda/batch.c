#include "collect/engine/cuda/cuda.h"

#include <string.h>

#define PLACE 16 /* bytes that everything staged is aligned to */

static void *take(struct staging *staging, size_t count, size_t size)
{
    size_t at = staging->used, bytes = (count * size + PLACE - 1) / PLACE * PLACE;
    if (bytes > staging->size - at)
        die("a batch of more than %zu bytes", staging->size);
    staging->used += bytes;
    return staging->host + at;
}

static int tiles_of(int rows, int group, int queries)
{
    return (rows * group + queries - 1) / queries;
}

static int words_of(int rows)
{
    return (rows + 63) / 64;
}

size_t batch_bytes(int rows, int segments, int longest, int group, bool recurrent)
{
    size_t row = 4 * sizeof(int) + sizeof(struct choose_row) + (size_t)words_of(longest) * sizeof(uint64_t) +
                 (recurrent ? RECURRENT_NEAR * sizeof(int16_t) : 0);
    size_t tiles =
        (size_t)(tiles_of(rows, group, ATTENTION_QUERIES_MINIMUM) + segments) * sizeof(struct attention_tile);
    return (size_t)rows * row + tiles + (size_t)segments * sizeof(struct attention_segment) + 16 * PLACE;
}

/* Rows, tiles and words of all segments, and room for them. recurrent: trees list their rows' nearest ancestors. */
static void make_room(struct cuda *cuda, struct staging *staging, const struct segment *segments, int count, int group,
                      int queries, bool recurrent)
{
    struct batch *batch = &cuda->host;
    bool trees = false;
    *batch = (struct batch){.segment_count = count};
    for (int i = 0; i < count; i++) {
        trees = trees || segments[i].parents;
        int words = words_of(segments[i].count);
        batch->rows += segments[i].count;
        batch->tile_count += tiles_of(segments[i].count, group, queries);
        batch->longest = segments[i].count > batch->longest ? segments[i].count : batch->longest;
        batch->words = words > batch->words ? words : batch->words;
    }
    if (batch->rows > cuda->most_rows)
        die("a batch of %d rows, where %d were readied", batch->rows, cuda->most_rows);
    size_t rows = (size_t)batch->rows;
    staging->used = 0;
    batch->tokens = take(staging, rows, sizeof *batch->tokens);
    batch->positions = take(staging, rows, sizeof *batch->positions);
    batch->sessions = take(staging, rows, sizeof *batch->sessions);
    batch->slots = take(staging, rows, sizeof *batch->slots);
    batch->segments = take(staging, (size_t)count, sizeof *batch->segments);
    batch->tiles = take(staging, (size_t)batch->tile_count, sizeof *batch->tiles);
    batch->visible = take(staging, rows * (size_t)batch->words, sizeof *batch->visible);
    batch->how = take(staging, rows, sizeof *batch->how);
    if (recurrent && trees)
        batch->near = take(staging, rows * RECURRENT_NEAR, sizeof *batch->near);
}

static uint64_t *visible_at(const struct batch *batch, int row)
{
    return batch->visible + (size_t)row * (size_t)batch->words;
}

/* What row `i` of a segment sees of it: what its parent sees, and itself. */
static void see(const struct batch *batch, int first, int i, int parent)
{
    uint64_t *visible = visible_at(batch, first + i);
    if (parent < 0)
        memset(visible, 0, (size_t)batch->words * sizeof *visible);
    else
        memcpy(visible, visible_at(batch, first + parent), (size_t)batch->words * sizeof *visible);
    visible[i / 64] |= (uint64_t)1 << (i % 64);
}

/* The nearest ancestors of row `i` of a segment: its parent, and that one's. */
static void list_near(const struct batch *batch, int first, int i, int parent)
{
    int16_t *near = batch->near + (size_t)(first + i) * RECURRENT_NEAR;
    near[0] = (int16_t)parent;
    if (parent >= 0)
        memcpy(near + 1, batch->near + (size_t)(first + parent) * RECURRENT_NEAR, (RECURRENT_NEAR - 1) * sizeof *near);
    else
        memset(near + 1, 0xff, (RECURRENT_NEAR - 1) * sizeof *near);
}

static void see_whole(const struct batch *batch, int first, int count)
{
    for (int i = 0; i < count; i++)
        see(batch, first, i, i - 1);
    for (int i = 0; i < count - 1; i++)
        memcpy(visible_at(batch, first + i), visible_at(batch, first + count - 1),
               (size_t)batch->words * sizeof(uint64_t));
}

static void add_segment(struct cuda *cuda, int index, int first, const struct segment *segment, bool whole)
{
    struct batch *batch = &cuda->host;
    const struct sampling *sampling = &cuda->sampling[segment->session];
    int base = cuda->lengths[segment->session];
    if (base + segment->count > cuda->options.capacity)
        die("session %d: %d rows behind %d do not fit its %d positions", segment->session, segment->count, base,
            cuda->options.capacity);
    batch->reach = base + segment->count > batch->reach ? base + segment->count : batch->reach;
    batch->segments[index] = (struct attention_segment){segment->session, first, segment->count, base,
                                                        whole              ? ATTENTION_WHOLE
                                                        : segment->parents ? ATTENTION_TREE
                                                                           : ATTENTION_RUN};
    cuda->first_rows[segment->session] = first;
    for (int i = 0; i < segment->count; i++) {
        int row = first + i, parent = segment->parents ? segment->parents[i] : i - 1;
        batch->tokens[row] = segment->tokens ? segment->tokens[i] : 0;
        batch->positions[row] = parent < 0 ? base : batch->positions[first + parent] + 1;
        batch->sessions[row] = segment->session;
        batch->slots[row] = base + i;
        batch->how[row] = (struct choose_row){sampling->temperature, batch->positions[row] + 1, sampling->stream};
        if (!whole)
            see(batch, first, i, parent);
        if (batch->near)
            list_near(batch, first, i, parent);
    }
    if (whole)
        see_whole(batch, first, segment->count);
}

static void add_tiles(struct batch *batch, int group, int queries)
{
    int tile = 0;
    for (int i = 0; i < batch->segment_count; i++)
        for (int query = 0; query < batch->segments[i].count * group; query += queries)
            batch->tiles[tile++] = (struct attention_tile){i, query};
}

/* Where a GPU finds what was taken. */
static void *there(const struct gpu *gpu, const struct cuda *cuda, enum call call, const void *host)
{
    return gpu->staging[call] + ((const char *)host - cuda->staging[call].host);
}

static void place_batch(const struct cuda *cuda, struct gpu *gpu, enum call call)
{
    const struct batch *host = &cuda->host;
    struct batch *batch = &gpu->batch;
    *batch = *host;
    batch->tokens = there(gpu, cuda, call, host->tokens);
    batch->positions = there(gpu, cuda, call, host->positions);
    batch->sessions = there(gpu, cuda, call, host->sessions);
    batch->slots = there(gpu, cuda, call, host->slots);
    batch->segments = there(gpu, cuda, call, host->segments);
    batch->tiles = there(gpu, cuda, call, host->tiles);
    batch->visible = there(gpu, cuda, call, host->visible);
    batch->how = there(gpu, cuda, call, host->how);
    batch->near = host->near ? there(gpu, cuda, call, host->near) : NULL;
}

void batch_make(struct cuda *cuda, enum call call, const struct model *model, const struct segment *segments, int count,
                bool whole)
{
    int group = model->head_count / model->kv_head_count;
    cuda_select(cuda->gpus); /* which says how many queries a tile has */
    int queries = kernels_attention_queries(cuda->type, model->head_size);
    make_room(cuda, &cuda->staging[call], segments, count, group, queries, model->recurrent_count > 0);
    cuda->host.advances = call == CALL_PROMPT || call == CALL_STEP;
    for (int i = 0, first = 0; i < count; i++) {
        add_segment(cuda, i, first, &segments[i], whole);
        first += segments[i].count;
    }
    add_tiles(&cuda->host, group, queries);
    for (int i = 0; i < cuda->gpu_count; i++)
        place_batch(cuda, &cuda->gpus[i], call);
}

void batch_send(struct cuda *cuda, enum call call)
{
    const struct staging *staging = &cuda->staging[call];
    FOR_GPUS(cuda, gpu)
        kernels_copy(gpu->staging[call], staging->host, staging->used, gpu->stream);
}

/* --- kept rows -------------------------------------------------------------------------------------------------- */

size_t batch_keep_bytes(int paths, int rows)
{
    return (size_t)paths * sizeof(struct compact_path) + 5 * (size_t)rows * sizeof(int) + 6 * PLACE;
}

static void place_kept(const struct cuda *cuda, struct gpu *gpu)
{
    const struct kept *host = &cuda->host_kept;
    struct kept *kept = &gpu->kept;
    kept->count = host->count;
    kept->path_count = host->path_count;
    kept->paths = there(gpu, cuda, CALL_COMMIT, host->paths);
    kept->nodes = there(gpu, cuda, CALL_COMMIT, host->nodes);
    kept->rows = there(gpu, cuda, CALL_COMMIT, host->rows);
    kept->positions = there(gpu, cuda, CALL_COMMIT, host->positions);
    kept->sessions = there(gpu, cuda, CALL_COMMIT, host->sessions);
    kept->slots = there(gpu, cuda, CALL_COMMIT, host->slots);
}

void batch_keep(struct cuda *cuda, const struct kept_path *paths, int count, int each)
{
    struct staging *staging = &cuda->staging[CALL_COMMIT];
    struct kept *kept = &cuda->host_kept;
    size_t rows = (size_t)(count * each);
    staging->used = 0;
    kept->count = (int)rows;
    kept->path_count = count;
    kept->paths = take(staging, (size_t)count, sizeof *kept->paths);
    kept->nodes = take(staging, rows, sizeof *kept->nodes);
    kept->rows = take(staging, rows, sizeof *kept->rows);
    kept->positions = take(staging, rows, sizeof *kept->positions);
    kept->sessions = take(staging, rows, sizeof *kept->sessions);
    kept->slots = take(staging, rows, sizeof *kept->slots);
    for (int i = 0, at = 0; i < count; i++) {
        int session = paths[i].session, base = cuda->lengths[session];
        kept->paths[i] = (struct compact_path){session, base, at, paths[i].length};
        for (int j = 0; j < each; j++, at++) {
            bool inside = j < paths[i].length;
            kept->nodes[at] = inside ? paths[i].nodes[j] : 0;
            kept->rows[at] = cuda->first_rows[session] + kept->nodes[at];
            kept->positions[at] = inside ? base + j : base;
            kept->sessions[at] = session;
            kept->slots[at] = inside ? base + j : -1;
        }
    }
    for (int i = 0; i < cuda->gpu_count; i++)
        place_kept(cuda, &cuda->gpus[i]);
}
