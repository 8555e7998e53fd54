/* Two runs side by side, from their summaries: what changed of each speedup. Blocks of different runs pair with
 * nothing, and an offset between two days would look like a change: so only ratios that were measured side by side,
 * within a run, are compared, by Welch's interval. Absolute times are shown and not judged. */
#ifndef ANALYZE_VERSUS_H
#define ANALYZE_VERSUS_H

#include <jansson.h>

/* {"before", "after" (the runs' names), "cells"}: an entry for each comparison that both summaries have. A new
 * reference. */
json_t *versus_make(const json_t *before, const json_t *after);

#endif
