/* llama-bench: a test a row, as JSON, JSON Lines and CSV with nanoseconds, as Markdown with tokens/s alone. "tg128"
 * decodes 128 tokens, "pp512" reads a prompt of 512 and decodes nothing, "@ d4096" stands behind so many tokens. */
#include "collect/import/format.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS_MAXIMUM = 1000000 };

/* Repetitions follow each other in one process: they are one measurement. */
static struct imported *add(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, record);
    imported->concurrency = imported->tensor_parallel = 1;
    imported_set_auto(imported);
    return imported;
}

static char *name_test(int64_t prompt, int64_t generated, int64_t depth)
{
    char *name = prompt > 0 && generated > 0 ? xformat("pp%lld-tg%lld", (long long)prompt, (long long)generated)
                 : prompt > 0                ? xformat("pp%lld", (long long)prompt)
                                             : xformat("tg%lld", (long long)generated);
    if (depth <= 0)
        return name;
    char *deeper = xformat("%s-d%lld", name, (long long)depth);
    free(name);
    return deeper;
}

/* `test_ns`: of one repetition. Of prompt and output together nobody can say which took how long. */
static void set_times(struct imported *imported, int64_t prompt, int64_t generated, double test_ns)
{
    struct observed *observed = &imported->observed;
    if (!(test_ns > 0))
        return;
    if (generated <= 0)
        observed->ttft_ns = test_ns;
    else if (prompt <= 0)
        observed->tpot_ns = test_ns / (double)generated;
    else
        observed->e2e_ns = test_ns;
}

/* More than one GPU splits the model by layers or rows: how many ranks that is, only a person can say. */
static void set_machine(struct imported *imported)
{
    const char *gpus = json_string_value(json_object_get(imported->rest, "gpu_info"));
    if (gpus && strchr(gpus, ','))
        imported->tensor_parallel = 0;
    take_into(imported->rest, "gpu_info", imported->machine, "gpu");
    take_into(imported->rest, "cpu_info", imported->machine, "cpu");
}

void llama_bench_read(const struct document *document, const json_t *record, struct imports *imports)
{
    static const char *const shown[] = {"model_filename", "model_type",   "build_commit",
                                        "backends",       "n_gpu_layers", "flash_attn"};
    struct imported *imported = add(document, record, imports);
    const int64_t prompt = take_count(imported->rest, "n_prompt"), generated = take_count(imported->rest, "n_gen");
    const int64_t depth = take_count(imported->rest, "n_depth");
    const double test_ns = take_number(imported->rest, "avg_ns");
    char *time = take_text(imported->rest, "test_time");
    const size_t repetitions = json_array_size(json_object_get(imported->rest, "samples_ns"));
    imported->started_s = time ? clock_parse_utc(time) : ATTEMPT_ABSENT;
    set_times(imported, prompt, generated, test_ns);
    set_machine(imported);
    if (repetitions && repetitions <= REPETITIONS_MAXIMUM) {
        imported->observed.requests = imported->observed.completed = (int)repetitions;
        imported->observed.duration_ns = unit_ns(test_ns * (double)repetitions, 1);
        imported->observed.tokens = generated > 0 ? generated * (int64_t)repetitions : ATTEMPT_ABSENT;
    }
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        take_into(imported->rest, shown[i], imported->source, shown[i]);
    imported->workload = name_test(prompt, generated, depth);
    free(time);
}

/* "tg128 @ d4096" and "118.88 ± 1.04" */
void llama_bench_read_markdown(const struct document *document, const json_t *record, struct imports *imports)
{
    static const char *const shown[] = {"model", "params", "backend", "ngl"};
    long long prompt = 0, generated = 0, depth = 0;
    double rate = NAN;
    const char *test = json_string_value(json_object_get(record, "test"));
    const char *figure = json_string_value(json_object_get(record, "t/s"));
    if (!test || !figure || sscanf(figure, "%lf", &rate) != 1 || !(rate > 0))
        return;
    if (sscanf(test, "pp%lld+tg%lld", &prompt, &generated) < 1 && sscanf(test, "tg%lld", &generated) != 1)
        return;
    const char *behind = strstr(test, "@ d");
    if (behind)
        sscanf(behind, "@ d%lld", &depth);
    struct imported *imported = add(document, record, imports);
    const double tokens = (double)prompt + (double)generated;
    imported->tensor_parallel = 0;
    set_times(imported, prompt, generated, tokens / rate * NS_OF_S);
    json_object_del(imported->rest, "test");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        take_into(imported->rest, shown[i], imported->source, shown[i]);
    imported->workload = name_test(prompt, generated, depth);
}
