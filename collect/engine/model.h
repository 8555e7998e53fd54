/* Models as their folders describe them: config.json says what a model is, tensor names say where its weights are.
 *
 * Two kinds: a target (Qwen3 dense, or the Qwen3.5/3.6 hybrid of attention and gated DeltaNet) and a DFlash drafter,
 * which has no embedding and no head of its own. Everything is
 * driven by config.json and tensor shapes, never by a model's name; what is not supported is refused by key and value.
 */
#ifndef COLLECT_ENGINE_MODEL_H
#define COLLECT_ENGINE_MODEL_H

#include "collect/base/error.h"
#include "collect/engine/safetensors.h"

#include <jansson.h>
#include <stdbool.h>

#define MODEL_FEATURES_MAXIMUM 16
#define MODEL_END_TOKENS_MAXIMUM 8
#define MODEL_LAYERS_MAXIMUM 512

enum model_layer_kind { MODEL_ATTENTION, MODEL_RECURRENT };

/* The sizes of gated DeltaNet layers (arXiv 2412.06464). Value head h reads the keys of key head h / (value_heads /
 * key_heads). */
struct model_recurrence {
    int key_heads, value_heads, key_size, value_size;
    int kernel_size; /* rows that the causal convolution sees, the current one included */
};

/* A gated DeltaNet layer's own weights; its channels are all heads' q, then k, then v. */
struct model_recurrent_layer {
    const struct tensor *qkv;                   /* [channels, hidden_size] */
    const struct tensor *z;                     /* [value_heads * value_size, hidden_size] */
    const struct tensor *b, *a;                 /* [value_heads, hidden_size] */
    const struct tensor *convolution;           /* [channels, 1, kernel_size] */
    const struct tensor *decay_log, *step_bias; /* [value_heads]: A_log, dt_bias */
    const struct tensor *norm;                  /* [value_size]; never zero-centred */
    const struct tensor *out;                   /* [hidden_size, value_heads * value_size] */
};

/* A decoder layer's weights, row-major [outputs, inputs]. Those of attention are NULL in a recurrent layer, and the
 * other way round. */
struct model_layer {
    const struct tensor *input_norm, *post_attention_norm; /* [hidden_size] */
    const struct tensor *q;                                /* [heads * head_size, hidden_size]; see gated_attention */
    const struct tensor *k, *v;                            /* [kv_heads * head_size, hidden_size] */
    const struct tensor *o;                                /* [hidden_size, heads * head_size] */
    const struct tensor *q_norm, *k_norm;                  /* [head_size] */
    const struct tensor *gate, *up;                        /* [intermediate_size, hidden_size] */
    const struct tensor *down;                             /* [hidden_size, intermediate_size] */
    struct model_recurrent_layer recurrent;
};

struct model {
    char *folder;
    struct safetensors *weights;

    int hidden_size, intermediate_size, layer_count;
    int head_count, kv_head_count, head_size;
    int vocabulary_size; /* rows of embedding and head; those past the tokenizer's size are padding */
    int position_limit;  /* max_position_embeddings */
    float norm_epsilon;
    float rope_theta;
    int rotary_size;                                           /* leading elements of a head that are rotated */
    enum model_layer_kind *kinds;                              /* [layer_count] */
    int recurrent_count;                                       /* how many of them are recurrent */
    struct model_recurrence recurrence;                        /* of these */
    bool zero_centred_norms;                                   /* norms scale by 1 + weight */
    bool gated_attention;                                      /* q has, for each head, rows of q, then of its gate */
    bool tied;                                                 /* tie_word_embeddings */
    int end_tokens[MODEL_END_TOKENS_MAXIMUM], end_token_count; /* config.json and generation_config.json together */
    struct model_layer *layers;
    const struct tensor *norm; /* [hidden_size] */

    /* A target's own. `head` is `embedding` where they are tied. */
    const struct tensor *embedding, *head; /* [vocabulary_size, hidden_size] */

    /* A drafter's own. */
    int block_size; /* slots of a block, the anchor's included */
    int mask_token;
    int feature_layers[MODEL_FEATURES_MAXIMUM], feature_count; /* 0-based target layers whose outputs it is fed */
    int *windows;            /* [layer_count]: a slot sees keys less than so many positions before it; 0: all of them */
    bool causal_windows;     /* within a window's layer a slot sees no later slot; otherwise as far ahead as back */
    const struct tensor *fc; /* [hidden_size, feature_count * hidden_size] */
    const struct tensor *hidden_norm; /* [hidden_size] */
};

/* Reads config.json and the weights' headers; checks that every tensor is there in its shape. NULL and a message
 * otherwise. */
struct model *model_open_target(const char *folder, struct error *error);

/* The same for a drafter of `target`: sizes that both must share are compared. */
struct model *model_open_drafter(const char *folder, const struct model *target, struct error *error);

void model_close(struct model *model);

/* Arrays of text about a folder's tensors: names that config.json asks for and no file has; tensors of a wrong shape or
 * type, each with what is wrong; names that the files have and nothing uses. */
struct model_findings {
    json_t *missing, *unfit, *surplus;
};

/* Opens like model_open_target() (target NULL) or model_open_drafter(), but lists what is wrong with tensors instead of
 * stopping at the first; the weights of what is listed are NULL, so that the model can be described, not run. */
struct model *model_survey(const char *folder, const struct model *target, struct model_findings *findings,
                           struct error *error);
void model_findings_free(struct model_findings *findings);

/* -1 and the numbers where the model's sizes do not divide over so many tensor-parallel ranks; ranks may share KV
 * heads.
 */
int model_check_ranks(const struct model *model, int ranks, struct error *error);

/* Parameters that are stored and belong to what runs (tied weights once). */
int64_t model_parameter_count(const struct model *model);

/* What the folder has beside that and is passed over, a vision tower and layers for multi-token prediction: how many
 * tensors of each, in words. NULL where there are none; free() it. */
char *model_list_skipped(const struct model *model);

/* What identifies the model in records and hashes: folder, parameters, layers and sizes, and the SHA-256 of its files
 * (read whole, so not for a hot path). A new reference, or NULL and a message. */
json_t *model_describe(const struct model *model, struct error *error);

#endif
