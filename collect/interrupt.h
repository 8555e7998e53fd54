/* SIGINT and SIGTERM as a question that is asked between requests, so that a run ends with whole lines. A second signal
 * ends the program at once. */
#ifndef COLLECT_INTERRUPT_H
#define COLLECT_INTERRUPT_H

#include <stdbool.h>

void interrupt_catch(void);
bool interrupt_seen(void);

/* Gives the signals their former meaning back. */
void interrupt_release(void);

#endif
