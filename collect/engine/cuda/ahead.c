/* `auto` runs ahead: each step's choice is the next one's token on the GPU, and the host reads one step behind. Where a
 * step changes states, which no later one can undo, the next is launched when it is asked for and not before. */
#include "collect/engine/cuda/cuda.h"

/* What runs ahead is not wanted: the next batch is made anew, and what was written behind the committed length is
 * overwritten. */
void ahead_drop(struct cuda *cuda)
{
    cuda->ahead.follows = false;
    cuda->ahead.answered = cuda->ahead.launched;
}

static void launch_step(struct cuda *cuda)
{
    graph_launch(cuda, CALL_STEP, cuda->ahead.count);
    cuda_select(cuda->gpus);
    CUDA_CHECK(cudaEventRecord(cuda->ahead.done[cuda->ahead.launched++ % CUDA_AHEAD], cuda->gpus->stream));
    cuda->host.reach++; /* of the step that follows, for graph_launch() */
}

/* Whether the step that is asked for is the one that follows. */
static bool is_next(const struct cuda *cuda, const struct segment *segments, int count)
{
    bool same = cuda->ahead.follows && count == cuda->ahead.count;
    for (int i = 0; same && i < count; i++)
        same = segments[i].session == cuda->host.segments[i].session && segments[i].tokens[0] == cuda->ahead.last[i];
    return same;
}

static void start_steps(struct cuda *cuda, const struct segment *segments, int count)
{
    ahead_drop(cuda);
    cuda_wait(cuda); /* the copy of an earlier batch may still wait */
    calls_make_target(cuda, CALL_STEP, segments, count);
    batch_send(cuda, CALL_STEP);
    cuda->ahead.count = count;
    launch_step(cuda);
}

void ahead_step(struct cuda *cuda, const struct segment *segments, int count, struct choice *chosen)
{
    bool room = true;
    if (!is_next(cuda, segments, count))
        start_steps(cuda, segments, count);
    else if (cuda->ahead.launched == cuda->ahead.answered)
        launch_step(cuda);
    for (int i = 0; i < count; i++)
        room = room && cuda->lengths[segments[i].session] + 2 <= cuda->options.capacity;
    if (room && !cuda->options.target->recurrent_count)
        launch_step(cuda);
    cuda->ahead.follows = room;
    unsigned answer = cuda->ahead.answered++ % CUDA_AHEAD;
    cuda_wait_for(cuda, cuda->ahead.done[answer]);
    for (int i = 0; i < count; i++) {
        cuda->ahead.given[i] = segments[i].tokens[0];
        chosen[i] = cuda->ahead.ring[answer * (unsigned)cuda->options.sessions + (unsigned)i];
        cuda->ahead.last[i] = chosen[i].token;
        cuda->lengths[segments[i].session]++;
    }
}
