#include "render/latex.h"
#include "render/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAXIMUM 26
#define ROWS_TOGETHER 24 /* a table of so many rows is not broken over pages */

/* Widths in points, of Latin Modern in \\footnotesize. */
#define LINE_WIDTH 446.0   /* a little less than the text's */
#define COLUMN_SPACE 7.2   /* between two columns */
#define INTERVAL_SPACE 3.0 /* between a value and its limits */
#define MARK_WIDTH 4.5
#define DIGIT_WIDTH 4.25
#define CAPITAL_WIDTH 6.5
#define LETTER_WIDTH 4.35
#define POINT_WIDTH 2.4      /* . , [ ] and blanks */
#define SMALL .78            /* of \\scriptsize */
#define WRAPPED_FROM 90.0    /* text that is wider may be set in several lines, */
#define WRAPPED_ALWAYS 300.0 /* and if it is as wide as this, it is */
#define WRAPPED_LEAST 55.0
#define HEAD_MOST 75.0

/* How a column is set. */
struct layout {
    int decimals, digits; /* digits before the point */
    double width;         /* about, with the space behind it */
    bool wrappable, wrapped;
};

struct notes {
    const char *rules[NOTES_MAXIMUM];
    bool letter[NOTES_MAXIMUM]; /* marks numbers by its letter; else it stands beside a dash */
    int count;
};

/* --- notes ---------------------------------------------------------------------------------------------------- */

static int find_note(struct notes *notes, const char *rule)
{
    for (int i = 0; i < notes->count; i++)
        if (strcmp(notes->rules[i], rule) == 0)
            return i;
    if (notes->count == NOTES_MAXIMUM)
        return NOTES_MAXIMUM - 1;
    notes->rules[notes->count] = rule;
    return notes->count++;
}

static void put_mark(FILE *out, struct notes *notes, const char *rule)
{
    int note = find_note(notes, rule);
    notes->letter[note] = true;
    fprintf(out, "\\textsuperscript{%c}", 'a' + note);
}

static void put_marks(FILE *out, struct notes *notes, const struct table_cell *cell)
{
    for (size_t i = 0; i < json_array_size(cell->marks); i++)
        put_mark(out, notes, json_string_value(json_array_get(cell->marks, i)));
    if (cell->mark)
        put_mark(out, notes, cell->mark);
}

static void put_notes(FILE *out, const struct notes *notes, const struct summary *summary)
{
    if (notes->count == 0)
        return;
    fputs("\\begin{generatednotes}\n", out);
    for (int i = 0; i < notes->count; i++) {
        if (notes->letter[i])
            fprintf(out, "\\textsuperscript{%c}", 'a' + i);
        else
            fputs("---\\,", out);
        latex_put_breakable(out, notes->rules[i]);
        const char *explanation = summary_explain(summary, notes->rules[i]);
        if (explanation) {
            fputs(": ", out);
            latex_put(out, explanation);
        }
        fputs(i + 1 < notes->count ? "\\quad\n" : "\n", out);
    }
    fputs("\\end{generatednotes}\n", out);
}

/* --- layout --------------------------------------------------------------------------------------------------- */

/* About. */
static double text_width(const char *text)
{
    double width = 0;
    for (; text && *text; text++) {
        unsigned char letter = (unsigned char)*text;
        if ((letter & 0xC0) == 0x80)
            continue;
        width += strchr(".,;:[]()'| il", letter)  ? POINT_WIDTH
                 : letter >= 'A' && letter <= 'Z' ? CAPITAL_WIDTH
                                                  : LETTER_WIDTH;
    }
    return width;
}

static int largest(int a, int b)
{
    return a > b ? a : b;
}

static int digits_of(const struct table_cell *cell, int decimals)
{
    const double values[] = {cell->value, cell->low, cell->high};
    int digits = 1;
    for (int i = 0; i < 3; i++)
        if (isfinite(values[i]))
            digits = largest(digits, latex_digits(values[i], decimals));
    return digits;
}

static double number_width(const struct layout *layout)
{
    return layout->digits * DIGIT_WIDTH + (layout->decimals ? POINT_WIDTH + layout->decimals * DIGIT_WIDTH : 0);
}

static double printed_width(enum column_kind kind, const struct layout *layout)
{
    double number = number_width(layout), range = 2 * number + 4 * POINT_WIDTH;
    switch (kind) {
    case COLUMN_TEXT:
        return 0;
    case COLUMN_LIMITS:
        return range;
    case COLUMN_INTERVAL:
        return number + INTERVAL_SPACE + range;
    case COLUMN_P:
        return 28;
    case COLUMN_COUNT:
        return number;
    case COLUMN_NUMBER:
        break;
    }
    return number + CAPITAL_WIDTH; /* with room for a sign */
}

static int count_marks(const struct table_cell *cell)
{
    return (int)json_array_size(cell->marks) + (cell->mark != NULL);
}

static struct layout lay_out(const struct table *table, int column)
{
    const struct table_column *of = &table->columns[column];
    struct layout layout = {.decimals = table_decimals(table, column), .digits = 1};
    double text = 0, reason = 0;
    int marks = 0;
    for (int row = 0; row < table->row_count; row++) {
        const struct table_cell *cell = table_find_cell(table, row, column);
        layout.digits = largest(layout.digits, digits_of(cell, layout.decimals));
        text = fmax(text, text_width(cell->text));
        reason = fmax(reason, cell->missing ? 13 + SMALL * text_width(cell->missing) : 0);
        marks = largest(marks, count_marks(cell));
    }
    layout.wrappable = of->kind == COLUMN_TEXT && text > WRAPPED_FROM;
    double printed = fmax(text, printed_width(of->kind, &layout) + marks * MARK_WIDTH);
    layout.width = COLUMN_SPACE + fmax(fmax(printed, reason), fmin(text_width(of->head), HEAD_MOST));
    return layout;
}

static double least_width(const struct layout *layout)
{
    return layout->wrappable ? COLUMN_SPACE + WRAPPED_LEAST : layout->width;
}

/* The columns after `first` that fit beside the stub, at least one: answers the column behind them. */
static int fit_part(const struct table *table, const struct layout *layouts, int first)
{
    double taken = 0;
    int last = first;
    for (int i = 0; i < table->stub; i++)
        taken += least_width(&layouts[i]);
    while (last < table->column_count && (last == first || taken + least_width(&layouts[last]) <= LINE_WIDTH))
        taken += least_width(&layouts[last++]);
    return last;
}

/* --- a part --------------------------------------------------------------------------------------------------- */

/* Columns [0, stub) and [first, last) of a table. */
struct part {
    const struct table *table;
    struct layout *layouts;
    int first, last;
    struct notes *notes;
};

static bool is_in(const struct part *part, int column)
{
    return column < part->table->stub || (column >= part->first && column < part->last);
}

/* Wraps text where the columns do not fit a line otherwise: what is wrapped shares what the others leave, by width but
 * no less than the least. */
static void wrap(const struct part *part)
{
    struct layout *layouts = part->layouts;
    double total = 0, fixed = 0, wrapped = 0;
    for (int i = 0; i < part->table->column_count; i++)
        if (is_in(part, i))
            total += layouts[i].width;
    for (int i = 0; i < part->table->column_count; i++) {
        struct layout *layout = &layouts[i];
        layout->wrapped = layout->wrappable && (total > LINE_WIDTH || layout->width > WRAPPED_ALWAYS);
        if (is_in(part, i))
            *(layout->wrapped ? &wrapped : &fixed) += layout->width;
    }
    double share = fmin(1, (LINE_WIDTH - fixed) / wrapped);
    for (int i = 0; i < part->table->column_count; i++)
        if (layouts[i].wrapped)
            layouts[i].width = fmax(COLUMN_SPACE + WRAPPED_LEAST, share * layouts[i].width);
}

static void put_columns(FILE *out, const struct part *part)
{
    fputs("@{}", out);
    for (int i = 0; i < part->table->column_count; i++) {
        const struct layout *layout = &part->layouts[i];
        if (!is_in(part, i))
            continue;
        switch (part->table->columns[i].kind) {
        case COLUMN_TEXT:
            if (layout->wrapped)
                fprintf(out, "P{%.1fpt}", layout->width - COLUMN_SPACE);
            else
                fputc('l', out);
            break;
        case COLUMN_COUNT:
        case COLUMN_P:
            fputc('r', out);
            break;
        case COLUMN_NUMBER:
            fprintf(out, "S[table-format=-%d.%d]", layout->digits, layout->decimals);
            break;
        case COLUMN_INTERVAL:
            fprintf(out, "S[table-format=%d.%d]@{\\hspace{.35em}}l", layout->digits, layout->decimals);
            break;
        case COLUMN_LIMITS:
            fputc('l', out);
            break;
        }
    }
    fputs("@{}", out);
}

static int print_columns(const struct part *part)
{
    int count = 0;
    for (int i = 0; i < part->table->column_count; i++)
        if (is_in(part, i))
            count += part->table->columns[i].kind == COLUMN_INTERVAL ? 2 : 1;
    return count;
}

static bool has_head(const struct table *table)
{
    for (int i = 0; i < table->column_count; i++)
        if (table->columns[i].head[0])
            return true;
    return false;
}

static void put_head(FILE *out, const struct part *part)
{
    static const struct {
        const char *before, *after;
    } around[] = {
        [COLUMN_TEXT] = {"", ""},     [COLUMN_COUNT] = {"", ""},
        [COLUMN_NUMBER] = {"{", "}"}, [COLUMN_INTERVAL] = {"\\multicolumn{2}{c}{", "}"},
        [COLUMN_LIMITS] = {"", ""},   [COLUMN_P] = {"", ""},
    };
    for (int i = 0; i < part->table->column_count; i++) {
        const struct table_column *column = &part->table->columns[i];
        if (!is_in(part, i))
            continue;
        fputs(i > 0 ? " & " : "", out);
        fputs(around[column->kind].before, out);
        latex_put_narrow(out, column->head);
        fputs(around[column->kind].after, out);
    }
    fputs(" \\\\", out);
}

static void put_value(FILE *out, const struct table_cell *cell, const struct layout *layout)
{
    if (isfinite(cell->value))
        fprintf(out, "%s%.*f", cell->bold ? "\\best " : "", layout->decimals, cell->value);
    else
        fputs("{---}", out);
}

static void put_range(FILE *out, const struct table_cell *cell, const struct layout *layout)
{
    if (isfinite(cell->low) && isfinite(cell->high) && cell->low < cell->high)
        latex_put_range(out, cell->low, cell->high, layout->decimals, layout->digits);
}

static void put_missing(FILE *out, struct notes *notes, const struct table_cell *cell, enum column_kind kind)
{
    bool braced = kind == COLUMN_NUMBER;
    fputs(kind == COLUMN_INTERVAL ? "\\multicolumn{2}{l}{" : braced ? "{" : "", out);
    if (cell->mark) {
        fputs("---", out);
        put_mark(out, notes, cell->mark);
    } else {
        latex_put_missing(out, &(struct missing){.rule = cell->missing});
    }
    if (cell->missing)
        find_note(notes, cell->missing);
    fputs(kind == COLUMN_INTERVAL || braced ? "}" : "", out);
}

static void put_cell(FILE *out, const struct part *part, int row, int column)
{
    const struct table_cell *cell = table_find_cell(part->table, row, column);
    const struct layout *layout = &part->layouts[column];
    enum column_kind kind = part->table->columns[column].kind;
    if (!cell->present) {
        put_missing(out, part->notes, cell, kind);
        return;
    }
    switch (kind) {
    case COLUMN_TEXT:
        (layout->wrapped ? latex_put_breakable : latex_put)(out, cell->text);
        break;
    case COLUMN_P:
        latex_put_p(out, cell->value);
        break;
    case COLUMN_COUNT:
    case COLUMN_NUMBER:
        put_value(out, cell, layout);
        break;
    case COLUMN_INTERVAL:
        put_value(out, cell, layout);
        fputs(" & ", out);
        put_range(out, cell, layout);
        break;
    case COLUMN_LIMITS:
        put_range(out, cell, layout);
        break;
    }
    put_marks(out, part->notes, cell);
}

static bool same_section(const struct table *table, int row)
{
    return row > 0 && strcmp(table->rows[row].section, table->rows[row - 1].section) == 0;
}

static void put_row(FILE *out, const struct part *part, int row)
{
    const struct table *table = part->table;
    if (table->rows[row].apart && row > 0)
        fputs("\\addlinespace[1.5pt]\n", out);
    if (table->rows[row].section && !same_section(table, row)) {
        fprintf(out, "%s\\multicolumn{%d}{@{}l}{\\itshape ", row ? "\\addlinespace\n" : "", print_columns(part));
        latex_put(out, table->rows[row].section);
        fputs("} \\\\*\n", out);
    }
    for (int i = 0; i < table->column_count; i++)
        if (is_in(part, i)) {
            fputs(i > 0 ? " & " : "", out);
            put_cell(out, part, row, i);
        }
    fputs(table->row_count <= ROWS_TOGETHER && row + 1 < table->row_count ? " \\\\*\n" : " \\\\\n", out);
}

static void put_part(FILE *out, const struct part *part)
{
    const char *environment = part->first > part->table->stub ? "generatedpart" : "generated";
    fprintf(out, "\\begin{%s}{%s}{", environment, part->table->name);
    put_columns(out, part);
    fputs("}{", out);
    if (has_head(part->table))
        put_head(out, part);
    fputs("}\n", out);
    for (int row = 0; row < part->table->row_count; row++)
        put_row(out, part, row);
    fprintf(out, "\\end{%s}\n", environment);
}

void table_put_latex(FILE *out, const struct table *table, const struct summary *summary)
{
    if (table->row_count == 0) {
        latex_put(out, table->empty);
        fputs("\n", out);
        return;
    }
    struct layout *layouts = xcalloc((size_t)table->column_count, sizeof *layouts);
    struct notes notes = {0};
    for (int i = 0; i < table->column_count; i++)
        layouts[i] = lay_out(table, i);
    for (int first = table->stub; first < table->column_count;) {
        int last = fit_part(table, layouts, first);
        struct part part = {table, layouts, first, last, &notes};
        wrap(&part);
        put_part(out, &part);
        first = last;
    }
    put_notes(out, &notes, summary);
    free(layouts);
}
