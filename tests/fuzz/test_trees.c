/* recorded trees, and what benchmarks make of them */
#include "collect/engine/recorded_trees.h"
#include "tests/fuzz/fuzz.h"

const char fuzz_corpus[] = "tests/fuzz/corpus/trees";
const int fuzz_mutations = 3000;

static void check_tree(const int *parents)
{
    static struct tree tree;
    static int chosen[TREE_NODES_MAXIMUM], path[TREE_NODES_MAXIMUM];
    int depth = tree_depth(parents, TREE_NODES_MAXIMUM);
    fuzz_require(depth >= 1 && depth < TREE_NODES_MAXIMUM, "a tree has a depth");
    tree.count = TREE_NODES_MAXIMUM;
    tree_reshape(&tree, parents);
    tree_force(&tree, 6, chosen);
    fuzz_require(tree_walk(&tree, chosen, path) == (depth >= 5 ? 6 : depth + 1), "the forced path is walked");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct recorded_trees trees;
    struct error error = {0};
    bool read = recorded_trees_read(fuzz_write("trees.json", bytes, size), &trees, &error) == 0;
    fuzz_check_answer(read, &error);
    fuzz_require(read == (trees.count > 0), "a file is read whole or not at all");
    for (int i = 0; i < trees.count; i++)
        check_tree(trees.parents[i]);
    recorded_trees_free(&trees);
    return 0;
}
