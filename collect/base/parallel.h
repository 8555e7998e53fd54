/* The same for many things at once, on as many threads as there are processors. */
#ifndef COLLECT_BASE_PARALLEL_H
#define COLLECT_BASE_PARALLEL_H

/* Calls body(context, index) for each index below `count`, in no order, on several threads where that is worth it: what
 * it changes belongs to its index. The threads have ended when it returns, so that a process may fork afterwards. */
void parallel_for(int count, void (*body)(void *context, int index), void *context);

#endif
