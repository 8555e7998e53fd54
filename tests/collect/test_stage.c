/* Models in a memory disk: what is missing, half, other or gone after a reboot is copied again, and nothing else is. */
#include "collect/stage.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/record/ledger.h"
#include "tests/fault.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder, *original, *staged;
static struct plan_stage stage;
static struct plan plan;

enum { WEIGHTS = 100000 };

static void write_file(const char *home, const char *name, const char *text, size_t size)
{
    char *path = file_join(home, name);
    fixture_write(path, text, size);
    free(path);
}

static void write_weights(char letter)
{
    char *text = xmalloc(WEIGHTS);
    memset(text, letter, WEIGHTS);
    write_file(original, "model.safetensors", text, WEIGHTS);
    free(text);
}

static int set_up(void **state)
{
    (void)state;
    struct error error = {0};
    folder = fixture_make_folder();
    original = file_join(folder, "disk/model");
    staged = file_join(folder, "memory/model");
    file_make_folder(original, &error);
    write_weights('w');
    write_file(original, "config.json", "{}", 2);
    stage = (struct plan_stage){original, staged};
    plan = (struct plan){.name = "demo", .stages = &stage, .stage_count = 1};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_remove_folder(folder);
    free(original);
    free(staged);
    return 0;
}

static int prepare(struct error *error)
{
    *error = (struct error){0};
    return stage_prepare(&plan, folder, error);
}

/* How many `stage` lines the ledger has; *last (may be NULL) is borrowed from it. */
static int count_lines(struct ledger *ledger, const json_t **last)
{
    struct error error = {0};
    char *run = file_join(folder, "demo");
    assert_int_equal(ledger_read(run, ledger, &error), 0);
    assert_int_equal(ledger->broken_at, 0);
    size_t count = json_array_size(ledger->lines);
    if (last)
        *last = json_array_get(ledger->lines, count - 1);
    free(run);
    return (int)count;
}

static void check_equal(const char *name)
{
    char a[FILE_HASH_SIZE], b[FILE_HASH_SIZE], *from = file_join(original, name), *to = file_join(staged, name);
    struct error error = {0};
    assert_int_equal(file_hash(from, a, &error), 0);
    assert_int_equal(file_hash(to, b, &error), 0);
    assert_string_equal(a, b);
    free(from);
    free(to);
}

/* Everything is there afterwards, and so many files were copied, which the ledger says, or nothing. */
static void expect(int copied, int lines)
{
    struct error error;
    struct ledger ledger;
    const json_t *last;
    if (prepare(&error))
        fail_msg("%s", error.message);
    check_equal("model.safetensors");
    check_equal("config.json");
    assert_int_equal(count_lines(&ledger, &last), lines);
    assert_string_equal(json_string_value(json_object_get(last, "action")), "stage");
    if (copied) {
        assert_int_equal(json_integer_value(json_object_get(last, "copied")), copied);
        const json_t *file = json_object_get(json_object_get(last, "files"), "config.json");
        assert_string_equal(json_string_value(json_object_get(file, "sha256")),
                            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"); /* of "{}" */
    }
    ledger_close(&ledger);
}

static void copies_what_is_missing_and_nothing_twice(void **state)
{
    (void)state;
    expect(2, 1);
    expect(0, 1);
    char *path = file_join(staged, "config.json");
    assert_int_equal(unlink(path), 0);
    expect(1, 2);
    free(path);
}

static void copies_again_what_is_half(void **state)
{
    (void)state;
    expect(2, 1);
    char *path = file_join(staged, "model.safetensors");
    assert_int_equal(truncate(path, WEIGHTS / 2), 0);
    expect(1, 2);
    free(path);
}

/* Of the right length, and one byte is another. */
static void copies_again_what_has_another_hash(void **state)
{
    (void)state;
    expect(2, 1);
    char *path = file_join(staged, "model.safetensors");
    FILE *file = fopen(path, "r+");
    fseek(file, 777, SEEK_SET);
    fputc('v', file);
    fclose(file);
    expect(1, 2);
    free(path);
}

static void copies_again_what_a_reboot_took(void **state)
{
    (void)state;
    expect(2, 1);
    fixture_remove_folder(xstrdup(staged));
    expect(2, 2);
    expect(0, 2);
}

static void follows_the_original(void **state)
{
    (void)state;
    expect(2, 1);
    write_weights('x');
    expect(1, 2);
}

/* The copy was there before anyone noted it. */
static void takes_over_what_is_there(void **state)
{
    (void)state;
    char *run = file_join(folder, "demo/ledger.jsonl");
    expect(2, 1);
    assert_int_equal(unlink(run), 0);
    expect(0, 1);
    free(run);
}

static void refuses_what_the_original_does_not_have(void **state)
{
    (void)state;
    struct error error;
    expect(2, 1);
    write_file(staged, "model-00002.safetensors", "old", 3);
    assert_int_equal(prepare(&error), -1);
    assert_non_null(strstr(error.message, "memory/model/model-00002.safetensors: is not in the original"));
    char *path = file_join(staged, "model-00002.safetensors");
    assert_int_equal(unlink(path), 0);
    expect(0, 1);
    free(path);
}

static void says_that_the_original_is_gone(void **state)
{
    (void)state;
    struct error error;
    fixture_remove_folder(xstrdup(original));
    assert_int_equal(prepare(&error), -1);
    assert_non_null(strstr(error.message, "disk/model: cannot read the folder"));
    mkdir(original, 0777);
    assert_int_equal(prepare(&error), -1);
    assert_non_null(strstr(error.message, "disk/model: holds no files"));
}

static pid_t prepare_apart(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct error error;
        _exit(prepare(&error) ? 1 : 0);
    }
    return child;
}

/* At every call that changes the memory disk the program is killed, or something fails. */
static void outlives_faults(void **state)
{
    (void)state;
    const enum fault_kind kinds[] = {FAULT_KILL, FAULT_TEAR, FAULT_FULL, FAULT_READ_ONLY, FAULT_DENIED, FAULT_UNSYNCED};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int at = 1, calls = at; at <= calls; at++) {
            char *memory = file_join(folder, "memory");
            int status;
            fault_set(&(struct fault){memory, kinds[k], at});
            waitpid(prepare_apart(), &status, 0);
            assert_true(kinds[k] >= FAULT_FULL ? WIFEXITED(status) : WIFSIGNALED(status) || at == calls);
            fault_set(NULL);
            calls = WIFSIGNALED(status) || WEXITSTATUS(status) ? at + 1 : at;
            struct error error;
            assert_int_equal(prepare(&error), 0);
            check_equal("model.safetensors");
            check_equal("config.json");
            char *part = file_join(staged, "model.safetensors" FILE_COPY_ENDING);
            assert_false(file_exists(part));
            free(part);
            fixture_remove_folder(memory);
        }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(copies_what_is_missing_and_nothing_twice),
        TEST(copies_again_what_is_half),
        TEST(copies_again_what_has_another_hash),
        TEST(copies_again_what_a_reboot_took),
        TEST(follows_the_original),
        TEST(takes_over_what_is_there),
        TEST(refuses_what_the_original_does_not_have),
        TEST(says_that_the_original_is_gone),
        TEST(outlives_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
