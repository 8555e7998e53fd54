#include "tests/record/fixture.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "collect/base/name.h"
#include "collect/record/run.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

char *fixture_make_folder(void)
{
    char *folder = xformat("%s/cleanslate-XXXXXX", P_tmpdir);
    assert_non_null(mkdtemp(folder));
    return folder;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

void fixture_remove_folder(char *folder)
{
    assert_int_equal(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(folder);
}

char *fixture_folder;

int fixture_set_up(void **state)
{
    (void)state;
    fixture_folder = fixture_make_folder();
    return 0;
}

int fixture_tear_down(void **state)
{
    (void)state;
    fixture_remove_folder(fixture_folder);
    return 0;
}

void fixture_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

char *fixture_read(const char *path, size_t *size)
{
    struct error error = {0};
    char *bytes = file_read(path, SIZE_MAX, size, &error);
    assert_string_equal(error.message, "");
    return bytes;
}

static json_t *arm_to_json(const char *name)
{
    struct arm arm;
    assert_true(arm_parse(name, &arm));
    json_t *object = json_pack("{s:s, s:i, s:s, s:i}", "name", name, "tensor_parallel", arm.tensor_parallel, "method",
                               method_names[arm.method], "concurrency", arm.concurrency);
    if (arm.budget)
        json_set(object, "budget", json_integer(arm.budget));
    return object;
}

json_t *fixture_header(const char *arm, int block, int try_number)
{
    char *id = xformat("demo/%s/%d-%d", arm, block, try_number);
    json_t *header = json_pack(
        "{s:s, s:o, s:i, s:i, s:i, s:s, s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:{s:s, s:s, s:{s:i}, s:{}}, s:{s:i}}",
        "id", id, "arm", arm_to_json(arm), "block", block, "try", try_number, "position", 3, "started",
        "2026-03-01T12:00:00Z", "boot_id", "0f2c", "workloads", "code", "cell_hash", "c1", "compare_hash", "d1",
        "maths", "cell_hash", "c2", "compare_hash", "d2", "source", "kind", "engine", "dtype", "float32", "drafter",
        "block_size", 16, "sampling", "sampling", "temperature", 0);
    assert_non_null(header);
    free(id);
    return header;
}

static int *copy_ints(const int *values, size_t count)
{
    return memcpy(xcalloc(count, sizeof *values), values, count * sizeof *values);
}

void fixture_sample(struct sample *sample, const char *workload, const char *prompt)
{
    static const int ids[9] = {11, 12, 13, 14, 15, 16, 17, 18, 19}, accepted[3] = {3, 2, 4};
    static const float margins[9] = {0.1F, 2.5F, 1e-7F, 0.0F, 3.25F, 17.0F, 1.0F / 3.0F, 5.0F, 0.75F};
    sample_init(sample);
    sample->workload = name_keep(workload);
    sample->prompt = name_keep(prompt);
    sample->ok = true;
    sample->asked_tokens = 9;
    sample->asked_ignore_eos = true;
    sample->prompt_tokens = 23;
    sample->cached_tokens = 0;
    sample->tokens = 9;
    sample->first_tokens = 1;
    sample->token_ids = copy_ints(ids, 9);
    sample->margins = memcpy(xcalloc(9, sizeof *margins), margins, sizeof margins);
    sample->finish = FINISH_LENGTH;
    sample->start_ns = 1000;
    sample->ttft_ns = 500;
    sample->decode_ns = 4000;
    sample->end_ns = 5600;
    sample->stall_ns = 7;
    sample->rounds = 3;
    sample->accepted = copy_ints(accepted, 3);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        sample->stages_ns[stage] = 100 + stage;
    sample->communicate_ns = 90;
}

/* Other times for other attempts: equal ones would make them copies. */
static int64_t own_start(const json_t *header)
{
    int64_t sum = 0;
    for (const char *at = json_string_value(json_object_get(header, "id")); *at; at++)
        sum = (31 * sum + *at) % 1000003;
    return sum;
}

void fixture_attempt(const char *path, json_t *header, const char *status)
{
    const int64_t own_ns = own_start(header);
    struct error error = {0};
    struct attempt_writer *writer = attempt_writer_open(path, header, &error);
    assert_non_null(writer);
    static const char *const workloads[] = {"code", "maths"};
    for (int i = 0; i < 2; i++) {
        struct sample sample;
        fixture_sample(&sample, workloads[i], "fibonacci");
        sample.start_ns += own_ns + i * FIXTURE_STEP_NS;
        sample.end_ns += own_ns + i * FIXTURE_STEP_NS;
        assert_int_equal(attempt_writer_add(writer, sample_to_json(&sample), &error), 0);
        sample_free(&sample);
    }
    if (status) {
        char hex[FILE_HASH_SIZE];
        const struct audit audit = {true, 0.0, 18};
        const struct attempt_end end = {.status = status, .audit = &audit};
        assert_int_equal(attempt_writer_end(writer, &end, hex, &error), 0);
    } else {
        attempt_writer_abandon(writer);
    }
}

static void replace_ints(int **values, const int *by, int count)
{
    free(*values);
    *values = memcpy(xcalloc((size_t)count, sizeof **values), by, (size_t)count * sizeof **values);
}

void fixture_set_accepted(struct sample *sample, int rounds, const int *accepted)
{
    sample->rounds = rounds;
    replace_ints(&sample->accepted, accepted, rounds);
}

void fixture_build(struct attempt *attempt, const char *arm)
{
    static const int ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    *attempt = (struct attempt){.complete = true, .end_status = xstrdup("complete"), .workload_count = 1};
    observed_init(&attempt->observed);
    arm_parse(arm, &attempt->arm);
    attempt->header = fixture_header(arm, 1, 1);
    attempt->workloads = xcalloc(1, sizeof *attempt->workloads);
    attempt->workloads[0] = (struct attempt_workload){"code", xstrdup("c1"), xstrdup("d1"), ATTEMPT_ABSENT};
    attempt->sample_count = FIXTURE_SAMPLES;
    attempt->samples = xcalloc(FIXTURE_SAMPLES, sizeof *attempt->samples);
    for (int i = 0; i < FIXTURE_SAMPLES; i++) {
        const char prompt[3] = {'p', (char)('0' + i), 0};
        fixture_sample(&attempt->samples[i], "code", prompt);
        const int64_t step = i / attempt->arm.concurrency;
        attempt->samples[i].start_ns += step * FIXTURE_STEP_NS;
        attempt->samples[i].end_ns += step * FIXTURE_STEP_NS;
        if (attempt->arm.method == METHOD_AUTO)
            fixture_set_accepted(&attempt->samples[i], 8, ones);
    }
}

void fixture_set_source(struct attempt *attempt, const char *object, const char *key, json_t *value)
{
    json_t *source = json_object_get(attempt->header, "source");
    json_set(object ? json_object_get(source, object) : source, key, value);
}

void fixture_fail_sample(struct sample *sample, const char *code)
{
    const char *workload = sample->workload, *prompt = sample->prompt;
    sample_free(sample);
    sample->workload = workload;
    sample->prompt = prompt;
    sample->error_code = xstrdup(code);
    sample->error_message = xstrdup("first\nsecond");
    sample->error_http_status = 400;
}

void fixture_set_tokens(struct sample *sample, int tokens, int asked)
{
    sample->tokens = tokens;
    sample->asked_tokens = asked;
    free(sample->token_ids);
    free(sample->margins);
    free(sample->accepted);
    sample->margins = NULL;
    sample->accepted = NULL;
    sample->rounds = ATTEMPT_ABSENT;
    sample->token_ids = xcalloc((size_t)tokens, sizeof *sample->token_ids);
    for (int i = 0; i < tokens; i++)
        sample->token_ids[i] = 1000 + i;
}

static void append_line(struct ledger *ledger, const char *action, json_t *details)
{
    struct error error = {0};
    ledger_append(ledger, LEDGER_COLLECT, action, details, &error);
    assert_string_equal(error.message, "");
}

void fixture_enter(const char *folder)
{
    struct run run;
    struct ledger ledger;
    struct error error = {0};
    assert_int_equal(run_read(folder, NULL, &run, &error), 0);
    assert_int_equal(ledger_open(folder, &ledger, &error), 0);
    for (int i = 0; i < run.attempt_count; i++) {
        const struct attempt *attempt = &run.attempts[i].attempt;
        const struct attempt_place place = {attempt->arm, attempt->block, attempt->try_number};
        const struct history_entry *entry = history_find(&run.history, &place);
        char name[PLACE_NAME_SIZE], *id = xformat("demo/%s", place_name(&place, name));
        if (!entry || !entry->begin)
            append_line(&ledger, "begin", json_pack("{s:s}", "attempt", id));
        if (attempt->end_status && (!entry || !entry->end))
            append_line(
                &ledger, "end",
                json_pack("{s:s, s:s, s:s}", "attempt", id, "status", attempt->end_status, "sha256", attempt->sha256));
        free(id);
    }
    ledger_close(&ledger);
    run_free(&run);
}
