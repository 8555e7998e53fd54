/* LaTeX text: every string that is not ours is escaped, every number is written by one of these. */
#ifndef RENDER_LATEX_H
#define RENDER_LATEX_H

#include "render/summary.h"

#include <stdio.h>

#define LATEX_NARROW 18      /* bytes of a name beyond which it is set in several lines */
#define LATEX_BREAKS "/_-.:" /* behind which long names may be broken */
#define LATEX_DECIMALS_MOST 4
#define LATEX_GROUPED_FROM 5 /* digits before the point */

/* The text as LaTeX prints it letter for letter: special characters by their commands, Latin letters and common symbols
 * as they are, every other letter as "U+65E5". NULL prints an em dash. */
void latex_put(FILE *out, const char *text);

/* The same, with places to break after / _ - . and : in long names. */
void latex_put_breakable(FILE *out, const char *text);

/* The same for a narrow column: a name of more than LATEX_NARROW bytes is set in several lines. */
void latex_put_narrow(FILE *out, const char *text);

/* The same as a string. free() it. */
char *latex_escape(const char *text);

/* What stands where a number is missing: an em dash and the rule's id. */
void latex_put_missing(FILE *out, const struct missing *missing);

/* "0.012", "$<$0.001", or an em dash for NaN. */
void latex_put_p(FILE *out, double p);

/* Decimals for a column whose largest number is `largest`, so that it shows four figures. */
int latex_decimals(double largest);

/* Decimals that limits of a ratio need at least, LATEX_DECIMALS_MOST at most: one that excludes 1 does not print as 1.
 */
int latex_decimals_beside_one(double low, double high);

/* "10\,126", as siunitx prints it: a sign as long, thousands apart from LATEX_GROUPED_FROM digits on. */
void latex_put_number(FILE *out, double value, int decimals);

/* "[0.98, 10.21]" with room for `digits` digits before each point, so that a column of ranges is aligned. */
void latex_put_range(FILE *out, double low, double high, int decimals, int digits);

/* Digits before the point. */
int latex_digits(double value, int decimals);

#endif
