#include "render/figure_rows.h"

#include <math.h>
#include <stdio.h>

#define SHARES_FROM 8.0 /* times the shortest round */
#define LABEL_HALF 6.0
#define TIMES_WIDTH 28.0 /* right of the bars */

/* Neighbours differ in lightness, so that they can be told apart in print without colours. */
static const struct {
    struct colour fill, text;
} stage_styles[SUMMARY_STAGE_COUNT] = {
    [SUMMARY_DRAFT] = {{.99, .76, .35, 1}, {0, 0, 0, 1}},  [SUMMARY_BUILD] = {{.55, .27, .03, 1}, {1, 1, 1, 1}},
    [SUMMARY_VERIFY] = {{.45, .70, .90, 1}, {0, 0, 0, 1}}, [SUMMARY_COMMIT] = {{0, .28, .20, 1}, {1, 1, 1, 1}},
    [SUMMARY_OTHER] = {{.85, .85, .85, 1}, {0, 0, 0, 1}},
};

static double round_ms(const struct cell *cell)
{
    double total = 0;
    for (int stage = 0; cell && stage < SUMMARY_STAGE_COUNT; stage++)
        if (cell->stages_ms[stage] > 0)
            total += cell->stages_ms[stage];
    return total;
}

static bool shows_arm(const struct summary *summary, int arm)
{
    for (int i = 0; i < summary->cell_count; i++)
        if (summary->cells[i].arm == arm && round_ms(&summary->cells[i]) > 0)
            return true;
    return false;
}

static bool shows_workload(const struct summary *summary, int workload)
{
    for (int i = 0; i < summary->cell_count; i++) {
        const struct cell *cell = &summary->cells[i];
        if (cell->workload == workload && (round_ms(cell) > 0 || (cell->missing.rule && shows_arm(summary, cell->arm))))
            return true;
    }
    return false;
}

static void find_range(const struct summary *summary, double *shortest, double *longest)
{
    *shortest = INFINITY;
    *longest = 0;
    for (int i = 0; i < summary->cell_count; i++) {
        double ms = round_ms(&summary->cells[i]);
        *shortest = ms > 0 ? fmin(*shortest, ms) : *shortest;
        *longest = fmax(*longest, ms);
    }
}

/* Where some rounds are too short beside others to show their parts, all bars are as long, and times are written. */
static bool shows_shares(const struct summary *summary)
{
    double shortest, longest;
    find_range(summary, &shortest, &longest);
    return longest > SHARES_FROM * shortest;
}

static void make_axis(const struct summary *summary, double start, double end, struct axis *x)
{
    double shortest, longest;
    find_range(summary, &shortest, &longest);
    const double most = longest > 0 ? longest : 1;
    axis_init(x, AXIS_LINEAR, 0, most, start, end, (int)(fabs(end - start) / 26));
    axis_end_at(x, fmin(x->high, most * 1.04));
    const double last = x->ticks[x->tick_count - 1]; /* its label would meet the next panel's first */
    x->high = fmax(x->high, last / (1 - LABEL_HALF / fabs(end - start)));
}

static void make_share_axis(const struct summary *summary, double start, double end, struct axis *x)
{
    (void)summary;
    axis_init(x, AXIS_LINEAR, 0, 100, start, end - TIMES_WIDTH, (int)(fabs(end - start) / 30));
}

static void draw_cell(struct canvas *canvas, const struct rows_cell *cell)
{
    const struct cell *of = summary_find_cell(cell->summary, cell->arm, cell->workload);
    bool shares = shows_shares(cell->summary);
    double from = 0, thick = .7 * cell->height, scale = shares ? 100 / round_ms(of) : 1;
    if (round_ms(of) <= 0) {
        parts_draw_missing(canvas, (cell->x->start + cell->x->end) / 2, cell->y, cell->x->end - cell->x->start,
                           of ? &of->missing : &(struct missing){0});
        return;
    }
    for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++) {
        if (!(of->stages_ms[stage] > 0))
            continue;
        double left = axis_position(cell->x, from), right = axis_position(cell->x, from + scale * of->stages_ms[stage]);
        canvas_rectangle(canvas, left, cell->y - thick / 2, right - left, thick, stage_styles[stage].fill);
        if (from > 0 && right - left > 2)
            canvas_line(canvas, left, cell->y - thick / 2, left, cell->y + thick / 2, .5, DASH_NONE, colour_white);
        char text[32];
        snprintf(text, sizeof text, "%.0f%%", 100 * of->stages_share[stage]);
        if (isfinite(of->stages_share[stage]) && canvas_text_width(canvas, PARTS_SMALL_SIZE, text) + 3 < right - left)
            canvas_text(canvas, (left + right) / 2, cell->y + 2.2, PARTS_SMALL_SIZE, ALIGN_CENTRE,
                        stage_styles[stage].text, text);
        from += scale * of->stages_ms[stage];
    }
    if (shares) {
        char text[32];
        snprintf(text, sizeof text, "%.3g ms", round_ms(of));
        canvas_text(canvas, cell->x->end + TIMES_WIDTH - 1, cell->y + 2.2, PARTS_SMALL_SIZE, ALIGN_RIGHT, colour_black,
                    text);
    }
}

static const struct rows_figure rows = {
    .panels = {shows_workload, false},
    .row_height = 12,
    .least = 100,
    .title = "ms per round (numbers in bars: share of decode time)",
    .shows_arm = shows_arm,
    .make_axis = make_axis,
    .draw_cell = draw_cell,
};

static const struct rows_figure share_rows = {
    .panels = {shows_workload, false},
    .row_height = 12,
    .least = 110,
    .title = "share of a round in % (beside: its time)",
    .shows_arm = shows_arm,
    .make_axis = make_share_axis,
    .draw_cell = draw_cell,
};

static int count_bands(const struct sheet *sheet)
{
    return rows_count_bands(sheet, &rows);
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    struct parts_key keys[SUMMARY_STAGE_COUNT];
    for (int stage = 0; stage < SUMMARY_STAGE_COUNT; stage++)
        keys[stage] =
            (struct parts_key){summary_stage_names[stage], KEY_SWATCH, MARKER_CIRCLE, stage_styles[stage].fill};
    return parts_draw_legend(canvas, sheet, 40, keys, SUMMARY_STAGE_COUNT);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    return rows_draw_band(canvas, sheet, shows_shares(sheet->summary) ? &share_rows : &rows, band, top);
}

const struct figure figure_stages = {"stages", "Time of a round by stage", count_bands, draw_legend, draw_band};
