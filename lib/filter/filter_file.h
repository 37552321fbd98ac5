/* filter_file: the file of a filter, its log, and the atomic write of changed blocks.
 *
 * The writer maps the layers privately, so the kernel never writes a changed page to the file. filter_file_sync has three
 * steps:
 *
 *     1. write the new header and the changed blocks to the log, and sync the log
 *     2. write the blocks and the header to their places in the file, and sync the file
 *     3. truncate the log
 *
 * 1. A log without a valid checksum comes from an interrupted step 1. The file is unchanged, and the log is ignored.
 * 2. A log with a valid checksum may come from any interrupted step. filter_file_open writes and syncs this log again,
 *    because a killed writer may have left it unsynced, and repeats steps 2 and 3. Their writes have the same bytes each
 *    time, so the number of repetitions does not matter.
 * 3. A log has the seed of its file. A log with another seed is ignored.
 * 4. Bytes behind the last layer of the header are zeros. A new layer therefore needs no initialization.
 * 5. The lock on the log excludes a second writer. */
#ifndef MILLRACE_FILTER_FILE_H
#define MILLRACE_FILTER_FILE_H

#include "filter/filter_header.h"

struct filter {
    struct filter_header h;
    struct filter_layer layers[FILTER_LAYERS];
    char *path;
    int fd, log;       /* -1: not open; a reader has no log */
    uint64_t synced;   /* sequence in the file */
    uint64_t reserved; /* end of the reserved space; 0: not known */
    bool has_failed, was_recovered;
};

/* Opens `path` and its log, or creates both with the header in `f`, and maps the layers. The caller calls filter_file_close
 * also after an error. */
enum filter_result filter_file_open(struct filter *f, struct error *error);
enum filter_result filter_file_open_reader(struct filter *f, struct error *error);
/* True if the path has another file than the reader, or none. */
bool filter_file_is_replaced(const struct filter *f);
/* Reads the header of a reader again, and maps new layers. */
enum filter_result filter_file_refresh(struct filter *f, struct error *error);
void filter_file_close(struct filter *f);
/* Reserves the space of the file up to `end`, behind the last layer. */
enum filter_result filter_file_reserve(struct filter *f, uint64_t end, struct error *error);
/* Appends a layer. FILTER_NO_SPACE: nothing has changed. */
enum filter_result filter_file_add_layer(
    struct filter *f, const struct filter_range *range, struct error *error);
enum filter_result filter_file_sync(struct filter *f, struct error *error);

#endif
