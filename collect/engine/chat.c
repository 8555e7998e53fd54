#include "collect/engine/chat.h"

#include "collect/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {
    [CHAT_SYSTEM] = "system", [CHAT_USER] = "user", [CHAT_ASSISTANT] = "assistant"};

static int find_last_user(const struct chat_message *messages, int count)
{
    int last = count - 1;
    while (last >= 0 && messages[last].role != CHAT_USER)
        last--;
    return last;
}

/* What follows the last "</think>" and the newlines behind it. */
static const char *skip_thoughts(const char *content)
{
    static const char end[] = "</think>";
    const char *answer = content;
    for (const char *found; (found = strstr(answer, end));)
        answer = found + strlen(end);
    return answer == content ? content : answer + strspn(answer, "\n");
}

static void put_content(FILE *stream, const char *content, bool trims)
{
    static const char white[] = " \t\n\v\f\r";
    size_t length = strlen(content), skipped = trims ? strspn(content, white) : 0;
    while (trims && length > skipped && strchr(white, content[length - 1]))
        length--;
    fwrite(content + skipped, 1, length - skipped, stream);
}

char *chat_format(const struct chat_message *messages, int count, bool thinking, const struct chat_style *style,
                  size_t *user_at)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        die("out of memory: a chat of %d messages", count);
    int last_user = find_last_user(messages, count);
    bool met_user = false;
    for (int i = 0; i < count; i++) {
        bool past = i < last_user && messages[i].role == CHAT_ASSISTANT;
        fprintf(stream, "<|im_start|>%s\n", role_names[messages[i].role]);
        if (user_at && messages[i].role == CHAT_USER && !met_user)
            *user_at = (size_t)ftell(stream);
        met_user |= messages[i].role == CHAT_USER;
        put_content(stream, past ? skip_thoughts(messages[i].content) : messages[i].content, style->trims);
        fputs("<|im_end|>\n", stream);
    }
    fputs("<|im_start|>assistant\n", stream);
    fputs(!thinking ? "<think>\n\n</think>\n\n" : style->opens_thoughts ? "<think>\n" : "", stream);
    if (fclose(stream))
        die("out of memory: a chat of %d messages", count);
    return text;
}
