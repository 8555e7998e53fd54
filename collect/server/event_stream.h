/* Server-sent events, read as their bytes come in, cut wherever the network cuts them (WHATWG HTML, "Server-sent
 * events"): lines end with LF, CR LF or CR; a line that begins with a colon is a comment; the `data` lines of an event
 * are joined by newlines; a blank line ends it. Bytes are handed on as they are: whether they are UTF-8 or JSON is the
 * callee's to see, who gets events whole. */
#ifndef COLLECT_SERVER_EVENT_STREAM_H
#define COLLECT_SERVER_EVENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#define EVENT_STREAM_SIZE_MAXIMUM ((size_t)16 << 20) /* of an event, or of a line: what is longer is no answer */

/* An event's name ("message" unless it says otherwise) and data, a NUL behind it. Older servers of llama.cpp send
 * errors as lines "error: {...}": they come as an event "error". Answers non-zero to end the stream. */
typedef int event_stream_on_event(void *context, const char *name, const char *data, size_t size);

struct event_buffer {
    char *bytes;
    size_t size, capacity;
};

/* Zero-initialised: nothing was read. */
struct event_stream {
    struct event_buffer line, data;
    char name[32];
    bool has_data;
    bool after_return;  /* the last byte was a CR: an LF that follows belongs to it */
    bool past_the_mark; /* the first line was seen, which may begin with a byte order mark */
};

enum event_stream_result { EVENT_STREAM_OK, EVENT_STREAM_TOO_LONG, EVENT_STREAM_ENDED /* by on_event */ };

enum event_stream_result event_stream_feed(struct event_stream *stream, const char *bytes, size_t size,
                                           event_stream_on_event *on_event, void *context);

/* The connection has ended: hands on an event that lacks its blank line, or its newline. */
enum event_stream_result event_stream_finish(struct event_stream *stream, event_stream_on_event *on_event,
                                             void *context);

void event_stream_free(struct event_stream *stream);

#endif
