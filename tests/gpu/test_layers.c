/* Halves of layers behind each other: kernels that overlap give the same bits as kernels that wait for each other.
 * Skipped where there is no GPU that CUDA can use, or none that takes halves. With the argument "bench": the time of a
 * layer's halves at Qwen3-0.6B's shape. */
#include "tests/gpu/halves_scene.h"

#define LAYERS 28

struct bench {
    struct attention_half_call attention[LAYERS];
    struct mlp_half_call mlp[LAYERS];
    int kinds; /* 1: attention, 2: the MLP, 3: both */
};

/* Layers of Qwen3-0.6B's shape behind each other: all with these weights, and the attention's with its cache; or, where
 * they are NULL, each with its own, of zeros. */
static void make_layers(struct bench *bench, const struct attention *own, const void *gate_up, const void *down)
{
    int clusters = kernels_halves_take(ELEMENT_BFLOAT16, 1024, 16, 8, HEAD, 3072);
    float *between = device_allocate(1024 * sizeof(float)), *added = device_allocate(HALF_PARTS * 1024 * sizeof(float));
    for (int layer = 0; layer < LAYERS; layer++) {
        struct attention_half_call *attention = &bench->attention[layer];
        *attention = own->call;
        attention->stream.feature = NULL;
        attention->stream.sum = between;
        attention->stream.parts = added;
        attention->stream.part_count = layer > 0 ? clusters : 0;
        if (!gate_up) {
            attention->qkv = device_allocate(4096 * 1024 * 2);
            attention->o = device_allocate(2048 * 1024 * 2);
            attention->heads.keys = device_allocate(cache_elements(own) * 2);
            attention->heads.values = device_allocate(cache_elements(own) * 2);
        }
        struct mlp_half_call mlp = {.stream = attention->stream,
                                    .inner = 3072,
                                    .clusters = clusters,
                                    .gate_up = gate_up ? gate_up : device_allocate(6144 * 1024 * 2),
                                    .down = down ? down : device_allocate(3072 * 1024 * 2)};
        mlp.stream.x = between;
        mlp.stream.sum = (float *)(uintptr_t)own->call.stream.x;
        mlp.stream.parts = own->call.stream.out;
        mlp.stream.part_count = own->kv_heads;
        mlp.stream.out = added;
        bench->mlp[layer] = mlp;
    }
}

/* The stream behind all layers, several times, which write the cache's next row each time. */
static void run_layers(const struct bench *bench, const struct attention *own, bool waits, float *out)
{
    float *x = (float *)(uintptr_t)own->call.stream.x;
    const struct half_stream end = {
        .width = 1024, .part_count = bench->mlp->clusters, .x = x, .parts = bench->mlp->stream.out, .sum = x};
    CUDA_CHECK(cudaMemcpy(x, own->stream.x, 1024 * sizeof(float), cudaMemcpyHostToDevice));
    for (int step = 0; step < 8; step++) {
        for (int layer = 0; layer < LAYERS; layer++) {
            kernels_attention_half(&bench->attention[layer], NULL);
            if (waits)
                CUDA_CHECK(cudaDeviceSynchronize());
            kernels_mlp_half(&bench->mlp[layer], NULL);
            if (waits)
                CUDA_CHECK(cudaDeviceSynchronize());
        }
        kernels_end_halves(&end, NULL);
    }
    gpu_fetch(out, x, 1024 * sizeof *out);
}

static void halves_may_overlap(void **state)
{
    static float waited[1024], overlapped[1024];
    static struct bench bench;
    (void)state;
    if (!usable)
        skip();
    struct attention own = make_attention(1024, 8, 2, 700, 0);
    float *gate_up = make(6144 * 1024, 0.05f), *down = make(3072 * 1024, 0.05f);
    void *gate_up_there = gpu_send_typed(ELEMENT_BFLOAT16, gate_up, 6144 * 1024),
         *down_there = gpu_send_typed(ELEMENT_BFLOAT16, down, 3072 * 1024);
    make_layers(&bench, &own, gate_up_there, down_there);
    run_layers(&bench, &own, true, waited);
    for (int i = 0; i < 1024; i++)
        assert_true(isfinite(waited[i]));
    for (int turn = 0; turn < 10; turn++) {
        run_layers(&bench, &own, false, overlapped);
        assert_memory_equal(overlapped, waited, sizeof waited);
    }
    CUDA_CHECK(cudaFree(gate_up_there));
    CUDA_CHECK(cudaFree(down_there));
    free(gate_up);
    free(down);
    free_attention(&own);
}

static void queue_layer(void *context, int index, cudaStream_t stream)
{
    const struct bench *bench = context;
    if (bench->kinds & 1)
        kernels_attention_half(&bench->attention[index % LAYERS], stream);
    if (bench->kinds & 2)
        kernels_mlp_half(&bench->mlp[index % LAYERS], stream);
}

static void bench(void)
{
    static const int lengths[] = {16, 512, 2048, 4000};
    static struct bench bench;
    for (int i = 0; i < COUNT(lengths); i++) {
        struct attention own = make_attention(1024, 8, 2, lengths[i], 0);
        make_layers(&bench, &own, NULL, NULL);
        for (bench.kinds = 1; bench.kinds <= 3; bench.kinds++)
            printf("behind %d: %s %.2f us\n", lengths[i],
                   bench.kinds == 1   ? "attention"
                   : bench.kinds == 2 ? "MLP"
                                      : "a layer",
                   gpu_time(queue_layer, &bench, LAYERS));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(halves_may_overlap)};
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        find_gpu(NULL);
        if (usable)
            bench();
        return 0;
    }
    return cmocka_run_group_tests(tests, find_gpu, NULL);
}
