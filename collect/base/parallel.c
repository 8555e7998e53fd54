#include "collect/base/parallel.h"

#include "collect/base/error.h"

#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS_MAXIMUM = 16, WORTH_A_THREAD = 8 };

struct work {
    void (*body)(void *context, int index);
    void *context;
    int count;
    atomic_int next;
};

static void *run(void *argument)
{
    struct work *work = argument;
    for (int index; (index = atomic_fetch_add(&work->next, 1)) < work->count;)
        work->body(work->context, index);
    return NULL;
}

/* Beside the one that calls. */
static int count_helpers(int count)
{
    cpu_set_t usable;
    const int processors = sched_getaffinity(0, sizeof usable, &usable) ? 1 : CPU_COUNT(&usable);
    const int threads = processors < count / WORTH_A_THREAD ? processors : count / WORTH_A_THREAD;
    return threads > THREADS_MAXIMUM ? THREADS_MAXIMUM - 1 : threads > 1 ? threads - 1 : 0;
}

void parallel_for(int count, void (*body)(void *context, int index), void *context)
{
    struct work work = {body, context, count, 0};
    pthread_t helpers[THREADS_MAXIMUM];
    int started = 0;
    json_object_seed(0); /* which Jansson does at its first object, and not for several threads at a time */
    for (const int wanted = count_helpers(count); started < wanted; started++)
        if (pthread_create(&helpers[started], NULL, run, &work))
            break;
    run(&work);
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
}
