/* A fuzz target as a test: the files of its corpus as they are, then mutations of each. Each pass runs in a process of
 * its own, so that whatever ends it is told with the input it was at.
 *
 * With arguments: runs those files, or one mutation (FILE@NUMBER), in this process. CLEANSLATE_MUTATIONS: so many of
 * them instead of the target's own number. */
#include "collect/base/file.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAPACITY = 1 << 16, LIMIT_S = 120 };

struct input {
    char *path;
    uint8_t *bytes;
    size_t size;
};

static struct input *inputs;
static int input_count;

/* Where the child is: shared with the parent. */
static struct place {
    int input, mutation; /* mutation -1: the file as it is */
} * place;

static int compare_inputs(const void *a, const void *b)
{
    return strcmp(((const struct input *)a)->path, ((const struct input *)b)->path);
}

static void read_input(const char *path, struct input *input)
{
    struct error error = {0};
    input->path = xstrdup(path);
    input->bytes = (uint8_t *)file_read(path, CAPACITY, &input->size, &error);
    if (!input->bytes)
        die("%s", error.message);
}

static void read_corpus(void)
{
    DIR *folder = opendir(fuzz_corpus);
    if (!folder)
        die("%s: no such folder; run this in the root of the repository", fuzz_corpus);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = file_join(fuzz_corpus, entry->d_name);
        inputs = xrealloc(inputs, (size_t)input_count + 1, sizeof *inputs);
        read_input(path, &inputs[input_count++]);
        free(path);
    }
    closedir(folder);
    qsort(inputs, (size_t)input_count, sizeof *inputs, compare_inputs);
}

static void free_corpus(void)
{
    for (int i = 0; i < input_count; i++) {
        free(inputs[i].path);
        free(inputs[i].bytes);
    }
    free(inputs);
}

/* Runs a copy of its exact size, so that a sanitizer sees what is read behind the end. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = xmalloc(size);
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void run_mutation(const struct input *input, const struct input *other, int number)
{
    static uint8_t bytes[CAPACITY];
    memcpy(bytes, input->bytes, input->size);
    run(bytes, fuzz_mutate(bytes, input->size, CAPACITY, other->bytes, other->size, (uint64_t)number));
}

static const struct input *partner(int input, int number)
{
    return &inputs[(input + number) % input_count];
}

static void run_files(void)
{
    for (place->input = 0; place->input < input_count; place->input++)
        run(inputs[place->input].bytes, inputs[place->input].size);
}

static int mutation_count(void)
{
    const char *wanted = getenv("CLEANSLATE_MUTATIONS");
    return wanted ? atoi(wanted) : fuzz_mutations;
}

static void run_mutations(void)
{
    for (place->input = 0; place->input < input_count; place->input++)
        for (place->mutation = 0; place->mutation < mutation_count() / input_count; place->mutation++)
            run_mutation(&inputs[place->input], partner(place->input, place->mutation), place->mutation);
}

static void expect_to_live(void (*body)(void))
{
    assert_true(input_count > 0);
    *place = (struct place){0, -1};
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(LIMIT_S * (1 + (unsigned)mutation_count() / (unsigned)fuzz_mutations));
        body();
        free_corpus();
        exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status == 0)
        return;
    char where[32] = "";
    if (place->mutation >= 0)
        snprintf(where, sizeof where, "@%d", place->mutation);
    fail_msg("%s%s: %s %d", place->input < input_count ? inputs[place->input].path : "behind all inputs", where,
             WIFSIGNALED(status) ? "signal" : "exit status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void survives_its_corpus(void **state)
{
    (void)state;
    expect_to_live(run_files);
}

static void survives_mutations(void **state)
{
    (void)state;
    expect_to_live(run_mutations);
}

static int find_input(const char *path)
{
    int i = 0;
    while (i < input_count && strcmp(inputs[i].path, path) != 0)
        i++;
    return i;
}

static void run_argument(char *argument)
{
    char *at = strrchr(argument, '@');
    if (at)
        *at = '\0';
    int known = at ? find_input(argument) : input_count;
    if (known < input_count) {
        run_mutation(&inputs[known], partner(known, atoi(at + 1)), atoi(at + 1));
        return;
    }
    struct input input;
    read_input(argument, &input);
    run(input.bytes, input.size);
    free(input.path);
    free(input.bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_its_corpus),
        cmocka_unit_test(survives_mutations),
    };
    read_corpus();
    place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        die("cannot share memory");
    for (int i = 1; i < argc; i++)
        run_argument(argv[i]);
    int result = argc > 1 ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    free_corpus();
    return result;
}
