/* query_print: prints answers of the API as text for people: rows with bars, series with sparklines, shares in percent.
 *
 * 1. The time to print an answer is linear in the size of the answer.
 * 2. Printed keys contain no control bytes (stream_view_print).
 * 3. Bars and sparklines use block characters in a UTF-8 locale, else ASCII. */
#ifndef MILLRACE_QUERY_PRINT_H
#define MILLRACE_QUERY_PRINT_H

#include "json/json_fields.h"

/* The names of all questions, for usage errors and completion. The list ends with NULL. */
extern const char *const query_questions[];
/* Prints the answer to a question. */
void query_print(const char *question, const struct json_doc *answer);
/* Prints the list of counters as CSV, because the API has no CSV form of this list. */
void query_print_counters_csv(const struct json_doc *answer);

/* Copies an answer, and quotes its sums and means that have a point. A double would not keep all their digits. */
void query_quote_decimals(struct bytes answer, struct buf *out);

#endif
