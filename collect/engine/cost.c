#include "collect/engine/cost.h"

#include "collect/engine/model_memory.h"

static int64_t elements_of(const struct tensor *const *tensors, size_t count)
{
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++)
        elements += tensors[i]->elements;
    return elements;
}

/* Of the matrices: vectors are small. */
static int64_t layer_elements(const struct model *model, int index)
{
    const struct model_layer *layer = &model->layers[index];
    const struct model_recurrent_layer *own = &layer->recurrent;
    const struct tensor *const attention[] = {layer->q, layer->k, layer->v, layer->o};
    const struct tensor *const recurrence[] = {own->qkv, own->z, own->b, own->a, own->out};
    int64_t mlp = layer->gate->elements + layer->up->elements + layer->down->elements;
    return mlp + (model->kinds[index] == MODEL_RECURRENT
                      ? elements_of(recurrence, sizeof recurrence / sizeof *recurrence)
                      : elements_of(attention, sizeof attention / sizeof *attention));
}

static int64_t all_elements(const struct model *model)
{
    int64_t elements = 0;
    for (int i = 0; i < model->layer_count; i++)
        elements += layer_elements(model, i);
    return elements;
}

static int64_t context_elements(const struct model *drafter)
{
    const struct model_layer *layer = &drafter->layers[0];
    return drafter->fc->elements + drafter->layer_count * (layer->k->elements + layer->v->elements);
}

int64_t cost_read_bytes(const struct model *target, const struct model *drafter, enum backend_step step, int committed,
                        int element_bytes)
{
    const struct model *model = step == BACKEND_DRAFT ? drafter : target;
    const struct model_memory memory = model_memory(model, element_bytes, 1);
    if (step == BACKEND_COMMIT)
        return element_bytes * context_elements(drafter) + memory.state;
    return element_bytes * (all_elements(model) + target->head->elements) + memory.position * committed + memory.state +
           memory.window;
}

double cost_prefill_flop(const struct model *target, int tokens)
{
    const struct model_recurrence *recurrence = &target->recurrence;
    double products = 2.0 * tokens * (double)all_elements(target);
    double pairs = (double)tokens * (tokens + 1) / 2, head_width = (double)target->head_count * target->head_size;
    double state = (double)recurrence->value_heads * recurrence->key_size * recurrence->value_size;
    return products + 4 * pairs * head_width * (target->layer_count - target->recurrent_count) +
           6 * state * tokens * target->recurrent_count + 2.0 * (double)target->head->elements;
}
