#include "collect/server/event_stream.h"

#include "collect/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* False where it would become too long. There is always room for a NUL behind the bytes. */
static bool append(struct event_buffer *buffer, const char *bytes, size_t size)
{
    if (size > EVENT_STREAM_SIZE_MAXIMUM - buffer->size)
        return false;
    if (buffer->size + size + 1 > buffer->capacity) {
        buffer->capacity = 2 * (buffer->size + size + 1);
        buffer->bytes = xrealloc(buffer->bytes, buffer->capacity, 1);
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    buffer->bytes[buffer->size] = '\0';
    return true;
}

static enum event_stream_result dispatch(struct event_stream *stream, event_stream_on_event *on_event, void *context)
{
    bool ended = stream->has_data && on_event(context, stream->name[0] ? stream->name : "message",
                                              stream->data.size ? stream->data.bytes : "", stream->data.size);
    stream->data.size = 0;
    stream->name[0] = '\0';
    stream->has_data = false;
    return ended ? EVENT_STREAM_ENDED : EVENT_STREAM_OK;
}

static bool add_data(struct event_stream *stream, const char *value, size_t size)
{
    bool fits = (!stream->has_data || append(&stream->data, "\n", 1)) && append(&stream->data, value, size);
    stream->has_data = true;
    return fits;
}

static bool is_field(const char *name, size_t size, const char *field)
{
    return size == strlen(field) && memcmp(name, field, size) == 0;
}

static bool read_field(struct event_stream *stream, const char *name, size_t name_size, const char *value, size_t size)
{
    bool error = is_field(name, name_size, "error");
    if (is_field(name, name_size, "event") || error)
        snprintf(stream->name, sizeof stream->name, "%.*s", error ? 5 : (int)(size < 31 ? size : 31),
                 error ? name : value);
    return is_field(name, name_size, "data") || error ? add_data(stream, value, size) : true;
}

static enum event_stream_result read_line(struct event_stream *stream, event_stream_on_event *on_event, void *context)
{
    const char *line = stream->line.size ? stream->line.bytes : "";
    size_t size = stream->line.size;
    stream->line.size = 0;
    if (!stream->past_the_mark && size >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
        line += 3;
        size -= 3;
    }
    stream->past_the_mark = true;
    if (size == 0)
        return dispatch(stream, on_event, context);
    const char *colon = memchr(line, ':', size);
    const char *value = colon ? colon + 1 : line + size, *end = line + size;
    if (value < end && *value == ' ')
        value++;
    bool fits = read_field(stream, line, colon ? (size_t)(colon - line) : size, value, (size_t)(end - value));
    return fits ? EVENT_STREAM_OK : EVENT_STREAM_TOO_LONG;
}

enum event_stream_result event_stream_feed(struct event_stream *stream, const char *bytes, size_t size,
                                           event_stream_on_event *on_event, void *context)
{
    const char *at = bytes, *end = bytes + size;
    enum event_stream_result result = EVENT_STREAM_OK;
    while (!result && at < end) {
        if (stream->after_return && *at == '\n')
            at++;
        stream->after_return = false;
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        if (!append(&stream->line, at, (size_t)(stop - at)))
            return EVENT_STREAM_TOO_LONG;
        if (stop < end) {
            stream->after_return = *stop == '\r';
            result = read_line(stream, on_event, context);
            stop++;
        }
        at = stop;
    }
    return result;
}

enum event_stream_result event_stream_finish(struct event_stream *stream, event_stream_on_event *on_event,
                                             void *context)
{
    enum event_stream_result result = stream->line.size ? read_line(stream, on_event, context) : EVENT_STREAM_OK;
    return result ? result : dispatch(stream, on_event, context);
}

void event_stream_free(struct event_stream *stream)
{
    free(stream->line.bytes);
    free(stream->data.bytes);
    *stream = (struct event_stream){0};
}
