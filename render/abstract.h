/* The abstract: four sentences that say what was measured, what the headline comparisons show, what else, and what was
 * excluded. Words are chosen by the verdicts of the summary, numbers are macros (macros.tex). */
#ifndef RENDER_ABSTRACT_H
#define RENDER_ABSTRACT_H

#include "render/summary.h"

#include <stdio.h>

void abstract_put(FILE *out, const struct summary *summary);

#endif
