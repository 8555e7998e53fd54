/* Which backend a device's name brings. */
#include "collect/engine/backend.h"
#include "tests/engine/hybrid_files.h"

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

/* A backend without recurrent layers is not even asked to open such a model. */
static void recurrent_layers_need_a_backend_that_has_them(void **state)
{
    (void)state;
    static const struct backend_class without = {.name = "other"};
    struct error error = {0};
    struct model *hybrid = model_open_target(HYBRID_FOLDER, &error),
                 *dense = model_open_target("data/models/demo/target", &error);
    const struct backend_options options = {.target = hybrid};
    assert_int_equal(backend_check(&without, dense, &error), 0);
    assert_int_equal(backend_check(&backend_cpu, hybrid, &error), 0);
    assert_null(backend_open(&without, &options, &error));
    assert_string_equal(error.message, HYBRID_FOLDER ": 6 of 8 layers are recurrent, which device \"other\" cannot run "
                                                     "yet; use \"cpu\"");
    model_close(dense);
    model_close(hybrid);
}

static void a_device_names_the_ranks_gpus(void **state)
{
    (void)state;
    json_t *devices = backend_devices("cuda:0,0,12", 3), *fewer = backend_devices("cuda:3,1", 1);
    assert_int_equal(json_array_size(devices), 3);
    assert_int_equal(json_integer_value(json_array_get(devices, 1)), 0);
    assert_int_equal(json_integer_value(json_array_get(devices, 2)), 12);
    assert_int_equal(json_array_size(fewer), 1);
    assert_int_equal(json_integer_value(json_array_get(fewer, 0)), 3);
    assert_null(backend_devices("cuda", 4));
    assert_null(backend_devices("cpu", 2));
    json_decref(devices);
    json_decref(fewer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_names_the_ranks_gpus),
        cmocka_unit_test(the_cpu_is_always_there),
        cmocka_unit_test(auto_is_cuda_where_it_can_be_used_and_else_the_cpu),
        cmocka_unit_test(recurrent_layers_need_a_backend_that_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
