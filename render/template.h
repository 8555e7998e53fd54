/* Templates: LaTeX that is copied beside the generated files and reads them with \input. It names no number itself:
 * macros.tex has those of the prose, tables/ the rows, figures/ the plots. */
#ifndef RENDER_TEMPLATE_H
#define RENDER_TEMPLATE_H

#include "collect/base/error.h"

/* Copies every .tex file of the folder `from`, which must have report.tex, to the folder `to`. */
int template_copy_all(const char *from, const char *to, struct error *error);

/* Copies one. */
int template_copy(const char *from, const char *to, const char *name, struct error *error);

#endif
