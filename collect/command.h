/* The commands of the program `collect`. argv[0] is the command's own name; the answer is the exit code. */
#ifndef COLLECT_COMMAND_H
#define COLLECT_COMMAND_H

#define COMMAND_RUNS_DEFAULT "data/runs"
#define EXIT_CODE_INTERRUPTED 130

int command_run(int argc, char **argv);
int command_status(int argc, char **argv);
int command_invalidate(int argc, char **argv);
int command_reinstate(int argc, char **argv);
int command_purge(int argc, char **argv);
int command_import(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_check_model(int argc, char **argv);
int command_record_trees(int argc, char **argv);
int command_plan_name(int argc, char **argv);

#endif
