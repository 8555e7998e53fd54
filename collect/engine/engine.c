#include "collect/engine/engine.h"

#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/engine/algorithms.h"
#include "collect/engine/decode.h"
#include "collect/engine/fill.h"
#include "collect/engine/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUDIT_ROWS 64 /* rescored at a time */

struct engine {
    struct model *target, *drafter;
    struct tokenizer *tokenizer;
    enum engine_dtype dtype;
    char *device;
    struct algorithms *algorithms; /* NULL: chosen anew by each load */
    const struct backend_class *class;
    json_t *target_description, *drafter_description; /* made when first asked for: they read whole files */
    /* What engine_load made. */
    struct backend *backend;
    struct backend_options options;
    struct sampling sampling;
    struct sample_scratch audit_scratch;
    struct decoder *decoder;
    float *audit_logits; /* [AUDIT_ROWS, vocabulary_size] */
};

static int choose_backend(struct engine *engine, const char *dtype, const char *device, struct error *error)
{
    engine->dtype = strcmp(dtype, "bfloat16") == 0 ? ENGINE_BFLOAT16 : ENGINE_FLOAT32;
    engine->device = xstrdup(device);
    engine->class = backend_find(device, error);
    return engine->class ? 0 : -1;
}

static struct tokenizer *open_tokenizer(const char *folder, struct error *error)
{
    char *path = file_join(folder, "tokenizer.json");
    struct tokenizer *tokenizer = tokenizer_open(path, error);
    free(path);
    return tokenizer;
}

static void print_skipped(const struct model *target)
{
    char *skipped = model_list_skipped(target);
    if (skipped)
        fprintf(stderr, "%s: tensors that are passed over, since only the text model runs: %s\n", target->folder,
                skipped);
    free(skipped);
}

struct engine *engine_open(const char *target, const char *drafter, const char *dtype, const char *device,
                           struct error *error)
{
    struct engine *engine = xcalloc(1, sizeof *engine);
    if (!choose_backend(engine, dtype, device, error) && (engine->target = model_open_target(target, error)) &&
        !backend_check(engine->class, engine->target, error) &&
        (!drafter || (engine->drafter = model_open_drafter(drafter, engine->target, error))) &&
        (engine->tokenizer = open_tokenizer(target, error))) {
        print_skipped(engine->target);
        return engine;
    }
    engine_close(engine);
    return NULL;
}

static void unload(struct engine *engine)
{
    decoder_destroy(engine->decoder);
    if (engine->backend)
        engine->class->close(engine->backend);
    free(engine->audit_logits);
    free(engine->audit_scratch.indices);
    free(engine->audit_scratch.values);
    engine->audit_scratch = (struct sample_scratch){0};
    engine->decoder = NULL;
    engine->backend = NULL;
    engine->audit_logits = NULL;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    unload(engine);
    tokenizer_close(engine->tokenizer);
    model_close(engine->drafter);
    model_close(engine->target);
    json_decref(engine->target_description);
    json_decref(engine->drafter_description);
    algorithms_close(engine->algorithms);
    free(engine->device);
    free(engine);
}

int engine_keep(struct engine *engine, const char *folder, struct error *error)
{
    if (!engine->class->chooses_by_timing)
        return 0;
    algorithms_close(engine->algorithms);
    engine->algorithms = algorithms_open(folder, error);
    return engine->algorithms ? 0 : -1;
}

int engine_encode(const struct engine *engine, const char *text, int **ids, struct error *error)
{
    int count = tokenizer_encode(engine->tokenizer, text, strlen(text), true, ids, error);
    for (int i = 0; i < count; i++)
        if ((*ids)[i] >= engine->target->vocabulary_size) {
            free(*ids);
            *ids = NULL;
            return fail(error, "%s: the tokenizer gives an id past the model's vocabulary of %d",
                        engine->target->folder, engine->target->vocabulary_size);
        }
    return count;
}

char *engine_fill(const struct engine *engine, const char *text, size_t at, const char *corpus, int tokens,
                  struct error *error)
{
    return fill_text(engine->tokenizer, text, at, corpus, tokens, error);
}

int engine_chat_style(const struct engine *engine, struct chat_style *style, struct error *error)
{
    return chat_read_style(engine->target->folder, engine->target->recurrent_count > 0, style, error);
}

int engine_position_limit(const struct engine *engine)
{
    return engine->target->position_limit;
}

static json_t *described(const struct model *model, json_t **description, struct error *error)
{
    if (!*description)
        *description = model_describe(model, error);
    return json_incref(*description);
}

json_t *engine_describe(const struct engine *engine, const struct arm *arm, struct error *error)
{
    struct engine *cached = (struct engine *)engine;
    bool drafts = arm && arm->method != METHOD_AUTO;
    if (arm && (model_check_ranks(engine->target, arm->tensor_parallel, error) ||
                (drafts && model_check_ranks(engine->drafter, arm->tensor_parallel, error))))
        return NULL;
    json_t *target = described(engine->target, &cached->target_description, error);
    json_t *drafter = NULL;
    if (!target || (drafts && !(drafter = described(engine->drafter, &cached->drafter_description, error)))) {
        json_decref(target);
        return NULL;
    }
    json_t *description = engine->class->describe_device(engine->device, engine->dtype);
    json_set(description, "kind", json_string("engine"));
    json_set(description, "dtype", json_string(engine->dtype == ENGINE_BFLOAT16 ? "bfloat16" : "float32"));
    json_set(description, "target", target);
    json_t *devices = arm ? backend_devices(engine->device, arm->tensor_parallel) : NULL;
    if (devices)
        json_set(description, "devices", devices);
    if (engine->algorithms)
        json_set(description, "algorithms", json_text(algorithms_id(engine->algorithms)));
    if (drafts)
        json_set(description, "drafter", drafter);
    return description;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int engine_load(struct engine *engine, const struct arm *arm, const struct sampling *sampling, int positions,
                json_t **memory, struct error *error)
{
    unload(engine);
    bool drafts = arm->method != METHOD_AUTO;
    if (drafts && !engine->drafter)
        return fail(error, "method \"%s\" needs a drafter", method_names[arm->method]);
    int vocabulary = least(engine->target->vocabulary_size, tokenizer_size(engine->tokenizer));
    int block = drafts ? engine->drafter->block_size : 1;
    int nodes = method_has_budget(arm->method) ? arm->budget + 1 : block;
    engine->options = (struct backend_options){
        .target = engine->target,
        .drafter = drafts ? engine->drafter : NULL,
        .dtype = engine->dtype,
        .device = engine->device,
        .algorithms = engine->algorithms ? algorithms_list(engine->algorithms) : NULL,
        .ranks = arm->tensor_parallel,
        .sessions = arm->concurrency,
        .capacity = positions + (nodes > block ? nodes : block),
        .nodes = nodes,
        .draft_width = method_has_budget(arm->method) ? least(arm->budget, vocabulary) : 1,
        .vocabulary = vocabulary,
        .candidates = sample_candidates(sampling, vocabulary),
    };
    if (engine->algorithms && algorithms_save(engine->algorithms, error))
        return -1;
    engine->backend = backend_open(engine->class, &engine->options, error);
    if (!engine->backend || (engine->algorithms && algorithms_save(engine->algorithms, error)))
        return -1;
    engine->decoder = decoder_create(engine->backend, &engine->options, arm->method, arm->budget);
    engine->audit_logits =
        xcalloc((size_t)AUDIT_ROWS * (size_t)engine->target->vocabulary_size, sizeof *engine->audit_logits);
    engine->sampling = *sampling;
    engine->audit_scratch.indices = xcalloc((size_t)vocabulary, sizeof *engine->audit_scratch.indices);
    engine->audit_scratch.values = xcalloc((size_t)vocabulary, sizeof *engine->audit_scratch.values);
    *memory = engine->class->describe(engine->backend);
    return 0;
}

int engine_list_gpus(const struct engine *engine, char (*ids)[ENGINE_GPU_ID_SIZE])
{
    return engine->class->list_gpus ? engine->class->list_gpus(engine->device, engine->options.ranks, ids) : 0;
}

static void admit(struct engine *engine, int slot, const struct engine_request *request)
{
    struct decode_request decode = {request->prompt, request->prompt_count, request->sample->asked_tokens,
                                    request->sample->asked_ignore_eos, engine->sampling};
    decode.sampling.stream = request->stream;
    decoder_admit(engine->decoder, slot, &decode, request->sample);
    request->sample->ok = true;
}

/* Whether the slot's request is over: it has all its tokens, or has had its time. */
static bool is_over(const struct engine *engine, int slot, const struct engine_request *request)
{
    struct sample *sample = request->sample;
    if (decoder_done(engine->decoder, slot))
        return true;
    if (request->limit_ns == 0 || clock_now_ns() - sample->start_ns < request->limit_ns)
        return false;
    sample->ok = false;
    sample->error_code = xstrdup("TIMEOUT");
    sample->error_message = xformat("%d of %d tokens after %.1f s; raise limits.request_s in the plan", sample->tokens,
                                    sample->asked_tokens, (double)request->limit_ns * 1e-9);
    return true;
}

void engine_run(struct engine *engine, const struct engine_request *requests, int count)
{
    int sessions = engine->options.sessions, next = 0, ended = 0;
    const struct engine_request **busy = xcalloc((size_t)sessions, sizeof *busy);
    while (ended < count) {
        for (int slot = 0; slot < sessions && next < count; slot++)
            if (!busy[slot]) {
                busy[slot] = &requests[next++];
                admit(engine, slot, busy[slot]);
            }
        decoder_round(engine->decoder);
        for (int slot = 0; slot < sessions; slot++)
            if (busy[slot] && is_over(engine, slot, busy[slot])) {
                decoder_retire(engine->decoder, slot);
                busy[slot] = NULL;
                ended++;
            }
    }
    free(busy);
}

double engine_worse(double a, double b)
{
    return isnan(b) || b > a ? b : a;
}

double engine_audit(struct engine *engine, const struct engine_request *request)
{
    struct backend *backend = engine->backend;
    struct sampling sampling = engine->sampling;
    struct choice ignored;
    const struct sample *sample = request->sample;
    double worst = 0;
    int vocabulary = engine->target->vocabulary_size, prompt_count = request->prompt_count;
    /* The row before each token of the output decides on it: the prompt's last, then the output's all but its last. */
    int *rows = xcalloc((size_t)sample->tokens, sizeof *rows);
    rows[0] = request->prompt[prompt_count - 1];
    memcpy(rows + 1, sample->token_ids, (size_t)(sample->tokens - 1) * sizeof *rows);
    sampling.stream = request->stream;
    engine->class->reset(backend, 0, &sampling);
    const struct segment start = {0, prompt_count - 1, request->prompt, NULL};
    if (start.count > 0)
        engine->class->extend(backend, &start, 1, &ignored);
    for (int done = 0; done < sample->tokens; done += AUDIT_ROWS) {
        const struct segment piece = {0, least(AUDIT_ROWS, sample->tokens - done), rows + done, NULL};
        engine->class->extend(backend, &piece, 1, &ignored);
        engine->class->inspect(backend, INSPECT_LOGITS, 0, piece.count, engine->audit_logits);
        for (int i = 0; i < piece.count; i++)
            worst = engine_worse(worst, sample_regret(engine->audit_logits + (size_t)i * (size_t)vocabulary,
                                                      engine->options.vocabulary, &sampling, prompt_count + done + i,
                                                      sample->token_ids[done + i], &engine->audit_scratch));
    }
    free(rows);
    return worst;
}

int engine_feature_rms(struct engine *engine, const int *prompt, int prompt_count, double *rms)
{
    const struct model *drafter = engine->options.drafter;
    if (!drafter)
        return 0;
    struct choice ignored;
    int hidden = drafter->hidden_size;
    float *features = xcalloc((size_t)drafter->feature_count * (size_t)hidden, sizeof *features);
    engine->class->reset(engine->backend, 0, &engine->sampling);
    const struct segment before = {0, prompt_count - 1, prompt, NULL}, last = {0, 1, prompt + prompt_count - 1, NULL};
    if (before.count > 0)
        engine->class->extend(engine->backend, &before, 1, &ignored);
    engine->class->extend(engine->backend, &last, 1, &ignored);
    engine->class->inspect(engine->backend, INSPECT_FEATURES, 0, 1, features);
    for (int f = 0; f < drafter->feature_count; f++) {
        double squares = 0;
        for (int i = 0; i < hidden; i++)
            squares += (double)features[f * hidden + i] * (double)features[f * hidden + i];
        rms[f] = sqrt(squares / hidden);
    }
    free(features);
    return drafter->feature_count;
}
