/* tools: the subcommands built into `millrace`. Each takes what follows its name (argv[0] is the name) and returns an
 * exit status: 0, 64 usage, 75 try again, 78 configuration. */
#ifndef MILLRACE_TOOLS_H
#define MILLRACE_TOOLS_H

#include "config/options.h"

int tool_up(int argc, char **argv);
int tool_put(int argc, char **argv);
int tool_compact(int argc, char **argv);
int tool_query(int argc, char **argv);
int tool_status(int argc, char **argv);
int tool_journal(int argc, char **argv);

/* What put, status and compact do alike: parses the options, says what is wrong with them, answers --check-config,
 * refuses a --data-dir in which no pipeline has run, and calls run. The spec has a row data_dir. */
int tool_run(const struct options_spec *spec, int argc, char **argv, int (*run)(const struct options *o));

/* ../libexec/millrace beside the directory of the running program: where the daemons are, built or installed. The
 * caller frees it. */
char *tool_libexec_dir(void);

#endif
