#include "collect/engine/model.h"

#include "collect/base/file.h"
#include "tests/engine/model_files.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Changes of keys (null takes one away) put into the config. */
static json_t *change(json_t *config, const char *changes)
{
    json_t *object = model_files_json(changes), *value;
    const char *key;
    json_object_foreach(object, key, value) json_object_set(config, key, value);
    json_decref(object);
    return config;
}

static void write_model(const char *folder, json_t *config, const char *dtype)
{
    json_t *tensors = model_files_tensors(config);
    model_files_write(folder, config, tensors, dtype);
    json_decref(tensors);
    json_decref(config);
}

static struct model *open_target(const char *folder)
{
    struct error error = {0};
    struct model *model = model_open_target(folder, &error);
    assert_string_equal(error.message, "");
    return model;
}

/* What a changed target, or a changed drafter beside an unchanged target, is refused with; "" where it is taken. */
static void assert_answer(bool drafter, const char *changes, const char *expected)
{
    char *target_folder = fixture_make_folder(), *folder = fixture_make_folder();
    write_model(target_folder, model_files_target_config(), "BF16");
    struct error error = {0};
    struct model *target = NULL, *model;
    if (drafter)
        target = open_target(target_folder);
    json_t *config = drafter ? model_files_drafter_config() : model_files_target_config();
    json_t *tensors = model_files_tensors(config);
    change(config, changes);
    model_files_write(folder, config, tensors, "BF16");
    model = drafter ? model_open_drafter(folder, target, &error) : model_open_target(folder, &error);
    if (*expected ? model || strncmp(error.message, folder, strlen(folder)) != 0 || !strstr(error.message, expected)
                  : !model)
        fail_msg("%s: expected \"%s\", got \"%s\"", changes, expected, error.message);
    assert_null(strchr(error.message, '\n'));
    model_close(model);
    model_close(target);
    json_decref(tensors);
    json_decref(config);
    fixture_remove_folder(folder);
    fixture_remove_folder(target_folder);
}

static void reads_a_target_of_each_type(void **state)
{
    (void)state;
    static const char *const types[] = {"F32", "F16", "BF16"};
    for (int i = 0; i < 3; i++) {
        char *folder = fixture_make_folder();
        write_model(folder, model_files_target_config(), types[i]);
        struct model *model = open_target(folder);
        float values[8];
        tensor_to_float(model->layers[5].up, 88, 8, values);
        assert_float_equal(values[7], 95.0f / 8, 0);
        assert_string_equal(tensor_type_names[model->norm->type], types[i]);
        assert_ptr_not_equal(model->head, model->embedding);
        assert_int_equal(model->hidden_size, 8);
        assert_int_equal(model->end_token_count, 1);
        assert_int_equal(model->windows[5], 0);
        assert_float_equal(model->rope_theta, 10000, 0);
        /* 2 x 16 x 8 + 8, and 6 x (8 + 8 + 2 x 64 + 2 x 32 + 4 + 4 + 3 x 96) */
        assert_int_equal(model_parameter_count(model), 264 + 6 * 504);
        model_close(model);
        fixture_remove_folder(folder);
    }
}

static void a_tied_head_is_the_embedding_whatever_stands_beside_it(void **state)
{
    (void)state;
    char *folder = fixture_make_folder();
    write_model(folder, change(model_files_target_config(), "{'tie_word_embeddings': true}"), "BF16");
    struct model *model = open_target(folder);
    assert_ptr_equal(model->head, model->embedding);
    assert_int_equal(model_parameter_count(model), 264 - 128 + 6 * 504);
    model_close(model);
    fixture_remove_folder(folder);
}

static void takes_config_keys_old_and_new(void **state)
{
    (void)state;
    static const struct {
        const char *changes;
        float theta;
    } cases[] = {
        {"{'rope_theta': 5e6, 'rope_scaling': null}", 5e6f},
        {"{'rope_theta': null, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e6}}", 1e6f},
        {"{'rope_theta': null, 'rope_scaling': {'type': 'default', 'rope_theta': 2e6}}", 2e6f},
        {"{'rope_parameters': {'rope_theta': 1e6, 'partial_rotary_factor': 1.0}}", 1e6f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = fixture_make_folder();
        write_model(folder, change(model_files_target_config(), cases[i].changes), "BF16");
        struct model *model = open_target(folder);
        assert_float_equal(model->rope_theta, cases[i].theta, 0);
        model_close(model);
        fixture_remove_folder(folder);
    }
}

static void gathers_end_tokens_from_both_files(void **state)
{
    (void)state;
    char *folder = fixture_make_folder(), *path = file_join(folder, "generation_config.json");
    write_model(folder, change(model_files_target_config(), "{'eos_token_id': [5, 2]}"), "BF16");
    fixture_write(path, "{\"eos_token_id\": [2, 7], \"top_k\": 20}", 37);
    struct model *model = open_target(folder);
    assert_int_equal(model->end_token_count, 3);
    assert_memory_equal(model->end_tokens, ((int[]){5, 2, 7}), 3 * sizeof(int));
    model_close(model);
    fixture_write(path, "{\"eos_token_id\": 16}", 20);
    struct error error = {0};
    assert_null(model_open_target(folder, &error));
    assert_non_null(strstr(error.message, "generation_config.json: \"eos_token_id\" must be token ids below 16"));
    fixture_write(path, "[]", 2);
    error = (struct error){0};
    assert_null(model_open_target(folder, &error));
    assert_non_null(strstr(error.message, "generation_config.json: must be an object"));
    free(path);
    fixture_remove_folder(folder);
}

static void refuses_targets_by_key_and_value(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'model_type': 'llama'}", "config.json: \"model_type\" is llama; supported: qwen3"},
        {"{'dflash_config': {}}", "\"dflash_config\" is there: this is a DFlash drafter"},
        {"{'model_type': null}", "config.json: \"model_type\" is missing"},
        {"{'hidden_act': 'gelu'}", "\"hidden_act\" is gelu; supported: silu"},
        {"{'attention_bias': true}", "\"attention_bias\" is true; supported: false"},
        {"{'attention_bias': 1}", "\"attention_bias\" must be true or false"},
        {"{'mlp_bias': true}", "\"mlp_bias\" is true; supported: false"},
        {"{'quantization_config': {'quant_method': 'fp8'}}",
         "\"quantization_config\" is present; supported: weights in F32, F16 or BF16"},
        {"{'rope_scaling': {'rope_type': 'yarn', 'factor': 4.0}}", "\"rope_type\" is yarn; supported: default"},
        {"{'rope_scaling': {'type': 'linear', 'factor': 4.0}}", "\"rope_type\" is linear; supported: default"},
        {"{'rope_parameters': {'rope_type': 'llama3'}}", "\"rope_type\" is llama3; supported: default"},
        {"{'rope_scaling': {'rope_type': 'yarn'}, 'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e6}}",
         "\"rope_type\" is yarn; supported: default"},
        {"{'rope_scaling': {'rope_type': 'yarn', 'type': 'default'}}", "\"rope_type\" is yarn; supported: default"},
        {"{'rope_parameters': {'partial_rotary_factor': 0.25}}", "\"partial_rotary_factor\" is not 1"},
        {"{'rope_theta': null}", "\"rope_theta\" is missing or not from 1 to 1e30"},
        {"{'rope_theta': 0.5}", "\"rope_theta\" is missing or not from 1 to 1e30"},
        {"{'use_sliding_window': true, 'sliding_window': 32}", "\"use_sliding_window\" is true; supported: false"},
        {"{'use_sliding_window': false, 'sliding_window': 32}", ""},
        {"{'layer_types': ['full_attention', 'sliding_attention', 'full_attention', 'full_attention', "
         "'full_attention', 'full_attention'], 'sliding_window': 32}",
         "\"layer_types\" is sliding_attention; supported: full_attention"},
        {"{'layer_types': ['linear_attention', 7, 7, 7, 7, 7]}", "\"layer_types\" is linear_attention"},
        {"{'layer_types': [7, 7, 7, 7, 7, 7]}", "\"layer_types\" is not a list of strings"},
        {"{'layer_types': ['full_attention']}", "\"layer_types\" has 1 entries for 6 layers"},
        {"{'eos_token_id': -1}", "config.json: \"eos_token_id\" must be token ids below 16"},
        {"{'eos_token_id': [0, 16]}", "\"eos_token_id\" must be token ids below 16"},
        {"{'eos_token_id': 'end'}", "\"eos_token_id\" must be token ids below 16"},
        {"{'eos_token_id': 4294967296}", "\"eos_token_id\" must be token ids below 16"},
        {"{'eos_token_id': [0, 1, 2, 3, 4, 5, 6, 7, 8]}", "more than 8 end tokens"},
        {"{'hidden_size': 0}", "\"hidden_size\" is 0; it must be from 1 to 1048576"},
        {"{'hidden_size': 2147483648}", "\"hidden_size\" "},
        {"{'num_hidden_layers': 100000}", "\"num_hidden_layers\" is 100000; it must be from 1 to 512"},
        {"{'num_key_value_heads': 3}", "2 heads of size 4 over 3 key-value heads do not divide"},
        {"{'head_dim': 5}", "2 heads of size 5 over 1 key-value heads do not divide"},
        {"{'head_dim': null, 'num_attention_heads': 16}", "16 heads of size 0 over"},
        {"{'rms_norm_eps': 0}", "\"rms_norm_eps\" is 0; it must be from 1e-12 to 1"},
        {"{'vocab_size': 17}", "tensor \"model.embed_tokens.weight\" is [16, 8]; config.json asks for [17, 8]"},
        {"{'intermediate_size': 13}",
         "tensor \"model.layers.0.mlp.gate_proj.weight\" is [12, 8]; config.json asks for [13, 8]"},
        {"{'num_hidden_layers': 7}", "tensor \"model.layers.6.input_layernorm.weight\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answer(false, cases[i][0], cases[i][1]);
}

#define SLIDING "'layer_types': ['sliding_attention', 'full_attention']"
#define SETTINGS "'target_layer_ids': [1, 3], 'mask_token_id': 3"

static void refuses_drafters_by_key_and_value(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", ""},
        {"{'block_size': null, 'dflash_config': {'block_size': 4, " SETTINGS "}}", ""},
        {"{'dflash_config': null, " SETTINGS "}", ""},
        {"{'block_size': null}", "\"block_size\" is missing: not a DFlash drafter?"},
        {"{'block_size': 1}", "\"block_size\" is 1; it must be from 2 to 256"},
        {"{'dflash_config': {}}", "\"mask_token_id\" must be a token id below 16"},
        {"{'dflash_config': {'mask_token_id': 16}}", "\"mask_token_id\" must be a token id below 16"},
        {"{'num_target_layers': 36}", "made for a target of 36 layers; this one has 6"},
        {"{'architectures': ['DFlash2DraftModel']}", "\"architectures\" is DFlash2DraftModel"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': [3, 1]}}", "\"target_layer_ids\" must rise"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': [1, 6]}}", "lie below the target's 6 layers"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': [1, 4294967299]}}", "lie below the target's 6"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': ['a', 3]}}", "\"target_layer_ids\" must rise"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': []}}", "must name 1 to 16 layers"},
        {"{'dflash_config': {'mask_token_id': 3, 'target_layer_ids': [1, 2, 3]}}",
         "tensor \"fc.weight\" is [8, 16]; config.json asks for [8, 24]"},
        {"{'hidden_size': 16}", "hidden size 16 and vocabulary 16; its target "},
        {"{'is_causal': true}", "\"is_causal\" is true beside layers of full_attention"},
        {"{'is_causal': 'no'}", "\"is_causal\" is not a boolean; supported: true, false"},
        {"{'is_neox_style': false}", "\"is_neox_style\" is false; supported: true"},
        {"{'dflash_config': {'attention_sink_bias': true, " SETTINGS "}}", "\"attention_sink_bias\" is true"},
        {"{'input_embedding_scale': 2}", "\"input_embedding_scale\" is not 1; supported: 1"},
        {"{'output_multiplier': 0.5}", "\"output_multiplier\" is not 1; supported: 1"},
        {"{'final_logit_softcapping': 30.0}", "\"final_logit_softcapping\" is present; supported: none"},
        {"{'use_sliding_window': true, 'sliding_window': 8}",
         "\"use_sliding_window\" is true; supported: true beside \"layer_types\""},
        {"{" SLIDING "}", "\"sliding_window\" is missing, which layers of sliding_attention need"},
        {"{" SLIDING ", 'sliding_window': 0}", "\"sliding_window\" is 0; it must be from 1"},
        {"{" SLIDING ", 'sliding_window': 8, 'use_sliding_window': false}",
         "\"use_sliding_window\" is false beside layers of sliding_attention; supported: true"},
        {"{'layer_types': ['sliding_attention', 'chunked_attention'], 'sliding_window': 8}",
         "\"layer_types\" is chunked_attention; supported: full_attention, sliding_attention"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answer(true, cases[i][0], cases[i][1]);
}

static struct model *open_drafter(struct model *target, const char *changes)
{
    char *folder = fixture_make_folder();
    struct error error = {0};
    write_model(folder, change(model_files_drafter_config(), changes), "BF16");
    struct model *drafter = model_open_drafter(folder, target, &error);
    assert_string_equal(error.message, "");
    fixture_remove_folder(folder);
    return drafter;
}

static void reads_a_drafters_windows_and_their_causality(void **state)
{
    (void)state;
    static const struct {
        const char *changes;
        int windows[2];
        bool causal;
    } cases[] = {
        {"{'sliding_window': 8}", {0, 0}, true},
        {"{" SLIDING ", 'sliding_window': 8, 'use_sliding_window': true}", {8, 0}, true},
        {"{" SLIDING ", 'sliding_window': 8, 'is_causal': false}", {8, 0}, false},
        {"{" SLIDING ", 'sliding_window': 8, 'dflash_config': {'causal': false, " SETTINGS "}}", {8, 0}, false},
        {"{" SLIDING ", 'dflash_config': {'use_swa': true, 'swa_window_size': 6, " SETTINGS "}}", {6, 0}, true},
        {"{'layer_types': ['sliding_attention', 'sliding_attention'], 'sliding_window': 9, 'is_causal': true}",
         {9, 9},
         true},
    };
    char *folder = fixture_make_folder();
    write_model(folder, model_files_target_config(), "BF16");
    struct model *target = open_target(folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *drafter = open_drafter(target, cases[i].changes);
        assert_memory_equal(drafter->windows, cases[i].windows, sizeof cases[i].windows);
        assert_int_equal(drafter->causal_windows, cases[i].causal);
        model_close(drafter);
    }
    model_close(target);
    fixture_remove_folder(folder);
}

/* The spread that the authors' drafters of 5 layers have: over 36 layers 1, 9, 17, 25, 33; here 2 layers over 6. */
static void spreads_features_where_the_config_names_none(void **state)
{
    (void)state;
    char *folder = fixture_make_folder();
    write_model(folder, model_files_target_config(), "BF16");
    struct model *target = open_target(folder);
    struct model *drafter = open_drafter(target, "{'dflash_config': {'mask_token_id': 3}}");
    assert_int_equal(drafter->feature_count, 2);
    assert_int_equal(drafter->feature_layers[0], 1);
    assert_int_equal(drafter->feature_layers[1], 3);
    model_close(drafter);
    target->layer_count = 36;
    struct error error = {0};
    char *drafter_folder = fixture_make_folder();
    json_t *config = change(model_files_drafter_config(), "{'num_hidden_layers': 5, 'num_target_layers': 36, "
                                                          "'dflash_config': {'mask_token_id': 3}}");
    json_t *tensors = model_files_tensors(config);
    json_object_set_new(tensors, "fc.weight", json_pack("[i,i]", 8, 40));
    model_files_write(drafter_folder, config, tensors, "BF16");
    drafter = model_open_drafter(drafter_folder, target, &error);
    assert_string_equal(error.message, "");
    assert_memory_equal(drafter->feature_layers, ((int[]){1, 9, 17, 25, 33}), 5 * sizeof(int));
    model_close(drafter);
    model_close(target);
    json_decref(config);
    json_decref(tensors);
    fixture_remove_folder(drafter_folder);
    fixture_remove_folder(folder);
}

static void refuses_tensors_that_do_not_fit(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'model.norm.weight': [8, 1]}", "tensor \"model.norm.weight\" is [8, 1]; config.json asks for [8]"},
        {"{'model.norm.weight': []}", "tensor \"model.norm.weight\" is []; config.json asks for [8]"},
        {"{'lm_head.weight': [8, 16]}", "tensor \"lm_head.weight\" is [8, 16]; config.json asks for [16, 8]"},
    };
    char *folder = fixture_make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        json_t *config = model_files_target_config(), *tensors = change(model_files_tensors(config), cases[i][0]);
        model_files_write(folder, config, tensors, "BF16");
        assert_null(model_open_target(folder, &error));
        char *expected = xformat("%s/model.safetensors: %s", folder, cases[i][1]);
        assert_string_equal(error.message, expected);
        free(expected);
        json_decref(tensors);
        json_decref(config);
    }
    fixture_remove_folder(folder);
}

static void surveys_all_that_is_wrong_at_once(void **state)
{
    (void)state;
    char *folder = fixture_make_folder();
    json_t *config = model_files_target_config(), *tensors = model_files_tensors(config);
    json_object_del(tensors, "model.layers.2.self_attn.q_norm.weight");
    json_object_del(tensors, "lm_head.weight");
    change(tensors, "{'model.norm.weight': [4], 'extra.weight': [2]}");
    model_files_write(folder, config, tensors, "F16");
    struct error error = {0};
    struct model_findings findings;
    struct model *model = model_survey(folder, NULL, &findings, &error);
    assert_non_null(model);
    json_t *expected = model_files_json("{'missing': ['lm_head.weight', 'model.layers.2.self_attn.q_norm.weight'], "
                                        "'surplus': ['extra.weight']}");
    assert_true(json_equal(findings.missing, json_object_get(expected, "missing")));
    assert_true(json_equal(findings.surplus, json_object_get(expected, "surplus")));
    assert_int_equal(json_array_size(findings.unfit), 1);
    assert_string_equal(json_string_value(json_array_get(findings.unfit, 0)),
                        "tensor \"model.norm.weight\" is [4]; config.json asks for [8]");
    assert_null(model->head);
    model_close(model);
    model_findings_free(&findings);
    json_decref(expected);
    json_decref(tensors);
    json_decref(config);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_target_of_each_type),
        cmocka_unit_test(a_tied_head_is_the_embedding_whatever_stands_beside_it),
        cmocka_unit_test(takes_config_keys_old_and_new),
        cmocka_unit_test(gathers_end_tokens_from_both_files),
        cmocka_unit_test(refuses_targets_by_key_and_value),
        cmocka_unit_test(refuses_drafters_by_key_and_value),
        cmocka_unit_test(reads_a_drafters_windows_and_their_causality),
        cmocka_unit_test(spreads_features_where_the_config_names_none),
        cmocka_unit_test(refuses_tensors_that_do_not_fit),
        cmocka_unit_test(surveys_all_that_is_wrong_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
