#include "collect/model_report.h"

#include "collect/base/file.h"
#include "collect/engine/tokenizer.h"

#include <stdarg.h>
#include <stdlib.h>

static void print_row(FILE *stream, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void print_row(FILE *stream, const char *label, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stream, "  %-16s", label);
    vfprintf(stream, format, arguments);
    fputc('\n', stream);
    va_end(arguments);
}

int model_report_open(const char *folder, const struct model *target, struct model_report *report, struct error *error)
{
    *report = (struct model_report){0};
    report->model = model_survey(folder, target, &report->findings, error);
    return report->model ? 0 : -1;
}

void model_report_close(struct model_report *report)
{
    model_close(report->model);
    model_findings_free(&report->findings);
    *report = (struct model_report){0};
}

bool model_report_is_whole(const struct model_report *report)
{
    return json_array_size(report->findings.missing) == 0 && json_array_size(report->findings.unfit) == 0;
}

/* --- what it is ------------------------------------------------------------------------------------------------- */

static void print_types(const struct safetensors *weights, FILE *stream)
{
    int counts[TENSOR_TYPE_COUNT] = {0};
    const char *separator = "";
    for (int i = 0; i < safetensors_count(weights); i++)
        counts[safetensors_at(weights, i)->type]++;
    fprintf(stream, "  %-16s", "tensors");
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++)
        if (counts[type]) {
            fprintf(stream, "%s%d of %s", separator, counts[type], tensor_type_names[type]);
            separator = ", ";
        }
    fputc('\n', stream);
}

static void print_list(FILE *stream, const char *label, const json_t *list)
{
    size_t index;
    json_t *text;
    if (json_array_size(list) == 0)
        print_row(stream, label, "none");
    json_array_foreach((json_t *)list, index, text)
        print_row(stream, index ? "" : label, "%s", json_string_value(text));
}

static void print_windows(const struct model *drafter, FILE *stream)
{
    bool any = false;
    for (int i = 0; i < drafter->layer_count; i++)
        if (drafter->windows[i]) {
            print_row(stream, any ? "" : "windows", "layer %d: %d tokens, %s", i, drafter->windows[i],
                      drafter->causal_windows ? "causal" : "both ways");
            any = true;
        }
    if (!any)
        print_row(stream, "windows", "none: each layer sees all");
}

static void print_drafter(const struct model *drafter, FILE *stream)
{
    print_row(stream, "block", "%d slots, mask token %d", drafter->block_size, drafter->mask_token);
    fprintf(stream, "  %-16s", "feature layers");
    for (int i = 0; i < drafter->feature_count; i++)
        fprintf(stream, "%s%d", i ? ", " : "", drafter->feature_layers[i]);
    fputc('\n', stream);
    print_windows(drafter, stream);
}

void model_report_print(const struct model_report *report, FILE *stream)
{
    const struct model *model = report->model;
    bool drafter = model->block_size > 0;
    fprintf(stream, "%s %s\n", drafter ? "drafter" : "target", model->folder);
    print_row(stream, "family", "%s", drafter ? "DFlash drafter of Qwen3 layers" : "Qwen3, dense");
    print_row(stream, "layers", "%d, hidden size %d, MLP of %d", model->layer_count, model->hidden_size,
              model->intermediate_size);
    print_row(stream, "attention", "%d heads over %d key-value heads of size %d, rope theta %g", model->head_count,
              model->kv_head_count, model->head_size, (double)model->rope_theta);
    print_row(stream, "positions", "%d", model->position_limit);
    print_row(stream, "parameters", "%lld", (long long)model_parameter_count(model));
    print_types(model->weights, stream);
    if (drafter)
        print_drafter(model, stream);
    else
        print_row(stream, "vocabulary", "%d rows, %s", model->vocabulary_size,
                  model->tied ? "head tied to the embedding" : "with a head of its own");
    print_list(stream, "missing", report->findings.missing);
    print_list(stream, "unfit", report->findings.unfit);
    print_list(stream, "not used", report->findings.surplus);
}

int model_report_print_tokenizer(const struct model *target, FILE *stream, struct error *error)
{
    char *path = file_join(target->folder, "tokenizer.json");
    struct tokenizer *tokenizer = tokenizer_open(path, error);
    free(path);
    if (!tokenizer)
        return -1;
    int size = tokenizer_size(tokenizer), padding = target->vocabulary_size - size;
    if (padding >= 0)
        print_row(stream, "tokenizer", "%d entries; %d rows of padding, never chosen", size, padding);
    else
        print_row(stream, "tokenizer", "%d entries, %d more than the model has rows", size, -padding);
    for (int i = 0; i < target->end_token_count; i++) {
        char *text = tokenizer_decode(tokenizer, &target->end_tokens[i], 1, false, NULL);
        print_row(stream, i ? "" : "end tokens", "%d %s", target->end_tokens[i], text);
        free(text);
    }
    if (target->end_token_count == 0)
        print_row(stream, "end tokens", "none: each answer takes all tokens asked for");
    tokenizer_close(tokenizer);
    return 0;
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static int64_t cache_bytes(const struct model *model, int size)
{
    return model ? (int64_t)2 * model->layer_count * model->kv_head_count * model->head_size * size : 0;
}

void model_report_print_memory(const struct model *target, const struct model *drafter, int size, int context,
                               FILE *stream)
{
    const double mebibyte = 1 << 20;
    int64_t weights[] = {model_parameter_count(target) * size, drafter ? model_parameter_count(drafter) * size : 0};
    int64_t cache[] = {cache_bytes(target, size), cache_bytes(drafter, size)};
    fprintf(stream, "memory for %d tokens, in %s\n", context, size == 2 ? "bfloat16" : "float32");
    fprintf(stream, "  %-12s %14s %16s %14s %14s\n", "", "weights MiB", "cache B/token", "cache MiB", "total MiB");
    for (int i = 0; i < (drafter ? 2 : 1); i++) {
        double caches = (double)cache[i] * context / mebibyte, held = (double)weights[i] / mebibyte;
        fprintf(stream, "  %-12s %14.1f %16lld %14.1f %14.1f\n", i ? "drafter" : "target", held, (long long)cache[i],
                caches, held + caches);
    }
    if (drafter) {
        double caches = (double)(cache[0] + cache[1]) * context / mebibyte,
               held = (double)(weights[0] + weights[1]) / mebibyte;
        fprintf(stream, "  %-12s %14.1f %16lld %14.1f %14.1f\n", "both", held, (long long)(cache[0] + cache[1]), caches,
                held + caches);
    }
}
