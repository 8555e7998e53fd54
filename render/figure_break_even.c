#include "render/figure_rows.h"

#include <math.h>

#define BASELINE "auto"

static const struct comparison *find(const struct summary *summary, int arm, int workload)
{
    const struct comparison *comparison = summary_compare(summary, arm, BASELINE, workload);
    return comparison && comparison->break_even_tau.present ? comparison : NULL;
}

static bool shows_arm(const struct summary *summary, int arm)
{
    for (int workload = 0; workload < summary->workload_count; workload++)
        if (find(summary, arm, workload))
            return true;
    return false;
}

static bool shows_workload(const struct summary *summary, int workload)
{
    for (int arm = 0; arm < summary->arm_count; arm++) {
        const struct cell *cell = summary_find_cell(summary, arm, workload);
        if (find(summary, arm, workload) || (cell && cell->missing.rule && shows_arm(summary, arm)))
            return true;
    }
    return false;
}

static void make_axis(const struct summary *summary, double start, double end, struct axis *x)
{
    double low = 1, high = 1.2;
    for (int arm = 0; arm < summary->arm_count; arm++)
        for (int workload = 0; workload < summary->workload_count; workload++) {
            const struct comparison *comparison = find(summary, arm, workload);
            const struct cell *cell = summary_find_cell(summary, arm, workload);
            if (!comparison)
                continue;
            parts_widen(&comparison->break_even_tau, &low, &high);
            if (cell)
                parts_widen(&(struct interval){cell->tau.present, cell->tau.value, NAN, cell->tau.high, 0, NULL}, &low,
                            &high);
        }
    axis_init_log(x, AXIS_LOG2, low, high, start, end, (int)(fabs(end - start) / 20));
}

/* Limits below the axis stand at its edge. */
static double place(const struct axis *x, double value)
{
    return axis_position(x, fmax(value, x->low));
}

static void draw_cell(struct canvas *canvas, const struct rows_cell *cell)
{
    const struct comparison *comparison = find(cell->summary, cell->arm, cell->workload);
    const struct cell *of = summary_find_cell(cell->summary, cell->arm, cell->workload);
    if (!comparison || !of || !of->tau.present) {
        parts_draw_missing(canvas, (cell->x->start + cell->x->end) / 2, cell->y, cell->x->end - cell->x->start,
                           of ? &of->missing : &(struct missing){0});
        return;
    }
    const struct parts_style *style = parts_method_style(cell->summary->arms[cell->arm].method);
    const struct interval *needed = &comparison->break_even_tau, *reached = &of->tau;
    double at = place(cell->x, needed->value), tau = place(cell->x, reached->value), y = cell->y;
    canvas_rectangle(canvas, fmin(at, tau), y - 1.6, fabs(tau - at), 3.2,
                     tau >= at ? colour_faded(style->colour, .3) : colour_faded(colour_black, .45));
    if (isfinite(reached->low))
        parts_draw_whisker(canvas, place(cell->x, reached->low), place(cell->x, reached->high), y, .6, style->colour);
    if (isfinite(needed->low))
        canvas_rectangle(canvas, place(cell->x, needed->low), y - 2,
                         place(cell->x, needed->high) - place(cell->x, needed->low), 4, colour_black);
    canvas_line(canvas, at, y - 4, at, y + 4, 1.2, DASH_NONE, colour_black);
    canvas_marker(canvas, style->marker, tau, y, 3.4, json_array_size(comparison->marks) > 0, style->colour);
}

static const struct rows_figure rows = {
    .panels = {shows_workload, false},
    .row_height = 12.5,
    .least = 110,
    .title = "tokens committed in a round (log scale)",
    .shows_arm = shows_arm,
    .make_axis = make_axis,
    .draw_cell = draw_cell,
};

static int count_bands(const struct sheet *sheet)
{
    return rows_count_bands(sheet, &rows);
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    const struct parts_style *tree = parts_method_style("ddtree");
    const struct parts_key keys[] = {
        {"reached (τ)", KEY_MARKER, tree->marker, tree->colour},
        {"needed (break-even)", KEY_INTERVAL, tree->marker, colour_black},
        {"gain", KEY_SWATCH, tree->marker, colour_faded(tree->colour, .3)},
        {"loss", KEY_SWATCH, tree->marker, colour_faded(colour_black, .45)},
    };
    return parts_draw_legend(canvas, sheet, 40, keys, 4);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    return rows_draw_band(canvas, sheet, &rows, band, top);
}

const struct figure figure_break_even = {"break_even", "Acceptance length reached and needed", count_bands, draw_legend,
                                         draw_band};
