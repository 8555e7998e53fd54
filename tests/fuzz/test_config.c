/* config.json, of a target and of a drafter, and generation_config.json, beside tiny weights */
#include "collect/base/json.h"
#include "collect/model_report.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/config";
const int fuzz_mutations = 10000;

static const char config[] =
    "{\"model_type\":\"qwen3\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":4,\"rope_theta\":10000.0,"
    "\"max_position_embeddings\":64,\"tie_word_embeddings\":true,\"eos_token_id\":0}";

static size_t add_tensor(json_t *header, const char *name, size_t start, int rows, int columns)
{
    size_t end = start + (size_t)(rows * (columns ? columns : 1)) * 2;
    json_t *shape = strstr(name, "conv1d") ? json_pack("[i,i,i]", rows, 1, columns)
                    : columns              ? json_pack("[i,i]", rows, columns)
                                           : json_pack("[i]", rows);
    json_set(header, name,
             json_pack("{s:s,s:o,s:[I,I]}", "dtype", "BF16", "shape", shape, "data_offsets", (json_int_t)start,
                       (json_int_t)end));
    return end;
}

static size_t add_layer(json_t *header, const char *prefix, int layer, size_t end)
{
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {{"input_layernorm.weight", 8, 0},
                 {"post_attention_layernorm.weight", 8, 0},
                 {"self_attn.q_proj.weight", 8, 8},
                 {"self_attn.k_proj.weight", 4, 8},
                 {"self_attn.v_proj.weight", 4, 8},
                 {"self_attn.o_proj.weight", 8, 8},
                 {"self_attn.q_norm.weight", 4, 0},
                 {"self_attn.k_norm.weight", 4, 0},
                 {"mlp.gate_proj.weight", 12, 8},
                 {"mlp.up_proj.weight", 12, 8},
                 {"mlp.down_proj.weight", 8, 12},
                 {"linear_attn.in_proj_qkv.weight", 12, 8},
                 {"linear_attn.in_proj_z.weight", 8, 8},
                 {"linear_attn.in_proj_b.weight", 2, 8},
                 {"linear_attn.in_proj_a.weight", 2, 8},
                 {"linear_attn.conv1d.weight", 12, 3},
                 {"linear_attn.A_log", 2, 0},
                 {"linear_attn.dt_bias", 2, 0},
                 {"linear_attn.norm.weight", 4, 0},
                 {"linear_attn.out_proj.weight", 8, 8}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *name = xformat("%slayers.%d.%s", prefix, layer, parts[i].name);
        end = add_tensor(header, name, end, parts[i].rows, parts[i].columns);
        free(name);
    }
    return end;
}

/* One file that suits the target above, drafters of it with two features, and a hybrid of recurrent layers alone. */
static void write_weights(void)
{
    json_t *header = json_object();
    size_t end = 0;
    for (int layer = 0; layer < 2; layer++) {
        end = add_layer(header, "model.", layer, end);
        end = add_layer(header, "", layer, end);
    }
    end = add_tensor(header, "model.embed_tokens.weight", end, 16, 8);
    end = add_tensor(header, "lm_head.weight", end, 16, 8);
    end = add_tensor(header, "model.norm.weight", end, 8, 0);
    end = add_tensor(header, "norm.weight", end, 8, 0);
    end = add_tensor(header, "hidden_norm.weight", end, 8, 0);
    end = add_tensor(header, "fc.weight", end, 8, 16);
    end = add_tensor(header, "mtp.\x1B[2J.weight", end, 1, 0);
    end = add_tensor(header, "\x1B[2J\n", end, 1, 0);
    char *text = json_canonical(header);
    uint64_t length = strlen(text);
    uint8_t *bytes = xcalloc(8 + length + end, 1);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, text, length);
    fuzz_write("model.safetensors", bytes, 8 + length + end);
    free(bytes);
    free(text);
    json_decref(header);
}

static void check_model(const struct model *model)
{
    fuzz_require(model->head_count > 0 && model->kv_head_count > 0 && model->head_count % model->kv_head_count == 0,
                 "heads share key-value heads evenly");
    fuzz_require(model->rope_theta >= 1 && model->rope_theta < 1e38F, "rope_theta is a finite number");
    for (int i = 0; i < model->end_token_count; i++)
        fuzz_require(model->end_tokens[i] >= 0 && model->end_tokens[i] < model->vocabulary_size, "end tokens exist");
    fuzz_require(model->rotary_size >= 2 && model->rotary_size <= model->head_size, "some of a head is rotated");
    for (int i = 0; i < model->layer_count; i++) {
        const struct model_layer *layer = &model->layers[i];
        bool recurrent = model->kinds[i] == MODEL_RECURRENT;
        fuzz_require((recurrent ? layer->recurrent.out : layer->q) && layer->down, "every layer has its weights");
    }
    fuzz_require(!model->recurrent_count || model->recurrence.value_heads % model->recurrence.key_heads == 0,
                 "value heads share key heads evenly");
}

static void check_ranks(const struct model *model)
{
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        struct error error = {0};
        bool divides = model_check_ranks(model, ranks, &error) == 0;
        fuzz_check_answer(divides, &error);
        fuzz_require(!divides || model->head_count % ranks == 0, "heads divide over the ranks");
    }
}

/* What check-model prints of it, whether or not its tensors suit it. whole: they do. */
static void report(const struct model *target, bool whole)
{
    struct model_report report;
    struct error error = {0};
    bool read = model_report_open(fuzz_folder(), target, &report, &error) == 0;
    fuzz_check_answer(read, &error);
    fuzz_require(whole == (read && model_report_is_whole(&report)), "what is listed as whole can be opened");
    if (!read)
        return;
    char *text = NULL, *line, *rest;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    model_report_print(&report, stream);
    model_report_print_memory(target ? target : report.model, target ? report.model : NULL, 2, INT32_MAX - 1, stream);
    fclose(stream);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        fuzz_check_line(line);
    free(text);
    check_ranks(report.model);
    model_report_close(&report);
}

static struct model *open_target(bool must)
{
    struct error error = {0};
    struct model *model = model_open_target(fuzz_folder(), &error);
    fuzz_check_answer(model, &error);
    if (model)
        check_model(model);
    report(NULL, model);
    fuzz_require(model || !must, "a model that is well is opened");
    return model;
}

static void open_drafter(const struct model *target)
{
    struct error error = {0};
    struct model *drafter = model_open_drafter(fuzz_folder(), target, &error);
    fuzz_check_answer(drafter, &error);
    report(target, drafter);
    if (!drafter)
        return;
    check_model(drafter);
    fuzz_require(drafter->block_size >= 2 && drafter->mask_token >= 0, "a drafter has its own keys");
    for (int i = 0; i < drafter->feature_count; i++)
        fuzz_require(drafter->feature_layers[i] >= 0 && drafter->feature_layers[i] < 2, "feature layers exist");
    model_close(drafter);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct model *target;
    if (!target) {
        write_weights();
        fuzz_write("config.json", config, strlen(config));
        fuzz_write("generation_config.json", "{}", 2);
        target = open_target(true);
    }
    fuzz_write("config.json", bytes, size);
    model_close(open_target(false));
    open_drafter(target);
    fuzz_write("config.json", config, strlen(config));
    fuzz_write("generation_config.json", bytes, size);
    model_close(open_target(false));
    fuzz_write("generation_config.json", "{}", 2);
    return 0;
}
