/* safetensors files: one `model.safetensors`, or shards named by `model.safetensors.index.json`, mapped read-only.
 *
 * Every length, shape, offset and overlap is checked when the folder is opened; afterwards a tensor's bytes may be read
 * without further checks, for as long as nobody cuts the file short: the system then ends the program (SIGBUS), and the
 * attempt at hand counts as incomplete. Or weights that are made as they are read, without a file. */
#ifndef COLLECT_ENGINE_SAFETENSORS_H
#define COLLECT_ENGINE_SAFETENSORS_H

#include "collect/base/error.h"
#include "collect/engine/recipe.h"

#include <stdint.h>

#define TENSOR_DIMENSIONS_MAXIMUM 8

enum tensor_type { TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_MADE, TENSOR_OTHER, TENSOR_TYPE_COUNT };
extern const char *const tensor_type_names[TENSOR_TYPE_COUNT];

struct tensor {
    char *name;
    enum tensor_type type; /* MADE: by `recipe`, without a file; OTHER: there, of a type that no model here uses */
    int dimensions;        /* 0: a scalar */
    int64_t shape[TENSOR_DIMENSIONS_MAXIMUM];
    int64_t elements;
    const unsigned char *data; /* row-major, little-endian, any alignment; borrowed from the mapping */
    int64_t bytes;
    struct recipe recipe;
    const char *file; /* the file it came from, for messages */
};

struct safetensors;

/* Opens the weights in `folder`. NULL and a message naming file and tensor where anything does not add up. */
struct safetensors *safetensors_open(const char *folder, struct error *error);
void safetensors_close(struct safetensors *weights);

/* A set of weights that no file has: takes over tensors[count], an array of its own, and their names. */
struct safetensors *safetensors_make(struct tensor *tensors, int count);

int safetensors_count(const struct safetensors *weights);
const struct tensor *safetensors_at(const struct safetensors *weights, int index); /* sorted by name */

/* NULL where there is none of that name. */
const struct tensor *safetensors_find(const struct safetensors *weights, const char *name);

/* Converts `count` elements from `first` on to float32, or to bfloat16 (rounded to nearest even). The type must not be
 * OTHER. */
void tensor_to_float(const struct tensor *tensor, int64_t first, int64_t count, float *out);
void tensor_to_bfloat16(const struct tensor *tensor, int64_t first, int64_t count, uint16_t *out);

/* Elements are mapped from their file as they are read, and leave memory again when they are released: a model larger
 * than memory can be loaded piece by piece. What is released can still be read, from the file. */
void tensor_release(const struct tensor *tensor, int64_t first, int64_t count);

/* Has the whole tensor in memory now, so that nobody waits for the file later. */
void tensor_hold(const struct tensor *tensor);

#endif
