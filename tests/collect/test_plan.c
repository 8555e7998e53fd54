#include "collect/plan.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char good[] =
    "{'schema': 'cleanslate.plan/1', 'name': 'good', 'source': {'kind': 'engine', 'target': 't', 'drafter': 'd'},"
    " 'methods': ['auto', 'linear', 'ddtree'], 'budgets': [8, 16], 'blocks': 4,"
    " 'workloads': [{'name': 'code', 'prompts': 'p.jsonl', 'max_new_tokens': 32}]}";

/* The good plan with the values of `changes` in place of its own; JSON with ' for ". */
static json_t *make_plan(const char *changes)
{
    char *text = xformat("[%s, %s]", good, changes);
    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    json_t *both = json_loads(text, 0, NULL);
    assert_non_null(both);
    json_t *plan = json_incref(json_array_get(both, 0));
    assert_int_equal(json_object_update(plan, json_array_get(both, 1)), 0);
    json_decref(both);
    free(text);
    return plan;
}

static int read_changed(const char *changes, struct plan *plan, char **path, struct error *error)
{
    *path = xformat("%s/cleanslate-XXXXXX", P_tmpdir);
    int descriptor = mkstemp(*path);
    assert_true(descriptor >= 0);
    json_t *json = make_plan(changes);
    assert_int_equal(json_dumpfd(json, descriptor, 0), 0);
    json_decref(json);
    close(descriptor);
    int result = plan_read(*path, plan, error);
    unlink(*path);
    return result;
}

static void read_good(const char *changes, struct plan *plan)
{
    char *path;
    struct error error = {0};
    if (read_changed(changes, plan, &path, &error))
        fail_msg("%s", error.message);
    free(path);
}

/* A plan of a server: the good one's arms, and this beside its dialect. */
static void read_server(const char *keys, struct plan *plan)
{
    char *changes = xformat("{'source': {'kind': 'server', 'dialect': 'sglang', %s}}", keys);
    read_good(changes, plan);
    free(changes);
}

static void reads_servers(void **state)
{
    (void)state;
    struct plan plan;
    read_server("'url': 'http://h:1'", &plan);
    assert_int_equal(plan.source, PLAN_SOURCE_SERVER);
    assert_string_equal(plan.server.url[METHOD_DDTREE], "http://h:1");
    assert_null(plan.server.launch_as_written);
    assert_int_equal(plan.silence_limit_s, 60);
    assert_int_equal(plan.start_limit_s, 900);
    plan_free(&plan);
    read_server("'route': 'chat', 'model': 'm', 'url': {'auto': 'http://a', 'linear': 'https://b', 'ddtree': "
                "'http://c:{budget}'}, 'launch': {'start': ['up', '{arm}'], 'stop': ['down'], 'ddtree': ['{budget}']}",
                &plan);
    assert_string_equal(plan.server.url[METHOD_LINEAR], "https://b");
    assert_int_equal(plan.server.launch.stop_s, 30);
    plan_free(&plan);
}

/* Those that are shipped, whose comments are for people. */
static void reads_every_plan_that_is_shipped(void **state)
{
    (void)state;
    static const char *const names[] = {"demo", "tiny", "sglang", "vllm", "llama"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = xformat("data/plans/%s.json", names[i]);
        struct plan plan;
        struct error error = {0};
        if (plan_read(path, &plan, &error))
            fail_msg("%s", error.message);
        plan_free(&plan);
        free(path);
    }
}

static void refuses_servers_that_cannot_be(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"'dialect': 'tgi', 'url': 'http://h'", "\"dialect\" is \"tgi\"; it must be one of \"sglang\", \"vllm\""},
        {"'dialect': 'vllm', 'route': 'native', 'url': 'http://h'", "\"route\" is \"native\", which dialect \"vllm\""},
        {"'dialect': 'vllm'", "\"url\" is missing"},
        {"'dialect': 'vllm', 'url': 'h:80'", "it must begin with http:// or https://"},
        {"'dialect': 'vllm', 'url': 'http://h:99999'",
         "\"url\" is \"http://h:99999\", which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://h:80x/v1'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://h h:80'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://[::1:80'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://h:{port}'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://h:0'", "port 0 of \"url\" is a free one for a server that is launched"},
        {"'dialect': 'vllm', 'url': 'http://h:00/'", "port 0 of \"url\" is a free one for a server that is launched"},
        {"'dialect': 'vllm', 'url': 'http://h:0{tp}000000'", "which is no address of a server"},
        {"'dialect': 'vllm', 'url': 'http://me:secret@h'", "holds a user or password"},
        {"'dialect': 'vllm', 'url': {'auto': 'http://h', 'linear': 'http://h'}", "has none for method \"ddtree\""},
        {"'dialect': 'vllm', 'url': 'http://h', 'launch': {}", "give either \"argv\""},
        {"'dialect': 'vllm', 'url': 'http://h', 'launch': {'argv': ['a'], 'start': ['b']}", "give either \"argv\""},
        {"'dialect': 'vllm', 'url': 'http://h', 'launch': {'argv': ['a', 1]}", "\"argv\"[1] must be a string"},
        {"'dialect': 'vllm', 'url': 'http://h', 'launch': {'argv': ['a', '{budget}']}", "move it to \"ddtree\""},
        {"'dialect': 'vllm', 'url': 'http://h', 'launch': {'argv': ['a'], 'env': {'HF_TOKEN': 'x'}}",
         "\"HF_TOKEN\" looks like a secret"},
        {"'dialect': 'vllm', 'url': 'http://h', 'api_key': 'sk-1'", "unknown key \"api_key\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        struct error error = {0};
        char *path, *changes = xformat("{'source': {'kind': 'server', %s}}", cases[i][0]);
        assert_int_equal(read_changed(changes, &plan, &path, &error), -1);
        if (!strstr(error.message, cases[i][1]))
            fail_msg("\"%s\" is not in \"%s\"", cases[i][1], error.message);
        free(changes);
        free(path);
    }
}

/* A plan that a run folder keeps is read whatever it holds: what was measured under it can still be reported. */
static void secrets_in_arguments_are_found_in_plans_that_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *launch, *option; /* "": none */
    } cases[] = {
        {"'argv': ['a', '--api-key', 'sk-1']", "\"--api-key\""},
        {"'argv': ['a'], 'linear': ['--admin-api-key=sk-1']", "\"--admin-api-key\""},
        {"'start': ['a', '--hf-token', 'hf_1', '--port', '1']", "\"--hf-token\""},
        {"'argv': ['a'], 'stop': ['b', '--api-key=sk-1']", "\"--api-key\""},
        {"'argv': ['a', '--api-key-file', '/run/key', '--hf-token-path=/run/token']", ""},
        {"'argv': ['a', '--hf-token', '--port', '{port}'], 'linear': ['--hf-token']", ""},
        {"'argv': ['sh', '-c', 'exec vllm serve --api-key $KEY']", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        struct error error = {0};
        char *changes = xformat("{'source': {'kind': 'server', 'dialect': 'vllm', 'url': 'http://h', 'launch': {%s}}}",
                                cases[i].launch);
        read_good(changes, &plan);
        assert_int_equal(plan_check_secrets(&plan, &error), cases[i].option[0] ? -1 : 0);
        assert_non_null(strstr(error.message, cases[i].option));
        plan_free(&plan);
        free(changes);
    }
}

static void reads_the_demo_plan(void **state)
{
    (void)state;
    static const char *const names[] = {"tp1-auto", "tp1-linear", "tp1-b8",  "tp1-b12",
                                        "tp1-b15",  "tp1-b16",    "tp1-b32", "tp1-b64"};
    struct plan plan;
    struct error error = {0};
    if (plan_read("data/plans/demo.json", &plan, &error))
        fail_msg("%s", error.message);
    assert_string_equal(plan.name, "demo");
    assert_string_equal(plan.engine.target, "data/models/demo/target");
    assert_string_equal(plan.engine.drafter, "data/models/demo/drafter");
    assert_string_equal(plan.engine.dtype, "bfloat16");
    assert_int_equal(plan.blocks, 6);
    assert_int_equal(plan.arm_count, 8);
    for (int i = 0; i < 8; i++) {
        char name[ARM_NAME_SIZE];
        assert_string_equal(arm_name(&plan.arms[i], name), names[i]);
    }
    assert_int_equal(plan.workload_count, 3);
    assert_int_equal(plan_find_workload(&plan, "maths")->max_new_tokens, 128);
    assert_true(plan_find_workload(&plan, "maths")->ignore_eos);
    assert_null(plan_find_workload(&plan, "math"));
    assert_int_equal(plan.comparison_count, 2);
    assert_string_equal(plan.comparisons[1].method, "b16");
    assert_string_equal(plan.comparisons[1].baseline, "linear");
    assert_float_equal(plan.alpha, 0.05, 0);
    assert_int_equal(plan.request_limit_s, 120);
    plan_free(&plan);
}

/* The level of the intervals, of which a plan without comparisons has as many. */
static void sets_alpha_alone(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{'headline': {'alpha': 0.1}}", &plan);
    assert_int_equal(plan.comparison_count, 0);
    assert_float_equal(plan.alpha, 0.1, 0);
    plan_free(&plan);
}

static void fills_in_what_is_left_out(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{}", &plan);
    assert_string_equal(plan.title, "good");
    assert_string_equal(plan.engine.device, "auto");
    assert_string_equal(plan.engine.dtype, "bfloat16");
    assert_int_equal(plan.seed, 1);
    assert_int_equal(plan.warmup, 1);
    assert_int_equal(plan.min_blocks, 3);
    assert_int_equal(plan.comparison_count, 0);
    assert_int_equal(plan.workloads[0].count, 0);
    assert_false(plan.workloads[0].ignore_eos);
    assert_float_equal(plan.sampling.temperature, 0, 0);
    for (int i = 0; i < RULE_COUNT; i++)
        assert_true(isnan(plan.rules.threshold[i]));
    plan_free(&plan);
}

static void takes_all_dimensions_of_arms_and_sampling(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{'tensor_parallel': [1, 4], 'concurrency': [1, 8], 'sampling': {'temperature': 0.7, 'top_k': 20, "
              "'top_p': 0.9}}",
              &plan);
    char name[ARM_NAME_SIZE];
    assert_int_equal(plan.arm_count, 16);
    assert_string_equal(arm_name(&plan.arms[0], name), "tp1-auto");
    assert_string_equal(arm_name(&plan.arms[7], name), "tp1-b16-c8");
    assert_string_equal(arm_name(&plan.arms[15], name), "tp4-b16-c8");
    assert_float_equal(plan.sampling.temperature, 0.7, 0);
    assert_int_equal(plan.sampling.top_k, 20);
    assert_float_equal(plan.sampling.top_p, 0.9, 0);
    plan_free(&plan);
}

static void takes_what_is_put_around_prompts(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'context': null}, {'name': 'b', "
              "'prompts': 'p', 'max_new_tokens': 9, 'template': 'swe-bench', 'chat': 'no-thinking', 'context': "
              "{'tokens': 4096, 'corpus': 'c.txt'}}]}",
              &plan);
    assert_int_equal(plan.workloads[0].template, PROMPT_TEMPLATE_PLAIN);
    assert_int_equal(plan.workloads[0].chat, PROMPT_CHAT_NONE);
    assert_int_equal(plan.workloads[0].context_tokens, 0);
    assert_int_equal(plan.workloads[1].template, PROMPT_TEMPLATE_SWE_BENCH);
    assert_int_equal(plan.workloads[1].chat, PROMPT_CHAT_NO_THINKING);
    assert_int_equal(plan.workloads[1].context_tokens, 4096);
    assert_string_equal(plan.workloads[1].corpus, "c.txt");
    plan_free(&plan);
}

static void takes_thresholds(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{'rules': {'MIN_BLOCKS': 5, 'REPETITION': 0.2}}", &plan);
    assert_int_equal(plan.min_blocks, 5);
    assert_float_equal(plan.rules.threshold[RULE_REPETITION], 0.2, 0);
    plan_free(&plan);
}

/* Each with the line it gives, after the path. */
static void refuses_with_one_clear_line(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'schema': 'cleanslate.plan/9'}",
         "\"schema\" is \"cleanslate.plan/9\"; this program reads \"cleanslate.plan/1\""},
        {"{'schema': null}", "\"schema\" is missing; this program reads \"cleanslate.plan/1\""},
        {"{'budgetz': [8]}", "unknown key \"budgetz\"; did you mean \"budgets\"?"},
        {"{'name': '.hidden'}",
         "\"name\" is \".hidden\"; use 1 to 64 of the characters A-Z a-z 0-9 . _ - without a leading dot"},
        {"{'name': '../up'}",
         "\"name\" is \"../up\"; use 1 to 64 of the characters A-Z a-z 0-9 . _ - without a leading dot"},
        {"{'name': null}", "\"name\" is missing; it must be a string"},
        {"{'blocks': 0}", "\"blocks\" is 0; it must be from 1 to 1000"},
        {"{'blocks': 2.5}", "\"blocks\" must be a whole number"},
        {"{'methods': []}", "\"methods\" is empty; list at least one of \"auto\", \"linear\", \"ddtree\""},
        {"{'methods': ['auto', 'tree']}",
         "\"methods\" is \"tree\"; it must be one of \"auto\", \"linear\", \"ddtree\""},
        {"{'methods': ['auto', 'auto'], 'budgets': null}", "\"methods\" lists \"auto\" twice; remove one"},
        {"{'budgets': null}", "method \"ddtree\" needs budgets; add \"budgets\": [16], for example"},
        {"{'methods': ['auto', 'linear']}",
         "\"budgets\" belong to method \"ddtree\"; add it to \"methods\" or remove them"},
        {"{'budgets': []}", "\"budgets\" is empty; list at least one number"},
        {"{'budgets': [8, 1025]}", "\"budgets\"[1] must be a whole number from 1 to 1024"},
        {"{'budgets': [8, '16']}", "\"budgets\"[1] must be a whole number from 1 to 1024"},
        {"{'budgets': [8, 16, 8]}", "\"budgets\" lists 8 twice; remove one"},
        {"{'tensor_parallel': [1, 65]}", "\"tensor_parallel\"[1] must be a whole number from 1 to 64"},
        {"{'concurrency': [0]}", "\"concurrency\"[0] must be a whole number from 1 to 256"},
        {"{'concurrency': [1, 257]}", "\"concurrency\"[1] must be a whole number from 1 to 256"},
        {"{'concurrency': [1, 65]}",
         "\"concurrency\": the engine runs up to 64 requests at a time, tp1-auto-c65 asks for more"},
        {"{'sampling': {'temperature': -1}}", "sampling: \"temperature\" is -1; it must be from 0 to 100"},
        {"{'sampling': {'temperature': 1e-40}}",
         "sampling: \"temperature\" is 1e-40; it must be 0, or from 1e-06 to 100"},
        {"{'sampling': {'temperature': 1, 'top_p': 0}}", "sampling: \"top_p\" is 0; it must be from 1e-06 to 1"},
        {"{'sampling': {'top_k': 4}}",
         "sampling: \"top_k\" and \"top_p\" mean nothing at temperature 0; remove them or raise the temperature"},
        {"{'sampling': {'temprature': 0}}", "sampling: unknown key \"temprature\"; did you mean \"temperature\"?"},
        {"{'source': {'kind': 'srv'}}", "source: \"kind\" is \"srv\"; it must be one of \"engine\", \"server\""},
        {"{'source': {'kind': 'engine', 'target': 't'}}",
         "method \"linear\" needs a drafter; add \"drafter\" to \"source\""},
        {"{'source': {'kind': 'engine', 'target': 't', 'device': 'gpu'}}",
         "source: \"device\" is \"gpu\"; it must be one of \"auto\", \"cpu\", \"cuda\""},
        {"{'source': {'kind': 'engine', 'target': 't', 'dtype': 'float16'}}",
         "source: \"dtype\" is \"float16\"; it must be one of \"float32\", \"bfloat16\""},
        {"{'workloads': []}", "\"workloads\" is empty; describe at least one"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9}, {'name': 'a', 'prompts': 'q', "
         "'max_new_tokens': 9}]}",
         "workloads[1]: the name \"a\" is taken; give each workload its own"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 1}]}",
         "workloads[0]: \"max_new_tokens\" is 1; it must be from 2 to 1048576"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'context': 4096}]}",
         "workloads[0]: \"context\" must be an object"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'context': {'tokens': 4096}}]}",
         "workloads[0]: context: \"corpus\" is missing; it must be a string"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'context': {'tokens': 0, 'corpus': 'c'}}]}",
         "workloads[0]: context: \"tokens\" is 0; it must be from 1 to 16777216"},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'template': 'maths'}]}",
         "workloads[0]: \"template\" is \"maths\"; it must be one of \"plain\", \"math\", \"humaneval\", \"mbpp\", "
         "\"alpaca\", \"swe-bench\", \"livecodebench\""},
        {"{'workloads': [{'name': 'a', 'prompts': 'p', 'max_new_tokens': 9, 'chat': 'yes'}]}",
         "workloads[0]: \"chat\" is \"yes\"; it must be one of \"none\", \"thinking\", \"no-thinking\""},
        {"{'headline': {'comparisons': [['b32', 'auto']]}}",
         "headline: comparisons[0] names \"b32\", which the plan does not measure"},
        {"{'headline': {'comparisons': [['b16', 'auto'], ['auto', 'b16']]}}",
         "headline: comparisons[1]: \"auto\" over \"b16\"; compare with \"auto\", or a tree with \"linear\", at the "
         "same concurrency"},
        {"{'concurrency': [1, 2], 'headline': {'comparisons': [['b16-c2', 'auto-c2'], ['b16-c2', 'auto']]}}",
         "headline: comparisons[1]: \"b16-c2\" over \"auto\"; compare with \"auto\", or a tree with \"linear\", at the "
         "same "
         "concurrency"},
        {"{'tuning': {'blocks': 3}}", "tuning: \"prompts\" is missing; it must be a string"},
        {"{'tuning': {'blocks': 3, 'prompts': 'all'}}", "tuning: \"prompts\" is \"all\"; it must be \"half\""},
        {"{'tuning': {'blocks': 999, 'prompts': 'half'}}",
         "tuning: 1003 blocks with those that are reported; a plan may have up to 1000"},
        {"{'budgets': [8], 'headline': {'comparisons': []}, 'tuning': {'blocks': 3, 'prompts': 'half'}}",
         "tuning: it chooses among budgets by their speedups over \"auto\"; measure \"auto\" and at least two "
         "\"budgets\", or "
         "remove it"},
        {"{'headline': {'comparisons': ['b16']}}",
         "headline: comparisons[0] must be a pair such as [\"b16\", \"auto\"]"},
        {"{'headline': {'comparisons': [['b8', 'auto'], ['b8', 'auto']]}}",
         "headline: comparisons[1] repeats comparisons[0]; remove one"},
        {"{'stage': [{'original': '/models/m'}]}", "stage[0]: \"folder\" is missing; it must be a string"},
        {"{'stage': [{'original': 'm', 'folder': 'm'}]}",
         "stage[0]: \"folder\" is the original itself; name a folder in memory, as /dev/shm/model"},
        {"{'stage': [{'original': 'a', 'folder': 'm'}, {'original': 'b', 'folder': 'm'}]}",
         "stage[1]: \"folder\" is that of stage[0] as well"},
        {"{'headline': {'comparisons': [], 'alpha': 1.5}}", "headline: \"alpha\" is 1.5; it must be from 1e-06 to 0.5"},
        {"{'limits': {'request_s': 0}}", "limits: \"request_s\" is 0; it must be from 1 to 86400"},
        {"{'rules': {'MIN_BLOCKS': 1}}", "rules: \"MIN_BLOCKS\" is 1; it must be from 2 to 1000"},
        {"{'rules': {'REPETITIVE': 0.5}}", "rules: unknown key \"REPETITIVE\"; did you mean \"REPETITION\"?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan plan;
        struct error error = {0};
        char *path;
        if (read_changed(cases[i][0], &plan, &path, &error) == 0)
            fail_msg("accepted: %s", cases[i][0]);
        char *expected = xformat("%s: %s", path, cases[i][1]);
        assert_string_equal(error.message, expected);
        free(expected);
        free(path);
    }
}

static void refuses_a_file_that_is_not_there(void **state)
{
    (void)state;
    struct plan plan;
    struct error error = {0};
    assert_int_equal(plan_read("data/plans/nothing.json", &plan, &error), -1);
    assert_string_equal(error.message, "data/plans/nothing.json: cannot open: No such file or directory");
}

/* --- orders ----------------------------------------------------------------------------------------------------- */

static void check_permutation(const int *order, int count)
{
    unsigned seen = 0;
    for (int i = 0; i < count; i++) {
        assert_in_range(order[i], 0, count - 1);
        seen |= 1u << order[i];
    }
    assert_int_equal(seen, (1u << count) - 1);
}

static void orders_arms_by_the_hash(void **state)
{
    (void)state;
    struct plan plan;
    read_good("{'budgets': [8, 12, 15, 16, 32, 64]}", &plan);
    int order[8];
    for (int block = 1; block <= 20; block++) {
        char before[FILE_HASH_SIZE] = "", hash[FILE_HASH_SIZE], name[ARM_NAME_SIZE];
        plan_arm_order(&plan, block, order);
        check_permutation(order, 8);
        for (int i = 0; i < 8; i++, strcpy(before, hash)) {
            char *text = xformat("1/%d/%s", block, arm_name(&plan.arms[order[i]], name));
            file_hash_bytes(text, strlen(text), hash);
            assert_true(strcmp(before, hash) < 0);
            free(text);
        }
    }
    plan_free(&plan);
}

/* An arm that is added later moves no other. */
static void keeps_the_order_of_arms_when_one_is_added(void **state)
{
    (void)state;
    struct plan small, large;
    int before[4], after[5];
    read_good("{}", &small);
    read_good("{'budgets': [8, 12, 16]}", &large);
    for (int block = 1; block <= 20; block++) {
        plan_arm_order(&small, block, before);
        plan_arm_order(&large, block, after);
        for (int i = 0, j = 0; i < 5; i++) {
            if (large.arms[after[i]].budget == 12)
                continue;
            assert_true(arm_equal(&large.arms[after[i]], &small.arms[before[j]]));
            j++;
        }
    }
    plan_free(&small);
    plan_free(&large);
}

static void shuffles_prompts_by_seed_block_and_workload(void **state)
{
    (void)state;
    struct plan plan, other;
    int order[16], again[16], different = 0;
    read_good("{}", &plan);
    read_good("{'seed': 2}", &other);
    plan_prompt_order(&plan, 1, "code", 16, order);
    check_permutation(order, 16);
    plan_prompt_order(&plan, 1, "code", 16, again);
    assert_memory_equal(order, again, sizeof order);
    plan_prompt_order(&plan, 2, "code", 16, again);
    different += memcmp(order, again, sizeof order) != 0;
    plan_prompt_order(&plan, 1, "maths", 16, again);
    different += memcmp(order, again, sizeof order) != 0;
    plan_prompt_order(&other, 1, "code", 16, again);
    different += memcmp(order, again, sizeof order) != 0;
    assert_int_equal(different, 3);
    plan_free(&plan);
    plan_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_in_arguments_are_found_in_plans_that_are_read),
        cmocka_unit_test(reads_the_demo_plan),
        cmocka_unit_test(reads_servers),
        cmocka_unit_test(reads_every_plan_that_is_shipped),
        cmocka_unit_test(refuses_servers_that_cannot_be),
        cmocka_unit_test(fills_in_what_is_left_out),
        cmocka_unit_test(sets_alpha_alone),
        cmocka_unit_test(takes_all_dimensions_of_arms_and_sampling),
        cmocka_unit_test(takes_what_is_put_around_prompts),
        cmocka_unit_test(takes_thresholds),
        cmocka_unit_test(refuses_with_one_clear_line),
        cmocka_unit_test(refuses_a_file_that_is_not_there),
        cmocka_unit_test(orders_arms_by_the_hash),
        cmocka_unit_test(keeps_the_order_of_arms_when_one_is_added),
        cmocka_unit_test(shuffles_prompts_by_seed_block_and_workload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
