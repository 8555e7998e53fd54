/* What the files of cells share. */
#ifndef ANALYZE_CELLS_PARTS_H
#define ANALYZE_CELLS_PARTS_H

#include "analyze/cells.h"

/* Decides for each cell under which settings its attempts count (cell_hash, newest), the same for all where a summary
 * has one word for all. `reported`, of tuning: the cells of the reported blocks, whose choice is made; else NULL. */
void cells_choose(struct cells *cells, const struct cells *reported);

#endif
