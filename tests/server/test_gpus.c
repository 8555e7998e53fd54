/* Waiting for GPUs, through the library that stands in for NVML (tests/collect/fake_nvml.c). */
#include "collect/server/gpus.h"

#include "collect/base/file.h"
#include "tests/record/fixture.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *library;
static char *folder;

static void add_device(const char *id, const char *vendor, const char *class)
{
    struct error error = {0};
    char *home = file_join(folder, id), *vendor_path = file_join(home, "vendor"),
         *class_path = file_join(home, "class");
    assert_int_equal(file_make_folder(home, &error), 0);
    fixture_write(vendor_path, vendor, strlen(vendor));
    fixture_write(class_path, class, strlen(class));
    free(home);
    free(vendor_path);
    free(class_path);
}

/* The library stands beside the folder of this program. */
static int set_up(void **state)
{
    (void)state;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(path, '/') = '\0';
    char *file = file_join(path, "fake_nvml.so");
    setenv("CLEANSLATE_NVML", file, 1);
    library = dlopen(file, RTLD_NOW);
    free(file);
    folder = fixture_make_folder();
    return library ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_remove_folder(folder);
    return dlclose(library);
}

/* A bridge of the same maker is none, nor is another maker's GPU. */
static void memory_in_use_is_waited_for(void **state)
{
    (void)state;
    unsigned long long *more = dlsym(library, "fake_nvml_more_memory");
    struct error error = {0};
    char ids[2][TELEMETRY_ID_SIZE];
    assert_null(gpus_open(folder));
    add_device("0000:1b:00.0", "0x10de\n", "0x030200\n");
    add_device("0000:1c:00.0", "0x10de\n", "0x068000\n");
    add_device("0000:00:02.0", "0x8086\n", "0x030000\n");
    struct gpus *gpus = gpus_open(folder);
    assert_non_null(gpus);
    assert_int_equal(gpus_await(gpus, 0, &error), 0);
    *more = 256 << 20;
    assert_int_equal(gpus_await(gpus, 0, &error), 0);
    *more = 3ULL << 30;
    assert_int_equal(gpus_await(gpus, 0, &error), -1);
    assert_string_equal(error.message, "GPU 0000:1b:00.0 has 4 GiB in use, 1 when collect began; end what uses it");
    assert_int_equal(gpus_list_busy(gpus, ids, 2), 1);
    assert_string_equal(ids[0], "0000:1b:00.0");
    *more = 0;
    assert_int_equal(gpus_await(gpus, 0, &error), 0);
    assert_int_equal(gpus_list_busy(gpus, ids, 2), 0);
    gpus_close(gpus);
}

static void without_the_library_all_is_free(void **state)
{
    (void)state;
    setenv("CLEANSLATE_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    assert_null(gpus_open(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_in_use_is_waited_for),
        cmocka_unit_test(without_the_library_all_is_free),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
