#include "collect/interrupt.h"

#include "collect/base/error.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>

static const int caught[] = {SIGINT, SIGTERM};
enum { CAUGHT_COUNT = sizeof caught / sizeof *caught };

static volatile sig_atomic_t seen;
static struct sigaction former[CAUGHT_COUNT];
static sigset_t former_mask;
static pthread_t taker;
static sem_t released;

static void note(int number)
{
    (void)number;
    seen = 1;
}

/* As pthread_sigmask() does, of these signals. */
static void mask(int how, sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < CAUGHT_COUNT; i++)
        sigaddset(&set, caught[i]);
    pthread_sigmask(how, &set, before);
}

void interrupt_unblock(void)
{
    mask(SIG_UNBLOCK, NULL);
}

/* Where the handler runs. */
static void *take_signals(void *nothing)
{
    interrupt_unblock();
    while (sem_wait(&released))
        continue;
    return nothing;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    seen = 0;
    for (int i = 0; i < CAUGHT_COUNT; i++)
        sigaction(caught[i], &action, &former[i]);
    mask(SIG_BLOCK, &former_mask);
    sem_init(&released, 0, 0);
    if (pthread_create(&taker, NULL, take_signals, NULL))
        die("no thread can be made");
}

bool interrupt_seen(void)
{
    return seen;
}

void interrupt_release(void)
{
    sem_post(&released);
    pthread_join(taker, NULL);
    sem_destroy(&released);
    for (int i = 0; i < CAUGHT_COUNT; i++)
        sigaction(caught[i], &former[i], NULL);
    pthread_sigmask(SIG_SETMASK, &former_mask, NULL);
}
