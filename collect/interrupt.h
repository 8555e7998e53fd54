/* SIGINT and SIGTERM as a question that is asked between requests, so that a run ends with whole lines. A second signal
 * ends the program at once.
 *
 * A handler's frame goes where the stack pointer of the thread is that it interrupts, and oneDNN 2.6 multiplies float32
 * matrices on AVX2 with that pointer at the begin of a block of the heap: what lies before the block would be written
 * over. So the thread that calls, and all that are made from then on, take neither signal; one that does nothing else
 * takes them. */
#ifndef COLLECT_INTERRUPT_H
#define COLLECT_INTERRUPT_H

#include <stdbool.h>

/* To be called before any thread computes. */
void interrupt_catch(void);
bool interrupt_seen(void);

/* Gives the signals their former meaning back. */
void interrupt_release(void);

/* For a child, which inherits that they are blocked, before it becomes another program. Asks the system alone. */
void interrupt_unblock(void);

#endif
