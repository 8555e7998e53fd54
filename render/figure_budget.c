#include "render/figures.h"

#include <math.h>
#include <stdlib.h>

#define PANEL_HEIGHT 75.0
#define BAND_HEAD 14.0
#define ROW_GAP 9.0
#define BAND_FOOT 30.0
#define LEFT 44.0
#define SERIES_MAXIMUM 8
#define BAND_HEIGHT (BAND_HEAD + 2 * PANEL_HEIGHT + ROW_GAP + BAND_FOOT)

/* A series: the tree arms that share ranks and concurrency, in order of budget. */
struct series {
    int tensor_parallel, concurrency;
    enum marker marker;
    struct colour colour;
};

/* What a panel shows of an arm: speedup over auto, or acceptance length. */
enum quantity { SPEEDUP, TAU };

static bool is_in(const struct summary *summary, int arm, const char *method, const struct series *series)
{
    return summary_is_method(summary, arm, method) && summary->arms[arm].tensor_parallel == series->tensor_parallel &&
           summary->arms[arm].concurrency == series->concurrency;
}

static int find_series(const struct summary *summary, struct series *series)
{
    static const struct colour colours[] = {
        {0, .447, .698, 1}, {0, .62, .451, 1}, {.8, .475, .655, 1}, {.337, .706, .914, 1}};
    int count = 0;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        bool known = !summary_is_method(summary, arm, "ddtree") || summary->arms[arm].budget < 1;
        for (int i = 0; i < count && !known; i++)
            known = is_in(summary, arm, "ddtree", &series[i]);
        if (!known && count < SERIES_MAXIMUM) {
            series[count] = (struct series){summary->arms[arm].tensor_parallel, summary->arms[arm].concurrency,
                                            (enum marker)(count % MARKER_COUNT), colours[count % 4]};
            count++;
        }
    }
    return count;
}

double figures_budget_height(const struct summary *summary)
{
    struct series series[SERIES_MAXIMUM];
    struct figures_grid grid = figures_grid_make(summary->workload_count + 1, 0, 0);
    return find_series(summary, series) ? grid.bands * BAND_HEIGHT : 0;
}

/* The interval of an arm in a panel; not present where it is missing. `suspect` may be NULL. */
static struct interval find_interval(const struct summary *summary, enum quantity quantity, int arm, int workload,
                                     bool *suspect)
{
    const json_t *marks = NULL;
    struct interval interval = {.value = NAN, .low = NAN, .high = NAN};
    const struct comparison *comparison = summary_compare(summary, arm, "auto", workload);
    const struct cell *cell = summary_find_cell(summary, arm, workload);
    if (quantity == SPEEDUP && comparison) {
        interval = comparison->speedup;
        marks = comparison->marks;
    } else if (quantity == TAU && cell) {
        interval = cell->tau;
        marks = cell->marks;
    }
    if (suspect)
        *suspect = json_array_size(marks) > 0;
    return interval;
}

static void find_range(const struct summary *summary, enum quantity quantity, double *low, double *high)
{
    *low = *high = 1;
    for (int arm = 0; arm < summary->arm_count; arm++)
        for (int workload = SUMMARY_ALL_WORKLOADS; workload < summary->workload_count; workload++) {
            struct interval interval = find_interval(summary, quantity, arm, workload, NULL);
            *low = quantity == TAU ? 1 : fmin(*low, fmin(interval.value, interval.low));
            *high = fmax(*high, fmax(interval.value, interval.high));
        }
    if (quantity == TAU) { /* from 1, upwards to a tick */
        *high = fmax(*high, 1.1);
        return;
    }
    double pad = pow(fmax(*high / *low, 1.05), .06);
    *low /= pad;
    *high *= pad;
}

static void find_budgets(const struct summary *summary, double *low, double *high)
{
    *low = INFINITY;
    *high = 0;
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (summary_is_method(summary, arm, "ddtree") && summary->arms[arm].budget > 0) {
            *low = fmin(*low, summary->arms[arm].budget);
            *high = fmax(*high, summary->arms[arm].budget);
        }
    double pad = pow(fmax(*high / *low, 2), .07);
    *low /= pad;
    *high *= pad;
}

static int compare_budgets(const void *a, const void *b, void *context)
{
    const struct summary *summary = context;
    return summary->arms[*(const int *)a].budget - summary->arms[*(const int *)b].budget;
}

struct panel {
    const struct summary *summary;
    enum quantity quantity;
    int workload;
    struct axis x, y;
};

/* Where a value stands; at the edge what lies below it, as a limit below 1 does that no acceptance length can reach. */
static double position(const struct panel *panel, double value)
{
    return isnan(value) ? NAN : axis_position(&panel->y, fmax(value, panel->y.low));
}

/* A band between the limits of neighbouring points; it is broken where a point or its interval is missing. */
static void draw_curve(struct canvas *canvas, const struct panel *panel, const struct series *series, const int *arms,
                       int count)
{
    double last_x = 0, last[3] = {NAN, NAN, NAN};
    for (int i = 0; i < count; i++) {
        struct interval point = find_interval(panel->summary, panel->quantity, arms[i], panel->workload, NULL);
        double x = axis_position(&panel->x, panel->summary->arms[arms[i]].budget);
        double now[3] = {point.value, point.low, point.high};
        for (int j = 0; j < 3; j++)
            now[j] = position(panel, now[j]);
        if (isfinite(last[1]) && isfinite(now[1]))
            canvas_polygon(canvas, (double[]){last_x, x, x, last_x}, (double[]){last[1], now[1], now[2], last[2]}, 4,
                           colour_faded(series->colour, .22));
        if (isfinite(last[0]) && isfinite(now[0]))
            canvas_line(canvas, last_x, last[0], x, now[0], 1, DASH_NONE, series->colour);
        last_x = x;
        for (int j = 0; j < 3; j++)
            last[j] = now[j];
    }
}

static void draw_markers(struct canvas *canvas, const struct panel *panel, const struct series *series, const int *arms,
                         int count)
{
    for (int i = 0; i < count; i++) {
        bool suspect;
        struct interval point = find_interval(panel->summary, panel->quantity, arms[i], panel->workload, &suspect);
        double x = axis_position(&panel->x, panel->summary->arms[arms[i]].budget);
        if (isfinite(point.low))
            canvas_line(canvas, x, position(panel, point.low), x, position(panel, point.high), .8, DASH_NONE,
                        series->colour);
        if (point.present)
            canvas_marker(canvas, series->marker, x, position(panel, point.value), 3.6, suspect, series->colour);
        else
            canvas_text(canvas, x, panel->y.start - 4, 8, ALIGN_CENTRE, colour_black, "—");
    }
}

static void draw_reference(struct canvas *canvas, const struct panel *panel, const struct series *series)
{
    struct colour colour = figures_method_style("linear")->colour;
    for (int arm = 0; arm < panel->summary->arm_count; arm++) {
        if (!is_in(panel->summary, arm, "linear", series))
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

static void draw_series(struct canvas *canvas, const struct panel *panel, const struct series *series)
{
    const struct summary *summary = panel->summary;
    int *arms = xcalloc((size_t)summary->arm_count, sizeof *arms), count = 0;
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (is_in(summary, arm, "ddtree", series) && summary->arms[arm].budget > 0)
            arms[count++] = arm;
    qsort_r(arms, (size_t)count, sizeof *arms, compare_budgets, (void *)summary);
    draw_reference(canvas, panel, series);
    draw_curve(canvas, panel, series, arms, count);
    draw_markers(canvas, panel, series, arms, count);
    free(arms);
}

static void draw_panel(struct canvas *canvas, const struct panel *panel, bool leftmost, bool lowest)
{
    struct series series[SERIES_MAXIMUM];
    int count = find_series(panel->summary, series);
    double one = position(panel, 1);
    axes_draw_y(canvas, &panel->y, panel->x.start, panel->x.end, leftmost);
    if (lowest)
        axes_draw_x(canvas, &panel->x, panel->y.start, panel->y.end);
    canvas_line(canvas, panel->x.start, one, panel->x.end, one, .9, DASH_NONE, colour_grey);
    for (int i = 0; i < count; i++)
        draw_series(canvas, panel, &series[i]);
    axes_draw_frame(canvas, &panel->x, &panel->y);
}

/* In the empty place below the panel over all workloads, which has no acceptance length of its own. */
static void draw_legend(struct canvas *canvas, const struct summary *summary, double x, double y)
{
    struct series series[SERIES_MAXIMUM];
    int count = find_series(summary, series);
    const struct figures_style *linear = figures_method_style("linear");
    for (int i = 0; i < count; i++, y += 13) {
        char *text = count == 1 ? xstrdup("ddtree")
                     : series[i].concurrency == 1
                         ? xformat("ddtree, TP %d", series[i].tensor_parallel)
                         : xformat("ddtree, TP %d, c %d", series[i].tensor_parallel, series[i].concurrency);
        figures_draw_keys(canvas, x, y, &(struct figures_key){text, KEY_MARKER, series[i].marker, series[i].colour}, 1);
        free(text);
    }
    figures_draw_keys(canvas, x, y, &(struct figures_key){"linear", KEY_DASHED, MARKER_CIRCLE, linear->colour}, 1);
    figures_draw_keys(canvas, x, y + 13,
                      &(struct figures_key){"suspect", KEY_HOLLOW, series[0].marker, series[0].colour}, 1);
    figures_draw_keys(
        canvas, x, y + 26,
        &(struct figures_key){"pointwise interval", KEY_SWATCH, MARKER_CIRCLE, colour_faded(series[0].colour, .22)}, 1);
}

static void draw_column(struct canvas *canvas, const struct summary *summary, const struct figures_grid *grid,
                        int panel_index, double top)
{
    double left = figures_grid_left(grid, panel_index), low, high, first, last;
    bool leftmost = panel_index % grid->columns == 0;
    struct panel panel = {.summary = summary,
                          .workload = panel_index < summary->workload_count ? panel_index : SUMMARY_ALL_WORKLOADS};
    find_budgets(summary, &first, &last);
    axis_init(&panel.x, AXIS_LOG2, first, last, left, left + grid->panel_width, (int)(grid->panel_width / 18));
    canvas_text_within(canvas, left + grid->panel_width / 2, top + 10, grid->panel_width, AXES_TITLE_SIZE, ALIGN_CENTRE,
                       summary_workload_text(summary, panel.workload));
    top += BAND_HEAD;
    bool whole = panel.workload != SUMMARY_ALL_WORKLOADS;
    find_range(summary, SPEEDUP, &low, &high);
    axis_init(&panel.y, AXIS_LOG2, low, high, top + PANEL_HEIGHT, top, 5);
    draw_panel(canvas, &panel, leftmost, !whole);
    if (!whole) {
        draw_legend(canvas, summary, left + 10, top + PANEL_HEIGHT + ROW_GAP + 34);
        return;
    }
    panel.quantity = TAU;
    top += PANEL_HEIGHT + ROW_GAP;
    find_range(summary, TAU, &low, &high);
    axis_init(&panel.y, AXIS_LINEAR, low, high, top + PANEL_HEIGHT, top, 5);
    draw_panel(canvas, &panel, leftmost, true);
}

void figures_draw_budget(struct canvas *canvas, const void *context)
{
    const struct summary *summary = context;
    struct figures_grid grid = figures_grid_make(summary->workload_count + 1, LEFT, 9);
    for (int band = 0; band < grid.bands; band++) {
        double top = band * BAND_HEIGHT;
        canvas_text_upwards(canvas, 9, top + BAND_HEAD + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, "speedup over auto");
        canvas_text_upwards(canvas, 9, top + BAND_HEAD + 1.5 * PANEL_HEIGHT + ROW_GAP, AXES_TITLE_SIZE,
                            "acceptance length τ");
        canvas_text(canvas, (LEFT + FIGURES_WIDTH) / 2, top + BAND_HEIGHT - 6, AXES_TITLE_SIZE, ALIGN_CENTRE,
                    colour_black, "node budget (log scale)");
    }
    for (int panel = 0; panel < grid.panels; panel++)
        draw_column(canvas, summary, &grid, panel, panel / grid.columns * BAND_HEIGHT);
}
