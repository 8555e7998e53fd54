/* ledger.jsonl, and what is appended to whatever stood there */
#include "collect/record/ledger.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/ledger";
const int fuzz_mutations = 10000;

struct seen {
    size_t lines;
    int broken_at;
    bool torn;
};

static struct seen read_ledger(void)
{
    struct ledger ledger;
    struct error error = {0};
    bool read = ledger_read(fuzz_folder(), &ledger, &error) == 0;
    fuzz_check_answer(read, &error);
    fuzz_require(read, "every file of lines is a ledger, if a broken one");
    struct seen seen = {json_array_size(ledger.lines), ledger.broken_at, ledger.torn_bytes > 0};
    ledger_close(&ledger);
    return seen;
}

/* A chain that is broken takes no further line. */
static void append(bool broken)
{
    struct ledger ledger;
    struct error error = {0};
    bool opened = ledger_open(fuzz_folder(), &ledger, &error) == 0;
    fuzz_check_answer(opened, &error);
    fuzz_require(opened == !broken, "what is whole can be opened for writing, and nothing else");
    if (!opened)
        return;
    fuzz_require(ledger_append(&ledger, LEDGER_USER, "note", json_pack("{s:s}", "reason", "fuzz"), &error) == 0,
                 "it can be appended to");
    ledger_close(&ledger);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fuzz_write("ledger.jsonl", bytes, size);
    struct seen before = read_ledger();
    append(before.broken_at);
    struct seen after = read_ledger();
    bool appended = !before.broken_at;
    fuzz_require(!appended || !after.torn, "a torn line is recovered");
    fuzz_require(after.lines == before.lines + appended + (appended && before.torn), "what was appended is there");
    fuzz_require(after.broken_at == before.broken_at, "appending neither breaks a chain nor mends it");
    return 0;
}
