/* journal_segment: one segment and its file; the names of all files in a journal's directory. */
#ifndef MILLRACE_JOURNAL_SEGMENT_H
#define MILLRACE_JOURNAL_SEGMENT_H

#include "journal/journal_format.h"

struct frame_index;
struct journal_file;

struct segment {
    uint64_t sequence, base, seed;
    uint64_t end;     /* of its committed payload */
    uint64_t size;    /* bytes of its file */
    usec_t last_time; /* of the last frame before it */
    unsigned refs;    /* readers inside it */
    bool damaged;     /* reported by a scrub */
    bool shared;      /* its file was given out */
    char *path;
    struct frame_index *index; /* NULL: nothing is known */
    struct journal_file *file; /* given out at present */
};
struct segment *segment_new(const char *dir, const struct segment_header *h);
void segment_free(struct segment *s);

/* Paths; the caller frees them. */
char *segment_path(const char *dir, uint64_t sequence, const char *suffix);
char *prealloc_path(const char *dir, const char *suffix);
/* The sequence numbers of a directory's segments, ascending; the caller frees them. NULL with errno. */
uint64_t *segments_list(const char *dir, size_t *count);

/* All bytes of a file. 0, or -1 with errno. */
int segment_read(const char *path, struct buf *file);
/* A segment's header. A header of another number is damaged. 0, or -1 with errno: the file cannot be read. */
int segment_read_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status);
/* Creates a segment with a header and a table: writes and syncs the file, renames it to its name, syncs the directory. With
 * `prepared` the spare file becomes the segment. The descriptor, or -1 with errno; a failed sync is always EIO. */
struct new_segment {
    const char *dir;
    int dir_fd;
    const struct segment_header *header;
    struct bytes table;
    bool prepared;
};
int segment_create(const struct new_segment *n, uint64_t *end_position);

#endif
