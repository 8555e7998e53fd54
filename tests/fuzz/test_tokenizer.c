/* tokenizer.json, and texts that are encoded by whatever it says */
#include "collect/engine/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/tokenizer";
const int fuzz_mutations = 10000;

static bool is_ascii(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t size, bool with_template)
{
    struct error error = {0};
    int *ids = NULL, count = tokenizer_encode(tokenizer, text, size, with_template, &ids, &error);
    fuzz_check_answer(count >= 0, &error);
    if (count < 0)
        return;
    for (int i = 0; i < count; i++)
        fuzz_require(ids[i] >= 0 && ids[i] < tokenizer_size(tokenizer), "ids lie below the tokenizer's size");
    size_t length;
    char *decoded = tokenizer_decode(tokenizer, ids, count, false, &length);
    if (is_ascii(text, size) && !with_template)
        fuzz_require(length == size && memcmp(decoded, text, size) == 0, "what was encoded is decoded");
    free(decoded);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char fixed[] =
        "The quick  brown\r\n\tfox <s> 12345 isn't caf\xC3\xA9, cafe\xCC\x81 or \xE6\x97\xA5\xE6\x9C\xAC.";
    struct error error = {0};
    struct tokenizer *tokenizer = tokenizer_open(fuzz_write("tokenizer.json", bytes, size), &error);
    fuzz_check_answer(tokenizer, &error);
    if (!tokenizer)
        return 0;
    const char *text = (const char *)bytes;
    size_t tail = size < 200 ? size : 200;
    encode(tokenizer, fixed, strlen(fixed), true);
    encode(tokenizer, "the end <s> of it", strlen("the end <s> of it"), false);
    encode(tokenizer, text + size - tail, tail, false);
    encode(tokenizer, text, 0, true);
    tokenizer_close(tokenizer);
    return 0;
}
