/* Random models of any sizes, written for a test: a target of six layers and a drafter of two. */
#ifndef TESTS_GPU_SIZED_MODELS_H
#define TESTS_GPU_SIZED_MODELS_H

struct sizes {
    int hidden, inner, heads, kv_heads, head_size, vocabulary, block;
    const char *drafter; /* what the drafter's config has besides, */
    const char *target;  /* and the target's; JSON with ' for " */
};

/* Into two folders that exist. */
void sized_models_write(const struct sizes *sizes, const char *target, const char *drafter);

#endif
