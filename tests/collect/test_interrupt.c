/* Signals while threads compute: where they are handled, and that they leave what is computed as it was. */
#include "collect/interrupt.h"

#include "collect/engine/engine.h"
#include "collect/server/process.h"
#include "tests/record/fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const int signals[] = {SIGINT, SIGTERM};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* The status of a child that does this, as waitpid() has it. */
static int status_of(void (*body)(int argument), int argument)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body(argument);
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* --- the question ------------------------------------------------------------------------------------------------- */

static void send_and_see(int number)
{
    kill(getpid(), number);
    while (!interrupt_seen())
        nap();
}

static void a_signal_is_seen(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        interrupt_catch();
        assert_false(interrupt_seen());
        send_and_see(signals[i]);
        interrupt_release();
    }
}

static void send_two(int number)
{
    interrupt_catch();
    send_and_see(number);
    kill(getpid(), number);
    for (;;)
        nap();
}

/* Also where the main thread never asks. */
static void a_second_one_ends_the_program(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int status = status_of(send_two, signals[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    }
}

static void ask_nothing(int number)
{
    interrupt_catch();
    interrupt_release();
    kill(getpid(), number);
}

static void released_they_mean_what_they_did(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        int status = status_of(ask_nothing, signals[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
    }
}

static void a_program_that_is_started_takes_them(void **state)
{
    (void)state;
    char *const argv[] = {"grep", "SigBlk", "/proc/self/status", NULL}, *const env[] = {NULL};
    char how[PROCESS_HOW_SIZE], *folder = fixture_make_folder(), *log = xformat("%s/log", folder);
    struct process process;
    struct error error = {0};
    interrupt_catch();
    assert_int_equal(process_start(&process, argv, env, log, &error), 0);
    assert_true(process_wait(&process, 60, how));
    interrupt_release();
    process_stop(&process, 1);
    char *said = fixture_read(log, NULL);
    const unsigned long blocked = strtoul(said + strlen("SigBlk:"), NULL, 16);
    for (int i = 0; i < 2; i++)
        assert_false(blocked >> (signals[i] - 1) & 1);
    free(said);
    free(log);
    fixture_remove_folder(folder);
}

/* --- where they are handled --------------------------------------------------------------------------------------- */

/* How often a second the process gets SIGINT. */
enum { STORM_HZ = 2000 };

/* From then on for ever, none of them the last. */
static void begin_storm(void)
{
    struct sigaction action;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGINT};
    const struct itimerspec period = {{0, 1000000000 / STORM_HZ}, {0, 1000000000 / STORM_HZ}};
    timer_t timer;
    sigaction(SIGINT, NULL, &action);
    action.sa_flags &= ~(int)SA_RESETHAND;
    sigaction(SIGINT, &action, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &period, NULL))
        abort();
}

static void generate(struct engine *engine, int tokens, struct sample *sample)
{
    struct error error = {0};
    int *ids = NULL, count = engine_encode(engine, "def fibonacci(n):\n", &ids, &error);
    sample_init(sample);
    sample->asked_tokens = tokens;
    sample->asked_ignore_eos = true;
    engine_run(engine, &(struct engine_request){ids, count, 0, 0, sample}, 1);
    free(ids);
}

/* Exits with 1 where tokens change. */
static void generate_in_a_storm(int method)
{
    enum { TOKENS = 64, TIMES = 3 };
    const struct sampling greedy = {.top_p = 1};
    const struct arm arm = {1, (enum method)method, method_has_budget((enum method)method) ? 16 : 0, 1};
    struct error error = {0};
    struct sample calm, sample;
    json_t *memory = NULL;
    interrupt_catch();
    struct engine *engine =
        engine_open("data/models/demo/target", "data/models/demo/drafter", "float32", "cpu", &error);
    if (!engine || engine_load(engine, &arm, &greedy, 200, &memory, &error))
        die("%s", error.message);
    json_decref(memory);
    generate(engine, TOKENS, &calm);
    begin_storm();
    for (int i = 0; i < TIMES; i++) {
        generate(engine, TOKENS, &sample);
        if (memcmp(sample.token_ids, calm.token_ids, TOKENS * sizeof(int)) != 0)
            _exit(1);
        sample_free(&sample);
    }
    sample_free(&calm);
    engine_close(engine);
    if (!interrupt_seen())
        _exit(2);
}

static void the_engine_does_not_notice_them(void **state)
{
    (void)state;
    for (int method = 0; method < METHOD_COUNT; method++)
        assert_int_equal(status_of(generate_in_a_storm, method), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_is_seen),
        cmocka_unit_test(a_second_one_ends_the_program),
        cmocka_unit_test(released_they_mean_what_they_did),
        cmocka_unit_test(a_program_that_is_started_takes_them),
        cmocka_unit_test(the_engine_does_not_notice_them),
    };
    for (int i = 0; i < 2; i++)
        signal(signals[i], SIG_DFL); /* a shell's background job begins with SIGINT ignored */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
