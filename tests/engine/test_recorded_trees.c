/* Files of recorded trees: the one that ships, and broken ones. */
#include "collect/engine/recorded_trees.h"

#include "collect/base/file.h"
#include "collect/base/json.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every budget that is timed has trees deep enough for six tokens. */
static void the_shipped_trees_serve_every_budget(void **state)
{
    (void)state;
    static const int budgets[] = {8, 12, 15, 16, 32, 64, 128, 1024};
    struct recorded_trees trees;
    struct error error = {0};
    assert_int_equal(recorded_trees_read("data/trees/demo.json", &trees, &error), 0);
    assert_true(trees.count >= 16);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        int deep = 0;
        for (int tree = 0; tree < trees.count; tree++)
            deep += tree_depth(trees.parents[tree], budgets[i] + 1) >= 5;
        assert_true(deep >= 2);
    }
    recorded_trees_free(&trees);
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    static struct tree tree = {.count = TREE_NODES_MAXIMUM};
    char *folder = fixture_make_folder(), *path = file_join(folder, "trees.json");
    struct error error = {0};
    struct recorded_trees trees;
    tree.parents[0] = -1;
    for (int node = 1; node < tree.count; node++)
        tree.parents[node] = node * 7 / 11;
    json_t *list = json_array();
    json_append(list, recorded_tree_to_json("some prompt", &tree));
    assert_int_equal(recorded_trees_write(path, "a test", list, &error), 0);
    json_decref(list);
    assert_int_equal(recorded_trees_read(path, &trees, &error), 0);
    assert_int_equal(trees.count, 1);
    assert_string_equal(trees.source, "a test");
    assert_memory_equal(trees.parents[0], tree.parents, sizeof tree.parents);
    recorded_trees_free(&trees);
    free(path);
    fixture_remove_folder(folder);
}

/* 1,024 parents, the last of them as given. */
static char *make_text(const char *schema, int last)
{
    json_t *file = json_object(), *tree = json_object(), *trees = json_array(), *parents = json_array();
    for (int i = 0; i < 1023; i++)
        json_append(parents, json_integer(0));
    json_append(parents, json_integer(last));
    json_set(tree, "parents", parents);
    json_append(trees, tree);
    json_set(file, "schema", json_string(schema));
    json_set(file, "source", json_string("a test"));
    json_set(file, "trees", trees);
    char *text = json_canonical(file);
    json_decref(file);
    return text;
}

static void refuses(const char *text, const char *said)
{
    char *folder = fixture_make_folder(), *path = file_join(folder, "trees.json");
    struct error error = {0};
    struct recorded_trees trees;
    fixture_write(path, text, strlen(text));
    assert_int_equal(recorded_trees_read(path, &trees, &error), -1);
    if (!strstr(error.message, said))
        fail_msg("\"%s\" does not say \"%s\"", error.message, said);
    assert_int_equal(trees.count, 0);
    free(path);
    fixture_remove_folder(folder);
}

static void refuses_what_is_no_tree(void **state)
{
    (void)state;
    char *texts[] = {make_text("cleanslate.trees/1", 1024), make_text("cleanslate.trees/1", -1),
                     make_text("cleanslate.trees/2", 5)};
    refuses(texts[0], "the parent of node 1024 must be a node before it");
    refuses(texts[1], "the parent of node 1024 must be a node before it");
    refuses(texts[2], "schema \"cleanslate.trees/2\"");
    refuses("{\"schema\": \"cleanslate.trees/1\", \"source\": \"\", \"trees\": []}", "\"trees\" is empty");
    refuses("{\"schema\": \"cleanslate.trees/1\", \"source\": \"\", \"trees\": [{\"parents\": [0, 0]}]}",
            "a tree of 2 nodes");
    refuses("{\"schema\": \"cleanslate.trees/1\"}", "\"source\"");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_trees_serve_every_budget),
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(refuses_what_is_no_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
