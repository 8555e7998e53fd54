#include "tests/collect/run_folder.h"

#include "collect/base/file.h"
#include "collect/record/place.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

char *run_folder_path(const char *run, const char *name)
{
    struct attempt_place place;
    assert_true(place_parse(name, &place));
    return place_path(run, &place);
}

static void write_attempt(const char *run, const char *name, const char *status)
{
    struct attempt_place place;
    struct error error = {0};
    char arm[ARM_NAME_SIZE];
    assert_true(place_parse(name, &place));
    char *path = place_path(run, &place), *home = xformat("%s/attempts/%s", run, arm_name(&place.arm, arm));
    assert_int_equal(file_make_folder(home, &error), 0);
    fixture_attempt(path, fixture_header(arm, place.block, place.try_number), status);
    free(path);
    free(home);
}

char *run_folder_make(const char *parent)
{
    char *run = file_join(parent, "tiny");
    write_attempt(run, "tp1-linear/1-1", "complete");
    write_attempt(run, "tp1-linear/2-1", "complete");
    write_attempt(run, "tp1-b8/1-1", "complete");
    write_attempt(run, "tp1-b8/2-1", "aborted");
    write_attempt(run, "tp1-b16/3-1", "aborted");
    size_t size;
    char *plan = fixture_read("data/plans/tiny.json", &size), *path = file_join(run, "plan.json");
    fixture_write(path, plan, size);
    fixture_enter(run);
    free(plan);
    free(path);
    return run;
}
