#include "collect/record/attempt.h"

#include "collect/base/file.h"
#include "collect/base/json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct attempt_writer {
    char *path;
    int descriptor;
    int samples, failed;
    bool broken; /* a line may stand there in part: nothing may follow it */
};

static bool has_text(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && strcmp(value, text) == 0;
}

enum { FLOAT_DIGITS = 9 }; /* which tell any float32 from the next */

/* Of a sample the reals are margins, which are float32. */
static char *dump_line(const json_t *line)
{
    const bool sample = has_text(line, "type", "sample");
    char *text = json_dumps(line, JSON_COMPACT | (sample ? JSON_REAL_PRECISION(FLOAT_DIGITS) : 0));
    if (!text)
        die("cannot write JSON");
    return text;
}

/* The first line, with type and schema in front. */
static char *dump_header(const json_t *header)
{
    json_t *line = json_object();
    json_set(line, "type", json_string("attempt"));
    json_set(line, "schema", json_string(ATTEMPT_SCHEMA));
    if (json_object_update_missing(line, (json_t *)header))
        die("cannot write JSON");
    char *text = dump_line(line);
    json_decref(line);
    return text;
}

struct attempt_writer *attempt_writer_open(const char *path, json_t *header, struct error *error)
{
    struct attempt_writer *writer = NULL;
    char *text = dump_header(header), *line = xformat("%s\n", text);
    int descriptor = -1;
    json_decref(header);
    if (file_exists(path)) {
        fail(error, "%s: exists already; an attempt is never written over", path);
        goto out;
    }
    if (file_write_whole(path, line, strlen(line), error))
        goto out;
    descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor < 0) {
        fail_errno(error, "%s: cannot open", path);
        goto out;
    }
    writer = xcalloc(1, sizeof *writer);
    writer->path = xstrdup(path);
    writer->descriptor = descriptor;
out:
    free(text);
    free(line);
    return writer;
}

/* All of them, a newline between two. free() it. */
static char *dump_lines(const json_t *lines)
{
    char *text = NULL;
    size_t size, i;
    const json_t *line;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        die("out of memory for the lines of an attempt");
    json_array_foreach(lines, i, line)
    {
        char *one = dump_line(line);
        fprintf(stream, "%s%s", i ? "\n" : "", one);
        free(one);
    }
    if (fclose(stream))
        die("out of memory for the lines of an attempt");
    return text;
}

int attempt_writer_add_all(struct attempt_writer *writer, json_t *lines, struct error *error)
{
    int result = -1;
    char *text = dump_lines(lines);
    if (writer->broken)
        fail(error, "%s: a line could not be written whole; this attempt cannot go on", writer->path);
    else
        result = file_append_line(writer->descriptor, writer->path, text, error);
    writer->broken = result != 0;
    for (size_t i = 0; !result && i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        const bool sample = has_text(line, "type", "sample");
        writer->samples += sample;
        writer->failed += sample && !has_text(line, "outcome", "ok");
    }
    free(text);
    json_decref(lines);
    return result;
}

int attempt_writer_add(struct attempt_writer *writer, json_t *line, struct error *error)
{
    json_t *lines = json_array();
    json_append(lines, line);
    return attempt_writer_add_all(writer, lines, error);
}

static json_t *audit_to_json(const struct audit *audit)
{
    json_t *object = json_object();
    json_set(object, "regret_max", json_number(audit->regret_max));
    if (audit->tokens >= 0)
        json_set(object, "tokens", json_integer(audit->tokens));
    return object;
}

static json_t *end_to_json(const struct attempt_writer *writer, const struct attempt_end *end)
{
    json_t *line = json_object(), *observed = end->observed ? observed_to_json(end->observed) : NULL;
    json_set(line, "type", json_string("end"));
    json_set(line, "status", json_string(end->status));
    json_set(line, "samples", json_integer(writer->samples));
    json_set(line, "failed", json_integer(writer->failed));
    if (end->error_code) {
        json_t *reason = json_object();
        json_set(reason, "code", json_text(end->error_code));
        json_set(reason, "message", json_text(end->error_message));
        json_set(line, "error", reason);
    }
    if (end->audit && end->audit->done)
        json_set(line, "audit", audit_to_json(end->audit));
    if (observed)
        json_set(line, "observed", observed);
    return line;
}

int attempt_writer_end(struct attempt_writer *writer, const struct attempt_end *end, char *hex, struct error *error)
{
    json_t *line = end_to_json(writer, end);
    int result = attempt_writer_add(writer, line, error);
    if (!result)
        result = file_hash(writer->path, hex, error);
    attempt_writer_abandon(writer);
    return result;
}

void attempt_writer_abandon(struct attempt_writer *writer)
{
    close(writer->descriptor);
    free(writer->path);
    free(writer);
}
