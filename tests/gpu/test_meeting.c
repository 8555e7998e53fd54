/* Sums that GPUs bring each other, against those that the host makes; and the choice among their leaders. Ranks share
 * GPUs where there are fewer: then with so few rows that all of them run at the same time.
 *
 * With the argument "bench": the time of a sum by the own kernels and by NCCL, 8 KB to 1 MB, over 2, 4 and 8 GPUs. */
#include "collect/engine/bfloat16.h"
#include "collect/engine/cuda/kernels.h"
#include "collect/engine/cuda/nccl.h"
#include "tests/gpu/gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FEATURES 3
#define LIMIT_NS 20000000000 /* of a meeting that another does not come to */

static bool usable;
static int gpus_here;

static int find_gpus(void **state)
{
    (void)state;
    usable = gpu_is_usable();
    if (usable)
        CUDA_CHECK(cudaGetDeviceCount(&gpus_here));
    for (int i = 0; i < gpus_here; i++) {
        CUDA_CHECK(cudaSetDevice(i));
        for (int j = 0; j < gpus_here; j++) {
            int reachable = 0;
            if (i != j)
                CUDA_CHECK(cudaDeviceCanAccessPeer(&reachable, i, j));
            if (reachable)
                CUDA_CHECK(cudaDeviceEnablePeerAccess(j, 0));
            else if (i != j && gpus_here > 1) {
                print_message("SKIPPED: GPU %d does not reach GPU %d's memory; ranks share GPU 0\n", i, j);
                gpus_here = 1;
            }
        }
    }
    return 0;
}

/* --- ranks that meet ---------------------------------------------------------------------------------------------- */

struct rank {
    int device;
    cudaStream_t stream;
    struct meeting meeting;
    float *sums, *x, *news; /* news: pinned, what sums become */
    void *out, *features;
    unsigned *mailbox;
    struct leader *leaders;
    struct choose_row *how;
    struct choice *chosen;
};

struct party {
    int count, rows, width;
    struct rank ranks[RANKS_MAXIMUM];
    float *weight[RANKS_MAXIMUM];
    unsigned *lost; /* pinned */
};

#define FOR_RANKS(party, rank)                                                                                         \
    for (struct rank *rank = (party)->ranks; rank < (party)->ranks + (party)->count && select_device(rank); rank++)

static bool select_device(const struct rank *rank)
{
    CUDA_CHECK(cudaSetDevice(rank->device));
    return true;
}

/* size: words that one sends another in a meeting; shared_bytes: from which on each adds its share. */
static void gather_party(struct party *party, int count, int rows, int width, size_t size, size_t shared_bytes)
{
    size_t elements = (size_t)rows * (size_t)width, words = 2 * (size_t)count * size;
    *party = (struct party){.count = count, .rows = rows, .width = width};
    party->lost = device_allocate_pinned(sizeof *party->lost);
    *party->lost = 0;
    FOR_RANKS(party, rank) {
        int index = (int)(rank - party->ranks);
        rank->device = index % gpus_here;
        select_device(rank);
        CUDA_CHECK(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
        rank->sums = device_allocate(elements * sizeof(float) + 16);
        rank->x = device_allocate(elements * sizeof(float));
        rank->out = device_allocate(elements * sizeof(float));
        rank->features = device_allocate(FEATURES * elements * sizeof(float));
        rank->leaders = device_allocate((size_t)rows * sizeof *rank->leaders);
        rank->how = device_allocate((size_t)rows * sizeof *rank->how);
        rank->chosen = device_allocate_pinned((size_t)rows * sizeof *rank->chosen);
        party->weight[index] = device_allocate((size_t)width * sizeof(float));
        rank->mailbox = device_allocate(words * sizeof *rank->mailbox);
        CUDA_CHECK(cudaMemset(rank->mailbox, 0xff, words * sizeof *rank->mailbox));
        CUDA_CHECK(cudaDeviceSynchronize());
        rank->meeting = (struct meeting){.gpus = count,
                                         .index = index,
                                         .size = size,
                                         .shared_bytes = shared_bytes,
                                         .side = device_allocate(sizeof(unsigned)),
                                         .arrived = device_allocate(sizeof(unsigned)),
                                         .lost = party->lost,
                                         .limit_ns = LIMIT_NS};
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            party->ranks[i].meeting.mailboxes[j] = party->ranks[j].mailbox;
}

static void wait_for_party(const struct party *party)
{
    for (int i = 0; i < party->count; i++)
        CUDA_CHECK(cudaStreamSynchronize(party->ranks[i].stream));
}

static void part_party(struct party *party)
{
    wait_for_party(party);
    FOR_RANKS(party, rank) {
        void *const memory[] = {
            rank->sums, rank->x,       rank->out,          rank->features,        rank->leaders,
            rank->how,  rank->mailbox, rank->meeting.side, rank->meeting.arrived, party->weight[rank - party->ranks]};
        for (int i = 0; i < COUNT(memory); i++)
            CUDA_CHECK(cudaFree(memory[i]));
        CUDA_CHECK(cudaFreeHost(rank->chosen));
        CUDA_CHECK(cudaStreamDestroy(rank->stream));
    }
    CUDA_CHECK(cudaFreeHost(party->lost));
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct trial {
    enum element type;
    int width, most_rows;
    bool normed, kept, shared; /* kept: x is */
    int at_a_time;             /* rows that a mailbox takes; 0: all */
};

static const struct trial trials[] = {
    {ELEMENT_BFLOAT16, 4096, 13, true, true, false, 0}, {ELEMENT_BFLOAT16, 4096, 13, true, true, true, 0},
    {ELEMENT_BFLOAT16, 4096, 1, false, true, false, 0}, {ELEMENT_FLOAT32, 5120, 9, true, true, false, 0},
    {ELEMENT_FLOAT32, 5120, 9, true, true, true, 4},    {ELEMENT_FLOAT32, 10, 11, true, true, false, 3},
    {ELEMENT_FLOAT32, 10, 11, true, true, true, 0},     {ELEMENT_FLOAT32, 1002, 7, false, true, true, 0},
    {ELEMENT_BFLOAT16, 12288, 5, true, false, true, 2}, {ELEMENT_BFLOAT16, 64, 8, true, false, false, 0},
};

static void queue_sum(const struct party *party, const struct trial *trial, const struct rank *rank, int rows)
{
    struct add_norm_call call = {.type = trial->type,
                                 .rows = rows,
                                 .width = party->width,
                                 .meeting = rank->meeting,
                                 .sum_count = party->count,
                                 .x = trial->kept ? rank->x : NULL,
                                 .features = rank->features,
                                 .feature_index = 1,
                                 .feature_count = FEATURES,
                                 .weight = trial->normed ? party->weight[rank - party->ranks] : NULL,
                                 .epsilon = 1e-6f,
                                 .out = rank->out};
    call.sums[rank->meeting.index] = rank->sums;
    kernels_add_norm(&call, rank->stream);
}

static float held(enum element type, const void *values, size_t at)
{
    return type == ELEMENT_BFLOAT16 ? bfloat16_to_float(((const uint16_t *)values)[at]) : ((const float *)values)[at];
}

/* All that a rank has, against x[rows, width]. */
static void check_rank(const struct party *party, const struct trial *trial, const struct rank *rank, int rows,
                       const float *x, const float *weight)
{
    size_t width = (size_t)party->width, elements = (size_t)rows * width;
    float *actual = xcalloc(elements, sizeof *actual), *out = xcalloc(elements, sizeof *out),
          *features = xcalloc(FEATURES * elements, sizeof *features);
    select_device(rank);
    gpu_fetch(actual, rank->x, elements * sizeof *actual);
    gpu_fetch(out, rank->out, elements * element_size(trial->type));
    gpu_fetch(features, rank->features, FEATURES * elements * element_size(trial->type));
    for (size_t i = 0; i < elements; i++) {
        size_t row = i / width, column = i % width;
        double squares = 0;
        if (trial->kept && actual[i] != x[i])
            fail_msg("rank %d of %d, row %zu, column %zu: %g, not %g", rank->meeting.index, party->count, row, column,
                     (double)actual[i], (double)x[i]);
        float feature = held(trial->type, features, (row * FEATURES + 1) * width + column);
        assert_true(fabsf(feature - x[i]) <= (trial->type == ELEMENT_BFLOAT16 ? 0.004f : 0) * fabsf(x[i]));
        for (size_t c = 0; trial->normed && column % 97 == 0 && c < width; c++)
            squares += (double)x[row * width + c] * (double)x[row * width + c];
        double normed = (double)x[i] / sqrt(squares / (double)width + 1e-6) * (double)weight[column];
        if (trial->normed && column % 97 == 0)
            assert_true(fabs((double)held(trial->type, out, i) - normed) <=
                        (trial->type == ELEMENT_BFLOAT16 ? 0.005 : 1e-5) * fabs(normed));
    }
    free(actual);
    free(out);
    free(features);
}

/* Meetings of several numbers of rows, with nobody waiting in between: some ranks are ahead of others, and what one
 * meeting leaves behind would disturb the next. */
static void check_sums(const struct trial *trial, int count)
{
    enum { ROUNDS = 9 };
    struct party party;
    int sharing = (count + gpus_here - 1) / gpus_here, room = device_multiprocessors() / (2 * sharing);
    int width = trial->width, most = trial->most_rows < room || sharing == 1 ? trial->most_rows : room > 1 ? room : 1;
    const int rows[ROUNDS] = {most, 1, most, most, (most + 1) / 2, 1, 1, most, most};
    size_t elements = (size_t)most * (size_t)width, stride = (elements + 3) / 4 * 4; /* as copies take it */
    size_t size = (size_t)(trial->at_a_time ? trial->at_a_time : most) * (size_t)width;
    uint64_t seed = 88172645463325252u + (uint64_t)width;
    float *x = xcalloc(elements, sizeof *x), *weight = xcalloc((size_t)width, sizeof *weight);
    gather_party(&party, count, most, width, size, trial->shared ? 0 : SIZE_MAX);
    for (int i = 0; i < width; i++)
        weight[i] = gpu_random(&seed);
    for (int i = 0; i < count; i++)
        CUDA_CHECK(cudaMemcpy(party.weight[i], weight, (size_t)width * sizeof *weight, cudaMemcpyHostToDevice));
    FOR_RANKS(&party, rank) {
        rank->news = device_allocate_pinned(ROUNDS * stride * sizeof(float));
        for (size_t i = 0; i < ROUNDS * stride; i++)
            rank->news[i] = gpu_random(&seed);
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    FOR_RANKS(&party, rank) {
        const float *news = rank->news;
        for (int round = 0; round < ROUNDS; round++, news += stride) {
            kernels_copy(rank->sums, news, (size_t)rows[round] * (size_t)width * sizeof(float), rank->stream);
            queue_sum(&party, trial, rank, rows[round]);
        }
    }
    wait_for_party(&party);
    assert_int_equal(*party.lost, 0);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < (size_t)rows[round] * (size_t)width; i++) {
            x[i] = trial->kept ? x[i] : 0;
            for (int rank = 0; rank < count; rank++)
                x[i] += party.ranks[rank].news[(size_t)round * stride + i];
        }
    FOR_RANKS(&party, rank) {
        check_rank(&party, trial, rank, most, x, weight);
        CUDA_CHECK(cudaFreeHost(rank->news));
    }
    part_party(&party);
    free(x);
    free(weight);
}

static void sums_are_the_hosts_on_every_rank(void **state)
{
    (void)state;
    if (!usable)
        skip();
    if (gpus_here == 1)
        print_message("SKIPPED: sums between GPUs: there is one, which all ranks share\n");
    for (int count = 2; count <= RANKS_MAXIMUM; count++)
        for (int i = 0; i < COUNT(trials); i++)
            check_sums(&trials[i], count);
}

/* --- choices ------------------------------------------------------------------------------------------------------ */

/* Ties go to the lower id, which is the lower rank's. */
static void check_choices(int count)
{
    enum { ROWS = 300, ROUNDS = 5 };
    static struct leader leaders[ROUNDS][RANKS_MAXIMUM][ROWS];
    struct party party;
    uint64_t seed = 88172645463325252u;
    gather_party(&party, count, ROUNDS * ROWS, 4, (size_t)ROWS * 4, SIZE_MAX);
    FOR_RANKS(&party, rank) {
        int index = rank->meeting.index;
        for (int i = 0; i < ROUNDS * ROWS; i++) {
            float best = roundf(gpu_random(&seed) * 4);
            leaders[i / ROWS][index][i % ROWS] =
                (struct leader){best, best - 1 - (float)(i % 3), 100 * index + i % 100};
        }
        for (int round = 0; round < ROUNDS; round++)
            CUDA_CHECK(cudaMemcpy(rank->leaders + round * ROWS, leaders[round][index], sizeof leaders[round][index],
                                  cudaMemcpyHostToDevice));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    FOR_RANKS(&party, rank)
        for (int round = 0; round < ROUNDS; round++) {
            struct decide_call call = {.meeting = rank->meeting,
                                       .rows = round % 2 ? 1 : ROWS,
                                       .slices = count,
                                       .how = rank->how,
                                       .chosen = rank->chosen + round * ROWS};
            call.leaders[rank->meeting.index] = rank->leaders + round * ROWS;
            kernels_decide(&call, rank->stream);
        }
    wait_for_party(&party);
    assert_int_equal(*party.lost, 0);
    for (int i = 0; i < ROUNDS * ROWS; i++) {
        int round = i / ROWS, row = i % ROWS, best = 0;
        for (int rank = 1; rank < count; rank++)
            best = leaders[round][rank][row].best > leaders[round][best][row].best ? rank : best;
        for (int rank = 0; rank < count && (round % 2 == 0 || row == 0); rank++)
            assert_int_equal(party.ranks[rank].chosen[i].token, leaders[round][best][row].token);
    }
    part_party(&party);
}

static void all_ranks_make_the_same_choice(void **state)
{
    (void)state;
    if (!usable)
        skip();
    for (int count = 2; count <= RANKS_MAXIMUM; count++)
        check_choices(count);
}

/* --- who does not come -------------------------------------------------------------------------------------------- */

static void who_waits_in_vain_gives_up(void **state)
{
    (void)state;
    if (!usable)
        skip();
    struct party party;
    const struct trial trial = {ELEMENT_FLOAT32, 64, 1, true, true, false, 0};
    gather_party(&party, 2, 1, 64, 64, SIZE_MAX);
    party.ranks[0].meeting.limit_ns = 100000000;
    select_device(party.ranks);
    queue_sum(&party, &trial, party.ranks, 1);
    wait_for_party(&party);
    assert_int_equal(*party.lost, 1);
    part_party(&party);
}

/* --- bench -------------------------------------------------------------------------------------------------------- */

#define CALLS 72

enum way { ALONE, TO_ALL, SHARED, GATHERED, REDUCED, WAYS };
static const char *const way_names[] = {"no meeting", "one-shot", "two-shot", "NCCL all-gather", "NCCL all-reduce"};

typedef int reduce_function(const void *, void *, size_t, int, int, void *, cudaStream_t);

/* What a bench calls NCCL by, beside nccl.h. */
static struct {
    struct nccl *own;
    void *gathered[RANKS_MAXIMUM], *communicators[RANKS_MAXIMUM];
    int (*begin)(void), (*end)(void);
    reduce_function *reduce;
} nccl;

static bool open_nccl(int count, size_t bytes)
{
    struct error error = {0};
    int devices[RANKS_MAXIMUM];
    for (int i = 0; i < count; i++)
        devices[i] = i;
    nccl.own = nccl_open(devices, count, &error);
    if (!nccl.own) {
        printf("SKIPPED: NCCL: %s\n", error.message);
        return false;
    }
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    int (*open_all)(void **, int, const int *);
    *(void **)&open_all = dlsym(library, "ncclCommInitAll");
    *(void **)&nccl.begin = dlsym(library, "ncclGroupStart");
    *(void **)&nccl.end = dlsym(library, "ncclGroupEnd");
    *(void **)&nccl.reduce = dlsym(library, "ncclAllReduce");
    if (open_all(nccl.communicators, count, devices)) {
        puts("SKIPPED: NCCL: a second communicator does not start");
        return false;
    }
    for (int i = 0; i < count; i++) {
        CUDA_CHECK(cudaSetDevice(i));
        nccl.gathered[i] = device_allocate((size_t)count * bytes);
    }
    return true;
}

static void queue_nccl(const struct party *party, enum way way)
{
    enum { FLOAT = 7, SUM = 0 };
    const void *from[RANKS_MAXIMUM];
    cudaStream_t streams[RANKS_MAXIMUM];
    size_t elements = (size_t)party->rows * (size_t)party->width;
    for (int i = 0; i < party->count; i++) {
        from[i] = party->ranks[i].sums;
        streams[i] = party->ranks[i].stream;
    }
    if (way == GATHERED) {
        nccl_gather(nccl.own, from, nccl.gathered, elements * sizeof(float), streams);
        return;
    }
    nccl.begin();
    for (int i = 0; i < party->count; i++)
        nccl.reduce(from[i], nccl.gathered[i], elements, FLOAT, SUM, nccl.communicators[i], streams[i]);
    nccl.end();
}

static void queue_way(struct party *party, enum way way)
{
    const struct trial trial = {ELEMENT_BFLOAT16, party->width, party->rows, party->rows > 1, true, false, 0};
    if (way == GATHERED || way == REDUCED) {
        queue_nccl(party, way);
        return;
    }
    FOR_RANKS(party, rank) {
        struct rank own = *rank;
        own.meeting.shared_bytes = way == SHARED ? 0 : SIZE_MAX;
        struct party alone = *party;
        if (way == ALONE) {
            own.meeting = (struct meeting){0};
            alone.count = 1;
        }
        struct add_norm_call call = {.type = trial.type,
                                     .rows = party->rows,
                                     .width = party->width,
                                     .meeting = own.meeting,
                                     .sum_count = alone.count,
                                     .x = rank->x,
                                     .weight = trial.normed ? party->weight[rank - party->ranks] : NULL,
                                     .epsilon = 1,
                                     .out = rank->out};
        call.sums[own.meeting.index] = rank->sums;
        kernels_add_norm(&call, rank->stream);
    }
}

/* Microseconds of one of CALLS that follow each other in a graph: the least of ten replays. */
static double time_way(struct party *party, enum way way)
{
    cudaGraph_t graphs[RANKS_MAXIMUM];
    cudaGraphExec_t replays[RANKS_MAXIMUM];
    cudaEvent_t begin, end;
    float best = 1e30f;
    queue_way(party, way);
    wait_for_party(party);
    FOR_RANKS(party, rank)
        CUDA_CHECK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++)
        queue_way(party, way);
    FOR_RANKS(party, rank)
        CUDA_CHECK(cudaStreamEndCapture(rank->stream, &graphs[rank - party->ranks]));
    FOR_RANKS(party, rank)
        CUDA_CHECK(cudaGraphInstantiate(&replays[rank - party->ranks], graphs[rank - party->ranks], 0));
    select_device(party->ranks);
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    for (int i = 0; i < 12; i++) {
        float milliseconds;
        FOR_RANKS(party, rank) {
            if (rank == party->ranks)
                CUDA_CHECK(cudaEventRecord(begin, rank->stream));
            CUDA_CHECK(cudaGraphLaunch(replays[rank - party->ranks], rank->stream));
            if (rank == party->ranks)
                CUDA_CHECK(cudaEventRecord(end, rank->stream));
        }
        wait_for_party(party);
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= 2 && milliseconds < best)
            best = milliseconds;
    }
    FOR_RANKS(party, rank) {
        CUDA_CHECK(cudaGraphExecDestroy(replays[rank - party->ranks]));
        CUDA_CHECK(cudaGraphDestroy(graphs[rank - party->ranks]));
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    return 1000.0 * (double)best / CALLS;
}

static int bench(void)
{
    static const int sizes[][2] = {{1, 2048}, {1, 4096},  {2, 4096},  {4, 4096},
                                   {8, 4096}, {16, 4096}, {32, 4096}, {65, 4096}};
    find_gpus(NULL);
    if (gpus_here < 2)
        puts("SKIPPED: sums between GPUs take two at least");
    for (int count = 2; count <= gpus_here && count <= RANKS_MAXIMUM; count *= 2) {
        bool has_nccl = open_nccl(count, 65 * 4096 * sizeof(float));
        printf("%d GPUs, us a sum; the own ones add to x and, from two rows on, norm it\n%6s", count, "KB");
        for (enum way way = 0; way < (has_nccl ? WAYS : GATHERED); way++)
            printf("%17s", way_names[way]);
        puts("");
        for (int i = 0; i < COUNT(sizes); i++) {
            struct party party;
            gather_party(&party, count, sizes[i][0], sizes[i][1], (size_t)sizes[i][0] * (size_t)sizes[i][1], SIZE_MAX);
            printf("%6zu", (size_t)sizes[i][0] * (size_t)sizes[i][1] * sizeof(float) / 1024);
            for (enum way way = 0; way < (has_nccl ? WAYS : GATHERED); way++)
                printf("%17.2f", time_way(&party, way));
            puts("");
            fflush(stdout);
            if (*party.lost)
                puts("a GPU waited in vain: these times are worth nothing");
            part_party(&party);
        }
        nccl_close(nccl.own);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_hosts_on_every_rank),
        cmocka_unit_test(all_ranks_make_the_same_choice),
        cmocka_unit_test(who_waits_in_vain_gives_up),
    };
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    return cmocka_run_group_tests(tests, find_gpus, NULL);
}
