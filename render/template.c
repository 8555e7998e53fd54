#include "render/template.h"

#include "collect/base/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_LIMIT ((size_t)16 << 20)

int template_copy(const char *from, const char *to, const char *name, struct error *error)
{
    char *source = file_join(from, name), *target = file_join(to, name);
    size_t size;
    char *bytes = file_read(source, TEMPLATE_LIMIT, &size, error);
    int result = bytes ? file_write_whole(target, bytes, size, error) : -1;
    free(bytes);
    free(source);
    free(target);
    return result;
}

static int is_template(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && entry->d_name[0] != '.' && strcmp(entry->d_name + length - 4, ".tex") == 0;
}

int template_copy_all(const char *from, const char *to, struct error *error)
{
    struct dirent **entries = NULL;
    int count = scandir(from, &entries, is_template, alphasort), result = 0;
    if (count < 0)
        return fail_errno(error, "%s: cannot read the templates; give their folder with --templates", from);
    int main_file = -1;
    for (int i = 0; i < count; i++) {
        if (strcmp(entries[i]->d_name, "report.tex") == 0)
            main_file = i;
        if (!result)
            result = template_copy(from, to, entries[i]->d_name, error);
        free(entries[i]);
    }
    free(entries);
    if (!result && main_file < 0)
        return fail(error, "%s: has no report.tex; give the templates' folder with --templates", from);
    return result;
}
