#include "collect/base/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const struct option_command *command)
{
    printf("usage: %s\n\n%s\n\n", command->usage, command->purpose);
    for (const struct option_entry *option = command->options; option->name; option++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", option->name, option->value ? option->value : "");
        printf("  %-24s %s%s\n", left, option->help, option->required ? " (required)" : "");
    }
    printf("  %-24s %s\n", "--help", "this text");
}

static enum option_result wrong(const struct option_command *command, const char *what, const char *about)
{
    fprintf(stderr, "%s%s; usage: %s\n", what, about, command->usage);
    return OPTION_WRONG;
}

static const struct option_entry *find_option(const struct option_entry *options, const char *text, size_t length)
{
    for (const struct option_entry *option = options; option->name; option++)
        if (strlen(option->name) == length && strncmp(option->name, text, length) == 0)
            return option;
    return NULL;
}

static bool store_value(const struct option_entry *option, const char *value)
{
    if (option->type == OPTION_TEXT) {
        *(const char **)option->to = value;
        return value[0] != '\0';
    }
    char *end;
    long number = strtol(value, &end, 10);
    *(int *)option->to = (int)number;
    return end != value && *end == '\0' && number > 0 && number <= 1000000000;
}

enum option_result option_parse(const struct option_command *command, int argc, char **argv, int *count)
{
    bool only_arguments = false;
    bool given[64] = {false};
    *count = 0;
    for (int i = 1; i < argc; i++) {
        char *text = argv[i];
        if (only_arguments || text[0] != '-' || text[1] == '\0') {
            argv[(*count)++] = text;
            continue;
        }
        if (strcmp(text, "--") == 0) {
            only_arguments = true;
            continue;
        }
        if (strcmp(text, "--help") == 0) {
            print_help(command);
            return OPTION_HELP_SHOWN;
        }
        const char *equals = strchr(text, '=');
        size_t length = equals ? (size_t)(equals - text) : strlen(text);
        const struct option_entry *option = find_option(command->options, text, length);
        if (!option)
            return wrong(command, "unknown option ", text);
        given[option - command->options] = true;
        if (option->type == OPTION_FLAG) {
            if (equals)
                return wrong(command, "no value goes with ", option->name);
            *(bool *)option->to = true;
            continue;
        }
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value || !store_value(option, value))
            return wrong(command, value ? "wrong value for " : "a value is missing after ", option->name);
    }
    for (const struct option_entry *option = command->options; option->name; option++)
        if (option->required && !given[option - command->options])
            return wrong(command, "missing ", option->name);
    if (*count < command->minimum_arguments)
        return wrong(command, "too few arguments", "");
    if (command->maximum_arguments >= 0 && *count > command->maximum_arguments)
        return wrong(command, "unexpected argument ", argv[command->maximum_arguments]);
    return OPTION_RUN;
}
