#include "collect/engine/cuda/cuda.h"

#include <string.h>

#define PLACE 16 /* bytes that everything staged is aligned to */

void staging_clear(struct staging *staging)
{
    staging->used = 0;
}

void *staging_take(struct staging *staging, size_t count, size_t size)
{
    size_t at = staging->used, bytes = (count * size + PLACE - 1) / PLACE * PLACE;
    if (bytes > staging->size - at)
        die("a batch of more than %zu bytes", staging->size);
    staging->used += bytes;
    return staging->host + at;
}

void *staging_device(const struct staging *staging, const void *host)
{
    return staging->device + ((const char *)host - staging->host);
}

void staging_send(const struct staging *staging, cudaStream_t stream)
{
    CUDA_CHECK(cudaMemcpyAsync(staging->device, staging->host, staging->used, cudaMemcpyHostToDevice, stream));
}

static int tiles_of(int rows, int group)
{
    return (rows * group + ATTENTION_QUERIES - 1) / ATTENTION_QUERIES;
}

static int words_of(int rows)
{
    return (rows + 63) / 64;
}

size_t batch_bytes(int rows, int segments, int longest, int group)
{
    size_t row = 4 * sizeof(int) + sizeof(struct choose_row) + (size_t)words_of(longest) * sizeof(uint64_t);
    size_t tiles = (size_t)(tiles_of(rows, group) + segments) * sizeof(struct attention_tile);
    return (size_t)rows * row + tiles + (size_t)segments * sizeof(struct attention_segment) + 16 * PLACE;
}

/* Rows, tiles and words of all segments, and room for them. */
static void make_room(struct cuda *cuda, const struct segment *segments, int count, int group)
{
    struct batch *batch = &cuda->host;
    struct staging *staging = &cuda->staging;
    *batch = (struct batch){.segment_count = count};
    for (int i = 0; i < count; i++) {
        int words = words_of(segments[i].count);
        batch->rows += segments[i].count;
        batch->tile_count += tiles_of(segments[i].count, group);
        batch->words = words > batch->words ? words : batch->words;
    }
    if (batch->rows > cuda->most_rows)
        die("a batch of %d rows, where %d were readied", batch->rows, cuda->most_rows);
    size_t rows = (size_t)batch->rows;
    staging_clear(staging);
    batch->tokens = staging_take(staging, rows, sizeof *batch->tokens);
    batch->positions = staging_take(staging, rows, sizeof *batch->positions);
    batch->sessions = staging_take(staging, rows, sizeof *batch->sessions);
    batch->slots = staging_take(staging, rows, sizeof *batch->slots);
    batch->segments = staging_take(staging, (size_t)count, sizeof *batch->segments);
    batch->tiles = staging_take(staging, (size_t)batch->tile_count, sizeof *batch->tiles);
    batch->visible = staging_take(staging, rows * (size_t)batch->words, sizeof *batch->visible);
    batch->how = staging_take(staging, rows, sizeof *batch->how);
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
    batch->segments[index] = (struct attention_segment){segment->session, first, segment->count, base};
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
    }
    if (whole)
        see_whole(batch, first, segment->count);
}

static void add_tiles(struct batch *batch, int group)
{
    int tile = 0;
    for (int i = 0; i < batch->segment_count; i++)
        for (int query = 0; query < batch->segments[i].count * group; query += ATTENTION_QUERIES)
            batch->tiles[tile++] = (struct attention_tile){i, query};
}

void batch_load(struct cuda *cuda, const struct model *model, const struct segment *segments, int count, bool whole)
{
    int group = model->head_count / model->kv_head_count;
    const struct staging *staging = &cuda->staging;
    struct batch *host = &cuda->host, *batch = &cuda->batch;
    make_room(cuda, segments, count, group);
    for (int i = 0, first = 0; i < count; i++) {
        add_segment(cuda, i, first, &segments[i], whole);
        first += segments[i].count;
    }
    add_tiles(host, group);
    staging_send(staging, cuda->stream);
    *batch = *host;
    batch->tokens = staging_device(staging, host->tokens);
    batch->positions = staging_device(staging, host->positions);
    batch->sessions = staging_device(staging, host->sessions);
    batch->slots = staging_device(staging, host->slots);
    batch->segments = staging_device(staging, host->segments);
    batch->tiles = staging_device(staging, host->tiles);
    batch->visible = staging_device(staging, host->visible);
    batch->how = staging_device(staging, host->how);
}
