#include "collect/record/sample_scan.h"

#include "collect/base/name.h"
#include "collect/record/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { DIGITS_MAXIMUM = 15, POWER_MAXIMUM = 22 }; /* within which a double holds every decimal */

#define MANTISSA_MAXIMUM ((int64_t)1000000000000000) /* more is not exact, and is left to strtod() */

/* Where the line is read. The byte at its end belongs to no value, so that nothing is read behind it. */
struct cursor {
    const char *at, *end;
};

static bool skip(struct cursor *cursor, char letter)
{
    const bool there = *cursor->at == letter;
    cursor->at += there;
    return there;
}

static bool skip_text(struct cursor *cursor, const char *text)
{
    const size_t length = strlen(text);
    const bool there = strncmp(cursor->at, text, length) == 0;
    cursor->at += there ? length : 0;
    return there;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static bool is_digit(char letter)
{
    return letter >= '0' && letter <= '9';
}

/* The digits' value behind *mantissa; answers how many there were. */
static int take_digits(struct cursor *cursor, int64_t *mantissa)
{
    const char *start = cursor->at;
    for (; is_digit(*cursor->at); cursor->at++)
        if (*mantissa < MANTISSA_MAXIMUM)
            *mantissa = 10 * *mantissa + (*cursor->at - '0');
    return cursor->at - start > POWER_MAXIMUM ? POWER_MAXIMUM : (int)(cursor->at - start);
}

/* From 0 to `maximum`. */
static bool take_whole(struct cursor *cursor, int64_t maximum, int64_t *value)
{
    const bool zero = *cursor->at == '0';
    *value = 0;
    const int digits = take_digits(cursor, value);
    return digits > 0 && digits <= DIGITS_MAXIMUM && !(zero && digits > 1) && *value <= maximum && *cursor->at != '.' &&
           *cursor->at != 'e' && *cursor->at != 'E';
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

static bool take_real(struct cursor *cursor, double *number)
{
    const char *start = cursor->at;
    const bool negative = skip(cursor, '-'), zero = *cursor->at == '0';
    int64_t mantissa = 0;
    const int digits = take_digits(cursor, &mantissa);
    if (digits == 0 || (zero && digits > 1))
        return false;
    const char *whole = cursor->at;
    const bool point = skip(cursor, '.');
    const int fraction = point ? take_digits(cursor, &mantissa) : 0;
    int power = -fraction;
    if ((point && fraction == 0) || !take_power(cursor, &power))
        return false;
    *number = exact_value(mantissa, digits + fraction, power);
    if (isnan(*number) && cursor->at == whole)
        return false; /* an integer that may be too large for the parser */
    if (isnan(*number))
        *number = fabs(strtod(start, NULL));
    if (negative)
        *number = -*number;
    return true;
}

/* --- lists, of as many entries as the sample said before ---------------------------------------------------------- */

static bool take_whole_list(struct cursor *cursor, int count, int64_t maximum, int **values)
{
    *values = xcalloc((size_t)count, sizeof **values);
    int64_t value;
    for (int i = 0; i < count; i++) {
        if (!take_whole(cursor, maximum, &value) || (i < count - 1 && !skip(cursor, ',')))
            return false;
        (*values)[i] = (int)value;
    }
    return true;
}

static bool take_times(struct cursor *cursor, int count, int64_t **values)
{
    *values = xcalloc((size_t)count, sizeof **values);
    for (int i = 0; i < count; i++)
        if (!take_whole(cursor, SAMPLE_TIME_MAXIMUM_NS, &(*values)[i]) || (i < count - 1 && !skip(cursor, ',')))
            return false;
    return true;
}

static bool take_margins(struct cursor *cursor, int count, float **values)
{
    *values = xcalloc((size_t)count, sizeof **values);
    for (int i = 0; i < count; i++) {
        double value = NAN;
        const bool known = !skip_text(cursor, "null");
        if ((known && (!take_real(cursor, &value) || fabs(value) > (double)FLT_MAX)) ||
            (i < count - 1 && !skip(cursor, ',')))
            return false;
        (*values)[i] = (float)value;
    }
    return true;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

enum kind { NAME, OUTCOME, FINISH, FLAG, COUNT, TIME, COUNTS, TIMES, MARGINS, OBJECT };

/* What a key's value goes to, as offsets into struct sample. */
struct member {
    const char *key; /* NULL ends a table */
    enum kind kind;
    size_t to;
    size_t count;                 /* of a list: the sample's int that says how long it is */
    int maximum;                  /* of the integers */
    const struct member *members; /* of an object */
};

#define AT(name) offsetof(struct sample, name)

static const struct member members_of_asked[] = {
    {"max_new_tokens", COUNT, AT(asked_tokens), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"ignore_eos", FLAG, AT(asked_ignore_eos)},
    {0},
};

static const struct member members_of_stages[] = {
    {"draft", TIME, AT(stages_ns[STAGE_DRAFT])},   {"build", TIME, AT(stages_ns[STAGE_BUILD])},
    {"verify", TIME, AT(stages_ns[STAGE_VERIFY])}, {"commit", TIME, AT(stages_ns[STAGE_COMMIT])},
    {"communicate", TIME, AT(communicate_ns)},     {0},
};

static const struct member members_of_line[] = {
    {"workload", NAME, AT(workload)},
    {"prompt", NAME, AT(prompt)},
    {"warmup", FLAG, AT(warmup)},
    {"prompt_tokens", COUNT, AT(prompt_tokens), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"cached_tokens", COUNT, AT(cached_tokens), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"asked", OBJECT, .members = members_of_asked},
    {"outcome", OUTCOME},
    {"tokens", COUNT, AT(tokens), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"first_tokens", COUNT, AT(first_tokens), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"token_ids", COUNTS, AT(token_ids), AT(tokens), INT32_MAX},
    {"margins", MARGINS, AT(margins), AT(tokens)},
    {"finish", FINISH},
    {"start_ns", TIME, AT(start_ns)},
    {"ttft_ns", TIME, AT(ttft_ns)},
    {"decode_ns", TIME, AT(decode_ns)},
    {"end_ns", TIME, AT(end_ns)},
    {"stall_ns", TIME, AT(stall_ns)},
    {"rounds", COUNT, AT(rounds), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"accepted", COUNTS, AT(accepted), AT(rounds), SAMPLE_ACCEPTED_MAXIMUM},
    {"stages_ns", OBJECT, .members = members_of_stages},
    {"chunks", COUNT, AT(chunks), .maximum = SAMPLE_TOKENS_MAXIMUM},
    {"chunk_ns", TIMES, AT(chunk_ns), AT(chunks)},
    {"chunk_tokens", COUNTS, AT(chunk_tokens), AT(chunks), SAMPLE_TOKENS_MAXIMUM},
    {0},
};

/* A string of valid UTF-8 without escapes. */
static bool take_name(struct cursor *cursor, const char **name)
{
    const char *start = cursor->at + 1;
    if (!skip(cursor, '"'))
        return false;
    while (*cursor->at != '"') {
        const unsigned char letter = (unsigned char)*cursor->at;
        utf8proc_int32_t point;
        if (letter < ' ' || letter == '\\')
            return false;
        const utf8proc_ssize_t length =
            letter < 0x80 ? 1
                          : utf8proc_iterate((const utf8proc_uint8_t *)cursor->at, cursor->end - cursor->at, &point);
        if (length < 1)
            return false;
        cursor->at += length;
    }
    *name = name_keep_bytes(start, (size_t)(cursor->at - start));
    return skip(cursor, '"');
}

static bool take_finish(struct cursor *cursor, enum finish *finish)
{
    if (!skip(cursor, '"'))
        return false;
    for (int i = FINISH_ABSENT + 1; i < FINISH_COUNT && *finish == FINISH_ABSENT; i++)
        if (skip_text(cursor, finish_names[i]))
            *finish = (enum finish)i;
    return *finish != FINISH_ABSENT && skip(cursor, '"');
}

static bool take_flag(struct cursor *cursor, bool *flag)
{
    *flag = skip_text(cursor, "true");
    return *flag || skip_text(cursor, "false");
}

static bool take_list(struct cursor *cursor, const struct member *member, struct sample *sample)
{
    void *to = (char *)sample + member->to;
    const int count = *(const int *)((const char *)sample + member->count);
    bool taken = count >= 0 && skip(cursor, '[');
    if (taken && member->kind == COUNTS)
        taken = take_whole_list(cursor, count, member->maximum, to);
    else if (taken && member->kind == TIMES)
        taken = take_times(cursor, count, to);
    else if (taken)
        taken = take_margins(cursor, count, to);
    return taken && skip(cursor, ']');
}

static bool take_members(struct cursor *cursor, const struct member *members, struct sample *sample);

static bool take_value(struct cursor *cursor, const struct member *member, struct sample *sample)
{
    void *to = (char *)sample + member->to;
    int64_t value;
    switch (member->kind) {
    case NAME:
        return take_name(cursor, to);
    case OUTCOME:
        return sample->ok = skip_text(cursor, "\"ok\"");
    case FINISH:
        return take_finish(cursor, &sample->finish);
    case FLAG:
        return take_flag(cursor, to);
    case COUNT:
        if (!take_whole(cursor, member->maximum, &value))
            return false;
        *(int *)to = (int)value;
        return true;
    case TIME:
        return take_whole(cursor, SAMPLE_TIME_MAXIMUM_NS, to);
    case OBJECT:
        return skip(cursor, '{') && take_members(cursor, member->members, sample);
    default:
        return take_list(cursor, member, sample);
    }
}

/* The first of the members whose key stands here, quotes and colon passed; NULL: none does. */
static const struct member *take_key(struct cursor *cursor, const struct member *members)
{
    if (!skip(cursor, '"'))
        return NULL;
    for (; members->key; members++) {
        const size_t length = strlen(members->key);
        if (strncmp(cursor->at, members->key, length) == 0 && cursor->at[length] == '"') {
            cursor->at += length + 1;
            return skip(cursor, ':') ? members : NULL;
        }
    }
    return NULL;
}

/* To behind the object's end. As each key stands behind the one before in the table, none comes twice. */
static bool take_members(struct cursor *cursor, const struct member *members, struct sample *sample)
{
    do {
        const struct member *member = take_key(cursor, members);
        if (!member || !take_value(cursor, member, sample))
            return false;
        members = member + 1;
    } while (skip(cursor, ','));
    return skip(cursor, '}');
}

bool sample_scan(const char *line, size_t size, struct sample *sample)
{
    struct cursor cursor = {line, line + size};
    sample_init(sample);
    if (!skip_text(&cursor, "{\"type\":\"sample\",") || !take_members(&cursor, members_of_line, sample) ||
        cursor.at != cursor.end || !sample->workload || !sample->prompt || !sample->ok) {
        sample_free(sample);
        return false;
    }
    if (sample->accepted)
        sample->committed = sample_sum_accepted(sample);
    return true;
}
