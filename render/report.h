/* The report's folder: everything that is written from one summary.
 *
 *   DIR/report.tex and the other templates, as they are
 *   DIR/macros.tex  DIR/abstract.tex  DIR/tables/NAME.tex, NAME.csv  DIR/figures/NAME.pdf, NAME.png
 *   DIR/report.pdf, made of them by pdflatex
 *
 * The same summary and templates give the same bytes. */
#ifndef RENDER_REPORT_H
#define RENDER_REPORT_H

#include "render/summary.h"

/* Writes all but the PDF; `templates` is the folder that report.tex is copied from. */
int report_write(const struct summary *summary, const char *templates, const char *folder, struct error *error);

/* Writes what a paper inputs: macros, captions, tables, and figures at the widths of one column and of two. */
int report_write_parts(const struct summary *summary, const char *templates, const char *folder, struct error *error);

/* Runs pdflatex on what report_write left. */
int report_typeset(const struct summary *summary, const char *folder, struct error *error);

#endif
