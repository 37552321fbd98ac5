/* query_print: the answers of the API as text for a person: rows with bars, series with sparklines, shares in percent.
 *
 * 1. Printing takes time linear in the answer.
 * 2. Keys contain no control bytes when they are printed (stream_view_print).
 * 3. Bars and sparklines use block characters if the locale's text is UTF-8, else ASCII. */
#ifndef MILLRACE_QUERY_PRINT_H
#define MILLRACE_QUERY_PRINT_H

#include "json/json_fields.h"

/* The names of the questions, for usage errors and completion; NULL ends them. */
extern const char *const query_questions[];
/* Prints the answer to a question. */
void query_print(const char *question, const struct json_doc *answer);
/* Prints the counters as CSV, which the API does not. */
void query_print_counters_csv(const struct json_doc *answer);

#endif
