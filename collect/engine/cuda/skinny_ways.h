/* The ways in which the own kernels may share out a product of few rows, among which timing chooses. */
#ifndef COLLECT_ENGINE_CUDA_SKINNY_WAYS_H
#define COLLECT_ENGINE_CUDA_SKINNY_WAYS_H

#include "collect/engine/cuda/kernels.h"

struct skinny_sizes {
    int rows, inputs, outputs;
    bool gated;
    int head_size; /* the outputs are heads, and so are the tiles; 0: not this */
};

/* As in struct skinny_call. */
struct skinny_way {
    int tile, splits;
};

#define SKINNY_WAYS_MAXIMUM (SKINNY_TILE / 64 * 2 * SKINNY_SPLITS + 1)
#define SKINNY_TILE_MINIMUM 48 /* outputs; of gates half as many */

/* Fills `ways` and returns their number, 1 at least: tiles for one to three warpgroups, of as many outputs as these
 * take, and of so many that all multiprocessors get the same; the inputs in 1 to SKINNY_SPLITS shares, as far as all
 * shares have a place at a time; and gates of which each multiprocessor has one wide tile. Ways that leave many
 * multiprocessors idle are listed where there are no others. */
int skinny_list_ways(const struct skinny_sizes *sizes, struct skinny_way *ways);

/* Tiles of so many outputs, or gates. */
static inline int skinny_tiles(int outputs, int tile)
{
    return (outputs + tile - 1) / tile;
}

#endif
