/* Figures with a row for each arm, in panels of workloads that share an axis: speedups, acceptance, stages, break-even.
 */
#ifndef RENDER_FIGURE_ROWS_H
#define RENDER_FIGURE_ROWS_H

#include "render/figure_parts.h"

struct rows_cell {
    const struct summary *summary;
    int arm, workload;
    const struct axis *x;
    double y, height; /* the row's middle */
};

struct rows_figure {
    struct parts_panels panels;
    double row_height; /* where rows are not too many for a page */
    double least;      /* width of a panel */
    double line;       /* a value at which panels have a line; 0: none */
    const char *title; /* of the x axis */
    bool (*shows_arm)(const struct summary *summary, int arm);
    /* The x axis of all panels, from `start` to `end`. */
    void (*make_axis)(const struct summary *summary, double start, double end, struct axis *x);
    void (*draw_cell)(struct canvas *canvas, const struct rows_cell *cell);
    void (*draw_scale)(struct canvas *canvas, const struct rows_cell *cell); /* left of a row; NULL: none */
    double scale_width;
};

int rows_count_bands(const struct sheet *sheet, const struct rows_figure *figure);
double rows_draw_band(struct canvas *canvas, const struct sheet *sheet, const struct rows_figure *figure, int band,
                      double top);

#endif
