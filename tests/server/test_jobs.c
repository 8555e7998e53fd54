/* Servers that somebody else runs for a command that waits: batch jobs and units. */
#include "collect/base/file.h"
#include "collect/source.h"
#include "tests/record/fixture.h"
#include "tests/server/measured.h"
#include "tests/server/served.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static char *read_log(const struct measured *measured)
{
    char *path = file_join(measured->folder, "logs/server.log"), *text = fixture_read(path, NULL);
    free(path);
    return text;
}

/* As `sbatch --wait` and `systemctl start --wait` are: what they start is nobody's child, writes where it is told to,
 * and does not end with them; they end when it does, and say so. It is stopped by another command, which does not wait.
 */
static char *source_of_job(const char *mode)
{
    return xformat("{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:0', 'launch': {'argv': ['sh', "
                   "'-c', 'setsid $0 serve $1 $2 >> $3 2>&1 & echo $! > $3.job; wait $!; code=$?; echo srun: error: "
                   "task 0: Exited with exit code $code >> $3; exit $code', '%s', '%s', '{port}', '{log}'], 'stop': "
                   "['sh', '-c', 'kill $(cat $0.job)', '{log}'], 'stop_s': 20}}",
                   served_self, mode);
}

static void a_job_that_is_stopped_is_waited_for(void **state)
{
    (void)state;
    struct measured measured;
    char *source = source_of_job("leaving");
    measured_open(&measured, "tp1-auto", source, "'start_s': 30");
    measured_run(&measured, "tp1-auto", MEASURED_REQUESTS);
    measured_expect(&measured, "");
    source_close(measured.source);
    measured.source = NULL;
    char *log = read_log(&measured);
    assert_non_null(strstr(log, "INFO started as leaving"));
    assert_non_null(strstr(log, "Exited with exit code 0\n"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    free(log);
    free(source);
    measured_close(&measured);
}

static void a_job_that_dies_brings_its_own_last_error(void **state)
{
    (void)state;
    struct measured measured;
    char *source = source_of_job("crashing");
    measured_open(&measured, "tp1-auto", source, "'start_s': 30");
    measured_run(&measured, "tp1-auto", MEASURED_REQUESTS);
    assert_int_equal(measured.ran, SOURCE_SERVER_DIED);
    assert_non_null(strstr(measured.attempt.samples[0].error_message,
                           "; last words: RuntimeError: CUDA error: an illegal instruction was encountered"));
    free(source);
    measured_close(&measured);
}

static bool has_slurm(void)
{
    char line[2] = "";
    FILE *nodes = popen("sinfo --noheader --states=idle --format=%n 2>/dev/null", "r");
    const bool any = nodes && fgets(line, sizeof line, nodes);
    if (nodes)
        pclose(nodes);
    return any;
}

/* Where a Slurm has a node that is idle, and this one is it. */
static void slurm_runs_a_server(void **state)
{
    (void)state;
    if (!has_slurm()) {
        print_message("  skipped: no Slurm with an idle node\n");
        skip();
    }
    static const char script[] = "#!/bin/sh\nexec \"$@\"\n";
    static const struct {
        const char *argv, *stop;
    } launchers[] = {{"'srun', '--ntasks=1'", ""},
                     {"'sbatch', '--wait', '--ntasks=1', '--job-name=cleanslate-{arm}', '--output={log}', "
                      "'--open-mode=append', '%s'",
                      ", 'stop': ['scancel', '--name=cleanslate-{arm}']"}};
    char *folder = fixture_make_folder(), *job = file_join(folder, "job.sh");
    fixture_write(job, script, strlen(script));
    for (int i = 0; i < 4; i++) {
        struct measured measured;
        char *launcher = i / 2 ? xformat(launchers[1].argv, job) : xstrdup(launchers[0].argv);
        char *source =
            xformat("{'kind': 'server', 'dialect': 'openai', 'url': 'http://127.0.0.1:0', 'launch': {'argv': "
                    "[%s, '%s', 'serve', '%s', '{port}'] %s}}",
                    launcher, served_self, i % 2 ? "crashing" : "leaving", launchers[i / 2].stop);
        measured_open(&measured, "tp1-auto", source, "'start_s': 60");
        measured_run(&measured, "tp1-auto", MEASURED_REQUESTS);
        if (measured.loaded || measured.ran != (i % 2 ? SOURCE_SERVER_DIED : 0))
            fail_msg("launcher %d: %s", i / 2, measured.error.message);
        if (i % 2)
            assert_non_null(
                strstr(measured.attempt.samples[0].error_message, "; last words: RuntimeError: CUDA error"));
        source_close(measured.source);
        measured.source = NULL;
        measured_close(&measured);
        free(source);
        free(launcher);
    }
    free(job);
    fixture_remove_folder(folder);
}

int main(int argc, char **argv)
{
    served_begin(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_is_stopped_is_waited_for),
        cmocka_unit_test(a_job_that_dies_brings_its_own_last_error),
        cmocka_unit_test(slurm_runs_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
