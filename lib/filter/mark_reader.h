/* mark_reader: the marks of a spamfilter on this host, read in process from the files in its directory.
 *
 * A check needs no request: the reader maps the file of marks, which spamfilter writes (filter.h, invariant 8), and keeps the
 * exceptions in memory.
 *
 * 1. Answers follow the last sync of spamfilter, at most a second later. If spamfilter is down, its last sync counts.
 * 2. If a load replaces the file of marks, the reader opens the new file within a second.
 * 3. A match counts only if the exceptions are at least as new as the match: spamfilter writes exceptions before marks, and the
 *    reader looks at the file of exceptions again after each match.
 * 4. A missing or damaged file never stops the caller. The reader uses the former file, or answers that no link is marked
 *    and counts these links. mark_reader_problem names the file.
 *
 * One thread at a time may use a reader. */
#ifndef MILLRACE_MARK_READER_H
#define MILLRACE_MARK_READER_H

#include "base/stats.h"
#include "filter/exact_table.h"
#include "filter/filter.h"
#include "url/url_form.h"

#define MARKS_FILE "marks"           /* a filter of the first parents of all marks */
#define EXCEPTIONS_FILE "exceptions" /* a line for each exception; may be missing */

/* The mark or the exception that decides: the most specific of a URL's parents. If a text is both, it is an exception. Both
 * are empty if none decides. The texts point into the form. */
struct mark_verdict {
    struct bytes match, allowed;
    uint64_t id; /* of the mark's add, if spamfilter knows it; otherwise 0 */
};
struct mark_verdict mark_verdict_of(
    const struct filter *marks, const struct exact_table *exceptions, const struct url_form *form);
/* Adds the exceptions of a file, which may be missing, to the table. Returns 0, or -1 with errno. */
int mark_exceptions_read(const char *path, struct exact_table *exceptions);

struct mark_reader;

/* `dir`: data_dir of spamfilter, which need not exist yet. `stats`: registry of the counters, or NULL. */
struct mark_reader *mark_reader_new(const char *dir, struct stats *stats);
void mark_reader_free(struct mark_reader **r);
/* Returns the mark that applies to the link, such as bad.example, or BYTES_NONE. The link may be any bytes. The mark is valid
 * until the next call. */
struct bytes mark_reader_match(struct mark_reader *r, struct bytes link);
/* Appends `"marked":` and a mark as a JSON string, or null for no mark. */
#define MARK_MEMBER "marked"
void mark_member_append(struct bytes match, struct buf *out);
/* Returns a problem of the present files, or NULL. The text is valid until the next call. */
const char *mark_reader_problem(struct mark_reader *r);
#define MARK_READER_REMEDY "start spamfilter, or set marks_dir to the data_dir of spamfilter"

#endif
