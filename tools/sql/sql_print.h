/* sql_print: prints the rows of a statement as a table, CSV or JSON.
 *
 *     table   columns of equal width, numbers to the right; control bytes as \xHH, NULL as NULL
 *     csv     RFC 4180; NULL is empty
 *     json    an array of objects; a blob is its bytes in hexadecimal digits
 *
 * The widths of a table are those of its first SQL_PRINT_HELD rows; later rows are printed as they come. */
#ifndef MILLRACE_SQL_PRINT_H
#define MILLRACE_SQL_PRINT_H

#include "base/bytes.h"

#include <sqlite3.h>

#define SQL_PRINT_HELD 500
#define SQL_PRINT_FORMATS "table|csv|json"

struct sql_printer;

/* `format` is one of SQL_PRINT_FORMATS. */
struct sql_printer *sql_printer_new(const char *format, bool has_header);
void sql_printer_free(struct sql_printer **p);
/* Call sql_printer_begin after the statement's first step, and sql_printer_end also after a failed step. */
void sql_printer_begin(struct sql_printer *p, sqlite3_stmt *statement);
void sql_printer_row(struct sql_printer *p, sqlite3_stmt *statement);
void sql_printer_end(struct sql_printer *p);

#endif
