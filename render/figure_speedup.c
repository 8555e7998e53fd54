#include "render/figures.h"

#include <math.h>

#define ROW_HEIGHT 12.5
#define LEGEND_HEIGHT 18.0
#define BAND_HEAD 13.0
#define BAND_FOOT 28.0
#define BASELINE "auto"

static int row_count(const struct summary *summary)
{
    int rows = 0;
    for (int i = 0; i < summary->arm_count; i++)
        rows += !summary_is_method(summary, i, BASELINE);
    return rows;
}

double figures_speedup_height(const struct summary *summary)
{
    struct figures_grid grid = figures_grid_make(summary->workload_count + 1, 0, 0);
    int rows = row_count(summary);
    return rows ? LEGEND_HEIGHT + grid.bands * (BAND_HEAD + rows * ROW_HEIGHT + BAND_FOOT) : 0;
}

static void widen(double value, double *low, double *high)
{
    if (value > 0 && value < *low)
        *low = value;
    if (value > 0 && value > *high)
        *high = value;
}

static void find_range(const struct summary *summary, double *low, double *high)
{
    *low = *high = 1;
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (!comparison->speedup.present || !summary_is_method(summary, comparison->baseline, BASELINE))
            continue;
        const double values[] = {comparison->speedup.value, comparison->speedup.low, comparison->speedup.high,
                                 comparison->simultaneous.low, comparison->simultaneous.high};
        for (int j = 0; j < 5; j++)
            widen(values[j], low, high);
    }
    double pad = pow(fmax(*high / *low, 1.05), .06);
    *low /= pad;
    *high *= pad;
}

static void draw_point(struct canvas *canvas, const struct axis *x, double y, const struct summary *summary,
                       const struct comparison *comparison)
{
    const struct figures_style *style = figures_method_style(summary->arms[comparison->arm].method);
    const struct interval *speedup = &comparison->speedup;
    if (comparison->headline && isfinite(comparison->simultaneous.low)) {
        double low = axis_position(x, comparison->simultaneous.low),
               high = axis_position(x, comparison->simultaneous.high);
        canvas_line(canvas, low, y, high, y, .5, DASH_NONE, colour_black);
        canvas_line(canvas, low, y - 2.5, low, y + 2.5, .5, DASH_NONE, colour_black);
        canvas_line(canvas, high, y - 2.5, high, y + 2.5, .5, DASH_NONE, colour_black);
    }
    if (isfinite(speedup->low))
        canvas_line(canvas, axis_position(x, speedup->low), y, axis_position(x, speedup->high), y, 1.8, DASH_NONE,
                    style->colour);
    canvas_marker(canvas, style->marker, axis_position(x, speedup->value), y, 3.4,
                  json_array_size(comparison->marks) > 0, style->colour);
}

static void draw_panel(struct canvas *canvas, const struct summary *summary, int workload, const struct axis *x,
                       double top)
{
    double bottom = top + row_count(summary) * ROW_HEIGHT, y = top - ROW_HEIGHT / 2;
    struct axis rows = {.start = bottom, .end = top};
    axes_draw_x(canvas, x, bottom, top);
    canvas_line(canvas, axis_position(x, 1), top, axis_position(x, 1), bottom, .9, DASH_NONE, colour_grey);
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (summary_is_method(summary, arm, BASELINE))
            continue;
        y += ROW_HEIGHT;
        const struct comparison *comparison = summary_compare(summary, arm, BASELINE, workload);
        if (comparison && comparison->speedup.present)
            draw_point(canvas, x, y, summary, comparison);
        else
            figures_draw_missing(canvas, (x->start + x->end) / 2, y,
                                 comparison ? &comparison->missing : &(struct missing){0});
    }
    axes_draw_frame(canvas, x, &rows);
}

static void draw_arm_names(struct canvas *canvas, const struct summary *summary, double x, double top)
{
    double y = top - ROW_HEIGHT / 2;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (summary_is_method(summary, arm, BASELINE))
            continue;
        y += ROW_HEIGHT;
        canvas_text(canvas, x, y + .32 * AXES_TITLE_SIZE, AXES_TITLE_SIZE, ALIGN_RIGHT, colour_black,
                    summary_arm_text(summary, arm));
    }
}

static void draw_legend(struct canvas *canvas, double x)
{
    const struct figures_style *linear = figures_method_style("linear"), *tree = figures_method_style("ddtree");
    const struct figures_key keys[] = {
        {"linear", KEY_MARKER, linear->marker, linear->colour},
        {"ddtree", KEY_MARKER, tree->marker, tree->colour},
        {"suspect", KEY_HOLLOW, tree->marker, tree->colour},
        {"pointwise interval", KEY_INTERVAL, MARKER_CIRCLE, tree->colour},
        {"simultaneous interval", KEY_WHISKER, MARKER_CIRCLE, colour_black},
    };
    figures_draw_keys(canvas, x, 9, keys, 5);
}

void figures_draw_speedup(struct canvas *canvas, const void *context)
{
    const struct summary *summary = context;
    double margin = figures_arm_margin(canvas, summary, BASELINE), low, high;
    struct figures_grid grid = figures_grid_make(summary->workload_count + 1, margin, 9);
    find_range(summary, &low, &high);
    draw_legend(canvas, margin);
    for (int panel = 0; panel < grid.panels; panel++) {
        int workload = panel < summary->workload_count ? panel : SUMMARY_ALL_WORKLOADS;
        double rows = row_count(summary) * ROW_HEIGHT, left = figures_grid_left(&grid, panel);
        double top = LEGEND_HEIGHT + panel / grid.columns * (BAND_HEAD + rows + BAND_FOOT) + BAND_HEAD;
        struct axis x;
        axis_init(&x, AXIS_LOG2, low, high, left, left + grid.panel_width, (int)(grid.panel_width / 24));
        canvas_text_within(canvas, left + grid.panel_width / 2, top - 4, grid.panel_width, AXES_TITLE_SIZE,
                           ALIGN_CENTRE, summary_workload_text(summary, workload));
        draw_panel(canvas, summary, workload, &x, top);
        if (panel % grid.columns == 0) {
            draw_arm_names(canvas, summary, margin - 5, top);
            canvas_text(canvas, (margin + FIGURES_WIDTH) / 2, top + rows + 22, AXES_TITLE_SIZE, ALIGN_CENTRE,
                        colour_black, "speedup over auto (log scale)");
        }
    }
}
