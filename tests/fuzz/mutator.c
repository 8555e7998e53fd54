/* libFuzzer's own mutations and ours, by turns. */
#include "tests/fuzz/fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t capacity);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t capacity, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t capacity, unsigned seed)
{
    if (seed % 2)
        return LLVMFuzzerMutate(bytes, size, capacity);
    return fuzz_mutate(bytes, size, capacity, NULL, 0, seed);
}
