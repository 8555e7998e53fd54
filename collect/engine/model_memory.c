#include "collect/engine/model_memory.h"

#include <stdio.h>

struct model_memory model_memory(const struct model *model, int size, int ranks)
{
    if (!model)
        return (struct model_memory){0};
    const struct model_recurrence *recurrence = &model->recurrence;
    int64_t attention_layers = model->layer_count - model->recurrent_count, layers = model->recurrent_count;
    int64_t kv_heads = model->kv_head_count > ranks ? model->kv_head_count : ranks;
    int64_t keys = (int64_t)recurrence->key_heads * recurrence->key_size;
    int64_t values = (int64_t)recurrence->value_heads * recurrence->value_size;
    int64_t row = (2 * keys + values) * size, gates = 2 * recurrence->value_heads * (int64_t)sizeof(float);
    return (struct model_memory){
        .weights = model_parameter_count(model) * size,
        .position = 2 * attention_layers * kv_heads * model->head_size * size,
        .state = layers * values * recurrence->key_size * (int64_t)sizeof(float),
        .window = layers * (recurrence->kernel_size - 1) * row,
        .node = layers * (row + gates),
    };
}

int64_t model_memory_of_session(const struct model_memory *memory, int64_t positions, int64_t nodes)
{
    return memory->position * positions + memory->state + memory->window + memory->node * nodes;
}

int64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    long long kilobytes = -1;
    while (file && fgets(line, sizeof line, file) && kilobytes < 0)
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) != 1)
            kilobytes = -1;
    if (file)
        fclose(file);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}
