#include "collect/base/name.h"

#include "collect/base/error.h"
#include "collect/base/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NAMES = 3000, TIMES = 8 };

static void test_equal_names_are_one(void **state)
{
    (void)state;
    char text[] = "code";
    const char *kept = name_keep(text);
    text[0] = 'm';
    assert_string_equal(kept, "code");
    assert_ptr_equal(name_keep("code"), kept);
    assert_ptr_equal(name_keep_bytes("codec", 4), kept);
    assert_ptr_not_equal(name_keep("codec"), kept);
    assert_ptr_not_equal(name_keep("cod"), kept);
    assert_string_equal(name_keep(""), "");
    assert_int_equal(name_compare(kept, "code"), 0);
    assert_true(name_compare(kept, "cod") > 0 && name_compare(kept, "d") < 0);
}

static void keep(void *context, int index)
{
    const char **kept = context;
    char *text = xformat("name %d", index % NAMES);
    kept[index] = name_keep(text);
    free(text);
}

/* From several threads, while the table grows. */
static void test_many_are_kept_once_each(void **state)
{
    (void)state;
    const char **kept = xcalloc(NAMES * TIMES, sizeof *kept);
    parallel_for(NAMES * TIMES, keep, kept);
    for (int i = 0; i < NAMES * TIMES; i++) {
        char *text = xformat("name %d", i % NAMES);
        assert_string_equal(kept[i], text);
        assert_ptr_equal(kept[i], kept[i % NAMES]);
        free(text);
    }
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_names_are_one),
        cmocka_unit_test(test_many_are_kept_once_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
