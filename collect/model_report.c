#include "collect/model_report.h"

#include "collect/base/file.h"
#include "collect/engine/model_memory.h"
#include "collect/engine/tokenizer.h"

#include <stdarg.h>
#include <stdlib.h>

#define MEBIBYTE 1048576.0
#define ROW_SIZE 1024 /* of what stands behind a label; the rest of a longer one is cut */
#define NODES 17      /* of a session's tree in the memory plan: b16's */

static void print_row(FILE *stream, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void print_row(FILE *stream, const char *label, const char *format, ...)
{
    char text[ROW_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    make_printable(text);
    fprintf(stream, "  %-16s%s\n", label, text);
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

static void print_layers(const struct model *model, FILE *stream)
{
    const struct model_recurrence *recurrence = &model->recurrence;
    print_row(stream, "layers", "%d, hidden size %d, MLP of %d", model->layer_count, model->hidden_size,
              model->intermediate_size);
    print_row(stream, "attention", "%d heads over %d key-value heads of size %d, rope theta %g", model->head_count,
              model->kv_head_count, model->head_size, (double)model->rope_theta);
    if (model->gated_attention)
        print_row(stream, "", "gated; the first %d of a head are rotated", model->rotary_size);
    if (model->recurrent_count)
        print_row(stream, "recurrence", "%d layers: %d value heads of size %d over %d key heads of size %d",
                  model->recurrent_count, recurrence->value_heads, recurrence->value_size, recurrence->key_heads,
                  recurrence->key_size);
}

static void print_skipped(const struct model *model, FILE *stream)
{
    char *skipped = model_list_skipped(model);
    if (skipped)
        print_row(stream, "passed over", "tensors: %s", skipped);
    free(skipped);
}

void model_report_print(const struct model_report *report, FILE *stream)
{
    const struct model *model = report->model;
    bool drafter = model->block_size > 0;
    fprintf(stream, "%s %s\n", drafter ? "drafter" : "target", model->folder);
    print_row(stream, "family", "%s",
              drafter                  ? "DFlash drafter of Qwen3 layers"
              : model->gated_attention ? "Qwen3.5, hybrid of attention and gated DeltaNet"
                                       : "Qwen3, dense");
    print_layers(model, stream);
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
    print_skipped(model, stream);
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

static void print_weights_and_caches(const char *label, const struct model_memory *memory, int context, FILE *stream)
{
    double caches = (double)memory->position * context / MEBIBYTE, held = (double)memory->weights / MEBIBYTE;
    fprintf(stream, "  %-12s %14.1f %16lld %14.1f %14.1f\n", label, held, (long long)memory->position, caches,
            held + caches);
}

/* What a session takes beside its caches, and how many sessions the machine has room for. */
static void print_sessions(const struct model_memory *target, const struct model_memory *both, int context,
                           FILE *stream)
{
    int64_t available = memory_available(), each = model_memory_of_session(both, context, NODES);
    if (target->state)
        fprintf(stream, "  recurrent layers: %.1f MiB of states and %.1f MiB of windows a session, %.2f MiB a node\n",
                (double)target->state / MEBIBYTE, (double)target->window / MEBIBYTE, (double)target->node / MEBIBYTE);
    fprintf(stream, "  a session of %d tokens, %d of them nodes: %.1f MiB", context, NODES, (double)each / MEBIBYTE);
    if (available >= 0)
        fprintf(stream, "; %lld fit beside the weights in the %lld MiB free here",
                available > both->weights ? (long long)((available - both->weights) / each) : 0,
                (long long)available >> 20);
    fputc('\n', stream);
}

void model_report_print_memory(const struct model *target, const struct model *drafter, int size, int context,
                               FILE *stream)
{
    const struct model_memory first = model_memory(target, size, 1), second = model_memory(drafter, size, 1);
    struct model_memory both = first;
    both.weights += second.weights;
    both.position += second.position;
    fprintf(stream, "memory for %d tokens, in %s\n", context, size == 2 ? "bfloat16" : "float32");
    fprintf(stream, "  %-12s %14s %16s %14s %14s\n", "", "weights MiB", "cache B/token", "cache MiB", "total MiB");
    print_weights_and_caches("target", &first, context, stream);
    if (drafter) {
        print_weights_and_caches("drafter", &second, context, stream);
        print_weights_and_caches("both", &both, context, stream);
    }
    print_sessions(&first, &both, context, stream);
}
