#include "render/figures.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_SIZE 8.0

const struct figure figures_table[] = {
    {"speedup", "Speedup over auto", figures_speedup_height, figures_draw_speedup},
    {"budget", "Speedup and acceptance length over the node budget", figures_budget_height, figures_draw_budget},
    {"acceptance", "Tokens committed in a round", figures_acceptance_height, figures_draw_acceptance},
    {"stages", "Time of a round by stage", figures_stages_height, figures_draw_stages},
};
const int figures_count = sizeof figures_table / sizeof *figures_table;

/* A figure of an earlier summary must not stay behind where this one has none. */
static void remove_figure(const char *folder, const char *name)
{
    static const char *const endings[] = {"pdf", "png"};
    for (int i = 0; i < 2; i++) {
        char *path = xformat("%s/%s.%s", folder, name, endings[i]);
        unlink(path);
        free(path);
    }
}

int figures_write(const struct summary *summary, const struct fonts *fonts, const char *folder, struct error *error)
{
    char date[CLOCK_UTC_SIZE];
    clock_format_utc(summary_date(summary), date);
    for (int i = 0; i < figures_count; i++) {
        const struct figure *figure = &figures_table[i];
        double height = figure->height(summary);
        if (height <= 0)
            remove_figure(folder, figure->name);
        else if (canvas_write(fonts, FIGURES_WIDTH, height, date, figure->draw, summary, folder, figure->name, error))
            return -1;
    }
    return 0;
}

const struct figures_style *figures_method_style(const char *method)
{
    static const struct figures_style styles[] = {
        {"auto", MARKER_DIAMOND, {0, 0, 0, 1}},
        {"linear", MARKER_SQUARE, {.835, .369, 0, 1}},
        {"ddtree", MARKER_CIRCLE, {0, .447, .698, 1}},
        {NULL, MARKER_TRIANGLE, {.8, .475, .655, 1}},
    };
    const struct figures_style *style = styles;
    while (style->method && strcmp(style->method, method) != 0)
        style++;
    return style;
}

struct figures_grid figures_grid_make(int panels, double left, double gap)
{
    struct figures_grid grid = {.left = left, .gap = gap, .panels = panels};
    grid.columns = panels < FIGURES_COLUMNS_MAXIMUM ? panels : FIGURES_COLUMNS_MAXIMUM;
    grid.bands = grid.columns ? (panels + grid.columns - 1) / grid.columns : 0;
    grid.panel_width = grid.columns ? (FIGURES_WIDTH - 6 - left - gap * (grid.columns - 1)) / grid.columns : 0;
    return grid;
}

double figures_grid_left(const struct figures_grid *grid, int panel)
{
    return grid->left + panel % grid->columns * (grid->panel_width + grid->gap);
}

double figures_arm_margin(struct canvas *canvas, const struct summary *summary, const char *except)
{
    double widest = 0;
    for (int i = 0; i < summary->arm_count; i++) {
        double width = canvas_text_width(canvas, AXES_TITLE_SIZE, summary_arm_text(summary, i));
        if (!(except && summary_is_method(summary, i, except)) && width > widest)
            widest = width;
    }
    return widest + 8;
}

static void draw_key(struct canvas *canvas, double x, double y, const struct figures_key *key)
{
    double middle = y - .32 * KEY_SIZE;
    switch (key->kind) {
    case KEY_MARKER:
    case KEY_HOLLOW:
        canvas_marker(canvas, key->marker, x + 5, middle, 5, key->kind == KEY_HOLLOW, key->colour);
        break;
    case KEY_SWATCH:
        canvas_rectangle(canvas, x, middle - 3.5, 10, 7, key->colour);
        break;
    case KEY_DASHED:
        canvas_line(canvas, x - 4, middle, x + 11, middle, 1, DASH_DASHED, key->colour);
        break;
    case KEY_INTERVAL:
        canvas_line(canvas, x - 1, middle, x + 11, middle, 1.6, DASH_NONE, key->colour);
        break;
    case KEY_WHISKER:
        canvas_line(canvas, x - 3, middle, x + 11, middle, .5, DASH_NONE, key->colour);
        canvas_line(canvas, x - 3, middle - 2, x - 3, middle + 2, .5, DASH_NONE, key->colour);
        canvas_line(canvas, x + 11, middle - 2, x + 11, middle + 2, .5, DASH_NONE, key->colour);
        break;
    }
}

double figures_draw_keys(struct canvas *canvas, double x, double y, const struct figures_key *keys, int count)
{
    for (int i = 0; i < count; i++) {
        draw_key(canvas, x, y, &keys[i]);
        canvas_text(canvas, x + 15, y, KEY_SIZE, ALIGN_LEFT, colour_black, keys[i].text);
        x += 15 + canvas_text_width(canvas, KEY_SIZE, keys[i].text) + 16;
    }
    return x;
}

void figures_draw_missing(struct canvas *canvas, double x, double y, const struct missing *missing)
{
    char *text = xformat("— %s", missing->rule ? missing->rule : "");
    double width = canvas_text_width(canvas, 6.5, text);
    canvas_rectangle(canvas, x - width / 2 - 2, y - 4, width + 4, 8, colour_white);
    canvas_text(canvas, x, y + 2.2, 6.5, ALIGN_CENTRE, colour_grey, text);
    free(text);
}
