#include "render/figure_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANEL_HEIGHT 130.0
#define BAND_FOOT 30.0
#define LEFT 46.0
#define LEAST 180.0
#define LABELS_MAXIMUM 64
#define MARKER_SIZE 3.4
#define LABEL_ROOM 1.25 /* right of the fastest point, for its label */

struct box {
    double left, top, right, bottom;
};

struct panel {
    const struct summary *summary;
    int workload;
    struct axis x, y;
    struct box taken[LABELS_MAXIMUM]; /* by labels and points */
    int taken_count;
};

static bool is_drawn(const struct cell *cell)
{
    return cell && cell->tokens_per_s.present && cell->aggregate_per_device.present;
}

/* At one concurrency and one number of ranks there is nothing to trade. */
static bool has_trade(const struct summary *summary)
{
    const struct cell *first = NULL;
    for (int i = 0; i < summary->cell_count; i++) {
        const struct cell *cell = &summary->cells[i];
        if (!is_drawn(cell))
            continue;
        if (first && !summary_alike(summary, first->arm, cell->arm))
            return true;
        first = first ? first : cell;
    }
    return false;
}

static struct parts_grid make_grid(const struct sheet *sheet)
{
    return parts_make_grid(sheet, (struct parts_panels){0}, LEFT, 34, LEAST);
}

static int count_bands(const struct sheet *sheet)
{
    return has_trade(sheet->summary) ? make_grid(sheet).bands : 0;
}

static void find_range(const struct summary *summary, int workload, double *low, double *high, bool aggregate)
{
    *low = INFINITY;
    *high = 0;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        const struct cell *cell = summary_find_cell(summary, arm, workload);
        if (is_drawn(cell))
            parts_widen(aggregate ? &cell->aggregate_per_device : &cell->tokens_per_s, low, high);
    }
    if (!(*high > 0))
        *low = *high = 1;
}

static double x_of(const struct panel *panel, const struct cell *cell)
{
    return axis_position(&panel->x, cell->tokens_per_s.value);
}

static double y_of(const struct panel *panel, const struct cell *cell)
{
    return axis_position(&panel->y, cell->aggregate_per_device.value);
}

static void take(struct panel *panel, struct box box)
{
    if (panel->taken_count < LABELS_MAXIMUM)
        panel->taken[panel->taken_count++] = box;
}

static bool is_free(const struct panel *panel, const struct box *box)
{
    bool within = box->left > panel->x.start && box->right < panel->x.end && box->top > panel->y.end &&
                  box->bottom < panel->y.start;
    for (int i = 0; i < panel->taken_count && within; i++) {
        const struct box *other = &panel->taken[i];
        within = box->left > other->right || box->right < other->left || box->top > other->bottom ||
                 box->bottom < other->top;
    }
    return within;
}

/* --- the front ---------------------------------------------------------------------------------------------------- */

static int compare_speed(const void *a, const void *b)
{
    const struct cell *one = *(const struct cell *const *)a, *other = *(const struct cell *const *)b;
    return (one->tokens_per_s.value > other->tokens_per_s.value) -
           (one->tokens_per_s.value < other->tokens_per_s.value);
}

static int find_front(const struct panel *panel, const struct cell **front)
{
    int count = 0;
    for (int arm = 0; arm < panel->summary->arm_count; arm++) {
        const struct cell *cell = summary_find_cell(panel->summary, arm, panel->workload);
        if (is_drawn(cell) && cell->pareto)
            front[count++] = cell;
    }
    qsort(front, (size_t)count, sizeof *front, compare_speed);
    return count;
}

/* Steps: what lies below and left of them is beaten. */
static void draw_front(struct canvas *canvas, const struct panel *panel, const struct cell *const *front, int count)
{
    for (int i = 0; i + 1 < count; i++) {
        double x = x_of(panel, front[i]), y = y_of(panel, front[i]), to = y_of(panel, front[i + 1]);
        canvas_line(canvas, x, y, x, to, 1, DASH_NONE, colour_grey);
        canvas_line(canvas, x, to, x_of(panel, front[i + 1]), to, 1, DASH_NONE, colour_grey);
    }
}

/* Beside the point, wherever there is room; nowhere if there is none. */
static void label_point(struct canvas *canvas, struct panel *panel, const struct cell *cell)
{
    static const double places[][2] = {{1, 0}, {.7, -1}, {-1, 0}, {-.7, 1}, {.7, 1}, {-.7, -1}, {0, -1}, {0, 1}};
    const char *text = summary_arm_text(panel->summary, cell->arm);
    double width = canvas_text_width(canvas, PARTS_SMALL_SIZE, text), height = PARTS_SMALL_SIZE;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        double x = x_of(panel, cell) + places[i][0] * (width / 2 + 4), y = y_of(panel, cell) + places[i][1] * 7;
        struct box box = {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
        if (!is_free(panel, &box))
            continue;
        canvas_rectangle(canvas, box.left, box.top, width, height, colour_faded(colour_white, .75));
        canvas_text(canvas, x, y + .32 * PARTS_SMALL_SIZE, PARTS_SMALL_SIZE, ALIGN_CENTRE, colour_black, text);
        take(panel, box);
        return;
    }
}

/* --- points ------------------------------------------------------------------------------------------------------- */

static bool same_series(const struct summary *summary, int arm, int other)
{
    const struct summary_arm *one = &summary->arms[arm], *two = &summary->arms[other];
    return one->tensor_parallel == two->tensor_parallel && one->budget == two->budget &&
           strcmp(one->method, two->method) == 0;
}

/* From an arm to the same with the next larger number of requests in flight. */
static void draw_step(struct canvas *canvas, const struct panel *panel, int arm)
{
    const struct summary *summary = panel->summary;
    const struct cell *from = summary_find_cell(summary, arm, panel->workload), *to = NULL;
    for (int other = 0; other < summary->arm_count; other++) {
        const struct cell *cell = summary_find_cell(summary, other, panel->workload);
        if (is_drawn(cell) && same_series(summary, arm, other) &&
            summary->arms[other].concurrency > summary->arms[arm].concurrency &&
            (!to || summary->arms[other].concurrency < summary->arms[to->arm].concurrency))
            to = cell;
    }
    if (to)
        canvas_line(canvas, x_of(panel, from), y_of(panel, from), x_of(panel, to), y_of(panel, to), .6, DASH_NONE,
                    colour_faded(parts_method_style(summary->arms[arm].method)->colour, .5));
}

static void draw_point(struct canvas *canvas, struct panel *panel, const struct cell *cell)
{
    const struct parts_style *style = parts_method_style(panel->summary->arms[cell->arm].method);
    double x = x_of(panel, cell), y = y_of(panel, cell);
    const struct interval *user = &cell->tokens_per_s, *device = &cell->aggregate_per_device;
    if (isfinite(user->low))
        canvas_line(canvas, axis_position(&panel->x, user->low), y, axis_position(&panel->x, user->high), y, .6,
                    DASH_NONE, style->colour);
    if (isfinite(device->low))
        canvas_line(canvas, x, axis_position(&panel->y, device->low), x, axis_position(&panel->y, device->high), .6,
                    DASH_NONE, style->colour);
    canvas_marker(canvas, style->marker, x, y, MARKER_SIZE, json_array_size(cell->marks) > 0, style->colour);
    take(panel, (struct box){x - 2, y - 2, x + 2, y + 2});
}

static void draw_panel(struct canvas *canvas, struct panel *panel)
{
    const struct summary *summary = panel->summary;
    const struct cell **front = xcalloc((size_t)summary->arm_count, sizeof *front);
    int count = find_front(panel, front);
    axes_draw_x(canvas, &panel->x, panel->y.start, panel->y.end);
    axes_draw_y(canvas, &panel->y, panel->x.start, panel->x.end, true);
    draw_front(canvas, panel, front, count);
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (is_drawn(summary_find_cell(summary, arm, panel->workload)))
            draw_step(canvas, panel, arm);
    for (int arm = 0; arm < summary->arm_count; arm++)
        if (is_drawn(summary_find_cell(summary, arm, panel->workload)))
            draw_point(canvas, panel, summary_find_cell(summary, arm, panel->workload));
    for (int i = 0; i < count; i++)
        label_point(canvas, panel, front[i]);
    axes_draw_frame(canvas, &panel->x, &panel->y);
    free(front);
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    struct parts_key keys[PARTS_METHODS + 1];
    int count = parts_method_keys(sheet->summary, keys);
    keys[count++] = (struct parts_key){"Pareto front", KEY_LINE, MARKER_CIRCLE, colour_grey};
    return parts_draw_legend(canvas, sheet, LEFT, keys, count);
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    struct parts_grid grid = make_grid(sheet);
    double head = parts_title_height(canvas, sheet, &grid, band), plots = top + head, low, high;
    parts_draw_titles(canvas, sheet, &grid, band, plots);
    for (int i = parts_grid_first(&grid, band); i < parts_grid_last(&grid, band); i++) {
        struct panel panel = {.summary = sheet->summary, .workload = i};
        double left = parts_grid_left(&grid, i);
        find_range(sheet->summary, i, &low, &high, false);
        axis_init_log(&panel.x, AXIS_LOG10, low, high * LABEL_ROOM, left, left + grid.panel_width,
                      (int)(grid.panel_width / 30));
        find_range(sheet->summary, i, &low, &high, true);
        axis_init_log(&panel.y, AXIS_LOG10, low, high, plots + PANEL_HEIGHT, plots, 6);
        draw_panel(canvas, &panel);
    }
    canvas_text_upwards(canvas, 10, plots + PANEL_HEIGHT / 2, AXES_TITLE_SIZE, "tokens/s per device");
    canvas_text_within(canvas, grid.left + grid.width / 2, plots + PANEL_HEIGHT + 23, grid.width, AXES_TITLE_SIZE,
                       ALIGN_CENTRE, "tokens/s per user (both log scale)");
    return head + PANEL_HEIGHT + BAND_FOOT;
}

const struct figure figure_throughput = {"throughput", "Throughput against per-user speed", count_bands, draw_legend,
                                         draw_band};
