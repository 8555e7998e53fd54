#include "collect/base/json.h"
#include "collect/record/rule.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* What servers say of themselves; NULL: nothing. */
struct served {
    const char *version, *model;
};

static void serve(struct attempt *attempt, const char *arm, const struct served *by)
{
    fixture_build(attempt, arm);
    json_t *server = json_object();
    if (by->version)
        json_set(server, "version", json_string(by->version));
    if (by->model)
        json_set(server, "model", json_string(by->model));
    json_set(attempt->header, "server", server);
}

static void test_arms_on_other_servers_than_their_baseline_are_suspect(void **state)
{
    (void)state;
    static const struct {
        struct served arm, baseline;
        const char *says; /* NULL: nothing */
    } cases[] = {
        {{"0.5.5", "m"}, {"0.5.5", "m"}, NULL},
        {{"0.5.5", NULL}, {"0.5.5", "m"}, NULL},
        {{NULL, "m"}, {"0.5.5", "m"}, NULL},
        {{NULL, NULL}, {NULL, NULL}, NULL},
        {{"0.5.6", "m"}, {"0.5.5", "m"}, "the server's version is \"0.5.6\" in "},
        {{"0.5.5", "m-fp8"}, {"0.5.5", "m"}, "the server's model is \"m-fp8\" in "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attempt attempt, baseline;
        struct verdicts verdicts = {0};
        serve(&attempt, "tp1-linear", &cases[i].arm);
        serve(&baseline, "tp1-auto", &cases[i].baseline);
        rule_judge_pair(&attempt, &baseline, NULL, &verdicts);
        assert_int_equal(verdicts.count, cases[i].says != NULL);
        if (cases[i].says) {
            assert_int_equal(verdicts.items[0].rule, RULE_MIXED_SERVERS);
            assert_int_equal(verdicts.items[0].level, RULE_SUSPECT);
            assert_non_null(strstr(verdicts.items[0].detail, cases[i].says));
        }
        verdicts_free(&verdicts);
        attempt_free(&attempt);
        attempt_free(&baseline);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arms_on_other_servers_than_their_baseline_are_suspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
