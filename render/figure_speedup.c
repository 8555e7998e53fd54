#include "render/figure_rows.h"

#include <math.h>

#define BASELINE "auto"

static bool shows_arm(const struct summary *summary, int arm)
{
    return !summary_is_method(summary, arm, BASELINE);
}

/* Paired where there is one, else unpaired. */
static const struct interval *find_interval(const struct comparison *comparison)
{
    return comparison->speedup.present ? &comparison->speedup : &comparison->speedup_unpaired;
}

static bool is_unpaired(const struct comparison *comparison)
{
    return !comparison->speedup.present && comparison->speedup_unpaired.present;
}

static bool shows_workload(const struct summary *summary, int workload)
{
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (comparison->workload == workload && summary_is_method(summary, comparison->baseline, BASELINE) &&
            (find_interval(comparison)->present || comparison->missing.rule))
            return true;
    }
    return false;
}

static void make_axis(const struct summary *summary, double start, double end, struct axis *x)
{
    double low = 1, high = 1;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (!summary_is_method(summary, comparison->baseline, BASELINE))
            continue;
        parts_widen(find_interval(comparison), &low, &high);
        struct interval limits = {comparison->speedup.present,
                                  comparison->simultaneous.low,
                                  comparison->simultaneous.low,
                                  comparison->simultaneous.high,
                                  0,
                                  NULL};
        parts_widen(&limits, &low, &high);
    }
    axis_init_log(x, AXIS_LOG2, low, high, start, end, (int)(fabs(end - start) / 20));
}

static void draw_cell(struct canvas *canvas, const struct rows_cell *cell)
{
    const struct comparison *comparison = summary_compare(cell->summary, cell->arm, BASELINE, cell->workload);
    const struct interval *interval = comparison ? find_interval(comparison) : NULL;
    if (!interval || !interval->present) {
        parts_draw_missing(canvas, (cell->x->start + cell->x->end) / 2, cell->y, cell->x->end - cell->x->start,
                           comparison ? &comparison->missing : &(struct missing){0});
        return;
    }
    const struct parts_style *style = parts_method_style(cell->summary->arms[cell->arm].method);
    if (comparison->headline && isfinite(comparison->simultaneous.low))
        parts_draw_whisker(canvas, axis_position(cell->x, comparison->simultaneous.low),
                           axis_position(cell->x, comparison->simultaneous.high), cell->y, .5, colour_black);
    if (isfinite(interval->low))
        canvas_line(canvas, axis_position(cell->x, interval->low), cell->y, axis_position(cell->x, interval->high),
                    cell->y, is_unpaired(comparison) ? 1 : 1.8, is_unpaired(comparison) ? DASH_DOTTED : DASH_NONE,
                    style->colour);
    canvas_marker(canvas, style->marker, axis_position(cell->x, interval->value), cell->y, 3.4,
                  json_array_size(comparison->marks) > 0 || is_unpaired(comparison), style->colour);
}

static const struct rows_figure rows = {
    .panels = {shows_workload, true},
    .row_height = 12.5,
    .least = 84,
    .line = 1,
    .title = "speedup over auto (log scale)",
    .shows_arm = shows_arm,
    .make_axis = make_axis,
    .draw_cell = draw_cell,
};

static int count_bands(const struct sheet *sheet)
{
    return sheet->summary->comparison_count ? rows_count_bands(sheet, &rows) : 0;
}

static bool any_is_suspect(const struct summary *summary)
{
    for (int i = 0; i < summary->comparison_count; i++)
        if (json_array_size(summary->comparisons[i].marks) > 0 || is_unpaired(&summary->comparisons[i]))
            return true;
    return false;
}

static bool any_is_simultaneous(const struct summary *summary)
{
    for (int i = 0; i < summary->comparison_count; i++)
        if (summary->comparisons[i].headline && isfinite(summary->comparisons[i].simultaneous.low))
            return true;
    return false;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    const struct parts_style *linear = parts_method_style("linear"), *tree = parts_method_style("ddtree");
    struct parts_key keys[5];
    int count = 0;
    if (parts_has_method(sheet->summary, "linear"))
        keys[count++] = (struct parts_key){"linear", KEY_MARKER, linear->marker, linear->colour};
    if (parts_has_method(sheet->summary, "ddtree"))
        keys[count++] = (struct parts_key){"ddtree", KEY_MARKER, tree->marker, tree->colour};
    if (any_is_suspect(sheet->summary))
        keys[count++] = (struct parts_key){"suspect or unpaired", KEY_HOLLOW, tree->marker, tree->colour};
    keys[count++] = (struct parts_key){"pointwise", KEY_INTERVAL, MARKER_CIRCLE, tree->colour};
    if (any_is_simultaneous(sheet->summary))
        keys[count++] = (struct parts_key){"simultaneous", KEY_WHISKER, MARKER_CIRCLE, colour_black};
    return parts_draw_legend(canvas, sheet, 40, keys, count);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    return rows_draw_band(canvas, sheet, &rows, band, top);
}

const struct figure figure_speedup = {"speedup", "Speedup over auto", count_bands, draw_legend, draw_band};
