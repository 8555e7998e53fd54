#include "render/table_layout.h"

#include "render/latex.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Widths in points, of Latin Modern in \footnotesize. */
#define INTERVAL_SPACE 3.0 /* between a value and its limits */
#define MARK_WIDTH 4.5
#define DIGIT_WIDTH 4.25
#define GROUP_WIDTH 1.5 /* between thousands */
#define CAPITAL_WIDTH 6.5
#define LETTER_WIDTH 4.35
#define POINT_WIDTH 2.4      /* . , [ ] and blanks */
#define SMALL .78            /* of \scriptsize */
#define WRAPPED_FROM 90.0    /* text that is wider may be set in several lines, */
#define WRAPPED_ALWAYS 300.0 /* and if it is as wide as this, it is */
#define WRAPPED_LEAST 55.0
#define WRAPPED_WORD_MOST 90.0 /* a longer word stands over, which latex_put_breakable may still break */
#define HEAD_MOST 75.0

double table_text_width(const char *text)
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

/* Of what stands between the places at which latex_put_breakable breaks. */
static double longest_word(const char *text)
{
    double longest = 0;
    while (text && *text) {
        size_t length = strcspn(text, LATEX_BREAKS " ");
        length += text[length] != '\0';
        char *word = xformat("%.*s", (int)length, text);
        longest = fmax(longest, table_text_width(word));
        free(word);
        text += length;
    }
    return longest;
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

static double number_width(const struct table_layout *layout)
{
    const int groups = layout->digits >= LATEX_GROUPED_FROM ? (layout->digits - 1) / 3 : 0;
    return layout->digits * DIGIT_WIDTH + groups * GROUP_WIDTH +
           (layout->decimals ? POINT_WIDTH + layout->decimals * DIGIT_WIDTH : 0);
}

static double printed_width(enum column_kind kind, const struct table_layout *layout)
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

static struct table_layout lay_out_column(const struct table *table, int column)
{
    const struct table_column *of = &table->columns[column];
    struct table_layout layout = {.decimals = table_decimals(table, column), .digits = 1};
    double text = 0, reason = 0, word = WRAPPED_LEAST;
    int marks = 0;
    for (int row = 0; row < table->row_count; row++) {
        const struct table_cell *cell = table_find_cell(table, row, column);
        layout.digits = largest(layout.digits, digits_of(cell, layout.decimals));
        text = fmax(text, table_text_width(cell->text));
        word = fmax(word, longest_word(cell->text));
        reason = fmax(reason, cell->missing ? 13 + SMALL * table_text_width(cell->missing) : 0);
        marks = largest(marks, count_marks(cell));
    }
    layout.wrappable = of->kind == COLUMN_TEXT && text > WRAPPED_FROM;
    layout.least = TABLE_COLUMN_SPACE + fmin(word, WRAPPED_WORD_MOST);
    double printed = fmax(text, printed_width(of->kind, &layout) + marks * MARK_WIDTH);
    layout.width = TABLE_COLUMN_SPACE + fmax(fmax(printed, reason), fmin(table_text_width(of->head), HEAD_MOST));
    return layout;
}

static double least_width(const struct table_layout *layout)
{
    return layout->wrappable ? layout->least : layout->width;
}

/* As many columns as fit a line. */
static int fit_part(const struct table *table, const struct table_layout *layouts, int first)
{
    double taken = 0;
    int last = first;
    for (int i = 0; i < table->repeated; i++)
        taken += least_width(&layouts[i]);
    while (last < table->column_count && (last == first || taken + least_width(&layouts[last]) <= TABLE_LINE_WIDTH))
        taken += least_width(&layouts[last++]);
    return last;
}

static int count_parts(const struct table *table, const struct table_layout *layouts, int first)
{
    int parts = 0;
    for (; first < table->column_count; parts++)
        first = fit_part(table, layouts, first);
    return parts;
}

int table_part_end(const struct table *table, const struct table_layout *layouts, int first)
{
    const int parts = count_parts(table, layouts, first), most = fit_part(table, layouts, first);
    const int even = first + (table->column_count - first + parts - 1) / parts;
    return even < most && count_parts(table, layouts, even) < parts ? even : most;
}

void table_lay_out(const struct table *table, struct table_layout *layouts)
{
    for (int i = 0; i < table->column_count; i++)
        layouts[i] = lay_out_column(table, i);
}

bool table_is_in_part(const struct table *table, int first, int last, int column)
{
    return column < table->repeated || (column >= first && column < last);
}

/* Gives what is wrapped in a part its share of the room: first the least to those whose share is less, and what is then
 * left to the others. `total`: of their widths. */
static void share_out(const struct table *table, struct table_layout *layouts, int first, int last, double room,
                      double total)
{
    double share = fmin(1, room / total);
    for (int i = 0; i < table->column_count; i++)
        if (layouts[i].wrapped && table_is_in_part(table, first, last, i) &&
            share * layouts[i].width < layouts[i].least) {
            room -= layouts[i].least;
            total -= layouts[i].width;
            layouts[i].width = layouts[i].least;
        }
    share = total > 0 ? fmin(1, room / total) : 1;
    for (int i = 0; i < table->column_count; i++)
        if (layouts[i].wrapped)
            layouts[i].width = fmax(layouts[i].least, share * layouts[i].width);
}

void table_wrap_part(const struct table *table, struct table_layout *layouts, int first, int last)
{
    double total = 0, fixed = 0, wrapped = 0;
    for (int i = 0; i < table->column_count; i++)
        if (table_is_in_part(table, first, last, i))
            total += layouts[i].width;
    for (int i = 0; i < table->column_count; i++) {
        struct table_layout *layout = &layouts[i];
        layout->wrapped = layout->wrappable && (total > TABLE_LINE_WIDTH || layout->width > WRAPPED_ALWAYS);
        if (table_is_in_part(table, first, last, i))
            *(layout->wrapped ? &wrapped : &fixed) += layout->width;
    }
    share_out(table, layouts, first, last, TABLE_LINE_WIDTH - fixed, wrapped);
}
