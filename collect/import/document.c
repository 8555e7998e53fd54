#include "collect/import/document.h"

#include "collect/import/bytes.h"
#include "collect/import/syntax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const document_oddity_names[DOCUMENT_ODDITY_COUNT] = {
    [DOCUMENT_CUT] = "cut off",
    [DOCUMENT_DAMAGED] = "damaged",
    [DOCUMENT_DUPLICATE_KEY] = "duplicate key",
    [DOCUMENT_NOT_FINITE] = "not a finite number",
    [DOCUMENT_LARGE_NUMBER] = "number beyond 64 bits",
    [DOCUMENT_NOT_UTF8] = "not UTF-8",
};

void document_note(struct document *document, enum document_oddity oddity, size_t offset, const char *example,
                   size_t length)
{
    struct document_note *note = &document->notes[oddity];
    if (note->count++)
        return;
    note->offset = offset;
    length = length < sizeof note->example ? length : sizeof note->example - 1;
    memcpy(note->example, example, length);
}

static bool contains(const char *bytes, size_t size, const char *text)
{
    return memmem(bytes, size, text, strlen(text)) != NULL;
}

static size_t skip_blanks(const char *bytes, size_t size)
{
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", bytes[at]) && bytes[at])
        at++;
    return at;
}

static void parse(struct document *document, const char *bytes, size_t size)
{
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t marked = size >= 3 && memcmp(bytes, mark, 3) == 0 ? 3 : 0;
    const size_t first = marked + skip_blanks(bytes + marked, size - marked);
    if (first < size && strchr("{[", bytes[first])) {
        syntax_read_json(document, bytes + marked, size - marked, marked);
    } else if (contains(bytes, size, ":::MLLOG") || contains(bytes, size, ":::ENDPTS")) {
        document->syntax = DOCUMENT_MLPERF_LOG;
        syntax_read_mlperf_log(document, bytes, size);
    } else if (contains(bytes, size, "MLPerf Results Summary")) {
        document->syntax = DOCUMENT_MLPERF_SUMMARY;
        syntax_read_mlperf_summary(document, bytes, size);
    } else {
        document->syntax = DOCUMENT_TABLE;
        if (syntax_is_markdown(bytes, size))
            syntax_read_markdown(document, bytes, size);
        else
            syntax_read_csv(document, bytes + first, size - first);
    }
}

int document_parse(const char *path, const char *bytes, size_t size, struct document *document, struct error *error)
{
    *document = (struct document){.path = xstrdup(path), .values = json_array()};
    parse(document, bytes, size);
    if (json_array_size(document->values))
        return 0;
    fail(error, "%s: holds nothing that can be read%s", path, size ? "" : "; it is empty");
    document_free(document);
    return -1;
}

int document_read(const char *path, struct document *document, struct error *error)
{
    struct bytes bytes;
    if (bytes_read(path, &bytes, error))
        return -1;
    int result = document_parse(path, bytes.data, bytes.size, document, error);
    if (!result) {
        memcpy(document->sha256, bytes.sha256, sizeof bytes.sha256);
        if (bytes.cut)
            document_note(document, DOCUMENT_CUT, bytes.size, "", 0);
    }
    bytes_free(&bytes);
    return result;
}

void document_free(struct document *document)
{
    free(document->path);
    json_decref(document->values);
    *document = (struct document){0};
}

double document_number(const json_t *value)
{
    double number;
    if (json_is_number(value))
        return json_number_value(value);
    if (json_is_string(value) && syntax_number(json_string_value(value), json_string_length(value), &number))
        return number;
    return NAN;
}
