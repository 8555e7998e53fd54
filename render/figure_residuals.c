#include "render/figure_parts.h"

#include <math.h>

#define PANEL_HEIGHT 110.0
#define FOOT 30.0
#define HEAD 4.0
#define LEFT 44.0

static int count_bands(const struct sheet *sheet)
{
    return sheet->summary->drift.residual_count > 1;
}

static double percent(double residual)
{
    return 100 * (exp(fmin(residual, 10)) - 1);
}

static void make_y(const struct drift *drift, double start, double end, struct axis *y)
{
    double low = -1, high = 1;
    for (int i = 0; i < drift->residual_count; i++) {
        low = fmin(low, percent(drift->residuals[i].residual));
        high = fmax(high, percent(drift->residuals[i].residual));
    }
    axis_init(y, AXIS_LINEAR, low, high, start, end, 6);
}

/* Where another block begins. */
static void draw_blocks(struct canvas *canvas, const struct drift *drift, const struct axis *x, const struct axis *y)
{
    for (int i = 1; i < drift->residual_count; i++)
        if (drift->residuals[i].block != drift->residuals[i - 1].block) {
            double at = axis_position(x, i + .5);
            canvas_line(canvas, at, y->start, at, y->end, .5, DASH_DOTTED, colour_grey);
        }
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    (void)band;
    const struct summary *summary = sheet->summary;
    const struct drift *drift = &summary->drift;
    struct axis x, y;
    top += HEAD;
    axis_init(&x, AXIS_LINEAR, 0, drift->residual_count + 1, LEFT, sheet->width - 6, (int)(sheet->width / 50));
    axis_end_at(&x, drift->residual_count + 1);
    make_y(drift, top + PANEL_HEIGHT, top, &y);
    axes_draw_y(canvas, &y, x.start, x.end, true);
    axes_draw_x(canvas, &x, y.start, y.start);
    draw_blocks(canvas, drift, &x, &y);
    canvas_line(canvas, x.start, axis_position(&y, 0), x.end, axis_position(&y, 0), .9, DASH_NONE, colour_grey);
    for (int i = 0; i < drift->residual_count; i++) {
        const struct residual *residual = &drift->residuals[i];
        const struct parts_style *style = parts_method_style(summary->arms[residual->arm].method);
        canvas_marker(canvas, style->marker, axis_position(&x, i + 1), axis_position(&y, percent(residual->residual)),
                      drift->residual_count > 300 ? 1.6 : 2.8, residual->outlier, style->colour);
    }
    axes_draw_frame(canvas, &x, &y);
    canvas_text_upwards(canvas, 10, top + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, "TPOT from mean / %");
    canvas_text(canvas, (x.start + x.end) / 2, top + PANEL_HEIGHT + 23, AXES_TITLE_SIZE, ALIGN_CENTRE, colour_black,
                "attempts in the order of the run");
    return HEAD + PANEL_HEIGHT + FOOT;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    struct parts_key keys[PARTS_METHODS + 1];
    int count = parts_method_keys(sheet->summary, keys);
    keys[count++] = (struct parts_key){"outlier", KEY_HOLLOW, MARKER_CIRCLE, parts_method_style("ddtree")->colour};
    return parts_draw_legend(canvas, sheet, LEFT, keys, count);
}

const struct figure figure_residuals = {"residuals", "Residuals over the order of the run", count_bands, draw_legend,
                                        draw_band};
