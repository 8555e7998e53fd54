#include "collect/engine/cpu/team.h"

#include "collect/base/error.h"
#include "collect/engine/cpu/kernels.h"

#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct member {
    struct team *team;
    int rank;
    pthread_t thread;
    const float *partial;
};

struct team {
    int ranks, threads, threads_each; /* OpenMP's: of the caller before, of each rank */
    pthread_barrier_t barrier;
    team_work *work; /* NULL: the members go home */
    void *context;
    struct member members[];
};

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct team *team = member->team;
    omp_set_num_threads(team->threads_each);
    for (;;) {
        team_wait(team);
        if (!team->work)
            return NULL;
        team->work(team->context, member->rank);
        team_wait(team);
    }
}

struct team *team_create(int ranks)
{
    struct team *team = xcalloc(1, sizeof *team + (size_t)ranks * sizeof *team->members);
    team->ranks = ranks;
    team->threads = omp_get_max_threads();
    team->threads_each = team->threads > ranks ? team->threads / ranks : 1;
    if (ranks > 1)
        omp_set_num_threads(team->threads_each);
    pthread_barrier_init(&team->barrier, NULL, (unsigned)ranks);
    for (int i = 0; i < ranks; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->rank = i;
        if (i > 0 && pthread_create(&member->thread, NULL, member_main, member))
            die("cannot start a thread for rank %d of %d", i, ranks);
    }
    return team;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    team->work = NULL;
    team_wait(team);
    for (int i = 1; i < team->ranks; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_barrier_destroy(&team->barrier);
    if (team->ranks > 1)
        omp_set_num_threads(team->threads);
    free(team);
}

void team_wait(struct team *team)
{
    if (team->ranks > 1)
        pthread_barrier_wait(&team->barrier);
}

void team_run(struct team *team, team_work *work, void *context)
{
    team->work = work;
    team->context = context;
    team_wait(team);
    work(context, 0);
    team_wait(team);
}

void team_share(struct team *team, int rank, const float *partial)
{
    team->members[rank].partial = partial;
    team_wait(team);
}

void team_add_shared(const struct team *team, size_t first, int count, float *x)
{
    for (int i = 0; i < team->ranks; i++)
        kernel_add(x, team->members[i].partial + first, count);
}

int team_ranks(const struct team *team)
{
    return team->ranks;
}
