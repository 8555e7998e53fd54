/* render: summary.json -> figures, tables and the report. */
#include "collect/base/option.h"
#include "collect/base/streams.h"
#include "render/report.h"
#include "render/tables.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    const char *folder = NULL, *templates = "templates";
    bool markdown = false, parts = false;
    const struct option_entry options[] = {
        {"--out", OPTION_TEXT, &folder, "DIR", "folder that receives figures, tables and report.pdf", true},
        {"--templates", OPTION_TEXT, &templates, "DIR", "folder of report.tex (default: templates)", false},
        {"--parts", OPTION_FLAG, &parts, NULL,
         "only figures at a paper's widths, tables, macros and captions, to \\input", false},
        {"--markdown", OPTION_FLAG, &markdown, NULL, "print headline and speedups as Markdown", false},
        {0},
    };
    const struct option_command command = {
        .usage = "render SUMMARY --out DIR [options]",
        .purpose = "Draws the figures and typesets the report of a summary that analyze wrote.",
        .options = options,
        .minimum_arguments = 1,
        .maximum_arguments = 1,
    };
    int count;
    streams_open();
    enum option_result parsed = option_parse(&command, argc, argv, &count);
    if (parsed != OPTION_RUN)
        return streams_close(parsed == OPTION_HELP_SHOWN ? EXIT_CODE_OK : EXIT_CODE_USAGE);
    struct summary summary;
    struct error error = {0};
    int result = summary_read(argv[0], &summary, &error);
    if (!result) {
        if (markdown)
            tables_put_markdown(stdout, &summary);
        result = parts ? report_write_parts(&summary, templates, folder, &error)
                       : report_write(&summary, templates, folder, &error) || report_typeset(&summary, folder, &error);
        summary_free(&summary);
    }
    if (result)
        fprintf(stderr, "%s\n", error.message);
    else
        fprintf(stderr, "%s/%s is ready\n", folder, parts ? "parts.tex" : "report.pdf");
    return streams_close(result ? EXIT_CODE_FAILURE : EXIT_CODE_OK);
}
