#include "render/report.h"

#include "collect/base/file.h"
#include "render/abstract.h"
#include "render/figures.h"
#include "render/macros.h"
#include "render/pdflatex.h"
#include "render/tables.h"
#include "render/template.h"

#include <stdlib.h>

/* Of figures, and the folder under figures/ that they go to. */
struct report_width {
    const char *name;
    double inches;
};

static int write_text(const struct summary *summary, void (*put)(FILE *out, const struct summary *summary),
                      const char *folder, const char *name, struct error *error)
{
    char *bytes = NULL, *path = file_join(folder, name);
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    put(out, summary);
    fclose(out);
    int result = file_write_whole(path, bytes, size, error);
    free(bytes);
    free(path);
    return result;
}

/* Figures in FOLDER/figures at each of these widths, in a folder of its own where it has a name. */
static int write_figures(const struct summary *summary, const struct style *style, const struct report_width *widths,
                         const char *folder, struct error *error)
{
    struct fonts *fonts = fonts_open(style->font_files, error);
    int result = fonts ? 0 : -1;
    for (; !result && widths->inches > 0; widths++) {
        char *inner = widths->name ? xformat("%s/figures/%s", folder, widths->name) : file_join(folder, "figures");
        result = file_make_folder(inner, error) || figures_write(summary, style, fonts, widths->inches, inner, error)
                     ? -1
                     : 0;
        free(inner);
    }
    fonts_close(fonts);
    return result;
}

static int write_parts(const struct summary *summary, const struct style *style, const struct report_width *widths,
                       const char *folder, struct error *error)
{
    char *tables = file_join(folder, "tables");
    int result = file_make_folder(tables, error) || tables_write(summary, tables, error) ||
                         write_text(summary, macros_put, folder, "macros.tex", error) ||
                         write_text(summary, abstract_put, folder, "abstract.tex", error)
                     ? -1
                     : 0;
    free(tables);
    return result ? result : write_figures(summary, style, widths, folder, error);
}

int report_write(const struct summary *summary, const char *templates, const char *folder, struct error *error)
{
    struct style style;
    if (style_read(templates, &style, error))
        return -1;
    const struct report_width widths[] = {{NULL, style.report_width_in}, {NULL, 0}};
    int result = write_parts(summary, &style, widths, folder, error);
    style_free(&style);
    return result ? result : template_copy_all(templates, folder, error);
}

int report_write_parts(const struct summary *summary, const char *templates, const char *folder, struct error *error)
{
    struct style style;
    if (style_read(templates, &style, error))
        return -1;
    const struct report_width widths[] = {
        {"one-column", style.one_column_in}, {"two-columns", style.two_columns_in}, {NULL, 0}};
    int result = write_parts(summary, &style, widths, folder, error);
    style_free(&style);
    if (!result)
        result = template_copy(templates, folder, "captions.tex", error);
    return result ? result : template_copy(templates, folder, "parts.tex", error);
}

int report_typeset(const struct summary *summary, const char *folder, struct error *error)
{
    return pdflatex_run(folder, "report", summary_date(summary), error);
}
