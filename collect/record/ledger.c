#include "collect/record/ledger.h"

#include "collect/base/clock.h"
#include "collect/base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((size_t)256 << 20)
#define LINE_LIMIT ((size_t)16 << 20)

static const char *const actor_names[] = {"collect", "rule", "user"};

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A line that has its newline. */
struct line {
    const char *text;
    size_t offset, size;
    char hash[FILE_HASH_SIZE];
    json_t *entry; /* NULL: no JSON object */
};

static size_t count_lines(const char *text, size_t size)
{
    size_t count = 0;
    const char *at = text, *end = text + size;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        count++;
    }
    return count;
}

/* The file's complete lines, *count of them, and the bytes behind the last. free() the array, decref its entries. */
static struct line *split_lines(const char *text, size_t size, size_t *count, long *torn_bytes)
{
    *count = count_lines(text, size);
    struct line *lines = xcalloc(*count, sizeof *lines);
    size_t offset = 0;
    for (size_t i = 0; i < *count; i++) {
        const char *start = text + offset, *newline = memchr(start, '\n', size - offset);
        size_t length = (size_t)(newline - start);
        lines[i] = (struct line){.text = start, .offset = offset, .size = length};
        file_hash_bytes(start, length, lines[i].hash);
        struct error ignored = {0};
        if (length <= LINE_LIMIT)
            lines[i].entry = json_read_text(start, length, "", &ignored);
        offset += length + 1;
    }
    *torn_bytes = (long)(size - offset);
    return lines;
}

static bool has_text(const json_t *entry, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(entry, key));
    return value && strcmp(value, text) == 0;
}

/* Whether `next` says of `line` that it was torn. */
static bool is_recovered(const struct line *line, const struct line *next)
{
    const json_t *offset = json_object_get(next->entry, "offset");
    return has_text(next->entry, "action", "recover") && has_text(next->entry, "sha256", line->hash) &&
           json_is_integer(offset) && json_integer_value(offset) == (json_int_t)line->offset;
}

static int next_sequence(const struct ledger *ledger)
{
    return (int)json_array_size(ledger->lines) + 1;
}

static bool is_chained(const struct ledger *ledger, const struct line *line)
{
    const json_t *sequence = json_object_get(line->entry, "seq");
    return json_is_integer(sequence) && json_integer_value(sequence) == next_sequence(ledger) &&
           has_text(line->entry, "prev", ledger->head);
}

/* Takes the lines in order. A torn one is no link of the chain: the `recover` entry behind it follows the line before.
 */
static void link_lines(struct ledger *ledger, const struct line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && is_recovered(&lines[i], &lines[i + 1]))
            continue;
        if (!ledger->broken_at && !is_chained(ledger, &lines[i]))
            ledger->broken_at = next_sequence(ledger);
        if (json_is_object(lines[i].entry))
            json_append(ledger->lines, json_incref(lines[i].entry));
        memcpy(ledger->head, lines[i].hash, sizeof ledger->head);
    }
}

static void init(struct ledger *ledger, const char *folder)
{
    *ledger = (struct ledger){.path = file_join(folder, "ledger.jsonl"), .lines = json_array(), .descriptor = -1};
    memset(ledger->head, '0', FILE_HASH_SIZE - 1);
}

/* Fills the ledger from its file; hash[FILE_HASH_SIZE] and *offset receive those of the torn piece, where there is one.
 */
static int load(struct ledger *ledger, char *hash, size_t *offset, struct error *error)
{
    if (!file_exists(ledger->path))
        return 0;
    size_t size, count;
    char *text = file_read(ledger->path, FILE_LIMIT, &size, error);
    if (!text)
        return -1;
    struct line *lines = split_lines(text, size, &count, &ledger->torn_bytes);
    link_lines(ledger, lines, count);
    *offset = size - (size_t)ledger->torn_bytes;
    file_hash_bytes(text + *offset, (size_t)ledger->torn_bytes, hash);
    for (size_t i = 0; i < count; i++)
        json_decref(lines[i].entry);
    free(lines);
    free(text);
    return 0;
}

int ledger_read(const char *folder, struct ledger *ledger, struct error *error)
{
    char hash[FILE_HASH_SIZE];
    size_t offset;
    init(ledger, folder);
    int result = load(ledger, hash, &offset, error);
    if (result)
        ledger_close(ledger);
    return result;
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

static char *describe_holder(void)
{
    char boot_id[64] = "", host[HOST_NAME_MAX + 1] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && fgets(boot_id, sizeof boot_id, file))
        boot_id[strcspn(boot_id, "\n")] = '\0';
    if (file)
        fclose(file);
    gethostname(host, sizeof host - 1);
    json_t *object = json_object();
    json_set(object, "boot_id", json_text(boot_id));
    json_set(object, "host", json_text(host));
    json_set(object, "pid", json_integer(getpid()));
    char *text = json_canonical(object), *line = xformat("%s\n", text);
    json_decref(object);
    free(text);
    return line;
}

static int refuse_locked(int descriptor, const char *path, struct error *error)
{
    char text[1024];
    ssize_t size = pread(descriptor, text, sizeof text, 0);
    json_t *holder = size > 0 ? json_loadb(text, (size_t)size, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const char *boot_id = json_string_value(json_object_get(holder, "boot_id"));
    const char *host = json_string_value(json_object_get(holder, "host"));
    json_int_t pid = json_integer_value(json_object_get(holder, "pid"));
    if (boot_id && host && pid)
        fail(error, "%s: held by process %" JSON_INTEGER_FORMAT " on %s (boot %s); wait until it ends, or end it", path,
             pid, host, boot_id);
    else
        fail(error, "%s: held by another process; wait until it ends, or end it", path);
    json_decref(holder);
    return -1;
}

static int take_lock(int descriptor, const char *path, struct error *error)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(descriptor, F_OFD_SETLK, &whole)) {
        if (errno == EAGAIN || errno == EACCES)
            return refuse_locked(descriptor, path, error);
        return fail_errno(error, "%s: cannot lock", path);
    }
    char *line = describe_holder();
    ssize_t length = (ssize_t)strlen(line);
    int result = 0;
    if (ftruncate(descriptor, 0) || pwrite(descriptor, line, (size_t)length, 0) != length)
        result = fail_errno(error, "%s: cannot write", path);
    free(line);
    return result;
}

/* An open descriptor that holds the lock, or -1. */
static int open_lock(const char *folder, struct error *error)
{
    char *path = file_join(folder, "lock");
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        fail_errno(error, "%s: cannot open", path);
    } else if (take_lock(descriptor, path, error)) {
        close(descriptor);
        descriptor = -1;
    }
    free(path);
    return descriptor;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* One write: `before` and the line. Where that fails a piece may stand there, which only the next ledger_open() mends.
 */
static int write_line(struct ledger *ledger, const char *before, const char *line, struct error *error)
{
    int descriptor = open(ledger->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor < 0)
        return fail_errno(error, "%s: cannot open", ledger->path);
    char *text = xformat("%s%s", before, line);
    int result = file_append_line(descriptor, ledger->path, text, error);
    free(text);
    close(descriptor);
    if (result) {
        close(ledger->descriptor);
        ledger->descriptor = -1;
    }
    return result;
}

static json_t *make_entry(const struct ledger *ledger, enum ledger_actor actor, const char *action, json_t *details)
{
    char time[CLOCK_UTC_SIZE];
    json_t *entry = json_object();
    json_set(entry, "seq", json_integer(next_sequence(ledger)));
    json_set(entry, "prev", json_string(ledger->head));
    json_set(entry, "time", json_string(clock_format_utc(clock_wall_s(), time)));
    json_set(entry, "actor", json_string(actor_names[actor]));
    json_set(entry, "action", json_string(action));
    if (details && json_object_update_missing(entry, details))
        die("cannot write JSON");
    json_decref(details);
    return entry;
}

static int append(struct ledger *ledger, const char *before, json_t *entry, struct error *error)
{
    char *line = json_dumps(entry, JSON_COMPACT);
    if (!line)
        die("cannot write JSON");
    int result = ledger->descriptor < 0 ? fail(error, "%s: not open for writing", ledger->path)
                                        : write_line(ledger, before, line, error);
    if (!result) {
        json_append(ledger->lines, json_incref(entry));
        file_hash_bytes(line, strlen(line), ledger->head);
    }
    json_decref(entry);
    free(line);
    return result;
}

int ledger_append(struct ledger *ledger, enum ledger_actor actor, const char *action, json_t *details,
                  struct error *error)
{
    return append(ledger, "", make_entry(ledger, actor, action, details), error);
}

/* Ends the torn piece with a newline, and says so in the line behind it. */
static int recover(struct ledger *ledger, const char *hash, size_t offset, struct error *error)
{
    json_t *details = json_object();
    json_set(details, "offset", json_integer((json_int_t)offset));
    json_set(details, "bytes", json_integer(ledger->torn_bytes));
    json_set(details, "sha256", json_string(hash));
    json_set(details, "reason", json_string("the last line was torn"));
    ledger->torn_bytes = 0;
    return append(ledger, "\n", make_entry(ledger, LEDGER_COLLECT, "recover", details), error);
}

int ledger_refuse_broken(const struct ledger *ledger, struct error *error)
{
    return fail(error, "%s:%d: does not follow from the line before, so the ledger was changed; restore it from a copy",
                ledger->path, ledger->broken_at);
}

int ledger_open(const char *folder, struct ledger *ledger, struct error *error)
{
    char hash[FILE_HASH_SIZE];
    size_t offset;
    init(ledger, folder);
    ledger->descriptor = open_lock(folder, error);
    if (ledger->descriptor < 0)
        goto fail;
    if (!file_exists(ledger->path) && file_write_whole(ledger->path, "", 0, error))
        goto fail;
    if (load(ledger, hash, &offset, error))
        goto fail;
    if (ledger->broken_at) {
        ledger_refuse_broken(ledger, error);
        goto fail;
    }
    if (ledger->torn_bytes && recover(ledger, hash, offset, error))
        goto fail;
    return 0;
fail:
    ledger_close(ledger);
    return -1;
}

void ledger_close(struct ledger *ledger)
{
    if (ledger->descriptor >= 0)
        close(ledger->descriptor);
    free(ledger->path);
    json_decref(ledger->lines);
    *ledger = (struct ledger){.descriptor = -1};
}
