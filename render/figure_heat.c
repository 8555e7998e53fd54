#include "render/figure_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CELL_HEIGHT 15.0
#define CELL_WIDTH_MOST 46.0
#define HEADING_HEIGHT 14.0
#define BAND_FOOT 22.0
#define GROUP_GAP 12.0
#define NAMES_SHARE .38
#define BUDGETS_MAXIMUM 64
#define VALUE_SIZE 7.0
#define NAME_SIZE_LEAST 4.5 /* smaller ones are cut */

/* Ends of the diverging scale around 1: ocean above, earth below, light in between. */
static const struct colour above = {.13, .44, .71, 1}, below = {.75, .36, .10, 1}, middle = {.97, .97, .97, 1};

static bool is_shown(const struct summary *summary, int arm)
{
    return !summary_is_method(summary, arm, "auto");
}

static int find_groups(const struct summary *summary, int *groups)
{
    int count = parts_find_groups(summary, groups), kept = 0;
    for (int i = 0; i < count; i++) {
        bool any = false;
        for (int arm = 0; arm < summary->arm_count; arm++)
            any = any || (summary_is_method(summary, arm, "ddtree") && summary_alike(summary, arm, groups[i]));
        if (any)
            groups[kept++] = groups[i];
    }
    return kept;
}

/* The largest distance from 1 of any speedup, as a logarithm. */
static double find_reach(const struct summary *summary)
{
    double reach = log(1.1);
    for (int i = 0; i < summary->comparison_count; i++)
        if (summary->comparisons[i].speedup.present &&
            summary_is_method(summary, summary->comparisons[i].baseline, "auto"))
            reach = fmax(reach, fabs(log(summary->comparisons[i].speedup.value)));
    return reach;
}

/* Of light, as W3C's contrast ratio takes it, with a gamma of 2.2. */
static double luminance(struct colour colour)
{
    return .2126 * pow(colour.red, 2.2) + .7152 * pow(colour.green, 2.2) + .0722 * pow(colour.blue, 2.2);
}

static struct colour colour_of(double speedup, double reach)
{
    double part = log(speedup) / reach;
    return colour_mixed(middle, part > 0 ? above : below, fmin(fabs(part), 1));
}

/* Not shown to differ from 1, after correction where the summary has one. */
static bool is_hatched(const struct summary *summary, const struct comparison *comparison)
{
    double p = isfinite(comparison->p_bh) ? comparison->p_bh : comparison->p;
    return !(p < summary->alpha);
}

static void draw_value(struct canvas *canvas, const struct summary *summary, int arm, int workload, double left,
                       double top, double width)
{
    const struct comparison *comparison = summary_compare(summary, arm, "auto", workload);
    double x = left + width / 2, y = top + CELL_HEIGHT / 2;
    if (!comparison || !comparison->speedup.present) {
        canvas_text(canvas, x, y + 2.5, VALUE_SIZE, ALIGN_CENTRE, colour_black, "—");
        return;
    }
    double reach = find_reach(summary), value = comparison->speedup.value;
    bool hatched = is_hatched(summary, comparison), dark = luminance(colour_of(value, reach)) < .179;
    char text[32];
    snprintf(text, sizeof text, value < 99.5 ? "%.2f%s" : "%.0f%s", value,
             json_array_size(comparison->marks) ? "*" : "");
    double size = fmin(VALUE_SIZE, VALUE_SIZE * (width - 1) / canvas_text_width(canvas, VALUE_SIZE, text));
    canvas_rectangle(canvas, left, top, width, CELL_HEIGHT, colour_of(value, reach));
    if (hatched) {
        double half = fmin(canvas_text_width(canvas, size, text) / 2 + 1.5, width / 2);
        canvas_hatch(canvas, left, top, width, CELL_HEIGHT, colour_grey);
        canvas_rectangle(canvas, x - half, top + 2.5, 2 * half, CELL_HEIGHT - 5, colour_of(value, reach));
    }
    canvas_text(canvas, x, y + 2.5, size, ALIGN_CENTRE, dark ? colour_white : colour_black, text);
}

static double names_width(struct canvas *canvas, const struct sheet *sheet)
{
    double widest = 0;
    for (int i = SUMMARY_ALL_WORKLOADS; i < sheet->summary->workload_count; i++)
        widest = fmax(widest, canvas_text_width(canvas, AXES_TITLE_SIZE, summary_workload_text(sheet->summary, i)));
    return fmin(widest, NAMES_SHARE * sheet->width);
}

static int find_columns(const struct summary *summary, int group, int *arms)
{
    int count = 0;
    for (int arm = 0; arm < summary->arm_count && count < BUDGETS_MAXIMUM; arm++)
        if (is_shown(summary, arm) && summary_alike(summary, arm, group))
            arms[count++] = arm;
    return count;
}

/* The arms' names below their columns, each in the size that fits. */
static void draw_names(struct canvas *canvas, const struct summary *summary, const int *arms, int count, double left,
                       double width, double y)
{
    for (int i = 0; i < count; i++) {
        const char *text = parts_arm_text(summary, arms[i]);
        const double fitting = AXES_LABEL_SIZE * (width - 2) / canvas_text_width(canvas, AXES_LABEL_SIZE, text);
        canvas_text_within(canvas, left + (i + .5) * width, y, width - 2,
                           fmax(fmin(AXES_LABEL_SIZE, fitting), NAME_SIZE_LEAST), ALIGN_CENTRE, text);
    }
}

/* Groups side by side share the names of the rows. */
struct layout {
    int *groups;
    int group_count, side_by_side;
    double names, left, width; /* width: of a cell */
};

static struct layout lay_out(struct canvas *canvas, const struct sheet *sheet)
{
    struct layout layout = {.groups = xcalloc((size_t)sheet->summary->arm_count, sizeof *layout.groups)};
    int arms[BUDGETS_MAXIMUM], most = 1;
    layout.group_count = find_groups(sheet->summary, layout.groups);
    for (int i = 0; i < layout.group_count; i++) {
        int count = find_columns(sheet->summary, layout.groups[i], arms);
        most = count > most ? count : most;
    }
    layout.names = names_width(canvas, sheet);
    layout.left = layout.names + 10;
    double room = sheet->width - 4 - layout.left;
    layout.width = fmin(room / most, CELL_WIDTH_MOST);
    layout.side_by_side = (int)((room + GROUP_GAP) / (most * layout.width + GROUP_GAP) + 1e-6);
    return layout;
}

static bool any_is_tested(const struct summary *summary)
{
    for (int i = 0; i < summary->comparison_count; i++)
        if (isfinite(summary->comparisons[i].p) || isfinite(summary->comparisons[i].p_bh))
            return true;
    return false;
}

/* As many as there are groups: how many stand side by side is known only once names are measured. What is too many is
 * empty and has no height. None where nothing was tested: what it adds to the tables is which speedups are significant.
 */
static int count_bands(const struct sheet *sheet)
{
    if (!any_is_tested(sheet->summary))
        return 0;
    int *groups = xcalloc((size_t)sheet->summary->arm_count, sizeof *groups);
    int count = find_groups(sheet->summary, groups);
    free(groups);
    return count;
}

static double draw_group(struct canvas *canvas, const struct sheet *sheet, const struct layout *layout, int group,
                         double left, double top, bool leftmost)
{
    const struct summary *summary = sheet->summary;
    int arms[BUDGETS_MAXIMUM], count = find_columns(summary, group, arms);
    double y = top;
    if (layout->group_count > 1) {
        char *text = summary_group_text(summary, group);
        canvas_text_within(canvas, left + count * layout->width / 2, y + 10, count * layout->width, AXES_TITLE_SIZE,
                           ALIGN_CENTRE, text);
        y += HEADING_HEIGHT;
        free(text);
    }
    for (int row = 0; row <= summary->workload_count; row++, y += CELL_HEIGHT) {
        int workload = row < summary->workload_count ? row : SUMMARY_ALL_WORKLOADS;
        if (workload == SUMMARY_ALL_WORKLOADS)
            y += 3;
        if (leftmost)
            canvas_text_within(canvas, left - 5, y + CELL_HEIGHT / 2 + 2.7, layout->names, AXES_TITLE_SIZE, ALIGN_RIGHT,
                               summary_workload_text(summary, workload));
        for (int i = 0; i < count; i++)
            draw_value(canvas, summary, arms[i], workload, left + i * layout->width + .5, y + .5, layout->width - 1);
    }
    draw_names(canvas, summary, arms, count, left, layout->width, y + 9);
    return y - top + BAND_FOOT;
}

static double draw_band(struct canvas *canvas, const struct sheet *sheet, int band, double top)
{
    struct layout layout = lay_out(canvas, sheet);
    int arms[BUDGETS_MAXIMUM], first = band * layout.side_by_side;
    double left = layout.left, height = 0;
    for (int i = first; i < first + layout.side_by_side && i < layout.group_count; i++) {
        height = draw_group(canvas, sheet, &layout, layout.groups[i], left, top, i == first);
        left += find_columns(sheet->summary, layout.groups[i], arms) * layout.width + GROUP_GAP;
    }
    free(layout.groups);
    return height;
}

static double draw_legend(struct canvas *canvas, const struct sheet *sheet)
{
    double reach = find_reach(sheet->summary), left = 40, width = 60, baseline = 9;
    char low[32], high[32];
    snprintf(low, sizeof low, "%.2g", exp(-reach));
    snprintf(high, sizeof high, "%.3g", exp(reach));
    canvas_text(canvas, left, baseline, 8, ALIGN_RIGHT, colour_black, low);
    for (int i = 0; i < 30; i++)
        canvas_rectangle(canvas, left + 4 + i * width / 30, baseline - 6.5, width / 30 + .2, 8,
                         colour_of(exp(reach * (i - 14.5) / 15), reach));
    canvas_text(canvas, left + width + 8, baseline, 8, ALIGN_LEFT, colour_black, high);
    double x = left + width + 22 + canvas_text_width(canvas, 8, high);
    const struct parts_key keys[] = {{"not significant", KEY_HATCH, MARKER_CIRCLE, colour_grey}};
    return parts_draw_legend(canvas, sheet, x, keys, 1);
}

const struct figure figure_heat = {"heat", "Speedup over auto by budget and workload", count_bands, draw_legend,
                                   draw_band};
