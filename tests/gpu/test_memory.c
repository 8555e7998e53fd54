/* What a refusal for lack of memory proposes does fit, and leaves room for all that a round takes besides. Skipped
 * where there is no GPU that CUDA can use. */
#include "collect/engine/backend.h"
#include "tests/engine/kept_algorithms.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/sized_models.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SESSIONS = 16, NODES = 17, BLOCK = 8, WIDTH = 4, FAR_TOO_LONG = 1 << 24 };

static const struct sizes sizes = {256, 512, 8, 8, 256, 1002, BLOCK, "{}", "{}"};

static const struct backend_class *cuda;

struct models {
    struct model *target, *drafter;
};

static int find_gpu(void **state)
{
    (void)state;
    cuda = gpu_backend();
    return 0;
}

static struct backend *open_backend(const struct models *own, int sessions, int capacity, struct error *error)
{
    static struct backend_options options;
    options = (struct backend_options){.target = own->target,
                                       .drafter = own->drafter,
                                       .dtype = ENGINE_BFLOAT16,
                                       .ranks = 1,
                                       .sessions = sessions,
                                       .capacity = capacity,
                                       .nodes = NODES,
                                       .draft_width = WIDTH,
                                       .vocabulary = own->target->vocabulary_size,
                                       .algorithms = kept_algorithms()};
    *error = (struct error){0};
    return cuda->open(&options, error);
}

/* A round of all sessions. */
static void use(struct backend *backend, int count)
{
    int tokens[NODES], parents[NODES], sessions[SESSIONS], anchors[SESSIONS];
    static const int path[] = {0, 1, 2};
    struct segment segments[SESSIONS];
    struct kept_path paths[SESSIONS];
    struct tree_draft drafts[SESSIONS];
    struct choice chosen[SESSIONS * NODES];
    static int drafted[SESSIONS][BLOCK * WIDTH];
    static float values[SESSIONS][BLOCK * WIDTH];
    for (int i = 0; i < NODES; i++) {
        tokens[i] = 3 * i + 1;
        parents[i] = i - 1;
    }
    for (int i = 0; i < count; i++) {
        sessions[i] = i;
        anchors[i] = 5 + i;
        segments[i] = (struct segment){i, NODES, tokens, parents};
        paths[i] = (struct kept_path){i, COUNT(path), path};
        drafts[i] = (struct tree_draft){0, WIDTH, drafted[i], values[i]};
        cuda->reset(backend, i, &(struct sampling){.top_p = 1});
        cuda->extend(backend, &(struct segment){i, NODES, tokens, NULL}, 1, chosen);
    }
    cuda->draft(backend, sessions, anchors, count, drafts);
    cuda->verify(backend, segments, count, chosen);
    cuda->commit(backend, paths, count);
    cuda->close(backend);
}

static void open_and_use(const struct models *own, int sessions, int capacity)
{
    struct error error;
    struct backend *backend = open_backend(own, sessions, capacity, &error);
    if (!backend)
        fail_msg("%d sessions of %d: %s", sessions, capacity, error.message);
    use(backend, sessions);
}

/* What is proposed in place of sessions of that capacity. */
static void refuse(const struct models *own, int capacity, int *tokens, int *fewer)
{
    struct error error;
    assert_null(open_backend(own, SESSIONS, capacity, &error));
    const char *proposed = strstr(error.message, "GPU; ");
    assert_non_null(proposed);
    assert_int_equal(sscanf(proposed, "GPU; %*d sessions of at most %d tokens would, or %d sessions", tokens, fewer),
                     2);
}

static void what_is_proposed_fits(void **state)
{
    (void)state;
    if (!cuda)
        skip();
    struct error error = {0};
    char *target = fixture_make_folder(), *drafter = fixture_make_folder();
    sized_models_write(&sizes, target, drafter);
    struct models own = {.target = model_open_target(target, &error)};
    own.drafter = model_open_drafter(drafter, own.target, &error);
    assert_string_equal(error.message, "");
    int tokens, fewer, ignored;
    open_and_use(&own, SESSIONS, ATTENTION_NEAR + 1000); /* CUDA has what it loads when it is first used */
    refuse(&own, FAR_TOO_LONG, &tokens, &ignored);
    open_and_use(&own, SESSIONS, tokens + NODES);
    for (int sixteenths = 17; sixteenths <= 40; sixteenths += 5) { /* at 32 what sessions share decides */
        int capacity = tokens / 16 * sixteenths;
        refuse(&own, capacity, &ignored, &fewer);
        assert_in_range(fewer, 1, SESSIONS - 1);
        struct backend *backend = open_backend(&own, fewer, capacity, &error);
        if (!backend)
            fail_msg("%d sessions of %d: %s", fewer, capacity, error.message);
        cuda->close(backend);
    }
    model_close(own.drafter);
    model_close(own.target);
    fixture_remove_folder(target);
    fixture_remove_folder(drafter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_proposed_fits)};
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
