/* What every reader of files must stand: something else in the file's place, and bytes that are none of its kind. What
 * is particular to one kind of file is tested beside its reader. */
#include "collect/base/file.h"
#include "collect/engine/safetensors.h"
#include "collect/engine/tokenizer.h"
#include "collect/plan.h"
#include "collect/prompt.h"
#include "collect/record/attempt.h"
#include "collect/record/ledger.h"
#include "render/summary.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* --- the readers -------------------------------------------------------------------------------------------------- */

static int read_plan(const char *folder, const char *path, struct error *error)
{
    (void)folder;
    struct plan plan;
    int result = plan_read(path, &plan, error);
    if (!result)
        plan_free(&plan);
    return result;
}

static int read_prompts(const char *folder, const char *path, struct error *error)
{
    (void)folder;
    struct prompts prompts;
    int result = prompt_read_file(path, &prompts, error);
    prompt_free(&prompts);
    return result;
}

static int read_attempt(const char *folder, const char *path, struct error *error)
{
    (void)folder;
    struct attempt attempt;
    int result = attempt_read(path, &attempt, error);
    if (!result)
        attempt_free(&attempt);
    return result;
}

/* A chain that does not hold is told, but no error: here it counts as one. In parentheses, fail is not cmocka's macro.
 */
static int read_ledger(const char *folder, const char *path, struct error *error)
{
    struct ledger ledger;
    if (ledger_read(folder, &ledger, error))
        return -1;
    int broken_at = ledger.broken_at;
    ledger_close(&ledger);
    return broken_at ? (fail)(error, "%s: broken at %d", path, broken_at) : 0;
}

static int read_tokenizer(const char *folder, const char *path, struct error *error)
{
    (void)folder;
    struct tokenizer *tokenizer = tokenizer_open(path, error);
    tokenizer_close(tokenizer);
    return tokenizer ? 0 : -1;
}

static int read_weights(const char *folder, const char *path, struct error *error)
{
    (void)path;
    struct safetensors *weights = safetensors_open(folder, error);
    safetensors_close(weights);
    return weights ? 0 : -1;
}

static int read_summary(const char *folder, const char *path, struct error *error)
{
    (void)folder;
    struct summary summary;
    int result = summary_read(path, &summary, error);
    if (!result)
        summary_free(&summary);
    return result;
}

static const struct reader {
    const char *file, *example;
    int (*read)(const char *folder, const char *path, struct error *error);
    bool may_be_empty;
    bool text; /* takes what an editor under Windows makes of the file */
} readers[] = {
    {"plan.json", "tests/fuzz/corpus/plan/tiny.json", read_plan, .text = true},
    {"prompts.jsonl", "tests/fuzz/corpus/prompt/own.jsonl", read_prompts, .text = true},
    {"1-1.jsonl", "tests/fuzz/corpus/attempt/complete.jsonl", read_attempt, .text = true},
    {"ledger.jsonl", "tests/fuzz/corpus/ledger/four-lines.jsonl", read_ledger, .may_be_empty = true},
    {"tokenizer.json", "tests/fuzz/corpus/tokenizer/whole.json", read_tokenizer, .text = true},
    {"model.safetensors", "tests/fuzz/corpus/safetensors/three-types.safetensors", read_weights},
    {"model.safetensors.index.json", "tests/fuzz/corpus/safetensors/index.json", read_weights},
    {"summary.json", "tests/fuzz/corpus/summary/small.json", read_summary, .text = true},
};

enum { READER_COUNT = sizeof readers / sizeof *readers };

/* Refused at once, by one line that names the file. */
static void expect_refused(const struct reader *reader, const char *path, const char *said)
{
    struct error error = {0};
    alarm(60);
    if (reader->read(fixture_folder, path, &error) == 0)
        fail_msg("%s was read, but expected: %s", path, said);
    alarm(0);
    if (strncmp(error.message, path, strlen(path)) != 0 || !strstr(error.message, said))
        fail_msg("\"%s\" does not hold \"%s\"", error.message, said);
    assert_null(strpbrk(error.message, "\n\r\t\x1B"));
}

/* --- something else in the file's place --------------------------------------------------------------------------- */

static void make_pipe(const char *path)
{
    assert_int_equal(mkfifo(path, 0666), 0);
}

static void make_inner_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
}

static void make_link_to_itself(const char *path)
{
    assert_int_equal(symlink(path, path), 0);
}

static void make_link_to_device(const char *path)
{
    assert_int_equal(symlink("/dev/zero", path), 0);
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    static const struct {
        void (*make)(const char *path);
        const char *said;
    } obstacles[] = {
        {make_pipe, ": not a file"},
        {make_inner_folder, ": not a file, but a folder"},
        {make_link_to_device, ": not a file"},
    };
    for (int i = 0; i < READER_COUNT; i++)
        for (size_t j = 0; j < sizeof obstacles / sizeof *obstacles; j++) {
            char *path = file_join(fixture_folder, readers[i].file);
            obstacles[j].make(path);
            expect_refused(&readers[i], path, obstacles[j].said);
            assert_int_equal(remove(path), 0);
            free(path);
        }
}

/* A link that leads nowhere counts as absent, which is well for a ledger and for the index of weights. */
static void stands_links_that_lead_nowhere(void **state)
{
    (void)state;
    for (int i = 0; i < READER_COUNT; i++) {
        struct error error = {0};
        char *path = file_join(fixture_folder, readers[i].file);
        make_link_to_itself(path);
        alarm(60);
        int result = readers[i].read(fixture_folder, path, &error);
        alarm(0);
        assert_true(readers[i].may_be_empty ? result == 0 : strstr(error.message, "cannot open: ") != NULL);
        unlink(path);
        free(path);
    }
}

/* --- bytes of another kind ---------------------------------------------------------------------------------------- */

static void expect_bytes_refused(const struct reader *reader, const void *bytes, size_t size)
{
    char *path = file_join(fixture_folder, reader->file);
    fixture_write(path, bytes, size);
    expect_refused(reader, path, "");
    unlink(path);
    free(path);
}

static void refuses_bytes_of_no_kind(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    static const unsigned char fills[] = {0, '\n' + 1, ' ', '"', '[', '{', '\\', 0x7F, 0x80, 0xC3, 0xFF};
    char *bytes = xmalloc(SIZE);
    for (int i = 0; i < READER_COUNT; i++)
        for (size_t j = 0; j < sizeof fills; j++) {
            memset(bytes, fills[j], SIZE);
            bytes[SIZE - 1] = '\n';
            expect_bytes_refused(&readers[i], bytes, SIZE);
        }
    free(bytes);
}

static void refuses_empty_files(void **state)
{
    (void)state;
    for (int i = 0; i < READER_COUNT; i++)
        if (!readers[i].may_be_empty)
            expect_bytes_refused(&readers[i], "", 0);
}

/* Cut anywhere, a file is refused, or said to be torn; never read as a whole one that is different. */
static void survives_every_cut(void **state)
{
    (void)state;
    for (int i = 0; i < READER_COUNT; i++) {
        size_t size;
        char *bytes = fixture_read(readers[i].example, &size), *path = file_join(fixture_folder, readers[i].file);
        for (size_t cut = 0; cut < size; cut += 1 + size / 200) {
            struct error error = {0};
            fixture_write(path, bytes, cut);
            int result = readers[i].read(fixture_folder, path, &error);
            assert_int_equal(result == 0, error.message[0] == '\0');
        }
        unlink(path);
        free(path);
        free(bytes);
    }
}

/* A byte order mark before, and \r\n at the end of every line. */
static char *as_windows_writes(const char *bytes, size_t size, size_t *new_size)
{
    char *text = xmalloc(2 * size + 3), *to = text + 3;
    memcpy(text, "\xEF\xBB\xBF", 3);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r'))
            *to++ = '\r';
        *to++ = bytes[i];
    }
    *new_size = (size_t)(to - text);
    return text;
}

/* Text may come from any editor; what a program wrote for itself, by hash or by length, may not have been through one.
 */
static void takes_text_from_windows(void **state)
{
    (void)state;
    for (int i = 0; i < READER_COUNT; i++) {
        size_t size, new_size;
        char *bytes = fixture_read(readers[i].example, &size), *text = as_windows_writes(bytes, size, &new_size);
        char *path = file_join(fixture_folder, readers[i].file);
        struct error error = {0}, new_error = {0};
        fixture_write(path, bytes, size);
        bool well = readers[i].read(fixture_folder, path, &error) == 0; /* the index is not: its files are missing */
        fixture_write(path, text, new_size);
        readers[i].read(fixture_folder, path, &new_error);
        if (well && readers[i].text)
            assert_string_equal(new_error.message, "");
        else
            assert_string_not_equal(new_error.message, "");
        unlink(path);
        free(path);
        free(text);
        free(bytes);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fixture_set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(refuses_what_is_no_file),  TEST(stands_links_that_lead_nowhere),
        TEST(refuses_bytes_of_no_kind), TEST(refuses_empty_files),
        TEST(survives_every_cut),       TEST(takes_text_from_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
