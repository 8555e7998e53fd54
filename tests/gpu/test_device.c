/* GPUs that a plan does not name are left alone: another's work may be on them. In a process of its own, which has not
 * used CUDA before. */
#include "collect/engine/backend.h"
#include "tests/gpu/gpu.h"

#include <cuda.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NAMED 1
#define DEVICE "cuda:1"

enum { LEFT_ALONE = 0, SKIPPED = 77, TOUCHED = 78, BROKEN = 79 };

typedef CUresult context_state(CUdevice device, unsigned *flags, int *active);

/* Whether the process has the GPU in use. */
static bool is_used(context_state *find, int device)
{
    unsigned flags;
    int active = 0;
    return find(device, &flags, &active) == CUDA_SUCCESS && active;
}

static int run_on_the_second(void)
{
    struct error error = {0};
    struct choice chosen;
    void *find = NULL;
    int here = 0;
    enum cudaDriverEntryPointQueryResult result;
    if (cudaGetDeviceCount(&here) || here <= NAMED)
        return SKIPPED;
    const struct backend_class *class = backend_find(DEVICE, &error);
    struct model *target = class ? model_open_target("data/models/demo/target", &error) : NULL;
    const struct backend_options options = {.target = target,
                                            .device = DEVICE,
                                            .dtype = ENGINE_BFLOAT16,
                                            .ranks = 1,
                                            .sessions = 1,
                                            .capacity = 128,
                                            .nodes = 1,
                                            .vocabulary = target ? target->vocabulary_size : 0};
    struct backend *backend = target ? class->open(&options, &error) : NULL;
    if (!backend ||
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &find, 12000, cudaEnableDefault, &result)) {
        fprintf(stderr, "%s\n", error.message);
        return BROKEN;
    }
    const struct segment prompt = {0, 3, (const int[]){10, 20, 30}, NULL};
    class->reset(backend, 0, &(struct sampling){.top_p = 1});
    class->extend(backend, &prompt, 1, &chosen);
    if (!find || !is_used((context_state *)find, NAMED))
        return BROKEN;
    for (int i = 0; i < here; i++)
        if (i != NAMED && is_used((context_state *)find, i))
            return TOUCHED;
    return LEFT_ALONE;
}

static void others_are_left_alone(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run_on_the_second());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) {
        print_message("SKIPPED: fewer than two GPUs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), LEFT_ALONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(others_are_left_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
