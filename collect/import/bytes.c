#include "collect/import/bytes.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <zlib.h>
#include <zstd.h>

enum { PIECE = 1 << 18 };

/* What has been unpacked so far. */
struct output {
    char *data;
    size_t size, capacity;
};

/* Room for a piece more, and for the NUL. */
static char *reserve(struct output *output)
{
    if (output->capacity - output->size <= PIECE) {
        output->capacity = 2 * output->capacity + 2 * PIECE;
        output->data = xrealloc(output->data, output->capacity, 1);
    }
    return output->data + output->size;
}

static int refuse_size(const char *path, struct error *error)
{
    return fail(error, "%s: unpacks to more than %zu bytes; take out what is not needed, or split it", path,
                BYTES_LIMIT);
}

/* Members of a .gz may follow each other. */
static int unpack_gzip(const char *path, const char *packed, size_t size, struct output *output, bool *cut,
                       struct error *error)
{
    z_stream stream = {.next_in = (Bytef *)packed, .avail_in = (uInt)size};
    int status = inflateInit2(&stream, 15 + 16), result = 0;
    if (status != Z_OK)
        die("zlib cannot be started");
    while (status == Z_OK && !result) {
        stream.next_out = (Bytef *)reserve(output);
        stream.avail_out = PIECE;
        status = inflate(&stream, Z_NO_FLUSH);
        output->size += PIECE - stream.avail_out;
        if (status == Z_STREAM_END && stream.avail_in)
            status = inflateReset(&stream);
        if (output->size > BYTES_LIMIT)
            result = refuse_size(path, error);
    }
    *cut = status != Z_STREAM_END;
    inflateEnd(&stream);
    return result;
}

static int unpack_zstd(const char *path, const char *packed, size_t size, struct output *output, bool *cut,
                       struct error *error)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {packed, size, 0};
    size_t left = 1, before;
    int result = 0;
    if (!stream)
        die("libzstd cannot be started");
    do {
        ZSTD_outBuffer out = {reserve(output), PIECE, 0};
        before = in.pos;
        left = ZSTD_decompressStream(stream, &out, &in);
        output->size += out.pos;
        if (output->size > BYTES_LIMIT)
            result = refuse_size(path, error);
        before = in.pos - before + out.pos;
    } while (!result && !ZSTD_isError(left) && before && (in.pos < in.size || left));
    *cut = left != 0;
    ZSTD_freeDStream(stream);
    return result;
}

typedef int unpack(const char *path, const char *packed, size_t size, struct output *output, bool *cut,
                   struct error *error);

static const struct {
    const char *magic;
    size_t size;
    unpack *unpack;
} packings[] = {{"\x1f\x8b", 2, unpack_gzip}, {"\x28\xb5\x2f\xfd", 4, unpack_zstd}};

static int unpack_by(unpack *function, const char *path, struct bytes *bytes, struct error *error)
{
    struct output output = {0};
    int result = function(path, bytes->data, bytes->size, &output, &bytes->cut, error);
    char *end = reserve(&output);
    *end = '\0';
    free(bytes->data);
    bytes->data = output.data;
    bytes->size = output.size;
    return result;
}

/* --- UTF-16 ------------------------------------------------------------------------------------------------------- */

static unsigned unit_at(const struct bytes *bytes, size_t at, bool little)
{
    const unsigned char *pair = (const unsigned char *)bytes->data + at;
    return little ? pair[0] | (unsigned)pair[1] << 8 : pair[1] | (unsigned)pair[0] << 8;
}

/* Behind the mark. Halves of pairs become U+FFFD. */
static void make_utf8(struct bytes *bytes, bool little)
{
    char *text = xmalloc(bytes->size * 2 + 1);
    size_t used = 0, at = 2;
    while (at + 1 < bytes->size) {
        utf8proc_int32_t point = (utf8proc_int32_t)unit_at(bytes, at, little);
        at += 2;
        const unsigned low = at + 1 < bytes->size ? unit_at(bytes, at, little) : 0;
        if (point >= 0xD800 && point < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
            point = 0x10000 + ((point - 0xD800) << 10) + (utf8proc_int32_t)(low - 0xDC00);
            at += 2;
        } else if (point >= 0xD800 && point < 0xE000) {
            point = 0xFFFD;
        }
        used += (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)text + used);
    }
    bytes->cut |= at < bytes->size;
    text[used] = '\0';
    free(bytes->data);
    bytes->data = text;
    bytes->size = used;
}

static void decode(struct bytes *bytes)
{
    const bool little = bytes->size >= 2 && memcmp(bytes->data, "\xFF\xFE", 2) == 0;
    if (little || (bytes->size >= 2 && memcmp(bytes->data, "\xFE\xFF", 2) == 0))
        make_utf8(bytes, little);
}

int bytes_read(const char *path, struct bytes *bytes, struct error *error)
{
    *bytes = (struct bytes){0};
    int result = 0;
    bytes->data = file_read(path, BYTES_LIMIT, &bytes->size, error);
    if (!bytes->data)
        return -1;
    file_hash_bytes(bytes->data, bytes->size, bytes->sha256);
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (bytes->size >= packings[i].size && memcmp(bytes->data, packings[i].magic, packings[i].size) == 0) {
            result = unpack_by(packings[i].unpack, path, bytes, error);
            break;
        }
    if (result)
        bytes_free(bytes);
    else
        decode(bytes);
    return result;
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}
