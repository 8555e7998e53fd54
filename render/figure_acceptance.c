#include "render/figure_rows.h"

#include <math.h>
#include <stdio.h>

#define SKIPPED "auto" /* commits one token a round by definition */
#define SPACE 4.0      /* above the bars of a row */

static bool shows_arm(const struct summary *summary, int arm)
{
    if (summary_is_method(summary, arm, SKIPPED))
        return false;
    for (int i = 0; i < summary->cell_count; i++)
        if (summary->cells[i].arm == arm && summary->cells[i].histogram_count > 1)
            return true;
    return false;
}

static double total_rounds(const struct cell *cell)
{
    double rounds = 0;
    for (int i = 0; i < cell->histogram_count; i++)
        rounds += cell->histogram[i];
    return rounds;
}

static bool shows_workload(const struct summary *summary, int workload)
{
    for (int i = 0; i < summary->cell_count; i++) {
        const struct cell *cell = &summary->cells[i];
        if (cell->workload == workload && !summary_is_method(summary, cell->arm, SKIPPED) &&
            (total_rounds(cell) > 0 || (cell->missing.rule && shows_arm(summary, cell->arm))))
            return true;
    }
    return false;
}

/* The longest round and the largest fraction, for scales that all panels share. */
static void find_range(const struct summary *summary, int *longest, double *highest)
{
    *longest = 1;
    *highest = 0;
    for (int i = 0; i < summary->cell_count; i++) {
        const struct cell *cell = &summary->cells[i];
        double rounds = total_rounds(cell);
        for (int tokens = 1; tokens < cell->histogram_count && rounds > 0; tokens++)
            if (cell->histogram[tokens] > 0 && !summary_is_method(summary, cell->arm, SKIPPED)) {
                *longest = tokens > *longest ? tokens : *longest;
                *highest = fmax(*highest, cell->histogram[tokens] / rounds);
            }
    }
}

static void make_axis(const struct summary *summary, double start, double end, struct axis *x)
{
    int longest;
    double highest;
    find_range(summary, &longest, &highest);
    *x = (struct axis){.low = .4, .high = longest + .6, .start = start, .end = end};
    int stride = longest > 10 ? 1 + longest / 10 : 1;
    for (int tokens = 1; tokens <= longest; tokens += stride)
        if (x->tick_count < AXES_TICKS_MAXIMUM)
            x->ticks[x->tick_count++] = tokens;
}

static struct axis make_scale(const struct rows_cell *cell)
{
    int longest;
    double highest;
    struct axis y;
    find_range(cell->summary, &longest, &highest);
    axis_init(&y, AXIS_LINEAR, 0, highest > 0 ? highest : 1, cell->y + cell->height / 2,
              cell->y - cell->height / 2 + SPACE, 5);
    return y;
}

static void draw_tau(struct canvas *canvas, const struct cell *of, const struct axis *x, const struct axis *y)
{
    if (!of->tau.present)
        return;
    char text[64];
    double at = axis_position(x, of->tau.value);
    snprintf(text, sizeof text, "τ = %.2f%s", of->tau.value, json_array_size(of->marks) ? " *" : "");
    if (at >= x->start && at <= x->end)
        canvas_line(canvas, at, y->start, at, y->end, .9, DASH_DASHED, colour_black);
    double width = canvas_text_width(canvas, AXES_LABEL_SIZE, text);
    canvas_rectangle(canvas, x->end - 4 - width, y->end - 2, width + 2, 8.5, colour_faded(colour_white, .7));
    canvas_text(canvas, x->end - 3, y->end + 5, AXES_LABEL_SIZE, ALIGN_RIGHT, colour_black, text);
}

static void draw_cell(struct canvas *canvas, const struct rows_cell *cell)
{
    const struct cell *of = summary_find_cell(cell->summary, cell->arm, cell->workload);
    const struct axis *x = cell->x;
    struct axis y = make_scale(cell);
    double rounds = of ? total_rounds(of) : 0, bar = .8 * (axis_position(x, 2) - axis_position(x, 1));
    canvas_line(canvas, x->start, y.start, x->end, y.start, .4, DASH_NONE, colour_black);
    if (rounds <= 0) {
        parts_draw_missing(canvas, (x->start + x->end) / 2, cell->y, x->end - x->start,
                           of ? &of->missing : &(struct missing){0});
        return;
    }
    for (int tokens = 1; tokens < of->histogram_count; tokens++) {
        double top = axis_position(&y, of->histogram[tokens] / rounds);
        canvas_rectangle(canvas, axis_position(x, tokens) - bar / 2, top, bar, y.start - top,
                         parts_method_style(cell->summary->arms[cell->arm].method)->colour);
    }
    draw_tau(canvas, of, x, &y);
}

/* Its end alone: what starts all rows is 0. */
static void draw_scale(struct canvas *canvas, const struct rows_cell *cell)
{
    struct axis y = make_scale(cell);
    char text[32];
    snprintf(text, sizeof text, "%.*f", y.decimals, y.high);
    canvas_line(canvas, cell->x->start - 2, y.end, cell->x->start, y.end, .5, DASH_NONE, colour_black);
    canvas_text(canvas, cell->x->start - 3, y.end + 3, PARTS_SMALL_SIZE, ALIGN_RIGHT, colour_black, text);
}

static const struct rows_figure rows = {
    .panels = {shows_workload, false},
    .row_height = 25,
    .least = 100,
    .title = "tokens committed in a round (bars: fraction of rounds)",
    .shows_arm = shows_arm,
    .make_axis = make_axis,
    .draw_cell = draw_cell,
    .draw_scale = draw_scale,
    .scale_width = 16,
};

static int count_bands(const struct sheet *sheet)
{
    return rows_count_bands(sheet, &rows);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    return rows_draw_band(canvas, sheet, &rows, band, top);
}

const struct figure figure_acceptance = {"acceptance", "Tokens committed in a round", count_bands, NULL, draw_band};
