/* What prompts gave in several attempts, as a table: a row for each prompt, a column for each attempt. */
#ifndef ANALYZE_PROMPTS_H
#define ANALYZE_PROMPTS_H

#include "collect/record/attempt.h"

struct prompt_table {
    const char **prompts; /* sorted; borrowed from the attempts */
    int count, columns;
    double *values; /* count x columns, row by row; NaN where there is none */
};

/* Rows for all prompts that the attempts (columns; NULL: a column without any) answered in the workload, no values. */
void prompt_table_init(const struct attempt *const *attempts, int columns, const char *workload,
                       struct prompt_table *table);
void prompt_table_free(struct prompt_table *table);

/* The place for the prompt's value in a column; NULL where the prompt has no row. */
double *prompt_table_at(const struct prompt_table *table, const char *prompt, int column);

/* Takes rows out that lack a value; answers how many are left. */
int prompt_table_complete(struct prompt_table *table);

#endif
