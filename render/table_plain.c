/* Tables as CSV and as Markdown. */
#include "render/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- CSV ------------------------------------------------------------------------------------------------------ */

static void put_quoted(FILE *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, "%s%c", *text == '"' ? "\"" : "", *text);
    fputc('"', out);
}

static void put_csv_number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, "%.9g", value);
}

static void put_csv_keys(FILE *out, const struct table *table)
{
    const char *comma = "";
    if (table->section_key) {
        put_quoted(out, table->section_key);
        comma = ",";
    }
    for (int i = 0; i < table->column_count; i++) {
        static const char *const endings[][5] = {
            [COLUMN_TEXT] = {""},
            [COLUMN_COUNT] = {""},
            [COLUMN_NUMBER] = {"", "_note"},
            [COLUMN_INTERVAL] = {"", "_low", "_high", "_note"},
            [COLUMN_LIMITS] = {"_low", "_high"},
            [COLUMN_P] = {""},
        };
        for (int j = 0; j < 4 && endings[table->columns[i].kind][j]; j++) {
            char *key = xformat("%s%s", table->columns[i].key, endings[table->columns[i].kind][j]);
            fputs(comma, out);
            put_quoted(out, key);
            comma = ",";
            free(key);
        }
    }
    fputs("\r\n", out);
}

/* Rules that mark the cell, or the one because of which it is empty. */
static void put_csv_note(FILE *out, const struct table_cell *cell)
{
    const char *space = "";
    for (size_t i = 0; i < json_array_size(cell->marks); i++, space = " ")
        fprintf(out, "%s%s", space, json_string_value(json_array_get(cell->marks, i)));
    if (cell->mark)
        fprintf(out, "%s%s", space, cell->mark);
    else if (cell->missing)
        fputs(cell->missing, out);
}

static void put_csv_cell(FILE *out, enum column_kind kind, const struct table_cell *cell)
{
    switch (kind) {
    case COLUMN_TEXT:
        put_quoted(out, cell->text ? cell->text : "");
        break;
    case COLUMN_COUNT:
    case COLUMN_P:
        put_csv_number(out, cell->value);
        break;
    case COLUMN_NUMBER:
        put_csv_number(out, cell->value);
        fputc(',', out);
        put_csv_note(out, cell);
        break;
    case COLUMN_INTERVAL:
        put_csv_number(out, cell->value);
        fputc(',', out);
        put_csv_number(out, cell->low);
        fputc(',', out);
        put_csv_number(out, cell->high);
        fputc(',', out);
        put_csv_note(out, cell);
        break;
    case COLUMN_LIMITS:
        put_csv_number(out, cell->low);
        fputc(',', out);
        put_csv_number(out, cell->high);
        break;
    }
}

void table_put_csv(FILE *out, const struct table *table)
{
    put_csv_keys(out, table);
    for (int row = 0; row < table->row_count; row++) {
        if (table->section_key)
            put_quoted(out, table->rows[row].section);
        for (int i = 0; i < table->column_count; i++) {
            fputs(i > 0 || table->section_key ? "," : "", out);
            put_csv_cell(out, table->columns[i].kind, table_find_cell(table, row, i));
        }
        fputs("\r\n", out);
    }
}

/* --- Markdown ------------------------------------------------------------------------------------------------- */

/* A table's cell ends at a bar, and a line ends a row. */
static void put_markdown_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("|\\*_<`", *text))
            fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

static void put_markdown_cell(FILE *out, const struct table *table, int row, int column)
{
    const struct table_cell *cell = table_find_cell(table, row, column);
    int decimals = table_decimals(table, column);
    const char *bold = cell->bold ? "**" : "";
    if (!cell->present) {
        fprintf(out, "—%s%s", cell->missing ? " " : "", cell->missing ? cell->missing : "");
        return;
    }
    if (cell->text)
        put_markdown_text(out, cell->text);
    if (table->columns[column].kind == COLUMN_P && cell->value < .001)
        fputs("<0.001", out);
    else if (isfinite(cell->value))
        fprintf(out, "%s%.*f%s", bold, decimals, cell->value, bold);
    if (isfinite(cell->low) && cell->low < cell->high)
        fprintf(out, "%s[%.*f, %.*f]", isfinite(cell->value) ? " " : "", decimals, cell->low, decimals, cell->high);
    for (size_t i = 0; i < json_array_size(cell->marks); i++)
        fprintf(out, " %s", json_string_value(json_array_get(cell->marks, i)));
}

void table_put_markdown(FILE *out, const struct table *table)
{
    for (int i = 0; i < table->column_count; i++) {
        fputs("| ", out);
        put_markdown_text(out, table->columns[i].head);
        fputc(' ', out);
    }
    fputs("|\n|", out);
    for (int i = 0; i < table->column_count; i++)
        fputs(":--|", out);
    fputc('\n', out);
    for (int row = 0; row < table->row_count; row++) {
        for (int i = 0; i < table->column_count; i++) {
            fputs("| ", out);
            put_markdown_cell(out, table, row, i);
            fputc(' ', out);
        }
        fputs("|\n", out);
    }
}
