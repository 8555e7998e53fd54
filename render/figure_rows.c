#include "render/figure_rows.h"

#include <math.h>
#include <stdlib.h>

#define HEADING_HEIGHT 11.0
#define BAND_FOOT 29.0
#define BAND_HEAD 34.0       /* of a page's height, titles of three lines */
#define NAMES_SHARE .38      /* of the sheet's width at most */
#define BAND_HEAD_USUAL 15.0 /* with titles of one line */
#define LEGEND 18.0
#define ROW_HEIGHT_LEAST 8.5
#define HALF .475  /* of a page's height: two such figures and their captions fill a page */
#define PRESSED .7 /* so far rows are pressed together for that */

struct row {
    int arm;
    bool heading; /* of the arm's group */
};

struct rows {
    struct row *items;
    int count, headings;
    double height; /* of a row that is no heading */
};

static struct rows make_rows(const struct sheet *sheet, const struct rows_figure *figure)
{
    const struct summary *summary = sheet->summary;
    struct rows rows = {.items = xcalloc(2 * (size_t)summary->arm_count, sizeof *rows.items)};
    bool headed = parts_find_groups(summary, NULL) > 1;
    int last = -1;
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (!figure->shows_arm(summary, arm))
            continue;
        if (headed && (last < 0 || !summary_alike(summary, arm, last))) {
            rows.items[rows.count++] = (struct row){arm, true};
            rows.headings++;
        }
        rows.items[rows.count++] = (struct row){arm, false};
        last = arm;
    }
    const double count = fmax(rows.count - rows.headings, 1),
                 rest = BAND_FOOT + LEGEND + rows.headings * HEADING_HEIGHT;
    const double whole = (sheet->height - BAND_HEAD - rest) / count;
    const double half = (HALF * sheet->height - BAND_HEAD_USUAL - rest) / count;
    rows.height = fmax(fmin(figure->row_height, whole), fmin(figure->row_height, ROW_HEIGHT_LEAST));
    if (half >= PRESSED * rows.height)
        rows.height = fmin(rows.height, half);
    return rows;
}

static double total_height(const struct rows *rows)
{
    return rows->headings * HEADING_HEIGHT + (rows->count - rows->headings) * rows->height;
}

static double name_size(const struct rows *rows)
{
    return fmin(AXES_TITLE_SIZE, .9 * rows->height);
}

static double names_width(struct canvas *canvas, const struct sheet *sheet, const struct rows *rows)
{
    double widest = 0;
    for (int i = 0; i < rows->count; i++) {
        char *group = rows->items[i].heading ? summary_group_text(sheet->summary, rows->items[i].arm) : NULL;
        const char *text = group ? group : parts_arm_text(sheet->summary, rows->items[i].arm);
        widest = fmax(widest, canvas_text_width(canvas, group ? AXES_LABEL_SIZE : name_size(rows), text));
        free(group);
    }
    return fmin(widest, NAMES_SHARE * sheet->width);
}

int rows_count_bands(const struct sheet *sheet, const struct rows_figure *figure)
{
    struct rows rows = make_rows(sheet, figure);
    bool any = rows.count > 0;
    free(rows.items);
    /* Names may take up to their share, which leaves a grid of at least so many columns; which it is, is known only
     * once names are measured. So bands that turn out to be empty draw nothing and have no height. */
    return any ? parts_count_panels(sheet->summary, &figure->panels) : 0;
}

static void draw_names(struct canvas *canvas, const struct sheet *sheet, const struct rows *rows, double x,
                       double width, double top)
{
    double y = top;
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        if (row->heading) {
            char *group = summary_group_text(sheet->summary, row->arm);
            canvas_text_within(canvas, x, y + HEADING_HEIGHT - 3, width, AXES_LABEL_SIZE, ALIGN_RIGHT, group);
            y += HEADING_HEIGHT;
            free(group);
        } else {
            canvas_text_within(canvas, x, y + rows->height / 2 + .32 * name_size(rows), width, name_size(rows),
                               ALIGN_RIGHT, parts_arm_text(sheet->summary, row->arm));
            y += rows->height;
        }
    }
}

static void draw_panel(struct canvas *canvas, const struct sheet *sheet, const struct rows_figure *figure,
                       const struct rows *rows, const struct axis *x, int workload, double top, bool leftmost)
{
    double y = top, bottom = top + total_height(rows);
    struct axis frame = {.start = bottom, .end = top};
    axes_draw_x(canvas, x, bottom, top);
    if (figure->line > 0)
        canvas_line(canvas, axis_position(x, figure->line), top, axis_position(x, figure->line), bottom, .9, DASH_NONE,
                    colour_grey);
    for (int i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        double height = row->heading ? HEADING_HEIGHT : rows->height;
        struct rows_cell cell = {sheet->summary, row->arm, workload, x, y + height / 2, height};
        if (row->heading && i > 0)
            canvas_line(canvas, x->start, y + HEADING_HEIGHT / 2, x->end, y + HEADING_HEIGHT / 2, .4, DASH_DOTTED,
                        colour_grey);
        if (!row->heading)
            figure->draw_cell(canvas, &cell);
        if (!row->heading && leftmost && figure->draw_scale)
            figure->draw_scale(canvas, &cell);
        y += height;
    }
    axes_draw_frame(canvas, x, &frame);
}

double rows_draw_band(struct canvas *canvas, const struct sheet *sheet, const struct rows_figure *figure, int band,
                      double top)
{
    struct rows rows = make_rows(sheet, figure);
    double names = names_width(canvas, sheet, &rows);
    struct parts_grid grid =
        parts_make_grid(sheet, figure->panels, names + 10 + figure->scale_width, PARTS_GAP, figure->least);
    double height = 0;
    if (band < grid.bands) {
        double head = parts_title_height(canvas, sheet, &grid, band), bottom = top + head + total_height(&rows);
        parts_draw_titles(canvas, sheet, &grid, band, top + head);
        draw_names(canvas, sheet, &rows, names + 4, names, top + head);
        for (int panel = parts_grid_first(&grid, band); panel < parts_grid_last(&grid, band); panel++) {
            struct axis x;
            double left = parts_grid_left(&grid, panel);
            figure->make_axis(sheet->summary, left, left + grid.panel_width, &x);
            draw_panel(canvas, sheet, figure, &rows, &x, parts_grid_workload(&grid, sheet->summary, panel), top + head,
                       panel % grid.columns == 0);
        }
        canvas_text_within(canvas, parts_grid_middle(&grid, band), bottom + 22, grid.width, AXES_TITLE_SIZE,
                           ALIGN_CENTRE, figure->title);
        height = head + total_height(&rows) + BAND_FOOT;
    }
    free(rows.items);
    return height;
}
