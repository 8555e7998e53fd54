#include "collect/record/numbers.h"

#include "collect/base/error.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LISTS_MAXIMUM = 16, DIGITS_MAXIMUM = 15, POWER_MAXIMUM = 22 }; /* within which a double holds every decimal */

#define MANTISSA_MAXIMUM ((int64_t)1000000000000000) /* more is not exact, and is left to the parser */

/* A line while it is taken apart. */
struct cursor {
    const char *at, *end;
    char *out;      /* behind what was copied */
    double *values; /* behind what was read */
};

static char peek(const struct cursor *cursor)
{
    return cursor->at < cursor->end ? *cursor->at : '\0';
}

static bool skip(struct cursor *cursor, char letter)
{
    const bool there = peek(cursor) == letter;
    cursor->at += there;
    return there;
}

/* --- a number ----------------------------------------------------------------------------------------------------- */

static bool is_digit(char letter)
{
    return letter >= '0' && letter <= '9';
}

/* The digits' value behind *mantissa; answers how many there were. */
static int take_digits(struct cursor *cursor, int64_t *mantissa)
{
    const char *start = cursor->at;
    for (; is_digit(peek(cursor)); cursor->at++)
        if (*mantissa < MANTISSA_MAXIMUM)
            *mantissa = 10 * *mantissa + (*cursor->at - '0');
    return cursor->at - start > POWER_MAXIMUM ? POWER_MAXIMUM : (int)(cursor->at - start);
}

static bool take_power(struct cursor *cursor, int *power)
{
    int64_t value = 0;
    if (!skip(cursor, 'e') && !skip(cursor, 'E'))
        return true;
    const bool negative = skip(cursor, '-');
    if (!negative)
        skip(cursor, '+');
    const int digits = take_digits(cursor, &value);
    *power += (int)(negative ? -value : value);
    return digits > 0 && digits < 4;
}

/* A number of few digits and a small power of ten, of which neither is rounded in a double; NaN: it has more. */
static double exact_value(int64_t mantissa, int digits, int power)
{
    static const double powers[POWER_MAXIMUM + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (digits > DIGITS_MAXIMUM || power > POWER_MAXIMUM || power < -POWER_MAXIMUM)
        return NAN;
    return power < 0 ? (double)mantissa / powers[-power] : (double)mantissa * powers[power];
}

/* As JSON has it. */
static bool take_number(struct cursor *cursor, double *number, bool *whole)
{
    const char *start = cursor->at;
    const bool negative = skip(cursor, '-'), zero = peek(cursor) == '0';
    int64_t mantissa = 0;
    const int digits = take_digits(cursor, &mantissa);
    if (digits == 0 || (zero && digits > 1))
        return false;
    const char *behind = cursor->at;
    const bool point = skip(cursor, '.');
    const int fraction = point ? take_digits(cursor, &mantissa) : 0;
    int power = -fraction;
    if ((point && fraction == 0) || !take_power(cursor, &power))
        return false;
    *whole = cursor->at == behind;
    *number = exact_value(mantissa, digits + fraction, power);
    if (isnan(*number) && !*whole)
        *number = fabs(strtod(start, NULL)); /* the line is followed by a newline */
    if (negative)
        *number = -*number;
    return isfinite(*number);
}

static bool take_null(struct cursor *cursor)
{
    const bool there = cursor->end - cursor->at >= 4 && memcmp(cursor->at, "null", 4) == 0;
    cursor->at += there ? 4 : 0;
    return there;
}

/* Behind the bracket, to behind the other one. */
static bool take_list(struct cursor *cursor, struct numbers *list)
{
    *list = (struct numbers){.values = cursor->values, .whole = true};
    if (skip(cursor, ']'))
        return true;
    do {
        bool whole = false;
        if (take_null(cursor))
            *cursor->values = NAN;
        else if (!take_number(cursor, cursor->values, &whole))
            return false;
        cursor->values++;
        list->count++;
        list->whole &= whole;
    } while (skip(cursor, ','));
    return skip(cursor, ']');
}

/* --- what is left ------------------------------------------------------------------------------------------------- */

/* From a quote to behind the next that ends the string. */
static bool pass_string(struct cursor *cursor)
{
    for (cursor->at++; cursor->at < cursor->end && *cursor->at != '"'; cursor->at++)
        if (*cursor->at == '\\')
            cursor->at++;
    return skip(cursor, '"');
}

/* To behind a value, whose brackets are counted and nothing else. */
static bool pass_value(struct cursor *cursor)
{
    int depth = 0;
    while (cursor->at < cursor->end) {
        const char letter = *cursor->at;
        if (depth == 0 && (letter == ',' || letter == '}'))
            return true;
        if (letter == '"' && !pass_string(cursor))
            return false;
        depth += (letter == '{' || letter == '[') - (letter == '}' || letter == ']');
        cursor->at += letter != '"';
    }
    return false;
}

static void copy(struct cursor *cursor, const char *from, const char *to)
{
    memcpy(cursor->out, from, (size_t)(to - from));
    cursor->out += to - from;
}

/* One member of the object; its list, where it is one of numbers. */
static bool take_member(struct cursor *cursor, struct numbers_taken *taken)
{
    const char *start = cursor->at;
    if (peek(cursor) != '"' || !pass_string(cursor) || !skip(cursor, ':'))
        return false;
    const char *value = cursor->at;
    if (memchr(start, '\\', (size_t)(value - start)))
        return false; /* the key may be another than it looks */
    if (taken->count < LISTS_MAXIMUM && skip(cursor, '[')) {
        struct numbers *list = &taken->lists[taken->count];
        if (take_list(cursor, list)) {
            list->key = start + 1;
            list->key_length = (size_t)(value - start) - 3;
            taken->count++;
            copy(cursor, start, value);
            copy(cursor, "[]", "[]" + 2);
            return true;
        }
        cursor->at = value;
    }
    if (!pass_value(cursor))
        return false;
    copy(cursor, start, cursor->at);
    return true;
}

static bool take_members(struct cursor *cursor, struct numbers_taken *taken)
{
    if (!skip(cursor, '{'))
        return false;
    *cursor->out++ = '{';
    while (take_member(cursor, taken)) {
        if (cursor->at == cursor->end)
            return false;
        *cursor->out++ = *cursor->at;
        if (skip(cursor, '}'))
            return cursor->at == cursor->end;
        if (!skip(cursor, ','))
            return false;
    }
    return false;
}

bool numbers_take(const char *line, size_t size, struct numbers_taken *taken)
{
    *taken = (struct numbers_taken){.text = xmalloc(size + 1),
                                    .lists = xcalloc(LISTS_MAXIMUM, sizeof *taken->lists),
                                    .values = xcalloc(size / 2 + 1, sizeof *taken->values)};
    struct cursor cursor = {line, line + size, taken->text, taken->values};
    if (take_members(&cursor, taken)) {
        taken->size = (size_t)(cursor.out - taken->text);
        return true;
    }
    numbers_free(taken);
    return false;
}

void numbers_free(struct numbers_taken *taken)
{
    free(taken->text);
    free(taken->lists);
    free(taken->values);
    *taken = (struct numbers_taken){0};
}

const struct numbers *numbers_find(const struct numbers_taken *taken, const char *key)
{
    for (int i = 0; taken && i < taken->count; i++)
        if (taken->lists[i].key_length == strlen(key) && memcmp(taken->lists[i].key, key, strlen(key)) == 0)
            return &taken->lists[i];
    return NULL;
}
