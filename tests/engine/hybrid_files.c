#include "tests/engine/hybrid_files.h"

#include "tests/engine/model_files.h"

void hybrid_write_drafter(const char *folder)
{
    json_t *config = model_files_json(
        "{'model_type': 'qwen3', 'hidden_size': 128, 'intermediate_size': 192, 'num_hidden_layers': 2, "
        "'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 32, 'vocab_size': 512, "
        "'max_position_embeddings': 1024, 'rope_theta': 1e7, 'num_target_layers': 8, 'block_size': 8, "
        "'layer_types': ['sliding_attention', 'full_attention'], 'sliding_window': 20, "
        "'dflash_config': {'target_layer_ids': [1, 7], 'mask_token_id': 3}}");
    json_t *tensors = model_files_tensors(config);
    model_files_write_random(folder, config, tensors, 11);
    json_decref(tensors);
    json_decref(config);
}
