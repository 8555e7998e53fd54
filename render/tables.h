/* The report's tables and generated sentences, as LaTeX: one file each under tables/, read by the templates with
 * \input. Captions and prose are the templates'; what is generated are rows. */
#ifndef RENDER_TABLES_H
#define RENDER_TABLES_H

#include "render/summary.h"

#include <stdio.h>

struct table {
    const char *name; /* tables/NAME.tex */
    void (*put)(FILE *out, const struct summary *summary);
};

extern const struct table tables_table[];
extern const int tables_count;

/* Writes FOLDER/NAME.tex for every row of the table. */
int tables_write(const struct summary *summary, const char *folder, struct error *error);

/* The headline table as GitHub's Markdown. */
void tables_put_markdown(FILE *out, const struct summary *summary);

/* Speedups, arms by workloads and over all of them; value and interval, the best set bold. */
void tables_put_speedup(FILE *out, const struct summary *summary);
void tables_put_over_linear(FILE *out, const struct summary *summary);
void tables_put_end_to_end(FILE *out, const struct summary *summary);

/* The headline family with simultaneous intervals, cross-checks and p values; and as sentences. */
void tables_put_family(FILE *out, const struct summary *summary);
void tables_put_sentences(FILE *out, const struct summary *summary);

/* tokens/s, TPOT, TTFT and acceptance length of every cell; the log R of every block. */
void tables_put_absolute(FILE *out, const struct summary *summary);
void tables_put_blocks(FILE *out, const struct summary *summary);

/* Machine and plan; what was excluded; what is marked; where it all comes from. */
void tables_put_setting(FILE *out, const struct summary *summary);
void tables_put_exclusions(FILE *out, const struct summary *summary);
void tables_put_marks(FILE *out, const struct summary *summary);
void tables_put_provenance(FILE *out, const struct summary *summary);

/* --- notes under a table: a letter for each rule that marks a number
 * ---------------------------------------------------- */

#define NOTES_MAXIMUM 26

struct notes {
    const char *rules[NOTES_MAXIMUM];
    bool letter[NOTES_MAXIMUM]; /* marks numbers by its letter; else it stands beside a dash */
    int count;
};

/* Writes the letters of these rule ids as a superscript. */
void notes_put_marks(FILE *out, struct notes *notes, const json_t *marks);
void notes_put_mark(FILE *out, struct notes *notes, const char *rule);

/* Remembers a rule whose id is printed beside a dash. */
void notes_add_missing(struct notes *notes, const char *rule);

/* The rules' explanations, one paragraph in small type. */
void notes_put(FILE *out, const struct notes *notes, const struct summary *summary);

#endif
