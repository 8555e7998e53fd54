#include "collect/record/arm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name, *label;
    struct arm arm;
} known[] = {
    {"tp1-auto", "auto", {1, METHOD_AUTO, 0, 1}},
    {"tp1-linear", "linear", {1, METHOD_LINEAR, 0, 1}},
    {"tp4-b16", "b16", {4, METHOD_DDTREE, 16, 1}},
    {"tp4-b16-c8", "b16-c8", {4, METHOD_DDTREE, 16, 8}},
    {"tp8-auto-c128", "auto-c128", {8, METHOD_AUTO, 0, 128}},
    {"tp1-b1024", "b1024", {1, METHOD_DDTREE, 1024, 1}},
    {"tp99999-linear-c99999", "linear-c99999", {99999, METHOD_LINEAR, 0, 99999}},
};

static void test_names_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[ARM_NAME_SIZE];
        assert_string_equal(arm_name(&known[i].arm, name), known[i].name);
        assert_string_equal(arm_method_label(&known[i].arm, name), known[i].label);
        struct arm arm;
        assert_true(arm_parse(known[i].name, &arm));
        assert_true(arm_equal(&arm, &known[i].arm));
    }
}

/* A method is named in one place: whatever is listed there makes names that are read again. */
static void test_every_method_has_names(void **state)
{
    (void)state;
    for (int method = 0; method < METHOD_COUNT; method++) {
        struct arm arm = {2, (enum method)method, method_has_budget((enum method)method) ? 7 : 0, 3}, parsed;
        char name[ARM_NAME_SIZE];
        assert_true(arm_parse(arm_name(&arm, name), &parsed));
        assert_true(arm_equal(&arm, &parsed));
    }
}

static void test_what_is_no_arm_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "tp",
        "tp1",
        "tp1-",
        "tp0-auto",
        "tp-1-auto",
        "auto",
        "tp1-ddtree",
        "tp1-b0",
        "tp1-b1025",
        "tp1-b",
        "tp01-auto",
        "tp1-b08",
        "tp1-auto-c1",
        "tp1-auto-c",
        "tp1-autoc2",
        "tp1-auto-c0",
        "tp1-auto ",
        " tp1-auto",
        "tp1-b+8",
        "tp1-b 8",
        "TP1-auto",
        "tp1-auto-c2x",
        "tp1-linear-b8",
        "tp99999999999999999999-auto",
        "tp1-b8-c99999999999",
        "tp100000-auto",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct arm arm = {7, METHOD_LINEAR, 7, 7}, before = arm;
        assert_false(arm_parse(names[i], &arm));
        assert_true(arm_equal(&arm, &before));
    }
}

static void test_every_member_tells_arms_apart(void **state)
{
    (void)state;
    const struct arm arm = {1, METHOD_DDTREE, 8, 1};
    const struct arm others[] = {
        {2, METHOD_DDTREE, 8, 1}, {1, METHOD_LINEAR, 8, 1}, {1, METHOD_DDTREE, 9, 1}, {1, METHOD_DDTREE, 8, 2}};
    assert_true(arm_equal(&arm, &arm));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(arm_equal(&arm, &others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_back),
        cmocka_unit_test(test_every_method_has_names),
        cmocka_unit_test(test_what_is_no_arm_is_refused),
        cmocka_unit_test(test_every_member_tells_arms_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
