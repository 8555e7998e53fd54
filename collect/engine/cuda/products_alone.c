/* The products of layers.c and context.c alone, for benchmarks to hold the whole against; halves of layers have theirs
 * within. */
#include "collect/engine/cuda/layers.h"

static void multiply(const struct cuda *cuda, const struct gpu *gpu, const struct product *product,
                     const struct matvec_call *single)
{
    if (layers_are_single(cuda, gpu->batch.rows))
        kernels_matvec(single, gpu->stream);
    else
        product_apply(product, gpu->batch.rows, single->input, single->weights, single->y, single->gated);
}

static void run_layer_products(const struct cuda *cuda, const struct gpu *gpu, struct rank *rank, bool drafter,
                               int layer)
{
    const struct layers *layers = layers_of(rank, drafter);
    const struct layer_weights *weights = &layers->weights[layer];
    const struct recurrent_sizes *sizes = &layers->recurrence.sizes;
    int hidden = layers->model->hidden_size;
    bool recurrent = layers->model->kinds[layer] == MODEL_RECURRENT;
    const struct matvec_call calls[] = {
        {.inputs = hidden,
         .outputs = recurrent ? recurrent_in_width(sizes) : layers_qkv_width(layers),
         .weights = recurrent ? weights->recurrent_in : weights->qkv,
         .input = gpu->input,
         .y = rank->fused},
        {.inputs = recurrent ? recurrent_values(sizes) : layers_head_width(layers),
         .outputs = hidden,
         .weights = recurrent ? weights->recurrent_out : weights->o,
         .input = rank->attended,
         .y = rank->sums[0]},
        {.inputs = hidden,
         .outputs = 2 * layers->inner,
         .weights = weights->gate_up,
         .x = gpu->x,
         .norm = weights->input_norm,
         .input = gpu->input,
         .y = rank->fused,
         .gated = rank->gated},
        {.inputs = layers->inner,
         .outputs = hidden,
         .weights = weights->down,
         .input = rank->gated,
         .y = rank->sums[1]},
    };
    const struct attention_call call = layers_attention(cuda, gpu, rank, drafter, layer);
    const struct product *products[] = {recurrent ? layers->recurrent_in : layers->qkv, layers_mixer_out(layers, layer),
                                        layers->gate_up, layers->down};
    for (int i = 0; i < 4; i++) {
        multiply(cuda, gpu, products[i], &calls[i]);
        if (i == 0 && recurrent)
            recurrent_run_products(cuda, gpu, rank, layers_place(layers, layer));
        else if (i == 0)
            kernels_attend(&call, gpu->stream);
    }
}

void layers_run_products(struct cuda *cuda, bool drafter)
{
    if (layers_take_halves(cuda, drafter)) {
        layers_run_halves(cuda);
        return;
    }
    for (int layer = 0; layer < layers_model(cuda, drafter)->layer_count; layer++)
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank)
                run_layer_products(cuda, gpu, rank, drafter, layer);
}

void layers_run_context_products(struct cuda *cuda, int rows)
{
    FOR_GPUS(cuda, gpu) {
        layers_fuse_features(cuda, gpu, gpu->kept_features, rows);
        FOR_RANKS(gpu, rank)
            product_apply(rank->drafter.project, rows, gpu->input, rank->drafter.context, rank->fused, NULL);
    }
}
