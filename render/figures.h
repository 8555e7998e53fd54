/* The report's figures: a table with a row for each. A figure is one function that draws the summary on a canvas. */
#ifndef RENDER_FIGURES_H
#define RENDER_FIGURES_H

#include "render/axes.h"
#include "render/canvas.h"
#include "render/summary.h"

#define FIGURES_WIDTH 453.6       /* points: 6.3 in, the text width */
#define FIGURES_COLUMNS_MAXIMUM 4 /* panels side by side */

struct figure {
    const char *name; /* of its files */
    const char *title;
    double (*height)(const struct summary *summary); /* points; 0 where the summary has nothing to draw */
    canvas_draw *draw;                               /* context: const struct summary * */
};

extern const struct figure figures_table[];
extern const int figures_count;

/* Writes FOLDER/NAME.pdf and .png of each figure that has something to draw, and removes those of figures that have
 * nothing. */
int figures_write(const struct summary *summary, const struct fonts *fonts, const char *folder, struct error *error);

/* --- what figures share
 * ------------------------------------------------------------------------------------------------- */

struct figures_style {
    const char *method;
    enum marker marker;
    struct colour colour;
};

const struct figures_style *figures_method_style(const char *method);

/* Panels in bands of up to FIGURES_COLUMNS_MAXIMUM columns between `left` and the right edge. */
struct figures_grid {
    double left, gap, panel_width;
    int panels, columns, bands;
};

struct figures_grid figures_grid_make(int panels, double left, double gap);
double figures_grid_left(const struct figures_grid *grid, int panel);

/* Room for the arms' names left of panels; arms of method `except` are left out. */
double figures_arm_margin(struct canvas *canvas, const struct summary *summary, const char *except);

struct figures_key {
    const char *text;
    enum { KEY_MARKER, KEY_HOLLOW, KEY_SWATCH, KEY_DASHED, KEY_INTERVAL, KEY_WHISKER } kind;
    enum marker marker;
    struct colour colour;
};

/* Keys of a legend in one line from x, text baseline at y. Answers where the line ends. */
double figures_draw_keys(struct canvas *canvas, double x, double y, const struct figures_key *keys, int count);

/* "— INCOMPLETE" centred at (x, y) on white: what stands where a number is missing. */
void figures_draw_missing(struct canvas *canvas, double x, double y, const struct missing *missing);

double figures_speedup_height(const struct summary *summary);
double figures_budget_height(const struct summary *summary);
double figures_acceptance_height(const struct summary *summary);
double figures_stages_height(const struct summary *summary);
canvas_draw figures_draw_speedup, figures_draw_budget, figures_draw_acceptance, figures_draw_stages;

#endif
