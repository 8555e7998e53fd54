/* attempts/ARM/BLOCK-TRY.jsonl, and the rules that judge what was read */
#include "collect/base/json.h"
#include "collect/record/rule.h"
#include "collect/record/sample.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/attempt";
const int fuzz_mutations = 10000;

static void check_sample(const struct sample *sample)
{
    struct sample again;
    struct error error = {0};
    json_t *line = sample_to_json(sample);
    fuzz_require(sample_from_json(line, "again", &again, &error) == 0, "what is written can be read");
    json_t *line_again = sample_to_json(&again);
    fuzz_require(json_equal(line, line_again), "what is written reads back the same");
    json_decref(line);
    json_decref(line_again);
    sample_free(&again);
}

static void check_observed(const struct observed *observed)
{
    struct observed again;
    struct error error = {0};
    json_t *object = observed_to_json(observed); /* NULL: nothing was observed */
    observed_init(&again);
    fuzz_require(observed_from_json(object, "again", &again, &error) == 0, "what is written can be read");
    json_t *object_again = observed_to_json(&again);
    fuzz_require(object ? json_equal(object, object_again) : !object_again, "what is written reads back the same");
    json_decref(object);
    json_decref(object_again);
    observed_free(&again);
}

static void check_names(const struct attempt *attempt)
{
    fuzz_check_line(attempt->id);
    for (int i = 0; i < attempt->workload_count; i++)
        fuzz_check_line(attempt->workloads[i].name);
}

static void judge(const struct attempt *attempt)
{
    struct verdicts verdicts = {0};
    struct rule_settings settings;
    struct error error = {0};
    rule_settings_read(NULL, "", &settings, &error);
    for (int i = 0; i < RULE_COUNT; i++)
        if (rule_table[i].settable_to > 0)
            settings.threshold[i] = 0.5;
    rule_judge_attempt(attempt, NULL, &verdicts);
    rule_judge_attempt(attempt, &settings, &verdicts);
    rule_judge_pair(attempt, attempt, &settings, &verdicts);
    for (int i = 0; i < verdicts.count; i++) {
        fuzz_check_line(verdicts.items[i].detail);
        json_decref(verdict_to_json(&verdicts.items[i]));
    }
    for (int i = 0; i < attempt->workload_count; i++)
        fuzz_require(attempt->complete ||
                         rule_worst(&verdicts, attempt->workloads[i].name, RULE_VOIDS_ALL) == RULE_INVALID,
                     "nothing of an incomplete attempt is valid");
    verdicts_free(&verdicts);
}

/* The same bytes with a blank in each sample's line, so that it is the parser that reads it. */
static void check_by_parser(const uint8_t *bytes, size_t size, const struct attempt *attempt)
{
    static const char start[] = "{\"type\":\"sample\",";
    const size_t length = strlen(start);
    char *other = xmalloc(2 * size + 1), *to = other;
    struct attempt again;
    struct error error = {0};
    for (size_t i = 0; i < size; i++) {
        *to++ = (char)bytes[i];
        if ((i == 0 || bytes[i - 1] == '\n') && size - i > length && memcmp(bytes + i, start, length) == 0)
            *to++ = ' ';
    }
    bool read = attempt_read(fuzz_write("1-1.jsonl", other, (size_t)(to - other)), &again, &error) == 0;
    free(other);
    fuzz_require(read == (attempt != NULL), "the parser reads what is read before it, and nothing else");
    if (!read)
        return;
    for (int i = 0; i < again.sample_count; i++) {
        json_t *line = sample_to_json(&attempt->samples[i]), *line_again = sample_to_json(&again.samples[i]);
        fuzz_require(json_equal(line, line_again), "the parser reads the same");
        json_decref(line);
        json_decref(line_again);
    }
    attempt_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct attempt attempt;
    struct error error = {0};
    bool read = attempt_read(fuzz_write("1-1.jsonl", bytes, size), &attempt, &error) == 0;
    fuzz_check_answer(read, &error);
    check_by_parser(bytes, size, read ? &attempt : NULL);
    if (!read)
        return 0;
    for (int i = 0; i < attempt.sample_count; i++)
        check_sample(&attempt.samples[i]);
    check_names(&attempt);
    check_observed(&attempt.observed);
    judge(&attempt);
    attempt_free(&attempt);
    return 0;
}
