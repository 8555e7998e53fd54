#include "tests/fuzz/render.h"

#include "render/abstract.h"
#include "render/macros.h"
#include "render/summary.h"
#include "render/tables.h"

#include <stdio.h>
#include <stdlib.h>

static void put_all(const struct summary *summary)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        die("out of memory");
    for (int i = 0; i < tables_count; i++) {
        struct table table;
        table_init(&table, tables_list[i].name);
        tables_list[i].fill(&table, summary);
        table_drop_empty(&table);
        table_put_latex(out, &table, summary);
        table_put_csv(out, &table);
        table_free(&table);
    }
    abstract_put(out, summary);
    tables_put_markdown(out, summary);
    macros_put(out, summary);
    fclose(out);
    free(text);
}

bool fuzz_render(const char *path, struct error *error)
{
    struct summary summary;
    if (summary_read(path, &summary, error))
        return false;
    put_all(&summary);
    summary_free(&summary);
    return true;
}
