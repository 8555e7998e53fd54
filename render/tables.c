#include "render/tables.h"

#include "collect/base/file.h"
#include "render/latex.h"

#include <stdlib.h>
#include <string.h>

const struct table tables_table[] = {
    {"setting", tables_put_setting},         {"sentences", tables_put_sentences},   {"speedup", tables_put_speedup},
    {"over_linear", tables_put_over_linear}, {"end_to_end", tables_put_end_to_end}, {"family", tables_put_family},
    {"absolute", tables_put_absolute},       {"exclusions", tables_put_exclusions}, {"marks", tables_put_marks},
    {"blocks", tables_put_blocks},           {"provenance", tables_put_provenance},
};
const int tables_count = sizeof tables_table / sizeof *tables_table;

static int write_table(const struct table *table, const struct summary *summary, const char *folder,
                       struct error *error)
{
    char *bytes = NULL, *path = xformat("%s/%s.tex", folder, table->name);
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    table->put(out, summary);
    fclose(out);
    int result = file_write_whole(path, bytes, size, error);
    free(bytes);
    free(path);
    return result;
}

int tables_write(const struct summary *summary, const char *folder, struct error *error)
{
    for (int i = 0; i < tables_count; i++)
        if (write_table(&tables_table[i], summary, folder, error))
            return -1;
    return 0;
}

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

void notes_put_mark(FILE *out, struct notes *notes, const char *rule)
{
    int note = find_note(notes, rule);
    notes->letter[note] = true;
    fprintf(out, "\\textsuperscript{%c}", 'a' + note);
}

void notes_put_marks(FILE *out, struct notes *notes, const json_t *marks)
{
    for (size_t i = 0; i < json_array_size(marks); i++)
        notes_put_mark(out, notes, json_string_value(json_array_get(marks, i)));
}

void notes_add_missing(struct notes *notes, const char *rule)
{
    find_note(notes, rule);
}

void notes_put(FILE *out, const struct notes *notes, const struct summary *summary)
{
    if (notes->count == 0)
        return;
    fputs("\\par\\smallskip\\begin{minipage}{\\textwidth}\\footnotesize\\raggedright\n", out);
    for (int i = 0; i < notes->count; i++) {
        if (notes->letter[i])
            fprintf(out, "\\textsuperscript{%c}", 'a' + i);
        else
            fputs("---\\,", out);
        latex_put(out, notes->rules[i]);
        const char *explanation = summary_explain(summary, notes->rules[i]);
        if (explanation) {
            fputs(": ", out);
            latex_put(out, explanation);
        }
        fputs(i + 1 < notes->count ? "\\quad\n" : "\n", out);
    }
    fputs("\\end{minipage}\n", out);
}

static void put_markdown_cell(FILE *out, const struct comparison *comparison)
{
    if (!comparison || !comparison->speedup.present) {
        fprintf(out, " — %s |", comparison && comparison->missing.rule ? comparison->missing.rule : "");
        return;
    }
    const struct interval *speedup = &comparison->speedup;
    const char *bold = comparison->best ? "**" : "";
    fprintf(out, " %s%.2f%s", bold, speedup->value, bold);
    if (speedup->low == speedup->low)
        fprintf(out, " [%.2f, %.2f]", speedup->low, speedup->high);
    for (size_t i = 0; i < json_array_size(comparison->marks); i++)
        fprintf(out, " %s", json_string_value(json_array_get(comparison->marks, i)));
    fputs(" |", out);
}

/* A table's cell ends at a bar, and a line ends a row. */
static void put_markdown_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '\\' || *text == '*' || *text == '_' || *text == '<' || *text == '`')
            fputc('\\', out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
}

void tables_put_markdown(FILE *out, const struct summary *summary)
{
    fputs("| speedup over auto |", out);
    for (int i = 0; i <= summary->workload_count; i++) {
        fputc(' ', out);
        put_markdown_text(out, summary_workload_text(summary, i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS));
        fputs(" |", out);
    }
    fputs("\n|:--|", out);
    for (int i = 0; i <= summary->workload_count; i++)
        fputs(":--|", out);
    fputc('\n', out);
    for (int arm = 0; arm < summary->arm_count; arm++) {
        if (summary_is_method(summary, arm, "auto"))
            continue;
        fputs("| ", out);
        put_markdown_text(out, summary_arm_text(summary, arm));
        fputs(" |", out);
        for (int i = 0; i <= summary->workload_count; i++)
            put_markdown_cell(
                out, summary_compare(summary, arm, "auto", i < summary->workload_count ? i : SUMMARY_ALL_WORKLOADS));
        fputc('\n', out);
    }
}
