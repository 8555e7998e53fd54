/* What a run folder of many attempts costs. Counted, not timed: on twice the attempts, twice the calls.
 *
 * The functions below stand in for those of the C library and of Jansson in this program, which whoever looks through
 * attempts or ledger calls for each of them. CLEANSLATE_SCALE_BLOCKS=900 instead measures how long `status` and
 * `analyze` take for so many blocks of ten arms, with 6 requests of 13 tokens in each attempt, or of
 * CLEANSLATE_SCALE_SIZE=demo with 24 of 127, as the demo plan has them. */
#include "analyze/summary.h"
#include "collect/base/clock.h"
#include "collect/base/file.h"
#include "collect/command.h"
#include "tests/collect/call.h"
#include "tests/record/fixture.h"
#include "tests/scale.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { BLOCKS = 50, PROMPTS = 3, TOKENS = 13, DEMO_PROMPTS = 12, DEMO_TOKENS = 127 };

static atomic_long calls;

json_t *json_object_get(const json_t *object, const char *key)
{
    static json_t *(*real)(const json_t *, const char *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "json_object_get");
    calls++;
    return real(object, key);
}

int json_equal(const json_t *a, const json_t *b)
{
    static int (*real)(const json_t *, const json_t *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "json_equal");
    calls++;
    return real(a, b);
}

int strcmp(const char *a, const char *b)
{
    calls++;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static void analyze(const char *folder)
{
    struct plan plan;
    struct run run;
    struct error error = {0};
    char *path = file_join(folder, "plan.json");
    assert_int_equal(plan_read(path, &plan, &error), 0);
    assert_int_equal(run_read(folder, &plan.rules, &run, &error), 0);
    json_t *summary = summary_build(&run, &plan, &error);
    assert_non_null(summary);
    char *out = file_join(folder, "summary.json");
    assert_int_equal(summary_write(summary, out, &error), 0);
    json_decref(summary);
    run_free(&run);
    plan_free(&plan);
    free(out);
    free(path);
}

static void status(const char *folder)
{
    char *parent = xformat("%s/..", folder), *said;
    const char *name = strrchr(folder, '/') + 1;
    assert_int_equal(
        call_command(folder, command_status, (const char *const[]){"--verify", "--runs", parent, name, NULL}, &said),
        0);
    assert_non_null(strstr(said, "files hold"));
    free(said);
    free(parent);
}

struct cost {
    int attempts;
    double status, analyze; /* calls */
};

static struct cost count(int blocks)
{
    char *folder = fixture_make_folder();
    struct cost cost = {.attempts = scale_make(folder, blocks, PROMPTS, TOKENS)};
    calls = 0;
    status(folder);
    cost.status = (double)calls;
    calls = 0;
    analyze(folder);
    cost.analyze = (double)calls;
    fixture_remove_folder(folder);
    return cost;
}

static void twice_the_attempts_cost_twice_as_much(void **state)
{
    (void)state;
    struct cost once = count(BLOCKS), twice = count(2 * BLOCKS);
    double ratio = (double)twice.attempts / once.attempts;
    print_message("%d and %d attempts: status %.0f and %.0f calls, analyze %.0f and %.0f\n", once.attempts,
                  twice.attempts, once.status, twice.status, once.analyze, twice.analyze);
    assert_true(twice.attempts > 1000);
    assert_true(twice.status < 1.2 * ratio * once.status);
    assert_true(twice.analyze < 1.2 * ratio * once.analyze);
}

static void print_seconds(const char *name, void (*run)(const char *), const char *folder)
{
    const int64_t start_ns = clock_now_ns();
    const clock_t start = clock();
    run(folder);
    print_message("%s: %.2f s, %.2f s of all cores\n", name, (double)(clock_now_ns() - start_ns) / 1e9,
                  (double)(clock() - start) / CLOCKS_PER_SEC);
}

static void measures_what_was_asked_for(void **state)
{
    (void)state;
    const char *size = getenv("CLEANSLATE_SCALE_SIZE");
    const bool demo = size && strcmp(size, "demo") == 0;
    char *folder = fixture_make_folder();
    const int attempts = scale_make(folder, atoi(getenv("CLEANSLATE_SCALE_BLOCKS")), demo ? DEMO_PROMPTS : PROMPTS,
                                    demo ? DEMO_TOKENS : TOKENS);
    print_message("%d attempts\n", attempts);
    print_seconds("status --verify", status, folder);
    print_seconds("analyze", analyze, folder);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twice_the_attempts_cost_twice_as_much)};
    const struct CMUnitTest asked_for[] = {cmocka_unit_test(measures_what_was_asked_for)};
    return getenv("CLEANSLATE_SCALE_BLOCKS") ? cmocka_run_group_tests(asked_for, NULL, NULL)
                                             : cmocka_run_group_tests(tests, NULL, NULL);
}
