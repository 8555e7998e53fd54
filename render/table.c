#include "render/table.h"

#include "render/latex.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define DECIMALS_USUAL 2
#define DECIMALS_NARROW 3

void table_init(struct table *table, const char *name)
{
    *table = (struct table){.name = name, .repeated = 1, .decimals = TABLE_FITTING};
}

void table_free(struct table *table)
{
    for (int i = 0; i < table->column_count; i++) {
        free(table->columns[i].key);
        free(table->columns[i].head);
    }
    for (int i = 0; i < table->row_count; i++)
        free(table->rows[i].section);
    for (int i = 0; i < table->cell_count; i++)
        free(table->cells[i].text);
    free(table->columns);
    free(table->rows);
    free(table->cells);
    free(table->empty);
    free(table->section_key);
    *table = (struct table){0};
}

/* Room for one more element; arrays double. */
static void *grow(void *items, int count, size_t size)
{
    bool full = (count & (count - 1)) == 0;
    return full ? xrealloc(items, count ? 2 * (size_t)count : 1, size) : items;
}

void table_add_alike(struct table *table, enum column_kind kind, const char *key, const char *head, int format)
{
    table->columns = grow(table->columns, table->column_count, sizeof *table->columns);
    table->columns[table->column_count++] = (struct table_column){kind, xstrdup(key), xstrdup(head), false, format};
}

void table_keep_column(struct table *table)
{
    table->columns[table->column_count - 1].kept = true;
}

void table_add_column(struct table *table, enum column_kind kind, const char *key, const char *head)
{
    table_add_alike(table, kind, key, head, 0);
}

void table_add_row(struct table *table, const char *section)
{
    if (table->cell_count != table->row_count * table->column_count)
        die("table %s: row %d has not one cell for each column", table->name, table->row_count);
    table->rows = grow(table->rows, table->row_count, sizeof *table->rows);
    table->rows[table->row_count++] = (struct table_row){section ? xstrdup(section) : NULL, false};
}

void table_set_apart(struct table *table)
{
    table->rows[table->row_count - 1].apart = true;
}

static struct table_cell *add_cell(struct table *table)
{
    if (table->cell_count == table->row_count * table->column_count)
        die("table %s: row %d has more cells than columns", table->name, table->row_count);
    table->cells = grow(table->cells, table->cell_count, sizeof *table->cells);
    struct table_cell *cell = &table->cells[table->cell_count++];
    *cell = (struct table_cell){.value = NAN, .low = NAN, .high = NAN};
    return cell;
}

void table_put_text(struct table *table, const char *text)
{
    struct table_cell *cell = add_cell(table);
    cell->present = text != NULL;
    cell->text = text ? xstrdup(text) : NULL;
}

void table_put_format(struct table *table, const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        die("out of memory");
    va_end(arguments);
    struct table_cell *cell = add_cell(table);
    cell->present = true;
    cell->text = text;
}

void table_put_number(struct table *table, double value)
{
    struct table_cell *cell = add_cell(table);
    cell->present = isfinite(value);
    cell->value = value;
}

void table_put_interval(struct table *table, const struct interval *interval, const json_t *marks, const char *missing)
{
    struct table_cell *cell = add_cell(table);
    cell->present = interval->present;
    cell->marks = interval->present ? marks : NULL;
    cell->missing = interval->present ? NULL : missing;
    cell->value = interval->present ? interval->value : NAN;
    cell->low = interval->present ? interval->low : NAN;
    cell->high = interval->present ? interval->high : NAN;
}

void table_put_marked(struct table *table, const struct interval *interval, const json_t **marks, const char *missing)
{
    table_put_interval(table, interval, *marks, missing);
    if (interval->present)
        *marks = NULL;
}

void table_put_limits(struct table *table, double low, double high)
{
    struct table_cell *cell = add_cell(table);
    cell->present = isfinite(low) && isfinite(high);
    cell->low = low;
    cell->high = high;
}

void table_put_missing(struct table *table, const char *rule)
{
    add_cell(table)->missing = rule;
}

void table_set_bold(struct table *table)
{
    table->cells[table->cell_count - 1].bold = true;
}

void table_set_mark(struct table *table, const char *rule)
{
    table->cells[table->cell_count - 1].mark = rule;
}

static bool is_empty(const struct table *table, int column)
{
    for (int row = 0; row < table->row_count; row++) {
        const struct table_cell *cell = table_find_cell(table, row, column);
        if ((cell->present && !(cell->text && !cell->text[0])) || cell->missing || cell->mark)
            return false;
    }
    return true;
}

static void drop_column(struct table *table, int column)
{
    int kept = 0, columns = table->column_count;
    for (int i = 0; i < table->cell_count; i++)
        if (i % columns == column)
            free(table->cells[i].text);
        else
            table->cells[kept++] = table->cells[i];
    free(table->columns[column].key);
    free(table->columns[column].head);
    for (int i = column; i + 1 < columns; i++)
        table->columns[i] = table->columns[i + 1];
    table->cell_count = kept;
    table->column_count--;
}

void table_drop_empty(struct table *table)
{
    for (int column = table->column_count - 1; column >= table->repeated && table->row_count > 0; column--)
        if (!table->columns[column].kept && is_empty(table, column))
            drop_column(table, column);
}

const struct table_cell *table_find_cell(const struct table *table, int row, int column)
{
    return &table->cells[row * table->column_count + column];
}

/* Decimals that show two figures of a number. */
static int two_figures(double value)
{
    int decimals = 1 - (int)floor(log10(fabs(value)));
    return decimals < 0 ? 0 : decimals;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Decimals by which limits differ in print by two units or more. */
static int telling_apart(double low, double high)
{
    return high > low ? least((int)ceil(-log10((high - low) / 2) - 1e-9), DECIMALS_NARROW) : 0;
}

struct extent {
    double largest;
    int needed;
};

static void extend(struct extent *extent, const struct table_cell *cell, bool ratio)
{
    const double values[] = {cell->value, cell->low, cell->high};
    for (int i = 0; i < 3; i++)
        if (isfinite(values[i])) {
            extent->largest = fmax(extent->largest, fabs(values[i]));
            extent->needed = most(extent->needed, values[i] != 0 ? two_figures(values[i]) : 0);
        }
    if (isfinite(cell->low) && isfinite(cell->high))
        extent->needed = most(extent->needed, telling_apart(cell->low, cell->high));
    if (ratio)
        extent->needed = most(extent->needed, least(latex_decimals_beside_one(cell->low, cell->high), DECIMALS_NARROW));
}

static void extend_by_column(struct extent *extent, const struct table *table, int column)
{
    for (int row = 0; row < table->row_count; row++)
        if (table_find_cell(table, row, column)->present)
            extend(extent, table_find_cell(table, row, column), table->columns[column].format >= TABLE_RATIOS);
}

int table_decimals(const struct table *table, int column)
{
    const struct table_column *of = &table->columns[column];
    if (of->kind == COLUMN_TEXT || of->kind == COLUMN_COUNT)
        return 0;
    if (of->kind == COLUMN_P)
        return 3;
    if (table->decimals != TABLE_FITTING)
        return table->decimals;
    struct extent extent = {0, 0};
    for (int i = 0; i < table->column_count; i++)
        if (i == column || (of->format && table->columns[i].format == of->format))
            extend_by_column(&extent, table, i);
    return least(most(least(latex_decimals(extent.largest), DECIMALS_USUAL), extent.needed), LATEX_DECIMALS_MOST);
}

int table_ratio_decimals(double value, double low, double high)
{
    struct extent extent = {0, DECIMALS_USUAL};
    extend(&extent, &(struct table_cell){.value = value, .low = low, .high = high}, true);
    return least(most(extent.needed, latex_decimals_beside_one(low, high)), LATEX_DECIMALS_MOST);
}
