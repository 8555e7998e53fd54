#include "render/figures.h"

#include <math.h>
#include <stdio.h>

#define ROW_HEIGHT 23.0
#define ROW_GAP 4.0
#define BAND_HEAD 15.0
#define BAND_FOOT 28.0
#define SKIPPED "auto" /* commits one token a round by definition */
#define SCALE_WIDTH 18.0

static bool is_shown(const struct summary *summary, int arm)
{
    if (summary_is_method(summary, arm, SKIPPED))
        return false;
    for (int i = 0; i < summary->cell_count; i++)
        if (summary->cells[i].arm == arm && summary->cells[i].histogram_count > 1)
            return true;
    return false;
}

static int row_count(const struct summary *summary)
{
    int rows = 0;
    for (int arm = 0; arm < summary->arm_count; arm++)
        rows += is_shown(summary, arm);
    return rows;
}

static double band_height(const struct summary *summary)
{
    return BAND_HEAD + row_count(summary) * (ROW_HEIGHT + ROW_GAP) + BAND_FOOT;
}

double figures_acceptance_height(const struct summary *summary)
{
    struct figures_grid grid = figures_grid_make(summary->workload_count, 0, 0);
    return row_count(summary) ? grid.bands * band_height(summary) : 0;
}

static double total_rounds(const struct cell *cell)
{
    double rounds = 0;
    for (int i = 0; i < cell->histogram_count; i++)
        rounds += cell->histogram[i];
    return rounds;
}

/* The longest round and the largest fraction, for scales that all panels share. */
static void find_range(const struct summary *summary, int *longest, double *highest)
{
    *longest = 1;
    *highest = 0;
    for (int i = 0; i < summary->cell_count; i++) {
        const struct cell *cell = &summary->cells[i];
        double rounds = total_rounds(cell);
        for (int tokens = 1; tokens < cell->histogram_count && rounds > 0 && is_shown(summary, cell->arm); tokens++)
            if (cell->histogram[tokens] > 0) {
                *longest = tokens > *longest ? tokens : *longest;
                *highest = fmax(*highest, cell->histogram[tokens] / rounds);
            }
    }
}

static void draw_tau(struct canvas *canvas, const struct cell *cell, const struct axis *x, const struct axis *y)
{
    if (!cell->tau.present)
        return;
    char text[64];
    double at = axis_position(x, cell->tau.value);
    snprintf(text, sizeof text, "τ = %.2f%s", cell->tau.value, json_array_size(cell->marks) ? " *" : "");
    canvas_line(canvas, at, y->start, at, y->end, .9, DASH_DASHED, colour_black);
    canvas_text(canvas, x->end - 3, y->end + 8, 7.5, ALIGN_RIGHT, colour_black, text);
}

static void draw_histogram(struct canvas *canvas, const struct summary *summary, int arm, int workload,
                           const struct axis *x, const struct axis *y)
{
    const struct cell *cell = summary_find_cell(summary, arm, workload);
    double rounds = cell ? total_rounds(cell) : 0, bar = .8 * (axis_position(x, 2) - axis_position(x, 1));
    canvas_line(canvas, x->start, y->start, x->end, y->start, .5, DASH_NONE, colour_black);
    if (rounds <= 0) {
        figures_draw_missing(canvas, (x->start + x->end) / 2, (y->start + y->end) / 2,
                             cell ? &cell->missing : &(struct missing){0});
        return;
    }
    for (int tokens = 1; tokens < cell->histogram_count; tokens++) {
        double top = axis_position(y, cell->histogram[tokens] / rounds);
        canvas_rectangle(canvas, axis_position(x, tokens) - bar / 2, top, bar, y->start - top,
                         figures_method_style(summary->arms[arm].method)->colour);
    }
    draw_tau(canvas, cell, x, y);
}

static void draw_scale(struct canvas *canvas, const struct axis *y, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.*f", y->decimals, y->high);
    canvas_line(canvas, x, y->start, x, y->end, .5, DASH_NONE, colour_black);
    canvas_text(canvas, x - 2, y->start + 1, 6.5, ALIGN_RIGHT, colour_black, "0");
    canvas_text(canvas, x - 2, y->end + 4, 6.5, ALIGN_RIGHT, colour_black, text);
}

static void draw_panel(struct canvas *canvas, const struct summary *summary, int workload, double left, double width,
                       double top, bool leftmost)
{
    int longest;
    double highest;
    struct axis x, y;
    find_range(summary, &longest, &highest);
    x = (struct axis){.low = .4, .high = longest + .6, .start = left, .end = left + width};
    int stride = longest > 10 ? 1 + longest / 10 : 1;
    for (int tokens = 1; tokens <= longest; tokens += stride)
        if (x.tick_count < AXES_TICKS_MAXIMUM)
            x.ticks[x.tick_count++] = tokens;
    double row_top = top;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (!is_shown(summary, arm))
            continue;
        axis_init(&y, AXIS_LINEAR, 0, highest, row_top + ROW_HEIGHT, row_top, 5);
        draw_histogram(canvas, summary, arm, workload, &x, &y);
        if (leftmost) {
            draw_scale(canvas, &y, left);
            canvas_text(canvas, left - SCALE_WIDTH, row_top + ROW_HEIGHT / 2 + 3, AXES_TITLE_SIZE, ALIGN_RIGHT,
                        colour_black, summary_arm_text(summary, arm));
        }
        row_top += ROW_HEIGHT + ROW_GAP;
    }
    axes_draw_x(canvas, &x, row_top - ROW_GAP, row_top - ROW_GAP);
}

void figures_draw_acceptance(struct canvas *canvas, const void *context)
{
    const struct summary *summary = context;
    double margin = figures_arm_margin(canvas, summary, SKIPPED) + SCALE_WIDTH;
    struct figures_grid grid = figures_grid_make(summary->workload_count, margin, 12);
    for (int panel = 0; panel < grid.panels; panel++) {
        double left = figures_grid_left(&grid, panel), top = panel / grid.columns * band_height(summary);
        canvas_text_within(canvas, left + grid.panel_width / 2, top + 9, grid.panel_width, AXES_TITLE_SIZE,
                           ALIGN_CENTRE, summary_workload_text(summary, panel));
        draw_panel(canvas, summary, panel, left, grid.panel_width, top + BAND_HEAD, panel % grid.columns == 0);
        if (panel % grid.columns == 0)
            canvas_text(canvas, (margin + FIGURES_WIDTH) / 2, top + band_height(summary) - 6, AXES_TITLE_SIZE,
                        ALIGN_CENTRE, colour_black, "tokens committed in a round (bars: fraction of rounds)");
    }
}
