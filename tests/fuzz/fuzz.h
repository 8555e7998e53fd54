/* Fuzzing the readers of files.
 *
 * Each tests/fuzz/test_NAME.c is a target: LLVMFuzzerTestOneInput() reads bytes as one kind of file and checks what
 * must hold of every answer. Linked with libFuzzer it is a fuzzer (`make fuzz`). Linked with replay.c it is a test,
 * which runs the files of tests/fuzz/corpus/NAME/ and mutations of them, the same ones every time. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "collect/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder of the target's corpus, and how many mutations of it a test runs. */
extern const char fuzz_corpus[];
extern const int fuzz_mutations;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A folder of this process, in memory where the system has one; removed at exit. */
const char *fuzz_folder(void);

/* Writes FOLDER/name and answers its path, which stays. */
const char *fuzz_write(const char *name, const void *bytes, size_t size);

/* Ends the program unless `holds`. */
void fuzz_require(bool holds, const char *what);

/* Requires that a text that is shown is one line of printable UTF-8. */
void fuzz_check_line(const char *text);

/* Requires that an answer is whole: no message where all is well, else one line that can be printed. */
void fuzz_check_answer(bool well, const struct error *error);

/* Changes bytes[size], which has room for `capacity`, as its seed says: bits, ranges, and what JSON is made of
 * (numbers, members, nesting, lines). other[other_size]: another file to take a piece of. Answers the new size. */
size_t fuzz_mutate(uint8_t *bytes, size_t size, size_t capacity, const uint8_t *other, size_t other_size,
                   uint64_t seed);

#endif
