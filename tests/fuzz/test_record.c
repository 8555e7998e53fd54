/* an attempt and the ledger that knows it, either of them changed: what still counts has the numbers that it had */
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/run.h"
#include "tests/fuzz/fuzz.h"
#include "tests/record/fixture.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/record";
const int fuzz_mutations = 4000;

static char *attempt_path, *ledger_path, *attempt_text, *ledger_text;
static json_t *numbers; /* every line of the attempt's samples */

static void close_record(void)
{
    json_decref(numbers);
    free(attempt_path);
    free(ledger_path);
    free(attempt_text);
    free(ledger_text);
}

static json_t *read_numbers(const struct attempt *attempt)
{
    json_t *lines = json_array();
    for (int i = 0; i < attempt->sample_count; i++)
        json_append(lines, sample_to_json(&attempt->samples[i]));
    return lines;
}

/* What the attempt is worth as the two files stand. */
static void check_record(void)
{
    struct run run;
    struct error error = {0};
    fuzz_require(run_read(fuzz_folder(), NULL, &run, &error) == 0, "a damaged file is no damaged run");
    const struct attempt_place place = {{1, METHOD_DDTREE, 16, 1}, 1, 1};
    const struct judged *judged = run_find(&run, &place);
    fuzz_require(judged, "the attempt is accounted for");
    if (!numbers) {
        fuzz_require(!run_is_void(judged, "code") && !run_is_void(judged, "maths"), "unchanged it counts");
        numbers = read_numbers(&judged->attempt);
    }
    json_t *now = read_numbers(&judged->attempt);
    fuzz_require(run_is_all_void(judged) || run.ledger.broken_at || json_equal(now, numbers),
                 "nothing counts with other numbers");
    json_decref(now);
    run_free(&run);
}

static void open_record(void)
{
    struct error error = {0};
    char *home = file_join(fuzz_folder(), "attempts/tp1-b16");
    if (file_make_folder(home, &error))
        die("%s", error.message);
    attempt_path = file_join(home, "1-1.jsonl");
    ledger_path = file_join(fuzz_folder(), "ledger.jsonl");
    attempt_text = fixture_read("tests/fuzz/corpus/record/attempt.jsonl", NULL);
    ledger_text = fixture_read("tests/fuzz/corpus/record/ledger.jsonl", NULL);
    atexit(close_record);
    free(home);
    fixture_write(attempt_path, attempt_text, strlen(attempt_text));
    fixture_write(ledger_path, ledger_text, strlen(ledger_text));
    check_record();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!attempt_path)
        open_record();
    fixture_write(attempt_path, bytes, size);
    fixture_write(ledger_path, ledger_text, strlen(ledger_text));
    check_record();
    fixture_write(attempt_path, attempt_text, strlen(attempt_text));
    fixture_write(ledger_path, bytes, size);
    check_record();
    return 0;
}
