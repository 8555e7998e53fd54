#include "collect/engine/model.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/engine/model_parts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static struct model *open_model(const char *folder, const struct model *target, struct model_findings *findings,
                                struct error *error)
{
    struct model *model = xcalloc(1, sizeof *model);
    model->folder = xstrdup(folder);
    if (!model_read_config(model, target, error) && (model->weights = safetensors_open(folder, error)) &&
        !model_find_weights(model, target != NULL, findings, error))
        return model;
    model_close(model);
    return NULL;
}

struct model *model_open_target(const char *folder, struct error *error)
{
    return open_model(folder, NULL, NULL, error);
}

struct model *model_open_drafter(const char *folder, const struct model *target, struct error *error)
{
    return open_model(folder, target, NULL, error);
}

struct model *model_survey(const char *folder, const struct model *target, struct model_findings *findings,
                           struct error *error)
{
    *findings = (struct model_findings){json_array(), json_array(), json_array()};
    struct model *model = open_model(folder, target, findings, error);
    if (!model)
        model_findings_free(findings);
    return model;
}

void model_findings_free(struct model_findings *findings)
{
    json_decref(findings->missing);
    json_decref(findings->unfit);
    json_decref(findings->surplus);
    *findings = (struct model_findings){0};
}

void model_close(struct model *model)
{
    if (!model)
        return;
    safetensors_close(model->weights);
    free(model->layers);
    free(model->kinds);
    free(model->windows);
    free(model->folder);
    free(model);
}

int64_t model_parameter_count(const struct model *model)
{
    int64_t count = 0;
    for (int i = 0; i < safetensors_count(model->weights); i++) {
        const struct tensor *tensor = safetensors_at(model->weights, i);
        bool counted = !model->tied || strcmp(tensor->name, "lm_head.weight") != 0;
        if (counted && model_find_skipped(tensor->name) == MODEL_PART_NONE)
            count += tensor->elements;
    }
    return count;
}

char *model_list_skipped(const struct model *model)
{
    int counts[MODEL_PART_COUNT] = {0};
    for (int i = 0; i < safetensors_count(model->weights); i++)
        counts[model_find_skipped(safetensors_at(model->weights, i)->name)]++;
    int vision = counts[MODEL_PART_VISION], prediction = counts[MODEL_PART_PREDICTION];
    if (vision && prediction)
        return xformat("%d of vision, %d of multi-token prediction", vision, prediction);
    if (vision)
        return xformat("%d of vision", vision);
    return prediction ? xformat("%d of multi-token prediction", prediction) : NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* SHA-256 of each JSON and safetensors file of the folder, by name. */
static json_t *hash_files(const char *folder, struct error *error)
{
    enum { FILES_MAXIMUM = 8192 };
    char **names = xcalloc(FILES_MAXIMUM, sizeof *names);
    int count = 0;
    json_t *files = json_object();
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory)) && count < FILES_MAXIMUM;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".safetensors") == 0))
            names[count++] = xstrdup(entry->d_name);
    }
    if (directory)
        closedir(directory);
    qsort(names, (size_t)count, sizeof *names, by_text);
    for (int i = 0; i < count; i++) {
        char hex[FILE_HASH_SIZE], *path = file_join(folder, names[i]);
        if (files && file_hash(path, hex, error)) {
            json_decref(files);
            files = NULL;
        } else if (files) {
            json_set(files, names[i], json_string(hex));
        }
        free(path);
        free(names[i]);
    }
    free(names);
    return files;
}

json_t *model_describe(const struct model *model, struct error *error)
{
    json_t *files = hash_files(model->folder, error);
    if (!files)
        return NULL;
    char hex[FILE_HASH_SIZE];
    json_hash(files, hex);
    json_t *description = json_object();
    json_set(description, "path", json_text(model->folder));
    json_set(description, "sha256", json_string(hex));
    json_set(description, "files", files);
    json_set(description, "parameters", json_integer(model_parameter_count(model)));
    json_set(description, "layers", json_integer(model->layer_count));
    json_set(description, "hidden_size", json_integer(model->hidden_size));
    json_set(description, "vocabulary_size", json_integer(model->vocabulary_size));
    json_t *end_tokens = json_array();
    for (int i = 0; i < model->end_token_count; i++)
        json_append(end_tokens, json_integer(model->end_tokens[i]));
    json_set(description, "end_tokens", end_tokens);
    if (model->block_size)
        json_set(description, "block_size", json_integer(model->block_size));
    return description;
}

int model_check_ranks(const struct model *model, int ranks, struct error *error)
{
    const struct {
        const char *what;
        int size;
    } sizes[] = {{"attention heads", model->head_count},
                 {"MLP columns", model->intermediate_size},
                 {"vocabulary rows", model->vocabulary_size},
                 {"hidden columns", model->hidden_size},
                 {"recurrent key heads", model->recurrence.key_heads},
                 {"recurrent value heads", model->recurrence.value_heads}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].size % ranks)
            return fail(error, "%s: %d %s do not divide over %d ranks; choose another tensor_parallel", model->folder,
                        sizes[i].size, sizes[i].what, ranks);
    if (model->kv_head_count % ranks && ranks % model->kv_head_count)
        return fail(error,
                    "%s: %d key-value heads do not divide over %d ranks, nor these over the heads; choose another "
                    "tensor_parallel",
                    model->folder, model->kv_head_count, ranks);
    return 0;
}
