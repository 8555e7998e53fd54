#include "collect/engine/cuda/skinny_ways.h"

#include "collect/engine/cuda/device.h"

/* Whether every multiprocessor has about as much to do: 4 in 10 of their turns at least. */
static bool is_balanced(int units)
{
    int blocks = device_multiprocessors(), turns = (units + blocks - 1) / blocks;
    return 10 * units >= 4 * turns * blocks;
}

/* A tile of `most` of `outputs` outputs at most, of which all `places` get as many. Three quarters of `most` at least:
 * tensor cores do as much for the rest, and rows are fetched as often. */
static int balanced_tile(int outputs, int most, int places)
{
    int turns = (skinny_tiles(outputs, most) + places - 1) / places, least = most * 3 / 4;
    int tile = (outputs + turns * places - 1) / (turns * places);
    tile += tile % 2;
    return tile < least ? least : tile < most ? tile : most;
}

static int list_tiles(const struct skinny_sizes *sizes, int outputs, int most, bool balanced, struct skinny_way *ways)
{
    int count = 0, chunks = sizes->inputs / SKINNY_DEPTH;
    for (int splits = 1; splits <= SKINNY_SPLITS && splits <= chunks; splits++) {
        int places = kernels_skinny_clusters(splits);
        if (places == 0) /* no group of multiprocessors has so many */
            break;
        int tile = balanced_tile(outputs, most, places);
        for (int whole = sizes->head_size || tile == most; whole <= 1; whole++) {
            const struct skinny_way way = {whole ? most : tile, splits};
            int tiles = skinny_tiles(outputs, way.tile);
            if ((splits == 1 || tiles <= places) && (!balanced || is_balanced(tiles * splits)))
                ways[count++] = way;
        }
    }
    return count;
}

int skinny_list_ways(const struct skinny_sizes *sizes, struct skinny_way *ways)
{
    int count = 0, places = device_multiprocessors(), parts = sizes->gated ? 2 : 1, outputs = sizes->outputs / parts;
    int wide = balanced_tile(outputs, SKINNY_TILE_GATED, places);
    for (int balanced = 1; balanced >= 0 && count == 0; balanced--)
        for (int most = 64; most <= SKINNY_TILE; most += 64)
            if (!sizes->head_size || most == sizes->head_size)
                count += list_tiles(sizes, outputs, most / parts, balanced, ways + count);
    if (sizes->gated && sizes->rows <= SKINNY_ENDS_ROWS && wide > SKINNY_TILE / 2 &&
        skinny_tiles(outputs, wide) <= places && is_balanced(skinny_tiles(outputs, wide)))
        ways[count++] = (struct skinny_way){wide, 1};
    return count;
}
