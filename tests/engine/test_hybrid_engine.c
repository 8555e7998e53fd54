/* The tiny hybrid through the engine: arms and their audits, the memory plan, and what does not fit. */
#include "collect/base/file.h"
#include "collect/engine/engine.h"
#include "tests/engine/hybrid_files.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REQUESTS = 3, TOKENS = 24, PROMPT = 30 };

static const struct sampling greedy = {.top_p = 1};
static char *target_folder, *drafter_folder;
static struct engine *engine;

static void copy(const char *from_folder, const char *name)
{
    size_t size;
    char *from = file_join(from_folder, name), *to = file_join(target_folder, name), *bytes = fixture_read(from, &size);
    fixture_write(to, bytes, size);
    free(bytes);
    free(to);
    free(from);
}

static int open_engine(void **state)
{
    struct error error = {0};
    (void)state;
    target_folder = fixture_make_folder();
    drafter_folder = fixture_make_folder();
    copy(HYBRID_FOLDER, "config.json");
    copy(HYBRID_FOLDER, "model.safetensors");
    copy("data/models/demo/target", "tokenizer.json");
    hybrid_write_drafter(drafter_folder);
    engine = engine_open(target_folder, drafter_folder, "float32", "cpu", &error);
    return engine ? 0 : -1;
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(engine);
    fixture_remove_folder(target_folder);
    fixture_remove_folder(drafter_folder);
    return 0;
}

static json_t *load(const char *name)
{
    struct arm arm;
    struct error error = {0};
    json_t *memory = NULL;
    assert_true(arm_parse(name, &arm));
    assert_int_equal(engine_load(engine, &arm, &greedy, PROMPT + TOKENS, &memory, &error), 0);
    return memory;
}

/* Every output, rescored by extension alone, is what it should be; and all arms' are the same. */
static void audits_find_nothing(void **state)
{
    (void)state;
    static const char *const arms[] = {"tp1-auto",    "tp1-linear", "tp1-b16",       "tp2-b64",
                                       "tp4-auto-c3", "tp4-b8-c2",  "tp2-linear-c3", "tp1-b300-c3"};
    int prompt[PROMPT], first[REQUESTS][TOKENS];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 37 + 5) % 512;
    for (size_t a = 0; a < sizeof arms / sizeof *arms; a++) {
        struct sample samples[REQUESTS];
        struct engine_request requests[REQUESTS];
        json_decref(load(arms[a]));
        for (int i = 0; i < REQUESTS; i++) {
            sample_init(&samples[i]);
            samples[i].asked_tokens = TOKENS - 5 * i;
            samples[i].asked_ignore_eos = true;
            requests[i] = (struct engine_request){prompt, PROMPT - 7 * i, (uint64_t)i, 0, &samples[i]};
        }
        engine_run(engine, requests, REQUESTS);
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(engine_audit(engine, &requests[i]) < 1e-3);
            if (a == 0)
                memcpy(first[i], samples[i].token_ids, (size_t)samples[i].tokens * sizeof(int));
            assert_memory_equal(first[i], samples[i].token_ids, (size_t)(TOKENS - 5 * i) * sizeof(int));
            sample_free(&samples[i]);
        }
    }
}

/* Per session 6 layers of 12 heads of 32 x 32 floats and 3 rows of 640 channels; per node one such row, 24 floats. The
 * target's 2 and the drafter's 2 layers that attend have heads of 64 and 32. */
static void the_memory_plan_has_states(void **state)
{
    (void)state;
    json_t *memory = load("tp2-b16-c3");
    int positions = PROMPT + TOKENS + 17;
    assert_int_equal(json_integer_value(json_object_get(memory, "state_bytes")), 3 * 6 * 4 * (12 * 32 * 32 + 3 * 640));
    assert_int_equal(json_integer_value(json_object_get(memory, "node_bytes")), 6 * 4 * (640 + 24));
    assert_int_equal(json_integer_value(json_object_get(memory, "cache_bytes")),
                     3 * positions * 2 * 2 * 4 * (2 * 64 + 2 * 32));
    json_decref(memory);
}

static void too_many_sessions_are_refused_with_numbers(void **state)
{
    (void)state;
    struct arm arm = {.tensor_parallel = 1, .method = METHOD_AUTO, .concurrency = 100000000};
    struct error error = {0};
    json_t *memory = NULL;
    assert_int_equal(engine_load(engine, &arm, &greedy, 100, &memory, &error), -1);
    assert_non_null(strstr(error.message, " MiB of recurrent state and nodes) do not fit the "));
    const char *at = strstr(error.message, "; at most ");
    assert_non_null(at);
    long fit = strtol(at + strlen("; at most "), NULL, 10);
    assert_in_range(fit, 100, 99999999);
}

/* Its folder has no template, so that its layers decide. */
static void chats_are_put_as_hybrids_have_them(void **state)
{
    (void)state;
    struct chat_style style = {0};
    struct error error = {0};
    assert_int_equal(engine_chat_style(engine, &style, &error), 0);
    assert_true(style.opens_thoughts && style.trims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(audits_find_nothing),
        cmocka_unit_test(the_memory_plan_has_states),
        cmocka_unit_test(too_many_sessions_are_refused_with_numbers),
        cmocka_unit_test(chats_are_put_as_hybrids_have_them),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
