/* Rules of scope pair that two attempts alone decide. */
#include "collect/record/rule_parts.h"

#include "collect/record/divergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_divergence(const struct divergence *divergence, const struct rule_regret_limits *limits,
                           const char *workload, struct verdicts *verdicts)
{
    bool wrong = divergence->regret > limits->invalid;
    bool suspect = divergence->regret > limits->suspect || divergence->unjudged;
    enum rule_level level = wrong ? RULE_INVALID : suspect ? RULE_SUSPECT : RULE_NOTE;
    double limit = isnan(divergence->regret) ? NAN : wrong ? limits->invalid : limits->suspect;
    char regret[64] = "without a margin";
    if (!isnan(divergence->regret))
        snprintf(regret, sizeof regret, "at least %.3g below the best", divergence->regret);
    verdicts_add(verdicts, RULE_OUTPUT_DIVERGES, level, workload, divergence->regret, limit,
                 "%d of %d outputs (%.0f%%) differ from auto's; worst: %s, token %d, %s", divergence->diverged,
                 divergence->compared, 100.0 * divergence->diverged / divergence->compared, divergence->worst->prompt,
                 divergence->position + 1, regret);
}

/* The plan's temperature stands in the header; a source that has its own says so itself. */
static bool is_greedy(const struct attempt *attempt)
{
    const json_t *sampling = json_object_get(attempt->header, "sampling");
    return !(json_number_value(json_object_get(sampling, "temperature")) > 0) &&
           !(json_number_value(rule_source_value(attempt, "sampling", "temperature")) > 0);
}

/* Requests of the same prompts can be held against each other, whenever they were made. Where there are none there is
 * no pair, and analyze says so. */
void rule_unpaired_import(const struct attempt *attempt, const struct attempt *baseline, double threshold,
                          struct verdicts *verdicts)
{
    (void)threshold;
    if (attempt_is_imported(attempt) || attempt_is_imported(baseline))
        verdicts_add(verdicts, RULE_UNPAIRED_IMPORT, RULE_SUSPECT, NULL, NAN, NAN,
                     "unpaired, imported: nothing shows that %s and %s were measured in one session", attempt->id,
                     baseline->id);
}

static const char *say_of_server(const struct attempt *attempt, const char *key)
{
    return json_string_value(json_object_get(json_object_get(attempt->header, "server"), key));
}

/* Methods may need builds of their own, so the number stays. */
void rule_mixed_servers(const struct attempt *attempt, const struct attempt *baseline, double threshold,
                        struct verdicts *verdicts)
{
    (void)threshold;
    static const char *const keys[] = {"version", "model"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *own = say_of_server(attempt, keys[i]), *other = say_of_server(baseline, keys[i]);
        if (own && other && strcmp(own, other) != 0) {
            verdicts_add(verdicts, RULE_MIXED_SERVERS, RULE_SUSPECT, NULL, NAN, NAN,
                         "the server's %s is \"%.80s\" in %s, \"%.80s\" in %s", keys[i], own, attempt->id, other,
                         baseline->id);
            return;
        }
    }
}

void rule_output_diverges(const struct attempt *attempt, const struct attempt *baseline, double threshold,
                          struct verdicts *verdicts)
{
    (void)threshold;
    if (baseline->arm.method != METHOD_AUTO || !is_greedy(attempt) || !is_greedy(baseline))
        return;
    const struct rule_regret_limits limits = rule_regret_limits(attempt);
    for (int i = 0; i < attempt->workload_count; i++) {
        struct divergence divergence;
        divergence_measure(attempt, baseline, attempt->workloads[i].name, &divergence);
        if (divergence.diverged)
            add_divergence(&divergence, &limits, attempt->workloads[i].name, verdicts);
    }
}
