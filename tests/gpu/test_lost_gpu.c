/* GPUs that hang in the middle of a call: the process ends with a message, and does not wait for them. Each case is a
 * process of its own, since CUDA does not outlive a fork. */
#include "collect/base/error.h"
#include "collect/engine/cuda/cuda.h"
#include "tests/record/fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TARGET "data/models/demo/target"
#define LIMIT "5" /* seconds */

enum { SKIPPED = 77, SURVIVED = 78, BROKEN = 79 };

struct hang {
    const char *device; /* as a plan says it */
    int ranks, gpus;    /* how many it takes */
    int which;          /* GPU that hangs */
    bool peers;
};

static void sleep_for_ever(void *context)
{
    (void)context;
    for (;;)
        pause();
}

static int open_target(const struct hang *hang, struct backend **backend, struct error *error)
{
    struct model *target = model_open_target(TARGET, error);
    const struct backend_options options = {.target = target,
                                            .device = hang->device,
                                            .dtype = ENGINE_FLOAT32,
                                            .ranks = hang->ranks,
                                            .sessions = 1,
                                            .capacity = 128,
                                            .nodes = 1,
                                            .vocabulary = target ? target->vocabulary_size : 0};
    const struct backend_class *class = target ? backend_find("cuda", error) : NULL;
    *backend = class ? class->open(&options, error) : NULL;
    return *backend ? 0 : -1;
}

/* In a process of its own; says why it was left out, or what went wrong, on the stream that messages go to. */
static int hang_in_a_step(const struct hang *hang)
{
    struct error error = {0};
    struct backend *backend;
    struct choice chosen;
    int here = 0, token = 7;
    if (device_find(NULL, &error) != DEVICE_USABLE || cudaGetDeviceCount(&here) || here < hang->gpus) {
        fprintf(stderr, "%s\n", error.message[0] ? error.message : "too few GPUs");
        return SKIPPED;
    }
    setenv("CLEANSLATE_ANSWER_LIMIT", LIMIT, 1);
    setenv("CLEANSLATE_PEERS", hang->peers ? "1" : "0", 1);
    if (open_target(hang, &backend, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return strstr(error.message, "NCCL") ? SKIPPED : BROKEN;
    }
    const struct segment prompt = {0, 3, (const int[]){10, 20, 30}, NULL}, step = {0, 1, &token, NULL};
    backend->class->reset(backend, 0, &(struct sampling){.top_p = 1});
    backend->class->extend(backend, &prompt, 1, &chosen);
    backend->class->extend(backend, &step, 1, &chosen);
    const struct gpu *gpu = &((struct cuda *)backend)->gpus[hang->which];
    cuda_select(gpu);
    CUDA_CHECK(cudaLaunchHostFunc(gpu->stream, sleep_for_ever, NULL));
    for (int i = 0; i < 4; i++) { /* steps run ahead of what is asked for */
        token = chosen.token;
        backend->class->extend(backend, &step, 1, &chosen);
    }
    return SURVIVED;
}

static void check_hang(const struct hang *hang)
{
    char *folder = fixture_make_folder(), *path = xformat("%s/said", folder), said[4096] = "";
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(file, STDERR_FILENO);
        _exit(hang_in_a_step(hang));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
    fixture_remove_folder(folder);
    free(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        print_message("SKIPPED: GPU %d of %d that hangs%s: %s", hang->which, hang->gpus, hang->peers ? "" : ", NCCL",
                      said);
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_CODE_FAILURE || !strstr(said, LIMIT " s"))
        fail_msg("GPU %d of %d: status %#x; said: %s", hang->which, hang->gpus, (unsigned)status, said);
}

static void the_run_ends_with_a_message(void **state)
{
    (void)state;
    static const struct hang hangs[] = {
        {"cuda", 1, 1, 0, true}, {"cuda:0,0", 2, 1, 0, true}, {"cuda", 2, 2, 0, true},
        {"cuda", 2, 2, 1, true}, {"cuda", 2, 2, 1, false},
    };
    for (size_t i = 0; i < sizeof hangs / sizeof *hangs; i++)
        check_hang(&hangs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_run_ends_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
