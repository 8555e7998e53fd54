/* A table before it is printed: columns, and rows whose cells hold values and not text. LaTeX, CSV and Markdown are
 * made of this one description, so that they cannot differ.
 *
 * Strings that are added are copied; rule ids and marks are borrowed from the summary. */
#ifndef RENDER_TABLE_H
#define RENDER_TABLE_H

#include "render/summary.h"

#include <stdio.h>

#define TABLE_FITTING (-1) /* decimals by the numbers of a column */

enum column_kind {
    COLUMN_TEXT,
    COLUMN_COUNT,    /* whole numbers */
    COLUMN_NUMBER,   /* aligned at the decimal point */
    COLUMN_INTERVAL, /* 2.31 [2.24, 2.38] */
    COLUMN_LIMITS,   /* [2.24, 2.38] */
    COLUMN_P,        /* 0.012, or < 0.001 */
};

/* Formats from here on are of ratios: a limit that excludes 1 is not printed as 1, to three decimals. */
#define TABLE_RATIOS 100

struct table_column {
    enum column_kind kind;
    char *key;  /* in CSV */
    char *head; /* in print: plain text */
    bool kept;  /* even where no row has a value */
    int format; /* columns of one format have the same number of decimals; 0: one of its own */
};

struct table_cell {
    bool present;
    char *text;              /* COLUMN_TEXT */
    double value, low, high; /* NaN where there is none */
    bool bold;
    const char *missing; /* the rule because of which there is no value; may be NULL */
    const json_t *marks; /* ids of rules that found it suspect; may be NULL */
    const char *mark;    /* one more; may be NULL */
};

struct table_row {
    char *section; /* the heading that it stands under; NULL where there are none */
    bool apart;    /* a little space above it */
};

struct table {
    const char *name;  /* of its files; what its caption is called */
    char *empty;       /* the sentence that stands for it in Markdown where it has no rows; may be NULL */
    char *section_key; /* of the sections, in CSV */
    int repeated;      /* so many columns on the left are repeated where a wide table is set in parts */
    int decimals;      /* of all numbers and intervals; TABLE_FITTING unless set */
    struct table_column *columns;
    struct table_row *rows;
    struct table_cell *cells; /* [row_count][column_count] */
    int column_count, row_count, cell_count;
};

void table_init(struct table *table, const char *name);
void table_free(struct table *table);

/* All columns are added before the first row. */
void table_add_column(struct table *table, enum column_kind kind, const char *key, const char *head);
/* That the column added last is printed even where no row has a value: its dashes say something. */
void table_keep_column(struct table *table);
/* The same, with the decimals that all columns of this format share. */
void table_add_alike(struct table *table, enum column_kind kind, const char *key, const char *head, int format);

/* Begins a row; cells are put from left to right, one for each column. */
void table_add_row(struct table *table, const char *section);
void table_set_apart(struct table *table);

void table_put_text(struct table *table, const char *text);
/* Like printf. */
void table_put_format(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* NaN: a dash. */
void table_put_number(struct table *table, double value);
/* An interval that is not present is a dash with the rule, where there is one. */
void table_put_interval(struct table *table, const struct interval *interval, const json_t *marks, const char *missing);
/* Of a row whose numbers all have the same marks: the first that is present carries them, and *marks is NULL then. */
void table_put_marked(struct table *table, const struct interval *interval, const json_t **marks, const char *missing);
void table_put_limits(struct table *table, double low, double high);
/* A dash; the rule may be NULL. */
void table_put_missing(struct table *table, const char *rule);
/* Of the cell that was put last. */
void table_set_bold(struct table *table);
void table_set_mark(struct table *table, const char *rule);

/* Columns behind those that are repeated in which no row has a value or a reason go. */
void table_drop_empty(struct table *table);

const struct table_cell *table_find_cell(const struct table *table, int row, int column);

/* Decimals of a column: where they are fitting, its largest number shows four figures but no more than two decimals,
 * unless its smallest would show less than two figures, or its narrowest interval limits that hardly differ. */
int table_decimals(const struct table *table, int column);

/* Decimals of one ratio in running text, by the same: two, or more. One limit does not set a whole column there, so a
 * limit very near to 1 has a fourth. */
int table_ratio_decimals(double value, double low, double high);

/* An environment `generated` for the columns that fit side by side, another for those that do not, and the explanations
 * of the rules that mark its cells. */
void table_put_latex(FILE *out, const struct table *table, const struct summary *summary);

/* RFC 4180, a line of keys first; intervals as KEY, KEY_low, KEY_high, KEY_note, numbers with nine figures. */
void table_put_csv(FILE *out, const struct table *table);

/* GitHub's Markdown. */
void table_put_markdown(FILE *out, const struct table *table);

#endif
