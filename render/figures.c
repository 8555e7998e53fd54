#include "render/figures.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POINTS_PER_INCH 72.0
#define FILES_MAXIMUM 100
#define PACKED .5 /* of a page: bands share a file up to this height, so that pages can be filled */

const struct figure *const figures_table[] = {
    &figure_speedup, &figure_budget,     &figure_heat,       &figure_acceptance, &figure_stages,
    &figure_scaling, &figure_break_even, &figure_throughput, &figure_residuals,  &figure_devices,
};
const int figures_count = sizeof figures_table / sizeof *figures_table;

/* Bands [first, last) of a figure. */
struct page {
    const struct figure *figure;
    const struct sheet *sheet;
    int first, last;
    double *heights; /* where the drawing measures: of the legend, then of the bands */
};

static void draw_page(struct canvas *canvas, const void *context)
{
    const struct page *page = context;
    double top = page->figure->draw_legend ? page->figure->draw_legend(canvas, page->sheet) : 0;
    if (page->heights)
        page->heights[0] = top;
    for (int band = page->first; band < page->last; band++) {
        double height = page->figure->draw_band(canvas, page->sheet, band, top);
        if (page->heights)
            page->heights[1 + band] = height;
        top += height;
    }
}

/* The first file has the figure's name, others its number as well. */
static char *file_name(const struct figure *figure, int number)
{
    return number == 1 ? xstrdup(figure->name) : xformat("%s-%d", figure->name, number);
}

/* A figure of an earlier summary must not stay behind where this one has none. */
static void remove_files(const struct figure *figure, int number, const char *folder)
{
    static const char *const endings[] = {"pdf", "png"};
    for (bool found = true; found && number < FILES_MAXIMUM; number++) {
        char *name = file_name(figure, number);
        found = false;
        for (int i = 0; i < 2; i++) {
            char *path = xformat("%s/%s.%s", folder, name, endings[i]);
            found = unlink(path) == 0 || found;
            free(path);
        }
        free(name);
    }
}

static int write_pages(const struct figure *figure, const struct sheet *sheet, const double *heights, int bands,
                       const struct fonts *fonts, struct canvas_page paper, const char *folder, struct error *error)
{
    int number = 0, result = 0;
    for (int first = 0; first < bands && !result && number < FILES_MAXIMUM;) {
        if (heights[1 + first] <= 0) {
            first++;
            continue;
        }
        struct page page = {.figure = figure, .sheet = sheet, .first = first, .last = first};
        paper.height = heights[0];
        while (page.last < bands &&
               (page.last == first || paper.height + heights[1 + page.last] <= PACKED * sheet->height))
            paper.height += heights[1 + page.last++];
        char *name = file_name(figure, ++number);
        result = canvas_write(fonts, &paper, draw_page, &page, folder, name, error);
        free(name);
        first = page.last;
    }
    if (!result)
        remove_files(figure, number + 1, folder);
    return result;
}

static int write_figure(const struct figure *figure, const struct sheet *sheet, const struct fonts *fonts,
                        const struct canvas_page *paper, const char *folder, struct error *error)
{
    int bands = figure->count_bands(sheet);
    double *heights = xcalloc(1 + (size_t)bands, sizeof *heights);
    struct page all = {.figure = figure, .sheet = sheet, .last = bands, .heights = heights};
    canvas_measure(fonts, draw_page, &all);
    int result = write_pages(figure, sheet, heights, bands, fonts, *paper, folder, error);
    free(heights);
    return result;
}

int figures_write(const struct summary *summary, const struct style *style, const struct fonts *fonts, double width_in,
                  const char *folder, struct error *error)
{
    char date[CLOCK_UTC_SIZE];
    clock_format_utc(summary_date(summary), date);
    double scale = style->size_pt / AXES_TITLE_SIZE, unit = POINTS_PER_INCH / scale;
    struct sheet sheet = {summary, width_in * unit, style->height_in * unit};
    struct canvas_page paper = {.width = sheet.width, .scale = scale, .date = date};
    for (int i = 0; i < figures_count; i++)
        if (figures_table[i]->count_bands(&sheet) == 0)
            remove_files(figures_table[i], 1, folder);
        else if (write_figure(figures_table[i], &sheet, fonts, &paper, folder, error))
            return -1;
    return 0;
}
