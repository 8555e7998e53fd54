/* Axes: a range of values over a range of positions, with ticks at nice numbers. Pure arithmetic, and its drawing. */
#ifndef RENDER_AXES_H
#define RENDER_AXES_H

#include "render/canvas.h"

#define AXES_TICKS_MAXIMUM 16
#define AXES_LABEL_SIZE 7.5 /* points */
#define AXES_TITLE_SIZE 8.5
#define AXES_LABEL_CAPACITY 32
#define AXES_DECIMALS_SHORTEST (-1) /* each label as short as it can be: 0.75, 1, 1.5 */

enum axis_scale { AXIS_LINEAR, AXIS_LOG2, AXIS_LOG10 };

struct axis {
    enum axis_scale scale;
    double low, high;  /* values at the ends */
    double start, end; /* positions of the ends; end may lie below start */
    double ticks[AXES_TICKS_MAXIMUM];
    int tick_count;
    int decimals; /* of the labels */
};

/* Linear: the ends are moved outwards to ticks, at most about `wanted` steps at nice numbers. Log: the ends stay; ticks
 * are powers of two (LOG10: of ten, with 2 and 5 times those where there is room) where the range spans more than a
 * factor of 5, powers of two and 1.5 times those above a factor of 2, else nice numbers. low < high; both above 0 where
 * the scale is logarithmic. */
void axis_init(struct axis *axis, enum axis_scale scale, double low, double high, double start, double end, int wanted);

/* Moves the upper end of a linear axis back from its last tick to this value. */
void axis_end_at(struct axis *axis, double high);

/* The label of a tick, into text[AXES_LABEL_CAPACITY]. */
void axis_label(const struct axis *axis, int tick, char *text);

double axis_position(const struct axis *axis, double value);

/* A logarithmic axis of a range with a little room at both ends. */
void axis_init_log(struct axis *axis, enum axis_scale scale, double low, double high, double start, double end,
                   int wanted);

/* Below the line at y: ticks, grid lines up to `top`, and labels where they do not touch the one before. */
void axes_draw_x(struct canvas *canvas, const struct axis *axis, double y, double top);

/* Left of the line at x: ticks, grid lines to `right`, and labels if `labelled`. */
void axes_draw_y(struct canvas *canvas, const struct axis *axis, double x, double right, bool labelled);

void axes_draw_frame(struct canvas *canvas, const struct axis *x, const struct axis *y);

#endif
