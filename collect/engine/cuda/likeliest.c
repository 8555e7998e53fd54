/* The likeliest tokens of rows: of each slice of the vocabulary its GPU lists them, and the host merges the lists. A
 * draft is made of them; and where top-k or top-p limits what may be chosen, the host chooses among them. */
#include "collect/engine/cuda/cuda.h"

#include <math.h>

#define MERGED_FIRST 64 /* tokens of a row that are looked at before more are: most nuclei are smaller */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* --- on the GPUs ------------------------------------------------------------------------------------------------ */

/* Tokens that a rank lists of each row. */
static int listed_width(const struct cuda *cuda, const struct rank *rank, bool drafter)
{
    return least(drafter ? cuda->options.draft_width : cuda->top_width, calls_columns(cuda, rank));
}

void likeliest_list(struct cuda *cuda, bool drafter, int first, int count)
{
    int slice = cuda->options.target->vocabulary_size / cuda->options.ranks;
    for (int from = 0; from < count; from += cuda->head_rows) {
        int rows = least(count - from, cuda->head_rows);
        layers_run_head(cuda, drafter, first + from, rows);
        FOR_GPUS(cuda, gpu)
            watch_mark(cuda, gpu, WATCH_PARTS, "top");
        FOR_GPUS(cuda, gpu)
            FOR_RANKS(gpu, rank) {
                int columns = calls_columns(cuda, rank), width = listed_width(cuda, rank, drafter);
                size_t at = (size_t)from * (size_t)width;
                const struct top_call call = {.rows = rows,
                                              .stride = slice,
                                              .count = columns,
                                              .first_token = rank->index * slice,
                                              .width = width,
                                              .summed = drafter ? slice : columns,
                                              .logits = rank->logits,
                                              .how = drafter ? NULL : gpu->batch.how + first + from,
                                              .partial = rank->top_partial,
                                              .tokens = rank->top_tokens + at,
                                              .values = rank->top_logits + at,
                                              .sums = rank->top_sums + from};
                if (width > 0)
                    kernels_top(&call, gpu->stream);
            }
    }
}

/* --- on the host ------------------------------------------------------------------------------------------------ */

/* What is left to be merged of a row's slices, in the order of their tokens. */
struct slices {
    struct {
        const int *tokens;
        const float *logits;
        int left;
        struct row_sum sum;
    } list[RANKS_MAXIMUM];
    int count;
};

static void find_slices(const struct cuda *cuda, bool drafter, int row, struct slices *slices)
{
    slices->count = 0;
    for (int i = 0; i < cuda->gpu_count; i++)
        FOR_RANKS(&cuda->gpus[i], rank) {
            int width = listed_width(cuda, rank, drafter), at = slices->count;
            if (width == 0)
                continue;
            slices->list[at].tokens = rank->top_tokens + (size_t)row * (size_t)width;
            slices->list[at].logits = rank->top_logits + (size_t)row * (size_t)width;
            slices->list[at].left = width;
            slices->list[at].sum = rank->top_sums[row];
            slices->count++;
        }
}

/* Takes the next `count` tokens, best first, ties to the lowest id; answers how many there were. */
static int merge(struct slices *slices, int count, int *tokens, float *logits)
{
    for (int k = 0; k < count; k++) {
        int from = -1;
        for (int i = 0; i < slices->count; i++)
            if (slices->list[i].left > 0 && (from < 0 || *slices->list[i].logits > *slices->list[from].logits))
                from = i;
        if (from < 0)
            return k;
        tokens[k] = *slices->list[from].tokens++;
        logits[k] = *slices->list[from].logits++;
        slices->list[from].left--;
    }
    return count;
}

/* Σ exp((logit - best) / temperature) over all slices, but for TOP_SUM_ERROR of itself. */
static double mass(const struct slices *slices, float best, double temperature)
{
    double sum = 0;
    for (int i = 0; i < slices->count; i++) {
        const struct row_sum *own = &slices->list[i].sum;
        sum += (double)own->sum * exp(((double)own->largest - (double)best) / temperature);
    }
    return sum;
}

void likeliest_read_draft(const struct cuda *cuda, int row, int width, int *tokens, float *log_probabilities)
{
    struct slices slices;
    find_slices(cuda, true, row, &slices);
    merge(&slices, width, tokens, log_probabilities);
    float best = log_probabilities[0];
    double log_sum = (double)best + log(mass(&slices, best, 1));
    for (int i = 0; i < width; i++)
        log_probabilities[i] = (float)((double)log_probabilities[i] - log_sum);
}

bool likeliest_choose(struct cuda *cuda, int row, const struct sampling *sampling, int position, struct choice *choice)
{
    int most = least(cuda->top_width, cuda->options.vocabulary);
    struct sample_list list = {.tokens = cuda->scratch.indices,
                               .logits = cuda->scratch.values,
                               .count = cuda->options.vocabulary,
                               .error = TOP_SUM_ERROR};
    struct slices slices;
    find_slices(cuda, false, row, &slices);
    for (int wanted = least(MERGED_FIRST, most);; wanted = least(8 * wanted, most)) {
        list.listed += merge(&slices, wanted - list.listed, cuda->scratch.indices + list.listed,
                             cuda->scratch.values + list.listed);
        if (list.mass == 0)
            list.mass = mass(&slices, list.logits[0], (double)sampling->temperature);
        if (sample_choose_listed(&list, sampling, position, choice))
            return true;
        if (wanted == most)
            return false;
    }
}
