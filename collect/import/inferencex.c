/* InferenceX: its aggregated form, in seconds, throughput by GPU; and the note that a run's acceptance was made up. Its
 * raw form is vLLM's. */
#include "collect/import/format.h"

#include "collect/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the figures are divided by: the GPUs of a run on one machine that does not split prefill from decoding. */
static int count_gpus(const struct imported *imported)
{
    const bool split = json_is_true(json_object_get(imported->rest, "disagg")) ||
                       json_is_true(json_object_get(imported->rest, "is_multinode"));
    return split ? 0 : imported->tensor_parallel;
}

static void set_method(struct imported *imported)
{
    char *method = take_text(imported->rest, "spec_decoding");
    if (method && strcmp(method, "none") == 0)
        imported_set_auto(imported);
    else if (method)
        imported_set_linear(imported, 0);
    if (method)
        json_set(imported->source, "speculation", json_text(method));
    free(method);
}

void inferencex_read(const struct document *document, const json_t *record, struct imports *imports)
{
    static const char *const shown[] = {"image", "framework", "precision", "ep"};
    static const struct take_figure figures[] = {
        {"mean_ttft", JSON_FIELD_DOUBLE, offsetof(struct observed, ttft_ns), NS_OF_S},
        {"mean_tpot", JSON_FIELD_DOUBLE, offsetof(struct observed, tpot_ns), NS_OF_S},
        {"mean_itl", JSON_FIELD_DOUBLE, offsetof(struct observed, itl_ns), NS_OF_S},
        {"mean_e2el", JSON_FIELD_DOUBLE, offsetof(struct observed, e2e_ns), NS_OF_S},
        {0},
    };
    struct imported *imported = imports_add(imports, document, record);
    const int64_t ranks = take_count(imported->rest, "tp"), most = take_count(imported->rest, "conc");
    imported->tensor_parallel = ranks > 0 && ranks <= 4096 ? (int)ranks : 0;
    imported->concurrency = most > 0 && most <= 1000000 ? (int)most : 0;
    take_figures(imported, figures);
    const int gpus = count_gpus(imported);
    if (gpus)
        imported->observed.tokens_per_s = take_number(imported->rest, "output_tput_per_gpu") * gpus;
    set_method(imported);
    take_into(imported->rest, "model", imported->source, "model_id");
    take_into(imported->rest, "hw", imported->machine, "gpu");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        take_into(imported->rest, shown[i], imported->source, shown[i]);
    take_into(imported->rest, "isl", imported->settings, "isl");
    take_into(imported->rest, "osl", imported->settings, "osl");
    imported->workload = xstrdup(IMPORTED_WORKLOAD);
}

/* No run of its own: it speaks of those that it is given with. */
void inferencex_read_synthetic(const struct document *document, const json_t *record, struct imports *imports)
{
    struct imported *imported = imports_add(imports, document, record);
    const json_t *rates = json_object_get(record, "synthetic_acceptance_rates");
    double length = 1;
    for (size_t i = 0; i < json_array_size(rates); i++)
        length += document_number(json_array_get(rates, i));
    imported->observed.accept_length = length;
    imported->synthetic = imported->is_note = true;
    imported_set_linear(imported, (int64_t)json_array_size(rates));
}
