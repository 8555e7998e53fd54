/* Servers that a plan starts, and stops. */
#include "collect/server/launch.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/campaign.h"
#include "collect/record/run.h"
#include "collect/server/source.h"
#include "tests/record/fixture.h"
#include "tests/server/loopback.h"
#include "tests/server/measured.h"
#include "tests/server/served.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* --- tests -------------------------------------------------------------------------------------------------------- */

static char *source_of(const char *mode, const char *rest)
{
    return xformat("{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:0', 'launch': {'argv': ['%s', "
                   "'serve', '%s', '{port}'], 'env': {'CLEANSLATE_TEST_PLACE': '{arm} tp{tp} {method} {else}'}, "
                   "'stop_s': 1%s}}",
                   served_self, mode, rest);
}

static char *read_log(const struct measured *measured)
{
    char *path = file_join(measured->folder, "logs/server.log"), *text = fixture_read(path, NULL);
    free(path);
    return text;
}

static void open_measured(struct measured *measured, const char *mode, const char *limits)
{
    char *source = source_of(mode, "");
    measured_open(measured, "tp4-linear", source, limits);
    free(source);
}

static void starts_measures_and_stops(void **state)
{
    (void)state;
    struct measured measured;
    open_measured(&measured, "fine", "'start_s': 30");
    measured.plan.server.api_key_env = "CLEANSLATE_TEST_KEY";
    setenv("CLEANSLATE_TEST_KEY", "sk-5e1d", 1);
    source_close(measured.source);
    measured.source = server_source_open(&measured.plan, &measured.error);
    measured_run(&measured, "tp4-linear", MEASURED_REQUESTS);
    assert_int_equal(measured.loaded, 0);
    assert_int_equal(measured.ran, 0);
    measured_expect(&measured, "SPEC_METRICS_MISSING");
    source_close(measured.source);
    measured.source = NULL;
    char *log = read_log(&measured);
    assert_non_null(strstr(log, "INFO at tp4-linear tp4 linear {else}\n"));
    assert_non_null(strstr(log, "with key *******\n"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    free(log);
    measured_close(&measured);
    unsetenv("CLEANSLATE_TEST_KEY");
}

/* SIGTERM is not enough, and the program has started another. */
static void what_does_not_end_is_killed_with_its_children(void **state)
{
    (void)state;
    struct measured measured;
    open_measured(&measured, "stubborn", "'start_s': 30");
    measured_run(&measured, "tp4-linear", 1);
    assert_int_equal(measured.loaded, 0);
    assert_int_equal(measured.ran, 0);
    char *log = read_log(&measured);
    int child = (int)strtol(strstr(log, "CHILD ") + 6, NULL, 10);
    free(log);
    assert_int_equal(kill(child, 0), 0);
    source_close(measured.source);
    measured.source = NULL;
    assert_int_equal(kill(child, 0), -1);
    assert_int_equal(errno, ESRCH);
    measured_close(&measured);
}

static void what_does_not_come_up_has_died(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        int failure;
        const char *says, *rules;
    } cases[] = {
        {"broken", SOURCE_SERVER_DIED, "exit status 1; last words: ValueError: no such model", "SERVER_DIED"},
        {"starved", SOURCE_OUT_OF_MEMORY, "last words: torch.OutOfMemoryError", "OUT_OF_MEMORY"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct measured measured;
        open_measured(&measured, cases[i].mode, "'start_s': 30");
        measured_run(&measured, "tp4-linear", MEASURED_REQUESTS);
        assert_int_equal(measured.loaded, cases[i].failure);
        if (!strstr(measured.error.message, cases[i].says))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].says, measured.error.message);
        measured_expect(&measured, cases[i].rules);
        measured_close(&measured);
    }
}

static void a_crash_brings_the_logs_last_error(void **state)
{
    (void)state;
    struct measured measured;
    open_measured(&measured, "crashing", "'start_s': 30");
    measured_run(&measured, "tp4-linear", MEASURED_REQUESTS);
    assert_int_equal(measured.loaded, 0);
    assert_int_equal(measured.ran, SOURCE_SERVER_DIED);
    assert_int_equal(measured.delivered, 1);
    const struct sample *sample = &measured.attempt.samples[0];
    assert_string_equal(sample->error_code, "SERVER_DIED");
    assert_string_equal(sample->error_message, "exit status 3; last words: RuntimeError: CUDA error: an illegal "
                                               "instruction was encountered");
    measured_close(&measured);
}

static void a_program_that_is_not_there_is_the_plans_mistake(void **state)
{
    (void)state;
    struct measured measured;
    measured_open(&measured, "tp1-auto",
                  "{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:0', 'launch': {'argv': "
                  "['/nowhere/sglang']}}",
                  "");
    measured_load(&measured, "tp1-auto");
    assert_int_equal(measured.loaded, -1);
    assert_string_equal(measured.error.message, "/nowhere/sglang: cannot be run: No such file or directory");
    measured_close(&measured);
}

static void devices_are_the_servers_own(void **state)
{
    (void)state;
    struct measured measured;
    struct error error = {0};
    open_measured(&measured, "fine", "");
    assert_null(source_open(&measured.plan, "cpu", &error));
    assert_non_null(strstr(error.message, "measures a server, which has devices of its own"));
    measured_close(&measured);
}

static int free_port(const struct measured *measured)
{
    char *url = launch_url(&measured->plan.server, &measured->plan.arms[0]);
    int port = (int)strtol(strrchr(url, ':') + 1, NULL, 10);
    free(url);
    return port;
}

/* Two collectors on one machine: the other has chosen a port, and its server has not taken it yet. */
static void a_port_that_another_chose_is_not_free(void **state)
{
    (void)state;
    struct measured measured;
    int others, low, pipes[2];
    open_measured(&measured, "fine", "");
    assert_int_equal(pipe(pipes), 0);
    const pid_t other = fork();
    if (other == 0) {
        others = free_port(&measured);
        if (write(pipes[1], &others, sizeof others) == sizeof others)
            pause();
        _exit(1);
    }
    assert_int_equal(read(pipes[0], &others, sizeof others), sizeof others);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(free_port(&measured), others);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    assert_true(range && fscanf(range, "%d", &low) == 1);
    fclose(range);
    assert_true(others > 1024 && others < low);
    close(pipes[0]);
    close(pipes[1]);
    measured_close(&measured);
}

/* A server of a former run would be measured in its place. */
static void nothing_is_started_where_something_answers(void **state)
{
    (void)state;
    static const struct loopback_page pages[] = {{.path = "/v1/models"}, {0}};
    struct loopback *loopback = loopback_start(pages, 0);
    struct measured measured;
    char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': '%s', 'launch': {'argv': ['%s', 'serve', "
                           "'fine', '{port}']}}",
                           loopback_url(loopback), served_self);
    measured_open(&measured, "tp1-auto", source, "");
    measured_load(&measured, "tp1-auto");
    assert_int_equal(measured.loaded, -1);
    assert_non_null(strstr(measured.error.message, "something is there already"));
    free(source);
    measured_close(&measured);
    loopback_stop(loopback);
}

/* Units and batch jobs: a command that starts a server and ends, and one that stops it. */
static void commands_start_and_stop_a_server(void **state)
{
    (void)state;
    static const struct loopback_page pages[] = {{.path = "/v1/models"},
                                                 {.path = "/v1/completions",
                                                  .content_type = "text/event-stream",
                                                  .body = SERVED_ANSWER,
                                                  .piece = 40,
                                                  .delay_ms = 1},
                                                 {0}};
    struct loopback *loopback = loopback_start(pages, 0);
    struct measured measured;
    char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': '%s', 'launch': {'start': ['sh', '-c', "
                           "'echo up $0', '{arm}'], 'stop': ['sh', '-c', 'echo down $0', '{arm}']}}",
                           loopback_url(loopback));
    measured_open(&measured, "tp1-auto", source, "");
    measured_run(&measured, "tp1-auto", MEASURED_REQUESTS);
    measured_expect(&measured, "");
    source_close(measured.source);
    measured.source = NULL;
    char *log = read_log(&measured);
    assert_string_equal(log, "up tp1-auto\ndown tp1-auto\n");
    free(log);
    free(source);
    measured_close(&measured);
    loopback_stop(loopback);
}

static void a_start_that_fails_is_the_arms_failure(void **state)
{
    (void)state;
    struct measured measured;
    measured_open(
        &measured, "tp1-auto",
        "{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:1', 'launch': {'start': ['sh', '-c', "
        "'echo no such unit; exit 5']}}",
        "");
    measured_load(&measured, "tp1-auto");
    assert_int_equal(measured.loaded, SOURCE_SERVER_DIED);
    assert_string_equal(measured.error.message, "sh: exit status 5; its last words: no such unit");
    measured_close(&measured);
}

/* --- a campaign --------------------------------------------------------------------------------------------------- */

static int run_campaign(const struct measured *measured, struct error *error)
{
    char *runs = file_join(measured->folder, "runs"), *said = file_join(measured->folder, "said");
    struct campaign_options options = {.runs = runs};
    fflush(stderr);
    int terminal = dup(STDERR_FILENO), file = open(said, O_CREAT | O_WRONLY, 0666);
    dup2(file, STDERR_FILENO);
    int result = campaign_run(&measured->plan, measured->source, &options, error);
    fflush(stderr);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    close(file);
    free(said);
    free(runs);
    return result;
}

/* One arm crashes on every request: it is tried three times, the other is measured, and each log is kept. */
static void a_campaign_goes_on_with_the_next_arm(void **state)
{
    (void)state;
    struct measured measured;
    struct error error = {0};
    struct run run;
    char *source = xformat("{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:0', 'launch': {'argv': "
                           "['%s', 'serve'], 'auto': ['fine', '{port}'], 'linear': ['crashing', '{port}']}}",
                           served_self);
    measured_open(&measured, "tp1-auto", source, "");
    struct arm arms[] = {measured.plan.arms[0], measured.plan.arms[0]};
    arms[1].method = METHOD_LINEAR;
    struct arm *former = measured.plan.arms;
    measured.plan.arms = arms;
    measured.plan.arm_count = 2;
    if (run_campaign(&measured, &error))
        fail_msg("%s", error.message);
    char *folder = file_join(measured.folder, "runs/m");
    assert_int_equal(run_read(folder, NULL, &run, &error), 0);
    int died = 0, valid = 0;
    for (int i = 0; i < run.attempt_count; i++) {
        const struct judged *judged = &run.attempts[i];
        bool dead = judged->attempt.error_code && strcmp(judged->attempt.error_code, "SERVER_DIED") == 0;
        if (dead != (judged->attempt.arm.method == METHOD_LINEAR))
            fail_msg("%s: %s: %s", judged->attempt.id, judged->attempt.error_code, judged->attempt.error_message);
        died += dead;
        valid += !run_is_all_void(judged);
        char *log =
            xformat("%s/logs/%s/%d-%d.log", folder, judged->arm, judged->attempt.block, judged->attempt.try_number);
        assert_true(file_exists(log));
        free(log);
    }
    assert_int_equal(died, 3);
    assert_int_equal(valid, 1);
    run_free(&run);
    free(folder);
    free(source);
    measured.plan.arms = former;
    measured.plan.arm_count = 1;
    measured_close(&measured);
}

int main(int argc, char **argv)
{
    served_begin(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_measures_and_stops),
        cmocka_unit_test(what_does_not_end_is_killed_with_its_children),
        cmocka_unit_test(what_does_not_come_up_has_died),
        cmocka_unit_test(a_crash_brings_the_logs_last_error),
        cmocka_unit_test(a_program_that_is_not_there_is_the_plans_mistake),
        cmocka_unit_test(devices_are_the_servers_own),
        cmocka_unit_test(a_port_that_another_chose_is_not_free),
        cmocka_unit_test(nothing_is_started_where_something_answers),
        cmocka_unit_test(commands_start_and_stop_a_server),
        cmocka_unit_test(a_start_that_fails_is_the_arms_failure),
        cmocka_unit_test(a_campaign_goes_on_with_the_next_arm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
