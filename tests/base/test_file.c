#include "collect/base/file.h"

#include "tests/record/fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void expect_message(const struct error *error, const char *path, const char *said)
{
    char *expected = xformat("%s: %s", path, said);
    assert_string_equal(error->message, expected);
    free(expected);
}

static int count_entries(void)
{
    int count = 0;
    DIR *stream = opendir(fixture_folder);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void reads_bytes_as_they_are(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x");
    size_t size = 7;
    fixture_write(path, "", 0);
    char *bytes = file_read(path, 0, &size, &error);
    assert_string_equal(bytes, "");
    assert_int_equal(size, 0);
    free(bytes);
    fixture_write(path, "a\0\xFF\n", 4);
    bytes = file_read(path, 4, &size, &error);
    assert_int_equal(size, 4);
    assert_memory_equal(bytes, "a\0\xFF\n", 5);
    free(bytes);
    assert_null(file_read(path, 3, NULL, &error));
    expect_message(&error, path, "4 bytes, more than the 3 this kind of file may have");
    free(path);
}

/* Whatever stands where a file is expected is refused at once: opening a pipe would wait for its writer. */
static void refuses_what_is_no_file(void **state)
{
    (void)state;
    char *pipe_path = file_join(fixture_folder, "pipe"), *inner = file_join(fixture_folder, "inner"),
         *link = file_join(fixture_folder, "link"), *loop = file_join(fixture_folder, "loop"),
         *absent = file_join(fixture_folder, "absent"), *below = file_join(pipe_path, "x");
    assert_int_equal(mkfifo(pipe_path, 0666), 0);
    assert_int_equal(mkdir(inner, 0777), 0);
    assert_int_equal(symlink("inner", link), 0);
    assert_int_equal(symlink("loop", loop), 0);
    const struct {
        const char *path, *said;
    } cases[] = {
        {pipe_path, "not a file"},
        {inner, "not a file, but a folder"},
        {link, "not a file, but a folder"},
        {"/dev/null", "not a file"},
        {"/dev/zero", "not a file"},
        {loop, "cannot open: Too many levels of symbolic links"},
        {absent, "cannot open: No such file or directory"},
        {below, "cannot open: Not a directory"},
        {"", "cannot open: No such file or directory"},
    };
    alarm(20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error read = {0}, opened = {0}, hashed = {0};
        char hex[FILE_HASH_SIZE];
        assert_null(file_read(cases[i].path, 100, NULL, &read));
        expect_message(&read, cases[i].path, cases[i].said);
        assert_int_equal(file_open(cases[i].path, NULL, &opened), -1);
        expect_message(&opened, cases[i].path, cases[i].said);
        assert_int_equal(file_hash(cases[i].path, hex, &hashed), -1);
        expect_message(&hashed, cases[i].path, cases[i].said);
    }
    alarm(0);
    free(pipe_path);
    free(inner);
    free(link);
    free(loop);
    free(absent);
    free(below);
}

static void follows_links_to_files(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x"), *link = file_join(fixture_folder, "link");
    fixture_write(path, "text", 4);
    assert_int_equal(symlink("x", link), 0);
    char *bytes = file_read(link, 4, NULL, &error);
    assert_string_equal(bytes, "text");
    assert_true(file_exists(link));
    unlink(path);
    assert_false(file_exists(link));
    free(bytes);
    free(path);
    free(link);
}

/* Root may read and write everything: as nobody, then. Answers who to be again. */
static uid_t lay_down_rights(void)
{
    uid_t former = geteuid();
    if (former == 0)
        assert_int_equal(seteuid(65534), 0);
    return former;
}

static void refuses_what_it_may_not_read(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x");
    fixture_write(path, "text", 4);
    assert_int_equal(chmod(fixture_folder, 0755), 0);
    assert_int_equal(chmod(path, 0), 0);
    uid_t former = lay_down_rights();
    char *bytes = file_read(path, 4, NULL, &error);
    assert_int_equal(seteuid(former), 0);
    assert_null(bytes);
    expect_message(&error, path, "cannot open: Permission denied");
    free(path);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void expect_content(const char *path, const char *expected)
{
    size_t size;
    char *bytes = fixture_read(path, &size);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(bytes, expected);
    free(bytes);
}

static void replaces_whole_files(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x");
    assert_int_equal(file_write_whole(path, "first", 5, &error), 0);
    expect_content(path, "first");
    assert_int_equal(file_write_whole(path, "2nd", 3, &error), 0);
    expect_content(path, "2nd");
    assert_int_equal(file_write_whole(path, "", 0, &error), 0);
    expect_content(path, "");
    assert_int_equal(count_entries(), 1);
    char *former = getcwd(NULL, 0);
    assert_int_equal(chdir(fixture_folder), 0); /* a path without a folder */
    assert_int_equal(file_write_whole("x", "here", 4, &error), 0);
    expect_content("x", "here");
    assert_int_equal(chdir(former), 0);
    free(former);
    free(path);
}

/* In a process of its own: a limit on the size of files makes writing fail as a full disk does. */
static int write_with_little_room(const char *path, const char *bytes, size_t size)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct error error = {0};
        const struct rlimit limit = {1000, 1000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(file_write_whole(path, bytes, size, &error) == 0        ? 0
              : strstr(error.message, "cannot write: File too large") ? 1
                                                                      : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}

/* As root, /dev/null would be a file from then on, and for everybody. */
static void replaces_nothing_but_files(void **state)
{
    (void)state;
    char *pipe_path = file_join(fixture_folder, "pipe"), *inner = file_join(fixture_folder, "inner"),
         *link = file_join(fixture_folder, "link");
    char *linked_folder = file_join(fixture_folder, "linked-folder");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(symlink("pipe", link), 0);
    assert_int_equal(symlink("inner", linked_folder), 0);
    const struct {
        const char *path, *said;
    } cases[] = {
        {pipe_path, "not a file; name a file, which is then written"},
        {link, "not a file; name a file, which is then written"},
        {inner, "not a file, but a folder; name a file, which is then written"},
        {linked_folder, "not a file, but a folder; name a file, which is then written"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        struct stat before, after;
        assert_int_equal(lstat(cases[i].path, &before), 0);
        assert_int_equal(file_write_whole(cases[i].path, "text", 4, &error), -1);
        expect_message(&error, cases[i].path, cases[i].said);
        assert_int_equal(lstat(cases[i].path, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
    }
    assert_int_equal(count_entries(), 4);
    free(pipe_path);
    free(inner);
    free(link);
    free(linked_folder);
}

/* A link stays one, wherever it leads: /dev/stdout is one as well. */
static void replaces_the_file_that_a_link_names(void **state)
{
    (void)state;
    struct error error = {0};
    struct stat status;
    char *path = file_join(fixture_folder, "x"), *link = file_join(fixture_folder, "link");
    fixture_write(path, "old", 3);
    assert_int_equal(symlink("x", link), 0);
    assert_int_equal(file_write_whole(link, "new", 3, &error), 0);
    expect_content(path, "new");
    assert_int_equal(lstat(link, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    unlink(path);
    assert_int_equal(file_write_whole(link, "again", 5, &error), 0);
    expect_content(link, "again");
    assert_int_equal(count_entries(), 1);
    free(path);
    free(link);
}

static void leaves_the_old_file_where_writing_fails(void **state)
{
    (void)state;
    static const char big[5000] = "new";
    char *path = file_join(fixture_folder, "x");
    fixture_write(path, "old", 3);
    assert_int_equal(write_with_little_room(path, big, 900), 0);
    fixture_write(path, "old", 3);
    assert_int_equal(write_with_little_room(path, big, sizeof big), 1);
    expect_content(path, "old");
    assert_int_equal(count_entries(), 1);
    free(path);
}

static void leaves_nothing_where_it_cannot_replace(void **state)
{
    (void)state;
    struct error error = {0}, other = {0};
    char *path = file_join(fixture_folder, "taken"), *inside = file_join(path, "inside"),
         *absent = file_join(fixture_folder, "no/x");
    assert_int_equal(mkdir(path, 0777), 0);
    fixture_write(inside, "kept", 4);
    assert_int_equal(file_write_whole(path, "new", 3, &error), -1);
    expect_message(&error, path, "not a file, but a folder; name a file, which is then written");
    expect_content(inside, "kept");
    assert_int_equal(file_write_whole(absent, "new", 3, &other), -1);
    assert_non_null(strstr(other.message, "cannot create: No such file or directory"));
    assert_int_equal(count_entries(), 1);
    free(path);
    free(inside);
    free(absent);
}

static void refuses_a_folder_that_it_may_not_write(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x");
    fixture_write(path, "old", 3);
    assert_int_equal(chmod(fixture_folder, 0555), 0);
    uid_t former = lay_down_rights();
    int result = file_write_whole(path, "new", 3, &error);
    assert_int_equal(seteuid(former), 0);
    assert_int_equal(chmod(fixture_folder, 0777), 0);
    assert_int_equal(result, -1);
    assert_non_null(strstr(error.message, "cannot create: Permission denied"));
    expect_content(path, "old");
    free(path);
}

static void appends_lines(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "x");
    int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    assert_int_equal(file_append_line(descriptor, path, "{\"a\":1}", &error), 0);
    assert_int_equal(file_append_line(descriptor, path, "", &error), 0);
    assert_int_equal(file_append_line(descriptor, path, "end", &error), 0);
    close(descriptor);
    expect_content(path, "{\"a\":1}\n\nend\n");
    free(path);
}

static void says_that_the_disk_is_full(void **state)
{
    (void)state;
    struct error error = {0}, other = {0};
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    assert_int_equal(file_append_line(full, "x.jsonl", "line", &error), -1);
    assert_string_equal(error.message, "x.jsonl: cannot write: No space left on device");
    close(full);
    assert_int_equal(file_append_line(-1, "x.jsonl", "line", &other), -1);
    assert_string_equal(other.message, "x.jsonl: cannot write: Bad file descriptor");
}

/* --- folders and names -------------------------------------------------------------------------------------------- */

static void makes_folders(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "a", "b/c/d", "b/c/e/", "f//g", "./h/../i"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct error error = {0};
        struct stat status;
        char *path = file_join(fixture_folder, names[i]);
        assert_int_equal(file_make_folder(path, &error), 0);
        assert_int_equal(stat(path, &status), 0);
        assert_true(S_ISDIR(status.st_mode));
        free(path);
    }
    struct error error = {0};
    assert_int_equal(file_make_folder("/", &error), 0);
    assert_int_equal(file_make_folder(".", &error), 0);
}

static void makes_no_folder_over_a_file(void **state)
{
    (void)state;
    struct error error = {0}, other = {0}, empty = {0};
    char *path = file_join(fixture_folder, "x"), *below = file_join(path, "y");
    fixture_write(path, "text", 4);
    assert_int_equal(file_make_folder(path, &error), -1);
    expect_message(&error, path, "cannot make the folder: a file has its name");
    assert_int_equal(file_make_folder(below, &other), -1);
    expect_message(&other, path, "cannot make the folder: a file has its name");
    assert_int_equal(file_make_folder("", &empty), -1);
    expect_message(&empty, "", "cannot make the folder: No such file or directory");
    expect_content(path, "text");
    free(path);
    free(below);
}

static void removes_files(void **state)
{
    (void)state;
    struct error error = {0};
    char *path = file_join(fixture_folder, "gone");
    assert_int_equal(file_write_whole(path, "text", 4, &error), 0);
    assert_int_equal(file_remove(path, &error), 0);
    assert_false(file_exists(path));
    assert_int_equal(file_remove(path, &error), 0);
    assert_int_equal(file_remove(fixture_folder, &error), -1);
    expect_message(&error, fixture_folder, "cannot remove: Is a directory");
    free(path);
}

static void joins_names(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "/b"}, {"a/b", "c.json", "a/b/c.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = file_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

/* --- hashes ------------------------------------------------------------------------------------------------------- */

/* FIPS 180-2, appendix B, and the examples that NIST publishes with it. */
static const struct {
    const char *text;
    int times;
    const char *hex;
} vectors[] = {
    {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
     1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void hashes_as_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct error error = {0};
        char hex[FILE_HASH_SIZE], *path = file_join(fixture_folder, "x");
        size_t length = strlen(vectors[i].text), size = length * (size_t)vectors[i].times;
        char *bytes = xmalloc(size);
        for (size_t at = 0; at < size; at += length)
            memcpy(bytes + at, vectors[i].text, length);
        file_hash_bytes(bytes, size, hex);
        assert_string_equal(hex, vectors[i].hex);
        fixture_write(path, bytes, size);
        memset(hex, 0, sizeof hex);
        assert_int_equal(file_hash(path, hex, &error), 0);
        assert_string_equal(hex, vectors[i].hex);
        free(bytes);
        free(path);
    }
}

/* A file of more pieces than one. */
static void hashes_large_files(void **state)
{
    (void)state;
    enum { SIZE = (3 << 20) + 7 };
    struct error error = {0};
    char *path = file_join(fixture_folder, "x"), *bytes = xmalloc(SIZE), of_bytes[FILE_HASH_SIZE],
         of_file[FILE_HASH_SIZE];
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 2654435761U >> 24);
    fixture_write(path, bytes, SIZE);
    file_hash_bytes(bytes, SIZE, of_bytes);
    assert_int_equal(file_hash(path, of_file, &error), 0);
    assert_string_equal(of_file, of_bytes);
    free(path);
    free(bytes);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fixture_set_up, fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_bytes_as_they_are),
        TEST(refuses_what_is_no_file),
        TEST(follows_links_to_files),
        TEST(refuses_what_it_may_not_read),
        TEST(replaces_whole_files),
        TEST(replaces_nothing_but_files),
        TEST(replaces_the_file_that_a_link_names),
        TEST(leaves_the_old_file_where_writing_fails),
        TEST(leaves_nothing_where_it_cannot_replace),
        TEST(refuses_a_folder_that_it_may_not_write),
        TEST(appends_lines),
        TEST(says_that_the_disk_is_full),
        TEST(makes_folders),
        TEST(makes_no_folder_over_a_file),
        TEST(removes_files),
        TEST(joins_names),
        TEST(hashes_as_published),
        TEST(hashes_large_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
