/* sorted_file: one mapped file of sorted lines.
 *
 * Opening reads the whole file once. It checks that every line has a separator and that the lines are in order. With a manifest it also
 * compares size, record count and checksum. The searches of sorted_text.h work on `text`.
 *
 * The same pass builds the file's index in memory, which takes up to 5 % of the file's size.
 *
 * 1. A line is valid only if mapping_is_whole returns true after the caller has read or copied it. A truncated file then causes an
 *    error, not a crash or a wrong answer (mapping.h).
 * 2. mapping_is_untouched detects writes in place. sorted_file_scrub detects other changes, such as those of a failing disk.
 */
#ifndef MILLRACE_SORTED_FILE_H
#define MILLRACE_SORTED_FILE_H

#include "counts/manifest.h"
#include "archive/mapping.h"
#include "archive/sorted_text.h"

#include <stdatomic.h>

struct sorted_file {
    struct mapping *mapping;
    struct sorted_text text;
    struct sorted_index *index; /* text.index */
    char *path;
    uint64_t records;
    uint64_t xxh3;          /* of the bytes that opening has read */
    bool is_listed;         /* opened with a manifest */
    atomic_bool is_damaged; /* the bytes differ from those that opening has read */
    size_t scrubbed;        /* bytes that the current scrub has read */
    struct XXH3_state_s *scrub;
};

enum sorted_file_result {
    SORTED_FILE_OK,
    SORTED_FILE_ABSENT,
    SORTED_FILE_REFUSED,   /* damaged or not sorted */
    SORTED_FILE_FAILED,    /* a system call failed; a retry may succeed */
    SORTED_FILE_CANCELLED, /* the caller's flag was set */
};

struct sorted_file_config {
    const char *path;
    char separator;
    bool lock_memory;
    bool unique_keys;                     /* refuse two lines of one key */
    const struct manifest_file *expected; /* NULL: no manifest */
    const atomic_bool *cancel;            /* polled while reading; NULL: none */
};

/* Reads the whole file. The error names the file, and the bad line. */
enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, struct error *error);
void sorted_file_close(struct sorted_file **f);
/* Reads the next `bytes` of a file with a manifest again, and at its end compares the checksum with that of the opening. Returns true at
 * the end; the next call begins again. One thread at a time. */
bool sorted_file_scrub(struct sorted_file *f, size_t bytes);

#endif
