/* The report's tables: a row of tables_list for each, with the function that fills it. One that has nothing to say is
 * not written. Captions are the templates' (captions.tex). */
#ifndef RENDER_TABLES_H
#define RENDER_TABLES_H

#include "render/table.h"

typedef void tables_fill(struct table *table, const struct summary *summary);

struct tables_entry {
    const char *name; /* tables/NAME.tex and tables/NAME.csv */
    tables_fill *fill;
};

extern const struct tables_entry tables_list[];
extern const int tables_count;

/* Writes FOLDER/NAME.tex and .csv of every table that has rows, or a sentence in their place, and removes those of the
 * others. */
int tables_write(const struct summary *summary, const char *folder, struct error *error);

/* For a pull request, as GitHub's Markdown: the headline family, the speedups, what was excluded, the ledgers' heads.
 */
void tables_put_markdown(FILE *out, const struct summary *summary);

/* Machine and plan; workloads. */
tables_fill tables_fill_setting, tables_fill_workloads;

/* Speedups, arms by workloads and over all of them; value and interval, the best set bold. */
tables_fill tables_fill_speedup, tables_fill_over_linear, tables_fill_end_to_end, tables_fill_aggregate;

/* The headline family with simultaneous intervals, cross-checks and p values. */
tables_fill tables_fill_family;

/* This run beside one before. */
tables_fill tables_fill_versus, tables_fill_versus_times;

/* Speedups by other estimates; without suspect data. */
tables_fill tables_fill_estimates, tables_fill_suspect;

/* By budget; the best budget, honestly. */
tables_fill tables_fill_budgets, tables_fill_best;

/* Of every cell. */
tables_fill tables_fill_absolute, tables_fill_record, tables_fill_throughput, tables_fill_latency,
    tables_fill_latency_blocks, tables_fill_losslessness;

/* What a round costs, what memory holds, what a token takes. */
tables_fill tables_fill_rounds, tables_fill_model, tables_fill_fits, tables_fill_scaling, tables_fill_memory,
    tables_fill_peak;

/* What was excluded; what is marked; where it all comes from; log R of every block. */
tables_fill tables_fill_exclusions, tables_fill_marks, tables_fill_provenance, tables_fill_blocks;

/* Arms by workloads, a cell of the table for each of the summary's. */
typedef void tables_put_cell(struct table *table, const struct cell *cell);
void tables_fill_matrix(struct table *table, const struct summary *summary, enum column_kind kind,
                        tables_put_cell *put);

/* A row of two cells. */
void tables_add_fact(struct table *table, const char *label, const char *text);

/* A value as a person reads it; hashes by their first digits. free() it. */
char *tables_value_text(const json_t *value);

/* Cells that many tables have: "b16"; "b16 over auto"; "code", or "all workloads". */
void tables_put_arm(struct table *table, const struct summary *summary, int arm);
char *tables_pair_text(const struct summary *summary, const struct comparison *comparison); /* free() it */
void tables_put_pair(struct table *table, const struct summary *summary, const struct comparison *comparison);
void tables_put_workload(struct table *table, const struct summary *summary, int workload);

/* "faster", "slower", "equal within 2%", "none shown". */
void tables_put_verdict(struct table *table, const struct summary *summary, const char *verdict);

#endif
