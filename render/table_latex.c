#include "render/latex.h"
#include "render/table_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAXIMUM 26
/* How many rows are not parted by the end of a page. */
#define TABLE_TOGETHER 24
#define SECTION_TOGETHER 12
#define ROWS_LEAST 3    /* before it, and behind it */
#define MARGIN_MOST 14  /* bytes of a name that the margin holds */
#define NOTE_SPACE 20.0 /* around a note, in points */

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

/* So many lines are kept free below each piece of the table, for the last of them must not part from its notes. */
static void put_room(FILE *out, const struct notes *notes, const struct summary *summary)
{
    double width = 0;
    for (int i = 0; i < notes->count; i++)
        width += NOTE_SPACE + table_text_width(notes->rules[i]) +
                 table_text_width(summary_explain(summary, notes->rules[i]));
    if (notes->count > 0)
        fprintf(out, "\\noteroom{%d}\n", (int)ceil(width / TABLE_LINE_WIDTH));
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

/* --- a part --------------------------------------------------------------------------------------------------- */

/* Columns [0, repeated) and [first, last) of a table. */
struct part {
    const struct table *table;
    struct table_layout *layouts;
    int first, last;
    struct notes *notes;
};

static bool is_in(const struct part *part, int column)
{
    return table_is_in_part(part->table, part->first, part->last, column);
}

static void put_columns(FILE *out, const struct part *part)
{
    fputs("@{}", out);
    for (int i = 0; i < part->table->column_count; i++) {
        const struct table_layout *layout = &part->layouts[i];
        if (!is_in(part, i))
            continue;
        switch (part->table->columns[i].kind) {
        case COLUMN_TEXT:
            if (layout->wrapped)
                fprintf(out, "P{%.1fpt}", layout->width - TABLE_COLUMN_SPACE);
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

static void put_value(FILE *out, const struct table_cell *cell, const struct table_layout *layout)
{
    if (isfinite(cell->value))
        fprintf(out, "%s%.*f", cell->bold ? "\\best " : "", layout->decimals, cell->value);
    else
        fputs("{---}", out);
}

static void put_range(FILE *out, const struct table_cell *cell, const struct table_layout *layout)
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
    const struct table_layout *layout = &part->layouts[column];
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
        latex_put_number(out, cell->value, 0);
        break;
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

/* Rows of the section of this one, or of a table without sections: before it and behind it. */
static int count_before(const struct table *table, int row)
{
    int count = 0;
    while (row - count > 0 && (!table->rows[row].section || same_section(table, row - count)))
        count++;
    return count;
}

static int count_behind(const struct table *table, int row)
{
    int count = 0;
    while (row + count + 1 < table->row_count && (!table->rows[row].section || same_section(table, row + count + 1)))
        count++;
    return count;
}

/* Whether the page is not broken behind the row. Rows that are wrapped may be long. */
static bool holds_next(const struct part *part, int row)
{
    const struct table *table = part->table;
    const int before = count_before(table, row), behind = count_behind(table, row);
    const int together = table->rows[row].section ? SECTION_TOGETHER : TABLE_TOGETHER;
    for (int i = 0; i < table->column_count; i++)
        if (is_in(part, i) && part->layouts[i].wrapped)
            return false;
    return behind > 0 && (before + 1 + behind <= together || before + 1 < ROWS_LEAST || behind < ROWS_LEAST);
}

/* Where a page may begin with a row inside a section, the section is named beside it. */
static void put_section_again(FILE *out, const struct table *table, int row)
{
    if (!table->rows[row].section || count_before(table, row) + 1 + count_behind(table, row) <= SECTION_TOGETHER)
        return;
    const char *name = same_section(table, row) ? table->rows[row].section : "";
    int length = (int)strlen(name), shown = length;
    if (length > MARGIN_MOST) /* never within a letter of several bytes */
        for (shown = MARGIN_MOST; (name[shown] & 0xC0) == 0x80;)
            shown--;
    char *begun = xformat("%.*s%s", shown, name, shown < length ? "…" : "");
    fputs("\\within{", out);
    latex_put(out, begun);
    fputs("}", out);
    free(begun);
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
    put_section_again(out, table, row);
    for (int i = 0; i < table->column_count; i++)
        if (is_in(part, i)) {
            fputs(i > 0 ? " & " : "", out);
            put_cell(out, part, row, i);
        }
    fputs(holds_next(part, row) ? " \\\\*\n" : " \\\\\n", out);
}

static void put_part(FILE *out, const struct part *part)
{
    const char *environment = part->first > part->table->repeated ? "generatedpart" : "generated";
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
    struct table_layout *layouts = xcalloc((size_t)table->column_count, sizeof *layouts);
    struct notes notes = {0};
    table_lay_out(table, layouts);
    for (int first = table->repeated; first < table->column_count;) {
        int last = table_part_end(table, layouts, first);
        char *bytes;
        size_t size;
        FILE *rows = open_memstream(&bytes, &size);
        if (!rows)
            die("out of memory");
        table_wrap_part(table, layouts, first, last);
        put_part(rows, &(struct part){table, layouts, first, last, &notes});
        fclose(rows);
        if (last == table->column_count)
            put_room(out, &notes, summary);
        fputs(bytes, out);
        free(bytes);
        first = last;
    }
    put_notes(out, &notes, summary);
    free(layouts);
}
