#include "collect/interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int caught[] = {SIGINT, SIGTERM};
enum { CAUGHT_COUNT = sizeof caught / sizeof *caught };

static volatile sig_atomic_t seen;
static struct sigaction former[CAUGHT_COUNT];

static void note(int number)
{
    (void)number;
    seen = 1;
}

void interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    seen = 0;
    for (int i = 0; i < CAUGHT_COUNT; i++)
        sigaction(caught[i], &action, &former[i]);
}

bool interrupt_seen(void)
{
    return seen;
}

void interrupt_release(void)
{
    for (int i = 0; i < CAUGHT_COUNT; i++)
        sigaction(caught[i], &former[i], NULL);
}
