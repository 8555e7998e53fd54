/* Every product is readied for the numbers of rows that its calls have, and timed on weights of all layers. */
#include "collect/engine/cuda/cuda.h"

#include <stdlib.h>

/* Rows that a prompt's pieces are rounded up to; among them PRODUCT_OWN_ROWS, so that no fewer are rounded past it. */
static const int prompt_rows[] = {16, 32, 64, PRODUCT_OWN_ROWS, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048};

#define CALL_ROWS 4 /* numbers of rows that the calls of so many sessions have at most */

/* The numbers of rows that the calls' batches have, and how many; every one in order that a product of another is timed
 * once. A new array. */
static int *list_rows(const struct cuda *cuda, int most, int *listed)
{
    const struct backend_options *options = &cuda->options;
    size_t prompts = sizeof prompt_rows / sizeof *prompt_rows;
    int count = 0, *rows = xcalloc(CALL_ROWS * (size_t)options->sessions + prompts + 1, sizeof *rows);
    for (int sessions = 1; sessions <= options->sessions; sessions++) {
        rows[count++] = sessions * options->nodes;
        if (options->drafter) {
            rows[count++] = sessions * options->drafter->block_size;
            rows[count++] = sessions * options->drafter->block_size - 1;
            rows[count++] = sessions * cuda->path_rows;
        }
    }
    for (size_t i = 0; i < prompts; i++)
        rows[count++] = prompt_rows[i];
    *listed = 0;
    for (int i = 0; i < count; i++)
        if (rows[i] > 0 && rows[i] <= most)
            rows[(*listed)++] = rows[i];
    rows[(*listed)++] = most;
    return rows;
}

static void ready(const struct cuda *cuda, struct product *product, int most, const struct product_trial *trial)
{
    int count, *rows = list_rows(cuda, most, &count);
    for (int i = 0; i < count; i++)
        product_ready(product, rows[i], trial);
    free(rows);
}

/* One of a layer's products, timed with the weights of all layers that have it; NULL: none does. `member`: of struct
 * layer_weights. */
static struct product *ready_layers(const struct cuda *cuda, const struct gpu *gpu, const struct layers *layers,
                                    size_t member, int inputs, int outputs, const struct product_trial *like)
{
    int count = 0;
    const void **weights = xcalloc((size_t)layers->model->layer_count, sizeof *weights);
    for (int i = 0; i < layers->model->layer_count; i++) {
        const void *own = *(void *const *)((const char *)&layers->weights[i] + member);
        if (own)
            weights[count++] = own;
    }
    const struct product_trial trial = {like->x, like->y, like->gated, weights, count};
    struct product *product = count == 0    ? NULL
                              : like->gated ? product_create_gated(gpu->library, inputs, outputs)
                              : member == offsetof(struct layer_weights, qkv)
                                  ? product_create_heads(gpu->library, inputs, outputs, layers->model->head_size)
                                  : product_create(gpu->library, inputs, outputs, inputs);
    if (product)
        ready(cuda, product, cuda->most_rows, &trial);
    free((void *)weights);
    return product;
}

static void create_layer_products(const struct cuda *cuda, const struct gpu *gpu, const struct rank *rank,
                                  struct layers *layers)
{
    int hidden = layers->model->hidden_size, heads = layers_head_width(layers), inner = layers->inner;
    const struct product_trial qkv = {.x = gpu->input, .y = rank->fused}, o = {.x = rank->attended, .y = rank->sums[0]},
                               gate_up = {.x = gpu->input, .y = rank->fused, .gated = rank->gated},
                               down = {.x = rank->gated, .y = rank->sums[1]};
    layers->qkv =
        ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, qkv), hidden, layers_qkv_width(layers), &qkv);
    layers->o = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, o), heads, hidden, &o);
    layers->recurrent_in = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, recurrent_in), hidden,
                                        recurrent_in_width(&layers->recurrence.sizes), &qkv);
    layers->recurrent_out = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, recurrent_out),
                                         recurrent_values(&layers->recurrence.sizes), hidden, &o);
    layers->gate_up =
        ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, gate_up), hidden, 2 * inner, &gate_up);
    layers->down = ready_layers(cuda, gpu, layers, offsetof(struct layer_weights, down), inner, hidden, &down);
}

void ready_products(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank)
{
    const struct model *target = cuda->options.target, *drafter = cuda->options.drafter;
    int hidden = target->hidden_size;
    const void *head[] = {rank->head}, *fuse[] = {rank->fuse}, *context[] = {rank->drafter.context};
    const struct product_trial head_trial = {gpu->normed, rank->logits, NULL, head, 1},
                               fuse_trial = {gpu->kept_features, rank->sums[2], NULL, fuse, 1},
                               context_trial = {gpu->input, rank->fused, NULL, context, 1};
    rank->head_product = product_create(gpu->library, hidden, target->vocabulary_size / cuda->options.ranks, hidden);
    ready(cuda, rank->head_product, cuda->head_rows, &head_trial);
    create_layer_products(cuda, gpu, rank, &rank->target);
    if (!drafter)
        return;
    int features = drafter->feature_count * hidden;
    create_layer_products(cuda, gpu, rank, &rank->drafter);
    rank->fuse_product = product_create(gpu->library, features / cuda->options.ranks, hidden, features);
    ready(cuda, rank->fuse_product, cuda->most_rows, &fuse_trial);
    rank->drafter.project =
        product_create(gpu->library, hidden, 2 * drafter->layer_count * layers_kv_width(&rank->drafter), hidden);
    ready(cuda, rank->drafter.project, cuda->most_rows, &context_trial);
}
