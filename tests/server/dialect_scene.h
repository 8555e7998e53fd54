/* An attempt at a server that a loopback plays, and what became of it. */
#ifndef TESTS_SERVER_DIALECT_SCENE_H
#define TESTS_SERVER_DIALECT_SCENE_H

#include "collect/base/json.h"
#include "tests/server/loopback.h"
#include "tests/server/measured.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define STREAM "text/event-stream"

struct bench {
    struct loopback *loopback;
    struct measured measured;
};

/* `keys` stand beside kind and url. */
static inline void open_bench(struct bench *bench, const struct loopback_page *pages, const char *arm, const char *keys)
{
    *bench = (struct bench){.loopback = loopback_start(pages, 0)};
    char *source = xformat("{'kind': 'server', 'url': '%s', %s}", loopback_url(bench->loopback), keys);
    measured_open(&bench->measured, arm, source, "");
    measured_run(&bench->measured, arm, MEASURED_REQUESTS);
    free(source);
    assert_int_equal(bench->measured.loaded, 0);
    assert_int_equal(bench->measured.ran, 0);
    assert_int_equal(bench->measured.delivered, MEASURED_REQUESTS);
}

static inline void close_bench(struct bench *bench)
{
    measured_close(&bench->measured);
    loopback_stop(bench->loopback);
}

static inline const struct sample *first_sample(const struct bench *bench)
{
    return &bench->measured.attempt.samples[0];
}

static inline void expect_counts(const struct sample *sample, int prompt, int tokens, int first, int rounds)
{
    assert_true(sample->ok);
    assert_int_equal(sample->prompt_tokens, prompt);
    assert_int_equal(sample->tokens, tokens);
    assert_int_equal(sample->first_tokens, first);
    assert_int_equal(sample->rounds, rounds);
    assert_int_equal(sample->finish, FINISH_LENGTH);
    assert_true(sample->ttft_ns > 0 && sample->decode_ns > 0);
}

static inline void expect_ids(const struct sample *sample, int first)
{
    assert_non_null(sample->token_ids);
    for (int i = 0; i < sample->tokens; i++)
        assert_int_equal(sample->token_ids[i], first + i);
}

static inline json_t *read_body(const struct bench *bench, const char *path)
{
    json_t *body = json_loads(loopback_body(bench->loopback, path), 0, NULL);
    assert_non_null(body);
    return body;
}

#endif
