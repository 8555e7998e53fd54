/* pdflatex, run without a terminal and with a time limit. */
#ifndef RENDER_PDFLATEX_H
#define RENDER_PDFLATEX_H

#include "collect/base/error.h"

#include <stdint.h>

#define PDFLATEX_LIMIT_S 120

/* Makes FOLDER/NAME.pdf of FOLDER/NAME.tex, in as many passes as its references need; the log stays beside it. `date`:
 * seconds since 1970, the only date that the file knows. Where pdflatex is missing, fails or runs past the limit: one
 * line with the first error. */
int pdflatex_run(const char *folder, const char *name, int64_t date, struct error *error);

/* The first error of a log: "! Undefined control sequence. l.12 \foo", in one line. free() it; NULL where the log has
 * none. */
char *pdflatex_first_error(const char *log);

#endif
