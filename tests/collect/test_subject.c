#include "collect/subject.h"

#include "collect/base/file.h"
#include "tests/collect/fake_source.h"
#include "tests/record/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const prompts_text =
    "{\"id\": \"a\", \"text\": \"What is x?\"}\n{\"id\": \"b\", \"text\": \"And y?\"}\n";
static const char *const corpus_text = "Once upon a time there was a sum.";

/* A plan of one workload with these keys (a context is finished here), over the two prompts above and the corpus; all
 * in a folder. */
struct scene {
    char *folder, *plan_path;
    struct plan plan;
    struct fake_source source;
    struct subject subject;
};

static int open_scene(struct scene *scene, const char *keys, struct error *error)
{
    bool context = strstr(keys, "corpus") != NULL;
    *scene = (struct scene){.folder = fixture_make_folder()};
    char *prompts = file_join(scene->folder, "p.jsonl"), *corpus = file_join(scene->folder, "c.txt");
    char *text =
        xformat("{\"schema\": \"cleanslate.plan/1\", \"name\": \"x\", \"source\": {\"kind\": \"engine\", \"target\": "
                "\"t\"}, \"methods\": [\"auto\"], \"blocks\": 3, \"workloads\": [{\"name\": \"w\", \"prompts\": "
                "\"%s\", \"max_new_tokens\": 8%s%s%s}]}",
                prompts, keys, context ? corpus : "", context ? "\"}" : "");
    scene->plan_path = file_join(scene->folder, "plan.json");
    fixture_write(prompts, prompts_text, strlen(prompts_text));
    fixture_write(corpus, corpus_text, strlen(corpus_text));
    fixture_write(scene->plan_path, text, strlen(text));
    fake_source_init(&scene->source);
    assert_int_equal(plan_read(scene->plan_path, &scene->plan, error), 0);
    free(text);
    free(corpus);
    free(prompts);
    return subject_open(&scene->plan, &scene->source.base, SUBJECT_REPORTED, &scene->subject, error);
}

static void close_scene(struct scene *scene)
{
    subject_close(&scene->subject);
    plan_free(&scene->plan);
    free(scene->plan_path);
    fixture_remove_folder(scene->folder);
}

/* What the model is given is what is hashed: each case's cells are its own. */
static void hashes_cover_what_is_put_around_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *first;
    } cases[] = {
        {"", "What is x?"},
        {", \"template\": \"math\"",
         "What is x?\nPlease reason step by step, and put your final answer within \\boxed{}."},
        {", \"chat\": \"thinking\"", "<|im_start|>user\nWhat is x?<|im_end|>\n<|im_start|>assistant\n"},
        {", \"chat\": \"no-thinking\"",
         "<|im_start|>user\nWhat is x?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"},
        {", \"context\": {\"tokens\": 14, \"corpus\": \"", "sum.What is x?"},
        {", \"context\": {\"tokens\": 15, \"corpus\": \"", " sum.What is x?"},
        {", \"chat\": \"thinking\", \"context\": {\"tokens\": 64, \"corpus\": \"",
         "<|im_start|>user\nsum.What is x?<|im_end|>\n<|im_start|>assistant\n"},
    };
    enum { COUNT = sizeof cases / sizeof *cases };
    char hashes[COUNT][FILE_HASH_SIZE];
    for (int i = 0; i < COUNT; i++) {
        struct scene scene;
        struct error error = {0};
        open_scene(&scene, cases[i].keys, &error);
        assert_string_equal(error.message, "");
        assert_string_equal(subject_request(&scene.subject, 0, 0).text, cases[i].first);
        strcpy(hashes[i], subject_cell_hash(&scene.subject, 0, 0));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(hashes[i], hashes[j]);
        close_scene(&scene);
    }
}

static void says_which_prompt_is_too_long(void **state)
{
    (void)state;
    struct scene scene;
    struct error error = {0};
    assert_int_equal(open_scene(&scene, ", \"context\": {\"tokens\": 9, \"corpus\": \"", &error), -1);
    assert_non_null(strstr(error.message, "p.jsonl: prompt \"a\": 10 tokens and "));
    close_scene(&scene);
}

static void says_where_a_source_cannot_fill(void **state)
{
    (void)state;
    struct scene scene;
    struct error error = {0};
    assert_int_equal(open_scene(&scene, ", \"context\": {\"tokens\": 14, \"corpus\": \"", &error), 0);
    subject_close(&scene.subject);
    struct source_class class = *scene.source.base.class;
    class.fill = NULL;
    scene.source.base.class = &class;
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_REPORTED, &scene.subject, &error), -1);
    assert_string_equal(error.message,
                        "workload \"w\": a source of kind \"fake\" cannot fill prompts up; remove \"context\"");
    close_scene(&scene);
}

static int answer_newer_style(struct source *source, struct chat_style *style, struct error *error)
{
    (void)source, (void)error;
    *style = (struct chat_style){.opens_thoughts = true};
    return 0;
}

static int refuse_style(struct source *source, struct chat_style *style, struct error *error)
{
    (void)source, (void)style;
    return (fail)(error, "no template"); /* not the macro of cmocka */
}

static void chats_are_put_as_the_source_says(void **state)
{
    (void)state;
    struct scene scene;
    struct error error = {0};
    assert_int_equal(open_scene(&scene, ", \"chat\": \"thinking\"", &error), 0);
    subject_close(&scene.subject);
    struct source_class class = *scene.source.base.class;
    class.chat_style = answer_newer_style;
    scene.source.base.class = &class;
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_REPORTED, &scene.subject, &error), 0);
    assert_string_equal(subject_request(&scene.subject, 0, 0).text,
                        "<|im_start|>user\nWhat is x?<|im_end|>\n<|im_start|>assistant\n<think>\n");
    subject_close(&scene.subject);
    class.chat_style = refuse_style;
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_REPORTED, &scene.subject, &error), -1);
    assert_string_equal(error.message, "no template");
    close_scene(&scene);
}

/* Every prompt is in one half or the other, which the seed decides on. */
static void halves_prompts_for_tuning(void **state)
{
    (void)state;
    struct scene scene;
    struct subject tuning;
    struct error error = {0};
    assert_int_equal(open_scene(&scene, "", &error), 0);
    subject_close(&scene.subject);
    scene.plan.tuning_blocks = 2;
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_REPORTED, &scene.subject, &error), 0);
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_TUNING, &tuning, &error), 0);
    assert_int_equal(subject_prompt_count(&scene.subject, 0), 1);
    assert_int_equal(subject_prompt_count(&tuning, 0), 1);
    assert_string_not_equal(subject_request(&scene.subject, 0, 0).prompt_id, subject_request(&tuning, 0, 0).prompt_id);
    assert_string_not_equal(subject_cell_hash(&scene.subject, 0, 0), subject_cell_hash(&tuning, 0, 0));
    subject_close(&tuning);
    subject_close(&scene.subject);
    scene.plan.workloads[0].count = 1;
    assert_int_equal(subject_open(&scene.plan, &scene.source.base, SUBJECT_TUNING, &scene.subject, &error), -1);
    assert_non_null(strstr(error.message, "\"tuning\" cannot halve"));
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_cover_what_is_put_around_prompts),
        cmocka_unit_test(says_which_prompt_is_too_long),
        cmocka_unit_test(says_where_a_source_cannot_fill),
        cmocka_unit_test(chats_are_put_as_the_source_says),
        cmocka_unit_test(halves_prompts_for_tuning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
