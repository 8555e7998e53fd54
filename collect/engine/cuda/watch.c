/* What the first GPU does when, by events between its calls or between the parts of one: for benchmarks. */
#include "collect/engine/cuda/cuda.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MARKS_MAXIMUM 4096
#define PARTS_TRIES 3          /* the quickest of each part counts */
#define HEAD_START_NS 10000000 /* of the host: queueing must not be what is measured */

struct watch {
    enum watch_level level;
    int count;
    cudaEvent_t events[MARKS_MAXIMUM];
    const char *names[MARKS_MAXIMUM]; /* of what begins there; NULL: nothing does */
};

static struct watch *watch_create(enum watch_level level)
{
    struct watch *watch = xcalloc(1, sizeof *watch);
    watch->level = level;
    for (int i = 0; i < MARKS_MAXIMUM; i++)
        CUDA_CHECK(cudaEventCreate(&watch->events[i]));
    return watch;
}

void watch_destroy(struct watch *watch)
{
    for (int i = 0; watch && i < MARKS_MAXIMUM; i++)
        CUDA_CHECK(cudaEventDestroy(watch->events[i]));
    free(watch);
}

void watch_mark(const struct cuda *cuda, const struct gpu *gpu, enum watch_level level, const char *name)
{
    struct watch *watch = cuda->watch;
    if (!watch || watch->level != level || gpu != cuda->gpus)
        return;
    if (watch->count == MARKS_MAXIMUM)
        die("more than %d marks between two readings", MARKS_MAXIMUM);
    CUDA_CHECK(cudaEventRecord(watch->events[watch->count], gpu->stream));
    watch->names[watch->count++] = name;
}

/* From mark `index` to the next. */
static int64_t lasted_ns(const struct watch *watch, int index)
{
    float milliseconds;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, watch->events[index], watch->events[index + 1]));
    return (int64_t)((double)milliseconds * 1e6);
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

int64_t cuda_busy_ns(struct backend *backend, int64_t *until_ns)
{
    struct cuda *cuda = (struct cuda *)backend;
    int64_t busy = 0;
    cuda_select(cuda->gpus);
    if (!cuda->watch)
        cuda->watch = watch_create(WATCH_CALLS);
    cuda_wait(cuda);
    *until_ns = clock_now_ns();
    for (int i = 0; i + 1 < cuda->watch->count; i++)
        if (cuda->watch->names[i])
            busy += lasted_ns(cuda->watch, i);
    cuda->watch->count = 0;
    return busy;
}

/* --- parts of a call -------------------------------------------------------------------------------------------- */

/* Time by name, in the order in which names appear; what does not fit is left out. */
static int add_parts(const struct watch *watch, struct backend_part *parts, int maximum)
{
    int count = 0;
    for (int i = 0; i + 1 < watch->count; i++) {
        int at = 0;
        while (watch->names[i] && at < count && strcmp(parts[at].name, watch->names[i]) != 0)
            at++;
        if (!watch->names[i] || at == maximum)
            continue;
        if (at == count)
            parts[count++] = (struct backend_part){watch->names[i], 0};
        parts[at].ns += lasted_ns(watch, i);
    }
    return count;
}

static void give_head_start(void *context)
{
    (void)context;
    nanosleep(&(struct timespec){.tv_nsec = HEAD_START_NS}, NULL);
}

/* Queues the call kernel by kernel, not as its graph, with marks in between. */
static int run_marked(struct cuda *cuda, enum call call, struct backend_part *parts, int maximum)
{
    graph_shape(cuda, call, 1);
    if (call == CALL_STEP)
        batch_send(cuda, call);
    cuda_wait(cuda);
    cuda->watch->count = 0;
    FOR_GPUS(cuda, gpu)
        CUDA_CHECK(cudaLaunchHostFunc(gpu->stream, give_head_start, NULL));
    calls_queue(cuda, call);
    cuda_select(cuda->gpus);
    watch_mark(cuda, cuda->gpus, WATCH_PARTS, NULL);
    cuda_wait(cuda);
    return add_parts(cuda->watch, parts, maximum);
}

int cuda_measure_parts(struct backend *backend, enum backend_step step, struct backend_part *parts, int maximum)
{
    struct cuda *cuda = (struct cuda *)backend;
    struct watch *calls = cuda->watch;
    enum call call = step == BACKEND_DRAFT    ? CALL_DRAFT
                     : step == BACKEND_COMMIT ? CALL_COMMIT
                     : cuda->options.drafter  ? CALL_VERIFY
                                              : CALL_STEP;
    struct backend_part *again = xcalloc((size_t)maximum, sizeof *again);
    cuda_settle(cuda);
    cuda_select(cuda->gpus);
    cuda->watch = watch_create(WATCH_PARTS);
    int count = run_marked(cuda, call, parts, maximum);
    for (int i = 1; i < PARTS_TRIES; i++) {
        run_marked(cuda, call, again, maximum);
        for (int part = 0; part < count; part++)
            parts[part].ns = again[part].ns < parts[part].ns ? again[part].ns : parts[part].ns;
    }
    watch_destroy(cuda->watch);
    cuda->watch = calls;
    graph_restart_steps(cuda);
    free(again);
    return count;
}
