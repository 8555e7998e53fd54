/* Tensor-parallel ranks as threads of one process. Rank 0 is the caller's thread; the others wait between calls. Each
 * rank has its own OpenMP team: omp_set_num_threads() binds only the thread that calls it. */
#ifndef COLLECT_ENGINE_CPU_TEAM_H
#define COLLECT_ENGINE_CPU_TEAM_H

#include <stddef.h>

struct team;

typedef void team_work(void *context, int rank);

/* `ranks` threads that share the caller's OpenMP threads evenly, at least one each. */
struct team *team_create(int ranks);
void team_destroy(struct team *team);

/* Runs work(context, rank) on every rank and returns when all have ended. */
void team_run(struct team *team, team_work *work, void *context);

/* Every rank waits for the others; only inside team_run(). */
void team_wait(struct team *team);

/* An all-reduce in three steps: every rank shares its partial and waits for the others'; adds all of them, in the order
 * of the ranks, to its own x, piece by piece as it likes (x[count] += partials[first, first + count)), so that x is
 * bit-identical on all ranks; and calls team_wait() before it overwrites its partial. */
void team_share(struct team *team, int rank, const float *partial);
void team_add_shared(const struct team *team, size_t first, int count, float *x);

int team_ranks(const struct team *team);

#endif
