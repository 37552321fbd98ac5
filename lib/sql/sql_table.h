/* sql_table: what the virtual tables of a connection share. */
#ifndef MILLRACE_SQL_TABLE_H
#define MILLRACE_SQL_TABLE_H

#include "sql/sql_snapshot.h"

#include <sqlite3.h>

struct sql_tables {
    struct sql_snapshot *snapshot; /* NULL: the tables have no pipeline */
    const char *no_pipeline;       /* the error without a snapshot */
    uint64_t rows;                 /* rows read so far */
    const atomic_bool *cancel;     /* NULL: none */
    bool reads_files;              /* `events` may read files */
    /* For `events`; borrowed. time_field NULL: no counters are configured. */
    const char *pubsub_url, *pubsub_token, *time_field;
    int64_t units_a_second, max_ahead;
    bool time_is_lenient;
};

/* Sets the error of a virtual table. Returns `code`. */
int sql_table_fail(sqlite3_vtab *table, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
