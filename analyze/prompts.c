#include "analyze/prompts.h"

#include "analyze/samples.h"
#include "collect/base/name.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    return name_compare(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct prompt_table *table)
{
    int kept = 0;
    qsort(table->prompts, (size_t)table->count, sizeof *table->prompts, compare_names);
    for (int i = 0; i < table->count; i++)
        if (!kept || name_compare(table->prompts[kept - 1], table->prompts[i]) != 0)
            table->prompts[kept++] = table->prompts[i];
    table->count = kept;
}

void prompt_table_init(const struct attempt *const *attempts, int columns, const char *workload,
                       struct prompt_table *table)
{
    size_t most = 1;
    for (int i = 0; i < columns; i++)
        most += attempts[i] ? (size_t)attempts[i]->sample_count : 0;
    *table = (struct prompt_table){.prompts = xcalloc(most, sizeof *table->prompts), .columns = columns};
    for (int i = 0; i < columns; i++) {
        const struct sample *sample;
        for (int at = 0; attempts[i] && (sample = samples_next(attempts[i], workload, &at));)
            table->prompts[table->count++] = sample->prompt;
    }
    sort_names(table);
    const size_t places = (size_t)table->count * (size_t)columns;
    table->values = xcalloc(places + 1, sizeof *table->values);
    for (size_t i = 0; i < places; i++)
        table->values[i] = NAN;
}

void prompt_table_free(struct prompt_table *table)
{
    free(table->prompts);
    free(table->values);
    *table = (struct prompt_table){0};
}

double *prompt_table_at(const struct prompt_table *table, const char *prompt, int column)
{
    const char **found = bsearch(&prompt, table->prompts, (size_t)table->count, sizeof *table->prompts, compare_names);
    return found ? &table->values[(size_t)(found - table->prompts) * (size_t)table->columns + (size_t)column] : NULL;
}

int prompt_table_complete(struct prompt_table *table)
{
    const size_t columns = (size_t)table->columns;
    int kept = 0;
    for (int i = 0; i < table->count; i++) {
        const double *row = table->values + (size_t)i * columns;
        bool whole = true;
        for (size_t j = 0; j < columns; j++)
            whole &= !isnan(row[j]);
        if (!whole)
            continue;
        table->prompts[kept] = table->prompts[i];
        memmove(table->values + (size_t)kept++ * columns, row, columns * sizeof *row);
    }
    table->count = kept;
    return kept;
}
