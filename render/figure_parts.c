#include "render/figure_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE 8.0
#define KEY_WIDTH 15.0
#define KEY_GAP 14.0
#define KEY_BASELINE 9.0
#define KEY_ROW 11.0
#define KEY_FOOT 9.0 /* below the last baseline */
#define COLUMNS_MAXIMUM 4
#define TITLE_LINE (1.15 * AXES_TITLE_SIZE)

const struct parts_style *parts_method_style(const char *method)
{
    static const struct parts_style styles[] = {
        {"auto", MARKER_DIAMOND, {0, 0, 0, 1}},
        {"linear", MARKER_SQUARE, {.835, .369, 0, 1}},
        {"ddtree", MARKER_CIRCLE, {0, .447, .698, 1}},
        {NULL, MARKER_TRIANGLE, {.8, .475, .655, 1}},
    };
    const struct parts_style *style = styles;
    while (style->method && strcmp(style->method, method) != 0)
        style++;
    return style;
}

/* How many different budgets are smaller than this one, and how many there are. */
static int count_below(const struct summary *summary, int budget, int *distinct)
{
    int below = 0;
    *distinct = 0;
    for (int i = 0; i < summary->arm_count; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++)
            first = summary->arms[j].budget != summary->arms[i].budget;
        if (!first || summary->arms[i].budget < 1)
            continue;
        *distinct += 1;
        below += summary->arms[i].budget < budget;
    }
    return below;
}

struct parts_style parts_arm_style(const struct summary *summary, int arm)
{
    struct parts_style style = *parts_method_style(summary->arms[arm].method);
    int distinct, below = count_below(summary, summary->arms[arm].budget, &distinct);
    if (summary->arms[arm].budget < 1 || distinct < 2)
        return style;
    static const enum marker markers[] = {MARKER_CIRCLE,   MARKER_TRIANGLE, MARKER_TRIANGLE_DOWN,
                                          MARKER_PENTAGON, MARKER_HEXAGON,  MARKER_TRIANGLE_LEFT};
    style.marker = markers[below % 6];
    style.colour = colour_mixed((struct colour){.42, .70, .90, 1}, (struct colour){0, .20, .40, 1},
                                (double)below / (distinct - 1));
    return style;
}

bool parts_has_method(const struct summary *summary, const char *method)
{
    for (int i = 0; i < summary->arm_count; i++)
        if (summary_is_method(summary, i, method))
            return true;
    return false;
}

int parts_method_keys(const struct summary *summary, struct parts_key *keys)
{
    int count = 0;
    for (int arm = 0; arm < summary->arm_count && count < PARTS_METHODS; arm++) {
        const char *method = summary->arms[arm].method;
        const struct parts_style *style = parts_method_style(method);
        int first = 0;
        while (!summary_is_method(summary, first, method))
            first++;
        if (first == arm)
            keys[count++] = (struct parts_key){method, KEY_MARKER, style->marker, style->colour};
    }
    return count;
}

int parts_find_groups(const struct summary *summary, int *arms)
{
    int groups = 0;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        bool known = false;
        for (int i = 0; i < arm && !known; i++)
            known = summary_alike(summary, arm, i);
        if (known)
            continue;
        if (arms)
            arms[groups] = arm;
        groups++;
    }
    return groups;
}

const char *parts_arm_text(const struct summary *summary, int arm)
{
    const char *label = summary->arms[arm].label;
    for (int i = 0; i < summary->arm_count; i++)
        if (i != arm && summary_alike(summary, i, arm) && strcmp(summary->arms[i].label, label) == 0)
            return summary->arms[arm].name;
    return label;
}

/* --- panels ------------------------------------------------------------------------------------------------------- */

static bool is_shown(const struct summary *summary, const struct parts_panels *panels, int workload)
{
    return (workload != SUMMARY_ALL_WORKLOADS || panels->overall) &&
           (!panels->shows || panels->shows(summary, workload));
}

int parts_count_panels(const struct summary *summary, const struct parts_panels *panels)
{
    int count = 0;
    for (int workload = SUMMARY_ALL_WORKLOADS; workload < summary->workload_count; workload++)
        count += is_shown(summary, panels, workload);
    return count;
}

struct parts_grid parts_make_grid(const struct sheet *sheet, struct parts_panels of, double left, double gap,
                                  double least)
{
    const int panels = parts_count_panels(sheet->summary, &of);
    struct parts_grid grid = {.of = of, .left = left, .gap = gap, .panels = panels, .width = sheet->width - 6 - left};
    int columns = (int)((grid.width + gap) / (least + gap));
    columns = columns < 1 ? 1 : columns > COLUMNS_MAXIMUM ? COLUMNS_MAXIMUM : columns;
    columns = columns < panels ? columns : panels;
    grid.bands = columns ? (panels + columns - 1) / columns : 0;
    grid.columns = grid.bands ? (panels + grid.bands - 1) / grid.bands : 0;
    grid.panel_width = columns ? (grid.width - gap * (grid.columns - 1)) / grid.columns : 0;
    return grid;
}

double parts_grid_left(const struct parts_grid *grid, int panel)
{
    return grid->left + panel % grid->columns * (grid->panel_width + grid->gap);
}

double parts_grid_middle(const struct parts_grid *grid, int band)
{
    const int first = parts_grid_first(grid, band), last = parts_grid_last(grid, band) - 1;
    return (parts_grid_left(grid, first) + parts_grid_left(grid, last) + grid->panel_width) / 2;
}

int parts_grid_first(const struct parts_grid *grid, int band)
{
    return band * grid->columns;
}

int parts_grid_last(const struct parts_grid *grid, int band)
{
    int last = (band + 1) * grid->columns;
    return last < grid->panels ? last : grid->panels;
}

int parts_grid_workload(const struct parts_grid *grid, const struct summary *summary, int panel)
{
    int workload = 0;
    for (; workload < summary->workload_count; workload++)
        if (is_shown(summary, &grid->of, workload) && panel-- == 0)
            return workload;
    return SUMMARY_ALL_WORKLOADS;
}

double parts_title_height(struct canvas *canvas, const struct sheet *sheet, const struct parts_grid *grid, int band)
{
    int most = 1;
    for (int panel = parts_grid_first(grid, band); panel < parts_grid_last(grid, band); panel++) {
        int lines =
            canvas_count_lines(canvas, grid->panel_width, AXES_TITLE_SIZE,
                               summary_workload_text(sheet->summary, parts_grid_workload(grid, sheet->summary, panel)));
        most = lines > most ? lines : most;
    }
    return most * TITLE_LINE + 4;
}

void parts_draw_titles(struct canvas *canvas, const struct sheet *sheet, const struct parts_grid *grid, int band,
                       double bottom)
{
    for (int panel = parts_grid_first(grid, band); panel < parts_grid_last(grid, band); panel++)
        canvas_text_lines(canvas, parts_grid_left(grid, panel) + grid->panel_width / 2, bottom - 4, grid->panel_width,
                          AXES_TITLE_SIZE,
                          summary_workload_text(sheet->summary, parts_grid_workload(grid, sheet->summary, panel)));
}

/* --- legends ------------------------------------------------------------------------------------------------------ */

static void draw_key(struct canvas *canvas, double x, double y, const struct parts_key *key)
{
    double middle = y - .32 * KEY_SIZE;
    switch (key->kind) {
    case KEY_MARKER:
    case KEY_HOLLOW:
        canvas_marker(canvas, key->marker, x + 6, middle, 4, key->kind == KEY_HOLLOW, key->colour);
        break;
    case KEY_SWATCH:
        canvas_rectangle(canvas, x + 1, middle - 3.5, 10, 7, key->colour);
        break;
    case KEY_HATCH:
        canvas_hatch(canvas, x + 1, middle - 3.5, 10, 7, key->colour);
        break;
    case KEY_LINE:
    case KEY_DASHED:
        canvas_line(canvas, x, middle, x + 12, middle, 1, key->kind == KEY_DASHED ? DASH_DASHED : DASH_NONE,
                    key->colour);
        break;
    case KEY_INTERVAL:
        canvas_line(canvas, x, middle, x + 12, middle, 1.8, DASH_NONE, key->colour);
        break;
    case KEY_WHISKER:
        parts_draw_whisker(canvas, x, x + 12, middle, .5, key->colour);
        break;
    }
}

/* Keys that fit a line from x on; at least one. */
static int fit_keys(struct canvas *canvas, double x, double room, const struct parts_key *keys, int count,
                    double *width)
{
    int fitting = 0;
    *width = 0;
    while (fitting < count) {
        double more = KEY_WIDTH + canvas_text_width(canvas, KEY_SIZE, keys[fitting].text) + (fitting ? KEY_GAP : 0);
        if (fitting > 0 && x + *width + more > room)
            break;
        *width += more;
        fitting++;
    }
    return fitting;
}

double parts_draw_legend(struct canvas *canvas, const struct sheet *sheet, double left, const struct parts_key *keys,
                         int count)
{
    double room = sheet->width - 4, y = KEY_BASELINE, width;
    if (fit_keys(canvas, left, room, keys, count, &width) < count)
        left = 4;
    for (int first = 0; first < count; y += KEY_ROW) {
        int last = first + fit_keys(canvas, left, room, keys + first, count - first, &width);
        double x = left;
        for (; first < last; first++) {
            draw_key(canvas, x, y, &keys[first]);
            canvas_text_within(canvas, x + KEY_WIDTH, y, room - x - KEY_WIDTH, KEY_SIZE, ALIGN_LEFT, keys[first].text);
            x += KEY_WIDTH + canvas_text_width(canvas, KEY_SIZE, keys[first].text) + KEY_GAP;
        }
    }
    return y - KEY_ROW + KEY_FOOT;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

void parts_draw_missing(struct canvas *canvas, double x, double y, double width, const struct missing *missing)
{
    char *text = xformat("—%s%s", missing->rule ? " " : "", missing->rule ? missing->rule : "");
    double taken = fmin(canvas_text_width(canvas, PARTS_SMALL_SIZE, text), width - 4);
    canvas_rectangle(canvas, x - taken / 2 - 2, y - 4, taken + 4, 8, colour_white);
    canvas_text_within(canvas, x, y + 2.2, width - 4, PARTS_SMALL_SIZE, ALIGN_CENTRE, text);
    free(text);
}

void parts_draw_whisker(struct canvas *canvas, double x0, double x1, double y, double width, struct colour colour)
{
    canvas_line(canvas, x0, y, x1, y, width, DASH_NONE, colour);
    canvas_line(canvas, x0, y - 2, x0, y + 2, width, DASH_NONE, colour);
    canvas_line(canvas, x1, y - 2, x1, y + 2, width, DASH_NONE, colour);
}

void parts_draw_whisker_upwards(struct canvas *canvas, double x, double y0, double y1, double width,
                                struct colour colour)
{
    canvas_line(canvas, x, y0, x, y1, width, DASH_NONE, colour);
    canvas_line(canvas, x - 1.5, y0, x + 1.5, y0, width, DASH_NONE, colour);
    canvas_line(canvas, x - 1.5, y1, x + 1.5, y1, width, DASH_NONE, colour);
}

void parts_widen(const struct interval *interval, double *low, double *high)
{
    const double values[] = {interval->value, interval->low, interval->high};
    for (int i = 0; i < 3 && interval->present; i++)
        if (values[i] > 0) {
            *low = fmin(*low, values[i]);
            *high = fmax(*high, values[i]);
        }
}

void parts_sort(int *items, int count, double (*key)(const struct summary *summary, int item),
                const struct summary *summary)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && key(summary, items[j]) < key(summary, items[j - 1]); j--) {
            int moved = items[j];
            items[j] = items[j - 1];
            items[j - 1] = moved;
        }
}
