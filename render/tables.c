#include "render/tables.h"

#include "collect/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct tables_entry tables_list[] = {
    {"setting", tables_fill_setting},
    {"workloads", tables_fill_workloads},
    {"speedup", tables_fill_speedup},
    {"over_linear", tables_fill_over_linear},
    {"end_to_end", tables_fill_end_to_end},
    {"aggregate", tables_fill_aggregate},
    {"family", tables_fill_family},
    {"versus", tables_fill_versus},
    {"versus_times", tables_fill_versus_times},
    {"estimates", tables_fill_estimates},
    {"suspect", tables_fill_suspect},
    {"budgets", tables_fill_budgets},
    {"best", tables_fill_best},
    {"absolute", tables_fill_absolute},
    {"record", tables_fill_record},
    {"throughput", tables_fill_throughput},
    {"latency", tables_fill_latency},
    {"latency_blocks", tables_fill_latency_blocks},
    {"losslessness", tables_fill_losslessness},
    {"rounds", tables_fill_rounds},
    {"model", tables_fill_model},
    {"fits", tables_fill_fits},
    {"scaling", tables_fill_scaling},
    {"memory", tables_fill_memory},
    {"peak", tables_fill_peak},
    {"exclusions", tables_fill_exclusions},
    {"marks", tables_fill_marks},
    {"blocks", tables_fill_blocks},
    {"provenance", tables_fill_provenance},
};
const int tables_count = sizeof tables_list / sizeof *tables_list;

/* Writes the file, or removes what an earlier summary left there. */
static int write_file(const struct table *table, const struct summary *summary, const char *folder, bool csv,
                      struct error *error)
{
    char *bytes = NULL, *path = xformat("%s/%s.%s", folder, table->name, csv ? "csv" : "tex");
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    if (csv)
        table_put_csv(out, table);
    else
        table_put_latex(out, table, summary);
    fclose(out);
    int result = 0;
    if (table->row_count > 0)
        result = file_write_whole(path, bytes, size, error);
    else
        unlink(path);
    free(bytes);
    free(path);
    return result;
}

int tables_write(const struct summary *summary, const char *folder, struct error *error)
{
    int result = 0;
    for (int i = 0; i < tables_count && !result; i++) {
        struct table table;
        table_init(&table, tables_list[i].name);
        tables_list[i].fill(&table, summary);
        table_drop_empty(&table);
        result = write_file(&table, summary, folder, false, error) || write_file(&table, summary, folder, true, error)
                     ? -1
                     : 0;
        table_free(&table);
    }
    return result;
}

static void put_markdown_table(FILE *out, const struct summary *summary, const char *name, tables_fill *fill)
{
    struct table table;
    table_init(&table, name);
    fill(&table, summary);
    table_drop_empty(&table);
    if (table.row_count > 0)
        table_put_markdown(out, &table);
    else
        fprintf(out, "%s\n", table.empty);
    fputc('\n', out);
    table_free(&table);
}

void tables_put_markdown(FILE *out, const struct summary *summary)
{
    put_markdown_table(out, summary, "family", tables_fill_family);
    fputs("Speedup over auto, pointwise intervals:\n\n", out);
    put_markdown_table(out, summary, "speedup", tables_fill_speedup);
    if (summary->versus.cell_count > 0) {
        fprintf(out, "Run %s after %s:\n\n", summary->versus.after, summary->versus.before);
        put_markdown_table(out, summary, "versus", tables_fill_versus);
    }
    fprintf(out, "%d of %d attempts excluded at least in part.", summary_invalid_attempts(summary),
            summary_attempts(summary));
    for (int i = 0; i < summary->run_count; i++)
        fprintf(out, " Ledger%s of %lld lines, head `%s`.", i ? " of the run before," : "",
                (long long)summary->runs[i].ledger_lines, summary->runs[i].ledger_head);
    fputc('\n', out);
}

void tables_put_arm(struct table *table, const struct summary *summary, int arm)
{
    table_put_text(table, summary_arm_text(summary, arm));
}

char *tables_pair_text(const struct summary *summary, const struct comparison *comparison)
{
    return xformat("%s over %s", summary_arm_text(summary, comparison->arm),
                   summary_baseline_text(summary, comparison));
}

void tables_put_pair(struct table *table, const struct summary *summary, const struct comparison *comparison)
{
    char *text = tables_pair_text(summary, comparison);
    table_put_text(table, text);
    free(text);
}

void tables_put_workload(struct table *table, const struct summary *summary, int workload)
{
    table_put_text(table, summary_workload_text(summary, workload));
}

void tables_put_verdict(struct table *table, const struct summary *summary, const char *verdict)
{
    if (verdict && strcmp(verdict, "equal") == 0)
        table_put_format(table, "equal within %.3g%%", 100 * summary->equivalence_margin);
    else
        table_put_text(table, verdict && strcmp(verdict, "no difference shown") == 0 ? "none shown" : verdict);
}
