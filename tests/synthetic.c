#include "tests/synthetic.h"

#include "collect/base/json.h"
#include "tests/scale.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16, TTFT_BASE_NS = 20000000, TTFT_TOKEN_NS = 50000, READINGS = 5 };

static const double AUDIT_REGRET_BAD = 5;

static unsigned long noise_seed; /* of the run that is being written */
static int64_t last_end_ns;      /* of the attempt's requests */

/* --- plan --------------------------------------------------------------------------------------------------------- */

char *synthetic_plan(const char *name, int blocks)
{
    static const char *const workloads[] = {"chat", "code", "maths", "summary", "translation", "retrieval"};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        char *prompts = xformat("data/prompts/%s.jsonl", workloads[i]);
        json_append(list, json_pack("{s:s, s:s, s:i, s:i, s:b}", "name", workloads[i], "prompts", prompts, "count", 128,
                                    "max_new_tokens", 33, "ignore_eos", 1));
        free(prompts);
    }
    json_t *source = json_pack("{s:s, s:s, s:s, s:s, s:{s:[s,s,s], s:[s,s]}}", "kind", "server", "dialect", "sglang",
                               "url", "http://127.0.0.1:30000", "model", "a model", "launch", "argv", "server", "--tp",
                               "{tp}", "ddtree", "--budget", "{budget}");
    json_t *plan =
        json_pack("{s:s, s:s, s:s, s:o, s:[i,i,i], s:[s,s,s], s:[i,i], s:[i,i], s:i, s:i, s:o,"
                  " s:{s:[[s,s],[s,s]], s:f}, s:{s:i}}",
                  "schema", PLAN_SCHEMA, "name", name, "title", "A synthetic campaign from a known truth", "source",
                  source, "tensor_parallel", 1, 4, 8, "methods", "auto", "linear", "ddtree", "budgets", 16, 64,
                  "concurrency", 1, 64, "blocks", blocks, "seed", 1, "workloads", list, "headline", "comparisons",
                  "b16", "auto", "b16", "linear", "alpha", 0.05, "rules", "TOO_FEW_REQUESTS", 2);
    char *text = json_dumps(plan, JSON_INDENT(2));
    json_decref(plan);
    return text;
}

/* --- the truth ---------------------------------------------------------------------------------------------------- */

struct synthetic_costs synthetic_costs(int tensor_parallel)
{
    const double k = tensor_parallel;
    return (struct synthetic_costs){.step = 1 + 8 / k + 0.25 * log2(k),
                                    .drafting = 0.5 + 0.5 / k,
                                    .row = 0.012 / k,
                                    .context = 0.05 / k,
                                    .session = 0.01};
}

static double communicate_ms(int tensor_parallel)
{
    return 0.25 * log2(tensor_parallel);
}

static int count_nodes(const struct arm *arm)
{
    return arm->method == METHOD_AUTO ? 1 : arm->method == METHOD_LINEAR ? BLOCK_SIZE : arm->budget + 1;
}

static int most_drafted(const struct arm *arm)
{
    const int depth = BLOCK_SIZE - 1;
    return arm->method == METHOD_AUTO ? 0 : arm->method == METHOD_LINEAR || arm->budget > depth ? depth : arm->budget;
}

double synthetic_tau(const struct plan *plan, const struct arm *arm, int workload)
{
    (void)plan;
    const double linear = 2 + 0.8 * (workload % 5);
    const double tree = linear * (1 + 0.08 * log2(arm->budget / 8.0 + 1));
    const double tau = arm->method == METHOD_AUTO ? 1 : arm->method == METHOD_LINEAR ? linear : tree;
    return fmin(tau, 1 + 0.8 * most_drafted(arm));
}

static int prompt_tokens(int workload)
{
    return 100 * (workload + 1) * (workload + 1);
}

static double round_ms(const struct plan *plan, const struct arm *arm, int workload)
{
    const struct synthetic_costs costs = synthetic_costs(arm->tensor_parallel);
    const double context = prompt_tokens(workload) + plan->workloads[workload].max_new_tokens / 2.0;
    const double c = arm->concurrency;
    return costs.step + (arm->method == METHOD_AUTO ? 0 : costs.drafting) + costs.row * (c * count_nodes(arm) - 1) +
           costs.context * c * context / 1000 + costs.session * (c - 1);
}

double synthetic_round_ns(const struct plan *plan, const struct arm *arm, int workload)
{
    return 1e6 * round_ms(plan, arm, workload);
}

/* FNV-1a. */
static gsl_rng *open_random(const char *what, unsigned long seed)
{
    uint64_t hash = 14695981039346656037ULL ^ seed;
    for (; *what; what++)
        hash = (hash ^ (unsigned char)*what) * 1099511628211ULL;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_taus2);
    gsl_rng_set(random, (unsigned long)(hash >> 32 ^ hash));
    return random;
}

/* What the rounds of a prompt commit; answers how many there are. accepted: max_new_tokens, or NULL. */
static int draw_rounds(const struct plan *plan, const struct arm *arm, int workload, int prompt, int *accepted,
                       int *committed)
{
    char name[ARM_NAME_SIZE], *what = xformat("%s/%d/%d", arm_method_label(arm, name), workload, prompt);
    gsl_rng *random = open_random(what, (unsigned long)arm->tensor_parallel);
    const unsigned most = (unsigned)most_drafted(arm);
    const double tau = synthetic_tau(plan, arm, workload);
    int rounds = 0;
    *committed = 0;
    for (; *committed < plan->workloads[workload].max_new_tokens - 1; rounds++) {
        int count = 1 + (most ? (int)gsl_ran_binomial(random, (tau - 1) / most, most) : 0);
        *committed += count;
        if (accepted)
            accepted[rounds] = count;
    }
    gsl_rng_free(random);
    free(what);
    return rounds;
}

double synthetic_tpot_ns(const struct plan *plan, const struct arm *arm, int workload)
{
    double rounds = 0, tokens = 0;
    for (int prompt = 0; prompt < scale_prompts(plan, workload); prompt++) {
        int committed;
        if (!scale_is_measured(plan, plan->tuning_blocks + 1, prompt))
            continue;
        rounds += draw_rounds(plan, arm, workload, prompt, NULL, &committed);
        tokens += committed;
    }
    return synthetic_round_ns(plan, arm, workload) * rounds / tokens;
}

double synthetic_ttft_ns(const struct arm *arm, int workload)
{
    return (TTFT_BASE_NS + (double)TTFT_TOKEN_NS * prompt_tokens(workload)) / arm->tensor_parallel;
}

bool synthetic_is_invalid(const struct plan *plan, const struct arm *arm)
{
    return arm_equal(arm, &plan->arms[plan->arm_count - 1]);
}

/* --- attempts ----------------------------------------------------------------------------------------------------- */

static int count_tries(const struct plan *plan, const struct attempt_place *place)
{
    return plan->arm_count > 1 && place->block == 2 && arm_equal(&place->arm, &plan->arms[1]) ? 2 : 1;
}

static void set_tokens(const struct plan *plan, int workload, int prompt, struct sample *sample)
{
    sample->ok = true;
    sample->finish = FINISH_LENGTH;
    sample->prompt_tokens = prompt_tokens(workload);
    sample->tokens = plan->workloads[workload].max_new_tokens;
    sample->first_tokens = 1;
    sample->token_ids = xcalloc((size_t)sample->tokens, sizeof *sample->token_ids);
    for (int i = 0; i < sample->tokens; i++)
        sample->token_ids[i] = 1000 * (prompt % 50) + i;
}

static void set_stages(const struct arm *arm, double noise, struct sample *sample)
{
    const bool plain = arm->method == METHOD_AUTO;
    const double drafting = plain ? 0 : 1e6 * sample->rounds * synthetic_costs(arm->tensor_parallel).drafting * noise;
    if (!plain) {
        sample->stages_ns[STAGE_DRAFT] = (int64_t)(0.6 * drafting);
        sample->stages_ns[STAGE_BUILD] = (int64_t)(0.2 * drafting);
        sample->stages_ns[STAGE_COMMIT] = (int64_t)(0.1 * drafting);
    }
    sample->stages_ns[STAGE_VERIFY] = (int64_t)(0.98 * ((double)sample->decode_ns - drafting));
    if (arm->tensor_parallel > 1)
        sample->communicate_ns = (int64_t)(1e6 * sample->rounds * communicate_ms(arm->tensor_parallel) * noise);
}

/* Requests wait for a place: the one that is free first takes the next. Answers when the last ends. */
static int64_t set_starts(int places, struct sample *samples, int count, int64_t zero_ns)
{
    int64_t *free_at = xcalloc((size_t)places, sizeof *free_at);
    for (int i = 0; i < count; i++) {
        int place = 0;
        for (int j = 1; j < places; j++)
            if (free_at[j] < free_at[place])
                place = j;
        samples[i].start_ns = zero_ns + free_at[place];
        free_at[place] += samples[i].ttft_ns + samples[i].decode_ns;
        samples[i].end_ns = zero_ns + free_at[place];
    }
    int64_t last = 0;
    for (int i = 0; i < places; i++)
        last = free_at[i] > last ? free_at[i] : last;
    free(free_at);
    return zero_ns + last;
}

static double draw_noise(const char *what, int number, double deviation)
{
    char *text = xformat("%s/%d", what, number);
    gsl_rng *random = open_random(text, noise_seed);
    const double noise = exp(gsl_ran_gaussian(random, deviation));
    gsl_rng_free(random);
    free(text);
    return noise;
}

static void fill(const struct plan *plan, const struct attempt_place *place, int workload, struct sample *samples)
{
    char name[PLACE_NAME_SIZE];
    const double shared = draw_noise("block", place->block, SYNTHETIC_BLOCK_NOISE) *
                          draw_noise(place_name(place, name), workload, SYNTHETIC_ATTEMPT_NOISE);
    gsl_rng *random = open_random(name, noise_seed + 7 + (unsigned long)workload);
    const int count = scale_prompts(plan, workload);
    for (int i = 0; i < count; i++) {
        struct sample *sample = &samples[i];
        const double noise = shared * exp(gsl_ran_gaussian(random, SYNTHETIC_REQUEST_NOISE));
        int committed;
        set_tokens(plan, workload, i, sample);
        sample->accepted = xcalloc((size_t)sample->tokens, sizeof *sample->accepted);
        sample->rounds = draw_rounds(plan, &place->arm, workload, i, sample->accepted, &committed);
        sample->ttft_ns = (int64_t)(synthetic_ttft_ns(&place->arm, workload) * noise);
        sample->decode_ns = (int64_t)(sample->rounds * synthetic_round_ns(plan, &place->arm, workload) * noise);
        sample->stall_ns = 0;
        set_stages(&place->arm, noise, sample);
    }
    last_end_ns = set_starts(place->arm.concurrency, samples, count, workload ? last_end_ns : 1000000000);
    gsl_rng_free(random);
}

static double finish(const struct plan *plan, const struct attempt_place *place, FILE *out)
{
    char name[PLACE_NAME_SIZE];
    gsl_rng *random = open_random(place_name(place, name), noise_seed + 1);
    for (int reading = 0; reading < READINGS; reading++)
        for (int device = 0; device < place->arm.tensor_parallel; device++)
            fprintf(out,
                    "{\"type\":\"telemetry\",\"device\":%d,\"time_ns\":%.0f,\"clock_mhz\":%.0f,"
                    "\"temperature_c\":%.1f,\"power_w\":%.1f,\"memory_bytes\":%.0f}\n",
                    device, ceil((double)last_end_ns * reading / (READINGS - 1)), 1980 + gsl_ran_gaussian(random, 5),
                    55 + place->block + gsl_ran_gaussian(random, 1), SYNTHETIC_POWER_W + gsl_ran_gaussian(random, 10),
                    60e9 + 1e6 * place->arm.budget);
    gsl_rng_free(random);
    return synthetic_is_invalid(plan, &place->arm) ? AUDIT_REGRET_BAD : 0;
}

int synthetic_make(const char *run, const char *plan, unsigned long seed)
{
    const struct scale_source source = {count_tries, fill, finish};
    noise_seed = seed;
    return scale_write(run, plan, &source);
}
