/* A server that a plan can start: the test program itself, called as "test_launch serve MODE PORT". Modes: "fine";
 * "crashing" at the second request, "broken" and "starved" (of memory) before the first; "leaving" half a second after
 * SIGTERM, "stubborn" not at all, nor does the child that it has. */
#ifndef TESTS_SERVER_SERVED_H
#define TESTS_SERVER_SERVED_H

/* What main() begins with: serves and does not return where the program was called so. */
void served_begin(int argc, char **argv);

extern char served_self[]; /* the program's path */

/* The events of an answer of 8 tokens. */
#define SERVED_ANSWER                                                                                                  \
    SERVED_CHUNK("a")                                                                                                  \
    SERVED_CHUNK("b")                                                                                                  \
    SERVED_CHUNK("c")                                                                                                  \
    SERVED_CHUNK("d")                                                                                                  \
    SERVED_CHUNK("e")                                                                                                  \
    SERVED_CHUNK("f")                                                                                                  \
    SERVED_CHUNK("g")                                                                                                  \
    SERVED_CHUNK("h")                                                                                                  \
    "data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"length\"}]}\n\n"                                       \
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 8}}\n\ndata: "                   \
    "[DONE]\n\n"
#define SERVED_CHUNK(text) "data: {\"choices\": [{\"text\": \"" text "\"}]}\n\n"

#endif
