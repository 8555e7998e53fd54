/* answers of servers: event streams cut anywhere, in every dialect, and metrics */
#include "collect/base/json.h"
#include "collect/record/sample.h"
#include "collect/server/answer.h"
#include "collect/server/dialect.h"
#include "collect/server/metrics.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/answer";
const int fuzz_mutations = 20000;

/* Whatever the server said, what is recorded of it can be read again. */
static void check_sample(struct sample *sample)
{
    struct error error = {0};
    struct sample again;
    sample->workload = "w";
    sample->prompt = "p";
    json_t *line = sample_to_json(sample);
    if (sample_from_json(line, "line", &again, &error))
        die("%s", error.message);
    fuzz_require(again.ok == sample->ok && again.tokens == sample->tokens, "a sample is read as it was written");
    sample_free(&again);
    json_decref(line);
}

/* In pieces of so many bytes, and then the connection's end, in order or not. */
static void read_answer(const char *name, const uint8_t *bytes, size_t size, size_t piece, bool whole)
{
    struct answer answer;
    struct sample sample;
    struct http_call call = {.status = 200,
                             .content_type = "text/event-stream",
                             .outcome = whole ? HTTP_DONE : HTTP_BROKEN,
                             .message = "cut off",
                             .start_ns = 1,
                             .context = &answer};
    answer_init(&answer, dialect_find(name, NULL));
    sample_init(&sample);
    bool going = true;
    for (size_t at = 0; going && at < size; at += piece)
        going = answer_take(&call, (const char *)bytes + at, size - at < piece ? size - at : piece, (int64_t)at + 2);
    call.outcome = going ? call.outcome : HTTP_STOPPED;
    call.end_ns = (int64_t)size + 3;
    answer_to_sample(&answer, &call, 0, &sample);
    check_sample(&sample);
    sample_free(&sample);
    answer_free(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const size_t piece = size ? 1 + bytes[size - 1] % 64 : 1;
    char *text = xformat("%.*s", (int)size, (const char *)bytes);
    for (int i = 0; i < dialect_name_count; i++)
        read_answer(dialect_names[i], bytes, size, piece, piece % 2);
    double sum = metrics_sum(text, "vllm:generation_tokens");
    fuzz_require(isnan(sum) || isfinite(sum), "a sum is a number or unknown");
    free(text);
    return 0;
}
