/* Mutations that know what JSON looks like, so that most of their results pass the parser and reach what reads it. */
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <string.h>

struct mutation {
    uint8_t *bytes;
    size_t size, capacity;
    const uint8_t *other;
    size_t other_size;
    uint64_t state;
};

struct range {
    size_t start, length;
};

/* splitmix64 */
static uint64_t draw(struct mutation *mutation)
{
    uint64_t value = mutation->state += 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

static size_t draw_below(struct mutation *mutation, size_t limit)
{
    return limit ? draw(mutation) % limit : 0;
}

static struct range draw_range(struct mutation *mutation, size_t size, size_t longest)
{
    size_t start = draw_below(mutation, size), room = size - start;
    return (struct range){start, draw_below(mutation, room < longest ? room : longest) + (room > 0)};
}

/* Puts text[length], which may lie within the bytes, in place of a range; nothing where there is no room. */
static void put(struct mutation *mutation, struct range range, const void *text, size_t length)
{
    static uint8_t copy[1 << 16];
    if (length > sizeof copy || mutation->size - range.length + length > mutation->capacity)
        return;
    memcpy(copy, text, length);
    uint8_t *at = mutation->bytes + range.start;
    memmove(at + length, at + range.length, mutation->size - range.start - range.length);
    memcpy(at, copy, length);
    mutation->size = mutation->size - range.length + length;
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

static void flip_bit(struct mutation *mutation)
{
    if (mutation->size)
        mutation->bytes[draw_below(mutation, mutation->size)] ^= (uint8_t)(1u << draw_below(mutation, 8));
}

static void set_byte(struct mutation *mutation)
{
    static const uint8_t values[] = {0, 1, '\n', '\r', ' ', '"', '\\', 0x7F, 0x80, 0xC0, 0xED, 0xF5, 0xFF};
    if (mutation->size)
        mutation->bytes[draw_below(mutation, mutation->size)] = values[draw_below(mutation, sizeof values)];
}

static void remove_range(struct mutation *mutation)
{
    put(mutation, draw_range(mutation, mutation->size, 64), "", 0);
}

static void repeat_range(struct mutation *mutation)
{
    struct range from = draw_range(mutation, mutation->size, 256);
    put(mutation, (struct range){draw_below(mutation, mutation->size + 1), 0}, mutation->bytes + from.start,
        from.length);
}

static void truncate_bytes(struct mutation *mutation)
{
    mutation->size = draw_below(mutation, mutation->size + 1);
}

static void splice(struct mutation *mutation)
{
    struct range from = draw_range(mutation, mutation->other_size, 4096);
    if (mutation->other_size)
        put(mutation, draw_range(mutation, mutation->size, 64), mutation->other + from.start, from.length);
}

static void insert_text(struct mutation *mutation)
{
    static const char *const texts[] = {"\xEF\xBB\xBF",
                                        "\r\n",
                                        "\\u0000",
                                        "\\uD800",
                                        "\\uDC00\\uD800",
                                        "\xC0\x80",
                                        "\xED\xA0\x80",
                                        "\xE2\x80\xA8",
                                        "\xF4\x90\x80\x80",
                                        "\xCC\x81\xCC\x81",
                                        "\x1B[2J",
                                        "%s%n",
                                        "../",
                                        "\\",
                                        "\"",
                                        ",",
                                        "{\"\":"};
    const char *text = texts[draw_below(mutation, sizeof texts / sizeof *texts)];
    size_t at = draw_below(mutation, 8) ? draw_below(mutation, mutation->size + 1) : 0;
    put(mutation, (struct range){at, 0}, text, strlen(text));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static size_t skip_string(const struct mutation *mutation, size_t at)
{
    for (at++; at < mutation->size && mutation->bytes[at] != '"'; at++)
        at += mutation->bytes[at] == '\\';
    return at + 1 < mutation->size ? at + 1 : mutation->size;
}

/* Where a value ends that starts at `at`: at the comma or bracket behind it. */
static size_t skip_value(const struct mutation *mutation, size_t at)
{
    int depth = 0;
    while (at < mutation->size) {
        uint8_t byte = mutation->bytes[at];
        if (depth == 0 && (byte == ',' || byte == '}' || byte == ']'))
            return at;
        depth += (byte == '{' || byte == '[') - (byte == '}' || byte == ']');
        at = byte == '"' ? skip_string(mutation, at) : at + 1;
    }
    return at;
}

/* A member of some object: its key, and its value. */
static bool find_member(struct mutation *mutation, struct range *member, struct range *value)
{
    size_t first = draw_below(mutation, mutation->size);
    for (size_t at = first; at < mutation->size; at++) {
        if (mutation->bytes[at] != '"' || (at > 0 && !strchr("{, \n\t", mutation->bytes[at - 1])))
            continue;
        size_t colon = skip_string(mutation, at);
        while (colon < mutation->size && isspace(mutation->bytes[colon]))
            colon++;
        if (colon >= mutation->size || mutation->bytes[colon] != ':')
            continue;
        size_t end = skip_value(mutation, colon + 1);
        *value = (struct range){colon + 1, end - colon - 1};
        *member = (struct range){at, end - at};
        return true;
    }
    return false;
}

static void swap_number(struct mutation *mutation)
{
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "2",
                                          "3",
                                          "255",
                                          "256",
                                          "65537",
                                          "2147483647",
                                          "2147483648",
                                          "4294967297",
                                          "9007199254740993",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "1e999",
                                          "-1e999",
                                          "1e308",
                                          "-1e308",
                                          "5e-324",
                                          "0.5",
                                          "-0",
                                          "1e15",
                                          "1.5"};
    size_t at = draw_below(mutation, mutation->size);
    while (at < mutation->size && !isdigit(mutation->bytes[at]))
        at++;
    size_t end = at;
    while (end < mutation->size && (isalnum(mutation->bytes[end]) || strchr("+-.", mutation->bytes[end])))
        end++;
    const char *number = numbers[draw_below(mutation, sizeof numbers / sizeof *numbers)];
    if (at < mutation->size)
        put(mutation, (struct range){at, end - at}, number, strlen(number));
}

static void swap_value(struct mutation *mutation)
{
    static const char *const values[] = {"null", "true", "false",     "\"\"", "[]",        "{}",
                                         "0",    "-1.5", "\"a\\nb\"", "[[]]", "{\"a\":{}}"};
    const char *text = values[draw_below(mutation, sizeof values / sizeof *values)];
    struct range member, value;
    if (find_member(mutation, &member, &value))
        put(mutation, value, text, strlen(text));
}

static void copy_value(struct mutation *mutation)
{
    struct range member, from, to;
    if (find_member(mutation, &member, &from) && find_member(mutation, &member, &to))
        put(mutation, to, mutation->bytes + from.start, from.length);
}

static void remove_member(struct mutation *mutation)
{
    struct range member, value;
    if (!find_member(mutation, &member, &value))
        return;
    size_t end = member.start + member.length;
    member.length += end < mutation->size && mutation->bytes[end] == ',';
    put(mutation, member, "", 0);
}

/* The same key twice in one object. */
static void repeat_member(struct mutation *mutation)
{
    struct range member, value;
    if (!find_member(mutation, &member, &value))
        return;
    struct range gap = {member.start + member.length, 0};
    put(mutation, gap, mutation->bytes + member.start, member.length);
    put(mutation, gap, ",", 1);
}

static void rename_key(struct mutation *mutation)
{
    struct range member, value, other, ignored;
    if (!find_member(mutation, &member, &value) || !find_member(mutation, &other, &ignored))
        return;
    size_t length = skip_string(mutation, member.start) - member.start;
    size_t other_length = skip_string(mutation, other.start) - other.start;
    put(mutation, (struct range){member.start, length}, mutation->bytes + other.start, other_length);
}

/* Around Jansson's limit of 2048 levels, and beyond. */
static void nest_value(struct mutation *mutation)
{
    static const size_t depths[] = {1, 2, 100, 2040, 2048, 5000};
    static uint8_t brackets[5000];
    struct range member, value;
    if (!find_member(mutation, &member, &value))
        return;
    size_t depth = depths[draw_below(mutation, sizeof depths / sizeof *depths)];
    if (mutation->size + 2 * depth > mutation->capacity)
        return;
    memset(brackets, ']', depth);
    put(mutation, (struct range){value.start + value.length, 0}, brackets, depth);
    memset(brackets, '[', depth);
    put(mutation, (struct range){value.start, 0}, brackets, depth);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static struct range find_line(struct mutation *mutation)
{
    size_t start = draw_below(mutation, mutation->size), end = start;
    while (start > 0 && mutation->bytes[start - 1] != '\n')
        start--;
    while (end < mutation->size && mutation->bytes[end++] != '\n')
        continue;
    return (struct range){start, end - start};
}

static void repeat_line(struct mutation *mutation)
{
    struct range line = find_line(mutation), other = find_line(mutation);
    put(mutation, (struct range){other.start, 0}, mutation->bytes + line.start, line.length);
}

static void remove_line(struct mutation *mutation)
{
    put(mutation, find_line(mutation), "", 0);
}

typedef void mutate(struct mutation *mutation);

size_t fuzz_mutate(uint8_t *bytes, size_t size, size_t capacity, const uint8_t *other, size_t other_size, uint64_t seed)
{
    static mutate *const all[] = {flip_bit,   set_byte,    remove_range,  repeat_range,  truncate_bytes,
                                  splice,     insert_text, swap_number,   swap_number,   swap_value,
                                  swap_value, copy_value,  remove_member, repeat_member, rename_key,
                                  nest_value, repeat_line, remove_line};
    struct mutation mutation = {bytes, size, capacity, other, other_size, seed};
    size_t count = 1 + draw_below(&mutation, 3);
    for (size_t i = 0; i < count; i++)
        all[draw_below(&mutation, sizeof all / sizeof *all)](&mutation);
    return mutation.size;
}
