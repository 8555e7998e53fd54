#include "collect/server/event_stream.h"

#include "collect/base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Events as text: "name=data|". */
struct log {
    char text[4096];
    int stop_after;
};

static int on_event(void *context, const char *name, const char *data, size_t size)
{
    struct log *log = context;
    assert_int_equal(strlen(data), size);
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof log->text - used, "%s=%s|", name, data);
    return log->stop_after && --log->stop_after == 0;
}

static void read_in_pieces(const char *text, size_t piece, struct log *log)
{
    struct event_stream stream = {0};
    size_t size = strlen(text);
    for (size_t at = 0; at < size; at += piece)
        assert_int_equal(event_stream_feed(&stream, text + at, size - at < piece ? size - at : piece, on_event, log),
                         0);
    assert_int_equal(event_stream_finish(&stream, on_event, log), 0);
    event_stream_free(&stream);
}

/* The examples of the standard's section on interpreting a stream, and what servers do beyond. */
static void events_are_the_same_however_bytes_are_cut(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"data: YHOO\ndata: +2\ndata: 10\n\n", "message=YHOO\n+2\n10|"},
        {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         "message=first event|message=second event|message= third event|"},
        {"data\n\ndata\ndata\n\n", "message=|message=\n|"},
        {"data:test\n\ndata: test\n\n", "message=test|message=test|"},
        {"data: a\r\n\r\ndata: b\r\rdata: c\n\n", "message=a|message=b|message=c|"},
        {"\xEF\xBB\xBF"
         "data: a\n\n: keep-alive\n\n:\n\nretry: 10\n\ndata: b\n\n",
         "message=a|message=b|"},
        {"data: {\"text\": \"\xF0\x9F\x8C\xB3 \xC3\xA9\"}\n\n", "message={\"text\": \"\xF0\x9F\x8C\xB3 \xC3\xA9\"}|"},
        {"event: error\ndata: {\"a\": 1}\n\ndata: x\n\n", "error={\"a\": 1}|message=x|"},
        {"error: {\"code\": 500}\n\n", "error={\"code\": 500}|"},
        {"data: a\n\ndata: [DONE]", "message=a|message=[DONE]|"},
        {"event: nothing\n\n\n\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= strlen(cases[i][0]); piece++) {
            struct log log = {0};
            read_in_pieces(cases[i][0], piece, &log);
            assert_string_equal(log.text, cases[i][1]);
        }
}

static void the_callee_may_end_the_stream(void **state)
{
    (void)state;
    struct event_stream stream = {0};
    struct log log = {.stop_after = 1};
    const char *text = "data: a\n\ndata: b\n\n";
    assert_int_equal(event_stream_feed(&stream, text, strlen(text), on_event, &log), EVENT_STREAM_ENDED);
    assert_string_equal(log.text, "message=a|");
    event_stream_free(&stream);
}

/* A line without an end, and an event of lines without a blank one: memory stays bounded. */
static void what_never_ends_is_refused(void **state)
{
    (void)state;
    enum { PIECE = 1 << 20 };
    char *piece = xmalloc(PIECE);
    for (int lines = 0; lines < 2; lines++) {
        struct event_stream stream = {0};
        struct log log = {0};
        memset(piece, 'x', PIECE);
        if (lines) {
            memcpy(piece, "data:", 5);
            piece[PIECE - 1] = '\n';
        }
        int result = EVENT_STREAM_OK, count = 0;
        while (!result && count < 100) {
            result = event_stream_feed(&stream, piece, PIECE, on_event, &log);
            count++;
        }
        assert_int_equal(result, EVENT_STREAM_TOO_LONG);
        assert_true(count <= 17);
        assert_true(stream.line.capacity + stream.data.capacity <= 5 * EVENT_STREAM_SIZE_MAXIMUM);
        event_stream_free(&stream);
    }
    free(piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_however_bytes_are_cut),
        cmocka_unit_test(the_callee_may_end_the_stream),
        cmocka_unit_test(what_never_ends_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
