#include "render/figures.h"

#include <math.h>
#include <stdio.h>

#define ROW_HEIGHT 13.0
#define LEGEND_HEIGHT 16.0
#define BAND_HEAD 13.0
#define BAND_FOOT 28.0

static const struct {
    struct colour fill, text;
} stage_styles[SUMMARY_STAGE_COUNT] = {
    [SUMMARY_DRAFT] = {{.902, .624, 0, 1}, {0, 0, 0, 1}},  [SUMMARY_BUILD] = {{.941, .894, .259, 1}, {0, 0, 0, 1}},
    [SUMMARY_VERIFY] = {{0, .447, .698, 1}, {1, 1, 1, 1}}, [SUMMARY_COMMIT] = {{0, .62, .451, 1}, {1, 1, 1, 1}},
    [SUMMARY_OTHER] = {{.72, .72, .72, 1}, {0, 0, 0, 1}},
};

static double round_ms(const struct cell *cell)
{
    double total = 0;
    for (int stage = 0; cell && stage < SUMMARY_STAGE_COUNT; stage++)
        if (cell->stages_ms[stage] > 0)
            total += cell->stages_ms[stage];
    return total;
}

static double longest_round(const struct summary *summary)
{
    double longest = 0;
    for (int i = 0; i < summary->cell_count; i++)
        longest = fmax(longest, round_ms(&summary->cells[i]));
    return longest;
}

double figures_stages_height(const struct summary *summary)
{
    struct figures_grid grid = figures_grid_make(summary->workload_count, 0, 0);
    if (longest_round(summary) <= 0)
        return 0;
    return LEGEND_HEIGHT + grid.bands * (BAND_HEAD + summary->arm_count * ROW_HEIGHT + BAND_FOOT);
}

static void draw_bar(struct canvas *canvas, const struct cell *cell, const struct axis *x, double y)
{
    double from = 0;
    for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++) {
        if (!(cell->stages_ms[stage] > 0))
            continue;
        double left = axis_position(x, from), right = axis_position(x, from + cell->stages_ms[stage]);
        canvas_rectangle(canvas, left, y - 4.5, right - left, 9, stage_styles[stage].fill);
        char text[32];
        snprintf(text, sizeof text, "%.0f%%", 100 * cell->stages_share[stage]);
        if (isfinite(cell->stages_share[stage]) && canvas_text_width(canvas, 6.5, text) + 3 < right - left)
            canvas_text(canvas, (left + right) / 2, y + 2.2, 6.5, ALIGN_CENTRE, stage_styles[stage].text, text);
        from += cell->stages_ms[stage];
    }
}

static void draw_panel(struct canvas *canvas, const struct summary *summary, int workload, double left, double width,
                       double top, bool leftmost)
{
    double bottom = top + summary->arm_count * ROW_HEIGHT;
    struct axis x, rows = {.start = bottom, .end = top};
    axis_init(&x, AXIS_LINEAR, 0, longest_round(summary), left, left + width, (int)(width / 26));
    axes_draw_x(canvas, &x, bottom, top);
    for (int arm = 0; arm < summary->arm_count; arm++) {
        const struct cell *cell = summary_find_cell(summary, arm, workload);
        double y = top + (arm + .5) * ROW_HEIGHT;
        if (round_ms(cell) > 0)
            draw_bar(canvas, cell, &x, y);
        else
            figures_draw_missing(canvas, left + width / 2, y, cell ? &cell->missing : &(struct missing){0});
        if (leftmost)
            canvas_text(canvas, left - 5, y + .32 * AXES_TITLE_SIZE, AXES_TITLE_SIZE, ALIGN_RIGHT, colour_black,
                        summary_arm_text(summary, arm));
    }
    axes_draw_frame(canvas, &x, &rows);
}

void figures_draw_stages(struct canvas *canvas, const void *context)
{
    const struct summary *summary = context;
    double margin = figures_arm_margin(canvas, summary, NULL), rows = summary->arm_count * ROW_HEIGHT;
    struct figures_grid grid = figures_grid_make(summary->workload_count, margin, 12);
    double x = margin;
    for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++) {
        struct figures_key key = {summary_stage_names[stage], KEY_SWATCH, MARKER_CIRCLE, stage_styles[stage].fill};
        x = figures_draw_keys(canvas, x, 9, &key, 1);
    }
    for (int panel = 0; panel < grid.panels; panel++) {
        double left = figures_grid_left(&grid, panel);
        double top = LEGEND_HEIGHT + panel / grid.columns * (BAND_HEAD + rows + BAND_FOOT) + BAND_HEAD;
        canvas_text_within(canvas, left + grid.panel_width / 2, top - 4, grid.panel_width, AXES_TITLE_SIZE,
                           ALIGN_CENTRE, summary_workload_text(summary, panel));
        draw_panel(canvas, summary, panel, left, grid.panel_width, top, panel % grid.columns == 0);
        if (panel % grid.columns == 0)
            canvas_text(canvas, (margin + FIGURES_WIDTH) / 2, top + rows + 22, AXES_TITLE_SIZE, ALIGN_CENTRE,
                        colour_black, "ms per round (numbers in bars: share of decode time)");
    }
}
