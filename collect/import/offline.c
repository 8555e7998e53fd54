/* Tools that measure batches rather than load: SGLang's bench_one_batch_server and bench_speculative, SpecForge, and
 * Lucebox's sweeps. Times are in seconds. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_concurrency(struct imported *imported, int64_t most)
{
    imported->concurrency = most > 0 && most <= 1000000 ? (int)most : 0;
}

/* Tokens that a request decodes behind its first take the rest of the batch's time, which output_throughput is of. */
void offline_read_one_batch(const struct document *document, const json_t *record, struct imports *imports)
{
    static const struct take_figure figures[] = {
        {"latency", JSON_FIELD_DOUBLE, offsetof(struct observed, e2e_ns), NS_OF_S},
        {"last_ttft", JSON_FIELD_DOUBLE, offsetof(struct observed, ttft_ns), NS_OF_S},
        {"total_output_tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), 1},
        {"acc_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
        {0},
    };
    struct imported *imported = imports_add(imports, document, record);
    struct observed *observed = &imported->observed;
    const int64_t batch = take_count(imported->rest, "batch_size"), in = take_count(imported->rest, "input_len");
    const int64_t out = take_count(imported->rest, "output_len");
    take_figures(imported, figures);
    set_concurrency(imported, batch);
    observed->requests = observed->completed = imported->concurrency;
    observed->duration_ns = unit_ns(observed->e2e_ns, 1);
    if (observed->tokens < 0 && out > 0)
        observed->tokens = batch * out;
    json_set(imported->settings, "input_len", json_integer(in));
    json_set(imported->settings, "output_len", json_integer(out));
    imported->workload = xformat("in%lld-out%lld", (long long)in, (long long)out);
    if (observed->accept_length > 1)
        imported_set_linear(imported, 0);
    take_into(imported->rest, "run_name", imported->source, "run_name");
}

/* Steps 0 is plain decoding; SGLang counts the current token among the drafts. */
static void set_speculation(struct imported *imported, int64_t steps, int64_t topk, int64_t drafts)
{
    if (steps == 0)
        imported_set_auto(imported);
    else if (topk > 1)
        imported_set_tree(imported, drafts - 1, steps);
    else
        imported_set_linear(imported, steps);
}

/* The key of a row is what it was run with: a second one is another result for the same. */
static bool has_twin(const struct imports *imports, const struct imported *imported)
{
    for (const struct imported *other = imports->items; other < imported; other++)
        if (other->document == imported->document && other->method == imported->method &&
            other->budget == imported->budget && other->concurrency == imported->concurrency &&
            json_equal(other->settings, imported->settings) && strcmp(other->workload, imported->workload) == 0)
            return true;
    return false;
}

void offline_read_speculative(const struct document *document, const json_t *record, struct imports *imports)
{
    static const struct take_figure figures[] = {
        {"acc_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
        {"duration", JSON_FIELD_INT64, offsetof(struct observed, duration_ns), NS_OF_S},
        {"throughput", JSON_FIELD_DOUBLE, offsetof(struct observed, tokens_per_s), 1},
        {"completion_tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), 1},
        {0},
    };
    struct imported *imported = imports_add(imports, document, record);
    const int64_t batch = take_count(imported->rest, "batch_size"), steps = take_count(imported->rest, "steps");
    const int64_t topk = take_count(imported->rest, "topk"), drafts = take_count(imported->rest, "num_draft_tokens");
    take_figures(imported, figures);
    set_concurrency(imported, batch);
    set_speculation(imported, steps, topk, drafts);
    imported->workload = take_text(imported->rest, "benchmark");
    if (!imported->workload)
        imported->workload = xstrdup(IMPORTED_WORKLOAD);
    imported->is_repeated = has_twin(imports, imported);
}

void offline_read_specforge(const struct document *document, const json_t *record, struct imports *imports)
{
    static const struct take_figure figures[] = {
        {"samples", JSON_FIELD_INT, offsetof(struct observed, completed), 1},
        {"output_tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), 1},
        {"latency_seconds", JSON_FIELD_INT64, offsetof(struct observed, duration_ns), NS_OF_S},
        {"throughput_tokens_per_second", JSON_FIELD_DOUBLE, offsetof(struct observed, tokens_per_s), 1},
        {"average_acceptance_length", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
        {0},
    };
    struct imported *imported = imports_add(imports, document, record);
    const int64_t concurrency = take_count(imported->rest, "concurrency");
    take_figures(imported, figures);
    set_concurrency(imported, concurrency);
    if (imported->observed.accept_length > 1)
        imported_set_linear(imported, 0);
    imported->workload = take_text(imported->rest, "dataset");
    take_into(imported->rest, "backend", imported->source, "backend");
}

/* One request at a time. "spec" drafts trees of the budget, "ar" decodes plainly; other settings than the budget are
 * kept apart by what must agree. */
void offline_read_lucebox(const struct document *document, const json_t *record, struct imports *imports)
{
    static const char *const compared[] = {"prefix_cache_slots", "chunk", "cache_type_v", "ptok", "ctok"};
    static const struct take_figure figures[] = {
        {"wall_s", JSON_FIELD_INT64, offsetof(struct observed, duration_ns), NS_OF_S},
        {"decode_tokens", JSON_FIELD_INT64, offsetof(struct observed, tokens), 1},
        {"specdec_avg_commit", JSON_FIELD_DOUBLE, offsetof(struct observed, accept_length), 1},
        {0},
    };
    struct imported *imported = imports_add(imports, document, record);
    char *path = take_text(imported->rest, "decode_path");
    const double rate = take_number(imported->rest, "decode_speed_tps");
    const int64_t budget = take_count(imported->rest, "ddtree_budget");
    take_figures(imported, figures);
    imported->observed.requests = imported->observed.completed = imported->concurrency = 1;
    imported->observed.tpot_ns = rate > 0 ? NS_OF_S / rate : NAN;
    if (path && strcmp(path, "ar") == 0)
        imported_set_auto(imported);
    else if (path && strcmp(path, "spec") == 0) {
        imported_set_tree(imported, budget, 0);
        take_into(imported->rest, "draft", imported->source, "draft");
    }
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        take_into(imported->rest, compared[i], imported->settings, compared[i]);
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
    free(path);
}
