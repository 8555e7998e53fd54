/* result files of other tools: JSON, tables, logs, packed or not */
#include "collect/base/json.h"
#include "collect/import/document.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/import";
const int fuzz_mutations = 10000;

/* What was read is JSON, however odd the file: it is written and read again as the same. */
static void check_values(const struct document *document)
{
    struct error error = {0};
    char *text = json_canonical(document->values);
    json_t *again = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    fuzz_require(again && json_equal(again, document->values), "values are JSON");
    json_decref(again);
    free(text);
    fuzz_check_answer(true, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct document document;
    struct error error = {0};
    bool read = document_read(fuzz_write("import", bytes, size), &document, &error) == 0;
    fuzz_check_answer(read, &error);
    if (!read)
        return 0;
    fuzz_require(json_array_size(document.values) > 0, "a document holds something");
    check_values(&document);
    document_free(&document);
    return 0;
}
