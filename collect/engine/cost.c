#include "collect/engine/cost.h"

static int64_t layer_elements(const struct model *model)
{
    const struct model_layer *layer = &model->layers[0];
    return layer->q->elements + layer->k->elements + layer->v->elements + layer->o->elements + layer->gate->elements +
           layer->up->elements + layer->down->elements;
}

/* Weights of all layers, and a cache of so many positions. */
static int64_t stack_elements(const struct model *model, int committed)
{
    int64_t position = 2 * (int64_t)model->kv_head_count * model->head_size;
    return model->layer_count * (layer_elements(model) + position * committed);
}

static int64_t context_elements(const struct model *drafter)
{
    const struct model_layer *layer = &drafter->layers[0];
    return drafter->fc->elements + drafter->layer_count * (layer->k->elements + layer->v->elements);
}

int64_t cost_read_bytes(const struct model *target, const struct model *drafter, enum backend_step step, int committed,
                        int element_bytes)
{
    if (step == BACKEND_COMMIT)
        return element_bytes * context_elements(drafter);
    const struct model *model = step == BACKEND_DRAFT ? drafter : target;
    return element_bytes * (stack_elements(model, committed) + target->head->elements);
}

double cost_prefill_flop(const struct model *target, int tokens)
{
    double products = 2.0 * tokens * (double)(target->layer_count * layer_elements(target));
    double pairs = (double)tokens * (tokens + 1) / 2, head_width = (double)target->head_count * target->head_size;
    return products + 4 * pairs * head_width * target->layer_count + 2.0 * (double)target->head->elements;
}
