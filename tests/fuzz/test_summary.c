/* summary.json as render reads it, and the tables and macros that are made of it */
#include "render/macros.h"
#include "render/summary.h"
#include "render/tables.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/summary";
const int fuzz_mutations = 10000;

static void put_all(const struct summary *summary)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        die("out of memory");
    for (int i = 0; i < tables_count; i++)
        tables_table[i].put(out, summary);
    tables_put_markdown(out, summary);
    macros_put(out, summary);
    fclose(out);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct summary summary;
    struct error error = {0};
    bool read = summary_read(fuzz_write("summary.json", bytes, size), &summary, &error) == 0;
    fuzz_check_answer(read, &error);
    if (!read)
        return 0;
    put_all(&summary);
    summary_free(&summary);
    return 0;
}
