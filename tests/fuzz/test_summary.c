/* summary.json as render reads it, and the tables and macros that are made of it */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/render.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/summary";
const int fuzz_mutations = 10000;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct error error = {0};
    bool read = fuzz_render(fuzz_write("summary.json", bytes, size), &error);
    fuzz_check_answer(read, &error);
    return 0;
}
