#include "render/figure_parts.h"

#include <math.h>
#include <stdlib.h>

#define PANEL_HEIGHT 66.0
#define ROW_GAP 9.0
#define BAND_FOOT 30.0
#define HEADING_HEIGHT 14.0
#define LEFT 44.0
#define LEAST 84.0
#define CURVE_LEAST 3 /* trees */

/* What a panel shows of an arm: speedup over auto, or acceptance length. */
enum quantity { SPEEDUP, TAU };

struct panel {
    const struct summary *summary;
    enum quantity quantity;
    int workload, group; /* group: an arm of it */
    struct axis x, y;
};

static bool is_tree(const struct summary *summary, int arm)
{
    return summary_is_method(summary, arm, "ddtree") && summary->arms[arm].budget > 0;
}

/* Groups that have trees enough for a curve: an arm of each in `groups`. Two points are told by tables. */
static int find_groups(const struct summary *summary, int *groups)
{
    int count = parts_find_groups(summary, groups), kept = 0;
    for (int i = 0; i < count; i++) {
        int trees = 0;
        for (int arm = 0; arm < summary->arm_count; arm++)
            trees += is_tree(summary, arm) && summary_alike(summary, arm, groups[i]);
        if (trees >= CURVE_LEAST)
            groups[kept++] = groups[i];
    }
    return kept;
}

/* The interval of an arm in a panel; not present where it is missing. `suspect` may be NULL. */
static struct interval find_interval(const struct summary *summary, enum quantity quantity, int arm, int workload,
                                     bool *suspect)
{
    const json_t *marks = NULL;
    bool unpaired = false;
    struct interval interval = {.value = NAN, .low = NAN, .high = NAN};
    const struct comparison *comparison = summary_compare(summary, arm, "auto", workload);
    const struct cell *cell = summary_find_cell(summary, arm, workload);
    if (quantity == SPEEDUP && comparison) {
        unpaired = !comparison->speedup.present && comparison->speedup_unpaired.present;
        interval = unpaired ? comparison->speedup_unpaired : comparison->speedup;
        marks = comparison->marks;
    } else if (quantity == TAU && cell) {
        interval = cell->tau;
        marks = cell->marks;
    }
    if (suspect)
        *suspect = unpaired || json_array_size(marks) > 0;
    return interval;
}

static void make_y(const struct summary *summary, enum quantity quantity, double start, double end, struct axis *y)
{
    double low = 1, high = 1;
    for (int arm = 0; arm < summary->arm_count; arm++)
        for (int workload = SUMMARY_ALL_WORKLOADS; workload < summary->workload_count; workload++) {
            struct interval interval = find_interval(summary, quantity, arm, workload, NULL);
            parts_widen(&interval, &low, &high);
        }
    if (quantity == TAU)
        axis_init(y, AXIS_LINEAR, 1, fmax(high, 1.1), start, end, 5);
    else
        axis_init_log(y, AXIS_LOG2, low, high, start, end, 5);
}

/* Ticks are budgets: powers of two, or the others. */
static void add_budgets(const struct summary *summary, struct axis *x, bool powers)
{
    for (int arm = 0; arm < summary->arm_count; arm++) {
        int budget = summary->arms[arm].budget;
        bool known = !is_tree(summary, arm) || ((budget & (budget - 1)) == 0) != powers;
        for (int i = 0; i < x->tick_count && !known; i++)
            known = x->ticks[i] == budget;
        if (!known && x->tick_count < AXES_TICKS_MAXIMUM)
            x->ticks[x->tick_count++] = budget;
    }
}

static void make_x(const struct summary *summary, double start, double end, struct axis *x)
{
    double low = INFINITY, high = 0;
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (is_tree(summary, arm)) {
            low = fmin(low, summary->arms[arm].budget);
            high = fmax(high, summary->arms[arm].budget);
        }
    axis_init_log(x, AXIS_LOG2, low, fmax(high, 2 * low), start, end, (int)((end - start) / 18));
    x->tick_count = 0;
    x->decimals = 0;
    add_budgets(summary, x, true);
    if (x->tick_count < 2)
        add_budgets(summary, x, false);
}

static double budget_of(const struct summary *summary, int arm)
{
    return summary->arms[arm].budget;
}

/* Where a value stands; at the edge what lies below it, as a limit below 1 does that no acceptance length can reach. */
static double position(const struct panel *panel, double value)
{
    return isnan(value) ? NAN : axis_position(&panel->y, fmax(value, panel->y.low));
}

/* A band between the limits of neighbouring points; it is broken where a point or its interval is missing. */
static void draw_curve(struct canvas *canvas, const struct panel *panel, const int *arms, int count)
{
    struct colour colour = parts_method_style("ddtree")->colour;
    double last_x = 0, last[3] = {NAN, NAN, NAN};
    for (int i = 0; i < count; i++) {
        struct interval point = find_interval(panel->summary, panel->quantity, arms[i], panel->workload, NULL);
        double x = axis_position(&panel->x, panel->summary->arms[arms[i]].budget);
        double now[3] = {point.value, point.low, point.high};
        for (int j = 0; j < 3; j++)
            now[j] = position(panel, now[j]);
        if (isfinite(last[1]) && isfinite(now[1]))
            canvas_polygon(canvas, (double[]){last_x, x, x, last_x}, (double[]){last[1], now[1], now[2], last[2]}, 4,
                           colour_faded(colour, .22));
        if (isfinite(last[0]) && isfinite(now[0]))
            canvas_line(canvas, last_x, last[0], x, now[0], 1, DASH_NONE, colour);
        last_x = x;
        for (int j = 0; j < 3; j++)
            last[j] = now[j];
    }
}

static void draw_markers(struct canvas *canvas, const struct panel *panel, const int *arms, int count)
{
    const struct parts_style *style = parts_method_style("ddtree");
    for (int i = 0; i < count; i++) {
        bool suspect;
        struct interval point = find_interval(panel->summary, panel->quantity, arms[i], panel->workload, &suspect);
        double x = axis_position(&panel->x, panel->summary->arms[arms[i]].budget);
        if (isfinite(point.low))
            canvas_line(canvas, x, position(panel, point.low), x, position(panel, point.high), .8, DASH_NONE,
                        style->colour);
        if (point.present)
            canvas_marker(canvas, style->marker, x, position(panel, point.value), 3.6, suspect, style->colour);
        else
            canvas_text(canvas, x, panel->y.start - 4, 8, ALIGN_CENTRE, colour_black, "—");
    }
}

static void draw_reference(struct canvas *canvas, const struct panel *panel)
{
    struct colour colour = parts_method_style("linear")->colour;
    for (int arm = 0; arm < panel->summary->arm_count; arm++) {
        if (!summary_is_method(panel->summary, arm, "linear") || !summary_alike(panel->summary, arm, panel->group))
            continue;
        struct interval linear = find_interval(panel->summary, panel->quantity, arm, panel->workload, NULL);
        double y = position(panel, linear.value);
        if (isfinite(linear.low)) {
            double high = position(panel, linear.high), low = position(panel, linear.low);
            canvas_rectangle(canvas, panel->x.start, high, panel->x.end - panel->x.start, low - high,
                             colour_faded(colour, .15));
        }
        if (linear.present)
            canvas_line(canvas, panel->x.start, y, panel->x.end, y, 1, DASH_DASHED, colour);
    }
}

static void draw_panel(struct canvas *canvas, const struct panel *panel, bool leftmost, bool lowest)
{
    const struct summary *summary = panel->summary;
    int *arms = xcalloc((size_t)summary->arm_count, sizeof *arms), count = 0;
    double one = position(panel, 1);
    axes_draw_y(canvas, &panel->y, panel->x.start, panel->x.end, leftmost);
    if (lowest)
        axes_draw_x(canvas, &panel->x, panel->y.start, panel->y.end);
    canvas_line(canvas, panel->x.start, one, panel->x.end, one, .9, DASH_NONE, colour_grey);
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (is_tree(summary, arm) && summary_alike(summary, arm, panel->group))
            arms[count++] = arm;
    parts_sort(arms, count, budget_of, summary);
    draw_reference(canvas, panel);
    draw_curve(canvas, panel, arms, count);
    draw_markers(canvas, panel, arms, count);
    axes_draw_frame(canvas, &panel->x, &panel->y);
    free(arms);
}

/* Over all workloads there is no acceptance length. */
static void draw_column(struct canvas *canvas, const struct sheet *sheet, const struct parts_grid *grid, int index,
                        int group, double top)
{
    bool leftmost = index % grid->columns == 0;
    double left = parts_grid_left(grid, index);
    struct panel panel = {
        .summary = sheet->summary, .workload = parts_grid_workload(grid, sheet->summary, index), .group = group};
    bool whole = panel.workload != SUMMARY_ALL_WORKLOADS;
    make_x(sheet->summary, left, left + grid->panel_width, &panel.x);
    make_y(sheet->summary, SPEEDUP, top + PANEL_HEIGHT, top, &panel.y);
    draw_panel(canvas, &panel, leftmost, !whole);
    if (!whole)
        return;
    top += PANEL_HEIGHT + ROW_GAP;
    panel.quantity = TAU;
    make_y(sheet->summary, TAU, top + PANEL_HEIGHT, top, &panel.y);
    draw_panel(canvas, &panel, leftmost, true);
}

static bool shows_workload(const struct summary *summary, int workload)
{
    for (int arm = 0; arm < summary->arm_count; arm++) {
        const struct comparison *comparison = summary_compare(summary, arm, "auto", workload);
        const struct cell *cell = summary_find_cell(summary, arm, workload);
        if (is_tree(summary, arm) && ((comparison && (comparison->speedup.present || comparison->missing.rule)) ||
                                      (cell && (cell->tau.present || cell->missing.rule))))
            return true;
    }
    return false;
}

static struct parts_grid make_grid(const struct sheet *sheet)
{
    return parts_make_grid(sheet, (struct parts_panels){shows_workload, true}, LEFT, PARTS_GAP, LEAST);
}

static int count_bands(const struct sheet *sheet)
{
    int *groups = xcalloc((size_t)sheet->summary->arm_count, sizeof *groups);
    int count = find_groups(sheet->summary, groups) * make_grid(sheet).bands;
    free(groups);
    return count;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    const struct parts_style *tree = parts_method_style("ddtree"), *linear = parts_method_style("linear");
    struct parts_key keys[4];
    int count = 0;
    keys[count++] = (struct parts_key){"ddtree", KEY_MARKER, tree->marker, tree->colour};
    if (parts_has_method(sheet->summary, "linear"))
        keys[count++] = (struct parts_key){"linear", KEY_DASHED, MARKER_CIRCLE, linear->colour};
    keys[count++] = (struct parts_key){"suspect or unpaired", KEY_HOLLOW, tree->marker, tree->colour};
    keys[count++] =
        (struct parts_key){"pointwise interval", KEY_SWATCH, MARKER_CIRCLE, colour_faded(tree->colour, .22)};
    return parts_draw_legend(canvas, sheet, LEFT, keys, count);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    struct parts_grid grid = make_grid(sheet);
    int *groups = xcalloc((size_t)sheet->summary->arm_count, sizeof *groups);
    int count = find_groups(sheet->summary, groups), group = groups[band / grid.bands], row = band % grid.bands;
    double heading = count > 1 ? HEADING_HEIGHT : 0;
    double head = heading + parts_title_height(canvas, sheet, &grid, row), plots = top + head;
    if (heading > 0) {
        char *text = summary_group_text(sheet->summary, group);
        canvas_text(canvas, 4, top + 10, AXES_TITLE_SIZE, ALIGN_LEFT, colour_black, text);
        free(text);
    }
    parts_draw_titles(canvas, sheet, &grid, row, plots);
    canvas_text_upwards(canvas, 10, plots + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, "speedup");
    canvas_text_upwards(canvas, 10, plots + 1.5 * PANEL_HEIGHT + ROW_GAP, AXES_TITLE_SIZE, "τ");
    canvas_text(canvas, parts_grid_middle(&grid, row), plots + 2 * PANEL_HEIGHT + ROW_GAP + 23, AXES_TITLE_SIZE,
                ALIGN_CENTRE, colour_black, "node budget (log scale)");
    for (int panel = parts_grid_first(&grid, row); panel < parts_grid_last(&grid, row); panel++)
        draw_column(canvas, sheet, &grid, panel, group, plots);
    free(groups);
    return head + 2 * PANEL_HEIGHT + ROW_GAP + BAND_FOOT;
}

const struct figure figure_budget = {"budget", "Speedup and acceptance length over the node budget", count_bands,
                                     draw_legend, draw_band};
