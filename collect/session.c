#include "collect/session.h"

#include "collect/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct moment {
    const char *boot_id;
    int64_t started_s;
    int attempt;
};

static int compare_moments(const void *a, const void *b)
{
    const struct moment *left = a, *right = b;
    int boots = strcmp(left->boot_id, right->boot_id);
    return boots ? boots : (left->started_s > right->started_s) - (left->started_s < right->started_s);
}

static int gather_moments(const struct run *run, struct moment *moments)
{
    int count = 0;
    for (int i = 0; i < run->attempt_count; i++) {
        const struct attempt *attempt = &run->attempts[i].attempt;
        int64_t started_s = attempt->started ? clock_parse_utc(attempt->started) : -1;
        if (attempt->boot_id && started_s >= 0)
            moments[count++] = (struct moment){attempt->boot_id, started_s, i};
    }
    return count;
}

void sessions_init(const struct run *run, const char *boot_id, int64_t now_s, struct sessions *sessions)
{
    struct moment *moments = xcalloc((size_t)run->attempt_count + 1, sizeof *moments);
    *sessions = (struct sessions){.of_attempt = xcalloc((size_t)run->attempt_count, sizeof(int)), .current = -1};
    for (int i = 0; i < run->attempt_count; i++)
        sessions->of_attempt[i] = -1;
    int count = gather_moments(run, moments);
    moments[count++] = (struct moment){boot_id, now_s, -1};
    qsort(moments, (size_t)count, sizeof *moments, compare_moments);

    const struct moment *first = NULL;
    int number = -1;
    for (int i = 0; i < count; i++) {
        if (!first || strcmp(first->boot_id, moments[i].boot_id) != 0 ||
            moments[i].started_s - first->started_s > SESSION_HOURS * 3600) {
            first = &moments[i];
            number++;
        }
        if (moments[i].attempt < 0)
            sessions->current = number;
        else
            sessions->of_attempt[moments[i].attempt] = number;
    }
    free(moments);
}

void sessions_free(struct sessions *sessions)
{
    free(sessions->of_attempt);
    *sessions = (struct sessions){0};
}
