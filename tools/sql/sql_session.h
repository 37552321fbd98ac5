/* sql_session: a read-only connection with the tables of a pipeline, which runs statements and prints their rows.
 *
 * 1. SQLite's authorizer refuses every action but to select: no write, no ATTACH, no PRAGMA, no loaded extension.
 * 2. SIGINT, and the end of max_time, end the running statement, also while the archive is opened. A second SIGINT, or
 *    two seconds after max_time, end the process.
 * 3. Every error is printed once, and becomes an exit status (docs/guide/millrace.md).
 *
 * A process has one session. */
#ifndef MILLRACE_SQL_SESSION_H
#define MILLRACE_SQL_SESSION_H

#include "config/options.h"
#include "sql/sql_tables.h"

struct sql_session;

/* `o` must outlive the session, and so must what `tables` borrows. `archive` and `slices` are directories, and `archive` is borrowed; slices NULL: only
 * the archive. Returns 0, or an exit status after printing the error. */
int sql_session_open(const struct options *o, const struct sql_tables *tables, const char *archive,
    const char *slices, struct sql_session **out);
void sql_session_close(struct sql_session **s);
/* Runs all statements of a text, up to the first error. Returns the exit status. */
int sql_session_run(struct sql_session *s, const char *sql);

#endif
