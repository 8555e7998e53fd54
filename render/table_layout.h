/* How a table's columns are set on a line of the report: decimals, widths, which stand side by side, which are wrapped.
 * Widths are estimates in points, for \footnotesize. */
#ifndef RENDER_TABLE_LAYOUT_H
#define RENDER_TABLE_LAYOUT_H

#include "render/table.h"

#define TABLE_LINE_WIDTH 446.0 /* a little less than the text's */
#define TABLE_COLUMN_SPACE 7.2 /* between two columns */

/* How a column is set. */
struct table_layout {
    int decimals, digits; /* digits before the point */
    double width;         /* about, with the space behind it */
    double least;         /* the same of its longest word, for one that is wrapped */
    bool wrappable, wrapped;
};

/* layouts[column_count]. */
void table_lay_out(const struct table *table, struct table_layout *layouts);

/* A part has what is repeated and the columns [first, last): answers where that ends which begins at `first`. The
 * columns are spread evenly over as many parts as it takes. */
int table_part_end(const struct table *table, const struct table_layout *layouts, int first);
bool table_is_in_part(const struct table *table, int first, int last, int column);

/* Wraps text where the part does not fit a line otherwise: what is wrapped shares what the others leave, by width but
 * no less than the least. */
void table_wrap_part(const struct table *table, struct table_layout *layouts, int first, int last);

/* About how wide a text is, in points. */
double table_text_width(const char *text);

#endif
