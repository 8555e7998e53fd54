#include "render/latex.h"
#include "render/tables.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define BLOCKS_MAXIMUM 8 /* columns of a part of the table of blocks */

static const struct quantity {
    const char *head;
    size_t offset; /* of the interval in struct cell */
} quantities[] = {
    {"tokens/s", offsetof(struct cell, tokens_per_s)},
    {"TPOT / \\unit{\\ms}", offsetof(struct cell, tpot_ms)},
    {"TTFT / \\unit{\\ms}", offsetof(struct cell, ttft_ms)},
    {"acceptance $\\tau$", offsetof(struct cell, tau)},
};
enum { QUANTITY_COUNT = sizeof quantities / sizeof *quantities };

struct format {
    int decimals, digits;
};

static const struct interval *interval_of(const struct cell *cell, int quantity)
{
    return (const struct interval *)((const char *)cell + quantities[quantity].offset);
}

static struct format fit_format(const struct summary *summary, int quantity)
{
    double largest = 1;
    for (int i = 0; i < summary->cell_count; i++) {
        const struct interval *interval = interval_of(&summary->cells[i], quantity);
        largest = interval->present ? fmax(largest, fmax(interval->value, interval->high)) : largest;
    }
    struct format format = {.decimals = latex_decimals(largest)};
    format.decimals = format.decimals > 2 ? 2 : format.decimals;
    format.digits = latex_digits(largest, format.decimals);
    return format;
}

static void put_interval(FILE *out, const struct interval *interval, struct format format)
{
    if (!interval->present) {
        fputs(" & {---} &", out);
        return;
    }
    fprintf(out, " & %.*f & ", format.decimals, interval->value);
    if (isfinite(interval->low) && interval->low < interval->high)
        latex_put_range(out, interval->low, interval->high, format.decimals, format.digits);
}

static void put_cell_row(FILE *out, const struct summary *summary, const struct cell *cell,
                         const struct format *formats, struct notes *notes)
{
    latex_put(out, summary_arm_text(summary, cell->arm));
    notes_put_marks(out, notes, cell->marks);
    if (cell->missing.rule) {
        fprintf(out, " & \\multicolumn{%d}{l}{", 2 * QUANTITY_COUNT);
        latex_put_missing(out, &cell->missing);
        fputs("}", out);
        notes_add_missing(notes, cell->missing.rule);
    } else {
        for (int i = 0; i < QUANTITY_COUNT; i++)
            put_interval(out, interval_of(cell, i), formats[i]);
    }
    fprintf(out, " & %d/%d & %d", cell->blocks_valid, cell->blocks_planned, cell->tries);
    if (cell->excluded)
        fprintf(out, " (%d)", cell->excluded);
    fputs(" \\\\\n", out);
}

void tables_put_absolute(FILE *out, const struct summary *summary)
{
    struct format formats[QUANTITY_COUNT];
    struct notes notes = {0};
    fputs("\\begin{longtable}{@{}l", out);
    for (int i = 0; i < QUANTITY_COUNT; i++) {
        formats[i] = fit_format(summary, i);
        fprintf(out, " S[table-format=%d.%d] @{\\hspace{.35em}}l", formats[i].digits, formats[i].decimals);
    }
    fputs(" c r@{}}\n\\caption{\\AbsoluteCaption}\\\\\n\\toprule\narm", out);
    for (int i = 0; i < QUANTITY_COUNT; i++)
        fprintf(out, " & \\multicolumn{2}{c}{%s}", quantities[i].head);
    fputs(" & blocks & tries \\\\\n\\midrule\n\\endfirsthead\n\\toprule\narm", out);
    for (int i = 0; i < QUANTITY_COUNT; i++)
        fprintf(out, " & \\multicolumn{2}{c}{%s}", quantities[i].head);
    fputs(" & blocks & tries \\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endfoot\n", out);
    for (int workload = 0; workload < summary->workload_count; workload++) {
        fprintf(out, "%s\\multicolumn{%d}{@{}l}{\\itshape ", workload ? "\\addlinespace\n" : "",
                2 * QUANTITY_COUNT + 3);
        latex_put(out, summary_workload_text(summary, workload));
        fputs("} \\\\*\n", out);
        for (int arm = 0; arm < summary->arm_count; arm++) {
            const struct cell *cell = summary_find_cell(summary, arm, workload);
            if (cell)
                put_cell_row(out, summary, cell, formats, &notes);
        }
    }
    fputs("\\end{longtable}\n", out);
    notes_put(out, &notes, summary);
}

static int last_block(const struct summary *summary)
{
    int last = summary->blocks;
    for (int i = 0; i < summary->comparison_count; i++) {
        const json_t *blocks = summary->comparisons[i].blocks;
        for (size_t j = 0; j < json_array_size(blocks); j++) {
            int block = (int)json_integer_value(json_object_get(json_array_get(blocks, j), "block"));
            last = block > last ? block : last;
        }
    }
    return last;
}

static const json_t *find_block(const json_t *blocks, int block)
{
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *object = json_array_get(blocks, i);
        if (json_integer_value(json_object_get(object, "block")) == block)
            return object;
    }
    return NULL;
}

static void put_block(FILE *out, const struct comparison *comparison, int block, struct notes *notes)
{
    const json_t *object = find_block(comparison->blocks, block), *dropped = find_block(comparison->dropped, block);
    if (object) {
        fprintf(out, " & %.3f", json_number_value(json_object_get(object, "log_ratio")));
        return;
    }
    fputs(" & {---", out);
    if (dropped)
        notes_put_mark(out, notes, json_string_value(json_object_get(dropped, "rule")));
    fputs("}", out);
}

static void put_blocks_head(FILE *out, int first, int last)
{
    fputs("\\toprule\ncomparison & workload", out);
    for (int block = first; block <= last; block++)
        fprintf(out, " & {%d}", block);
    fputs(" \\\\\n\\midrule\n", out);
}

static void put_blocks_part(FILE *out, const struct summary *summary, int first, int last, struct notes *notes)
{
    fputs("\\begin{longtable}{@{}ll", out);
    for (int block = first; block <= last; block++)
        fputs(" S[table-format=-1.3]", out);
    fputs("@{}}\n\\caption{\\BlocksCaption}\\\\\n", out);
    put_blocks_head(out, first, last);
    fputs("\\endfirsthead\n", out);
    put_blocks_head(out, first, last);
    fputs("\\endhead\n\\bottomrule\n\\endfoot\n", out);
    for (int i = 0; i < summary->comparison_count; i++) {
        const struct comparison *comparison = &summary->comparisons[i];
        if (i > 0 && (comparison->arm != comparison[-1].arm || comparison->baseline != comparison[-1].baseline))
            fputs("\\addlinespace[1.5pt]\n", out);
        latex_put(out, summary_arm_text(summary, comparison->arm));
        fputs(" over ", out);
        latex_put(out, summary_arm_text(summary, comparison->baseline));
        fputs(" & ", out);
        latex_put_narrow(out, summary_workload_text(summary, comparison->workload));
        for (int block = first; block <= last; block++)
            put_block(out, comparison, block, notes);
        fputs(" \\\\\n", out);
    }
    fputs("\\end{longtable}\n", out);
}

void tables_put_blocks(FILE *out, const struct summary *summary)
{
    struct notes notes = {0};
    int last = last_block(summary);
    for (int first = 1; first <= last; first += BLOCKS_MAXIMUM)
        put_blocks_part(out, summary, first, first + BLOCKS_MAXIMUM - 1 < last ? first + BLOCKS_MAXIMUM - 1 : last,
                        &notes);
    notes_put(out, &notes, summary);
}
