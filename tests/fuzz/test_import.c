/* result files of other tools: JSON, tables, logs, packed or not, and the attempts that formats make of them */
#include "collect/base/json.h"
#include "collect/import/choice.h"
#include "collect/import/format.h"
#include "collect/import/header.h"
#include "collect/import/merge.h"
#include "collect/record/rule.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <unistd.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/import";
const int fuzz_mutations = 10000;

/* What was read is JSON, however odd the file: it is written and read again as the same. */
static void check_values(const struct document *document)
{
    char *text = json_canonical(document->values);
    json_t *again = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    fuzz_require(again && json_equal(again, document->values), "values are JSON");
    json_decref(again);
    free(text);
}

static void write_attempt(const char *path, const struct imported *imported, const struct arm *arm)
{
    struct error error = {0};
    char hash[FILE_HASH_SIZE];
    json_t *header = header_make(imported, arm);
    json_set(header, "id", json_string("fuzz/tp1-auto/1-1"));
    json_set(header, "block", json_integer(1));
    json_set(header, "try", json_integer(1));
    unlink(path);
    struct attempt_writer *writer = attempt_writer_open(path, header, &error);
    fuzz_require(writer, "an attempt can be begun");
    for (int i = 0; i < imported->sample_count; i++)
        fuzz_require(attempt_writer_add(writer, sample_to_json(&imported->samples[i]), &error) == 0,
                     "a sample can be written");
    const struct attempt_end end = {.status = "complete", .observed = &imported->observed};
    fuzz_require(attempt_writer_end(writer, &end, hash, &error) == 0, "an attempt can be ended");
}

/* Whatever a file says, the attempt made of it is one, and can be judged. */
static void check_attempt(struct imported *imported)
{
    char *path = file_join(fuzz_folder(), "attempt.jsonl");
    struct choice choice;
    struct arm arm;
    struct error error = {0}, reading = {0};
    choice_parse("tp1-linear-c4", &choice);
    header_prepare(imported, NULL);
    bool known = choice_apply(&choice, imported, &arm, &error) == 0;
    fuzz_check_answer(known, &error);
    if (known) {
        struct attempt attempt;
        struct verdicts verdicts = {0};
        write_attempt(path, imported, &arm);
        if (attempt_read(path, &attempt, &reading))
            die("%s", reading.message);
        rule_judge_attempt(&attempt, NULL, &verdicts);
        verdicts_free(&verdicts);
        attempt_free(&attempt);
    }
    free(path);
}

static void check_formats(const struct document *document)
{
    struct imports imports = {0};
    struct error error = {0}, merging = {0};
    int passed_over;
    bool read = format_read(document, &imports, &passed_over, &error) == 0;
    fuzz_check_answer(read, &error);
    fuzz_require(read == (imports.count > 0), "what was read is there");
    bool merged = merge_imports(&imports, &merging) == 0;
    fuzz_check_answer(merged, &merging);
    for (int i = 0; merged && i < imports.count; i++)
        check_attempt(&imports.items[i]);
    imports_free(&imports);
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
    check_formats(&document);
    document_free(&document);
    return 0;
}
