/* sorted_file: one mapped file of sorted lines.
 *
 * sorted_file_open reads the whole file once, and checks that every line has a separator and that the lines are in
 * order. With a manifest, sorted_file_open also compares size, record count and checksum. The functions of
 * sorted_text.h search `text`.
 *
 * sorted_file_open also builds the file's index in memory, which takes up to 5 % of the file's size.
 *
 * 1. A line is valid only if mapping_is_whole returns true after the caller has read or copied the line. So a truncated
 *    file causes an error, not a crash or a wrong answer (mapping.h).
 * 2. mapping_is_untouched detects writes in place. sorted_file_scrub detects other changes, such as changes by a
 *    failing disk.
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
    uint64_t xxh3;          /* checksum of the bytes that sorted_file_open has read */
    bool is_listed;         /* the file was opened with a manifest */
    atomic_bool is_damaged; /* the bytes have changed since sorted_file_open */
    size_t scrubbed;        /* number of bytes that the current scrub has read */
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
    bool unique_keys;                     /* refuse two lines with the same key */
    const struct manifest_file *expected; /* NULL: no manifest */
    const atomic_bool *cancel;            /* polled while reading; NULL: none */
};

/* Reads the whole file. The error names the file and the invalid line. */
enum sorted_file_result sorted_file_open(
    const struct sorted_file_config *config, struct sorted_file **out, struct error *error);
void sorted_file_close(struct sorted_file **f);
/* Rereads the next `bytes` bytes of a file that has a manifest, to detect damage. At the end of the file, compares the
 * checksum with `xxh3` and returns true; the next call begins a new scrub. Only one thread at a time may call
 * sorted_file_scrub. */
bool sorted_file_scrub(struct sorted_file *f, size_t bytes);

#endif
