#include "collect/server/metrics.h"

#include "collect/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The number behind `name` where the line is of that metric; NaN where not. */
static double read_line(const char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) != 0)
        return NAN;
    line += length;
    if (strncmp(line, "_total", 6) == 0)
        line += 6;
    if (*line == '{') {
        const char *end = line + strcspn(line, "\n"), *brace = memchr(line, '}', (size_t)(end - line));
        for (const char *next = brace; next && (next = memchr(next + 1, '}', (size_t)(end - next - 1)));)
            brace = next; /* a label's value may hold one */
        if (!brace)
            return NAN;
        line = brace + 1;
    }
    char *end;
    double value = *line == ' ' || *line == '\t' ? strtod(line, &end) : NAN;
    return isfinite(value) ? value : NAN;
}

double metrics_sum(const char *text, const char *name)
{
    double sum = NAN;
    for (const char *line = text; name && line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        double value = read_line(line, name);
        if (!isnan(value))
            sum = isnan(sum) ? value : sum + value;
    }
    return isfinite(sum) ? sum : NAN;
}

double metrics_label(const char *text, const char *name, const char *label)
{
    double value = NAN;
    char *mark = xformat("%s=\"", label);
    for (const char *line = text; name && line && isnan(value);
         line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *end = line + strcspn(line, "\n"), *at = NULL;
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '{')
            at = memmem(line, (size_t)(end - line), mark, strlen(mark));
        value = at ? strtod(at + strlen(mark), NULL) : NAN;
    }
    free(mark);
    return isfinite(value) ? value : NAN;
}
