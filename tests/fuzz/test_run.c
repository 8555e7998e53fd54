/* one attempt of a run, all others well: from the folder to the summary, and what render makes of that. A ledger that
 * knew the attempt before it was changed lets nothing of it count; one that was written afterwards leaves it to the
 * rules. */
#include "analyze/summary.h"
#include "collect/base/file.h"
#include "tests/analyze/campaign.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/render.h"
#include "tests/record/fixture.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/run";
const int fuzz_mutations = 400;

static struct campaign campaign;
static char *attempt_path, *ledger_path;
static char *ledger_without, *ledger_with; /* the attempt */
static char former_hash[FILE_HASH_SIZE];   /* of the attempt, as the ledger has it */

static void close_campaign(void)
{
    campaign_close(&campaign);
    free(attempt_path);
    free(ledger_path);
    free(ledger_without);
    free(ledger_with);
}

static void add(const char *arm, int block, double code_tpot_ns, double maths_tpot_ns)
{
    campaign_add(&campaign,
                 &(struct campaign_attempt){
                     .arm = arm, .block = block, .code_tpot_ns = code_tpot_ns, .maths_tpot_ns = maths_tpot_ns});
}

static void open_campaign(void)
{
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b16"};
    struct error error = {0};
    campaign_open(&campaign, 3, "{}");
    atexit(close_campaign);
    for (int i = 0; i < 9; i++)
        if (i != 7)
            add(arms[i / 3], 1 + i % 3, 1e6 / (1 + i / 3) + 1e3 * i, 2e6 / (1 + i / 3));
    fixture_enter(campaign.folder);
    ledger_path = file_join(campaign.folder, "ledger.jsonl");
    ledger_without = fixture_read(ledger_path, NULL);
    add(arms[2], 2, 5e5, 7e5);
    fixture_enter(campaign.folder);
    ledger_with = fixture_read(ledger_path, NULL);
    attempt_path = file_join(campaign.folder, "attempts/tp1-b16/2-1.jsonl");
    if (file_hash(attempt_path, former_hash, &error))
        die("%s", error.message);
}

/* Whatever analyze writes, render reads. */
static void render(const json_t *summary)
{
    struct error error = {0};
    char *text = json_dumps(summary, JSON_COMPACT);
    fuzz_require(text, "a summary can be written");
    bool read = fuzz_render(fuzz_write("summary.json", text, strlen(text)), &error);
    fuzz_require(read, read ? "" : error.message);
    free(text);
}

/* The run with its nine attempts, and what becomes of it. */
static void check_run(bool tampered)
{
    struct run run;
    struct error error = {0};
    fuzz_require(run_read(campaign.folder, NULL, &run, &error) == 0, "a damaged attempt is no damaged run");
    fuzz_require(run.attempt_count == 9, "every attempt is accounted for");
    const struct attempt_place place = {{1, METHOD_DDTREE, 16, 1}, 2, 1};
    const struct judged *judged = run_find(&run, &place);
    fuzz_require(judged && (!tampered || run_is_all_void(judged)), "nothing counts of what was changed");
    json_t *summary = summary_build(&run, &campaign.plan, &error);
    fuzz_check_answer(summary, &error);
    fuzz_require(summary, "every run has a summary");
    render(summary);
    json_decref(summary);
    run_free(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char hash[FILE_HASH_SIZE];
    if (!attempt_path)
        open_campaign();
    fixture_write(attempt_path, bytes, size);
    file_hash_bytes(bytes, size, hash);
    fixture_write(ledger_path, ledger_with, strlen(ledger_with));
    check_run(strcmp(hash, former_hash) != 0);
    fixture_write(ledger_path, ledger_without, strlen(ledger_without));
    fixture_enter(campaign.folder);
    check_run(false);
    return 0;
}
