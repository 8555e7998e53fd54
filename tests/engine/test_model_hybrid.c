/* Folders of hybrids: the language model of a multimodal one, its parts that are passed over, and what is refused. */
#include "collect/engine/model.h"
#include "collect/engine/model_memory.h"
#include "tests/engine/model_files.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Hidden size 8, 4 layers of which the last attends; 2 value heads of size 4 over 1 key head of size 2. */
static const char text_config[] =
    "{'model_type': 'qwen3_5_text', 'hidden_size': 8, 'intermediate_size': 12, 'num_hidden_layers': 4, "
    "'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 16, 'vocab_size': 16, "
    "'max_position_embeddings': 64, 'eos_token_id': 0, 'linear_num_key_heads': 1, 'linear_num_value_heads': 2, "
    "'linear_key_head_dim': 2, 'linear_value_head_dim': 4, 'linear_conv_kernel_dim': 3, 'full_attention_interval': 4, "
    "'attn_output_gate': true, 'mamba_ssm_dtype': 'float32', 'rope_parameters': {'rope_type': 'default', "
    "'rope_theta': 1e7, 'partial_rotary_factor': 0.25, 'mrope_section': [1, 1, 0], 'mrope_interleaved': true}}";

static const char shared_shapes[] = "{'input_layernorm.weight': [8], 'post_attention_layernorm.weight': [8], "
                                    "'mlp.gate_proj.weight': [12, 8], 'mlp.up_proj.weight': [12, 8], "
                                    "'mlp.down_proj.weight': [8, 12]}";

/* 12 channels: 2 of q, 2 of k, 8 of v. */
static const char recurrent_shapes[] =
    "{'linear_attn.in_proj_qkv.weight': [12, 8], 'linear_attn.in_proj_z.weight': [8, 8], "
    "'linear_attn.in_proj_b.weight': [2, 8], 'linear_attn.in_proj_a.weight': [2, 8], 'linear_attn.conv1d.weight': "
    "[12, 1, 3], 'linear_attn.A_log': [2], 'linear_attn.dt_bias': [2], 'linear_attn.norm.weight': [4], "
    "'linear_attn.out_proj.weight': [8, 8]}";

/* Two heads of 16, each with its gate. */
static const char attention_shapes[] =
    "{'self_attn.q_proj.weight': [64, 8], 'self_attn.k_proj.weight': [16, 8], 'self_attn.v_proj.weight': [16, 8], "
    "'self_attn.o_proj.weight': [8, 32], 'self_attn.q_norm.weight': [16], 'self_attn.k_norm.weight': [16]}";

enum {
    SHARED = 8 + 8 + 3 * 96,
    RECURRENT = SHARED + 96 + 64 + 16 + 16 + 36 + 2 + 2 + 4 + 64,
    ATTENTION = SHARED + 512 + 128 + 128 + 256 + 16 + 16,
    PARAMETERS = 3 * RECURRENT + ATTENTION + 8 + 2 * 128
};

static void add_shapes(json_t *tensors, const char *shapes, const char *prefix)
{
    json_t *list = model_files_json(shapes), *shape;
    const char *name;
    json_object_foreach(list, name, shape)
    {
        char *whole = xformat("%s%s", prefix, name);
        json_object_set(tensors, whole, shape);
        free(whole);
    }
    json_decref(list);
}

static json_t *make_tensors(const char *stem)
{
    json_t *tensors = json_object();
    add_shapes(tensors, "{'embed_tokens.weight': [16, 8], 'norm.weight': [8]}", stem);
    add_shapes(tensors, "{'lm_head.weight': [16, 8]}", "");
    for (int i = 0; i < 4; i++) {
        char *prefix = xformat("%slayers.%d.", stem, i);
        add_shapes(tensors, shared_shapes, prefix);
        add_shapes(tensors, i == 3 ? attention_shapes : recurrent_shapes, prefix);
        free(prefix);
    }
    return tensors;
}

static void update(json_t *object, const char *changes)
{
    json_t *changed = model_files_json(changes);
    json_object_update(object, changed);
    json_decref(changed);
}

/* A folder with the text model's keys at the top, or (nested) in text_config with `changes` beside it. */
static char *write_folder(bool nested, const char *changes, const char *stem, const char *more_tensors)
{
    char *folder = fixture_make_folder();
    json_t *text = model_files_json(text_config), *config = nested ? json_object() : json_incref(text);
    if (nested)
        json_object_set(config, "text_config", text);
    update(config, changes);
    json_t *tensors = make_tensors(stem);
    update(tensors, more_tensors);
    model_files_write(folder, config, tensors, "BF16");
    json_decref(tensors);
    json_decref(config);
    json_decref(text);
    return folder;
}

static void check_model(const struct model *model)
{
    static const enum model_layer_kind kinds[] = {MODEL_RECURRENT, MODEL_RECURRENT, MODEL_RECURRENT, MODEL_ATTENTION};
    const struct model_recurrence sizes = {1, 2, 2, 4, 3};
    assert_memory_equal(model->kinds, kinds, sizeof kinds);
    assert_memory_equal(&model->recurrence, &sizes, sizeof sizes);
    assert_int_equal(model->recurrent_count, 3);
    assert_int_equal(model->rotary_size, 4);
    assert_float_equal(model->rope_theta, 1e7, 0);
    assert_true(model->zero_centred_norms && model->gated_attention);
    assert_int_equal(model->layers[1].recurrent.convolution->shape[2], 3);
    assert_null(model->layers[1].q);
    assert_null(model->layers[3].recurrent.qkv);
    assert_int_equal(model_parameter_count(model), PARAMETERS);
    assert_ptr_not_equal(model->head, model->embedding);
}

static void reads_a_text_model_alone_or_within_another(void **state)
{
    (void)state;
    static const struct {
        bool nested;
        const char *changes, *stem;
    } cases[] = {
        {false, "{}", "model."},
        {false, "{'model_type': 'qwen3_5'}", "model.language_model."},
        {true, "{'model_type': 'qwen3_5', 'tie_word_embeddings': false}", "model.language_model."},
        {true, "{'model_type': 'qwen3_5', 'hidden_size': 99}", "model."},
        {false, "{'full_attention_interval': null}", "model."},
        {false, "{'rope_parameters': null, 'rope_theta': 1e7, 'output_gate_type': 'swish'}", "model."},
        {false,
         "{'full_attention_interval': 1, 'layer_types': ['linear_attention', 'linear_attention', "
         "'linear_attention', 'full_attention']}",
         "model."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = write_folder(cases[i].nested, cases[i].changes, cases[i].stem, "{}");
        struct error error = {0};
        struct model *model = model_open_target(folder, &error);
        assert_string_equal(error.message, "");
        check_model(model);
        assert_null(model_list_skipped(model));
        model_close(model);
        fixture_remove_folder(folder);
    }
}

static void passes_over_vision_and_prediction(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'model.visual.patch_embed.weight': [4, 3, 2], 'model.visual.norm.bias': [4], 'mtp.fc.weight': [8, 16]}",
         "2 of vision, 1 of multi-token prediction"},
        {"{'visual.norm.bias': [4]}", "1 of vision"},
        {"{'mtp.norm.weight': [8], 'mtp.fc.weight': [8, 16]}", "2 of multi-token prediction"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = write_folder(true, "{}", "model.language_model.", cases[i][0]);
        struct error error = {0};
        struct model_findings findings;
        struct model *model = model_survey(folder, NULL, &findings, &error);
        assert_string_equal(error.message, "");
        char *skipped = model_list_skipped(model);
        assert_string_equal(skipped, cases[i][1]);
        assert_int_equal(json_array_size(findings.surplus), 0);
        check_model(model);
        free(skipped);
        model_findings_free(&findings);
        model_close(model);
        fixture_remove_folder(folder);
    }
}

static void refuses_by_key_and_value(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'model_type': 'qwen3_5_moe_text'}", "\"model_type\" is qwen3_5_moe_text; supported: qwen3, qwen3_5"},
        {"{'model_type': 'qwen3_next'}", "\"model_type\" is qwen3_next; supported: qwen3, qwen3_5"},
        {"{'text_config': 7}", "\"text_config\" must be an object"},
        {"{'text_config': {'model_type': 'qwen3_5_text', 'tie_word_embeddings': true}, 'tie_word_embeddings': false}",
         "\"tie_word_embeddings\" is true in one place and false in another"},
        {"{'attn_output_gate': false}", "\"attn_output_gate\" is false; supported: true"},
        {"{'attn_output_gate': 'yes'}", "\"attn_output_gate\" must be true or false"},
        {"{'output_gate_type': 'sigmoid'}", "\"output_gate_type\" is sigmoid; supported: swish, silu"},
        {"{'mamba_ssm_dtype': 'bfloat16'}", "\"mamba_ssm_dtype\" is bfloat16; supported: float32"},
        {"{'linear_num_key_heads': null}", "\"linear_num_key_heads\" is missing"},
        {"{'linear_num_key_heads': 0}", "\"linear_num_key_heads\" is 0; it must be from 1 to 4096"},
        {"{'linear_num_value_heads': 4097}", "\"linear_num_value_heads\" is 4097; it must be from 1 to 4096"},
        {"{'linear_num_key_heads': 2, 'linear_num_value_heads': 3}",
         "\"linear_num_value_heads\" is 3, no multiple of \"linear_num_key_heads\", 2"},
        {"{'linear_key_head_dim': 2000}", "\"linear_key_head_dim\" is 2000; it must be from 1 to 1024"},
        {"{'linear_value_head_dim': -4}", "\"linear_value_head_dim\" is -4; it must be from 1 to 1024"},
        {"{'linear_value_head_dim': '4'}", "\"linear_value_head_dim\" must be a whole number"},
        {"{'linear_conv_kernel_dim': 1}", "\"linear_conv_kernel_dim\" is 1; it must be from 2 to 16"},
        {"{'linear_conv_kernel_dim': 17}", "\"linear_conv_kernel_dim\" is 17; it must be from 2 to 16"},
        {"{'full_attention_interval': 0}", "\"full_attention_interval\" is 0; it must be from 1 to 512"},
        {"{'layer_types': ['linear_attention', 'linear_attention', 'sliding_attention', 'full_attention']}",
         "\"layer_types\" is sliding_attention; supported: full_attention, linear_attention"},
        {"{'layer_types': ['linear_attention']}", "\"layer_types\" has 1 entries for 4 layers"},
        {"{'rope_parameters': {'rope_theta': 1e7, 'partial_rotary_factor': 0.2}}", "\"partial_rotary_factor\" is 0.2"},
        {"{'rope_parameters': {'rope_theta': 1e7, 'partial_rotary_factor': 0}}", "\"partial_rotary_factor\" is 0"},
        {"{'rope_parameters': {'rope_theta': 1e7, 'partial_rotary_factor': 1e300}}",
         "\"partial_rotary_factor\" is 1e+300"},
        {"{'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e7}}", "\"rope_type\" is yarn; supported: default"},
        {"{'quantization_config': {'quant_method': 'fp8'}}", "\"quantization_config\" is present"},
        {"{'num_attention_heads': 4}",
         "tensor \"model.layers.3.self_attn.q_proj.weight\" is [64, 8]; config.json asks for [128, 8]"},
        {"{'linear_num_value_heads': 1}",
         "tensor \"model.layers.0.linear_attn.in_proj_qkv.weight\" is [12, 8]; config.json asks for [8, 8]"},
        {"{'linear_conv_kernel_dim': 4}",
         "tensor \"model.layers.0.linear_attn.conv1d.weight\" is [12, 1, 3]; config.json asks for [12, 1, 4]"},
        {"{'full_attention_interval': 2}", "tensor \"model.layers.1.self_attn.q_proj.weight\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = write_folder(false, cases[i][0], "model.", "{}");
        struct error error = {0};
        struct model *model = model_open_target(folder, &error);
        if (model || strncmp(error.message, folder, strlen(folder)) != 0 || !strstr(error.message, cases[i][1]))
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i][0], cases[i][1], error.message);
        assert_null(strchr(error.message, '\n'));
        fixture_remove_folder(folder);
    }
}

/* The memory of Qwen3.5-27B's sizes, which was worked out and seen elsewhere: 150,994,944 bytes of states and 2,949,120
 * of windows a session, 65,536 bytes of keys and values a position; a node 20,480 bytes of channels and 96 floats in
 * each of 48 layers. */
static void knows_what_a_session_takes(void **state)
{
    (void)state;
    char *folder = write_folder(false, "{}", "model.", "{}");
    struct error error = {0};
    struct model *model = model_open_target(folder, &error);
    assert_string_equal(error.message, "");
    model->layer_count = 64;
    model->recurrent_count = 48;
    model->kv_head_count = 4;
    model->head_size = 256;
    model->recurrence = (struct model_recurrence){16, 48, 128, 128, 4};
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        const struct model_memory memory = model_memory(model, 2, ranks);
        assert_int_equal(memory.state, 150994944);
        assert_int_equal(memory.window, 2949120);
        assert_int_equal(memory.node, 48 * (20480 + 96 * 4));
        assert_int_equal(memory.position,
                         ranks <= 4 ? 65536 : 2 * 65536); /* two ranks share a head, and both have it */
        assert_int_equal(memory.weights, 2 * PARAMETERS);
        assert_int_equal(model_memory_of_session(&memory, 10, 0), 153944064 + 10 * memory.position);
    }
    assert_true(48 * (20480 + 96 * 4) < 2 << 20);
    model_close(model);
    fixture_remove_folder(folder);
}

static void heads_must_divide_over_ranks(void **state)
{
    (void)state;
    char *folder = write_folder(false, "{}", "model.", "{}");
    struct error error = {0};
    struct model *model = model_open_target(folder, &error);
    assert_int_equal(model_check_ranks(model, 1, &error), 0);
    assert_int_equal(model_check_ranks(model, 2, &error), -1);
    assert_non_null(strstr(error.message, ": 1 recurrent key heads do not divide over 2 ranks"));
    model_close(model);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_text_model_alone_or_within_another),
        cmocka_unit_test(passes_over_vision_and_prediction),
        cmocka_unit_test(refuses_by_key_and_value),
        cmocka_unit_test(knows_what_a_session_takes),
        cmocka_unit_test(heads_must_divide_over_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
