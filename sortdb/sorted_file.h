/* sorted_file: one mapped file of sorted lines.
 *
 * Opening reads the whole file once. It checks that every line has a separator and that the lines are in order. With a manifest it also
 * compares size, record count and checksum. The searches of sorted_text.h work on sorted_file_text.
 *
 * 1. A line is valid only if sorted_file_is_whole returns true after the caller has read or copied it. A truncated file then causes an
 *    error, not a crash or a wrong answer (mapping.h).
 * 2. sorted_file_is_untouched detects writes in place.
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
    SORTED_FILE_REFUSED,   /* damaged or not sorted */
    SORTED_FILE_FAILED,    /* a system error: a retry may succeed */
    SORTED_FILE_CANCELLED, /* the caller's flag was set */
};

/* The manifest's values. */
struct sorted_file_expected {
    uint64_t bytes, records, xxh3;
};

struct sorted_file_config {
    const char *path;
    char separator;
    bool lock_memory;
    bool unique_keys;                            /* refuse two lines of one key */
    const struct sorted_file_expected *expected; /* NULL: no manifest */
    const atomic_bool *cancel;                   /* polled while reading; NULL: none */
};

/* Reads the whole file. The error names the file, and the bad line. */
enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, char error[SORTED_FILE_ERROR_TEXT]);
void sorted_file_close(struct sorted_file **f);

/* Valid while the file is open. */
const struct sorted_text *sorted_file_text(const struct sorted_file *f);
const char *sorted_file_path(const struct sorted_file *f);
uint64_t sorted_file_records(const struct sorted_file *f);
bool sorted_file_is_whole(const struct sorted_file *f);
bool sorted_file_is_untouched(const struct sorted_file *f);

#endif
