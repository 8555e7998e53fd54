#include "render/report.h"

#include "collect/base/file.h"
#include "render/figures.h"
#include "render/macros.h"
#include "render/pdflatex.h"
#include "render/tables.h"
#include "render/template.h"

#include <stdlib.h>

static int write_macros(const struct summary *summary, const char *folder, struct error *error)
{
    char *bytes = NULL, *path = file_join(folder, "macros.tex");
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    macros_put(out, summary);
    fclose(out);
    int result = file_write_whole(path, bytes, size, error);
    free(bytes);
    free(path);
    return result;
}

int report_write(const struct summary *summary, const char *templates, const char *folder, struct error *error)
{
    char *figures = file_join(folder, "figures"), *tables = file_join(folder, "tables");
    struct fonts *fonts = NULL;
    int result = -1;
    if (file_make_folder(figures, error) || file_make_folder(tables, error))
        goto out;
    fonts = fonts_open(error);
    if (!fonts || figures_write(summary, fonts, figures, error) || tables_write(summary, tables, error) ||
        write_macros(summary, folder, error))
        goto out;
    result = template_copy(templates, folder, error);
out:
    fonts_close(fonts);
    free(figures);
    free(tables);
    return result;
}

int report_typeset(const struct summary *summary, const char *folder, struct error *error)
{
    return pdflatex_run(folder, "report", summary_date(summary), error);
}
