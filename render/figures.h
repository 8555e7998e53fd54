/* The report's figures: a row of figures_table for each. A figure is made of bands, which are drawn from top to bottom,
 * and goes on to further files where they are higher than a page. */
#ifndef RENDER_FIGURES_H
#define RENDER_FIGURES_H

#include "render/axes.h"
#include "render/canvas.h"
#include "render/style.h"
#include "render/summary.h"

/* What is drawn, and how wide it may be. Units are those of the drawing, in which text has AXES_TITLE_SIZE. */
struct sheet {
    const struct summary *summary;
    double width, height;
};

typedef double figures_draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top);

struct figure {
    const char *name; /* of its files */
    const char *title;
    int (*count_bands)(const struct sheet *sheet); /* 0 where the summary has nothing to draw */
    double (*draw_legend)(struct canvas *canvas, const struct sheet *sheet); /* at the top of every file; its height */
    figures_draw_band *draw_band; /* from `top` on; answers its height, 0 where there is no such band after all */
};

extern const struct figure *const figures_table[];
extern const int figures_count;

/* Writes FOLDER/NAME.pdf and .png of each figure that has something to draw, NAME-2 and so on where it goes on, and
 * removes those that an earlier summary left. `width_in`: of the paper's text. */
int figures_write(const struct summary *summary, const struct style *style, const struct fonts *fonts, double width_in,
                  const char *folder, struct error *error);

extern const struct figure figure_speedup, figure_budget, figure_heat, figure_acceptance, figure_stages,
    figure_break_even, figure_scaling, figure_throughput, figure_residuals, figure_devices;

#endif
