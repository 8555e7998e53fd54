/* Merging against its definition: as long as there is one, merge the pair of the lowest rank that is leftmost. */
#include "collect/engine/bpe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LETTERS = 4, MERGES = 60, LONGEST = 40 };

struct rule {
    int left, right;
};

static unsigned random_state = 12345;

static int random_below(int limit)
{
    random_state = random_state * 1103515245u + 12345u;
    return (int)((random_state >> 16) % (unsigned)limit);
}

/* Merge number r makes the id LETTERS + r. */
static int merge_by_definition(const struct rule *rules, int *ids, int count)
{
    for (int r = 0; r < MERGES; r++) {
        for (int i = 0; i + 1 < count; i++) {
            if (ids[i] != rules[r].left || ids[i + 1] != rules[r].right)
                continue;
            ids[i] = LETTERS + r;
            memmove(ids + i + 1, ids + i + 2, (size_t)(count - i - 2) * sizeof *ids);
            count--;
            r = -1; /* lower ranks may have become possible */
            break;
        }
    }
    return count;
}

static void make_rules(struct bpe *bpe, struct rule *rules)
{
    bpe_init(bpe, MERGES);
    for (int r = 0; r < MERGES;) {
        rules[r] = (struct rule){random_below(LETTERS + r), random_below(LETTERS + r)};
        if (bpe_add(bpe, rules[r].left, rules[r].right, r, LETTERS + r) == 0)
            r++;
    }
}

static void merges_as_defined(void **state)
{
    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        struct bpe bpe;
        struct rule rules[MERGES];
        make_rules(&bpe, rules);
        for (int word = 0; word < 20; word++) {
            int ids[LONGEST], expected[LONGEST], count = random_below(LONGEST + 1);
            for (int i = 0; i < count; i++)
                ids[i] = expected[i] = random_below(LETTERS);
            int expected_count = merge_by_definition(rules, expected, count);
            assert_int_equal(bpe_apply(&bpe, ids, count), expected_count);
            assert_memory_equal(ids, expected, (size_t)expected_count * sizeof *ids);
        }
        bpe_free(&bpe);
    }
}

static void refuses_a_pair_twice(void **state)
{
    (void)state;
    struct bpe bpe;
    bpe_init(&bpe, 2);
    assert_int_equal(bpe_add(&bpe, 1, 2, 0, 3), 0);
    assert_int_equal(bpe_add(&bpe, 1, 2, 1, 4), -1);
    bpe_free(&bpe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_as_defined), cmocka_unit_test(refuses_a_pair_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
