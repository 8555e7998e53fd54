#include "tests/gpu/sized_models.h"

#include "tests/engine/model_files.h"

static void set(json_t *config, const char *key, int value)
{
    json_object_set_new(config, key, json_integer(value));
}

static json_t *sized(json_t *config, const struct sizes *sizes)
{
    set(config, "hidden_size", sizes->hidden);
    set(config, "intermediate_size", sizes->inner);
    set(config, "num_attention_heads", sizes->heads);
    set(config, "num_key_value_heads", sizes->kv_heads);
    set(config, "head_dim", sizes->head_size);
    set(config, "vocab_size", sizes->vocabulary);
    set(config, "max_position_embeddings", 4096);
    return config;
}

void sized_models_write(const struct sizes *sizes, const char *target, const char *drafter)
{
    json_t *own[] = {model_files_json(sizes->target), model_files_json(sizes->drafter)};
    json_t *configs[] = {sized(model_files_target_config(), sizes), sized(model_files_drafter_config(), sizes)};
    set(configs[1], "block_size", sizes->block);
    for (unsigned i = 0; i < 2; i++) {
        json_object_update(configs[i], own[i]);
        json_t *tensors = model_files_tensors(configs[i]);
        model_files_write_random(i == 0 ? target : drafter, configs[i], tensors, 11 + i);
        json_decref(tensors);
        json_decref(configs[i]);
        json_decref(own[i]);
    }
}
