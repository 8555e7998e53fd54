#include "collect/record/ledger.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ENTRIES 5
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static char *folder, *path;

static int set_up(void **state)
{
    (void)state;
    folder = fixture_make_folder();
    path = file_join(folder, "ledger.jsonl");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(path);
    fixture_remove_folder(folder);
    return 0;
}

static void open_well(struct ledger *ledger)
{
    struct error error = {0};
    ledger_open(folder, ledger, &error);
    assert_string_equal(error.message, "");
}

static void append_well(struct ledger *ledger, int number)
{
    struct error error = {0};
    json_t *details = json_pack("{s:s, s:i}", "attempt", "demo/tp1-b16/1-1", "number", number);
    assert_int_equal(ledger_append(ledger, LEDGER_COLLECT, "begin", details, &error), 0);
}

/* A ledger of five entries; its head in head[FILE_HASH_SIZE]. */
static void write_entries(char *head)
{
    struct ledger ledger;
    open_well(&ledger);
    for (int i = 1; i <= ENTRIES; i++)
        append_well(&ledger, i);
    memcpy(head, ledger.head, FILE_HASH_SIZE);
    ledger_close(&ledger);
}

static void read_well(struct ledger *ledger)
{
    struct error error = {0};
    ledger_read(folder, ledger, &error);
    assert_string_equal(error.message, "");
}

static void test_no_file_is_an_empty_ledger(void **state)
{
    (void)state;
    struct ledger ledger;
    read_well(&ledger);
    assert_int_equal(json_array_size(ledger.lines), 0);
    assert_string_equal(ledger.head, ZEROS);
    assert_int_equal(ledger.broken_at, 0);
    assert_int_equal(ledger.torn_bytes, 0);
    assert_int_equal(ledger.descriptor, -1);
    ledger_close(&ledger);
    assert_false(file_exists(path));
}

/* The chain as anyone can check it: SHA-256 of each line's bytes stands in the next. */
static void test_every_line_carries_the_hash_of_the_line_before(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE], hash[FILE_HASH_SIZE] = ZEROS;
    write_entries(head);
    char *bytes = fixture_read(path, NULL);
    int count = 0;
    for (char *line = strtok(bytes, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *entry = json_loads(line, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(entry, "seq")), ++count);
        assert_string_equal(json_string_value(json_object_get(entry, "prev")), hash);
        assert_string_equal(json_string_value(json_object_get(entry, "actor")), "collect");
        assert_string_equal(json_string_value(json_object_get(entry, "action")), "begin");
        assert_int_equal(json_integer_value(json_object_get(entry, "number")), count);
        assert_true(clock_parse_utc(json_string_value(json_object_get(entry, "time"))) > 0);
        file_hash_bytes(line, strlen(line), hash);
        json_decref(entry);
    }
    assert_int_equal(count, ENTRIES);
    assert_string_equal(hash, head);
    free(bytes);
}

static void test_entries_come_back(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE];
    write_entries(head);
    struct ledger ledger;
    open_well(&ledger);
    assert_int_equal(json_array_size(ledger.lines), ENTRIES);
    assert_string_equal(ledger.head, head);
    assert_int_equal(ledger.broken_at, 0);
    struct error error = {0};
    assert_int_equal(ledger_append(&ledger, LEDGER_USER, "invalidate", NULL, &error), 0);
    char after[FILE_HASH_SIZE];
    memcpy(after, ledger.head, sizeof after);
    ledger_close(&ledger);
    read_well(&ledger);
    assert_int_equal(json_array_size(ledger.lines), ENTRIES + 1);
    assert_string_equal(ledger.head, after);
    const json_t *last = json_array_get(ledger.lines, ENTRIES);
    assert_string_equal(json_string_value(json_object_get(last, "actor")), "user");
    ledger_close(&ledger);
}

static void test_details_cannot_forge_the_chain(void **state)
{
    (void)state;
    struct ledger ledger;
    struct error error = {0};
    open_well(&ledger);
    json_t *details = json_pack("{s:i, s:s, s:s}", "seq", 99, "prev", "x", "actor", "user");
    assert_int_equal(ledger_append(&ledger, LEDGER_RULE, "verdict", details, &error), 0);
    ledger_close(&ledger);
    read_well(&ledger);
    assert_int_equal(ledger.broken_at, 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ledger.lines, 0), "actor")), "rule");
    ledger_close(&ledger);
}

/* --- tampering ---------------------------------------------------------------------------------------------------- */

static char *lines[ENTRIES];

static void keep_lines(char *bytes)
{
    char *line = strtok(bytes, "\n");
    for (int i = 0; i < ENTRIES; i++, line = strtok(NULL, "\n"))
        lines[i] = line;
}

/* Writes the lines again, line `at` replaced by `text`: NULL leaves it out. */
static void write_with(int at, const char *text)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; i < ENTRIES; i++)
        if (i != at)
            fprintf(file, "%s\n", lines[i]);
        else if (text)
            fprintf(file, "%s\n", text);
    fclose(file);
}

static void assert_seen(const char *head, int broken_at)
{
    struct ledger ledger;
    read_well(&ledger);
    if (broken_at)
        assert_int_equal(ledger.broken_at, broken_at);
    assert_true(ledger.broken_at || strcmp(ledger.head, head) != 0);
    ledger_close(&ledger);
}

static void test_any_changed_byte_is_seen(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE];
    write_entries(head);
    char *bytes = fixture_read(path, NULL);
    keep_lines(bytes);
    for (int i = 0; i < ENTRIES; i++)
        for (char *at = lines[i]; *at; at++) {
            char before = *at;
            *at = before == '7' ? '8' : '7';
            write_with(-1, NULL);
            assert_seen(head, 0);
            *at = before;
        }
    write_with(-1, NULL);
    struct ledger ledger;
    read_well(&ledger);
    assert_int_equal(ledger.broken_at, 0);
    assert_string_equal(ledger.head, head);
    ledger_close(&ledger);
    free(bytes);
}

static void test_where_the_chain_breaks(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE];
    write_entries(head);
    char *bytes = fixture_read(path, NULL);
    keep_lines(bytes);
    for (int i = 0; i < ENTRIES; i++) {
        char *twice = xformat("%s\n%s", lines[i], lines[i]), *spaced = xformat("%s ", lines[i]);
        write_with(i, "garbage");
        assert_seen(head, i + 1);
        write_with(i, "{}");
        assert_seen(head, i + 1);
        write_with(i, "");
        assert_seen(head, i + 1);
        write_with(i, twice);
        assert_seen(head, i + 2);
        write_with(i, spaced); /* says the same, in other bytes */
        assert_seen(head, i + 1 < ENTRIES ? i + 2 : 0);
        write_with(i, NULL);
        assert_seen(head, i + 1 < ENTRIES ? i + 1 : 0); /* a tail that was cut shows in the head alone */
        free(twice);
        free(spaced);
    }
    free(bytes);
}

/* --- torn lines --------------------------------------------------------------------------------------------------- */

static size_t last_line_offset(const char *bytes, size_t size)
{
    const char *newline = memrchr(bytes, '\n', size - 1);
    return (size_t)(newline + 1 - bytes);
}

static void test_a_torn_line_is_recovered(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE], hash[FILE_HASH_SIZE];
    write_entries(head);
    size_t size;
    char *bytes = fixture_read(path, &size);
    size_t start = last_line_offset(bytes, size);
    for (size_t cut = start; cut < size; cut += cut + 8 < size ? 7 : 1) {
        fixture_write(path, bytes, cut);
        struct ledger ledger;
        read_well(&ledger);
        assert_int_equal(ledger.torn_bytes, cut - start);
        assert_int_equal(json_array_size(ledger.lines), ENTRIES - 1);
        assert_int_equal(ledger.broken_at, 0);
        ledger_close(&ledger);

        open_well(&ledger);
        append_well(&ledger, 77);
        int expected = ENTRIES + (cut > start);
        assert_int_equal(json_array_size(ledger.lines), expected);
        memcpy(head, ledger.head, sizeof head);
        ledger_close(&ledger);

        read_well(&ledger);
        assert_int_equal(ledger.broken_at, 0);
        assert_int_equal(ledger.torn_bytes, 0);
        assert_string_equal(ledger.head, head);
        assert_int_equal(json_array_size(ledger.lines), expected);
        if (cut > start) {
            const json_t *entry = json_array_get(ledger.lines, ENTRIES - 1);
            file_hash_bytes(bytes + start, cut - start, hash);
            assert_string_equal(json_string_value(json_object_get(entry, "action")), "recover");
            assert_int_equal(json_integer_value(json_object_get(entry, "offset")), start);
            assert_int_equal(json_integer_value(json_object_get(entry, "bytes")), cut - start);
            assert_string_equal(json_string_value(json_object_get(entry, "sha256")), hash);
        }
        ledger_close(&ledger);
    }
    free(bytes);
}

static void test_a_torn_line_cannot_be_changed_afterwards(void **state)
{
    (void)state;
    char head[FILE_HASH_SIZE];
    write_entries(head);
    size_t size;
    char *bytes = fixture_read(path, &size);
    size_t start = last_line_offset(bytes, size);
    free(bytes);
    assert_int_equal(truncate(path, (off_t)start + 20), 0);
    struct ledger ledger;
    open_well(&ledger);
    ledger_close(&ledger);
    bytes = fixture_read(path, &size);
    bytes[start + 10] ^= 1;
    fixture_write(path, bytes, size);
    read_well(&ledger);
    assert_int_equal(ledger.broken_at, ENTRIES);
    ledger_close(&ledger);
    free(bytes);
}

static void test_any_bytes_are_survived(void **state)
{
    (void)state;
    static const char *const texts[] = {"\n",
                                        "\n\n\n",
                                        "[]\n",
                                        "{}\n",
                                        "null\n",
                                        "{\"seq\":1}\n",
                                        "{\"seq\":9223372036854775807}\n",
                                        "{\"action\":\"recover\",\"offset\":0,\"sha256\":\"x\"}\n",
                                        "\xff\xfe\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fixture_write(path, texts[i], strlen(texts[i]));
        struct ledger ledger;
        read_well(&ledger);
        assert_int_equal(ledger.broken_at, 1);
        ledger_close(&ledger);
        struct error error = {0};
        assert_int_equal(ledger_open(folder, &ledger, &error), -1);
        assert_non_null(strstr(error.message, "ledger.jsonl:1: does not follow from the line before"));
        char *after = fixture_read(path, NULL);
        assert_string_equal(after, texts[i]);
        free(after);
    }
    fixture_write(path, "\0\0\0\0", 4);
    struct ledger ledger;
    open_well(&ledger);
    assert_int_equal(ledger.broken_at, 0);
    assert_int_equal(json_array_size(ledger.lines), 1);
    ledger_close(&ledger);
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

/* In a process of its own: tries to open the ledger, and answers by its exit status and the message in `answer`. */
static void try_in_child(int answer)
{
    struct ledger ledger;
    struct error error = {0};
    int result = ledger_open(folder, &ledger, &error);
    if (write(answer, error.message, strlen(error.message) + 1) < 0)
        _exit(3);
    _exit(result ? 1 : 0);
}

static int open_in_child(char *message, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        try_in_child(ends[1]);
    close(ends[1]);
    assert_true(read(ends[0], message, size) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}

static void test_the_second_is_refused_with_the_holders_name(void **state)
{
    (void)state;
    char message[ERROR_MESSAGE_SIZE], name[64];
    struct ledger ledger, second;
    open_well(&ledger);
    assert_int_equal(open_in_child(message, sizeof message), 1);
    snprintf(name, sizeof name, "lock: held by process %ld on ", (long)getpid());
    assert_non_null(strstr(message, name));
    struct error error = {0};
    assert_int_equal(ledger_open(folder, &second, &error), -1);
    assert_non_null(strstr(error.message, name));
    read_well(&second); /* readers need no lock */
    ledger_close(&second);
    ledger_close(&ledger);
    assert_int_equal(open_in_child(message, sizeof message), 0);
}

static void test_the_lock_file_names_its_holder(void **state)
{
    (void)state;
    struct ledger ledger;
    open_well(&ledger);
    char *lock = file_join(folder, "lock"), *text = fixture_read(lock, NULL);
    json_t *holder = json_loads(text, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(holder, "pid")), getpid());
    assert_true(json_string_length(json_object_get(holder, "host")) > 0);
    assert_int_equal(json_string_length(json_object_get(holder, "boot_id")), 36);
    assert_true(text[strlen(text) - 1] == '\n');
    json_decref(holder);
    free(text);
    free(lock);
    ledger_close(&ledger);
}

static void test_writing_needs_the_lock_and_a_folder(void **state)
{
    (void)state;
    struct ledger ledger;
    struct error error = {0}, second = {0};
    read_well(&ledger);
    assert_int_equal(ledger_append(&ledger, LEDGER_USER, "purge", NULL, &error), -1);
    assert_non_null(strstr(error.message, "not open for writing"));
    assert_int_equal(json_array_size(ledger.lines), 0);
    ledger_close(&ledger);
    assert_int_equal(ledger_open(path, &ledger, &second), -1);
    assert_non_null(strstr(second.message, "ledger.jsonl/lock: cannot open"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_file_is_an_empty_ledger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_line_carries_the_hash_of_the_line_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_entries_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_details_cannot_forge_the_chain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_changed_byte_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_where_the_chain_breaks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_line_is_recovered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_line_cannot_be_changed_afterwards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_bytes_are_survived, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_second_is_refused_with_the_holders_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_lock_file_names_its_holder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_writing_needs_the_lock_and_a_folder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
