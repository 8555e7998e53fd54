/* Which backend a device's name brings. */
#include "collect/engine/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void the_cpu_is_always_there(void **state)
{
    (void)state;
    struct error error = {0};
    assert_ptr_equal(backend_find("cpu", &error), &backend_cpu);
    assert_string_equal(error.message, "");
}

static void auto_is_cuda_where_it_can_be_used_and_else_the_cpu(void **state)
{
    (void)state;
    struct error error = {0}, reason = {0};
    const struct backend_class *cuda = backend_find("cuda", &reason), *found = backend_find("auto", &error);
    assert_string_equal(error.message, "");
    assert_non_null(found);
    assert_string_equal(found->name, cuda ? "cuda" : "cpu");
    if (cuda)
        return;
    assert_int_equal(strncmp(reason.message, "device \"cuda\": ", 15), 0);
    assert_null(strchr(reason.message, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_is_always_there),
        cmocka_unit_test(auto_is_cuda_where_it_can_be_used_and_else_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
