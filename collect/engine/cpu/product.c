#include "collect/engine/cpu/product.h"

#include "collect/engine/bfloat16.h"
#include "collect/engine/loading.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>

#define SHAPES_MAXIMUM 64
#define THREADS_MAXIMUM 256
#define COPY_BYTES ((size_t)16 << 20) /* of a weight that are in memory twice while it is copied */

static void check(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success)
        die("oneDNN: %s failed with status %d", what, (int)status);
}
#define CHECK(call) check((call), #call)

static dnnl_engine_t shared_engine;

static void create_engine(void)
{
    CHECK(dnnl_engine_create(&shared_engine, dnnl_cpu, 0));
}

static dnnl_engine_t cpu_engine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_engine);
    return shared_engine;
}

static pthread_key_t stream_key;

static void destroy_stream(void *stream)
{
    dnnl_stream_destroy(stream);
}

static void create_stream_key(void)
{
    if (pthread_key_create(&stream_key, destroy_stream))
        die("no room for a thread-specific stream");
}

/* Streams of the CPU run at once and keep nothing; each thread has its own, which ends with it. */
static dnnl_stream_t cpu_stream(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, create_stream_key);
    dnnl_stream_t stream = pthread_getspecific(stream_key);
    if (!stream) {
        CHECK(dnnl_stream_create(&stream, cpu_engine(), dnnl_stream_default_flags));
        pthread_setspecific(stream_key, stream);
    }
    return stream;
}

static dnnl_data_type_t data_type(enum product_type type)
{
    return type == PRODUCT_BFLOAT16 ? dnnl_bf16 : dnnl_f32;
}

bool product_has_bfloat16(void)
{
    return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_bf16 && __builtin_cpu_supports("avx512bf16");
}

static dnnl_memory_t wrap(const dnnl_memory_desc_t *description, void *bytes)
{
    dnnl_memory_t memory;
    CHECK(dnnl_memory_create(&memory, description, cpu_engine(), bytes));
    return memory;
}

static dnnl_primitive_desc_t describe(const void *operation)
{
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t description;
    CHECK(dnnl_primitive_attr_create(&attributes));
    CHECK(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    CHECK(dnnl_primitive_desc_create(&description, operation, attributes, cpu_engine(), NULL));
    CHECK(dnnl_primitive_attr_destroy(attributes));
    return description;
}

static size_t scratch_size(dnnl_primitive_desc_t description)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
}

/* --- linear
 * -------------------------------------------------------------------------------------------------------------------
 */

struct linear_shape {
    int rows;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, y, scratch;
};

struct linear_weights {
    dnnl_memory_desc_t layout;
    dnnl_memory_t memory; /* NULL: no shape needs this layout */
    void *bytes;
};

struct linear {
    enum product_type type;
    int inputs, outputs;
    struct linear_shape shapes[SHAPES_MAXIMUM];
    int shape_count;
    struct linear_weights one_row;   /* row-major: a matrix-vector product streams it */
    struct linear_weights many_rows; /* as oneDNN's matrix product likes it at the smallest such shape */
};

/* Rows [first, first + count) of a part, row-major [count, inputs] in the type, to `out`. */
static void copy_rows(const struct linear *linear, const struct linear_part *part, int first, int count, char *out)
{
    int64_t columns = part->tensor->shape[1];
    size_t row_bytes = (size_t)linear->inputs * product_type_size(linear->type);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < count; row++) {
        int64_t at = (part->first_row + first + row) * columns + part->first_column;
        void *to = out + (size_t)row * row_bytes;
        if (linear->type == PRODUCT_BFLOAT16)
            tensor_to_bfloat16(part->tensor, at, linear->inputs, to);
        else
            tensor_to_float(part->tensor, at, linear->inputs, to);
    }
    tensor_release(part->tensor, (part->first_row + first) * columns, count * columns);
    loading_add((int64_t)count * linear->inputs);
}

static void copy_part(const struct linear *linear, const struct linear_part *part, char *out)
{
    size_t row_bytes = (size_t)linear->inputs * product_type_size(linear->type);
    int step = (int)(COPY_BYTES / row_bytes) + 1;
    for (int row = 0; row < part->rows; row += step)
        copy_rows(linear, part, row, part->rows - row < step ? part->rows - row : step, out + (size_t)row * row_bytes);
}

static void *stack_parts(const struct linear *linear, const struct linear_part *parts, int count)
{
    size_t row = (size_t)linear->inputs * product_type_size(linear->type), at = 0;
    char *rows = xaligned((size_t)linear->outputs, row);
    for (int i = 0; i < count; i++) {
        copy_part(linear, &parts[i], rows + at);
        at += (size_t)parts[i].rows * row;
    }
    return rows;
}

static void reorder(const dnnl_memory_desc_t *plain, void *rows, struct linear_weights *weights)
{
    dnnl_memory_t source = wrap(plain, rows);
    dnnl_primitive_desc_t description;
    dnnl_primitive_t primitive;
    CHECK(dnnl_reorder_primitive_desc_create(&description, plain, cpu_engine(), &weights->layout, cpu_engine(), NULL));
    CHECK(dnnl_primitive_create(&primitive, description));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, weights->memory}};
    CHECK(dnnl_primitive_execute(primitive, cpu_stream(), 2, arguments));
    CHECK(dnnl_stream_wait(cpu_stream()));
    CHECK(dnnl_primitive_destroy(primitive));
    CHECK(dnnl_primitive_desc_destroy(description));
    CHECK(dnnl_memory_destroy(source));
}

/* Keeps `rows` in the layouts that the shapes use; takes it over. */
static void store_weights(struct linear *linear, void *rows)
{
    if (linear->many_rows.layout.ndims) {
        dnnl_memory_desc_t plain;
        const dnnl_dims_t sizes = {linear->inputs, linear->outputs}, strides = {1, linear->inputs};
        CHECK(dnnl_memory_desc_init_by_strides(&plain, 2, sizes, data_type(linear->type), strides));
        linear->many_rows.bytes = xaligned(dnnl_memory_desc_get_size(&linear->many_rows.layout), 1);
        linear->many_rows.memory = wrap(&linear->many_rows.layout, linear->many_rows.bytes);
        reorder(&plain, rows, &linear->many_rows);
    }
    if (linear->one_row.layout.ndims) {
        linear->one_row.bytes = rows;
        linear->one_row.memory = wrap(&linear->one_row.layout, rows);
    } else {
        free(rows);
    }
}

static dnnl_primitive_desc_t describe_one_row(struct linear *linear, const dnnl_memory_desc_t *x,
                                              const dnnl_memory_desc_t *y)
{
    const dnnl_dims_t sizes = {linear->outputs, linear->inputs};
    dnnl_inner_product_desc_t operation;
    dnnl_memory_desc_t *layout = &linear->one_row.layout;
    CHECK(dnnl_memory_desc_init_by_tag(layout, 2, sizes, data_type(linear->type), dnnl_ab));
    CHECK(dnnl_inner_product_forward_desc_init(&operation, dnnl_forward_inference, x, layout, NULL, y));
    return describe(&operation);
}

static dnnl_primitive_desc_t describe_many_rows(struct linear *linear, const dnnl_memory_desc_t *x,
                                                const dnnl_memory_desc_t *y)
{
    const dnnl_dims_t sizes = {linear->inputs, linear->outputs};
    dnnl_matmul_desc_t operation;
    dnnl_memory_desc_t *layout = &linear->many_rows.layout;
    if (!layout->ndims)
        CHECK(dnnl_memory_desc_init_by_tag(layout, 2, sizes, data_type(linear->type), dnnl_format_tag_any));
    CHECK(dnnl_matmul_desc_init(&operation, x, layout, NULL, y));
    dnnl_primitive_desc_t description = describe(&operation);
    *layout = *dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    return description;
}

static void add_shape(struct linear *linear, int rows)
{
    dnnl_memory_desc_t x, y;
    const dnnl_dims_t x_sizes = {rows, linear->inputs}, y_sizes = {rows, linear->outputs};
    CHECK(dnnl_memory_desc_init_by_tag(&x, 2, x_sizes, data_type(linear->type), dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&y, 2, y_sizes, dnnl_f32, dnnl_ab));
    dnnl_primitive_desc_t description =
        rows == 1 ? describe_one_row(linear, &x, &y) : describe_many_rows(linear, &x, &y);
    struct linear_shape *shape = &linear->shapes[linear->shape_count++];
    shape->rows = rows;
    CHECK(dnnl_primitive_create(&shape->primitive, description));
    shape->x = wrap(&x, DNNL_MEMORY_NONE);
    shape->y = wrap(&y, DNNL_MEMORY_NONE);
    shape->scratch = wrap(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0),
                          scratch_size(description) ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE);
    CHECK(dnnl_primitive_desc_destroy(description));
}

struct linear *linear_create(enum product_type type, const struct linear_part *parts, int part_count, int inputs,
                             const int *shapes, int shape_count)
{
    struct linear *linear = xcalloc(1, sizeof *linear);
    linear->type = type;
    linear->inputs = inputs;
    for (int i = 0; i < part_count; i++)
        linear->outputs += parts[i].rows;
    for (int i = 0; i < shape_count && i < SHAPES_MAXIMUM; i++)
        add_shape(linear, shapes[i]);
    store_weights(linear, stack_parts(linear, parts, part_count));
    return linear;
}

void linear_apply(struct linear *linear, int rows, const void *x, float *y)
{
    struct linear_shape *shape = linear->shapes, *last = linear->shapes + linear->shape_count - 1;
    while (shape < last && shape->rows < rows)
        shape++;
    if (shape->rows < rows)
        die("a product of %d rows; the largest that was readied has %d", rows, shape->rows);
    const struct linear_weights *weights = shape->rows == 1 ? &linear->one_row : &linear->many_rows;
    CHECK(dnnl_memory_set_data_handle(shape->x, (void *)x));
    CHECK(dnnl_memory_set_data_handle(shape->y, y));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, shape->x},
                                         {DNNL_ARG_WEIGHTS, weights->memory},
                                         {DNNL_ARG_DST, shape->y},
                                         {DNNL_ARG_SCRATCHPAD, shape->scratch}};
    CHECK(dnnl_primitive_execute(shape->primitive, cpu_stream(), 4, arguments));
}

size_t linear_bytes(const struct linear *linear)
{
    const struct linear_weights *both[] = {&linear->one_row, &linear->many_rows};
    size_t bytes = 0;
    for (int i = 0; i < 2; i++)
        bytes += both[i]->memory ? dnnl_memory_desc_get_size(&both[i]->layout) : 0;
    return bytes;
}

void linear_destroy(struct linear *linear)
{
    if (!linear)
        return;
    for (int i = 0; i < linear->shape_count; i++) {
        dnnl_primitive_destroy(linear->shapes[i].primitive);
        dnnl_memory_destroy(linear->shapes[i].x);
        dnnl_memory_destroy(linear->shapes[i].y);
        dnnl_memory_destroy(linear->shapes[i].scratch);
    }
    struct linear_weights *both[] = {&linear->one_row, &linear->many_rows};
    for (int i = 0; i < 2; i++) {
        if (both[i]->memory)
            dnnl_memory_destroy(both[i]->memory);
        free(both[i]->bytes);
    }
    free(linear);
}

/* --- small products
 * ------------------------------------------------------------------------------------------------------------- */

/* What a thread of a parallel region needs of its own. */
struct small_product_thread {
    dnnl_memory_t a, b, c, scratch;
};

struct small_product {
    dnnl_primitive_t primitive;
    int thread_count;
    struct small_product_thread threads[];
};

struct small_product *small_product_create(enum product_type type, int rows, int columns, int inner, bool transposed)
{
    int thread_count = omp_get_max_threads();
    struct small_product *product = xcalloc(1, sizeof *product + (size_t)thread_count * sizeof *product->threads);
    product->thread_count = thread_count;
    dnnl_memory_desc_t a, b, c;
    const dnnl_dims_t a_sizes = {rows, inner}, b_sizes = {inner, columns}, c_sizes = {rows, columns};
    CHECK(dnnl_memory_desc_init_by_tag(&a, 2, a_sizes, data_type(type), dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&b, 2, b_sizes, data_type(type), transposed ? dnnl_ba : dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&c, 2, c_sizes, dnnl_f32, dnnl_ab));
    omp_set_num_threads(1); /* oneDNN plans for the threads it sees: inside a parallel region it has one */
    dnnl_matmul_desc_t operation;
    CHECK(dnnl_matmul_desc_init(&operation, &a, &b, NULL, &c));
    dnnl_primitive_desc_t description = describe(&operation);
    CHECK(dnnl_primitive_create(&product->primitive, description));
    omp_set_num_threads(thread_count);
    size_t scratch = scratch_size(description);
    const dnnl_memory_desc_t *scratch_layout = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    for (int i = 0; i < thread_count; i++) {
        struct small_product_thread *thread = &product->threads[i];
        thread->a = wrap(&a, DNNL_MEMORY_NONE);
        thread->b = wrap(&b, DNNL_MEMORY_NONE);
        thread->c = wrap(&c, DNNL_MEMORY_NONE);
        thread->scratch = wrap(scratch_layout, scratch ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE);
    }
    CHECK(dnnl_primitive_desc_destroy(description));
    return product;
}

void small_product_apply(const struct small_product *product, const void *a, const void *b, float *c)
{
    const struct small_product_thread *thread = &product->threads[omp_get_thread_num()];
    CHECK(dnnl_memory_set_data_handle(thread->a, (void *)a));
    CHECK(dnnl_memory_set_data_handle(thread->b, (void *)b));
    CHECK(dnnl_memory_set_data_handle(thread->c, c));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, thread->a},
                                         {DNNL_ARG_WEIGHTS, thread->b},
                                         {DNNL_ARG_DST, thread->c},
                                         {DNNL_ARG_SCRATCHPAD, thread->scratch}};
    CHECK(dnnl_primitive_execute(product->primitive, cpu_stream(), 4, arguments));
}

void small_product_destroy(struct small_product *product)
{
    if (!product)
        return;
    for (int i = 0; i < product->thread_count; i++) {
        dnnl_memory_destroy(product->threads[i].a);
        dnnl_memory_destroy(product->threads[i].b);
        dnnl_memory_destroy(product->threads[i].c);
        dnnl_memory_destroy(product->threads[i].scratch);
    }
    dnnl_primitive_destroy(product->primitive);
    free(product);
}
