#include "render/latex.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct command {
    utf8proc_int32_t point;
    const char *text;
};

static const struct command commands[] = {
    {'\\', "\\textbackslash{}"},
    {'{', "\\{"},
    {'}', "\\}"},
    {'$', "\\$"},
    {'&', "\\&"},
    {'#', "\\#"},
    {'_', "\\_"},
    {'%', "\\%"},
    {'^', "\\textasciicircum{}"},
    {'~', "\\textasciitilde{}"},
    {'<', "\\textless{}"},
    {'>', "\\textgreater{}"},
    {'|', "\\textbar{}"},
    {'"', "\\textquotedbl{}"},
    {'`', "\\textasciigrave{}"},
    {'[', "{[}"},
    {'*', "{*}"}, /* which would be read as arguments of the \\ before them */
    {'\t', " "},
    {'\n', " "},
    {'\r', " "},
    {0xA0, "~"},
    {0xA7, "\\S{}"},
    {0xB0, "\\textdegree{}"},
    {0xB1, "\\textpm{}"},
    {0xB5, "\\textmu{}"},
    {0xB7, "\\textperiodcentered{}"},
    {0xD7, "\\texttimes{}"},
    {0x2013, "--"},
    {0x2014, "---"},
    {0x2018, "`"},
    {0x2019, "'"},
    {0x201C, "``"},
    {0x201D, "''"},
    {0x2026, "\\textellipsis{}"},
    {0x2192, "$\\to$"},
    {0x2190, "$\\leftarrow$"},
    {0x2212, "$-$"},
    {0x2248, "$\\approx$"},
    {0x2260, "$\\neq$"},
    {0x2264, "$\\le$"},
    {0x2265, "$\\ge$"},
    {0x3B1, "$\\alpha$"},
    {0x3B2, "$\\beta$"},
    {0x3B3, "$\\gamma$"},
    {0x3B4, "$\\delta$"},
    {0x3B5, "$\\varepsilon$"},
    {0x3B8, "$\\theta$"},
    {0x3BB, "$\\lambda$"},
    {0x3BC, "$\\mu$"},
    {0x3C0, "$\\pi$"},
    {0x3C3, "$\\sigma$"},
    {0x3C4, "$\\tau$"},
    {0x3C6, "$\\varphi$"},
    {0x3C9, "$\\omega$"},
    {0x394, "$\\Delta$"},
    {0x3A3, "$\\Sigma$"},
    {0, NULL},
};

static const char *find_command(utf8proc_int32_t point)
{
    const struct command *command = commands;
    while (command->text && command->point != point)
        command++;
    return command->text;
}

/* Letters that the T1 encoding's fonts have: Latin-1's, and Latin Extended-A without the few it lacks. */
static bool is_latin(utf8proc_int32_t point)
{
    static const utf8proc_int32_t lacking[] = {0xD7,  0xF7,  0x126, 0x127, 0x138, 0x13F,
                                               0x140, 0x149, 0x166, 0x167, 0x17F};
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (point == lacking[i])
            return false;
    return point >= 0xC0 && point <= 0x17E;
}

static void put(FILE *out, const char *text, const char *break_after)
{
    if (!text) {
        fputs("---", out);
        return;
    }
    size_t size = strlen(text);
    utf8proc_int32_t last = 0;
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t point;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(size - at), &point);
        if (length <= 0) {
            length = 1;
            point = 0xFFFD;
        }
        const char *command = find_command(point);
        bool ligature = point == last && (point == '-' || point == ',' || point == '\'');
        if (command)
            fputs(command, out);
        else if ((point >= ' ' && point < 0x7F) || is_latin(point))
            fprintf(out, "%s%.*s", ligature ? "{}" : "", (int)length, text + at);
        else
            fprintf(out, "U+%04X", (unsigned)point);
        bool number = point == '.' && text[at + 1] >= '0' && text[at + 1] <= '9';
        if (break_after && point < 0x7F && strchr(break_after, (int)point) && !number)
            fputs("\\allowbreak{}", out);
        last = point;
        at += (size_t)length;
    }
}

void latex_put(FILE *out, const char *text)
{
    put(out, text, NULL);
}

void latex_put_breakable(FILE *out, const char *text)
{
    put(out, text, LATEX_BREAKS);
}

void latex_put_narrow(FILE *out, const char *text)
{
    bool wide = text && strlen(text) > LATEX_NARROW;
    fputs(wide ? "\\parbox[t]{7.5em}{\\raggedright\\hspace{0pt}" : "", out);
    latex_put_breakable(out, text);
    fputs(wide ? "\\strut}" : "", out);
}

char *latex_escape(const char *text)
{
    char *bytes;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        die("out of memory");
    latex_put(out, text);
    fclose(out);
    return bytes;
}

void latex_put_missing(FILE *out, const struct missing *missing)
{
    fputs("---", out);
    if (missing->rule) {
        fputs("\\,{\\scriptsize ", out);
        latex_put(out, missing->rule);
        fputs("}", out);
    }
}

void latex_put_p(FILE *out, double p)
{
    if (isnan(p))
        fputs("---", out);
    else if (p < .001)
        fputs("$<$\\,0.001", out);
    else
        fprintf(out, "%.3f", p);
}

int latex_decimals(double largest)
{
    int decimals = 3;
    for (double limit = 10; decimals > 0 && largest >= limit; limit *= 10)
        decimals--;
    return decimals;
}

/* Decimals by which the number does not print as 1. */
static int telling_from_one(double value)
{
    int decimals = 0;
    while (decimals < LATEX_DECIMALS_MOST && value != 1 && fabs(value - 1) <= 0.5 * pow(10, -decimals))
        decimals++;
    return decimals;
}

int latex_decimals_beside_one(double low, double high)
{
    return low > 1 ? telling_from_one(low) : high < 1 ? telling_from_one(high) : 0;
}

int latex_digits(double value, int decimals)
{
    char text[400];
    snprintf(text, sizeof text, "%.*f", decimals, fabs(value));
    return (int)strcspn(text, ".");
}

/* As siunitx groups them: by three, from five on. */
static bool is_group_end(int digits, int left)
{
    return digits >= LATEX_GROUPED_FROM && left > 0 && left % 3 == 0;
}

/* What a number of `digits` digits is longer than this one. */
static void put_padding(FILE *out, double value, int decimals, int digits)
{
    const int own = latex_digits(value, decimals);
    if (digits <= own)
        return;
    fputs("\\phantom{", out);
    for (int left = digits - 1; left >= 0; left--) {
        fputs(left >= own ? "0" : "", out);
        fputs(is_group_end(digits, left) && !(left < own && is_group_end(own, left)) ? "\\," : "", out);
    }
    fputs("}", out);
}

void latex_put_number(FILE *out, double value, int decimals)
{
    char text[400];
    snprintf(text, sizeof text, "%.*f", decimals, fabs(value));
    const int digits = latex_digits(value, decimals);
    fputs(value < 0 ? "$-$" : "", out);
    for (int i = 0; i < digits; i++)
        fprintf(out, "%c%s", text[i], is_group_end(digits, digits - 1 - i) ? "\\," : "");
    fputs(text + digits, out);
}

void latex_put_range(FILE *out, double low, double high, int decimals, int digits)
{
    put_padding(out, low, decimals, digits);
    fputs("[", out);
    latex_put_number(out, low, decimals);
    fputs(", ", out);
    put_padding(out, high, decimals, digits);
    latex_put_number(out, high, decimals);
    fputs("]", out);
}
