/* sql_table: what the virtual tables of a connection share. */
#ifndef MILLRACE_SQL_TABLE_H
#define MILLRACE_SQL_TABLE_H

#include "sql/sql_snapshot.h"

#include <sqlite3.h>

struct sql_tables {
    struct sql_snapshot *snapshot; /* NULL: the tables have no pipeline */
    const char *no_pipeline;       /* the error without a snapshot */
    uint64_t rows;                 /* rows read so far */
};

/* Sets the error of a virtual table. Returns `code`. */
int sql_table_fail(sqlite3_vtab *table, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
