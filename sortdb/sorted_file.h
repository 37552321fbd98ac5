/* sorted_file: one file of sorted lines, opened, checked and searched where it lies.
 *
 * Opening reads the whole file once: every line has a separator, none stands behind a greater one, and what a manifest
 * says of it (size, records, checksum) is so. What was opened is therefore in order, and the searches of sorted_text.h,
 * over sorted_file_text, find what is there.
 *
 * 1. A line is part of an answer only if sorted_file_is_whole says so after it was read or copied: a file that somebody
 *    truncates while it is served gives an error, neither a crash nor a wrong answer (mapping.h says why).
 * 2. A file written to in place, which nobody should do, is noticed by sorted_file_is_untouched.
 */
#ifndef MILLRACE_SORTED_FILE_H
#define MILLRACE_SORTED_FILE_H

#include "sortdb/sorted_text.h"

#include <stdatomic.h>

#define SORTED_FILE_ERROR_TEXT 512

struct sorted_file;

enum sorted_file_result {
    SORTED_FILE_OK,
    SORTED_FILE_ABSENT,
    SORTED_FILE_REFUSED,   /* a line of it, or the whole, is not what it should be */
    SORTED_FILE_FAILED,    /* the system refused: another try may do */
    SORTED_FILE_CANCELLED, /* the caller's flag was set */
};
const char *sorted_file_strerror(enum sorted_file_result r);

/* What is known of a file beforehand. */
struct sorted_file_expected {
    uint64_t bytes, records, xxh3;
};

struct sorted_file_config {
    const char *path;
    char separator;
    bool lock_memory;
    bool unique_keys;                            /* refuse two lines of one key */
    const struct sorted_file_expected *expected; /* NULL: nothing is known */
    const atomic_bool *cancel;                   /* looked at while reading; NULL: never */
};

/* Takes as long as reading the file does. The error text names the file, and the line when one is refused. */
enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, char error[SORTED_FILE_ERROR_TEXT]);
void sorted_file_close(struct sorted_file **f);

/* Lives as long as the file is open. */
const struct sorted_text *sorted_file_text(const struct sorted_file *f);
const char *sorted_file_path(const struct sorted_file *f);
uint64_t sorted_file_records(const struct sorted_file *f);
bool sorted_file_is_whole(const struct sorted_file *f);
bool sorted_file_is_untouched(const struct sorted_file *f);

#endif
