/* A run folder as a person finds it: the run "tiny" after the plan of that name, with its ledger. */
#ifndef TESTS_COLLECT_RUN_FOLDER_H
#define TESTS_COLLECT_RUN_FOLDER_H

/* Makes PARENT/tiny with tp1-linear/1-1, tp1-linear/2-1 and tp1-b8/1-1, which are well, and tp1-b8/2-1 and tp1-b16/3-1,
 * which were aborted. Its path, to be free()d. */
char *run_folder_make(const char *parent);

/* The file of an attempt ("tp1-b8/2-1"), to be free()d. */
char *run_folder_path(const char *run, const char *name);

#endif
