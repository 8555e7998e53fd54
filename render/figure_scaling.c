#include "render/figure_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_HEIGHT 84.0
#define ROW_GAP 9.0
#define BAND_FOOT 30.0
#define HEADING_HEIGHT 14.0
#define LEFT 44.0
#define LEAST 84.0
#define SERIES_MAXIMUM 64
#define DODGE 2.2 /* between series, so that whiskers do not cover each other */

enum quantity { SPEEDUP, EFFICIENCY };

struct panel {
    const struct summary *summary;
    enum quantity quantity;
    int workload, concurrency;
    struct axis x, y;
};

static int concurrency_of(const struct summary *summary, int index)
{
    return summary->arms[summary->scaling[index].arm].concurrency;
}

static bool is_drawn(const struct scaling *scaling)
{
    return scaling->speedup.present || scaling->efficiency.present;
}

/* Different numbers of requests in flight, each once. */
static int find_concurrencies(const struct summary *summary, int *values)
{
    int count = 0;
    for (int i = 0; i < summary->scaling_count; i++) {
        bool known = !is_drawn(&summary->scaling[i]);
        for (int j = 0; j < count && !known; j++)
            known = values[j] == concurrency_of(summary, i);
        if (!known && count < SERIES_MAXIMUM)
            values[count++] = concurrency_of(summary, i);
    }
    return count;
}

/* An entry of each label, in the order of the arms. */
static int find_series(const struct summary *summary, int concurrency, int *entries)
{
    int count = 0;
    for (int arm = 0; arm < summary->arm_count; arm++)
        for (int i = 0; i < summary->scaling_count; i++) {
            if (summary->scaling[i].arm != arm || concurrency_of(summary, i) != concurrency ||
                !is_drawn(&summary->scaling[i]))
                continue;
            bool known = false;
            for (int j = 0; j < count && !known; j++)
                known = summary->scaling[entries[j]].reference == summary->scaling[i].reference;
            if (!known && count < SERIES_MAXIMUM)
                entries[count++] = i;
        }
    return count;
}

static const struct interval *value_of(const struct scaling *scaling, enum quantity quantity)
{
    return quantity == SPEEDUP ? &scaling->speedup : &scaling->efficiency;
}

static void find_ranks(const struct summary *summary, double *low, double *high)
{
    *low = INFINITY;
    *high = 0;
    for (int i = 0; i < summary->scaling_count; i++) {
        *low = fmin(*low, summary->arms[summary->scaling[i].reference].tensor_parallel);
        *high = fmax(*high, summary->arms[summary->scaling[i].arm].tensor_parallel);
    }
    *high = fmax(*high, 2 * *low);
}

static void make_y(const struct summary *summary, enum quantity quantity, double start, double end, struct axis *y)
{
    double low = 1, high = 1, first, last;
    for (int i = 0; i < summary->scaling_count; i++)
        parts_widen(value_of(&summary->scaling[i], quantity), &low, &high);
    find_ranks(summary, &first, &last);
    if (quantity == SPEEDUP)
        axis_init_log(y, AXIS_LOG2, low, fmax(high, last / first), start, end, 5);
    else
        axis_init(y, AXIS_LINEAR, 0, fmax(high, 1.05), start, end, 6);
}

static double ranks_of(const struct summary *summary, int entry)
{
    return summary->arms[summary->scaling[entry].arm].tensor_parallel;
}

static double place(const struct panel *panel, double value)
{
    return axis_position(&panel->y, fmax(value, panel->y.low));
}

static void draw_point(struct canvas *canvas, const struct panel *panel, const struct scaling *scaling, double x,
                       const struct parts_style *style)
{
    const struct interval *of = value_of(scaling, panel->quantity);
    bool unpaired = scaling->pairing && strcmp(scaling->pairing, "unpaired") == 0;
    if (isfinite(of->low))
        parts_draw_whisker_upwards(canvas, x, place(panel, of->low), place(panel, of->high), .6, style->colour);
    canvas_marker(canvas, style->marker, x, place(panel, of->value), 3.2,
                  unpaired || json_array_size(scaling->marks) > 0, style->colour);
}

/* From the reference, which is 1, over the numbers of ranks. */
static void draw_series(struct canvas *canvas, const struct panel *panel, int series, int shift)
{
    const struct summary *summary = panel->summary;
    int reference = summary->scaling[series].reference, *entries, count = 0;
    struct parts_style style = parts_arm_style(summary, reference);
    entries = xcalloc((size_t)summary->scaling_count, sizeof *entries);
    for (int i = 0; i < summary->scaling_count; i++)
        if (summary->scaling[i].reference == reference && summary->scaling[i].workload == panel->workload &&
            value_of(&summary->scaling[i], panel->quantity)->present)
            entries[count++] = i;
    parts_sort(entries, count, ranks_of, summary);
    double x = axis_position(&panel->x, summary->arms[reference].tensor_parallel), y = place(panel, 1);
    for (int i = 0; i < count; i++) {
        double next = axis_position(&panel->x, ranks_of(summary, entries[i])) + shift * DODGE;
        double to = place(panel, value_of(&summary->scaling[entries[i]], panel->quantity)->value);
        canvas_line(canvas, x, y, next, to, .8, DASH_NONE, style.colour);
        draw_point(canvas, panel, &summary->scaling[entries[i]], next, &style);
        x = next;
        y = to;
    }
    free(entries);
}

static void draw_ideal(struct canvas *canvas, const struct panel *panel, double first, double last)
{
    double end = panel->quantity == SPEEDUP ? last / first : 1;
    canvas_line(canvas, axis_position(&panel->x, first), place(panel, 1), axis_position(&panel->x, last),
                place(panel, end), .9, DASH_DASHED, colour_grey);
}

/* Ticks where arms are. */
static void make_x(const struct summary *summary, double start, double end, struct axis *x)
{
    double first, last;
    find_ranks(summary, &first, &last);
    double pad = pow(last / first, .12);
    *x = (struct axis){.scale = AXIS_LOG2, .low = first / pad, .high = last * pad, .start = start, .end = end};
    for (int arm = 0; arm < summary->arm_count; arm++) {
        double ranks = summary->arms[arm].tensor_parallel;
        bool known = ranks < first || ranks > last;
        for (int i = 0; i < x->tick_count && !known; i++)
            known = x->ticks[i] == ranks;
        if (!known && x->tick_count < AXES_TICKS_MAXIMUM)
            x->ticks[x->tick_count++] = ranks;
    }
}

static void draw_panel(struct canvas *canvas, struct panel *panel, double top, bool leftmost)
{
    int series[SERIES_MAXIMUM], count = find_series(panel->summary, panel->concurrency, series);
    double first, last;
    make_y(panel->summary, panel->quantity, top + PANEL_HEIGHT, top, &panel->y);
    find_ranks(panel->summary, &first, &last);
    axes_draw_y(canvas, &panel->y, panel->x.start, panel->x.end, leftmost);
    if (panel->quantity == EFFICIENCY)
        axes_draw_x(canvas, &panel->x, panel->y.start, panel->y.end);
    draw_ideal(canvas, panel, first, last);
    for (int i = 0; i < count; i++)
        draw_series(canvas, panel, series[i], i - count / 2);
    axes_draw_frame(canvas, &panel->x, &panel->y);
}

static struct parts_grid make_grid(const struct sheet *sheet)
{
    return parts_make_grid(sheet, (struct parts_panels){.overall = true}, LEFT, PARTS_GAP, LEAST);
}

static int count_bands(const struct sheet *sheet)
{
    int values[SERIES_MAXIMUM];
    return find_concurrencies(sheet->summary, values) * make_grid(sheet).bands;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    const struct summary *summary = sheet->summary;
    struct parts_key keys[SERIES_MAXIMUM];
    int values[SERIES_MAXIMUM], series[SERIES_MAXIMUM], count = 0;
    find_concurrencies(summary, values);
    int found = find_series(summary, values[0], series);
    for (int i = 0; i < found && count < SERIES_MAXIMUM - 1; i++) {
        int reference = summary->scaling[series[i]].reference;
        struct parts_style style = parts_arm_style(summary, reference);
        keys[count++] = (struct parts_key){parts_arm_text(summary, reference), KEY_MARKER, style.marker, style.colour};
    }
    keys[count++] = (struct parts_key){"ideal", KEY_DASHED, MARKER_CIRCLE, colour_grey};
    return parts_draw_legend(canvas, sheet, LEFT, keys, count);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    struct parts_grid grid = make_grid(sheet);
    int values[SERIES_MAXIMUM], count = find_concurrencies(sheet->summary, values), row = band % grid.bands;
    double heading = count > 1 ? HEADING_HEIGHT : 0;
    double head = heading + parts_title_height(canvas, sheet, &grid, row), plots = top + head;
    struct panel panel = {.summary = sheet->summary, .concurrency = values[band / grid.bands]};
    if (heading > 0) {
        char *text = xformat("%d in flight", panel.concurrency);
        canvas_text(canvas, 4, top + 10, AXES_TITLE_SIZE, ALIGN_LEFT, colour_black, text);
        free(text);
    }
    parts_draw_titles(canvas, sheet, &grid, row, plots);
    canvas_text_upwards(canvas, 10, plots + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, "speedup");
    canvas_text_upwards(canvas, 10, plots + 1.5 * PANEL_HEIGHT + ROW_GAP, AXES_TITLE_SIZE, "efficiency");
    for (int i = parts_grid_first(&grid, row); i < parts_grid_last(&grid, row); i++) {
        double left = parts_grid_left(&grid, i);
        panel.workload = parts_grid_workload(&grid, sheet->summary, i);
        make_x(sheet->summary, left, left + grid.panel_width, &panel.x);
        panel.quantity = SPEEDUP;
        draw_panel(canvas, &panel, plots, i % grid.columns == 0);
        panel.quantity = EFFICIENCY;
        draw_panel(canvas, &panel, plots + PANEL_HEIGHT + ROW_GAP, i % grid.columns == 0);
    }
    canvas_text(canvas, parts_grid_middle(&grid, row), plots + 2 * PANEL_HEIGHT + ROW_GAP + 23, AXES_TITLE_SIZE,
                ALIGN_CENTRE, colour_black, "ranks (log scale)");
    return head + 2 * PANEL_HEIGHT + ROW_GAP + BAND_FOOT;
}

const struct figure figure_scaling = {"scaling", "Speedup and efficiency over ranks", count_bands, draw_legend,
                                      draw_band};
