/* the figures drawn of summary.json */
#include "render/figures.h"
#include "render/summary.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/summary";
const int fuzz_mutations = 300;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct fonts *fonts;
    static struct style style;
    struct summary summary;
    struct error error = {0};
    if (!fonts && !style_read("templates", &style, &error))
        fonts = fonts_open(style.font_files, &error);
    if (!fonts)
        die("%s", error.message);
    if (summary_read(fuzz_write("summary.json", bytes, size), &summary, &error))
        return 0;
    bool drawn = figures_write(&summary, &style, fonts, style.one_column_in, fuzz_folder(), &error) == 0;
    fuzz_check_answer(drawn, &error);
    fuzz_require(drawn, "whatever can be read can be drawn");
    summary_free(&summary);
    return 0;
}
