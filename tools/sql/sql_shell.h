/* sql_shell: reads statements from a terminal, with a prompt, line editing and a history.
 *
 * A statement ends with `;` and may have several lines. A line that begins with a dot is a command, such as .help. Ctrl-C ends
 * the running statement, or drops the typed lines. */
#ifndef MILLRACE_SQL_SHELL_H
#define MILLRACE_SQL_SHELL_H

#include "tools/sql/sql_session.h"

/* Returns the exit status of the shell, which does not depend on failed statements. */
int sql_shell_run(struct sql_session *s);

#endif
