/* one attempt of a run, all others well: from the folder to the summary, and what render makes of that */
#include "analyze/summary.h"
#include "collect/base/file.h"
#include "tests/analyze/campaign.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char fuzz_corpus[] = "tests/fuzz/corpus/run";
const int fuzz_mutations = 600;

static struct campaign campaign;
static char *attempt_path;

static void close_campaign(void)
{
    campaign_close(&campaign);
    free(attempt_path);
}

static void open_campaign(void)
{
    static const char *const arms[] = {"tp1-auto", "tp1-linear", "tp1-b16"};
    campaign_open(&campaign, 3, "{}");
    atexit(close_campaign);
    for (int arm = 0; arm < 3; arm++)
        for (int block = 1; block <= 3; block++)
            campaign_add(&campaign, &(struct campaign_attempt){.arm = arms[arm],
                                                               .block = block,
                                                               .code_tpot_ns = 1e6 / (1 + arm) + 1e3 * block,
                                                               .maths_tpot_ns = 2e6 / (1 + arm)});
    attempt_path = file_join(campaign.folder, "attempts/tp1-b16/2-1.jsonl");
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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct run run;
    struct error error = {0};
    if (!attempt_path)
        open_campaign();
    FILE *file = fopen(attempt_path, "w");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        die("%s: cannot write", attempt_path);
    fuzz_require(run_read(campaign.folder, NULL, &run, &error) == 0, "a damaged attempt is no damaged run");
    fuzz_require(run.attempt_count == 9, "every attempt is accounted for");
    json_t *summary = summary_build(&run, &campaign.plan, &error);
    fuzz_check_answer(summary, &error);
    fuzz_require(summary, "every run has a summary");
    render(summary);
    json_decref(summary);
    run_free(&run);
    return 0;
}
