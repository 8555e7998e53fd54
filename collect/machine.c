#include "collect/machine.h"

#include "collect/base/json.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { LINE_SIZE = 512 };

/* Strips quotes and the end of the line. */
static char *trim(char *text)
{
    text += strspn(text, " \t:=\"");
    text[strcspn(text, "\"\r\n")] = '\0';
    return text;
}

/* The value of the first line that begins with `key`; NULL where there is none. `line` keeps it. */
static char *read_value(const char *path, const char *key, char *line)
{
    FILE *stream = fopen(path, "re");
    char *value = NULL;
    while (stream && !value && fgets(line, LINE_SIZE, stream))
        if (strncmp(line, key, strlen(key)) == 0)
            value = trim(line + strlen(key));
    if (stream)
        fclose(stream);
    return value && value[0] ? value : NULL;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_text(text) : json_null();
}

/* Processors that this process may use; 0: unknown. */
static int list_processors(cpu_set_t *usable)
{
    CPU_ZERO(usable);
    return sched_getaffinity(0, sizeof *usable, usable) == 0 ? CPU_COUNT(usable) : 0;
}

/* Processors of one core share its list of them; the first names the core. */
static json_t *count_physical_cores(void)
{
    cpu_set_t usable, cores;
    list_processors(&usable);
    CPU_ZERO(&cores);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        char path[128], line[LINE_SIZE];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        const char *list = CPU_ISSET(i, &usable) ? read_value(path, "", line) : NULL;
        if (list)
            CPU_SET(atoi(list), &cores);
    }
    return CPU_COUNT(&cores) ? json_integer(CPU_COUNT(&cores)) : json_null();
}

static json_t *count_cores(void)
{
    cpu_set_t usable;
    if (list_processors(&usable))
        return json_integer(CPU_COUNT(&usable));
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? json_integer(online) : json_null();
}

const char *machine_boot_id(char *boot_id)
{
    char line[LINE_SIZE];
    const char *value = read_value("/proc/sys/kernel/random/boot_id", "", line);
    snprintf(boot_id, MACHINE_BOOT_ID_SIZE, "%.*s", MACHINE_BOOT_ID_SIZE - 1, value ? value : "");
    return boot_id;
}

json_t *machine_describe(void)
{
    char line[LINE_SIZE], boot_id[MACHINE_BOOT_ID_SIZE];
    struct utsname names;
    bool named = uname(&names) == 0;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
    json_t *machine = json_object();
    const char *cpu = read_value("/proc/cpuinfo", "model name", line);
    json_set(machine, "cpu", text_or_null(cpu ? cpu : named ? names.machine : NULL));
    json_set(machine, "cores", count_cores());
    json_set(machine, "physical_cores", count_physical_cores());
    json_set(machine, "memory_bytes", pages > 0 ? json_integer((json_int_t)pages * page_bytes) : json_null());
    json_set(machine, "os", text_or_null(read_value("/etc/os-release", "PRETTY_NAME=", line)));
    json_set(machine, "kernel", text_or_null(named ? names.release : NULL));
    json_set(machine, "hostname", text_or_null(named ? names.nodename : NULL));
    json_set(machine, "boot_id", text_or_null(machine_boot_id(boot_id)[0] ? boot_id : NULL));
    return machine;
}

json_t *machine_identity(const json_t *machine)
{
    static const char *const keys[] = {"cpu", "cores", "gpus"};
    json_t *identity = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(machine, keys[i]);
        if (value)
            json_set(identity, keys[i], json_incref(value));
    }
    return identity;
}
