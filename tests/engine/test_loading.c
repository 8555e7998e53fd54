/* What is said while weights are loaded, and that quick loads are silent. */
#include "collect/engine/loading.h"

#include "tests/collect/call.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void says_how_far_it_is(void **state)
{
    (void)state;
    char text[LOADING_TEXT_SIZE];
    assert_string_equal(loading_text("models/qwen", 4000000000, 16000000000, 2, text),
                        "loading models/qwen: 25% of 16 GB, 2 GB/s, about 6 s left");
    assert_string_equal(loading_text("x", 54000000000, 54000000000, 60, text),
                        "loading x: 100% of 54 GB, 0.9 GB/s, about 0 s left");
}

static int load_quickly(int argc, char **argv)
{
    (void)argc, (void)argv;
    loading_add(1); /* nobody has begun */
    loading_begin("x", 1000, 2);
    loading_add(600);
    loading_add(600);
    loading_end();
    return 0;
}

static void is_silent_where_it_is_quick(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    char *folder = fixture_make_folder(), *said;
    assert_int_equal(call_command(folder, load_quickly, none, &said), 0);
    assert_string_equal(said, "");
    free(said);
    fixture_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_how_far_it_is),
        cmocka_unit_test(is_silent_where_it_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
