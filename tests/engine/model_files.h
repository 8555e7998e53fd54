/* Model folders small enough to be written for each case: raw safetensors files, and a tiny target and drafter whose
 * configs and tensors a test changes before they are written. */
#ifndef TESTS_ENGINE_MODEL_FILES_H
#define TESTS_ENGINE_MODEL_FILES_H

#include <jansson.h>
#include <stddef.h>

/* JSON with ' for ". A new reference; ends the test where it is none. */
json_t *model_files_json(const char *text);

/* A safetensors file of this header, ' for ", and these bytes. */
void model_files_write_raw(const char *folder, const char *name, const char *header, const void *data, size_t size);

/* Target: hidden size 8, 6 layers of 2 heads over 1 key-value head of size 4, MLP of 12, 16 tokens, untied, end token
 * 0. Drafter: the same with 2 layers, block 4, features of layers 1 and 3, mask token 3. New references. */
json_t *model_files_target_config(void);
json_t *model_files_drafter_config(void);

/* The shapes by name of what the config asks for: of a hybrid, whose full_attention_interval must be there, too. A new
 * reference. */
json_t *model_files_tensors(const json_t *config);

/* Writes config.json (NULL: none), and model.safetensors with tensors of one type; element i of each is i / 8. */
void model_files_write(const char *folder, const json_t *config, const json_t *tensors, const char *dtype);

/* The same with random elements in float32, such as leave a model's numbers of usual size: vectors near 1, rows of
 * matrices so that products keep the size of what they read; decays near 0.95. */
void model_files_write_random(const char *folder, const json_t *config, const json_t *tensors, unsigned seed);

/* The same as model_files_write() for weights alone, as a file of that name. */
void model_files_write_weights(const char *folder, const char *name, const json_t *tensors, const char *dtype);

#endif
