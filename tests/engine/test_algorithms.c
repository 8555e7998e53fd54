/* What was chosen by timing is found again, under the same id, and a file that is none is refused and left alone. */
#include "collect/base/file.h"
#include "collect/engine/algorithms.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void choices_outlive_the_program(void **state)
{
    (void)state;
    struct error error = {0};
    char *folder = fixture_make_folder(), id[64];
    struct algorithms *first = algorithms_open(folder, &error);
    snprintf(id, sizeof id, "%s", algorithms_id(first));
    json_object_set_new(algorithms_list(first), "a product", json_integer(3));
    assert_int_equal(algorithms_save(first, &error), 0);
    algorithms_close(first);
    struct algorithms *second = algorithms_open(folder, &error);
    assert_string_equal(algorithms_id(second), id);
    assert_int_equal(json_integer_value(json_object_get(algorithms_list(second), "a product")), 3);
    algorithms_close(second);
    fixture_remove_folder(folder);
}

static void what_was_not_saved_has_another_id(void **state)
{
    (void)state;
    struct error error = {0};
    char *folder = fixture_make_folder();
    struct algorithms *first = algorithms_open(folder, &error), *second = algorithms_open(folder, &error);
    assert_string_not_equal(algorithms_id(first), algorithms_id(second));
    algorithms_close(first);
    algorithms_close(second);
    fixture_remove_folder(folder);
}

static void another_file_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{}",
                                        "{\"schema\": \"cleanslate.algorithms/2\", \"id\": \"1\", \"algorithms\": {}}",
                                        "{\"schema\": \"cleanslate.algorithms/1\", \"id\": 1, \"algorithms\": {}}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct error error = {0};
        char *folder = fixture_make_folder(), *path = file_join(folder, "algorithms.json");
        assert_int_equal(file_write_whole(path, texts[i], strlen(texts[i]), &error), 0);
        assert_null(algorithms_open(folder, &error));
        assert_non_null(strstr(error.message, path));
        free(path);
        fixture_remove_folder(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_outlive_the_program),
        cmocka_unit_test(what_was_not_saved_has_another_id),
        cmocka_unit_test(another_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
