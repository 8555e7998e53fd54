#include "tests/engine/model_files.h"

#include "collect/base/file.h"
#include "collect/engine/bfloat16.h"
#include "tests/record/fixture.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *double_quotes(const char *text)
{
    char *copy = xstrdup(text);
    for (char *at = copy; (at = strchr(at, '\''));)
        *at = '"';
    return copy;
}

json_t *model_files_json(const char *text)
{
    char *quoted = double_quotes(text);
    json_error_t error;
    json_t *value = json_loads(quoted, JSON_DECODE_ANY, &error);
    if (!value)
        die("%s: %s", text, error.text);
    free(quoted);
    return value;
}

static void write_file(const char *folder, const char *name, const char *header, const void *data, size_t size)
{
    char *path = file_join(folder, name);
    uint64_t length = strlen(header);
    char *bytes = xmalloc(8 + length + size);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    if (size)
        memcpy(bytes + 8 + length, data, size);
    fixture_write(path, bytes, 8 + length + size);
    free(bytes);
    free(path);
}

void model_files_write_raw(const char *folder, const char *name, const char *header, const void *data, size_t size)
{
    char *quoted = double_quotes(header);
    write_file(folder, name, quoted, data, size);
    free(quoted);
}

json_t *model_files_target_config(void)
{
    return model_files_json(
        "{'model_type': 'qwen3', 'hidden_size': 8, 'intermediate_size': 12, 'num_hidden_layers': 6, "
        "'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 4, 'vocab_size': 16, "
        "'max_position_embeddings': 64, 'rope_theta': 10000, 'eos_token_id': 0}");
}

json_t *model_files_drafter_config(void)
{
    json_t *config = model_files_target_config();
    json_t *own = model_files_json("{'num_hidden_layers': 2, 'num_target_layers': 6, 'block_size': 4, "
                                   "'dflash_config': {'target_layer_ids': [1, 3], 'mask_token_id': 3}}");
    json_object_update(config, own);
    json_decref(own);
    return config;
}

static json_int_t number(const json_t *config, const char *key)
{
    return json_integer_value(json_object_get(config, key));
}

static void add(json_t *tensors, const char *name, json_int_t rows, json_int_t columns)
{
    json_object_set_new(tensors, name, columns ? json_pack("[I,I]", rows, columns) : json_pack("[I]", rows));
}

struct part {
    const char *name;
    json_int_t rows, columns;
};

static void add_parts(json_t *tensors, const char *prefix, int layer, const struct part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[128];
        snprintf(name, sizeof name, "%slayers.%d.%s", prefix, layer, parts[i].name);
        add(tensors, name, parts[i].rows, parts[i].columns);
    }
}

/* Of a hybrid, a query head has its gate beside it. */
static void add_attention(json_t *tensors, const char *prefix, int layer, const json_t *config)
{
    json_int_t hidden = number(config, "hidden_size"), size = number(config, "head_dim"),
               query = number(config, "num_attention_heads") * size, key = number(config, "num_key_value_heads") * size;
    bool gated = json_object_get(config, "linear_num_key_heads") != NULL;
    const struct part parts[] = {
        {"self_attn.q_proj.weight", gated ? 2 * query : query, hidden},
        {"self_attn.k_proj.weight", key, hidden},
        {"self_attn.v_proj.weight", key, hidden},
        {"self_attn.o_proj.weight", hidden, query},
        {"self_attn.q_norm.weight", size, 0},
        {"self_attn.k_norm.weight", size, 0},
    };
    add_parts(tensors, prefix, layer, parts, sizeof parts / sizeof *parts);
}

static void add_recurrence(json_t *tensors, const char *prefix, int layer, const json_t *config)
{
    json_int_t hidden = number(config, "hidden_size"), heads = number(config, "linear_num_value_heads"),
               size = number(config, "linear_value_head_dim"), values = heads * size;
    json_int_t keys = number(config, "linear_num_key_heads") * number(config, "linear_key_head_dim");
    char name[128];
    const struct part parts[] = {
        {"linear_attn.in_proj_qkv.weight", 2 * keys + values, hidden},
        {"linear_attn.in_proj_z.weight", values, hidden},
        {"linear_attn.in_proj_b.weight", heads, hidden},
        {"linear_attn.in_proj_a.weight", heads, hidden},
        {"linear_attn.A_log", heads, 0},
        {"linear_attn.dt_bias", heads, 0},
        {"linear_attn.norm.weight", size, 0},
        {"linear_attn.out_proj.weight", hidden, values},
    };
    add_parts(tensors, prefix, layer, parts, sizeof parts / sizeof *parts);
    snprintf(name, sizeof name, "%slayers.%d.linear_attn.conv1d.weight", prefix, layer);
    json_object_set_new(tensors, name,
                        json_pack("[I,i,I]", 2 * keys + values, 1, number(config, "linear_conv_kernel_dim")));
}

static void add_layer(json_t *tensors, const char *prefix, int layer, const json_t *config)
{
    json_int_t hidden = number(config, "hidden_size"), inner = number(config, "intermediate_size"),
               interval = number(config, "full_attention_interval");
    const struct part parts[] = {
        {"input_layernorm.weight", hidden, 0},   {"post_attention_layernorm.weight", hidden, 0},
        {"mlp.gate_proj.weight", inner, hidden}, {"mlp.up_proj.weight", inner, hidden},
        {"mlp.down_proj.weight", hidden, inner},
    };
    add_parts(tensors, prefix, layer, parts, sizeof parts / sizeof *parts);
    if (interval && (layer + 1) % interval)
        add_recurrence(tensors, prefix, layer, config);
    else
        add_attention(tensors, prefix, layer, config);
}

json_t *model_files_tensors(const json_t *config)
{
    json_t *tensors = json_object();
    json_int_t hidden = number(config, "hidden_size"), vocabulary = number(config, "vocab_size");
    int drafter = json_object_get(config, "block_size") != NULL;
    if (drafter) {
        add(tensors, "norm.weight", hidden, 0);
        add(tensors, "hidden_norm.weight", hidden, 0);
        add(tensors, "fc.weight", hidden, 2 * hidden);
    } else {
        add(tensors, "model.norm.weight", hidden, 0);
        add(tensors, "model.embed_tokens.weight", vocabulary, hidden);
        add(tensors, "lm_head.weight", vocabulary, hidden);
    }
    for (int i = 0; i < number(config, "num_hidden_layers"); i++)
        add_layer(tensors, drafter ? "" : "model.", i, config);
    return tensors;
}

/* The bits of i / 8 for i below 128. */
static void store(unsigned char *out, size_t i, const char *dtype)
{
    float value = (float)i / 8;
    uint16_t half = bfloat16_from_float(value);
    if (strcmp(dtype, "F32") == 0) {
        memcpy(out + 4 * i, &value, 4);
        return;
    }
    if (strcmp(dtype, "F16") == 0) {
        uint32_t bits;
        memcpy(&bits, &value, 4);
        half = (uint16_t)(bits ? (bits >> 13) - (112 << 10) : 0);
    }
    memcpy(out + 2 * i, &half, 2);
}

static size_t elements_of(const json_t *shape)
{
    size_t elements = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        elements *= (size_t)json_integer_value(json_array_get(shape, i));
    return elements;
}

/* The header of tensors of `width` bytes an element one after another; *size: of all. free() it. */
static char *header_of(const json_t *tensors, const char *dtype, size_t width, size_t *size)
{
    json_t *header = json_object(), *shape;
    const char *tensor;
    *size = 0;
    json_object_foreach((json_t *)tensors, tensor, shape)
    {
        size_t bytes = elements_of(shape) * width;
        json_object_set_new(header, tensor,
                            json_pack("{s:s, s:O, s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                                      (json_int_t)*size, (json_int_t)(*size + bytes)));
        *size += bytes;
    }
    char *text = json_dumps(header, 0);
    json_decref(header);
    return text;
}

void model_files_write_weights(const char *folder, const char *name, const json_t *tensors, const char *dtype)
{
    size_t size, width = strcmp(dtype, "F32") == 0 ? 4 : 2;
    char *header = header_of(tensors, dtype, width, &size);
    unsigned char *data = xmalloc(size), *at = data;
    const char *tensor;
    json_t *shape;
    json_object_foreach((json_t *)tensors, tensor, shape)
    {
        size_t elements = elements_of(shape);
        for (size_t i = 0; i < elements; i++)
            store(at, i, dtype);
        at += elements * width;
    }
    write_file(folder, name, header, data, size);
    free(header);
    free(data);
}

static void write_config(const char *folder, const json_t *config)
{
    char *path = file_join(folder, "config.json"), *text = json_dumps(config, 0);
    fixture_write(path, text, strlen(text));
    free(text);
    free(path);
}

void model_files_write(const char *folder, const json_t *config, const json_t *tensors, const char *dtype)
{
    if (config)
        write_config(folder, config);
    model_files_write_weights(folder, "model.safetensors", tensors, dtype);
}

/* From -1 to 1, by a linear congruential generator. */
static float draw(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (float)(*random >> 40) * 0x1p-23f - 1.0f;
}

void model_files_write_random(const char *folder, const json_t *config, const json_t *tensors, unsigned seed)
{
    size_t size;
    char *header = header_of(tensors, "F32", sizeof(float), &size);
    float *data = xmalloc(size), *at = data;
    uint64_t random = seed;
    const char *tensor;
    json_t *shape;
    json_object_foreach((json_t *)tensors, tensor, shape)
    {
        bool vector = json_array_size(shape) == 1;
        float mean = strstr(tensor, "A_log") ? -3 : 1;
        float columns = (float)json_integer_value(json_array_get(shape, json_array_size(shape) - 1));
        for (size_t i = 0, elements = elements_of(shape); i < elements; i++)
            *at++ = vector ? mean + draw(&random) / 4 : draw(&random) * sqrtf(3 / columns);
    }
    write_config(folder, config);
    write_file(folder, "model.safetensors", header, data, size);
    free(header);
    free(data);
}
