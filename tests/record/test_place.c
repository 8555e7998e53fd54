#include "collect/record/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_places_have_one_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name; /* NULL: no place */
    } cases[] = {
        {"tp1-b8/3-1", "tp1-b8/3-1"},
        {"demo/tp1-b8/3-1", "tp1-b8/3-1"},
        {"tp4-linear-c8/1000-1000000", "tp4-linear-c8/1000-1000000"},
        {"tp1-auto/1-1/", NULL},
        {"/tp1-auto/1-1", "tp1-auto/1-1"},
        {"runs/demo/tp1-auto/1-1", NULL},
        {"tp1-auto/01-1", NULL},
        {"tp1-auto/1-01", NULL},
        {"tp1-auto/1-1 ", NULL},
        {"tp1-auto/1-1.jsonl", NULL},
        {"tp1-auto/0-1", NULL},
        {"tp1-auto/1-0", NULL},
        {"tp1-auto/1001-1", NULL},
        {"tp1-auto/1-1000001", NULL},
        {"tp1-auto/-1-1", NULL},
        {"tp1-auto/1", NULL},
        {"tp01-auto/1-1", NULL},
        {"auto/1-1", NULL},
        {"tp1-auto", NULL},
        {"1-1", NULL},
        {"/", NULL},
        {"", NULL},
        {"a-name-that-is-much-longer-than-that-of-any-arm/1-1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attempt_place place;
        char name[PLACE_NAME_SIZE];
        bool parsed = place_parse(cases[i].text, &place);
        if (parsed != (cases[i].name != NULL))
            fail_msg("\"%s\"", cases[i].text);
        if (parsed)
            assert_string_equal(place_name(&place, name), cases[i].name);
    }
}

static void test_a_place_is_a_file(void **state)
{
    (void)state;
    struct attempt_place place;
    assert_true(place_parse("tp1-b8/3-2", &place));
    char *path = place_path("runs/demo", &place);
    assert_string_equal(path, "runs/demo/attempts/tp1-b8/3-2.jsonl");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_have_one_spelling),
        cmocka_unit_test(test_a_place_is_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
