/* Macros for every number in the prose, so that no sentence can go stale: \SpeedupBSixteenOverAuto and the like. Names
 * are made of letters alone, as LaTeX wants them. */
#ifndef RENDER_MACROS_H
#define RENDER_MACROS_H

#include "render/summary.h"

#include <stdio.h>

/* "b16" -> "BSixteen", "long context" -> "LongContext": words begin with capitals, numbers are spelled, what is neither
 * letter nor digit is left out. free() it. */
char *macros_spell(const char *text);

/* The name, without its backslash, under which macros_put defines a comparison's speedup; its limits and n are under
 * the same name with Low, High and N added. free() it. */
char *macros_comparison_name(const struct summary *summary, const struct comparison *comparison);

/* All macros, each defined once. */
void macros_put(FILE *out, const struct summary *summary);

#endif
